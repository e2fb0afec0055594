/* torchvision's tables (torchvision/transforms/v2/_auto_augment.py), in its order, because a draw is a position. */
#include "image/kernels/exact.h"

#include "image/transform/policy-tables.h"

#include <math.h>

#define GEOMETRY(shear, translations, turn) \
	{ AUGMENT_SHEAR_X, BIN_SIGNED, shear, 1 }, { AUGMENT_SHEAR_Y, BIN_SIGNED, shear, 1 }, translations, \
		{ AUGMENT_ROTATE, BIN_SIGNED, turn, 1 }
#define ENHANCE(top) \
	{ AUGMENT_BRIGHTNESS, BIN_FACTOR, top, 1 }, { AUGMENT_COLOR, BIN_FACTOR, top, 1 }, \
		{ AUGMENT_CONTRAST, BIN_FACTOR, top, 1 }, { AUGMENT_SHARPNESS, BIN_FACTOR, top, 1 }
#define LEVELS(from, by) \
	{ AUGMENT_POSTERIZE, BIN_BITS, by, from }, { AUGMENT_SOLARIZE, BIN_THRESHOLD, 0, 0 }, \
		{ AUGMENT_AUTO_CONTRAST, BIN_NONE, 0, 0 }, { AUGMENT_EQUALIZE, BIN_NONE, 0, 0 }
#define ACROSS(top, of) \
	{ AUGMENT_TRANSLATE_X, BIN_WIDTH, top, of }, \
	{ \
		AUGMENT_TRANSLATE_Y, BIN_HEIGHT, top, of \
	}
#define PIXELS(top) { AUGMENT_TRANSLATE_X, BIN_SIGNED, top, 1 }, { AUGMENT_TRANSLATE_Y, BIN_SIGNED, top, 1 }

const struct policy_space space_rand = { 14,
					 { { AUGMENT_IDENTITY, BIN_NONE, 0, 0 },
					   GEOMETRY(0.3, ACROSS(150.0 / 331.0, 1), 30),
					   ENHANCE(0.9),
					   LEVELS(8, 4) } };
const struct policy_space space_wide = {
	14, { { AUGMENT_IDENTITY, BIN_NONE, 0, 0 }, GEOMETRY(0.99, PIXELS(32), 135), ENHANCE(0.99), LEVELS(8, 6) }
};
const struct policy_space space_auto = {
	14,
	{ GEOMETRY(0.3, ACROSS(150.0 / 331.0, 1), 30), ENHANCE(0.9), LEVELS(8, 4), { AUGMENT_INVERT, BIN_NONE, 0, 0 } }
};
/* AugMix without all_ops has the first nine. */
const struct policy_space space_mix = { 13, { GEOMETRY(0.3, ACROSS(1, 3), 30), LEVELS(4, 4), ENHANCE(0.9) } };

/* Positions in space_auto */
enum {
	SHEAR_X,
	SHEAR_Y,
	TRANSLATE_X,
	TRANSLATE_Y,
	ROTATE,
	BRIGHTNESS,
	COLOR,
	CONTRAST,
	SHARPNESS,
	POSTERIZE,
	SOLARIZE,
	AUTO_CONTRAST,
	EQUALIZE,
	INVERT
};

/* step 1 and step 2: what, probability in tenths, bin */
const struct subpolicy_step subpolicies[3][N_SUBPOLICIES][2] = {
	/* imagenet */
	{
		{ { POSTERIZE, 4, 8 }, { ROTATE, 6, 9 } },    { { SOLARIZE, 6, 5 }, { AUTO_CONTRAST, 6, -1 } },
		{ { EQUALIZE, 8, -1 }, { EQUALIZE, 6, -1 } }, { { POSTERIZE, 6, 7 }, { POSTERIZE, 6, 6 } },
		{ { EQUALIZE, 4, -1 }, { SOLARIZE, 2, 4 } },  { { EQUALIZE, 4, -1 }, { ROTATE, 8, 8 } },
		{ { SOLARIZE, 6, 3 }, { EQUALIZE, 6, -1 } },  { { POSTERIZE, 8, 5 }, { EQUALIZE, 10, -1 } },
		{ { ROTATE, 2, 3 }, { SOLARIZE, 6, 8 } },     { { EQUALIZE, 6, -1 }, { POSTERIZE, 4, 6 } },
		{ { ROTATE, 8, 8 }, { COLOR, 4, 0 } },        { { ROTATE, 4, 9 }, { EQUALIZE, 6, -1 } },
		{ { EQUALIZE, 0, -1 }, { EQUALIZE, 8, -1 } }, { { INVERT, 6, -1 }, { EQUALIZE, 10, -1 } },
		{ { COLOR, 6, 4 }, { CONTRAST, 10, 8 } },     { { ROTATE, 8, 8 }, { COLOR, 10, 2 } },
		{ { COLOR, 8, 8 }, { SOLARIZE, 8, 7 } },      { { SHARPNESS, 4, 7 }, { INVERT, 6, -1 } },
		{ { SHEAR_X, 6, 5 }, { EQUALIZE, 10, -1 } },  { { COLOR, 4, 0 }, { EQUALIZE, 6, -1 } },
		{ { EQUALIZE, 4, -1 }, { SOLARIZE, 2, 4 } },  { { SOLARIZE, 6, 5 }, { AUTO_CONTRAST, 6, -1 } },
		{ { INVERT, 6, -1 }, { EQUALIZE, 10, -1 } },  { { COLOR, 6, 4 }, { CONTRAST, 10, 8 } },
		{ { EQUALIZE, 8, -1 }, { EQUALIZE, 6, -1 } },
	},
	/* cifar10 */
	{
		{ { INVERT, 1, -1 }, { CONTRAST, 2, 6 } },           { { ROTATE, 7, 2 }, { TRANSLATE_X, 3, 9 } },
		{ { SHARPNESS, 8, 1 }, { SHARPNESS, 9, 3 } },        { { SHEAR_Y, 5, 8 }, { TRANSLATE_Y, 7, 9 } },
		{ { AUTO_CONTRAST, 5, -1 }, { EQUALIZE, 9, -1 } },   { { SHEAR_Y, 2, 7 }, { POSTERIZE, 3, 7 } },
		{ { COLOR, 4, 3 }, { BRIGHTNESS, 6, 7 } },           { { SHARPNESS, 3, 9 }, { BRIGHTNESS, 7, 9 } },
		{ { EQUALIZE, 6, -1 }, { EQUALIZE, 5, -1 } },        { { CONTRAST, 6, 7 }, { SHARPNESS, 6, 5 } },
		{ { COLOR, 7, 7 }, { TRANSLATE_X, 5, 8 } },          { { EQUALIZE, 3, -1 }, { AUTO_CONTRAST, 4, -1 } },
		{ { TRANSLATE_Y, 4, 3 }, { SHARPNESS, 2, 6 } },      { { BRIGHTNESS, 9, 6 }, { COLOR, 2, 8 } },
		{ { SOLARIZE, 5, 2 }, { INVERT, 0, -1 } },           { { EQUALIZE, 2, -1 }, { AUTO_CONTRAST, 6, -1 } },
		{ { EQUALIZE, 2, -1 }, { EQUALIZE, 6, -1 } },        { { COLOR, 9, 9 }, { EQUALIZE, 6, -1 } },
		{ { AUTO_CONTRAST, 8, -1 }, { SOLARIZE, 2, 8 } },    { { BRIGHTNESS, 1, 3 }, { COLOR, 7, 0 } },
		{ { SOLARIZE, 4, 5 }, { AUTO_CONTRAST, 9, -1 } },    { { TRANSLATE_Y, 9, 9 }, { TRANSLATE_Y, 7, 9 } },
		{ { AUTO_CONTRAST, 9, -1 }, { SOLARIZE, 8, 3 } },    { { EQUALIZE, 8, -1 }, { INVERT, 1, -1 } },
		{ { TRANSLATE_Y, 7, 9 }, { AUTO_CONTRAST, 9, -1 } },
	},
	/* svhn */
	{
		{ { SHEAR_X, 9, 4 }, { INVERT, 2, -1 } },        { { SHEAR_Y, 9, 8 }, { INVERT, 7, -1 } },
		{ { EQUALIZE, 6, -1 }, { SOLARIZE, 6, 6 } },     { { INVERT, 9, -1 }, { EQUALIZE, 6, -1 } },
		{ { EQUALIZE, 6, -1 }, { ROTATE, 9, 3 } },       { { SHEAR_X, 9, 4 }, { AUTO_CONTRAST, 8, -1 } },
		{ { SHEAR_Y, 9, 8 }, { INVERT, 4, -1 } },        { { SHEAR_Y, 9, 5 }, { SOLARIZE, 2, 6 } },
		{ { INVERT, 9, -1 }, { AUTO_CONTRAST, 8, -1 } }, { { EQUALIZE, 6, -1 }, { ROTATE, 9, 3 } },
		{ { SHEAR_X, 9, 4 }, { SOLARIZE, 3, 3 } },       { { SHEAR_Y, 8, 8 }, { INVERT, 7, -1 } },
		{ { EQUALIZE, 9, -1 }, { TRANSLATE_Y, 6, 6 } },  { { INVERT, 9, -1 }, { EQUALIZE, 6, -1 } },
		{ { CONTRAST, 3, 3 }, { ROTATE, 8, 4 } },        { { INVERT, 8, -1 }, { TRANSLATE_Y, 0, 2 } },
		{ { SHEAR_Y, 7, 6 }, { SOLARIZE, 4, 8 } },       { { INVERT, 6, -1 }, { ROTATE, 8, 4 } },
		{ { SHEAR_Y, 3, 7 }, { TRANSLATE_X, 9, 3 } },    { { SHEAR_X, 1, 6 }, { INVERT, 6, -1 } },
		{ { SOLARIZE, 7, 2 }, { TRANSLATE_Y, 6, 7 } },   { { SHEAR_Y, 8, 4 }, { INVERT, 8, -1 } },
		{ { SHEAR_X, 7, 9 }, { TRANSLATE_Y, 8, 3 } },    { { SHEAR_Y, 8, 5 }, { AUTO_CONTRAST, 7, -1 } },
		{ { SHEAR_X, 7, 2 }, { INVERT, 1, -1 } },
	},
};

/* torch.linspace(from, to, n)[i] in float32, which multiplies and adds with one rounding. */
static double policy_tables_linspace(double from, double to, unsigned n, unsigned i)
{
	float begin = (float)from, end = (float)to, step = (end - begin) / (float)(n - 1);

	return (double)(i < n / 2 ? fmaf(step, (float)i, begin) : fmaf(-step, (float)(n - 1 - i), end));
}

bool policy_signed(const struct policy_member *m)
{
	return m->scale == BIN_SIGNED || m->scale == BIN_WIDTH || m->scale == BIN_HEIGHT || m->scale == BIN_FACTOR;
}

double policy_amount(const struct policy_member *m, unsigned n_bins, unsigned bin, bool negative, bool first_generation,
		     uint32_t width, uint32_t height)
{
	double sign = negative ? -1.0 : 1.0;

	switch (m->scale) {
	case BIN_NONE:
		return 0.0;
	case BIN_SIGNED:
		return sign * policy_tables_linspace(0.0, m->top, n_bins, bin);
	case BIN_WIDTH:
		return sign * policy_tables_linspace(0.0, m->top * width / m->of, n_bins, bin);
	case BIN_HEIGHT:
		return sign * policy_tables_linspace(0.0, m->top * height / m->of, n_bins, bin);
	case BIN_FACTOR:
		return 1.0 + sign * policy_tables_linspace(0.0, m->top, n_bins, bin);
	case BIN_BITS:
		return (double)rintf((float)m->of - (float)bin / (float)((n_bins - 1) / m->top));
	default:
		return first_generation ? policy_tables_linspace(255.0, 0.0, n_bins, bin)
					: 255.0 * policy_tables_linspace(1.0, 0.0, n_bins, bin);
	}
}
