/* The ops, one function each, as torchvision.transforms.v2 defines them on PIL images. */
#include "pipeline/ops.h"

#include <math.h>

#include "image/color.h"

/* Python's int(round(x)): halves to even. */
static int64_t round_even(double x)
{
	return llrint(x); /* in the default rounding mode */
}

static bool fits(struct region_px *r, double w, double h, uint32_t width, uint32_t height)
{
	int64_t rounded_w = round_even(w), rounded_h = round_even(h);

	if (rounded_w < 1 || rounded_w > width || rounded_h < 1 || rounded_h > height)
		return false;
	r->width = (uint32_t)rounded_w;
	r->height = (uint32_t)rounded_h;
	return true;
}

/* After ten attempts: as much of the middle as the ratios allow. */
static struct region_px central_crop(const struct op *op, uint32_t width, uint32_t height)
{
	double ratio = (double)width / (double)height;
	struct region_px r = { 0, 0, width, height };

	if (ratio < op->crop.ratio[0])
		r.height = (uint32_t)round_even(width / op->crop.ratio[0]);
	else if (ratio > op->crop.ratio[1])
		r.width = (uint32_t)round_even(height * op->crop.ratio[1]);
	r.width = r.width < 1 ? 1 : r.width;
	r.height = r.height < 1 ? 1 : r.height;
	r.x = (width - r.width) / 2;
	r.y = (height - r.height) / 2;
	return r;
}

static struct region_px choose_resized_crop(const struct op *op, struct random *r, uint32_t width, uint32_t height)
{
	double area = (double)((uint64_t)width * height);
	struct region_px crop;

	for (int attempt = 0; attempt < 10; attempt++) {
		double target = area * (double)random_uniform(r, (float)op->crop.scale[0], (float)op->crop.scale[1]);
		float log_ratio = random_uniform(r, op->crop.log_ratio[0], op->crop.log_ratio[1]);
		double ratio = (double)(float)exp((double)log_ratio);

		if (fits(&crop, sqrt(target * ratio), sqrt(target / ratio), width, height)) {
			crop.y = random_below(r, height - crop.height + 1);
			crop.x = random_below(r, width - crop.width + 1);
			return crop;
		}
	}
	return central_crop(op, width, height);
}

static int choose_crop(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
		       struct image_error *err)
{
	uint32_t left = op->pad.left, top = op->pad.top;
	uint32_t padded_width = width + op->pad.left + op->pad.right,
		 padded_height = height + op->pad.top + op->pad.bottom;
	uint32_t missing;

	if (op->pad_if_needed && padded_height < op->size.height) {
		missing = op->size.height - padded_height;
		top += missing;
		padded_height += 2 * missing;
	}
	if (op->pad_if_needed && padded_width < op->size.width) {
		missing = op->size.width - padded_width;
		left += missing;
		padded_width += 2 * missing;
	}
	if (padded_width < op->size.width || padded_height < op->size.height) {
		return image_fail(err, IMAGE_E_FORMAT,
				  "the image has %u x %u pixels where RandomCrop needs at least %u x %u", width, height,
				  op->size.width, op->size.height);
	}
	out->top = (int32_t)random_below(r, padded_height - op->size.height + 1) - (int32_t)top;
	out->left = (int32_t)random_below(r, padded_width - op->size.width + 1) - (int32_t)left;
	return 0;
}

static void choose_jitter(const struct op *op, struct random *r, struct op_choice *out)
{
	for (uint8_t i = 0; i < N_JITTERS; i++)
		out->order[i] = i;
	for (uint32_t i = 0; i < N_JITTERS - 1; i++) {
		uint32_t j = i + random_below(r, N_JITTERS - i);
		uint8_t first = out->order[i];

		out->order[i] = out->order[j];
		out->order[j] = first;
	}
	for (int i = 0; i < N_JITTERS; i++)
		if (op->jitter.given[i])
			out->factor[i] = random_uniform(r, (float)op->jitter.from[i], (float)op->jitter.to[i]);
}

int op_choose(const struct op *op, struct random *r, uint32_t width, uint32_t height, struct op_choice *out,
	      struct image_error *err)
{
	switch (op->kind) {
	case OP_RANDOM_CROP:
		return choose_crop(op, r, width, height, out, err);
	case OP_RANDOM_RESIZED_CROP:
		out->crop = choose_resized_crop(op, r, width, height);
		return 0;
	case OP_RANDOM_HORIZONTAL_FLIP:
	case OP_RANDOM_VERTICAL_FLIP:
	case OP_RANDOM_GRAYSCALE:
		out->happens = random_chance(r, op->p);
		return 0;
	case OP_COLOR_JITTER:
		choose_jitter(op, r, out);
		return 0;
	default:
		return 0;
	}
}

static int apply_resize(const struct op *op, struct view *v, struct pipeline_worker *w, struct image_error *err)
{
	uint32_t width, height;

	op_resized_size(op, view_width(v), view_height(v), &width, &height);
	return view_resize(v, w, width, height, op->resample.filter, op->resample.order, err);
}

/* The start of a centred window of `want` in `have`: before the image when it is larger. */
static int32_t center(uint32_t have, uint32_t want)
{
	if (want > have)
		return -(int32_t)((want - have) / 2);
	return (int32_t)round_even((have - want) / 2.0);
}

static int apply_center_crop(const struct op *op, struct view *v, struct pipeline_worker *w, struct image_error *err)
{
	static const uint8_t black[3];

	return view_window(v, w, center(view_width(v), op->size.width), center(view_height(v), op->size.height),
			   op->size.width, op->size.height, PAD_CONSTANT, black, err);
}

static int apply_resized_crop(const struct op *op, const struct op_choice *choice, struct view *v,
			      struct pipeline_worker *w, struct image_error *err)
{
	int rc = 0;

	if (v->resized) /* pixels outside the crop must not influence the result */
		rc = view_settle(v, w, false, err);
	if (rc != 0)
		return rc;
	view_crop(v, choice->crop);
	return view_resize(v, w, op->size.width, op->size.height, op->resample.filter, op->resample.order, err);
}

static int apply_jitter(const struct op *op, const struct op_choice *choice, struct view *v, struct pipeline_worker *w,
			struct image_error *err)
{
	int rc = view_settle(v, w, true, err);

	for (int i = 0; rc == 0 && i < N_JITTERS; i++) {
		uint8_t what = choice->order[i];

		if (!op->jitter.given[what])
			continue;
		switch (what) {
		case JITTER_BRIGHTNESS:
			color_brightness(&v->image, choice->factor[what]);
			break;
		case JITTER_CONTRAST:
			color_contrast(&v->image, choice->factor[what]);
			break;
		case JITTER_SATURATION:
			color_saturation(&v->image, choice->factor[what]);
			break;
		default:
			color_hue(&v->image, color_hue_steps((double)choice->factor[what]));
			break;
		}
	}
	return rc;
}

static int apply_grayscale(struct view *v, struct pipeline_worker *w, struct image_error *err)
{
	int rc = view_settle(v, w, true, err);

	if (rc == 0)
		color_grayscale(&v->image);
	return rc;
}

int op_apply(const struct op *op, const struct op_choice *choice, struct view *v, struct pipeline_worker *w,
	     struct image_error *err)
{
	switch (op->kind) {
	case OP_RESIZE:
		return apply_resize(op, v, w, err);
	case OP_CENTER_CROP:
		return apply_center_crop(op, v, w, err);
	case OP_RANDOM_CROP:
		return view_window(v, w, choice->left, choice->top, op->size.width, op->size.height, op->pad.mode,
				   op->pad.fill, err);
	case OP_RANDOM_RESIZED_CROP:
		return apply_resized_crop(op, choice, v, w, err);
	case OP_RANDOM_HORIZONTAL_FLIP:
		if (choice->happens)
			view_flip_horizontal(v);
		return 0;
	case OP_RANDOM_VERTICAL_FLIP:
		if (choice->happens)
			view_flip_vertical(v);
		return 0;
	case OP_COLOR_JITTER:
		return apply_jitter(op, choice, v, w, err);
	case OP_RANDOM_GRAYSCALE:
		return choice->happens ? apply_grayscale(v, w, err) : 0;
	case OP_GRAYSCALE:
		return apply_grayscale(v, w, err);
	case OP_PAD:
		return view_window(v, w, -(int32_t)op->pad.left, -(int32_t)op->pad.top,
				   view_width(v) + op->pad.left + op->pad.right,
				   view_height(v) + op->pad.top + op->pad.bottom, op->pad.mode, op->pad.fill, err);
	case OP_TO_TENSOR:
	case OP_NORMALIZE:
		return 0; /* done by the conversion */
	}
	return 0;
}
