/* The text of a blend: "blend:[seed=N;;]PART[;;PART]...", each part "[WEIGHT*][N_FDS@]SPEC". */
#ifndef BATCHD_BLEND_SPEC_H
#define BATCHD_BLEND_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "dataset/error.h"

enum {
	BLEND_MAX_PARTS = 64,
	BLEND_WEIGHT_ONE = 1000000000, /* weights are in billionths */
};

struct blend_spec {
	uint64_t seed;
	bool has_seed, has_weights;
	unsigned n;
	struct blend_part {
		const char *spec; /* in the text that was parsed */
		uint64_t weight;  /* below 2^60; 0 without weights */
		unsigned n_fds;
	} part[BLEND_MAX_PARTS];
};

/* Splits `text`, what follows "blend:", in place. 0 or -EINVAL with err. */
int blend_spec_parse(char *text, struct blend_spec *out, struct dataset_error *err);
/* The spec of the first part, which has the kind of all; `spec` itself if it is no blend. */
const char *blend_spec_first(const char *spec);

#endif
