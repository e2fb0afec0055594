/* The magnitudes and sub-policies of torchvision's policies. */
#ifndef BATCHD_POLICY_TABLES_H
#define BATCHD_POLICY_TABLES_H

#include "image/transform/augment.h"

/* How the number of a bin becomes an amount. */
enum bin_scale {
	BIN_NONE,   /* no magnitude */
	BIN_SIGNED, /* 0 to top, either sign */
	BIN_WIDTH,  /* of top times the width divided by `of`, either sign */
	BIN_HEIGHT,
	BIN_FACTOR,    /* 1, and 0 to top more or less */
	BIN_BITS,      /* from `of` down by top */
	BIN_THRESHOLD, /* 255 down to 0 */
};

struct policy_member {
	enum augment what;
	enum bin_scale scale;
	double top, of;
};

struct policy_space {
	unsigned n;
	struct policy_member members[16];
};

extern const struct policy_space space_rand, space_wide, space_auto, space_mix;

enum policy_name { POLICY_IMAGENET, POLICY_CIFAR10, POLICY_SVHN };
enum { N_SUBPOLICIES = 25 };

struct subpolicy_step {
	uint8_t member; /* of space_auto */
	uint8_t tenths; /* probability */
	int8_t bin;     /* -1: none */
};

extern const struct subpolicy_step subpolicies[3][N_SUBPOLICIES][2];

/* The amount of a bin for an image of this size. first_generation: with the thresholds of torchvision's v1. */
double policy_amount(const struct policy_member *m, unsigned n_bins, unsigned bin, bool negative, bool first_generation,
		     uint32_t width, uint32_t height);
/* Whether the amount has a sign that is drawn. */
bool policy_signed(const struct policy_member *m);

#endif
