/* A pipeline's text, read and checked: a list of ops with every argument filled in. It knows no pixels. */
#ifndef BATCHD_SPEC_H
#define BATCHD_SPEC_H

#include <stdbool.h>

#include "image/transform/pipeline.h"

enum {
	SPEC_MAX_OPS = 64,     /* of a pipeline, and of each list inside a container */
	SPEC_MAX_NESTED = 512, /* ops inside containers, all together */
	SPEC_MAX_DEPTH = 8,    /* containers inside each other */
	SPEC_MAX_EDGE = 8192,  /* the largest size that an op may name, in pixels */
	SPEC_MAX_TEXT_BYTES = 16 * 1024,
	SPEC_MAX_ARGS = 12,
};

struct op_type;

struct op {
	const struct op_type *type;
	void *args;          /* type->args_bytes, filled by type->read; the op's */
	struct op *children; /* of a container; the op's */
	unsigned n_children;
	uint32_t place;    /* in the random key: no other op of the pipeline has it */
	char position[40]; /* for messages: "2", and "2.1" for the first op inside op 2 */
};

/* What the ops so far make of every image. */
struct form {
	uint32_t width, height; /* 0: depends on the image or on what is drawn */
	uint32_t n_channels;
	enum pixel pixel; /* of every image; of one channel unless it is RGB */
	bool to_tensor, normalize;
	bool unscaled;          /* to_tensor leaves numbers as large as they are */
	bool changed;           /* the numbers, after ToTensor */
	float mean[3], std[3];  /* 0 and 1 without Normalize */
	const struct op *blame; /* the op that made the size depend on what is drawn; NULL: none */
};

/* As ["Draft", size] asks; sizes are 0 without it. */
struct draft {
	bool wanted, own_size; /* own_size: none was given, so it is that of the results */
	uint32_t width, height;
};

struct spec {
	struct draft draft;
	struct op *ops;
	unsigned n_ops;
	unsigned n_pixel_ops; /* those before ToTensor */
	unsigned n_prefix;    /* pixel ops before the first random one */
	struct form form;     /* of every result */
	char *text;           /* canonical JSON; the spec's */
	char *prefix_text;
};

/* source: the form of every image; sizes are 0 where they differ. 0, -EINVAL with err->text, -ENOMEM. The caller finishes
 * *s after success. */
int spec_parse(struct spec *s, const char *text, const struct image_form *source, struct pipeline_error *err);
/* Makes it the view of this number: other random numbers, see random_init. Once, after spec_parse. */
void spec_set_view(struct spec *s, unsigned view);
/* Drafts to this size instead; it must want a draft. 0 or -ENOMEM. */
int spec_set_draft(struct spec *s, uint32_t width, uint32_t height);
/* Leaves the prefix without ops: each of several views begins with other ones. 0 or -ENOMEM. */
int spec_drop_prefix(struct spec *s);
void spec_finish(struct spec *s);

#endif
