/* See blend.h. */
#include "link/blend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batchd.h"

static int append_to(char **all, const char *text, struct fault *f)
{
	char *longer;

	if (asprintf(&longer, "%s%s", *all ? *all : "", text) < 0)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	free(*all);
	*all = longer;
	return 0;
}

/* What the daemon is told, and what opens the same data sets again after it went away. */
static int append(struct source *s, const char *text, const char *again, struct fault *f)
{
	int r = append_to(&s->dataset, text, f);

	return r < 0 ? r : append_to(&s->reopen, again, f);
}

/* "0.7*": how many bytes it has; 0: there is no weight. */
static size_t weight_bytes(const char *part)
{
	size_t n = strspn(part, "0123456789.");

	return n && part[n] == '*' ? n + 1 : 0;
}

/* One data set of a blend; the daemon is told how many descriptors are its own. */
static int add_part(struct source *s, const char *part, struct fault *f)
{
	size_t n_weight = weight_bytes(part);
	struct source one;
	char weight[40], text[64];
	int r = source_open(&one, part + n_weight, f);

	if (r == 0 && (strstr(one.dataset, ";;") || strncmp(one.dataset, "blend:", 6) == 0 || one.reopen))
		r = fault_set(
			f, BATCHD_E_INVALID,
			"blend: '%.200s': expected a data set of files without ';;' in its name, no blend, no memory:",
			part);
	if (r == 0 && one.n_fds > WIRE_MAX_FDS - s->n_fds)
		r = fault_set(f, BATCHD_E_INVALID, "blend: more than %d files and folders to open", WIRE_MAX_FDS);
	snprintf(weight, sizeof weight, "%s%.*s", s->dataset[strlen(s->dataset) - 1] == ':' ? "" : ";;",
		 n_weight < 32 ? (int)n_weight : 32, part);
	snprintf(text, sizeof text, "%s%u@", weight, one.n_fds);
	r = r < 0 ? r : append(s, text, weight, f);
	r = r < 0 ? r : append(s, one.dataset, one.dataset, f);
	if (r == 0) {
		memcpy(s->fds + s->n_fds, one.fds, one.n_fds * sizeof *one.fds);
		s->n_fds += one.n_fds;
		one.n_fds = 0;
	}
	source_finish(&one);
	return r;
}

static int open_parts(struct source *s, const char *parts, struct fault *f)
{
	char *all = strdup(parts), *next;
	int r = all ? append(s, "blend:", "blend:", f) : fault_set(f, BATCHD_E_NOMEM, "out of memory");

	for (char *part = all; r == 0 && part; part = next) {
		next = strstr(part, ";;");
		if (next) {
			*next = '\0';
			next += 2;
		}
		r = part == all && strncmp(part, "seed=", 5) == 0 ? append(s, part, part, f) : add_part(s, part, f);
	}
	free(all);
	return r;
}

int blend_open(struct source *s, const char *dataset, struct fault *f)
{
	int r;

	if (!dataset || strncmp(dataset, "blend:", 6) != 0)
		return source_open(s, dataset, f);
	*s = (struct source){ 0 };
	r = open_parts(s, dataset + 6, f);
	if (r == 0 && !wire_text_ok(s->dataset, strlen(s->dataset), WIRE_MAX_DATASET))
		r = fault_set(f, BATCHD_E_INVALID, "blend: the names of its data sets take more than %d bytes together",
			      WIRE_MAX_DATASET);
	return r;
}
