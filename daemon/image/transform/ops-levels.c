/* Ops that map values to values, and sharpness: torchvision's random ones, and Pillow's functions by name. */
#include "image/transform/op-types.h"

#include "image/kernels/color.h"
#include "image/kernels/levels.h"
#include "image/kernels/sharpen.h"

enum change {
	INVERT,
	POSTERIZE,
	SOLARIZE,
	SOLARIZE_ADD,
	AUTO_CONTRAST,
	EQUALIZE,
	BRIGHTNESS,
	COLOR,
	CONTRAST,
	SHARPNESS
};

struct levels {
	enum change change;
	double p;
	double amount;    /* bits, threshold, what is added, factor */
	double threshold; /* SOLARIZE_ADD */
};

static const char *const p_args[] = { "p", NULL };
static const char *const posterize_args[] = { "bits", "p", NULL };
static const char *const bits_args[] = { "bits", NULL };
static const char *const threshold_args[] = { "threshold", NULL };
static const char *const solarize_args[] = { "threshold", "p", NULL };
static const char *const solarize_add_args[] = { "add", "threshold", NULL };
static const char *const sharpness_args[] = { "sharpness_factor", "p", NULL };
static const char *const factor_args[] = { "factor", NULL };

static int read_p(struct arguments *a, unsigned i, struct op *op, enum change change)
{
	struct levels *x = op->args;

	x->change = change;
	x->p = 0.5;
	return op->type->flags & OP_RANDOM ? argument_number(a, i, 0, 1, &x->p) : 0;
}

static int read_amount(struct arguments *a, struct op *op, enum change change, double from, double to)
{
	struct levels *x = op->args;
	int rc = read_p(a, 1, op, change);

	if (rc == 0 && !a->values[0])
		return argument_wrong(a, 0, "a number");
	return rc == 0 ? argument_number(a, 0, from, to, &x->amount) : rc;
}

static int read_invert(struct arguments *a, struct op *op)
{
	return read_p(a, 0, op, INVERT);
}

static int read_auto_contrast(struct arguments *a, struct op *op)
{
	return read_p(a, 0, op, AUTO_CONTRAST);
}

static int read_equalize(struct arguments *a, struct op *op)
{
	return read_p(a, 0, op, EQUALIZE);
}

static int read_posterize(struct arguments *a, struct op *op)
{
	struct levels *x = op->args;
	uint32_t bits = 9;
	int rc = read_p(a, 1, op, POSTERIZE);

	if (rc == 0)
		rc = argument_count(a, 0, 0, 8, &bits);
	if (rc == 0 && bits == 9)
		return argument_wrong(a, 0, "a whole number from 0 to 8");
	x->amount = bits;
	return rc;
}

static int read_random_solarize(struct arguments *a, struct op *op)
{
	return read_amount(a, op, SOLARIZE, -1e6, 1e6);
}

static int read_solarize(struct arguments *a, struct op *op)
{
	struct levels *x = op->args;

	x->change = SOLARIZE;
	x->amount = 128;
	return argument_number(a, 0, -1e6, 1e6, &x->amount);
}

static int read_solarize_add(struct arguments *a, struct op *op)
{
	struct levels *x = op->args;
	int rc = read_amount(a, op, SOLARIZE_ADD, -255, 255);

	x->threshold = 128;
	return rc == 0 ? argument_number(a, 1, 0, 256, &x->threshold) : rc;
}

static int read_brightness(struct arguments *a, struct op *op)
{
	return read_amount(a, op, BRIGHTNESS, 0, 1e6);
}

static int read_color(struct arguments *a, struct op *op)
{
	return read_amount(a, op, COLOR, 0, 1e6);
}

static int read_contrast(struct arguments *a, struct op *op)
{
	return read_amount(a, op, CONTRAST, 0, 1e6);
}

static int read_sharpness(struct arguments *a, struct op *op)
{
	return read_amount(a, op, SHARPNESS, 0, 1e6);
}

static json_t *write_p(const struct op *op)
{
	const struct levels *x = op->args;

	return json_pack("{s:f}", "p", x->p);
}

static json_t *write_amount(const struct op *op)
{
	const struct levels *x = op->args;
	json_t *amount = x->change == POSTERIZE ? json_integer((json_int_t)x->amount) : json_real(x->amount);

	if (op->type->flags & OP_RANDOM)
		return json_pack("{s:o, s:f}", op->type->args[0], amount, "p", x->p);
	return json_pack("{s:o}", op->type->args[0], amount);
}

static json_t *write_solarize_add(const struct op *op)
{
	const struct levels *x = op->args;

	return json_pack("{s:f, s:f}", "add", x->amount, "threshold", x->threshold);
}

static int ops_levels_choose(const struct op *op, struct random *r, uint32_t width, uint32_t height,
			     struct op_choice *out, struct image_error *err)
{
	const struct levels *x = op->args;

	(void)width;
	(void)height;
	(void)err;
	out->drawn[0] = random_chance(r, x->p);
	out->n_drawn = 1;
	return 0;
}

static int ops_levels_change(const struct levels *x, struct image *i, struct pipeline_worker *w)
{
	switch (x->change) {
	case INVERT:
		levels_invert(i);
		break;
	case POSTERIZE:
		levels_posterize(i, (unsigned)x->amount);
		break;
	case SOLARIZE:
		levels_solarize(i, x->amount);
		break;
	case SOLARIZE_ADD:
		levels_solarize_add(i, (int)x->amount, (int)x->threshold);
		break;
	case AUTO_CONTRAST:
		levels_autocontrast(i);
		break;
	case EQUALIZE:
		levels_equalize(i);
		break;
	case BRIGHTNESS:
		color_brightness(i, (float)x->amount);
		break;
	case COLOR:
		color_saturation(i, (float)x->amount);
		break;
	case CONTRAST:
		color_contrast(i, (float)x->amount);
		break;
	case SHARPNESS:
		return sharpen(i, (float)x->amount, &w->room);
	}
	return 0;
}

static int ops_levels_apply(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			    struct image_error *err)
{
	int rc;

	if (choice->n_drawn && choice->drawn[0] == 0.0)
		return 0;
	rc = view_settle(v, run->worker, true, err);
	return rc == 0 ? ops_levels_change(op->args, &v->image, run->worker) : rc;
}

const struct op_type levels_ops[] = {
	{ .name = "RandomInvert",
	  .args = p_args,
	  .args_bytes = sizeof(struct levels),
	  .flags = OP_RANDOM,
	  .read = read_invert,
	  .write = write_p,
	  .choose = ops_levels_choose,
	  .apply = ops_levels_apply },
	{ .name = "RandomPosterize",
	  .args = posterize_args,
	  .args_bytes = sizeof(struct levels),
	  .flags = OP_RANDOM,
	  .read = read_posterize,
	  .write = write_amount,
	  .choose = ops_levels_choose,
	  .apply = ops_levels_apply },
	{ .name = "RandomSolarize",
	  .args = solarize_args,
	  .args_bytes = sizeof(struct levels),
	  .flags = OP_RANDOM,
	  .read = read_random_solarize,
	  .write = write_amount,
	  .choose = ops_levels_choose,
	  .apply = ops_levels_apply },
	{ .name = "RandomAutocontrast",
	  .args = p_args,
	  .args_bytes = sizeof(struct levels),
	  .flags = OP_RANDOM,
	  .read = read_auto_contrast,
	  .write = write_p,
	  .choose = ops_levels_choose,
	  .apply = ops_levels_apply },
	{ .name = "RandomEqualize",
	  .args = p_args,
	  .args_bytes = sizeof(struct levels),
	  .flags = OP_RANDOM,
	  .read = read_equalize,
	  .write = write_p,
	  .choose = ops_levels_choose,
	  .apply = ops_levels_apply },
	{ .name = "RandomAdjustSharpness",
	  .args = sharpness_args,
	  .args_bytes = sizeof(struct levels),
	  .flags = OP_RANDOM,
	  .read = read_sharpness,
	  .write = write_amount,
	  .choose = ops_levels_choose,
	  .apply = ops_levels_apply },
	{ .name = "Invert", .args_bytes = sizeof(struct levels), .read = read_invert, .apply = ops_levels_apply },
	{ .name = "Posterize",
	  .args = bits_args,
	  .args_bytes = sizeof(struct levels),
	  .read = read_posterize,
	  .write = write_amount,
	  .apply = ops_levels_apply },
	{ .name = "Solarize",
	  .args = threshold_args,
	  .args_bytes = sizeof(struct levels),
	  .read = read_solarize,
	  .write = write_amount,
	  .apply = ops_levels_apply },
	{ .name = "SolarizeAdd",
	  .args = solarize_add_args,
	  .args_bytes = sizeof(struct levels),
	  .read = read_solarize_add,
	  .write = write_solarize_add,
	  .apply = ops_levels_apply },
	{ .name = "AutoContrast",
	  .args_bytes = sizeof(struct levels),
	  .read = read_auto_contrast,
	  .apply = ops_levels_apply },
	{ .name = "Equalize", .args_bytes = sizeof(struct levels), .read = read_equalize, .apply = ops_levels_apply },
	{ .name = "Brightness",
	  .args = factor_args,
	  .args_bytes = sizeof(struct levels),
	  .read = read_brightness,
	  .write = write_amount,
	  .apply = ops_levels_apply },
	{ .name = "Color",
	  .args = factor_args,
	  .args_bytes = sizeof(struct levels),
	  .read = read_color,
	  .write = write_amount,
	  .apply = ops_levels_apply },
	{ .name = "Contrast",
	  .args = factor_args,
	  .args_bytes = sizeof(struct levels),
	  .read = read_contrast,
	  .write = write_amount,
	  .apply = ops_levels_apply },
	{ .name = "Sharpness",
	  .args = factor_args,
	  .args_bytes = sizeof(struct levels),
	  .read = read_sharpness,
	  .write = write_amount,
	  .apply = ops_levels_apply },
	{ .name = NULL },
};
