/* Pictures become OP_SHEET_PX square before the op and are cut back to that after it. */
#include "ctl/preview/op-sheet.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { N_STEPS = OP_SHEET_COLUMNS - 1 };

/* What is called an op's magnitude. */
static const struct sweep {
	const char *op, *argument;
	double steps[N_STEPS];
	bool both;          /* the argument is a range: both ends are the step */
	const char *beside; /* further arguments, JSON; NULL: none */
	const char *end;    /* the argument that ends the range which `argument` begins: 1 more; NULL: none */
} sweeps[] = {
	{ "RandAugment", "magnitude", { 0, 6, 12, 18, 24, 30 }, false, NULL, NULL },
	{ "AugMix", "severity", { 1, 3, 5, 7, 9, 10 }, false, NULL, NULL },
	{ "ColorJitter", "brightness", { 0.5, 0.75, 1, 1.25, 1.5, 2 }, true, NULL, NULL },
	{ "Brightness", "factor", { 0, 0.25, 0.5, 1, 1.5, 1.9 }, false, NULL, NULL },
	{ "Color", "factor", { 0, 0.25, 0.5, 1, 1.5, 1.9 }, false, NULL, NULL },
	{ "Contrast", "factor", { 0, 0.25, 0.5, 1, 1.5, 1.9 }, false, NULL, NULL },
	{ "Sharpness", "factor", { 0, 0.25, 0.5, 1, 1.5, 1.9 }, false, NULL, NULL },
	{ "RandomAdjustSharpness", "sharpness_factor", { 0, 0.5, 1, 2, 4, 8 }, false, "{\"p\": 1}", NULL },
	{ "Posterize", "bits", { 8, 5, 4, 3, 2, 1 }, false, NULL, NULL },
	{ "RandomPosterize", "bits", { 8, 5, 4, 3, 2, 1 }, false, "{\"p\": 1}", NULL },
	{ "Solarize", "threshold", { 256, 205, 154, 102, 51, 0 }, false, NULL, NULL },
	{ "RandomSolarize", "threshold", { 256, 205, 154, 102, 51, 0 }, false, "{\"p\": 1}", NULL },
	{ "SolarizeAdd", "add", { 0, 25, 50, 75, 100, 128 }, false, NULL, NULL },
	{ "GaussianBlur", "sigma", { 0.1, 0.5, 1, 2, 4, 8 }, true, "{\"kernel_size\": 23}", NULL },
	{ "PillowGaussianBlur", "radius", { 0.1, 0.5, 1, 2, 4, 8 }, true, "{\"p\": 1}", NULL },
	{ "GaussianNoise", "sigma", { 0, 0.02, 0.05, 0.1, 0.2, 0.4 }, false, NULL, NULL },
	{ "RandomRotation", "degrees", { -30, -10, 10, 30, 90, 135 }, true, NULL, NULL },
	{ "RandomAffine", "degrees", { -30, -10, 10, 30, 90, 135 }, true, NULL, NULL },
	{ "RandomPerspective", "distortion_scale", { 0.1, 0.2, 0.4, 0.6, 0.8, 1 }, false, "{\"p\": 1}", NULL },
	{ "ElasticTransform", "alpha", { 10, 25, 50, 100, 200, 400 }, false, NULL, NULL },
	{ "RandomErasing", "scale", { 0.02, 0.05, 0.1, 0.2, 0.33, 0.5 }, true, "{\"p\": 1}", NULL },
	{ "RandomZoomOut", "side_range", { 1, 1.25, 1.5, 2, 3, 4 }, true, "{\"p\": 1}", NULL },
	{ "Resize", "size", { 40, 80, 120, 160, 240, 320 }, false, NULL, NULL },
	{ "RandomResize", "min_size", { 40, 80, 120, 160, 240, 320 }, false, NULL, "max_size" },
	{ "CenterCrop", "size", { 40, 80, 120, 160, 200, 240 }, false, NULL, NULL },
	{ "RandomCrop", "size", { 20, 40, 80, 120, 140, 160 }, false, NULL, NULL },
	{ "RandomResizedCrop", "scale", { 0.05, 0.1, 0.2, 0.4, 0.7, 1 }, true, "{\"size\": 160}", NULL },
	{ "RandomShortestSize", "min_size", { 40, 80, 120, 160, 240, 320 }, false, NULL, NULL },
	{ "ScaleJitter", "scale_range", { 0.25, 0.5, 0.75, 1, 1.5, 2 }, true, "{\"target_size\": [160, 160]}", NULL },
	{ "ResizeKeepRatio", "size", { 40, 80, 120, 160, 240, 320 }, false, NULL, NULL },
	{ "RandomResizeKeepRatio",
	  "random_scale_range",
	  { 0.5, 0.75, 1, 1.25, 1.5, 2 },
	  true,
	  "{\"size\": 160, \"random_scale_prob\": 1}",
	  NULL },
	{ "CenterCropOrPad", "size", { 40, 80, 120, 160, 200, 240 }, false, NULL, NULL },
	{ "RandomCropOrPad", "size", { 40, 80, 120, 160, 200, 240 }, false, NULL, NULL },
	{ "RandomPad", "input_size", { 160, 180, 200, 240, 280, 320 }, false, NULL, NULL },
	{ "TrimBorder", "border_size", { 2, 5, 10, 20, 40, 60 }, false, NULL, NULL },
};

static const struct sweep *sweep_of(const char *op)
{
	for (size_t i = 0; i < sizeof(sweeps) / sizeof(sweeps[0]); i++)
		if (strcmp(sweeps[i].op, op) == 0)
			return &sweeps[i];
	return NULL;
}

static json_t *number_json(double v)
{
	return v == (double)(json_int_t)v ? json_integer((json_int_t)v) : json_real(v);
}

/* [op, {argument: step, ...}] */
static json_t *step_json(const struct sweep *w, double step)
{
	json_t *given = w->beside ? json_loads(w->beside, 0, NULL) : json_object();

	json_object_set_new(given, w->argument,
			    w->both ? json_pack("[oo]", number_json(step), number_json(step)) : number_json(step));
	if (w->end)
		json_object_set_new(given, w->end, number_json(step + 1));
	return json_pack("[so]", w->op, given);
}

/* op: new, or NULL for none. Ops that work on numbers come after ToTensor. */
static int add_column(struct op_sheet *s, json_t *op, bool numbers, struct pipeline_error *err)
{
	json_t *square = json_pack("[s[ii]]", "Resize", OP_SHEET_PX, OP_SHEET_PX);
	json_t *list = numbers ? json_pack("[oso]", square, "ToTensor", op)
		       : op    ? json_pack("[oo[si]]", square, op, "CenterCrop", OP_SHEET_PX)
			       : json_pack("[o]", square);
	char *text = list ? json_dumps(list, JSON_COMPACT) : NULL;
	int r = text ? pipeline_parse(text, numbers ? DTYPE_FLOAT32 : DTYPE_UINT8, LAYOUT_NHWC, &s->pipelines[s->n],
				      err)
		     : -ENOMEM;

	json_decref(list);
	free(text);
	s->n += r == 0;
	return r;
}

/* The sheet's pipeline is no text of the caller's, so the op's number in it says nothing: "op 2 'X' ..." becomes
 * "--op 'X' ...", and "op 2.1 'X' ..." of a container "--op: op 1 'X' ...". */
static void name_option(struct pipeline_error *err)
{
	static const char number[] = "op 2";
	const char *rest = err->text + sizeof(number) - 1;
	char told[sizeof(err->text)];

	if (strncmp(err->text, number, sizeof(number) - 1) != 0 || (*rest != ' ' && *rest != '.'))
		return;
	snprintf(told, sizeof(told), "--op%s%.*s", *rest == '.' ? ": op " : " ", (int)sizeof(told) - 16, rest + 1);
	memcpy(err->text, told, sizeof(told));
}

static int add_op(struct op_sheet *s, json_t *op, struct pipeline_error *err)
{
	struct pipeline_error behind = { .text = "" };
	int r = add_column(s, json_incref(op), false, err);

	if (r == -EINVAL && add_column(s, json_incref(op), true, &behind) == 0)
		r = 0;
	if (r == -EINVAL && strncmp(err->text, "op 3 ", 5) == 0) /* the sheet's crop found numbers */
		snprintf(err->text, sizeof(err->text),
			 "--op: it makes numbers of the same look as the pixels: there is nothing to see");
	else if (r == -EINVAL)
		name_option(err);
	json_decref(op);
	return r;
}

static int add_sweep(struct op_sheet *s, const struct sweep *w, struct pipeline_error *err)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < N_STEPS; i++) {
		snprintf(s->captions[s->n], sizeof(s->captions[0]), "%s %g", w->argument, w->steps[i]);
		r = add_op(s, step_json(w, w->steps[i]), err);
	}
	return r;
}

static int add_draws(struct op_sheet *s, json_t *op, struct pipeline_error *err)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < N_STEPS; i++) {
		snprintf(s->captions[s->n], sizeof(s->captions[0]), "draw %u", i + 1);
		s->epochs[s->n] = i;
		r = add_op(s, json_incref(op), err);
	}
	return r;
}

int op_sheet_make(struct op_sheet *s, const char *op, struct pipeline_error *err)
{
	bool named = !strpbrk(op, "[{\"");
	json_error_t wrong;
	json_t *json = named ? json_string(op) : json_loads(op, JSON_DECODE_ANY, &wrong);
	const struct sweep *sweep = named ? sweep_of(op) : NULL;
	int r;

	*s = (struct op_sheet){ 0 };
	if (!json) {
		snprintf(err->text, sizeof(err->text),
			 "--op: %.200s; expected a name, or an op in JSON such as [\"Posterize\", 3]",
			 named ? "the name is no UTF-8" : wrong.text);
		return -EINVAL;
	}
	snprintf(s->captions[0], sizeof(s->captions[0]), "before");
	r = add_column(s, NULL, false, err);
	if (r == 0)
		r = sweep ? add_sweep(s, sweep, err) : add_draws(s, json, err);
	json_decref(json);
	if (r < 0)
		op_sheet_finish(s);
	return r;
}

void op_sheet_finish(struct op_sheet *s)
{
	for (unsigned i = 0; i < s->n; i++)
		pipeline_destroy(s->pipelines[i]);
	s->n = 0;
}
