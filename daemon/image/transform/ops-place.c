/* timm's ops that place an image in a frame, and the resize that goes before them: CenterCropOrPad, RandomCropOrPad,
 * RandomPad, TrimBorder, ResizeKeepRatio. */
#include "image/transform/op-types.h"

#include <math.h>
#include <string.h>

static const char *const place_modes[] = { "constant", "edge", "reflect", "symmetric", NULL };

/* Whole numbers as Python's round: halves to even. */
static double whole(double x)
{
	return rint(x); /* in the default rounding mode */
}

/* CenterCropOrPad and RandomCropOrPad: a window of the size, which may reach beyond the image. RandomPad: at least of the
 * size. */

struct frame {
	struct op_size size;
	struct op_fill fill;
	enum pad_mode mode;
};

enum { FRAME_LEFT, FRAME_TOP }; /* in the image; may be negative */

static const char *const frame_args[] = { "size", "fill", "padding_mode", NULL };
static const char *const random_pad_args[] = { "input_size", "fill", NULL };

static int read_random_pad(struct arguments *a, struct op *op)
{
	struct frame *x = op->args;
	int rc = argument_size(a, 0, &x->size);

	x->fill.single = true;
	x->mode = PAD_CONSTANT;
	return rc == 0 ? argument_fill(a, 1, &x->fill) : rc;
}

static int read_frame(struct arguments *a, struct op *op)
{
	struct frame *x = op->args;
	unsigned mode = PAD_CONSTANT;
	int rc = read_random_pad(a, op);

	if (rc == 0)
		rc = argument_choice(a, 2, place_modes, &mode);
	x->mode = (enum pad_mode)mode;
	return rc;
}

static json_t *write_frame(const struct op *op)
{
	const struct frame *x = op->args;

	return json_pack("{s:[ii], s:o, s:s}", "size", (int)x->size.height, (int)x->size.width, "fill",
			 json_fill(&x->fill), "padding_mode", place_modes[x->mode]);
}

static json_t *write_random_pad(const struct op *op)
{
	const struct frame *x = op->args;

	return json_pack("{s:[ii], s:o}", "input_size", (int)x->size.height, (int)x->size.width, "fill",
			 json_fill(&x->fill));
}

static int check_frame(const struct op *op, const struct form *f, struct pipeline_error *err)
{
	const struct frame *x = op->args;

	if (f->n_channels == 1 && !x->fill.single)
		return op_wrong(op, err, "gets a grey image, so fill must be one number");
	return 0;
}

static int follow_frame(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct frame *x = op->args;

	f->width = x->size.width;
	f->height = x->size.height;
	f->blame = NULL;
	return check_frame(op, f, err);
}

static int follow_random_pad(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct frame *x = op->args;

	if (f->width && f->width < x->size.width)
		f->width = x->size.width;
	if (f->height && f->height < x->size.height)
		f->height = x->size.height;
	return check_frame(op, f, err);
}

/* The start of a centred window: what is left over when padding goes to the right, when cropping to the even number. */
static int32_t centered(uint32_t have, uint32_t want)
{
	return want > have ? -(int32_t)((want - have) / 2) : (int32_t)whole((have - want) / 2.0);
}

static int apply_center_frame(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			      struct image_error *err)
{
	const struct frame *x = op->args;

	(void)choice;
	return view_window(v, run->worker, centered(view_width(v), x->size.width),
			   centered(view_height(v), x->size.height), x->size.width, x->size.height, x->mode,
			   x->fill.color, err);
}

/* Anywhere inside the image, or the image anywhere inside the window. */
static double draw_start(struct random *r, uint32_t have, uint32_t want)
{
	return have >= want ? (double)random_below(r, have - want + 1) : -(double)random_below(r, want - have + 1);
}

static int choose_frame(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
			struct image_error *err)
{
	const struct frame *x = op->args;

	(void)err;
	out->drawn[FRAME_TOP] = draw_start(r, height, x->size.height);
	out->drawn[FRAME_LEFT] = draw_start(r, width, x->size.width);
	out->n_drawn = 2;
	return 0;
}

static int apply_frame(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
		       struct image_error *err)
{
	const struct frame *x = op->args;

	return view_window(v, run->worker, (int32_t)choice->drawn[FRAME_LEFT], (int32_t)choice->drawn[FRAME_TOP],
			   x->size.width, x->size.height, x->mode, x->fill.color, err);
}

static uint32_t at_least(uint32_t have, uint32_t want)
{
	return have > want ? have : want;
}

static int choose_random_pad(const struct op *op, struct random *r, uint32_t width, uint32_t height,
			     struct op_choice *out, struct image_error *err)
{
	const struct frame *x = op->args;

	(void)err;
	out->drawn[FRAME_LEFT] = draw_start(r, width, at_least(width, x->size.width));
	out->drawn[FRAME_TOP] = draw_start(r, height, at_least(height, x->size.height));
	out->n_drawn = 2;
	return 0;
}

static int apply_random_pad(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			    struct image_error *err)
{
	const struct frame *x = op->args;

	return view_window(v, run->worker, (int32_t)choice->drawn[FRAME_LEFT], (int32_t)choice->drawn[FRAME_TOP],
			   at_least(view_width(v), x->size.width), at_least(view_height(v), x->size.height), x->mode,
			   x->fill.color, err);
}

/* TrimBorder: so many pixels go from each side. */

static const char *const trim_args[] = { "border_size", NULL };

static int read_trim(struct arguments *a, struct op *op)
{
	if (!a->values[0])
		return argument_wrong(a, 0, "a whole number from 0 to 8192");
	return argument_count(a, 0, 0, SPEC_MAX_EDGE, op->args);
}

static json_t *write_trim(const struct op *op)
{
	const uint32_t *border = op->args;

	return json_pack("{s:i}", "border_size", (int)*border);
}

static int follow_trim(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const uint32_t *border = op->args;

	if (f->width && (f->width <= 2 * *border || f->height <= 2 * *border))
		return op_wrong(op, err, "leaves nothing of the %u x %u pixels it gets: use a smaller border_size",
				f->width, f->height);
	if (f->width) {
		f->width -= 2 * *border;
		f->height -= 2 * *border;
	}
	return 0;
}

static int apply_trim(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
		      struct image_error *err)
{
	static const uint8_t black[3];
	const uint32_t *border = op->args;
	uint32_t width = view_width(v), height = view_height(v);

	(void)choice;
	if (width <= 2 * *border || height <= 2 * *border)
		return image_fail(err, IMAGE_E_FORMAT,
				  "the image has %u x %u pixels, of which TrimBorder with border_size %u leaves none",
				  width, height, *border);
	return view_window(v, run->worker, (int32_t)*border, (int32_t)*border, width - 2 * *border,
			   height - 2 * *border, PAD_CONSTANT, black, err);
}

/* ResizeKeepRatio: into the size (longest 1), over it (0), or between; RandomResizeKeepRatio also draws a scale, an aspect
 * ratio and perhaps the filter. */

struct keep_ratio {
	struct op_size size;
	double longest;
	struct op_resampling resample;
	bool any_filter, by_area;
	double scale_p, scale[2], aspect_p, aspect[2];
};

enum { KEEP_WIDTH, KEEP_HEIGHT, KEEP_FILTER };

static const char *const keep_ratio_args[] = { "size", "longest", "interpolation", "antialias", "pillow", NULL };
static const char *const random_keep_ratio_args[] = {
	"size",
	"longest",
	"interpolation",
	"random_scale_prob",
	"random_scale_range",
	"random_scale_area",
	"random_aspect_prob",
	"random_aspect_range",
	"antialias",
	"pillow",
	NULL,
};

static int read_fit(struct arguments *a, struct keep_ratio *x)
{
	int rc = argument_size(a, 0, &x->size);

	return rc == 0 ? argument_number(a, 1, 0, 1, &x->longest) : rc;
}

static int read_keep_ratio(struct arguments *a, struct op *op)
{
	struct keep_ratio *x = op->args;
	int rc = read_fit(a, x);

	return rc == 0 ? argument_resampling(a, 2, 3, 4, &x->resample) : rc;
}

static int read_random_keep_ratio(struct arguments *a, struct op *op)
{
	struct keep_ratio *x = op->args;
	int rc = read_fit(a, x);

	x->scale[0] = 0.85;
	x->scale[1] = 1.05;
	x->aspect[0] = 0.9;
	x->aspect[1] = 1.11;
	x->any_filter = json_is_string(a->values[2]) && strcmp(json_string_value(a->values[2]), "random") == 0;
	if (x->any_filter)
		a->values[2] = NULL;
	if (rc == 0)
		rc = argument_number(a, 3, 0, 1, &x->scale_p);
	if (rc == 0)
		rc = argument_range(a, 4, 1e-3, 1e3, x->scale);
	if (rc == 0)
		rc = argument_bool(a, 5, &x->by_area);
	if (rc == 0)
		rc = argument_number(a, 6, 0, 1, &x->aspect_p);
	if (rc == 0)
		rc = argument_range(a, 7, 1e-3, 1e3, x->aspect);
	return rc == 0 ? argument_resampling(a, 2, 8, 9, &x->resample) : rc;
}

static json_t *write_keep_ratio(const struct op *op)
{
	const struct keep_ratio *x = op->args;

	return json_pack("{s:[ii], s:f, s:s, s:b, s:i}", "size", (int)x->size.height, (int)x->size.width, "longest",
			 x->longest, "interpolation", filter_name(x->resample.filter), "antialias", 1, "pillow",
			 pillow_version(x->resample.order));
}

static json_t *write_random_keep_ratio(const struct op *op)
{
	const struct keep_ratio *x = op->args;

	return json_pack("{s:[ii], s:f, s:s, s:f, s:[ff], s:b, s:f, s:[ff], s:b, s:i}", "size", (int)x->size.height,
			 (int)x->size.width, "longest", x->longest, "interpolation",
			 x->any_filter ? "random" : filter_name(x->resample.filter), "random_scale_prob", x->scale_p,
			 "random_scale_range", x->scale[0], x->scale[1], "random_scale_area", x->by_area,
			 "random_aspect_prob", x->aspect_p, "random_aspect_range", x->aspect[0], x->aspect[1],
			 "antialias", 1, "pillow", pillow_version(x->resample.order));
}

/* factors: of height and width, beside the ratio. */
static void kept_size(const struct keep_ratio *x, uint32_t width, uint32_t height, const double factors[2],
		      struct op_choice *out)
{
	double by_height = (double)height / x->size.height, by_width = (double)width / x->size.width;
	double ratio = fmax(by_height, by_width) * x->longest + fmin(by_height, by_width) * (1.0 - x->longest);

	out->drawn[KEEP_HEIGHT] = whole(height * factors[0] / ratio);
	out->drawn[KEEP_WIDTH] = whole(width * factors[1] / ratio);
	out->n_drawn = 2;
}

static int follow_keep_ratio(const struct op *op, struct form *f, struct pipeline_error *err)
{
	static const double one[2] = { 1.0, 1.0 };
	struct op_choice kept;

	(void)err;
	if (!f->width)
		return 0;
	kept_size(op->args, f->width, f->height, one, &kept);
	f->width = kept.drawn[KEEP_WIDTH] > SPEC_MAX_EDGE ? 0 : (uint32_t)kept.drawn[KEEP_WIDTH];
	f->height = kept.drawn[KEEP_HEIGHT] > SPEC_MAX_EDGE ? 0 : (uint32_t)kept.drawn[KEEP_HEIGHT];
	return 0;
}

static int follow_random_keep_ratio(const struct op *op, struct form *f, struct pipeline_error *err)
{
	(void)err;
	f->width = f->height = 0;
	f->blame = op;
	return 0;
}

static double draw_between(struct random *r, double from, double to)
{
	return from + (to - from) * random_unit(r);
}

static int choose_random_keep_ratio(const struct op *op, struct random *r, uint32_t width, uint32_t height,
				    struct op_choice *out, struct image_error *err)
{
	const struct keep_ratio *x = op->args;
	double factors[2] = { 1.0, 1.0 };

	(void)err;
	if (x->scale_p > 0.0 && random_unit(r) < x->scale_p) {
		factors[0] = draw_between(r, x->scale[0], x->scale[1]);
		if (x->by_area)
			factors[0] = 1.0 / sqrt(factors[0]);
		factors[1] = factors[0];
	}
	if (x->aspect_p > 0.0 && random_unit(r) < x->aspect_p) {
		double aspect = sqrt(exp(draw_between(r, log(x->aspect[0]), log(x->aspect[1]))));

		factors[0] /= aspect;
		factors[1] *= aspect;
	}
	kept_size(x, width, height, factors, out);
	if (x->any_filter)
		out->drawn[out->n_drawn++] = random_below(r, 2) ? FILTER_BICUBIC : FILTER_BILINEAR;
	return 0;
}

static int resize_kept(const struct keep_ratio *x, const struct op_choice *size, enum filter filter, struct op_run *run,
		       struct view *v, struct image_error *err)
{
	double width = size->drawn[KEEP_WIDTH], height = size->drawn[KEEP_HEIGHT];

	if (width > VIEW_MAX_EDGE || height > VIEW_MAX_EDGE)
		return image_fail(err, IMAGE_E_LIMIT, "ResizeKeepRatio makes %.0f x %.0f pixels: 1 to %u per edge",
				  width, height, VIEW_MAX_EDGE);
	return view_resize(v, run->worker, (uint32_t)width, (uint32_t)height, filter, x->resample.order, err);
}

static int apply_keep_ratio(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			    struct image_error *err)
{
	static const double one[2] = { 1.0, 1.0 };
	const struct keep_ratio *x = op->args;
	struct op_choice kept;

	(void)choice;
	kept_size(x, view_width(v), view_height(v), one, &kept);
	return resize_kept(x, &kept, x->resample.filter, run, v, err);
}

static int apply_random_keep_ratio(const struct op *op, const struct op_choice *choice, struct op_run *run,
				   struct view *v, struct image_error *err)
{
	const struct keep_ratio *x = op->args;

	return resize_kept(x, choice, x->any_filter ? (enum filter)(int)choice->drawn[KEEP_FILTER] : x->resample.filter,
			   run, v, err);
}

const struct op_type place_ops[] = {
	{ .name = "CenterCropOrPad",
	  .args = frame_args,
	  .args_bytes = sizeof(struct frame),
	  .read = read_frame,
	  .write = write_frame,
	  .follow = follow_frame,
	  .apply = apply_center_frame },
	{ .name = "RandomCropOrPad",
	  .args = frame_args,
	  .args_bytes = sizeof(struct frame),
	  .flags = OP_RANDOM,
	  .read = read_frame,
	  .write = write_frame,
	  .follow = follow_frame,
	  .choose = choose_frame,
	  .apply = apply_frame },
	{ .name = "RandomPad",
	  .args = random_pad_args,
	  .args_bytes = sizeof(struct frame),
	  .flags = OP_RANDOM,
	  .read = read_random_pad,
	  .write = write_random_pad,
	  .follow = follow_random_pad,
	  .choose = choose_random_pad,
	  .apply = apply_random_pad },
	{ .name = "TrimBorder",
	  .args = trim_args,
	  .args_bytes = sizeof(uint32_t),
	  .read = read_trim,
	  .write = write_trim,
	  .follow = follow_trim,
	  .apply = apply_trim },
	{ .name = "ResizeKeepRatio",
	  .args = keep_ratio_args,
	  .args_bytes = sizeof(struct keep_ratio),
	  .read = read_keep_ratio,
	  .write = write_keep_ratio,
	  .follow = follow_keep_ratio,
	  .apply = apply_keep_ratio },
	{ .name = "RandomResizeKeepRatio",
	  .args = random_keep_ratio_args,
	  .args_bytes = sizeof(struct keep_ratio),
	  .flags = OP_RANDOM,
	  .read = read_random_keep_ratio,
	  .write = write_random_keep_ratio,
	  .follow = follow_random_keep_ratio,
	  .choose = choose_random_keep_ratio,
	  .apply = apply_random_keep_ratio },
	{ .name = NULL },
};
