/* How files are read. Convert: the mode, as Pillow names it. Draft: the size, as Pillow's Image.draft chooses it. */
#include "image/transform/op-types.h"

#include <ctype.h>
#include <string.h>

static const char *const convert_args[] = { "mode", NULL };
static const char *const modes[] = { "RGB", "I;16", "I", "F", "L", NULL }; /* by enum pixel, then grey of 8 bits */
enum { MODE_L = 4 };

static const struct op_type *color_op(const char *name)
{
	const struct op_type *t = color_ops;

	while (strcmp(t->name, name) != 0)
		t++;
	return t;
}

/* L and RGB are ops of their own, which work anywhere. */
static int read_convert(struct arguments *a, struct op *op)
{
	unsigned mode = 0;
	uint32_t *n_channels = op->args;

	if (!a->values[0] || argument_choice(a, 0, modes, &mode) < 0)
		return argument_wrong(a, 0, "\"L\", \"RGB\", \"I;16\", \"I\" or \"F\"");
	if (mode == MODE_L || mode == PIXEL_RGB) {
		op->type = color_op(mode == MODE_L ? "Grayscale" : "RGB");
		*n_channels = 1; /* Grayscale's argument */
		return 0;
	}
	*(enum pixel *)op->args = (enum pixel)mode;
	a->reader->numbers = true;
	return 0;
}

static json_t *write_convert(const struct op *op)
{
	const enum pixel *pixel = op->args;

	return json_pack("{s:s}", "mode", modes[*pixel]);
}

/* Arrays of pixels that the mode holds without loss, as files of these modes. */
static bool arrays_fit(const struct form *f, enum pixel to)
{
	switch (f->pixel) {
	case PIXEL_RGB:
		return f->n_channels == 1;
	case PIXEL_FLOAT32:
		return to == PIXEL_FLOAT32;
	case PIXEL_INT32:
		return to == PIXEL_INT32 || to == PIXEL_FLOAT32;
	default:
		return true;
	}
}

static int follow_convert(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const enum pixel *pixel = op->args;

	if (op->place != 0 && strcmp(op->position, "1") == 0)
		return op_wrong(op, err, "and image_mode both say how files are read: leave one of them out");
	if (op->place != 0)
		return op_wrong(op, err, "to \"%s\" must be the first op: it says how files are read", modes[*pixel]);
	if (f->width && !arrays_fit(f, *pixel))
		return op_wrong(op, err, "to \"%s\" does not suit the samples, which are arrays of mode %s",
				modes[*pixel],
				f->n_channels == 1 && f->pixel == PIXEL_RGB ? "L" : pixel_mode(f->pixel));
	f->pixel = *pixel;
	f->n_channels = 1;
	return 0;
}

static const char *const draft_args[] = { "size", NULL };

/* It is no step of its own, so the ops after it keep their random numbers. */
static int read_draft(struct arguments *a, struct op *op)
{
	struct draft *d = &a->reader->draft;
	struct op_size size = { 0 };
	int rc = 0;

	if (d->wanted)
		return op_wrong(op, a->err, "and decode both say how files are read: leave one of them out");
	if (strcmp(op->position, "1") != 0 && isdigit((unsigned char)*op->position))
		return op_wrong(op, a->err, "must be the first op: it says how files are read");
	if (a->values[0] && !json_is_null(a->values[0]))
		rc = argument_size(a, 0, &size);
	*d = (struct draft){ .wanted = true, .own_size = !size.width, .width = size.width, .height = size.height };
	return rc;
}

const struct op_type convert_ops[] = {
	{ .name = "Draft", .args = draft_args, .flags = OP_NOTHING | OP_ANY_PIXEL, .read = read_draft },
	{ .name = "Convert",
	  .args = convert_args,
	  .args_bytes = sizeof(enum pixel),
	  .flags = OP_ANY_PIXEL,
	  .read = read_convert,
	  .write = write_convert,
	  .follow = follow_convert },
	{ .name = NULL },
};
