/* See class-folders.h. Samples of one class mostly follow each other, so a class is looked up only where it changes. */
#include "dataset/folder/class-folders.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct walk {
	class_folders_path_fn *path;
	const void *arg;
	uint64_t n;
	size_t n_root; /* of the common folder, with its slash */
};

/* Whether a sample lies in a folder of the root, rather than in the root itself. */
static bool lies_deeper(const struct walk *w)
{
	for (uint64_t i = 0; i < w->n; i++) {
		if (strchr(w->path(w->arg, i) + w->n_root, '/'))
			return true;
	}
	return false;
}

static void find_root(struct walk *w)
{
	const char *first = w->n ? w->path(w->arg, 0) : "";

	w->n_root = strlen(first);
	for (uint64_t i = 0; i < w->n; i++) {
		const char *path = w->path(w->arg, i);
		size_t n = 0;

		while (n < w->n_root && path[n] == first[n])
			n++;
		while (n && first[n - 1] != '/')
			n--;
		w->n_root = n;
	}
	/* All in one folder: that is the only class, of the folder above it. */
	if (w->n_root && !lies_deeper(w))
		for (w->n_root--; w->n_root && first[w->n_root - 1] != '/';)
			w->n_root--;
}

/* The class of a sample; *n is 0 if it has none. */
static const char *class_of(const struct walk *w, uint64_t i, size_t *n)
{
	const char *below = w->path(w->arg, i) + w->n_root, *slash = strchr(below, '/');

	*n = slash ? (size_t)(slash - below) : 0;
	return below;
}

static bool is_class(const struct classes *c, uint64_t name, const char *class, size_t n)
{
	const char *known = c->text.bytes + name;

	return !strncmp(known, class, n) && !known[n];
}

static int by_name(const void *a, const void *b, void *arg)
{
	const struct classes *c = arg;

	return strcmp(c->text.bytes + *(const uint64_t *)a, c->text.bytes + *(const uint64_t *)b);
}

/* Each class once for each time that it begins; then sorted, each once. */
static int collect(struct classes *c, const struct walk *w, struct meter *meter)
{
	size_t n_all = 0;
	int r = 0;

	for (uint64_t i = 0; !r && i < w->n; i++) {
		size_t n;
		const char *class = class_of(w, i, &n);

		if (c->n && is_class(c, c->names[c->n - 1], class, n))
			continue;
		r = block_grow(meter, &c->names, &c->capacity, c->n + 1, sizeof(*c->names));
		r = r ? r : text_add(&c->text, class, n, &c->names[c->n]);
		c->n += !r;
	}
	if (r || !c->n)
		return r;
	qsort_r(c->names, c->n, sizeof(*c->names), by_name, c);
	for (size_t i = 1; i < c->n; i++) {
		if (strcmp(classes_name(c, i), classes_name(c, n_all)))
			c->names[++n_all] = c->names[i];
	}
	c->n = n_all + 1;
	return c->n > UINT32_MAX ? -EFBIG : 0;
}

static uint32_t find_class(const struct classes *c, const char *class, size_t n)
{
	size_t low = 0, high = c->n;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;
		const char *known = classes_name(c, middle);
		int order = strncmp(known, class, n);

		if (order > 0 || (order == 0 && known[n]))
			high = middle;
		else
			low = middle;
	}
	return (uint32_t)low;
}

static int put_labels(struct classes *c, const struct walk *w, struct meter *meter, uint64_t *odd)
{
	int r = meter_take(meter, w->n * sizeof(*c->labels));

	c->labels = r ? NULL : malloc(w->n * sizeof(*c->labels));
	c->n_samples = c->labels ? w->n : 0;
	if (!c->labels)
		return r ? r : -ENOMEM;
	for (uint64_t i = 0; i < w->n; i++) {
		size_t n;
		const char *class = class_of(w, i, &n);

		if (!n) {
			*odd = i;
			return -EINVAL;
		}
		c->labels[i] = i && is_class(c, c->names[c->labels[i - 1]], class, n) ? c->labels[i - 1]
										      : find_class(c, class, n);
	}
	return 0;
}

int class_folders_make(class_folders_path_fn *path, const void *arg, uint64_t n, struct meter *meter,
		       struct classes *out, uint64_t *odd)
{
	struct walk w = { .path = path, .arg = arg, .n = n };
	int r;

	*out = (struct classes){ .text = { .meter = meter } };
	find_root(&w);
	r = collect(out, &w, meter);
	if (r || (out->n == 1 && !*classes_name(out, 0))) {
		out->n = 0;
		return r;
	}
	return put_labels(out, &w, meter, odd);
}
