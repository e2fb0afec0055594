/* What timm's texts for policies stand for, by timm's names of the changes. */
#ifndef BATCHD_TIMM_POLICIES_H
#define BATCHD_TIMM_POLICIES_H

struct timm_weight {
	const char *name;
	double weight; /* 0: the set has no weights */
};

struct timm_step {
	const char *name; /* NULL: the sub-policy has one step less */
	int tenths;       /* probability */
	int magnitude;
};

enum { TIMM_N_V0 = 25, TIMM_N_ORIGINAL = 25, TIMM_N_3A = 3 };

/* Each ends with a NULL name. */
extern const struct timm_weight timm_set_plain[], timm_set_increasing[], timm_set_3a[], timm_set_3aw[],
	timm_set_weights[];
extern const char *const timm_set_mixture[];
extern const struct timm_step timm_policy_v0[TIMM_N_V0][2], timm_policy_original[TIMM_N_ORIGINAL][2],
	timm_policy_3a[TIMM_N_3A][2];

#endif
