/* What a job asks for: the data set, the pipeline, the batches, their order and their consumers. Values only, known to
 * all code that makes or orders batches. */
#ifndef BATCHD_LOADER_SPEC_H
#define BATCHD_LOADER_SPEC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "image/transform/pipeline.h" /* enum dtype, enum layout */

enum group_policy { GROUP_WAIT, GROUP_SKIP, GROUP_DETACH };

const char *group_policy_name(enum group_policy p);

/* Plain values; strings are owned. Every session of a job must ask for the same. */
struct loader_spec {
	char *job, *dataset, *transform;
	char *fields; /* names of the wanted ones, sorted, separated by commas; NULL or empty: all of them */
	enum dtype dtype;
	enum layout layout;
	uint32_t batch_size, world_size, num_workers;
	uint32_t n_slots; /* 0: the daemon's default */
	uint64_t seed, incarnation;
	uint64_t epoch_rows;      /* 0: all */
	uint32_t repeats;         /* of each sample in an epoch, at least 1 */
	enum group_policy policy; /* share: what happens to a trainer that is too slow */
	uint32_t shuffle;         /* 0: no; 1: all samples; more: a window, or PLAN_RESAMPLED and one: see plan.h */
	bool drop_last, share, own_batches;
	bool apply_exif, leave_exif; /* neither: as the data set's own package does */
	bool served;                 /* a producer makes the batches; then a share group is never async */
	uid_t uid;
};

int loader_spec_copy(const struct loader_spec *from, struct loader_spec *to); /* 0 or -ENOMEM */
void loader_spec_finish(struct loader_spec *s);
/* The name of the first field in which they differ, as users write it; NULL if they do not. values: both, for a message,
 * as "2, and this one asks for 3"; "" where they have no names. */
enum { SPEC_VALUES_BYTES = 320 };
const char *loader_spec_difference(const struct loader_spec *a, const struct loader_spec *b,
				   char values[SPEC_VALUES_BYTES]);

#endif
