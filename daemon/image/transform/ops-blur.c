/* The two Gaussian blurs: torchvision's GaussianBlur, and Pillow's, which MoCo, DINO and DeiT III use. */
#include "image/transform/op-types.h"

#include "image/kernels/blur.h"

/* One number, or [least, most]. */
static int read_radius(struct arguments *a, unsigned i, double from, double out[2])
{
	int rc = 0;

	if (json_is_array(a->values[i]))
		return argument_range(a, i, from, BLUR_MAX_RADIUS, out);
	if (a->values[i]) {
		rc = argument_number(a, i, from, BLUR_MAX_RADIUS, &out[0]);
		out[1] = out[0];
	}
	return rc;
}

/* GaussianBlur */

struct blur {
	uint32_t size[2]; /* of the kernel, x and y */
	double sigma[2];  /* from and to */
};

static const char *const blur_args[] = { "kernel_size", "sigma", NULL };

static int read_blur(struct arguments *a, struct op *op)
{
	struct blur *x = op->args;
	json_t *sizes = a->values[0];
	bool right = sizes && (!json_is_array(sizes) || json_array_size(sizes) == 1 || json_array_size(sizes) == 2);

	for (size_t i = 0; right && i < 2; i++) {
		json_t *size = json_is_array(sizes) ? json_array_get(sizes, i % json_array_size(sizes)) : sizes;
		json_int_t n = json_is_integer(size) ? json_integer_value(size) : 0;

		right = n >= 1 && n <= BLUR_MAX_KERNEL && n % 2 == 1;
		x->size[i] = right ? (uint32_t)n : 0;
	}
	if (!right)
		return argument_wrong(a, 0, "an odd number from 1 to 255, or two: [x, y]");
	x->sigma[0] = 0.1;
	x->sigma[1] = 2.0;
	return read_radius(a, 1, 1e-3, x->sigma);
}

static json_t *write_blur(const struct op *op)
{
	const struct blur *x = op->args;

	return json_pack("{s:[ii], s:[ff]}", "kernel_size", (int)x->size[0], (int)x->size[1], "sigma", x->sigma[0],
			 x->sigma[1]);
}

/* The border is a reflection without the edge, so that the image needs more pixels than the border. */
static int choose_blur(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
		       struct image_error *err)
{
	const struct blur *x = op->args;

	if (width <= x->size[0] / 2 || height <= x->size[1] / 2)
		return image_fail(err, IMAGE_E_FORMAT,
				  "the image has %u x %u pixels where GaussianBlur with kernel_size [%u, %u] needs at "
				  "least %u x %u",
				  width, height, x->size[0], x->size[1], x->size[0] / 2 + 1, x->size[1] / 2 + 1);
	out->drawn[0] = (double)random_uniform(r, (float)x->sigma[0], (float)x->sigma[1]);
	out->n_drawn = 1;
	return 0;
}

static int apply_blur(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
		      struct image_error *err)
{
	const struct blur *x = op->args;
	const double sigma[2] = { choice->drawn[0], choice->drawn[0] };
	int rc = view_settle(v, run->worker, true, err);

	if (rc != 0)
		return rc;
	/* The next check of the time notices how many numbers were added for each pixel. */
	(void)cpu_budget_spend(&run->worker->budget,
			       (uint64_t)v->image.width * v->image.height * (x->size[0] + x->size[1]) / 16);
	return blur_torchvision(&v->image, x->size, sigma, &run->worker->room);
}

/* PillowGaussianBlur */

struct pillow_blur {
	double radius[2]; /* from and to */
	double p;
};

static const char *const pillow_blur_args[] = { "radius", "p", NULL };

static int read_pillow_blur(struct arguments *a, struct op *op)
{
	struct pillow_blur *x = op->args;
	int rc;

	x->radius[0] = x->radius[1] = 2.0;
	x->p = 1.0;
	rc = read_radius(a, 0, 0, x->radius);
	return rc == 0 ? argument_number(a, 1, 0, 1, &x->p) : rc;
}

static json_t *write_pillow_blur(const struct op *op)
{
	const struct pillow_blur *x = op->args;

	return json_pack("{s:[ff], s:f}", "radius", x->radius[0], x->radius[1], "p", x->p);
}

static int choose_pillow_blur(const struct op *op, struct random *r, uint32_t width, uint32_t height,
			      struct op_choice *out, struct image_error *err)
{
	const struct pillow_blur *x = op->args;

	(void)width;
	(void)height;
	(void)err;
	out->drawn[0] = random_chance(r, x->p);
	out->drawn[1] = (double)random_uniform(r, (float)x->radius[0], (float)x->radius[1]);
	out->n_drawn = 2;
	return 0;
}

static int apply_pillow_blur(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			     struct image_error *err)
{
	float radius = (float)choice->drawn[1];
	int rc;

	(void)op;
	if (choice->drawn[0] == 0.0)
		return 0;
	rc = view_settle(v, run->worker, true, err);
	return rc == 0 ? blur_pillow(&v->image, radius, radius, &run->worker->room) : rc;
}

const struct op_type blur_ops[] = {
	{ .name = "GaussianBlur",
	  .args = blur_args,
	  .args_bytes = sizeof(struct blur),
	  .flags = OP_RANDOM,
	  .read = read_blur,
	  .write = write_blur,
	  .choose = choose_blur,
	  .apply = apply_blur },
	{ .name = "PillowGaussianBlur",
	  .args = pillow_blur_args,
	  .args_bytes = sizeof(struct pillow_blur),
	  .flags = OP_RANDOM,
	  .read = read_pillow_blur,
	  .write = write_pillow_blur,
	  .choose = choose_pillow_blur,
	  .apply = apply_pillow_blur },
	{ .name = NULL },
};
