/* See loader-spec.h. */
#include "core/loader-spec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

const char *loader_spec_difference(const struct loader_spec *a, const struct loader_spec *b)
{
	if (strcmp(a->dataset, b->dataset))
		return "dataset";
	if (strcmp(a->transform, b->transform))
		return "transform";
	if (strcmp(a->fields ? a->fields : "", b->fields ? b->fields : ""))
		return "fields";
	struct {
		const char *name;
		uint64_t a, b;
	} fields[] = {
		{ "dtype", a->dtype, b->dtype },
		{ "layout", a->layout, b->layout },
		{ "batch_size", a->batch_size, b->batch_size },
		{ "shuffle", a->shuffle, b->shuffle },
		{ "seed", a->seed, b->seed },
		{ "drop_last", a->drop_last, b->drop_last },
		{ "repeats", a->repeats, b->repeats },
		{ "epoch_rows", a->epoch_rows, b->epoch_rows },
		{ "world_size", a->world_size, b->world_size },
		{ "mode", a->share, b->share },
		{ "num_workers", a->num_workers, b->num_workers },
		{ "apply_exif", a->apply_exif, b->apply_exif },
		{ "apply_exif", a->leave_exif, b->leave_exif },
		{ "batch_sampler", a->own_batches, b->own_batches },
		{ "n_slots", a->n_slots, b->n_slots },
		{ "policy", a->policy, b->policy },
	};
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (fields[i].a != fields[i].b)
			return fields[i].name;
	}
	return NULL;
}
