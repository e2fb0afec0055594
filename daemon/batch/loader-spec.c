/* See loader-spec.h. */
#include "batch/loader-spec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch/plan/plan.h"

const char *group_policy_name(enum group_policy p)
{
	static const char *const names[] = { "wait", "skip", "detach" };
	return names[p];
}

int loader_spec_copy(const struct loader_spec *from, struct loader_spec *to)
{
	*to = *from;
	to->job = strdup(from->job);
	to->dataset = strdup(from->dataset);
	to->transform = strdup(from->transform);
	to->fields = strdup(from->fields ? from->fields : "");
	if (to->job && to->dataset && to->transform && to->fields)
		return 0;
	loader_spec_finish(to);
	return -ENOMEM;
}

void loader_spec_finish(struct loader_spec *s)
{
	free(s->job);
	free(s->dataset);
	free(s->transform);
	free(s->fields);
	s->job = s->dataset = s->transform = s->fields = NULL;
}

/* The bytes of at most `most` that end with a whole character. */
static int text_whole(const char *text, int most)
{
	int n = (int)strnlen(text, (size_t)most);

	while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
		n--;
	return n;
}

/* The places where two texts begin to differ, with a little before them. A cut may not fall into a character. */
static const char *say_texts(const char *name, const char *a, const char *b, char values[SPEC_VALUES_BYTES])
{
	enum { BEFORE = 24, MOST = 100 };
	size_t from = 0;

	while (a[from] && a[from] == b[from])
		from++;
	from = from > BEFORE ? from - BEFORE : 0;
	while (from && ((unsigned char)a[from] & 0xc0) == 0x80)
		from--;
	snprintf(values, SPEC_VALUES_BYTES, "%s%.*s%s, and this one asks for %s%.*s%s", from ? "..." : "",
		 text_whole(a + from, MOST), a + from, strlen(a + from) > MOST ? "..." : "", from ? "..." : "",
		 text_whole(b + from, MOST), b + from, strlen(b + from) > MOST ? "..." : "");
	return name;
}

/* As a user writes it: "False", "True", "window:1000". */
static const char *say_shuffle(uint32_t shuffle, char text[32])
{
	bool is_resampled = shuffle >= PLAN_RESAMPLED;

	if (shuffle < 2)
		snprintf(text, 32, "%s", shuffle ? "True" : "False");
	else
		snprintf(text, 32, "%s:%" PRIu32, is_resampled ? "resampled" : "window",
			 is_resampled ? shuffle - PLAN_RESAMPLED : shuffle);
	return text;
}

const char *loader_spec_difference(const struct loader_spec *a, const struct loader_spec *b,
				   char values[SPEC_VALUES_BYTES])
{
	static const char *const layouts[] = { "NCHW", "NHWC", "AS_STORED" };
	char shuffle_a[32], shuffle_b[32];
	static const char *const switches[] = { "False", "True" }, *const modes[] = { "shard", "share" };

	values[0] = '\0';
	if (strcmp(a->dataset, b->dataset))
		return say_texts("dataset", a->dataset, b->dataset, values);
	if (strcmp(a->transform, b->transform))
		return say_texts("transform", a->transform, b->transform, values);
	if (strcmp(a->fields ? a->fields : "", b->fields ? b->fields : ""))
		return say_texts("fields", a->fields ? a->fields : "", b->fields ? b->fields : "", values);
	struct {
		const char *name;
		uint64_t a, b;
		const char *text_a, *text_b; /* NULL: numbers; "": not to be told */
	} fields[] = {
		{ "dtype", a->dtype, b->dtype, dtype_name(a->dtype), dtype_name(b->dtype) },
		{ "layout", a->layout, b->layout, layouts[a->layout], layouts[b->layout] },
		{ "batch_size", a->batch_size, b->batch_size, NULL, NULL },
		{ "shuffle", a->shuffle, b->shuffle, say_shuffle(a->shuffle, shuffle_a),
		  say_shuffle(b->shuffle, shuffle_b) },
		{ "seed", a->seed, b->seed, NULL, NULL },
		{ "drop_last", a->drop_last, b->drop_last, switches[a->drop_last], switches[b->drop_last] },
		{ "repeats", a->repeats, b->repeats, NULL, NULL },
		{ "epoch_rows", a->epoch_rows, b->epoch_rows, NULL, NULL },
		{ "world_size", a->world_size, b->world_size, NULL, NULL },
		{ "mode", a->share, b->share, modes[a->share], modes[b->share] },
		{ "num_workers", a->num_workers, b->num_workers, NULL, NULL },
		{ "apply_exif", a->apply_exif, b->apply_exif, switches[a->apply_exif], switches[b->apply_exif] },
		{ "apply_exif", a->leave_exif, b->leave_exif, "", "" },
		{ "batch_sampler", a->own_batches, b->own_batches, "", "" },
		{ "n_slots", a->n_slots, b->n_slots, NULL, NULL },
		{ "policy", a->policy, b->policy, group_policy_name(a->policy), group_policy_name(b->policy) },
	};
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (fields[i].a == fields[i].b)
			continue;
		if (!fields[i].text_a)
			snprintf(values, SPEC_VALUES_BYTES, "%" PRIu64 ", and this one asks for %" PRIu64, fields[i].a,
				 fields[i].b);
		else if (*fields[i].text_a)
			snprintf(values, SPEC_VALUES_BYTES, "%s, and this one asks for %s", fields[i].text_a,
				 fields[i].text_b);
		return fields[i].name;
	}
	return NULL;
}
