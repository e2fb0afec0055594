/* The arguments of one op in a pipeline's text, by name or position, and their errors. */
#ifndef BATCHD_ARGUMENTS_H
#define BATCHD_ARGUMENTS_H

#include <jansson.h>

#include "image/kernels/geometry.h"
#include "image/kernels/resample/resample.h"
#include "image/transform/spec.h"

/* An argument `size`: both edges, or the shorter one. */
struct op_size {
	uint32_t height, width;
	bool single; /* one number was given; height == width */
};

struct op_resampling {
	enum filter filter;
	enum pass_order order;
};

/* Pixels added to each side; taken away where negative. */
struct op_padding {
	int32_t left, top, right, bottom;
};

struct op_fill {
	uint8_t color[3];
	bool single;   /* one number was given */
	double number; /* argument_fill_number: that one, and color is 0 */
};

struct arguments;

/* Reads the ops inside containers, for all of a pipeline. */
struct list_reader {
	int (*read)(struct list_reader *r, struct arguments *a, unsigned i, struct op *op);
	unsigned n_nested, depth;
	bool numbers; /* images of one number for each pixel, of files or arrays */
	struct draft draft;
};

struct arguments {
	const char *position; /* of the op: "2", "2.1" */
	const char *op;
	const char *const *names;      /* in torchvision's order, NULL-terminated, at most SPEC_MAX_ARGS */
	json_t *values[SPEC_MAX_ARGS]; /* borrowed; NULL: not given */
	struct list_reader *reader;
	struct pipeline_error *err;
};

/* entry: "Op", ["Op", positional..., {named}]. Names and counts are checked here. 0 or -EINVAL. */
int arguments_bind(struct arguments *a, json_t *entry);

/* Each reads argument i into *out and leaves *out unchanged when it was not given. 0 or -EINVAL with err->text. */
int argument_size(struct arguments *a, unsigned i, struct op_size *out);                        /* must be given */
int argument_count(struct arguments *a, unsigned i, uint32_t from, uint32_t to, uint32_t *out); /* null: as not given */
int argument_bool(struct arguments *a, unsigned i, bool *out);
int argument_number(struct arguments *a, unsigned i, double from, double to, double *out);
/* Two numbers from <= first <= second <= to. */
int argument_range(struct arguments *a, unsigned i, double from, double to, double out[2]);
/* One or three numbers in from..to; *n is their number. A single number is repeated. */
int argument_colors(struct arguments *a, unsigned i, double from, double to, double out[3], uint32_t *n);
/* One of the NULL-terminated texts; *out is its position. */
int argument_choice(struct arguments *a, unsigned i, const char *const *choices, unsigned *out);
/* null, one number, [x, y] or [left, top, right, bottom], of `from` pixels or more. *given is set unless it is null. */
int argument_padding(struct arguments *a, unsigned i, int32_t from, struct op_padding *out, bool *given);
/* n numbers, none below 0; *given is set unless it is null. */
int argument_weights(struct arguments *a, unsigned i, unsigned n, double *out, bool *given);
/* A list of ops, which becomes op->children; must be given. 0, -EINVAL or -ENOMEM. */
int argument_ops(struct arguments *a, unsigned i, struct op *op);
/* A colour: one or three whole numbers in 0..255. */
int argument_fill(struct arguments *a, unsigned i, struct op_fill *out);
/* The same, but in a pipeline whose pixels are numbers, any one number. */
int argument_fill_number(struct arguments *a, unsigned i, struct op_fill *out);
/* Three arguments: the filter, whether to antialias, and the version of Pillow whose order of passes is meant. */
int argument_resampling(struct arguments *a, unsigned interpolation, unsigned antialias, unsigned pillow,
			struct op_resampling *out);

/* The filter of an op that moves pixels: "nearest", "bilinear" or "bicubic". *out is FILTER_NEAREST unless given. */
int argument_move_filter(struct arguments *a, unsigned i, enum filter *out);

/* The same for the canonical text: new objects, NULL when memory is short. */
json_t *json_size(const struct op_size *s);
json_t *json_fill(const struct op_fill *f);
json_t *json_padding(const struct op_padding *p);
const char *filter_name(enum filter f);
int pillow_version(enum pass_order order);

/* "op 2 'Resize': argument 'size' is "big"; expected ..." Returns -EINVAL. */
int argument_wrong(struct arguments *a, unsigned i, const char *expected) __attribute__((nonnull));
/* "op 2 'Resize' ..." Returns -EINVAL. */
int op_wrong(const struct op *op, struct pipeline_error *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
