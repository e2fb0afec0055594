/* Each change by the function of image/kernels/ that has Pillow's result, with the matrices that torchvision and timm
 * give to Pillow. */
#include "image/transform/augment.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "image/kernels/blur.h"
#include "image/kernels/color.h"
#include "image/kernels/levels.h"
#include "image/kernels/sharpen.h"
#include "image/kernels/warp.h"

static int apply_matrix(const double m[6], const struct augment_style *style, struct view *v, struct pipeline_worker *w,
			struct image_error *err)
{
	struct warp t = { .filter = style->filter };
	struct image made;
	int rc = view_make(v, w, view_width(v), view_height(v), &made, err);

	if (rc != 0)
		return rc;
	memcpy(t.m, m, 6 * sizeof(*m));
	memcpy(t.fill, style->fill, sizeof(t.fill));
	warp(&t, &v->image, &made);
	view_take(v, &made);
	return 0;
}

static double augment_degrees(double radians)
{
	return radians * (180.0 / M_PI); /* as Python's math.degrees */
}

/* torchvision's affine with one part, as its policies call it: shears are about the origin, translations about the
 * middle. */
static int augment_apply_affine(enum augment what, double amount, const struct augment_style *style, struct view *v,
				struct pipeline_worker *w, struct image_error *err)
{
	bool shears = what == AUGMENT_SHEAR_X || what == AUGMENT_SHEAR_Y;
	unsigned axis = what == AUGMENT_SHEAR_Y || what == AUGMENT_TRANSLATE_Y;
	struct matrix_affine a = { .scale = 1.0 };
	double m[6];

	if (shears) {
		a.shear[axis] = augment_degrees(atan(amount));
	} else {
		a.translate[axis] = trunc(amount);
		a.center[0] = view_width(v) * 0.5;
		a.center[1] = view_height(v) * 0.5;
	}
	matrix_affine(&a, m);
	return apply_matrix(m, style, v, w, err);
}

static int apply_raw(enum augment what, double amount, const struct augment_style *style, struct view *v,
		     struct pipeline_worker *w, struct image_error *err)
{
	double m[6] = { 1.0, 0.0, 0.0, 0.0, 1.0, 0.0 };

	m[what == AUGMENT_RAW_SHEAR_X       ? 1
	  : what == AUGMENT_RAW_SHEAR_Y     ? 3
	  : what == AUGMENT_RAW_TRANSLATE_X ? 2
					    : 5] = amount;
	return apply_matrix(m, style, v, w, err);
}

static int augment_apply_rotation(double angle, const struct augment_style *style, struct view *v,
				  struct pipeline_worker *w, struct image_error *err)
{
	uint32_t size[2] = { view_width(v), view_height(v) };
	double m[6];
	enum matrix_turn turn = matrix_rotation(angle, false, NULL, size, m);
	struct image made;
	int rc;

	if (turn == TURN_NONE)
		return 0;
	if (turn == TURN_MATRIX)
		return apply_matrix(m, style, v, w, err);
	rc = view_make(v, w, size[0], size[1], &made, err);
	if (rc != 0)
		return rc;
	warp_turn(turn, &v->image, &made);
	view_take(v, &made);
	return 0;
}

/* On pixels that may be changed. */
static int augment_change(enum augment what, double amount, struct image *i, struct pipeline_worker *w)
{
	switch (what) {
	case AUGMENT_BRIGHTNESS:
		color_brightness(i, (float)amount);
		return 0;
	case AUGMENT_COLOR:
		color_saturation(i, (float)amount);
		return 0;
	case AUGMENT_CONTRAST:
		color_contrast(i, (float)amount);
		return 0;
	case AUGMENT_SHARPNESS:
		return sharpen(i, (float)amount, &w->room);
	case AUGMENT_POSTERIZE:
		levels_posterize(i, amount < 8.0 ? (unsigned)amount : 8);
		return 0;
	case AUGMENT_SOLARIZE:
		levels_solarize(i, amount);
		return 0;
	case AUGMENT_SOLARIZE_ADD:
		levels_solarize_add(i, (int)amount, 128);
		return 0;
	case AUGMENT_BLUR:
		return blur_pillow(i, (float)amount, (float)amount, &w->room);
	case AUGMENT_AUTO_CONTRAST:
		levels_autocontrast(i);
		return 0;
	case AUGMENT_EQUALIZE:
		levels_equalize(i);
		return 0;
	default:
		levels_invert(i);
		return 0;
	}
}

int augment_apply(enum augment what, double amount, const struct augment_style *style, struct view *v,
		  struct pipeline_worker *w, struct image_error *err)
{
	int rc;

	switch (what) {
	case AUGMENT_IDENTITY:
		return 0;
	case AUGMENT_SHEAR_X:
	case AUGMENT_SHEAR_Y:
	case AUGMENT_TRANSLATE_X:
	case AUGMENT_TRANSLATE_Y:
		return augment_apply_affine(what, amount, style, v, w, err);
	case AUGMENT_RAW_SHEAR_X:
	case AUGMENT_RAW_SHEAR_Y:
	case AUGMENT_RAW_TRANSLATE_X:
	case AUGMENT_RAW_TRANSLATE_Y:
		return apply_raw(what, amount, style, v, w, err);
	case AUGMENT_ROTATE:
		return augment_apply_rotation(amount, style, v, w, err);
	default:
		rc = view_settle(v, w, true, err);
		return rc == 0 ? augment_change(what, amount, &v->image, w) : rc;
	}
}

void augment_note(struct op_choice *choice, enum augment what, double amount, enum filter filter)
{
	double *step = choice->drawn + choice->n_drawn;

	assert(choice->n_drawn + STEP_NUMBERS <= OP_MAX_DRAWN);
	step[STEP_WHAT] = what;
	step[STEP_AMOUNT] = amount;
	step[STEP_FILTER] = filter;
	choice->n_drawn += STEP_NUMBERS;
}

int augment_steps(const double *steps, unsigned n, const uint8_t fill[3], struct view *v, struct pipeline_worker *w,
		  struct image_error *err)
{
	struct augment_style style = { .fill = { fill[0], fill[1], fill[2] } };
	bool in_time = true;
	int rc = 0;

	for (; rc == 0 && n > 0 && in_time; n--, steps += STEP_NUMBERS) {
		style.filter = (enum filter)(int)steps[STEP_FILTER];
		rc = augment_apply((enum augment)(int)steps[STEP_WHAT], steps[STEP_AMOUNT], &style, v, w, err);
		/* The check after the op then tells of it. */
		in_time = cpu_budget_spend(&w->budget, (uint64_t)view_width(v) * view_height(v));
	}
	return rc;
}
