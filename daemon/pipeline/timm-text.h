/* timm's texts for policies ("rand-m9-mstd0.5-inc1"), which stand for ops in a pipeline. */
#ifndef BATCHD_TIMM_TEXT_H
#define BATCHD_TIMM_TEXT_H

#include "pipeline/arguments.h"

/* What timm's create_transform takes from its options and a pipeline has in its other ops. */
struct timm_surroundings {
	uint32_t size;      /* the crop's shorter edge, in pixels */
	double mean[3];     /* Normalize's */
	unsigned n_mean;    /* 1 or 3 */
	const char *filter; /* the crop's; borrowed from the list */
};

/* list: a pipeline's entries. */
void timm_look_around(json_t *list, struct timm_surroundings *out);
/* Whether a name is a text of timm's, right or wrong: its first word is "rand", "augmix" or a policy's name. */
bool timm_is_text(const char *name);
/* *op: a new entry [name, {arguments}] that means the same. position: for messages. 0, -EINVAL or -ENOMEM. */
int timm_text_op(const char *position, const char *text, const struct timm_surroundings *around, json_t **op,
		 struct pipeline_error *err);

#endif
