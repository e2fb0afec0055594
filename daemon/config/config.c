/* The meaning of the configuration: scalar keys by their table (key.c), lists by code here. */
#include "config/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/file.h"
#include "config/key.h"
#include "config/strict.h"
#include "image/transform/views.h"
#include "sources.h"
#include "base/cpu.h"
#include "base/user.h"

enum { MAX_DATASET_NAME = 64 };

/* ---- messages ---- */

static int config_fail(struct config_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int config_fail(struct config_error *err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(err->text, sizeof err->text, fmt, args);
	va_end(args);
	return -EINVAL;
}

/* Puts "FILE:LINE: " before the message. */
static int fail_in(const struct config_file *f, unsigned line, struct config_error *err)
{
	struct config_error inner = *err;

	return config_fail(err, "%.120s:%u: %.500s", f->path, line, inner.text);
}

static bool config_is_word(const char *text, const char *word)
{
	return strcmp(text, word) == 0;
}

/* ---- scalar keys ---- */

int config_set(struct config *c, const char *key, const char *text, struct config_error *err)
{
	const struct key *k = key_find(key);

	return k ? key_set(c, k, text, err) : config_fail(err, "unknown key '%.60s'", key);
}

int config_defaults(struct config *c)
{
	struct config_error unused = { .text = "" };

	*c = (struct config){ .socket_group = CONFIG_NO_GROUP };
	for (const struct key *k = config_keys; k->name; k++) {
		int e = k->standard ? key_set(c, k, k->standard, &unused) : 0;

		if (e < 0) {
			config_finish(c);
			return e;
		}
	}
	return 0;
}

/* ---- names and sources ---- */

/* Only letters, digits and . _ -: a name must not look like "kind:place", and must be safe in shells and logs. */
static int config_check_name(const char *where, const char *name, struct config_error *err)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t n = strlen(name);

	if (n == 0 || n > MAX_DATASET_NAME || strspn(name, allowed) != n)
		return config_fail(err, "%s: '%.80s' is not a name; expected 1 to %d letters, digits, '.', '_' or '-'",
				   where, name, MAX_DATASET_NAME);
	return 0;
}

static int config_fail_source(const char *where, const char *source, const char *why, struct config_error *err)
{
	return config_fail(err, "%s: '%.200s' %s", where, source, why);
}

/* What only a client can send along, or what names nothing. */
static int check_part(const char *where, const char *text, const struct Source *s, const struct SourcePart *p,
		      struct config_error *err)
{
	bool is_path = source_part_is_path(p);

	if (p->role == SOURCE_ROLE__ARRAY)
		return config_fail_source(where, text, "are arrays of a client; a configuration names files", err);
	if (p->role == SOURCE_ROLE__ROWS || p->role == SOURCE_ROLE__TABLE)
		return config_fail_source(
			where, text,
			p->role == SOURCE_ROLE__ROWS
				? "has rows=, which only a client can send along; leave it out for all rows"
				: "has table=, which only a client can send along",
			err);
	if (s->n_part == 1 && !*(is_path ? p->path : p->name))
		return config_fail_source(where, text, "names nothing after the colon", err);
	if (is_path && *p->path != '/')
		return config_fail(err, "%s: '%.200s' is relative; expected an absolute path, such as %s:/data/train",
				   where, text, source_kind_name(s->kind));
	return 0;
}

/* Takes a source apart. 0, -EINVAL with err, or -ENOMEM. */
static int parse_source(const char *where, const char *text, struct Sources **out, struct config_error *err)
{
	char why[400];
	int r = sources_parse(text, out, why, sizeof why);

	if (r == -ENOENT)
		return config_fail(err, "%s: '%.200s' is not a source; expected " SOURCE_KINDS_TEXT, where, why);
	if (r == -EINVAL)
		return config_fail(err, "%s: '%.200s': %s", where, text, why);
	for (size_t i = 0; r == 0 && i < (*out)->n_source; i++) {
		const struct Source *s = (*out)->source[i];

		if (source_lacks_parts(s))
			r = config_fail_source(where, text, "names no file after the colon", err);
		for (size_t k = 0; r == 0 && k < s->n_part; k++)
			r = check_part(where, text, s, s->part[k], err);
	}
	if (r == -EINVAL) {
		sources_free(*out);
		*out = NULL;
	}
	return r;
}

static int check_transform(const char *where, const char *text, struct config_error *err)
{
	struct pipeline_error why = { .text = "" };
	struct pipeline *p = NULL;
	const struct image_form unknown = { .n_channels = 3 };
	int e = views_parse(text, &unknown, DTYPE_FLOAT32, LAYOUT_NCHW, &p, &why);

	/* Images of one number a pixel may come as they are. */
	for (size_t i = 0; e == -EINVAL && i < 2; i++) {
		struct pipeline_error other = { .text = "" };

		e = views_parse(text, &unknown, i ? DTYPE_INT32 : DTYPE_UINT16, LAYOUT_NCHW, &p, &other);
	}
	if (e == 0)
		pipeline_destroy(p);
	return e == -EINVAL ? config_fail(err, "%s: %s", where, why.text) : e;
}

const char *config_pipeline(const struct config *c, const char *name)
{
	for (uint32_t i = 0; i < c->n_pipelines; i++)
		if (config_is_word(c->pipelines[i].name, name))
			return c->pipelines[i].transform;
	return NULL;
}

static struct config_dataset *dataset_find(const struct config *c, const char *name)
{
	for (uint32_t i = 0; i < c->n_datasets; i++)
		if (config_is_word(c->datasets[i].name, name))
			return &c->datasets[i];
	return NULL;
}

const struct config_dataset *config_dataset(const struct config *c, const char *name)
{
	return dataset_find(c, name);
}

static void dataset_finish(struct config_dataset *d)
{
	free(d->name);
	sources_free(d->sources);
	free(d->transform);
	free(d->users);
	free(d->groups);
}

void config_finish(struct config *c)
{
	for (uint32_t i = 0; i < c->n_pipelines; i++) {
		free(c->pipelines[i].name);
		free(c->pipelines[i].transform);
	}
	for (uint32_t i = 0; i < c->n_datasets; i++)
		dataset_finish(&c->datasets[i]);
	free(c->pipelines);
	free(c->datasets);
	for (const struct key *k = config_keys; k->name; k++)
		key_finish(c, k);
	*c = (struct config){ .socket_group = CONFIG_NO_GROUP };
}

/* Adds a zeroed data set at the end. It counts at once, so that config_finish frees it even if a failure leaves it
 * incomplete. */
static struct config_dataset *dataset_add(struct config *c)
{
	struct config_dataset *more = reallocarray(c->datasets, c->n_datasets + 1, sizeof *more);

	if (!more)
		return NULL;
	c->datasets = more;
	more[c->n_datasets] = (struct config_dataset){ .name = NULL };
	return &more[c->n_datasets++];
}

int config_set_dataset(struct config *c, const char *name, const char *source, struct config_error *err)
{
	char where[96];
	struct Sources *sources;
	int e = config_check_name("dataset", name, err);

	snprintf(where, sizeof where, "dataset %s", name);
	if (e < 0 || (e = parse_source(where, source, &sources, err)) < 0)
		return e;

	struct config_dataset fresh = { .name = strdup(name), .sources = sources };
	struct config_dataset *d = dataset_find(c, name);

	if (fresh.name && !d)
		d = dataset_add(c);
	if (!fresh.name || !d) {
		dataset_finish(&fresh);
		return -ENOMEM;
	}
	dataset_finish(d);
	*d = fresh;
	return 0;
}

/* ---- lists of the file ---- */

static int load_pipeline(const struct config_file *f, uint32_t i, struct config *c, struct config_error *err)
{
	const struct pipeline_text *text = (const struct pipeline_text *)f->pipelines.entries + i;
	const char *name = text->name.text, *transform = text->transform.text;
	char name_at[64], transform_at[64];

	snprintf(name_at, sizeof name_at, "pipelines[%u].name", i);
	snprintf(transform_at, sizeof transform_at, "pipelines[%u].transform", i);

	int e = config_check_name(name_at, name, err);

	if (e == 0 && (config_is_word(name, "train224") || config_is_word(name, "val224")))
		e = config_fail(err, "%s: '%s' is built in; choose another name", name_at, name);
	if (e == 0 && config_pipeline(c, name))
		e = config_fail(err, "%s: '%s' is given twice", name_at, name);
	if (e < 0)
		return fail_in(f, text->name.line, err);
	e = check_transform(transform_at, transform, err);
	if (e < 0)
		return e == -EINVAL ? fail_in(f, text->transform.line, err) : e;

	struct config_pipeline *p = &c->pipelines[c->n_pipelines];

	*p = (struct config_pipeline){ .name = strdup(name), .transform = strdup(transform) };
	c->n_pipelines++; /* also if incomplete: config_finish frees it */
	return p->name && p->transform ? 0 : -ENOMEM;
}

static int load_pipelines(const struct config_file *f, struct config *c, struct config_error *err)
{
	int e = 0;

	if (f->pipelines.n == 0)
		return 0;
	c->pipelines = calloc(f->pipelines.n, sizeof *c->pipelines);
	if (!c->pipelines)
		return -ENOMEM;
	for (uint32_t i = 0; e == 0 && i < f->pipelines.n; i++)
		e = config_go_on(load_pipeline(f, i, c, err), err);
	return e;
}

/* Users and groups differ only in their database. */
static int load_ids(const struct config_file *f, const char *list_at, const struct text_list *list,
		    int (*parse)(const char *, uint32_t *), uint32_t **ids, uint32_t *n_ids, struct config_error *err)
{
	const struct text *names = list->entries;
	char at[96];

	if (list->n == 0)
		return 0;
	*ids = calloc(list->n, sizeof **ids);
	if (!*ids)
		return -ENOMEM;
	for (uint32_t i = 0; i < list->n; i++, (*n_ids)++) {
		int e = parse(names[i].text, &(*ids)[i]);

		if (e == -ENOMEM)
			return e;
		snprintf(at, sizeof at, "%s[%u]", list_at, i);
		if (e == -ENOENT)
			config_fail(err, "%s: this machine does not know '%.80s'; expected a name or a number", at,
				    names[i].text);
		else if (e < 0)
			config_fail(err, "%s: '%.80s' cannot be looked up: %s", at, names[i].text, strerror(-e));
		if (e < 0)
			return fail_in(f, names[i].line, err);
	}
	return 0;
}

static int check_dataset_name(const struct config_file *f, uint32_t i, struct config_error *err)
{
	const struct dataset_text *datasets = f->datasets.entries;
	const char *name = datasets[i].name.text;
	char at[64];

	snprintf(at, sizeof at, "datasets[%u].name", i);

	int e = config_check_name(at, name, err);

	for (uint32_t j = 0; e == 0 && j < i; j++)
		if (config_is_word(datasets[j].name.text, name))
			e = config_fail(err, "%s: '%s' is already the name of the data set in line %u", at, name,
					datasets[j].name.line);
	return e < 0 ? fail_in(f, datasets[i].name.line, err) : 0;
}

static int load_dataset_transform(const struct config_file *f, const char *at, const struct text *text,
				  const struct config *c, char **out, struct config_error *err)
{
	if (!text->text)
		return 0;

	int e = config_pipeline(c, text->text) ? 0 : check_transform(at, text->text, err);

	if (e < 0)
		return e == -EINVAL ? fail_in(f, text->line, err) : e;
	*out = strdup(text->text);
	return *out ? 0 : -ENOMEM;
}

static int load_dataset(const struct config_file *f, uint32_t i, struct config *c, struct config_error *err)
{
	const struct dataset_text *text = (const struct dataset_text *)f->datasets.entries + i;
	char source_at[64], transform_at[64], users_at[64], groups_at[64];
	struct config_dataset *d;
	int e;

	snprintf(source_at, sizeof source_at, "datasets[%u].source", i);
	snprintf(transform_at, sizeof transform_at, "datasets[%u].transform", i);
	snprintf(users_at, sizeof users_at, "datasets[%u].users", i);
	snprintf(groups_at, sizeof groups_at, "datasets[%u].groups", i);
	if ((e = check_dataset_name(f, i, err)) < 0)
		return e;
	d = dataset_add(c);
	if (!d)
		return -ENOMEM;
	e = parse_source(source_at, text->source.text, &d->sources, err);
	if (e < 0)
		return e == -EINVAL ? fail_in(f, text->source.line, err) : e;
	d->name = strdup(text->name.text);
	if (!d->name)
		return -ENOMEM;
	if ((e = load_dataset_transform(f, transform_at, &text->transform, c, &d->transform, err)) < 0 ||
	    (e = load_ids(f, users_at, &text->users, user_parse, &d->users, &d->n_users, err)) < 0)
		return e;
	return load_ids(f, groups_at, &text->groups, group_parse, &d->groups, &d->n_groups, err);
}

static int load_scalars(const struct config_file *f, struct config *c, struct config_error *err)
{
	for (const struct key *k = config_keys; k->name; k++) {
		const struct text *t = &f->scalars[k - config_keys];
		int e = t->text ? key_set(c, k, t->text, err) : 0;

		if (e == -EINVAL)
			e = config_go_on(fail_in(f, t->line, err), err);
		if (e < 0)
			return e;
	}
	return 0;
}

static int load_all(const struct config_file *f, struct config *c, struct config_error *err)
{
	int e = 0;

	if ((e = load_scalars(f, c, err)) < 0 || (e = load_pipelines(f, c, err)) < 0)
		return e;
	for (uint32_t i = 0; e == 0 && i < f->datasets.n; i++)
		e = config_go_on(load_dataset(f, i, c, err), err);
	return e;
}

int config_parse(const char *path, const char *bytes, size_t n_bytes, struct config *c, struct config_error *err)
{
	struct config_file f;
	int e = config_defaults(c);

	if (e < 0)
		return e;
	e = config_read_strictly(path, bytes, n_bytes, &f, err);
	if (e == 0)
		e = load_all(&f, c, err);
	if (e == 0 && err->n_mistakes)
		e = -EINVAL;
	if (e == -ENOMEM)
		config_fail(err, "%.120s: out of memory while reading it", path);
	config_file_finish(&f);
	if (e < 0) {
		config_error_one_line(err);
		config_finish(c);
	}
	return e;
}

int config_load(const char *path, struct config *c, struct config_error *err)
{
	char *bytes = NULL;
	size_t n_bytes = 0;
	int e = config_file_bytes(path, &bytes, &n_bytes, err);

	*c = (struct config){ .socket_group = CONFIG_NO_GROUP };
	if (e == 0)
		e = config_parse(path, bytes, n_bytes, c, err);
	free(bytes);
	return e;
}

/* ---- differences ---- */

static bool config_same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_pipelines(const struct config *a, const struct config *b)
{
	if (a->n_pipelines != b->n_pipelines)
		return false;
	for (uint32_t i = 0; i < a->n_pipelines; i++)
		if (!config_same_text(a->pipelines[i].name, b->pipelines[i].name) ||
		    !config_same_text(a->pipelines[i].transform, b->pipelines[i].transform))
			return false;
	return true;
}

static bool same_ids(const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b)
{
	return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a * sizeof *a) == 0);
}

static bool same_datasets(const struct config *a, const struct config *b)
{
	if (a->n_datasets != b->n_datasets)
		return false;
	for (uint32_t i = 0; i < a->n_datasets; i++) {
		const struct config_dataset *x = &a->datasets[i], *y = &b->datasets[i];

		if (!config_same_text(x->name, y->name) || !sources_are_equal(x->sources, y->sources) ||
		    !config_same_text(x->transform, y->transform) ||
		    !same_ids(x->users, x->n_users, y->users, y->n_users) ||
		    !same_ids(x->groups, x->n_groups, y->groups, y->n_groups))
			return false;
	}
	return true;
}

unsigned config_max_workers(const struct config *c)
{
	return c->workers ? c->workers : cpu_available(NULL);
}

size_t config_diff(const struct config *before, const struct config *after,
		   struct config_change changes[CONFIG_MAX_CHANGES])
{
	size_t n = 0;

	for (const struct key *k = config_keys; k->name; k++)
		if (!key_same(k, before, after))
			changes[n++] = (struct config_change){ k->name, k->live };
	if (!same_pipelines(before, after))
		changes[n++] = (struct config_change){ "pipelines", true };
	if (!same_datasets(before, after))
		changes[n++] = (struct config_change){ "datasets", true };
	return n;
}
