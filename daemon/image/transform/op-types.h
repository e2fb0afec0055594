/* The kinds of ops. Each is an entry in the table of its family, in the file of that family (ops-geometry.c,
 * ops-color.c ...), which has all that is known of it: its arguments, the sizes it makes, its random choice and its work.
 * A new op is an entry there; a new family is a file and a line in op-types.c. */
#ifndef BATCHD_OP_TYPES_H
#define BATCHD_OP_TYPES_H

#include "image/kernels/convert.h"
#include "image/transform/arguments.h"
#include "image/transform/random.h"
#include "image/transform/spec.h"
#include "image/transform/view.h"

enum { OP_MAX_DRAWN = 128 };

/* An op's decision for one image, made from sizes and random numbers alone. Each type says what its numbers mean. */
struct op_choice {
	unsigned n_drawn;
	double drawn[OP_MAX_DRAWN];
};

/* One image on its way through the ops. */
struct op_run {
	struct pipeline_worker *worker;
	struct sample_key key;
	struct random random; /* of the op at work, after the numbers that its choice took */
};

enum op_flags {
	OP_RANDOM = 1 << 0,       /* can give different results for the same image */
	OP_NUMBERS = 1 << 1,      /* comes after the pixel ops: ToTensor and what works on its numbers */
	OP_ALTERNATIVES = 1 << 2, /* of the ops inside, one runs */
	OP_NOTHING = 1 << 3,      /* has no effect: left out of lists whose ops all run */
	OP_EVERY_VIEW = 1 << 4,   /* the ops inside draw the same in every view */
	OP_ANY_PIXEL = 1 << 5,    /* works on every kind of pixel, not on RGB only */
};

/* All functions but read may be NULL. */
struct op_type {
	const char *name;
	const char *const *args; /* names of its arguments, in torchvision's order, NULL-terminated, at most
	                            SPEC_MAX_ARGS; NULL: none */
	size_t args_bytes;       /* of op->args, which are 0 when read is called */
	unsigned flags;
	int (*read)(struct arguments *a, struct op *op); /* fills op->args; 0, -EINVAL, -ENOMEM */
	json_t *(*write)(const struct op *op);           /* all arguments by name, a new object; NULL when
	                                                                              memory is short. Without it: no arguments */
	int (*follow)(const struct op *op, struct form *f,
		      struct pipeline_error *err); /* changes f as the op does; 0 or -EINVAL.
	                                                                              Without it the size stays */
	/* The random choice for an image of this size. 0, or IMAGE_E_FORMAT when the image does not suit the op. */
	int (*choose)(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
		      struct image_error *err);
	/* Pixel ops: the work. 0, an IMAGE_E_ outcome, -ENOMEM. */
	int (*apply)(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
		     struct image_error *err);
	/* OP_NUMBERS: the work on a finished row. */
	void (*finish)(const struct op *op, const struct op_choice *choice, struct op_run *run, const struct convert *f,
		       void *row);
	/* OP_NUMBERS: makes *mean and *std, which undo the ops before it on a channel's numbers (number * *std + *mean), undo
	 * this op as well. Without it there is nothing to undo. */
	void (*undo)(const struct op *op, uint32_t channel, double *mean, double *std);
	/* OP_NUMBERS: 0 if finish works on bytes as well (f->type is CONVERT_UINT8), otherwise -EINVAL with err->text. */
	int (*check_bytes)(const struct op *op, const struct convert *f, struct pipeline_error *err);
	/* What stands for this type, with the same arguments, where it works on numbers: a pixel op after ToTensor; an op
	 * of the conversion after one that changes numbers. */
	const struct op_type *on_numbers;
};

/* The number at a place of a finished row of floats. */
static inline float row_number(const struct convert *f, const void *row, size_t at)
{
	return f->type == CONVERT_FLOAT32 ? ((const float *)row)[at] : float_of_half(((const uint16_t *)row)[at]);
}

static inline void row_set_number(const struct convert *f, void *row, size_t at, float value)
{
	if (f->type == CONVERT_FLOAT32)
		((float *)row)[at] = value;
	else
		((uint16_t *)row)[at] = float_to_half(value);
}

/* Where number i of a channel's plane is in a row. */
static inline size_t row_place(const struct convert *f, uint32_t channel, size_t i)
{
	return f->planar ? (size_t)channel * f->width * f->height + i : i * f->n_channels + channel;
}

/* NULL if there is none. */
const struct op_type *op_type_find(const char *name);
/* Whether a name is a text of timm's for a policy ("rand-m9-inc1"), which only the Python package reads. */
bool op_is_timms_text(const char *name);
/* Reports that there is no op of this name, and suggests one, or says who reads it. Returns -EINVAL. */
int op_type_unknown(const char *position, const char *name, struct pipeline_error *err);

/* The families, each ended by an entry without a name. */
extern const struct op_type geometry_ops[], color_ops[], container_ops[], tensor_ops[], erase_ops[], policy_ops[],
	augmix_ops[], timm_ops[];
extern const struct op_type levels_ops[], blur_ops[], warp_ops[], scale_ops[], photometric_ops[], place_ops[],
	noise_ops[], elastic_ops[], convert_ops[];

#endif
