/* Ops that move pixels: sizes, crops, padding, flips. */
#include "image/transform/op-types.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const char *const pad_names[] = { "constant", "edge", "reflect", "symmetric", NULL };

/* Python's int(round(x)): halves to even. */
static int64_t round_even(double x)
{
	return llrint(x); /* in the default rounding mode */
}

static int set_size(struct form *f, uint32_t width, uint32_t height)
{
	f->width = width;
	f->height = height;
	f->blame = NULL;
	return 0;
}

/* Resize */

struct resize {
	struct op_size size;
	struct op_resampling resample;
	bool any_filter;   /* "random": bilinear or bicubic, as timm's crops have it */
	uint32_t max_size; /* 0: none */
	bool longer;       /* size is null: the longer edge becomes max_size */
};

static const char *const resize_args[] = { "size", "interpolation", "max_size", "antialias", "pillow", NULL };

static const struct op_type random_resize;

/* Takes "random" out of the arguments: an op that draws its filter, bilinear or bicubic. */
static bool takes_any_filter(struct arguments *a, unsigned interpolation)
{
	json_t *v = a->values[interpolation];
	bool any = json_is_string(v) && strcmp(json_string_value(v), "random") == 0;

	if (any)
		a->values[interpolation] = NULL;
	return any;
}

static enum filter draw_filter(struct random *r)
{
	return random_below(r, 2) ? FILTER_BICUBIC : FILTER_BILINEAR;
}

static int read_resize(struct arguments *a, struct op *op)
{
	struct resize *x = op->args;
	int rc;

	x->longer = json_is_null(a->values[0]) && json_is_integer(a->values[2]);
	x->size.single = x->longer;
	rc = x->longer ? 0 : argument_size(a, 0, &x->size);
	if (rc == 0)
		rc = argument_count(a, 2, 1, SPEC_MAX_EDGE, &x->max_size);
	if (rc == 0 && !x->longer && x->max_size && (!x->size.single || x->max_size <= x->size.height))
		rc = argument_wrong(a, 2, "more than size, which must be one number");
	x->any_filter = takes_any_filter(a, 1);
	if (x->any_filter)
		op->type = &random_resize;
	return rc == 0 ? argument_resampling(a, 1, 3, 4, &x->resample) : rc;
}

static json_t *write_resize(const struct op *op)
{
	const struct resize *x = op->args;

	return json_pack("{s:o, s:s, s:o, s:b, s:i}", "size", x->longer ? json_null() : json_size(&x->size),
			 "interpolation", x->any_filter ? "random" : filter_name(x->resample.filter), "max_size",
			 x->max_size ? json_integer(x->max_size) : json_null(), "antialias", 1, "pillow",
			 pillow_version(x->resample.order));
}

/* The shorter edge becomes size, or the longer one max_size; the other one follows, truncated to whole pixels. Both may
 * become 0 or very large when the image is very long. */
static void resized_size(const struct resize *x, uint32_t width, uint32_t height, uint32_t *new_width,
			 uint32_t *new_height)
{
	double shorter = width <= height ? width : height, longer = width <= height ? height : width;
	double new_shorter = x->size.height, new_longer;

	*new_width = x->size.width;
	*new_height = x->size.height;
	if (!x->size.single)
		return;
	new_longer = x->longer ? x->max_size : floor(x->size.height * longer / shorter);
	if (x->longer) {
		new_shorter = floor(x->max_size * shorter / longer);
	} else if (x->max_size && new_longer > x->max_size) {
		new_shorter = floor(x->max_size * new_shorter / new_longer);
		new_longer = x->max_size;
	}
	*new_width = (uint32_t)(width <= height ? new_shorter : new_longer);
	*new_height = (uint32_t)(width <= height ? new_longer : new_shorter);
}

static int follow_resize(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct resize *x = op->args;
	uint32_t width, height;

	(void)err;
	if (!f->width && x->size.single)
		return 0;
	resized_size(x, f->width, f->height, &width, &height);
	return set_size(f, width, height);
}

static int choose_resize(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
			 struct image_error *err)
{
	(void)op;
	(void)width;
	(void)height;
	(void)err;
	out->drawn[0] = draw_filter(r);
	out->n_drawn = 1;
	return 0;
}

static int apply_resize(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			struct image_error *err)
{
	const struct resize *x = op->args;
	enum filter filter = x->any_filter ? (enum filter)(int)choice->drawn[0] : x->resample.filter;
	uint32_t width, height;

	resized_size(x, view_width(v), view_height(v), &width, &height);
	return view_resize(v, run->worker, width, height, filter, x->resample.order, err);
}

/* Apart from Resize, whose pixels are kept for all epochs where nothing before it draws. */
static const struct op_type random_resize = { .name = "Resize",
					      .args = resize_args,
					      .args_bytes = sizeof(struct resize),
					      .flags = OP_RANDOM | OP_ANY_PIXEL,
					      .read = read_resize,
					      .write = write_resize,
					      .follow = follow_resize,
					      .choose = choose_resize,
					      .apply = apply_resize };

/* CenterCrop */

static const char *const center_crop_args[] = { "size", NULL };

static int read_center_crop(struct arguments *a, struct op *op)
{
	return argument_size(a, 0, op->args);
}

static json_t *write_center_crop(const struct op *op)
{
	const struct op_size *size = op->args;

	return json_pack("{s:[ii]}", "size", (int)size->height, (int)size->width);
}

static int follow_center_crop(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct op_size *size = op->args;

	(void)err;
	return set_size(f, size->width, size->height);
}

/* The start of a centred window of `want` in `have`: before the image when it is larger. */
static int32_t ops_geometry_center(uint32_t have, uint32_t want)
{
	if (want > have)
		return -(int32_t)((want - have) / 2);
	return (int32_t)round_even((have - want) / 2.0);
}

static int apply_center_crop(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			     struct image_error *err)
{
	static const uint8_t black[3];
	const struct op_size *size = op->args;

	(void)choice;
	return view_window(v, run->worker, ops_geometry_center(view_width(v), size->width),
			   ops_geometry_center(view_height(v), size->height), size->width, size->height, PAD_CONSTANT,
			   black, err);
}

/* What lies outside of the image: RandomCrop and Pad */

struct outside {
	struct op_padding padding;
	struct op_fill fill;
	enum pad_mode mode;
};

static int read_outside(struct arguments *a, unsigned fill, unsigned mode, struct outside *out)
{
	unsigned choice = PAD_CONSTANT;
	int rc = argument_fill_number(a, fill, &out->fill);

	if (rc == 0)
		rc = argument_choice(a, mode, pad_names, &choice);
	out->mode = (enum pad_mode)choice;
	return rc;
}

/* A rectangle that may begin outside the image. */
struct region {
	int32_t left, top;
	uint32_t width, height;
};

static bool fill_fits(enum pixel pixel, double v)
{
	switch (pixel) {
	case PIXEL_UINT16:
		return v == floor(v) && v >= 0 && v <= UINT16_MAX;
	case PIXEL_INT32:
		return v == floor(v) && v >= INT32_MIN && v <= INT32_MAX;
	default:
		return fabs(v) <= (double)FLT_MAX;
	}
}

static int check_fill(const struct op *op, const struct outside *x, const struct form *f, struct pipeline_error *err)
{
	if (f->n_channels == 1 && !x->fill.single)
		return op_wrong(op, err, "gets a grey image, so fill must be one number");
	if (f->pixel != PIXEL_RGB && !fill_fits(f->pixel, x->fill.number))
		return op_wrong(op, err, "has a fill of %g, which is no pixel of mode %s", x->fill.number,
				pixel_mode(f->pixel));
	return 0;
}

static int outside_window(const struct outside *x, struct view *v, struct op_run *run, struct region window,
			  struct image_error *err)
{
	if (v->pixel == PIXEL_RGB)
		return view_window(v, run->worker, window.left, window.top, window.width, window.height, x->mode,
				   x->fill.color, err);
	return view_window_number(v, run->worker, window.left, window.top, window.width, window.height, x->mode,
				  x->fill.number, err);
}

/* RandomCrop */

struct random_crop {
	struct op_size size;
	struct outside outside;
	bool pad_if_needed;
};

enum { CROP_LEFT, CROP_TOP, CROP_WIDTH, CROP_HEIGHT, CROP_FILTER }; /* in the unpadded image; may be negative */

static const char *const random_crop_args[] = { "size", "padding", "pad_if_needed", "fill", "padding_mode", NULL };

static int read_random_crop(struct arguments *a, struct op *op)
{
	struct random_crop *x = op->args;
	bool given = false;
	int rc = argument_size(a, 0, &x->size);

	if (rc == 0)
		rc = argument_padding(a, 1, 0, &x->outside.padding, &given);
	if (rc == 0)
		rc = argument_bool(a, 2, &x->pad_if_needed);
	return rc == 0 ? read_outside(a, 3, 4, &x->outside) : rc;
}

static json_t *write_random_crop(const struct op *op)
{
	const struct random_crop *x = op->args;

	return json_pack("{s:[ii], s:o, s:b, s:o, s:s}", "size", (int)x->size.height, (int)x->size.width, "padding",
			 json_padding(&x->outside.padding), "pad_if_needed", x->pad_if_needed, "fill",
			 json_fill(&x->outside.fill), "padding_mode", pad_names[x->outside.mode]);
}

static int follow_random_crop(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct random_crop *x = op->args;
	const struct op_padding *p = &x->outside.padding;
	uint32_t width = f->width + (uint32_t)(p->left + p->right);
	uint32_t height = f->height + (uint32_t)(p->top + p->bottom);

	if (f->width && !x->pad_if_needed && (width < x->size.width || height < x->size.height))
		return op_wrong(op, err,
				"of %u x %u does not fit into the %u x %u pixels it gets; "
				"use a smaller size, padding or pad_if_needed",
				x->size.width, x->size.height, f->width, f->height);
	set_size(f, x->size.width, x->size.height);
	return check_fill(op, &x->outside, f, err);
}

static int choose_random_crop(const struct op *op, struct random *r, uint32_t width, uint32_t height,
			      struct op_choice *out, struct image_error *err)
{
	const struct random_crop *x = op->args;
	const struct op_padding *p = &x->outside.padding;
	uint32_t left = (uint32_t)p->left, top = (uint32_t)p->top;
	uint32_t padded_width = width + left + (uint32_t)p->right, padded_height = height + top + (uint32_t)p->bottom;
	uint32_t missing;

	if (x->pad_if_needed && padded_height < x->size.height) {
		missing = x->size.height - padded_height;
		top += missing;
		padded_height += 2 * missing;
	}
	if (x->pad_if_needed && padded_width < x->size.width) {
		missing = x->size.width - padded_width;
		left += missing;
		padded_width += 2 * missing;
	}
	if (padded_width < x->size.width || padded_height < x->size.height) {
		return image_fail(err, IMAGE_E_FORMAT,
				  "the image has %u x %u pixels where RandomCrop needs at least %u x %u", width, height,
				  x->size.width, x->size.height);
	}
	out->drawn[CROP_TOP] = (double)random_below(r, padded_height - x->size.height + 1) - (double)top;
	out->drawn[CROP_LEFT] = (double)random_below(r, padded_width - x->size.width + 1) - (double)left;
	out->n_drawn = 2;
	return 0;
}

static int apply_random_crop(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			     struct image_error *err)
{
	const struct random_crop *x = op->args;

	return outside_window(&x->outside, v, run,
			      (struct region){ (int32_t)choice->drawn[CROP_LEFT], (int32_t)choice->drawn[CROP_TOP],
					       x->size.width, x->size.height },
			      err);
}

/* Pad */

static const char *const pad_args[] = { "padding", "fill", "padding_mode", NULL };

static int read_pad(struct arguments *a, struct op *op)
{
	struct outside *x = op->args;
	bool given = false;
	int rc = argument_padding(a, 0, -SPEC_MAX_EDGE, &x->padding, &given);

	if (rc == 0 && !given)
		rc = argument_wrong(a, 0, "one number, [left/right, top/bottom] or [left, top, right, bottom]");
	return rc == 0 ? read_outside(a, 1, 2, x) : rc;
}

static json_t *write_pad(const struct op *op)
{
	const struct outside *x = op->args;

	return json_pack("{s:o, s:o, s:s}", "padding", json_padding(&x->padding), "fill", json_fill(&x->fill),
			 "padding_mode", pad_names[x->mode]);
}

/* The pixels that negative padding takes away. */
static int32_t taken(int32_t padding)
{
	return padding < 0 ? -padding : 0;
}

/* torchvision crops the negative sides before it pads the others. Pillow's own expand, which it calls for a constant,
 * pastes the image where the padding begins, so that a crop of the whole image leaves the fill. False: nothing is left. */
static bool pad_windows(const struct outside *x, uint32_t width, uint32_t height, struct region *crop,
			struct region *padded)
{
	const struct op_padding *p = &x->padding;
	struct op_padding cut = { taken(p->left), taken(p->top), taken(p->right), taken(p->bottom) };
	int64_t padded_width = (int64_t)width + p->left + p->right;
	int64_t padded_height = (int64_t)height + p->top + p->bottom;
	int64_t cropped_width, cropped_height;

	if (x->mode == PAD_CONSTANT)
		cut = (struct op_padding){ 0 };
	cropped_width = (int64_t)width - cut.left - cut.right;
	cropped_height = (int64_t)height - cut.top - cut.bottom;
	*crop = (struct region){ cut.left, cut.top, (uint32_t)cropped_width, (uint32_t)cropped_height };
	*padded = (struct region){ -p->left - cut.left, -p->top - cut.top, (uint32_t)padded_width,
				   (uint32_t)padded_height };
	return cropped_width > 0 && cropped_height > 0 && padded_width > 0 && padded_height > 0;
}

static int follow_pad(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct outside *x = op->args;
	struct region crop, padded;

	if (f->width && !pad_windows(x, f->width, f->height, &crop, &padded))
		return op_wrong(op, err, "leaves nothing of the %u x %u pixels it gets: crop less by negative padding",
				f->width, f->height);
	if (f->width) {
		f->width = padded.width;
		f->height = padded.height;
	}
	return check_fill(op, x, f, err);
}

static int apply_pad(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
		     struct image_error *err)
{
	const struct outside *x = op->args;
	struct region crop, padded;
	int rc;

	(void)choice;
	if (!pad_windows(x, view_width(v), view_height(v), &crop, &padded))
		return image_fail(err, IMAGE_E_FORMAT,
				  "the image has %u x %u pixels, of which Pad with negative padding leaves none",
				  view_width(v), view_height(v));
	rc = outside_window(x, v, run, crop, err);
	return rc == 0 ? outside_window(x, v, run, padded, err) : rc;
}

/* RandomResizedCrop */

struct resized_crop {
	struct op_size size;
	struct op_resampling resample;
	bool any_filter; /* timm's "random": bilinear or bicubic */
	double scale[2], ratio[2];
	float log_ratio[2];
};

static const char *const resized_crop_args[] = {
	"size", "scale", "ratio", "interpolation", "antialias", "pillow", NULL
};

static int read_resized_crop(struct arguments *a, struct op *op)
{
	struct resized_crop *x = op->args;
	int rc = argument_size(a, 0, &x->size);

	x->scale[0] = 0.08;
	x->scale[1] = 1.0;
	x->ratio[0] = 3.0 / 4.0;
	x->ratio[1] = 4.0 / 3.0;
	if (rc == 0)
		rc = argument_range(a, 1, 0, 1e3, x->scale);
	if (rc == 0)
		rc = argument_range(a, 2, 1e-3, 1e3, x->ratio);
	for (int i = 0; i < 2; i++) /* of float32, as torch.log(torch.tensor(ratio)) */
		x->log_ratio[i] = logf((float)x->ratio[i]);
	x->any_filter = takes_any_filter(a, 3);
	return rc == 0 ? argument_resampling(a, 3, 4, 5, &x->resample) : rc;
}

static json_t *write_resized_crop(const struct op *op)
{
	const struct resized_crop *x = op->args;

	return json_pack("{s:[ii], s:[ff], s:[ff], s:s, s:b, s:i}", "size", (int)x->size.height, (int)x->size.width,
			 "scale", x->scale[0], x->scale[1], "ratio", x->ratio[0], x->ratio[1], "interpolation",
			 x->any_filter ? "random" : filter_name(x->resample.filter), "antialias", 1, "pillow",
			 pillow_version(x->resample.order));
}

static int follow_resized_crop(const struct op *op, struct form *f, struct pipeline_error *err)
{
	const struct resized_crop *x = op->args;

	(void)err;
	return set_size(f, x->size.width, x->size.height);
}

static bool ops_geometry_fits(struct region_px *r, double w, double h, uint32_t width, uint32_t height)
{
	int64_t rounded_w = round_even(w), rounded_h = round_even(h);

	if (rounded_w < 1 || rounded_w > width || rounded_h < 1 || rounded_h > height)
		return false;
	r->width = (uint32_t)rounded_w;
	r->height = (uint32_t)rounded_h;
	return true;
}

/* After ten attempts: as much of the middle as the ratios allow. */
static struct region_px central_crop(const struct resized_crop *x, uint32_t width, uint32_t height)
{
	double ratio = (double)width / (double)height;
	struct region_px r = { 0, 0, width, height };

	if (ratio < x->ratio[0])
		r.height = (uint32_t)round_even(width / x->ratio[0]);
	else if (ratio > x->ratio[1])
		r.width = (uint32_t)round_even(height * x->ratio[1]);
	r.width = r.width < 1 ? 1 : r.width;
	r.height = r.height < 1 ? 1 : r.height;
	r.x = (width - r.width) / 2;
	r.y = (height - r.height) / 2;
	return r;
}

static struct region_px draw_resized_crop(const struct resized_crop *x, struct random *r, uint32_t width,
					  uint32_t height)
{
	double area = (double)((uint64_t)width * height);
	struct region_px crop;

	for (int attempt = 0; attempt < 10; attempt++) {
		double target = area * (double)random_uniform(r, (float)x->scale[0], (float)x->scale[1]);
		float log_ratio = random_uniform(r, x->log_ratio[0], x->log_ratio[1]);
		double ratio = (double)(float)exp((double)log_ratio);

		if (ops_geometry_fits(&crop, sqrt(target * ratio), sqrt(target / ratio), width, height)) {
			crop.y = random_below(r, height - crop.height + 1);
			crop.x = random_below(r, width - crop.width + 1);
			return crop;
		}
	}
	return central_crop(x, width, height);
}

static int choose_resized_crop(const struct op *op, struct random *r, uint32_t width, uint32_t height,
			       struct op_choice *out, struct image_error *err)
{
	const struct resized_crop *x = op->args;
	struct region_px crop = draw_resized_crop(x, r, width, height);

	(void)err;
	out->drawn[CROP_LEFT] = crop.x;
	out->drawn[CROP_TOP] = crop.y;
	out->drawn[CROP_WIDTH] = crop.width;
	out->drawn[CROP_HEIGHT] = crop.height;
	out->n_drawn = 4;
	if (x->any_filter)
		out->drawn[out->n_drawn++] = draw_filter(r);
	return 0;
}

static int apply_resized_crop(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			      struct image_error *err)
{
	const struct resized_crop *x = op->args;
	const double *d = choice->drawn;
	enum filter filter = x->any_filter ? (enum filter)(int)d[CROP_FILTER] : x->resample.filter;
	int rc = 0;

	if (v->resized) /* pixels outside the crop must not influence the result */
		rc = view_settle(v, run->worker, false, err);
	if (rc != 0)
		return rc;
	view_crop(v, (struct region_px){ (uint32_t)d[CROP_LEFT], (uint32_t)d[CROP_TOP], (uint32_t)d[CROP_WIDTH],
					 (uint32_t)d[CROP_HEIGHT] });
	return view_resize(v, run->worker, x->size.width, x->size.height, filter, x->resample.order, err);
}

/* RandomHorizontalFlip, RandomVerticalFlip */

static const char *const p_args[] = { "p", NULL };

static int read_flip(struct arguments *a, struct op *op)
{
	double *p = op->args;

	*p = 0.5;
	return argument_number(a, 0, 0, 1, p);
}

static json_t *write_flip(const struct op *op)
{
	const double *p = op->args;

	return json_pack("{s:f}", "p", *p);
}

static int choose_flip(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
		       struct image_error *err)
{
	const double *p = op->args;

	(void)width;
	(void)height;
	(void)err;
	out->drawn[0] = random_chance(r, *p);
	out->n_drawn = 1;
	return 0;
}

static int apply_horizontal_flip(const struct op *op, const struct op_choice *choice, struct op_run *run,
				 struct view *v, struct image_error *err)
{
	(void)op;
	(void)run;
	(void)err;
	if (choice->drawn[0] != 0.0)
		view_flip_horizontal(v);
	return 0;
}

static int apply_vertical_flip(const struct op *op, const struct op_choice *choice, struct op_run *run, struct view *v,
			       struct image_error *err)
{
	(void)op;
	(void)run;
	(void)err;
	if (choice->drawn[0] != 0.0)
		view_flip_vertical(v);
	return 0;
}

const struct op_type geometry_ops[] = {
	{ .name = "Resize",
	  .args = resize_args,
	  .args_bytes = sizeof(struct resize),
	  .flags = OP_ANY_PIXEL,
	  .read = read_resize,
	  .write = write_resize,
	  .follow = follow_resize,
	  .apply = apply_resize },
	{ .name = "CenterCrop",
	  .args = center_crop_args,
	  .args_bytes = sizeof(struct op_size),
	  .flags = OP_ANY_PIXEL,
	  .read = read_center_crop,
	  .write = write_center_crop,
	  .follow = follow_center_crop,
	  .apply = apply_center_crop },
	{ .name = "RandomCrop",
	  .args = random_crop_args,
	  .args_bytes = sizeof(struct random_crop),
	  .flags = OP_RANDOM | OP_ANY_PIXEL,
	  .read = read_random_crop,
	  .write = write_random_crop,
	  .follow = follow_random_crop,
	  .choose = choose_random_crop,
	  .apply = apply_random_crop },
	{ .name = "RandomResizedCrop",
	  .args = resized_crop_args,
	  .args_bytes = sizeof(struct resized_crop),
	  .flags = OP_RANDOM | OP_ANY_PIXEL,
	  .read = read_resized_crop,
	  .write = write_resized_crop,
	  .follow = follow_resized_crop,
	  .choose = choose_resized_crop,
	  .apply = apply_resized_crop },
	{ .name = "RandomHorizontalFlip",
	  .args = p_args,
	  .args_bytes = sizeof(double),
	  .flags = OP_RANDOM | OP_ANY_PIXEL,
	  .read = read_flip,
	  .write = write_flip,
	  .choose = choose_flip,
	  .apply = apply_horizontal_flip },
	{ .name = "RandomVerticalFlip",
	  .args = p_args,
	  .args_bytes = sizeof(double),
	  .flags = OP_RANDOM | OP_ANY_PIXEL,
	  .read = read_flip,
	  .write = write_flip,
	  .choose = choose_flip,
	  .apply = apply_vertical_flip },
	{ .name = "Pad",
	  .args = pad_args,
	  .args_bytes = sizeof(struct outside),
	  .flags = OP_ANY_PIXEL,
	  .read = read_pad,
	  .write = write_pad,
	  .follow = follow_pad,
	  .apply = apply_pad },
	{ .name = NULL },
};
