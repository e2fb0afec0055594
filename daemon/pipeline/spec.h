/* A pipeline's text, read and checked: a list of ops with every argument filled in. It knows no pixels. */
#ifndef BATCHD_SPEC_H
#define BATCHD_SPEC_H

#include <stdbool.h>

#include "image/geometry.h"
#include "image/resample.h"
#include "pipeline/pipeline.h"

enum {
	SPEC_MAX_OPS = 64,
	SPEC_MAX_EDGE = 8192, /* the largest size that an op may name, in pixels */
	SPEC_MAX_TEXT_BYTES = 16 * 1024,
	SPEC_MAX_ARGS = 6,
};

enum op_kind {
	OP_RESIZE,
	OP_CENTER_CROP,
	OP_RANDOM_CROP,
	OP_RANDOM_RESIZED_CROP,
	OP_RANDOM_HORIZONTAL_FLIP,
	OP_RANDOM_VERTICAL_FLIP,
	OP_COLOR_JITTER,
	OP_RANDOM_GRAYSCALE,
	OP_PAD,
	OP_GRAYSCALE,
	OP_TO_TENSOR,
	OP_NORMALIZE,
};

/* torchvision's numbers */
enum jitter { JITTER_BRIGHTNESS, JITTER_CONTRAST, JITTER_SATURATION, JITTER_HUE, N_JITTERS };

/* An argument `size`: both edges, or the shorter one. */
struct op_size {
	uint32_t height, width;
	bool single; /* one number was given; height == width */
};

struct op_resampling {
	enum filter filter;
	enum pass_order order;
};

struct op_padding {
	uint32_t left, top, right, bottom;
	uint8_t fill[3];
	bool one_fill; /* fill was one number */
	enum pad_mode mode;
};

struct op {
	enum op_kind kind;
	struct op_size size;           /* Resize, CenterCrop, RandomCrop, RandomResizedCrop */
	struct op_resampling resample; /* Resize, RandomResizedCrop */
	struct op_padding pad;         /* Pad, RandomCrop */
	union {
		uint32_t max_size;  /* Resize; 0: none */
		bool pad_if_needed; /* RandomCrop */
		struct {
			double scale[2], ratio[2];
			float log_ratio[2];
		} crop;   /* RandomResizedCrop */
		double p; /* RandomHorizontalFlip, RandomVerticalFlip, RandomGrayscale */
		struct {
			bool given[N_JITTERS];
			double from[N_JITTERS], to[N_JITTERS];
		} jitter;            /* ColorJitter */
		uint32_t n_channels; /* Grayscale */
		struct {
			double mean[3], std[3];
			uint32_t n_means, n_stds; /* 1 or 3 were given */
		} normalize;
	};
};

struct spec {
	struct op ops[SPEC_MAX_OPS];
	unsigned n_ops;
	unsigned n_pixel_ops; /* those before ToTensor and Normalize */
	unsigned n_prefix;    /* pixel ops before the first random one */
	bool has_to_tensor;
	int normalize;                      /* position of Normalize; -1: none */
	uint32_t width, height, n_channels; /* of every result */
	char *text;                         /* canonical JSON; the spec's */
	char *prefix_text;
};

/* 0, -EINVAL with err->text, -ENOMEM. The caller finishes *s after success. */
int spec_parse(struct spec *s, const char *text, struct pipeline_error *err);
void spec_finish(struct spec *s);

/* The size of an image after a Resize. Both may become 0 or very large when the image is very long. */
void op_resized_size(const struct op *op, uint32_t width, uint32_t height, uint32_t *new_width, uint32_t *new_height);
/* Whether the op can give different results for the same image. */
bool op_is_random(enum op_kind k);

#endif
