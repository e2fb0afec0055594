/* Ops of detection and segmentation that draw a size: RandomResize, RandomShortestSize, ScaleJitter, RandomZoomOut. An
 * op after them fixes the size of the row. */
#include "image/transform/op-types.h"

#include <math.h>

static const char *const given_sizes = "one number, or a list of 1 to 32, from 1 to 8192";

enum { DRAWN_WIDTH, DRAWN_HEIGHT }; /* what the ops draw */

/* Each image may have another size now. */
static int follow_drawn_size(const struct op *op, struct form *f, struct pipeline_error *err)
{
	(void)err;
	f->width = f->height = 0;
	f->blame = op;
	return 0;
}

static int resize_to(const struct op_choice *choice, const struct op_resampling *how, struct op_run *run,
		     struct view *v, struct image_error *err)
{
	double width = choice->drawn[DRAWN_WIDTH], height = choice->drawn[DRAWN_HEIGHT];

	if (width > VIEW_MAX_EDGE || height > VIEW_MAX_EDGE)
		return image_fail(err, IMAGE_E_LIMIT, "an op draws a size of %.0f x %.0f pixels: 1 to %u per edge",
				  width, height, VIEW_MAX_EDGE);
	return view_resize(v, run->worker, (uint32_t)width, (uint32_t)height, how->filter, how->order, err);
}

static void draw_size(struct op_choice *out, double width, double height)
{
	out->drawn[DRAWN_WIDTH] = width;
	out->drawn[DRAWN_HEIGHT] = height;
	out->n_drawn = 2;
}

/* RandomResize: the shorter edge becomes min_size .. max_size - 1. */

struct random_resize {
	uint32_t min, max;
	struct op_resampling resample;
};

static const char *const random_resize_args[] = {
	"min_size", "max_size", "interpolation", "antialias", "pillow", NULL
};

static int read_random_resize(struct arguments *a, struct op *op)
{
	struct random_resize *x = op->args;
	int rc = argument_count(a, 0, 1, SPEC_MAX_EDGE, &x->min);

	if (rc == 0)
		rc = argument_count(a, 1, 1, SPEC_MAX_EDGE + 1, &x->max);
	if (rc == 0 && x->min == 0)
		return argument_wrong(a, 0, "a whole number from 1 to 8192");
	if (rc == 0 && x->max <= x->min)
		return argument_wrong(a, 1, "more than min_size; the size drawn is below it");
	return rc == 0 ? argument_resampling(a, 2, 3, 4, &x->resample) : rc;
}

static json_t *write_random_resize(const struct op *op)
{
	const struct random_resize *x = op->args;

	return json_pack("{s:i, s:i, s:s, s:b, s:i}", "min_size", (int)x->min, "max_size", (int)x->max, "interpolation",
			 filter_name(x->resample.filter), "antialias", 1, "pillow", pillow_version(x->resample.order));
}

static int choose_random_resize(const struct op *op, struct random *r, uint32_t width, uint32_t height,
				struct op_choice *out, struct image_error *err)
{
	const struct random_resize *x = op->args;
	double size = x->min + random_below(r, x->max - x->min);
	double shorter = width <= height ? width : height, longer = width <= height ? height : width;
	double new_longer = floor(size * longer / shorter);

	(void)err;
	draw_size(out, width <= height ? size : new_longer, width <= height ? new_longer : size);
	return 0;
}

static int apply_random_resize(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			       struct image_error *err)
{
	const struct random_resize *x = op->args;

	return resize_to(choice, &x->resample, run, v, err);
}

/* RandomShortestSize: the shorter edge becomes one of min_size, the longer one at most max_size. */

enum { MAX_SIZES = 32 };

struct shortest_size {
	uint32_t n, min[MAX_SIZES], max; /* max 0: none */
	struct op_resampling resample;
};

static const char *const shortest_size_args[] = {
	"min_size", "max_size", "interpolation", "antialias", "pillow", NULL
};

static int read_shortest_size(struct arguments *a, struct op *op)
{
	struct shortest_size *x = op->args;
	json_t *sizes = a->values[0];
	size_t n = json_is_array(sizes) ? json_array_size(sizes) : 1;
	int rc;

	if (!sizes || n < 1 || n > MAX_SIZES)
		return argument_wrong(a, 0, given_sizes);
	for (x->n = 0; x->n < n; x->n++) {
		json_t *size = json_is_array(sizes) ? json_array_get(sizes, x->n) : sizes;
		json_int_t v = json_is_integer(size) ? json_integer_value(size) : 0;

		if (v < 1 || v > SPEC_MAX_EDGE)
			return argument_wrong(a, 0, given_sizes);
		x->min[x->n] = (uint32_t)v;
	}
	rc = argument_count(a, 1, 1, SPEC_MAX_EDGE, &x->max);
	return rc == 0 ? argument_resampling(a, 2, 3, 4, &x->resample) : rc;
}

static json_t *write_shortest_size(const struct op *op)
{
	const struct shortest_size *x = op->args;
	json_t *sizes = json_array();

	for (uint32_t i = 0; i < x->n; i++)
		json_array_append_new(sizes, json_integer(x->min[i]));
	return json_pack("{s:o, s:o, s:s, s:b, s:i}", "min_size", sizes, "max_size",
			 x->max ? json_integer(x->max) : json_null(), "interpolation", filter_name(x->resample.filter),
			 "antialias", 1, "pillow", pillow_version(x->resample.order));
}

static int choose_shortest_size(const struct op *op, struct random *r, uint32_t width, uint32_t height,
				struct op_choice *out, struct image_error *err)
{
	const struct shortest_size *x = op->args;
	double shorter = width <= height ? width : height, longer = width <= height ? height : width;
	double ratio = x->min[random_below(r, x->n)] / shorter;

	(void)err;
	if (x->max && x->max / longer < ratio)
		ratio = x->max / longer;
	draw_size(out, floor(width * ratio), floor(height * ratio));
	return 0;
}

static int apply_shortest_size(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			       struct image_error *err)
{
	const struct shortest_size *x = op->args;

	return resize_to(choice, &x->resample, run, v, err);
}

/* ScaleJitter: as large as fits into target_size, times a drawn scale. */

struct scale_jitter {
	struct op_size target;
	double scale[2];
	struct op_resampling resample;
};

static const char *const scale_jitter_args[] = { "target_size", "scale_range", "interpolation",
						 "antialias",   "pillow",      NULL };

static int read_scale_jitter(struct arguments *a, struct op *op)
{
	struct scale_jitter *x = op->args;
	int rc = argument_size(a, 0, &x->target);

	x->scale[0] = 0.1;
	x->scale[1] = 2.0;
	if (rc == 0 && x->target.single)
		rc = argument_wrong(a, 0, "two numbers");
	if (rc == 0)
		rc = argument_range(a, 1, 1e-3, 1e3, x->scale);
	return rc == 0 ? argument_resampling(a, 2, 3, 4, &x->resample) : rc;
}

static json_t *write_scale_jitter(const struct op *op)
{
	const struct scale_jitter *x = op->args;

	return json_pack("{s:[ii], s:[ff], s:s, s:b, s:i}", "target_size", (int)x->target.height, (int)x->target.width,
			 "scale_range", x->scale[0], x->scale[1], "interpolation", filter_name(x->resample.filter),
			 "antialias", 1, "pillow", pillow_version(x->resample.order));
}

/* from + torch.rand(1) * (to - from), in float32 */
static float draw_float(struct random *r, const double range[2])
{
	return (float)range[0] + random_uniform(r, 0.0f, 1.0f) * (float)(range[1] - range[0]);
}

static int choose_scale_jitter(const struct op *op, struct random *r, uint32_t width, uint32_t height,
			       struct op_choice *out, struct image_error *err)
{
	const struct scale_jitter *x = op->args;
	float scale = draw_float(r, x->scale), ratio;
	/* torchvision's order: the first number goes with the width */
	double fit = fmin((double)x->target.width / height, (double)x->target.height / width);

	(void)err;
	ratio = (float)fit * scale;
	draw_size(out, (double)floorf((float)width * ratio), (double)floorf((float)height * ratio));
	return 0;
}

static int apply_scale_jitter(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			      struct image_error *err)
{
	const struct scale_jitter *x = op->args;

	return resize_to(choice, &x->resample, run, v, err);
}

/* RandomZoomOut: the image somewhere on a larger canvas. */

struct zoom_out {
	struct op_fill fill;
	double side[2], p;
};

enum { ZOOM_HAPPENS, ZOOM_LEFT, ZOOM_TOP, ZOOM_WIDTH, ZOOM_HEIGHT, N_ZOOM };

static const char *const zoom_out_args[] = { "fill", "side_range", "p", NULL };

static int read_zoom_out(struct arguments *a, struct op *op)
{
	struct zoom_out *x = op->args;
	int rc = 0;

	x->fill.single = true;
	x->side[0] = 1.0;
	x->side[1] = 4.0;
	x->p = 0.5;
	if (!json_is_null(a->values[0])) /* null is black */
		rc = argument_fill(a, 0, &x->fill);
	if (rc == 0)
		rc = argument_range(a, 1, 1, 1024, x->side);
	return rc == 0 ? argument_number(a, 2, 0, 1, &x->p) : rc;
}

static json_t *write_zoom_out(const struct op *op)
{
	const struct zoom_out *x = op->args;

	return json_pack("{s:o, s:[ff], s:f}", "fill", json_fill(&x->fill), "side_range", x->side[0], x->side[1], "p",
			 x->p);
}

static int follow_zoom_out(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct zoom_out *x = op->args;

	if (f->n_channels == 1 && !x->fill.single)
		return op_wrong(op, err, "gets a grey image, so fill must be one number");
	return follow_drawn_size(op, f, err);
}

static int choose_zoom_out(const struct op *op, struct random *r, uint32_t width, uint32_t height,
			   struct op_choice *out, struct image_error *err)
{
	const struct zoom_out *x = op->args;
	double *d = out->drawn;
	float side;

	(void)err;
	d[ZOOM_HAPPENS] = random_chance(r, x->p);
	side = draw_float(r, x->side);
	d[ZOOM_WIDTH] = (double)floorf((float)width * side);
	d[ZOOM_HEIGHT] = (double)floorf((float)height * side);
	d[ZOOM_LEFT] = (double)floorf((float)(d[ZOOM_WIDTH] - width) * random_uniform(r, 0.0f, 1.0f));
	d[ZOOM_TOP] = (double)floorf((float)(d[ZOOM_HEIGHT] - height) * random_uniform(r, 0.0f, 1.0f));
	out->n_drawn = N_ZOOM;
	return 0;
}

static int apply_zoom_out(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			  struct image_error *err)
{
	const struct zoom_out *x = op->args;
	const double *d = choice->drawn;

	if (d[ZOOM_HAPPENS] == 0.0)
		return 0;
	if (d[ZOOM_WIDTH] > VIEW_MAX_EDGE || d[ZOOM_HEIGHT] > VIEW_MAX_EDGE)
		return image_fail(err, IMAGE_E_LIMIT, "RandomZoomOut draws a size of %.0f x %.0f pixels", d[ZOOM_WIDTH],
				  d[ZOOM_HEIGHT]);
	return view_window(v, run->worker, -(int32_t)d[ZOOM_LEFT], -(int32_t)d[ZOOM_TOP], (uint32_t)d[ZOOM_WIDTH],
			   (uint32_t)d[ZOOM_HEIGHT], PAD_CONSTANT, x->fill.color, err);
}

const struct op_type scale_ops[] = {
	{ .name = "RandomResize",
	  .args = random_resize_args,
	  .args_bytes = sizeof(struct random_resize),
	  .flags = OP_RANDOM | OP_ANY_PIXEL,
	  .read = read_random_resize,
	  .write = write_random_resize,
	  .follow = follow_drawn_size,
	  .choose = choose_random_resize,
	  .apply = apply_random_resize },
	{ .name = "RandomShortestSize",
	  .args = shortest_size_args,
	  .args_bytes = sizeof(struct shortest_size),
	  .flags = OP_RANDOM | OP_ANY_PIXEL,
	  .read = read_shortest_size,
	  .write = write_shortest_size,
	  .follow = follow_drawn_size,
	  .choose = choose_shortest_size,
	  .apply = apply_shortest_size },
	{ .name = "ScaleJitter",
	  .args = scale_jitter_args,
	  .args_bytes = sizeof(struct scale_jitter),
	  .flags = OP_RANDOM | OP_ANY_PIXEL,
	  .read = read_scale_jitter,
	  .write = write_scale_jitter,
	  .follow = follow_drawn_size,
	  .choose = choose_scale_jitter,
	  .apply = apply_scale_jitter },
	{ .name = "RandomZoomOut",
	  .args = zoom_out_args,
	  .args_bytes = sizeof(struct zoom_out),
	  .flags = OP_RANDOM | OP_ANY_PIXEL,
	  .read = read_zoom_out,
	  .write = write_zoom_out,
	  .follow = follow_zoom_out,
	  .choose = choose_zoom_out,
	  .apply = apply_zoom_out },
	{ .name = NULL },
};
