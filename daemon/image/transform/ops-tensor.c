/* The steps from pixels to numbers. The conversion does them when it writes the row (image/kernels/convert.h). */
#include "image/kernels/exact.h"

#include "image/transform/op-types.h"

#include <string.h>

static int ops_tensor_read_nothing(struct arguments *a, struct op *op)
{
	(void)a;
	(void)op;
	return 0;
}

/* torchvision's names for ToTensor, and for conversions between kinds of images, of which the daemon has one */

static const struct op_type nothing = { .name = "ToPureTensor",
					.flags = OP_NOTHING | OP_ANY_PIXEL,
					.read = ops_tensor_read_nothing };
static const char *const to_dtype_args[] = { "dtype", "scale", NULL };
static const char *const convert_dtype_args[] = { "dtype", NULL };

/* ToDtype of pixels that are numbers; of RGB it is ToTensor. */

static json_t *write_to_float(const struct op *op)
{
	const bool *scale = op->args;

	return json_pack("{s:s, s:b}", "dtype", "float32", "scale", *scale);
}

static int follow_to_float(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const bool *scale = op->args;

	if (f->to_tensor)
		return op_wrong(op, err, "is there twice");
	f->to_tensor = true;
	f->unscaled = !*scale;
	return 0;
}

static const struct op_type to_float = { .name = "ToDtype",
					 .args = to_dtype_args,
					 .args_bytes = sizeof(bool),
					 .flags = OP_NUMBERS | OP_ANY_PIXEL,
					 .write = write_to_float,
					 .follow = follow_to_float };

static int read_dtype(struct arguments *a, bool scale, struct op *op)
{
	const char *dtype = a->values[0] ? json_string_value(a->values[0]) : "float32";

	if (dtype && strncmp(dtype, "torch.", 6) == 0)
		dtype += 6;
	if (dtype && strcmp(dtype, "uint8") == 0) { /* which pixels are */
		op->type = &nothing;
		return 0;
	}
	if (!dtype || strcmp(dtype, "float32") != 0)
		return argument_wrong(a, 0, "\"float32\" (or \"uint8\"); for half precision give the loader's dtype");
	if (a->reader->numbers) {
		*(bool *)op->args = scale;
		op->type = &to_float;
		return 0;
	}
	if (!scale)
		return argument_wrong(a, 1, "true: numbers of pixels are 0 to 1. For 0 to 255 ask for dtype uint8");
	op->type = &tensor_ops[0];
	return 0;
}

static int read_to_dtype(struct arguments *a, struct op *op)
{
	bool scale = false;
	int rc = argument_bool(a, 1, &scale);

	return rc == 0 ? read_dtype(a, scale, op) : rc;
}

static int read_convert_dtype(struct arguments *a, struct op *op)
{
	return read_dtype(a, true, op);
}

static int follow_to_tensor(const struct op *op, struct form *f, struct pipeline_error *err)
{
	if (f->to_tensor)
		return op_wrong(op, err, "is there twice");
	if (f->pixel == PIXEL_UINT16 || f->pixel == PIXEL_INT32)
		return op_wrong(op, err,
				"does not make floats of images of mode %s, not even in torchvision: use [\"ToDtype\", "
				"\"float32\", true], which scales them to 0..1",
				pixel_mode(f->pixel));
	f->to_tensor = true;
	return 0;
}

struct normalize {
	double mean[3], std[3];
	uint32_t n_means, n_stds; /* 1 or 3 were given */
};

static const char *const normalize_args[] = { "mean", "std", "inplace", NULL };

static int read_normalize(struct arguments *a, struct op *op)
{
	struct normalize *x = op->args;
	bool inplace;
	int rc;

	for (unsigned i = 0; i < 2; i++)
		if (!a->values[i])
			return argument_wrong(a, i, "one number per channel");
	rc = argument_colors(a, 0, -1e6, 1e6, x->mean, &x->n_means);
	if (rc == 0)
		rc = argument_colors(a, 1, 1e-6, 1e6, x->std, &x->n_stds);
	return rc == 0 ? argument_bool(a, 2, &inplace) : rc;
}

static json_t *write_normalize(const struct op *op)
{
	const struct normalize *x = op->args;
	const double *m = x->mean, *s = x->std;

	if (x->n_means == 1 && x->n_stds == 1)
		return json_pack("{s:[f], s:[f]}", "mean", m[0], "std", s[0]);
	return json_pack("{s:[fff], s:[fff]}", "mean", m[0], m[1], m[2], "std", s[0], s[1], s[2]);
}

static int follow_normalize(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct normalize *x = op->args;

	if (!f->to_tensor)
		return op_wrong(op, err, "needs ToTensor before it");
	if (f->normalize)
		return op_wrong(op, err, "is there twice");
	if (f->n_channels == 1 && (x->n_means == 3 || x->n_stds == 3))
		return op_wrong(op, err, "gets an image of one channel, so mean and std must be one number");
	f->normalize = true;
	for (int c = 0; c < 3; c++) {
		f->mean[c] = (float)x->mean[c];
		f->std[c] = (float)x->std[c];
	}
	return 0;
}

/* Behind an op that changes numbers, Normalize is a pass of its own. */
static int follow_late(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct normalize *x = op->args;

	if (f->n_channels == 1 && (x->n_means == 3 || x->n_stds == 3))
		return op_wrong(op, err, "gets an image of one channel, so mean and std must be one number");
	return 0;
}

static void finish_normalize(const struct op *op, const struct op_choice *choice, struct op_run *run,
			     const struct convert *f, void *row)
{
	const struct normalize *x = op->args;

	(void)choice;
	(void)run;
	for (uint32_t c = 0; c < f->n_channels; c++)
		for (size_t i = 0; i < (size_t)f->width * f->height; i++) {
			size_t at = row_place(f, c, i);

			row_set_number(f, row, at, (row_number(f, row, at) - (float)x->mean[c]) / (float)x->std[c]);
		}
}

static void undo_normalize(const struct op *op, uint32_t channel, double *mean, double *std)
{
	const struct normalize *x = op->args;

	*mean += x->mean[channel] * *std;
	*std *= x->std[channel];
}

static int late_check_bytes(const struct op *op, const struct convert *f, struct pipeline_error *err)
{
	(void)f;
	return op_wrong(op, err,
			"comes after an op that changes numbers, and these batches are made of pixels (dtype uint8, or "
			"raw batches on a GPU): move it right after ToTensor, or ask for float32 or float16");
}

static const struct op_type late_normalize = { .name = "Normalize",
					       .args = normalize_args,
					       .args_bytes = sizeof(struct normalize),
					       .flags = OP_NUMBERS | OP_ANY_PIXEL,
					       .write = write_normalize,
					       .follow = follow_late,
					       .finish = finish_normalize,
					       .undo = undo_normalize,
					       .check_bytes = late_check_bytes };

const struct op_type tensor_ops[] = {
	{ .name = "ToTensor",
	  .flags = OP_NUMBERS | OP_ANY_PIXEL,
	  .read = ops_tensor_read_nothing,
	  .follow = follow_to_tensor },
	{ .name = "Normalize",
	  .args = normalize_args,
	  .args_bytes = sizeof(struct normalize),
	  .flags = OP_NUMBERS | OP_ANY_PIXEL,
	  .read = read_normalize,
	  .write = write_normalize,
	  .follow = follow_normalize,
	  .on_numbers = &late_normalize },
	{ .name = "ToDtype",
	  .args = to_dtype_args,
	  .args_bytes = sizeof(bool),
	  .flags = OP_NUMBERS | OP_ANY_PIXEL,
	  .read = read_to_dtype },
	{ .name = "ConvertImageDtype",
	  .args = convert_dtype_args,
	  .args_bytes = sizeof(bool),
	  .flags = OP_NUMBERS | OP_ANY_PIXEL,
	  .read = read_convert_dtype },
	{ .name = "ToImage", .flags = OP_NOTHING | OP_ANY_PIXEL, .read = ops_tensor_read_nothing },
	{ .name = "PILToTensor", .flags = OP_NOTHING | OP_ANY_PIXEL, .read = ops_tensor_read_nothing },
	{ .name = "ToPureTensor", .flags = OP_NOTHING | OP_ANY_PIXEL, .read = ops_tensor_read_nothing },
	{ .name = NULL },
};
