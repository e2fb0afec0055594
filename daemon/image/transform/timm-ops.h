/* timm's AugmentOp: a change by name, how often it happens, and a level of about 0 to 10 that may be noisy. */
#ifndef BATCHD_TIMM_OPS_H
#define BATCHD_TIMM_OPS_H

#include "image/transform/augment.h"

enum { TIMM_MAX_OPS = 128 };

struct timm_op {
	uint8_t level; /* position in the table of levels */
	double p, magnitude;
};

/* What timm keeps in hparams, which the ops of a policy have in common. */
struct timm_options {
	struct op_fill fill;
	enum filter filter;
	bool any_filter; /* bilinear or bicubic, drawn for each op */
	bool uniform;    /* the level is uniform in 0 to magnitude; otherwise normal, with deviation magnitude_std */
	double magnitude_std, magnitude_max, translate_const, translate_pct;
};

/* The names of their arguments, for a type's list. */
#define TIMM_OPTIONS "fill", "interpolation", "magnitude_std", "magnitude_max", "translate_const", "translate_pct"
enum { TIMM_N_OPTIONS = 6 };

/* Arguments first .. first + 5 of a policy of n ops. 0 or -EINVAL. */
int timm_read_options(struct arguments *a, unsigned first, const struct timm_op *ops, unsigned n,
		      struct timm_options *out);
/* Appends them to out, which it returns, or NULL when memory is short. */
json_t *timm_write_options(json_t *out, const struct timm_options *x);

/* entry: [name, p, magnitude]. False if it is not. */
bool timm_read_op(json_t *entry, struct timm_op *out);
json_t *timm_write_op(const struct timm_op *op);
/* Argument i: a list of 1 to most ops. 0 or -EINVAL. */
int timm_read_ops(struct arguments *a, unsigned i, unsigned most, struct timm_op *out, unsigned *n);
json_t *timm_write_ops(const struct timm_op *ops, unsigned n);

/* Draws what the op does to an image of this size, and notes it as a step if it happens. */
void timm_draw(const struct timm_op *op, const struct timm_options *x, struct random *r, uint32_t width,
	       uint32_t height, struct op_choice *out);

#endif
