/* RandomErasing, on the numbers after Normalize: torchvision's, and with other arguments timm's. */
#include "image/transform/op-types.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "image/transform/noise.h"

enum { MAX_BOXES = 15, BOX_X = 1, BOX_Y, BOX_WIDTH, BOX_HEIGHT, BOX_NUMBERS = 4 }; /* drawn[0]: number of boxes */

enum erase_mode {
	ERASE_VALUE,
	ERASE_RANDOM, /* N(0, 1) for each number */
	ERASE_COLOR,  /* N(0, 1) for each channel of a box */
};

struct erasing {
	double p, scale[2], ratio[2], value[3];
	float log_ratio[2];
	enum erase_mode mode;
	uint32_t n_values, count[2];
};

static const char *const erasing_args[] = { "p", "scale", "ratio", "value", "inplace", "count", NULL };

static int read_value(struct arguments *a, struct erasing *x)
{
	static const char *const modes[] = { "random", "color", NULL };
	unsigned mode = 0;
	int rc;

	x->n_values = 1;
	if (!json_is_string(a->values[3]))
		return argument_colors(a, 3, -1e6, 1e6, x->value, &x->n_values);
	rc = argument_choice(a, 3, modes, &mode);
	x->mode = mode == 0 ? ERASE_RANDOM : ERASE_COLOR;
	return rc;
}

/* One number, or [least, most]. */
static int read_count(struct arguments *a, struct erasing *x)
{
	double range[2] = { 1.0, 1.0 };
	int rc = 0;

	if (json_is_array(a->values[5]))
		rc = argument_range(a, 5, 1, MAX_BOXES, range);
	else
		rc = argument_number(a, 5, 1, MAX_BOXES, &range[0]);
	if (!json_is_array(a->values[5]))
		range[1] = range[0];
	if (rc == 0 && (range[0] != floor(range[0]) || range[1] != floor(range[1])))
		rc = argument_wrong(a, 5, "a whole number, or [least, most], from 1 to 15");
	x->count[0] = (uint32_t)range[0];
	x->count[1] = (uint32_t)range[1];
	return rc;
}

static int read_erasing(struct arguments *a, struct op *op)
{
	struct erasing *x = op->args;
	bool inplace;
	int rc;

	x->p = 0.5;
	x->scale[0] = 0.02;
	x->scale[1] = 0.33;
	x->ratio[0] = 0.3;
	x->ratio[1] = 3.3;
	rc = argument_number(a, 0, 0, 1, &x->p);
	if (rc == 0)
		rc = argument_range(a, 1, 0, 1, x->scale);
	if (rc == 0)
		rc = argument_range(a, 2, 1e-3, 1e3, x->ratio);
	if (rc == 0)
		rc = read_value(a, x);
	if (rc == 0)
		rc = argument_bool(a, 4, &inplace);
	if (rc == 0)
		rc = read_count(a, x);
	for (int i = 0; i < 2; i++) /* of float32, as torch.log(torch.tensor(ratio)) */
		x->log_ratio[i] = logf((float)x->ratio[i]);
	normal_prepare();
	return rc;
}

static json_t *write_erasing(const struct op *op)
{
	const struct erasing *x = op->args;
	json_t *value = x->mode == ERASE_RANDOM  ? json_string("random")
			: x->mode == ERASE_COLOR ? json_string("color")
			: x->n_values == 1       ? json_real(x->value[0])
						 : json_pack("[fff]", x->value[0], x->value[1], x->value[2]);

	return json_pack("{s:f, s:[ff], s:[ff], s:o, s:[ii]}", "p", x->p, "scale", x->scale[0], x->scale[1], "ratio",
			 x->ratio[0], x->ratio[1], "value", value, "count", (int)x->count[0], (int)x->count[1]);
}

static int follow_erasing(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct erasing *x = op->args;

	if (!f->to_tensor)
		return op_wrong(op, err, "works on numbers: move it after ToTensor and Normalize");
	if (f->n_channels == 1 && x->n_values == 3)
		return op_wrong(op, err, "gets an image of one channel, so value must be one number");
	f->changed = true;
	return 0;
}

/* The pixel whose number is value, or -1. */
static int ops_erase_pixel_of(const float numbers[256], float value)
{
	for (int v = 0; v < 256; v++)
		if (numbers[v] == value)
			return v;
	return -1;
}

static int ops_erase_check_bytes(const struct op *op, const struct convert *f, struct pipeline_error *err)
{
	const struct erasing *x = op->args;
	bool exact = x->mode == ERASE_VALUE;

	for (uint32_t c = 0; exact && c < f->n_channels; c++)
		exact = ops_erase_pixel_of(f->float32[c], (float)x->value[c]) >= 0;
	if (exact)
		return 0;
	return op_wrong(
		op, err,
		"writes numbers that no pixel has, and these batches are made of pixels (dtype uint8, or raw batches on "
		"a GPU): ask for float32 or float16, or leave it out and erase on the batch in the training loop");
}

/* A box of this part of the area; after ten attempts none. */
static bool draw_box(const struct erasing *x, struct random *r, double area, uint32_t width, uint32_t height,
		     double *box)
{
	for (int attempt = 0; attempt < 10; attempt++) {
		double target = area * (double)random_uniform(r, (float)x->scale[0], (float)x->scale[1]);
		double ratio = (double)(float)exp((double)random_uniform(r, x->log_ratio[0], x->log_ratio[1]));
		double h = rint(sqrt(target * ratio)), w = rint(sqrt(target / ratio));

		if (w < width && h < height) {
			box[BOX_Y] = random_below(r, height - (uint32_t)h + 1);
			box[BOX_X] = random_below(r, width - (uint32_t)w + 1);
			box[BOX_WIDTH] = w;
			box[BOX_HEIGHT] = h;
			return true;
		}
	}
	return false;
}

static int choose_erasing(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
			  struct image_error *err)
{
	const struct erasing *x = op->args;
	double area = (double)((uint64_t)width * height);
	uint32_t count, n = 0;

	(void)err;
	out->drawn[0] = 0.0;
	out->n_drawn = 1;
	if (!random_chance(r, x->p))
		return 0;
	count = x->count[0] + random_below(r, x->count[1] - x->count[0] + 1);
	for (uint32_t i = 0; i < count; i++)
		n += draw_box(x, r, area / count, width, height, out->drawn + (size_t)n * BOX_NUMBERS);
	out->drawn[0] = n;
	out->n_drawn = 1 + n * BOX_NUMBERS;
	return 0;
}

static void ops_erase_put(const struct convert *f, void *row, size_t at, uint32_t channel, float value)
{
	if (f->type == CONVERT_FLOAT32)
		((float *)row)[at] = value;
	else if (f->type == CONVERT_FLOAT16)
		((uint16_t *)row)[at] = float_to_half(value);
	else
		((uint8_t *)row)[at] = (uint8_t)ops_erase_pixel_of(f->float32[channel], value);
}

/* One channel of a box. Numbers are drawn in the order of the planes, whatever the layout is. */
static void erase_channel(const struct erasing *x, struct noise *noise, const struct convert *f, const double *box,
			  uint32_t channel, void *row)
{
	size_t step = f->planar ? 1 : f->n_channels;
	size_t from = f->planar ? (size_t)channel * f->width * f->height : channel;
	float value = x->mode == ERASE_COLOR ? noise_normal(noise) : (float)x->value[channel];

	for (uint32_t y = 0; y < (uint32_t)box[BOX_HEIGHT]; y++) {
		size_t at = from + (((uint32_t)box[BOX_Y] + y) * (size_t)f->width + (uint32_t)box[BOX_X]) * step;

		if (x->mode == ERASE_RANDOM && f->type == CONVERT_FLOAT32 && step == 1) { /* most of an op's time */
			noise_fill(noise, (float *)row + at, (uint32_t)box[BOX_WIDTH]);
			continue;
		}
		if (x->mode == ERASE_RANDOM && f->type == CONVERT_FLOAT32) {
			for (uint32_t i = 0; i < (uint32_t)box[BOX_WIDTH]; i++, at += step)
				((float *)row)[at] = noise_normal(noise);
			continue;
		}
		for (uint32_t i = 0; i < (uint32_t)box[BOX_WIDTH]; i++, at += step)
			ops_erase_put(f, row, at, channel, x->mode == ERASE_RANDOM ? noise_normal(noise) : value);
	}
}

static void finish_erasing(const struct op *op, const struct op_choice *choice, struct op_run *run,
			   const struct convert *f, void *row)
{
	const struct erasing *x = op->args;
	struct noise noise;

	noise_init(&noise, &run->random);
	for (unsigned i = 0; i < (unsigned)choice->drawn[0]; i++)
		for (uint32_t c = 0; c < f->n_channels; c++)
			erase_channel(x, &noise, f, choice->drawn + (size_t)i * BOX_NUMBERS, c, row);
}

const struct op_type erase_ops[] = {
	{ .name = "RandomErasing",
	  .args = erasing_args,
	  .args_bytes = sizeof(struct erasing),
	  .flags = OP_RANDOM | OP_NUMBERS | OP_ANY_PIXEL,
	  .read = read_erasing,
	  .write = write_erasing,
	  .follow = follow_erasing,
	  .choose = choose_erasing,
	  .finish = finish_erasing,
	  .check_bytes = ops_erase_check_bytes },
	{ .name = NULL },
};
