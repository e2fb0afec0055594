/* AugMix: torchvision's and timm's. Several chains of changes begin with the same image, and their results are mixed with
 * it. */
#include "image/kernels/exact.h"

#include "image/transform/op-types.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "image/kernels/blend.h"
#include "image/transform/normal.h"
#include "image/transform/policy-tables.h"
#include "image/transform/timm-ops.h"

enum { MAX_CHAINS = 8, MAX_CHAIN_STEPS = 36, MAX_STOCHASTIC = 3, MIX_BINS = 10 };
/* What is drawn: the image's own weight (timm: that of the mixture), a weight and a number of steps for each chain, and
 * the steps. */
enum { MIX_IMAGE, MIX_CHAINS };

struct augmix {
	uint32_t width;
	int32_t depth; /* of a chain; below 1: 1 to 3, drawn */
	double alpha;
	/* torchvision's */
	uint32_t severity;
	bool all_ops, first_generation;
	enum filter filter;
	struct op_fill fill;
	/* timm's */
	struct timm_options options;
	struct timm_op ops[SPEC_MAX_OPS];
	unsigned n_ops;
	bool blended;
};

static int augmix_read_shape(struct arguments *a, unsigned width, unsigned depth, unsigned alpha, struct augmix *x)
{
	double steps = -1.0;
	int rc;

	x->width = 3;
	x->alpha = 1.0;
	rc = argument_count(a, width, 1, MAX_CHAINS, &x->width);
	if (rc == 0)
		rc = argument_number(a, depth, -1e6, MAX_CHAIN_STEPS, &steps);
	if (rc == 0)
		rc = argument_number(a, alpha, 1e-3, 1e3, &x->alpha);
	x->depth = steps < 1.0 ? -1 : (int32_t)steps;
	if (rc == 0 && x->depth > 0 && (uint32_t)x->depth * x->width > MAX_CHAIN_STEPS)
		rc = argument_wrong(a, depth, "a depth that makes at most 36 steps of all chains together");
	normal_prepare();
	return rc;
}

/* Gamma(alpha, 1), by Marsaglia and Tsang. */
static double draw_gamma(struct random *r, double alpha)
{
	double boost = alpha < 1.0 ? pow(1.0 - random_unit(r), 1.0 / alpha) : 1.0;
	double d = (alpha < 1.0 ? alpha + 1.0 : alpha) - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);

	for (;;) {
		double x = (double)random_normal(r), v = 1.0 + c * x;

		if (v <= 0.0)
			continue;
		v = v * v * v;
		if (log(1.0 - random_unit(r)) < 0.5 * x * x + d - d * v + d * log(v))
			return d * v * boost;
	}
}

/* n weights that sum to 1. */
static void draw_dirichlet(struct random *r, double alpha, unsigned n, double *out)
{
	double sum = 0.0;

	for (unsigned i = 0; i < n; i++) {
		out[i] = draw_gamma(r, alpha);
		sum += out[i];
	}
	for (unsigned i = 0; i < n; i++) /* all may be 0 when alpha is very small */
		out[i] = sum > 0.0 ? out[i] / sum : i == 0;
}

static uint32_t draw_depth(const struct augmix *x, struct random *r)
{
	return x->depth > 0 ? (uint32_t)x->depth : 1 + random_below(r, MAX_STOCHASTIC);
}

/* Pixels */

struct chains {
	struct image image; /* the one before */
	float *sums;
};

static int augmix_begin(struct view *v, struct pipeline_worker *w, struct chains *c, struct image_error *err)
{
	int rc = view_settle(v, w, false, err);
	size_t row_bytes = (size_t)view_width(v) * 3;

	if (rc != 0)
		return rc;
	c->image = (struct image){ .stride_bytes = row_bytes, .width = view_width(v), .height = view_height(v) };
	c->image.rgb = scratch_reserve(&w->chains[0], row_bytes * c->image.height);
	c->sums = (float *)scratch_reserve(&w->chains[1], row_bytes * c->image.height * sizeof(float));
	if (!c->image.rgb || !c->sums)
		return -ENOMEM;
	for (uint32_t y = 0; y < c->image.height; y++)
		memcpy(c->image.rgb + y * row_bytes, v->image.rgb + y * v->image.stride_bytes, row_bytes);
	return 0;
}

static void scale_image(struct chains *c, float weight)
{
	for (size_t i = 0; i < c->image.stride_bytes * c->image.height; i++)
		c->sums[i] = weight * (float)c->image.rgb[i];
}

/* Runs a chain's steps and leaves its pixels in *out. */
static int run_chain(const struct chains *c, const double *steps, unsigned n, const uint8_t fill[3],
		     struct pipeline_worker *w, struct view *out, struct image_error *err)
{
	int rc;

	view_of_image(out, w, &c->image);
	rc = augment_steps(steps, n, fill, out, w, err);
	return rc == 0 ? view_settle(out, w, false, err) : rc;
}

static void augmix_add(struct chains *c, const struct image *made, float weight)
{
	size_t n = c->image.stride_bytes;

	for (uint32_t y = 0; y < made->height; y++) {
		const uint8_t *row = made->rgb + y * made->stride_bytes;
		float *sums = c->sums + y * n;

		for (size_t i = 0; i < n; i++)
			sums[i] += weight * (float)row[i];
	}
}

enum { AT_ONCE = 256 }; /* bytes that are blended */

/* timm's blended mode: the sums are pixels, into which each chain is blended. */
static void blend_in(struct chains *c, const struct image *made, float weight)
{
	size_t n = c->image.stride_bytes;

	for (uint32_t y = 0; y < made->height; y++) {
		const uint8_t *row = made->rgb + y * made->stride_bytes;
		float *sums = c->sums + y * n;

		for (size_t at = 0; at < n; at += AT_ONCE) {
			uint8_t from[AT_ONCE], to[AT_ONCE];
			size_t some = n - at < AT_ONCE ? n - at : AT_ONCE;

			for (size_t i = 0; i < some; i++)
				from[i] = (uint8_t)sums[at + i];
			memcpy(to, row + at, some);
			blend_bytes(from, to, some, weight);
			for (size_t i = 0; i < some; i++)
				sums[at + i] = (float)to[i];
		}
	}
}

/* The view becomes the sums, truncated to pixels; with a factor below 1 the image blended with them. */
static int augmix_finish(struct view *v, struct pipeline_worker *w, const struct chains *c, float factor,
			 struct image_error *err)
{
	size_t n = c->image.stride_bytes;
	int rc;

	view_of_image(v, w, &c->image);
	rc = view_settle(v, w, true, err);
	if (rc != 0)
		return rc;
	for (uint32_t y = 0; y < c->image.height; y++) {
		uint8_t *row = v->image.rgb + y * v->image.stride_bytes;
		const float *sums = c->sums + y * c->image.stride_bytes;

		for (size_t at = 0; at < n; at += AT_ONCE) {
			uint8_t to[AT_ONCE];
			size_t some = n - at < AT_ONCE ? n - at : AT_ONCE;

			for (size_t i = 0; i < some; i++) {
				float sum = sums[at + i];

				to[i] = (uint8_t)(sum < 0.0f ? 0.0f : sum > 255.0f ? 255.0f : sum);
			}
			blend_bytes(row + at, to, some, factor);
			memcpy(row + at, to, some);
		}
	}
	return 0;
}

/* AugMix: torchvision's */

static const char *const mix_args[] = { "severity",      "mixture_width", "chain_depth", "alpha", "all_ops",
					"interpolation", "fill",          "v1",          NULL };

static int read_mix(struct arguments *a, struct op *op)
{
	struct augmix *x = op->args;
	int rc;

	x->severity = 3;
	x->all_ops = true;
	rc = argument_count(a, 0, 1, MIX_BINS, &x->severity);
	if (rc == 0)
		rc = augmix_read_shape(a, 1, 2, 3, x);
	if (rc == 0)
		rc = argument_bool(a, 4, &x->all_ops);
	if (rc == 0)
		rc = argument_move_filter(a, 5, &x->filter);
	if (!a->values[5])
		x->filter = FILTER_BILINEAR;
	if (a->values[6] && json_is_null(a->values[6]))
		a->values[6] = NULL;
	x->fill.single = true;
	if (rc == 0)
		rc = argument_fill(a, 6, &x->fill);
	return rc == 0 ? argument_bool(a, 7, &x->first_generation) : rc;
}

static json_t *write_mix(const struct op *op)
{
	const struct augmix *x = op->args;

	return json_pack("{s:i, s:i, s:i, s:f, s:b, s:s, s:o, s:b}", "severity", (int)x->severity, "mixture_width",
			 (int)x->width, "chain_depth", (int)x->depth, "alpha", x->alpha, "all_ops", x->all_ops,
			 "interpolation", filter_name(x->filter), "fill", json_fill(&x->fill), "v1",
			 x->first_generation);
}

static int follow_mix(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct augmix *x = op->args;

	if (f->n_channels == 1 && !(op->type->args == mix_args ? x->fill.single : x->options.fill.single))
		return op_wrong(op, err, "gets a grey image, so fill must be one number");
	return 0;
}

static void draw_member(const struct augmix *x, struct random *r, uint32_t width, uint32_t height,
			struct op_choice *out)
{
	const struct policy_member *m = &space_mix.members[random_below(r, x->all_ops ? space_mix.n : 9)];
	unsigned bin = random_below(r, x->severity);
	bool negative = policy_signed(m) && random_below(r, 2);

	augment_note(out, m->what, policy_amount(m, MIX_BINS, bin, negative, x->first_generation, width, height),
		     x->filter);
}

static int choose_mix(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
		      struct image_error *err)
{
	const struct augmix *x = op->args;
	double image[2], *weights = out->drawn + MIX_CHAINS, *depths = weights + x->width;

	(void)err;
	draw_dirichlet(r, x->alpha, 2, image);
	draw_dirichlet(r, x->alpha, x->width, weights);
	out->drawn[MIX_IMAGE] = (double)(float)image[0];
	for (uint32_t i = 0; i < x->width; i++)
		weights[i] = (double)((float)weights[i] * (float)image[1]);
	out->n_drawn = MIX_CHAINS + 2 * x->width;
	for (uint32_t i = 0; i < x->width; i++) {
		depths[i] = draw_depth(x, r);
		for (uint32_t k = 0; k < (uint32_t)depths[i]; k++)
			draw_member(x, r, width, height, out);
	}
	return 0;
}

static int apply_mix(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
		     struct image_error *err)
{
	const struct augmix *x = op->args;
	const double *weights = choice->drawn + MIX_CHAINS, *depths = weights + x->width, *steps = depths + x->width;
	struct chains c;
	struct view chain;
	int rc = augmix_begin(v, run->worker, &c, err);

	if (rc == 0)
		scale_image(&c, (float)choice->drawn[MIX_IMAGE]);
	for (uint32_t i = 0; rc == 0 && i < x->width; i++) {
		rc = run_chain(&c, steps, (unsigned)depths[i], x->fill.color, run->worker, &chain, err);
		if (rc == 0)
			augmix_add(&c, &chain.image, (float)weights[i]);
		steps += (size_t)depths[i] * STEP_NUMBERS;
	}
	return rc == 0 ? augmix_finish(v, run->worker, &c, 1.0f, err) : rc;
}

/* TimmAugMix: timm's AugMixAugment */

static const char *const timm_args[] = { "ops", "alpha", "width", "depth", "blended", TIMM_OPTIONS, NULL };

static int read_timm(struct arguments *a, struct op *op)
{
	struct augmix *x = op->args;
	int rc = timm_read_ops(a, 0, SPEC_MAX_OPS, x->ops, &x->n_ops);

	if (rc == 0)
		rc = augmix_read_shape(a, 2, 3, 1, x);
	if (rc == 0)
		rc = argument_bool(a, 4, &x->blended);
	return rc == 0 ? timm_read_options(a, 5, x->ops, x->n_ops, &x->options) : rc;
}

static json_t *write_timm(const struct op *op)
{
	const struct augmix *x = op->args;

	return timm_write_options(json_pack("{s:o, s:f, s:i, s:i, s:b}", "ops", timm_write_ops(x->ops, x->n_ops),
					    "alpha", x->alpha, "width", (int)x->width, "depth", (int)x->depth,
					    "blended", x->blended),
				  &x->options);
}

static int choose_timm(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
		       struct image_error *err)
{
	const struct augmix *x = op->args;
	double mixture[2], *weights = out->drawn + MIX_CHAINS, *depths = weights + x->width;

	(void)err;
	draw_dirichlet(r, x->alpha, x->width, weights);
	draw_dirichlet(r, x->alpha, 2, mixture);
	out->drawn[MIX_IMAGE] = (double)(float)mixture[0];
	for (uint32_t i = 0; i < x->width; i++)
		weights[i] = (double)(float)weights[i];
	out->n_drawn = MIX_CHAINS + 2 * x->width;
	for (uint32_t i = 0; i < x->width; i++) {
		unsigned before = out->n_drawn;

		for (uint32_t k = draw_depth(x, r); k > 0; k--)
			timm_draw(&x->ops[random_below(r, x->n_ops)], &x->options, r, width, height, out);
		depths[i] = (out->n_drawn - before) / STEP_NUMBERS;
	}
	return 0;
}

/* timm's _calc_blended_weights: blended one after the other, chains get their weights. */
static void blended_weights(const struct augmix *x, const struct op_choice *choice, float *out)
{
	float left = 1.0f, factor = (float)choice->drawn[MIX_IMAGE];

	for (uint32_t i = x->width; i-- > 0;) {
		out[i] = (float)choice->drawn[MIX_CHAINS + i] * factor / left;
		left *= 1.0f - out[i];
	}
}

static int apply_timm(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
		      struct image_error *err)
{
	const struct augmix *x = op->args;
	const double *weights = choice->drawn + MIX_CHAINS, *depths = weights + x->width, *steps = depths + x->width;
	float blends[MAX_CHAINS];
	struct chains c;
	struct view chain;
	int rc = augmix_begin(v, run->worker, &c, err);

	if (rc == 0)
		scale_image(&c, x->blended ? 1.0f : 0.0f);
	blended_weights(x, choice, blends);
	for (uint32_t i = 0; rc == 0 && i < x->width; i++) {
		rc = run_chain(&c, steps, (unsigned)depths[i], x->options.fill.color, run->worker, &chain, err);
		if (rc == 0 && x->blended)
			blend_in(&c, &chain.image, blends[i]);
		else if (rc == 0)
			augmix_add(&c, &chain.image, (float)weights[i]);
		steps += (size_t)depths[i] * STEP_NUMBERS;
	}
	return rc == 0 ? augmix_finish(v, run->worker, &c, x->blended ? 1.0f : (float)choice->drawn[MIX_IMAGE], err)
		       : rc;
}

const struct op_type augmix_ops[] = {
	{ .name = "AugMix",
	  .args = mix_args,
	  .args_bytes = sizeof(struct augmix),
	  .flags = OP_RANDOM,
	  .read = read_mix,
	  .write = write_mix,
	  .follow = follow_mix,
	  .choose = choose_mix,
	  .apply = apply_mix },
	{ .name = "TimmAugMix",
	  .args = timm_args,
	  .args_bytes = sizeof(struct augmix),
	  .flags = OP_RANDOM,
	  .read = read_timm,
	  .write = write_timm,
	  .follow = follow_mix,
	  .choose = choose_timm,
	  .apply = apply_timm },
	{ .name = NULL },
};
