/* ElasticTransform, with torchvision's displacement and sampling. */
#include "image/transform/op-types.h"

#include <math.h>

#include "image/kernels/blur.h"
#include "image/kernels/elastic.h"
#include "image/transform/noise.h"

struct elastic_args {
	struct elastic e;
	struct op_fill fill;
};

static const char *const elastic_arg_names[] = { "alpha", "sigma", "interpolation", "fill", NULL };
static const char *const filter_choices[] = { "bilinear", "nearest", NULL };
static const double max_sigma = 31.7; /* its kernel has BLUR_MAX_KERNEL - 1 pixels */

/* One number, or [x, y]. */
static int read_pair(struct arguments *a, unsigned i, double from, double to, double out[2])
{
	json_t *v = a->values[i];
	size_t n = json_is_array(v) ? json_array_size(v) : 1;

	for (size_t k = 0; v && k < 2; k++) {
		json_t *number = json_is_array(v) ? json_array_get(v, k % (n ? n : 1)) : v;

		out[k] = json_is_number(number) ? json_number_value(number) : NAN;
		if (n > 2 || !(out[k] >= from && out[k] <= to))
			return argument_wrong(
				a, i, i == 0 ? "a number, or two: [x, y]" : "a number from 0 to 31.7, or two: [x, y]");
	}
	return 0;
}

static int read_elastic(struct arguments *a, struct op *op)
{
	struct elastic_args *x = op->args;
	unsigned filter = 0;
	int rc;

	x->e.alpha[0] = x->e.alpha[1] = 50.0;
	x->e.sigma[0] = x->e.sigma[1] = 5.0;
	x->fill.single = true;
	rc = read_pair(a, 0, -1e6, 1e6, x->e.alpha);
	if (rc == 0)
		rc = read_pair(a, 1, 0, max_sigma, x->e.sigma);
	if (rc == 0 && (x->e.sigma[0] > 0.0) != (x->e.sigma[1] > 0.0))
		return argument_wrong(a, 1, "two numbers above 0, or 0 for no blur");
	if (rc == 0)
		rc = argument_choice(a, 2, filter_choices, &filter);
	x->e.nearest = filter == 1;
	x->e.filled = !json_is_null(a->values[3]);
	if (rc == 0 && x->e.filled)
		rc = argument_fill(a, 3, &x->fill);
	for (int c = 0; c < 3; c++)
		x->e.fill[c] = x->fill.color[c];
	return rc;
}

static json_t *write_elastic(const struct op *op)
{
	const struct elastic_args *x = op->args;
	const struct elastic *e = &x->e;

	return json_pack("{s:[ff], s:[ff], s:s, s:o}", "alpha", e->alpha[0], e->alpha[1], "sigma", e->sigma[0],
			 e->sigma[1], "interpolation", filter_choices[e->nearest], "fill",
			 e->filled ? json_fill(&x->fill) : json_null());
}

static int follow_elastic(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct elastic_args *x = op->args;

	if (f->n_channels == 1 && !x->fill.single)
		return op_wrong(op, err, "gets a grey image, so fill must be one number");
	return 0;
}

/* Draws the keys of two generators, which give x and y all their numbers. The field's border is a reflection without the
 * edge, so that the image needs more pixels than the border. */
static int choose_elastic(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
			  struct image_error *err)
{
	const struct elastic_args *x = op->args;
	uint32_t first = elastic_kernel_size(x->e.sigma[0]), second = elastic_kernel_size(x->e.sigma[1]);
	uint32_t border = (first > second ? first : second) / 2;

	if (width <= border || height <= border)
		return image_fail(err, IMAGE_E_FORMAT,
				  "the image has %u x %u pixels where ElasticTransform with sigma [%g, %g] needs at "
				  "least %u x %u: lower sigma, or resize before it",
				  width, height, x->e.sigma[0], x->e.sigma[1], border + 1, border + 1);
	for (out->n_drawn = 0; out->n_drawn < 4; out->n_drawn++)
		out->drawn[out->n_drawn] = random_bits(r);
	return 0;
}

static void next_numbers(void *source, unsigned field, float *out, uint32_t n)
{
	struct noise *noise = (struct noise *)source + field;

	for (uint32_t i = 0; i < n; i++)
		out[i] = (float)(noise_bits(noise) >> 8) * 0x1p-23f - 1.0f;
}

static int apply_elastic(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			 struct image_error *err)
{
	const struct elastic_args *x = op->args;
	struct elastic e = x->e;
	struct noise fields[2];
	struct image made;
	int rc = view_make(v, run->worker, view_width(v), view_height(v), &made, err);

	if (rc != 0)
		return rc;
	for (unsigned i = 0; i < 2; i++)
		noise_of_key(&fields[i], (uint32_t)choice->drawn[2 * i], (uint32_t)choice->drawn[2 * i + 1]);
	e.numbers = next_numbers;
	e.source = fields;
	/* The next check of the time notices how many numbers were added for each pixel. */
	(void)cpu_budget_spend(&run->worker->budget,
			       (uint64_t)made.width * made.height *
				       (elastic_kernel_size(e.sigma[0]) + elastic_kernel_size(e.sigma[1])) / 16);
	rc = elastic(&e, &v->image, &made, &run->worker->room);
	if (rc == 0)
		view_take(v, &made);
	return rc;
}

const struct op_type elastic_ops[] = {
	{ .name = "ElasticTransform",
	  .args = elastic_arg_names,
	  .args_bytes = sizeof(struct elastic_args),
	  .flags = OP_RANDOM,
	  .read = read_elastic,
	  .write = write_elastic,
	  .follow = follow_elastic,
	  .choose = choose_elastic,
	  .apply = apply_elastic },
	{ .name = NULL },
};
