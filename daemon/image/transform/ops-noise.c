/* GaussianNoise, on bytes as torchvision adds it to an uint8 tensor, and after ToTensor as it adds it to floats. Each number
 * gets noise of its own: in the order of the pixels, or after ToTensor of the planes, whatever the layout is. */
#include "image/kernels/exact.h"

#include "image/transform/op-types.h"

#include "image/transform/noise.h"

struct noise_args {
	double mean, sigma; /* in units of 0..1 */
	bool clip;
};

static const char *const noise_arg_names[] = { "mean", "sigma", "clip", NULL };

static int read_noise(struct arguments *a, struct op *op)
{
	struct noise_args *x = op->args;
	int rc = argument_number(a, 0, -100, 100, &x->mean);

	x->sigma = 0.1;
	x->clip = true;
	if (rc == 0)
		rc = argument_number(a, 1, 0, 10, &x->sigma);
	normal_prepare();
	return rc == 0 ? argument_bool(a, 2, &x->clip) : rc;
}

static json_t *write_noise(const struct op *op)
{
	const struct noise_args *x = op->args;

	return json_pack("{s:f, s:f, s:b}", "mean", x->mean, "sigma", x->sigma, "clip", x->clip);
}

/* Nothing is decided beforehand; this gives the op its random numbers. */
static int choose_noise(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
			struct image_error *err)
{
	(void)op;
	(void)r;
	(void)width;
	(void)height;
	(void)err;
	out->n_drawn = 0;
	return 0;
}

/* Truncated to whole steps, as a conversion to int16 does; no normal number is so large that it does not fit. */
static uint8_t noisy(const struct noise_args *x, struct noise *n, uint8_t v)
{
	int sum = v + (int)((float)(x->mean * 255.0) + noise_normal(n) * (float)(x->sigma * 255.0));

	if (!x->clip)
		return (uint8_t)sum;
	return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static int apply_noise(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
		       struct image_error *err)
{
	const struct noise_args *x = op->args;
	struct noise noise;
	int rc = view_settle(v, run->worker, true, err);

	(void)choice;
	noise_init(&noise, &run->random);
	for (uint32_t y = 0; rc == 0 && y < v->image.height; y++) {
		uint8_t *row = v->image.rgb + (size_t)y * v->image.stride_bytes;

		for (size_t i = 0; i < (size_t)v->image.width * 3; i++)
			row[i] = noisy(x, &noise, row[i]);
	}
	return rc;
}

/* A grey image has three equal channels, and would need equal noise in them. */
static int follow_noise(const struct op *op, struct form *f, struct pipeline_error *err)
{
	if (f->n_channels == 1)
		return op_wrong(op, err, "gets images of one channel and works on three: put RGB before it");
	return 0;
}

static int follow_on_numbers(const struct op *op, struct form *f, struct pipeline_error *err)
{
	(void)op;
	(void)err;
	f->changed = true;
	return 0;
}

static void finish_noise(const struct op *op, const struct op_choice *choice, struct op_run *run,
			 const struct convert *f, void *row)
{
	const struct noise_args *x = op->args;
	struct noise noise;

	(void)choice;
	noise_init(&noise, &run->random);
	for (uint32_t c = 0; c < f->n_channels; c++)
		for (size_t i = 0; i < (size_t)f->width * f->height; i++) {
			size_t at = row_place(f, c, i);
			float by = noise_normal(&noise) * (float)x->sigma, v = by + (float)x->mean;

			v = row_number(f, row, at) + v;
			row_set_number(f, row, at, !x->clip ? v : v < 0.0f ? 0.0f : v > 1.0f ? 1.0f : v);
		}
}

static int noise_check_bytes(const struct op *op, const struct convert *f, struct pipeline_error *err)
{
	(void)f;
	return op_wrong(
		op, err,
		"after ToTensor writes numbers that no pixel has, and these batches are made of pixels (dtype uint8, or "
		"raw batches on a GPU): ask for float32 or float16, or move it before ToTensor");
}

static const struct op_type noise_on_numbers = { .name = "GaussianNoise",
						 .args = noise_arg_names,
						 .args_bytes = sizeof(struct noise_args),
						 .flags = OP_RANDOM | OP_NUMBERS | OP_ANY_PIXEL,
						 .write = write_noise,
						 .follow = follow_on_numbers,
						 .choose = choose_noise,
						 .finish = finish_noise,
						 .check_bytes = noise_check_bytes };

const struct op_type noise_ops[] = {
	{ .name = "GaussianNoise",
	  .args = noise_arg_names,
	  .args_bytes = sizeof(struct noise_args),
	  .flags = OP_RANDOM,
	  .read = read_noise,
	  .write = write_noise,
	  .follow = follow_noise,
	  .choose = choose_noise,
	  .apply = apply_noise,
	  .on_numbers = &noise_on_numbers },
	{ .name = NULL },
};
