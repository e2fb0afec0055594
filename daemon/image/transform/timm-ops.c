/* The table of timm's changes (its LEVEL_TO_ARG and NAME_TO_OP). */
#include "image/kernels/exact.h"

#include "image/transform/timm-ops.h"

#include <math.h>
#include <string.h>

#include "image/transform/normal.h"

enum level_kind {
	LEVEL_NONE,
	LEVEL_SIGNED, /* a part of `top`, either sign */
	LEVEL_PIXELS, /* of translate_const, either sign */
	LEVEL_REL_X,  /* of translate_pct times the size, either sign */
	LEVEL_REL_Y,
	LEVEL_ENHANCE,    /* 0.1 to 1.9 */
	LEVEL_INCREASING, /* 1, and up to 0.9 more or less */
	LEVEL_DESATURATE,
	LEVEL_BLUR,       /* radius 0.1 to 2 */
	LEVEL_BLUR_UP_TO, /* radius drawn from 0.1 to 2 times the level */
	LEVEL_BITS,       /* whole part of 4; LEVEL_BITS_DOWN: 4 less that; LEVEL_BITS_4: 4 more */
	LEVEL_BITS_DOWN,
	LEVEL_BITS_4,
	LEVEL_THRESHOLD, /* whole part of 256; LEVEL_THRESHOLD_DOWN: 256 less that */
	LEVEL_THRESHOLD_DOWN,
	LEVEL_ADD, /* whole part of 110 */
};

static const struct {
	const char *name;
	enum augment what;
	enum level_kind kind;
	double top;
} levels[] = {
	{ "AutoContrast", AUGMENT_AUTO_CONTRAST, LEVEL_NONE, 0 },
	{ "Equalize", AUGMENT_EQUALIZE, LEVEL_NONE, 0 },
	{ "Invert", AUGMENT_INVERT, LEVEL_NONE, 0 },
	{ "Rotate", AUGMENT_ROTATE, LEVEL_SIGNED, 30.0 },
	{ "Posterize", AUGMENT_POSTERIZE, LEVEL_BITS, 0 },
	{ "PosterizeIncreasing", AUGMENT_POSTERIZE, LEVEL_BITS_DOWN, 0 },
	{ "PosterizeOriginal", AUGMENT_POSTERIZE, LEVEL_BITS_4, 0 },
	{ "Solarize", AUGMENT_SOLARIZE, LEVEL_THRESHOLD, 0 },
	{ "SolarizeIncreasing", AUGMENT_SOLARIZE, LEVEL_THRESHOLD_DOWN, 0 },
	{ "SolarizeAdd", AUGMENT_SOLARIZE_ADD, LEVEL_ADD, 0 },
	{ "Color", AUGMENT_COLOR, LEVEL_ENHANCE, 0 },
	{ "ColorIncreasing", AUGMENT_COLOR, LEVEL_INCREASING, 0 },
	{ "Contrast", AUGMENT_CONTRAST, LEVEL_ENHANCE, 0 },
	{ "ContrastIncreasing", AUGMENT_CONTRAST, LEVEL_INCREASING, 0 },
	{ "Brightness", AUGMENT_BRIGHTNESS, LEVEL_ENHANCE, 0 },
	{ "BrightnessIncreasing", AUGMENT_BRIGHTNESS, LEVEL_INCREASING, 0 },
	{ "Sharpness", AUGMENT_SHARPNESS, LEVEL_ENHANCE, 0 },
	{ "SharpnessIncreasing", AUGMENT_SHARPNESS, LEVEL_INCREASING, 0 },
	{ "ShearX", AUGMENT_RAW_SHEAR_X, LEVEL_SIGNED, 0.3 },
	{ "ShearY", AUGMENT_RAW_SHEAR_Y, LEVEL_SIGNED, 0.3 },
	{ "TranslateX", AUGMENT_RAW_TRANSLATE_X, LEVEL_PIXELS, 0 },
	{ "TranslateY", AUGMENT_RAW_TRANSLATE_Y, LEVEL_PIXELS, 0 },
	{ "TranslateXRel", AUGMENT_RAW_TRANSLATE_X, LEVEL_REL_X, 0 },
	{ "TranslateYRel", AUGMENT_RAW_TRANSLATE_Y, LEVEL_REL_Y, 0 },
	{ "Desaturate", AUGMENT_COLOR, LEVEL_DESATURATE, 0 },
	{ "GaussianBlur", AUGMENT_BLUR, LEVEL_BLUR, 0 },
	{ "GaussianBlurRand", AUGMENT_BLUR, LEVEL_BLUR_UP_TO, 0 },
};
enum { N_LEVELS = sizeof(levels) / sizeof(levels[0]) };

static const char *const filter_choices[] = { "random", "nearest", "bilinear", "bicubic", NULL };
enum { CHOICE_BILINEAR = 2 };
static const enum filter filter_numbers[] = { FILTER_BICUBIC, FILTER_NEAREST, FILTER_BILINEAR, FILTER_BICUBIC };

static bool moves_pixels(const struct timm_op *op)
{
	return levels[op->level].what >= AUGMENT_SHEAR_X && levels[op->level].what <= AUGMENT_ROTATE;
}

/* timm hands the crop's filter to every policy, also one that Pillow moves no pixels with. A policy that moves none (3a)
 * does not use it: bilinear stands for it there. */
static int read_filter(struct arguments *a, unsigned i, const struct timm_op *ops, unsigned n, unsigned *out)
{
	static const char *const others[] = { "lanczos", "box", "hamming" };
	const char *name = json_string_value(a->values[i]);
	bool moves = false;

	for (unsigned k = 0; k < n; k++)
		moves |= moves_pixels(&ops[k]);
	for (size_t k = 0; !moves && name && k < sizeof(others) / sizeof(others[0]); k++) {
		if (strcmp(name, others[k]) != 0)
			continue;
		*out = CHOICE_BILINEAR;
		return 0;
	}
	return argument_choice(a, i, filter_choices, out);
}

int timm_read_options(struct arguments *a, unsigned first, const struct timm_op *ops, unsigned n,
		      struct timm_options *out)
{
	static const char *const deviations[] = { "uniform", NULL };
	unsigned filter = 0, word = 0;
	int rc;

	*out = (struct timm_options){ .fill = { .color = { 128, 128, 128 }, .single = true },
				      .magnitude_max = 10.0,
				      .translate_const = 250.0,
				      .translate_pct = 0.45 };
	rc = a->values[first] ? argument_fill(a, first, &out->fill) : 0;
	if (rc == 0)
		rc = read_filter(a, first + 1, ops, n, &filter);
	out->any_filter = filter == 0;
	out->filter = filter_numbers[filter];
	out->uniform = json_is_string(a->values[first + 2]);
	if (rc == 0)
		rc = out->uniform ? argument_choice(a, first + 2, deviations, &word)
				  : argument_number(a, first + 2, 0, 100, &out->magnitude_std);
	if (a->values[first + 3] && json_is_null(a->values[first + 3]))
		a->values[first + 3] = NULL;
	if (rc == 0)
		rc = argument_number(a, first + 3, 0, 100, &out->magnitude_max);
	if (rc == 0)
		rc = argument_number(a, first + 4, 0, SPEC_MAX_EDGE, &out->translate_const);
	if (rc == 0)
		rc = argument_number(a, first + 5, 0, 10, &out->translate_pct);
	normal_prepare();
	return rc;
}

json_t *timm_write_options(json_t *out, const struct timm_options *x)
{
	unsigned filter = 0;

	while (!x->any_filter && (filter == 0 || filter_numbers[filter] != x->filter))
		filter++;
	if (out && (json_object_set_new(out, "fill", json_fill(&x->fill)) < 0 ||
		    json_object_set_new(out, "interpolation", json_string(filter_choices[filter])) < 0 ||
		    json_object_set_new(out, "magnitude_std",
					x->uniform ? json_string("uniform") : json_real(x->magnitude_std)) < 0 ||
		    json_object_set_new(out, "magnitude_max", json_real(x->magnitude_max)) < 0 ||
		    json_object_set_new(out, "translate_const", json_real(x->translate_const)) < 0 ||
		    json_object_set_new(out, "translate_pct", json_real(x->translate_pct)) < 0)) {
		json_decref(out);
		return NULL;
	}
	return out;
}

bool timm_read_op(json_t *entry, struct timm_op *out)
{
	const char *name = json_string_value(json_array_get(entry, 0));
	json_t *p = json_array_get(entry, 1), *magnitude = json_array_get(entry, 2);
	uint8_t i = 0;

	if (!name || json_array_size(entry) != 3 || !json_is_number(p) || !json_is_number(magnitude))
		return false;
	while (i < N_LEVELS && strcmp(levels[i].name, name) != 0)
		i++;
	*out = (struct timm_op){ i, json_number_value(p), json_number_value(magnitude) };
	return i < N_LEVELS && out->p >= 0.0 && out->p <= 1.0 && out->magnitude >= 0.0 && out->magnitude <= 100.0;
}

json_t *timm_write_op(const struct timm_op *op)
{
	return json_pack("[sff]", levels[op->level].name, op->p, op->magnitude);
}

int timm_read_ops(struct arguments *a, unsigned i, unsigned most, struct timm_op *out, unsigned *n)
{
	json_t *list = a->values[i];
	bool right = json_is_array(list) && json_array_size(list) >= 1 && json_array_size(list) <= most;

	for (*n = 0; right && *n < json_array_size(list); ++*n)
		right = timm_read_op(json_array_get(list, *n), &out[*n]);
	return right ? 0 : argument_wrong(a, i, "a list of [timm's name of an op, probability, magnitude]");
}

json_t *timm_write_ops(const struct timm_op *ops, unsigned n)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < n; i++)
		json_array_append_new(list, timm_write_op(&ops[i]));
	return list;
}

static double draw_level(const struct timm_op *op, const struct timm_options *x, struct random *r)
{
	double level = op->magnitude;

	if (x->uniform)
		level = random_unit(r) * level;
	else if (x->magnitude_std > 0.0)
		level = level + x->magnitude_std * (double)random_normal(r);
	return fmax(0.0, fmin(level, x->magnitude_max));
}

static double timm_ops_negated(double v, struct random *r)
{
	return random_below(r, 2) ? -v : v;
}

/* part: the level's part of 10. */
static double amount_of(const struct timm_options *x, double part, unsigned i, struct random *r, uint32_t width,
			uint32_t height)
{
	switch (levels[i].kind) {
	case LEVEL_NONE:
		return 0.0;
	case LEVEL_SIGNED:
		return timm_ops_negated(part * levels[i].top, r);
	case LEVEL_PIXELS:
		return timm_ops_negated(part * x->translate_const, r);
	case LEVEL_REL_X:
		return timm_ops_negated(part * x->translate_pct, r) * width;
	case LEVEL_REL_Y:
		return timm_ops_negated(part * x->translate_pct, r) * height;
	case LEVEL_ENHANCE:
		return part * 1.8 + 0.1;
	case LEVEL_INCREASING:
		return fmax(0.1, 1.0 + timm_ops_negated(part * 0.9, r));
	case LEVEL_DESATURATE:
		return fmin(1.0, fmax(0.0, 1.0 - fmax(0.5, fmin(1.0, 0.5 + 0.5 * part))));
	case LEVEL_BLUR:
		return fmax(0.1, fmin(2.0, 0.1 + (2.0 - 0.1) * part));
	case LEVEL_BLUR_UP_TO:
		return 0.1 + (2.0 * fmax(0.0, fmin(1.0, part)) - 0.1) * random_unit(r);
	case LEVEL_BITS:
		return trunc(part * 4.0);
	case LEVEL_BITS_DOWN:
		return fmax(0.0, 4.0 - trunc(part * 4.0));
	case LEVEL_BITS_4:
		return trunc(part * 4.0) + 4.0;
	case LEVEL_THRESHOLD:
		return fmin(256.0, trunc(part * 256.0));
	case LEVEL_THRESHOLD_DOWN:
		return 256.0 - fmin(256.0, trunc(part * 256.0));
	default:
		return fmin(128.0, trunc(part * 110.0));
	}
}

void timm_draw(const struct timm_op *op, const struct timm_options *x, struct random *r, uint32_t width,
	       uint32_t height, struct op_choice *out)
{
	double amount;
	enum filter filter = x->filter;

	if (op->p < 1.0 && !random_chance(r, op->p))
		return;
	amount = amount_of(x, draw_level(op, x, r) / 10.0, op->level, r, width, height);
	if (x->any_filter)
		filter = random_below(r, 2) ? FILTER_BICUBIC : FILTER_BILINEAR;
	augment_note(out, levels[op->level].what, amount, filter);
}
