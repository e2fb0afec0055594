/* The changes that policies choose from (RandAugment, AutoAugment ...), each with one amount. */
#ifndef BATCHD_AUGMENT_H
#define BATCHD_AUGMENT_H

#include "image/transform/op-types.h"

enum augment {
	AUGMENT_IDENTITY,
	/* torchvision's: the tangent of the angle, whole pixels */
	AUGMENT_SHEAR_X,
	AUGMENT_SHEAR_Y,
	AUGMENT_TRANSLATE_X,
	AUGMENT_TRANSLATE_Y,
	/* timm's: factors of Pillow's matrix, pixels with fractions */
	AUGMENT_RAW_SHEAR_X,
	AUGMENT_RAW_SHEAR_Y,
	AUGMENT_RAW_TRANSLATE_X,
	AUGMENT_RAW_TRANSLATE_Y,
	AUGMENT_ROTATE, /* degrees, counterclockwise */
	/* Factors of Pillow's ImageEnhance: 1 changes nothing. */
	AUGMENT_BRIGHTNESS,
	AUGMENT_COLOR,
	AUGMENT_CONTRAST,
	AUGMENT_SHARPNESS,
	AUGMENT_POSTERIZE,    /* bits to keep */
	AUGMENT_SOLARIZE,     /* threshold */
	AUGMENT_SOLARIZE_ADD, /* what is added below 128 */
	AUGMENT_BLUR,         /* radius of Pillow's GaussianBlur */
	AUGMENT_AUTO_CONTRAST,
	AUGMENT_EQUALIZE,
	AUGMENT_INVERT,
};

/* How pixels are moved. */
struct augment_style {
	enum filter filter; /* nearest, bilinear or bicubic */
	uint8_t fill[3];
};

/* A drawn change, as it stands among the numbers of a choice. */
enum { STEP_WHAT, STEP_AMOUNT, STEP_FILTER, STEP_NUMBERS };

/* Appends a step to choice. */
void augment_note(struct op_choice *choice, enum augment what, double amount, enum filter filter);
/* Does n steps, in order. 0, an IMAGE_E_ outcome, -ENOMEM. */
int augment_steps(const double *steps, unsigned n, const uint8_t fill[3], struct view *v, struct pipeline_worker *w,
		  struct image_error *err);
int augment_apply(enum augment what, double amount, const struct augment_style *style, struct view *v,
		  struct pipeline_worker *w, struct image_error *err);

#endif
