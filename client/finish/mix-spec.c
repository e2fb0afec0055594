/* Descriptions of a mix: "targets:classes=1000;mixup:alpha=0.2;cutmix:alpha=1". Steps are separated by semicolons, a
 * step's settings by commas. batchd.h documents the settings. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "finish/mix.h"

/* A Beta distribution of a larger parameter is 0.5 for every purpose. */
static const double most_alpha = 1e6;

struct mix_reader {
	struct mix *mix;
	struct mix_step *step; /* being read; NULL: the targets */
	char *why;
	size_t why_size;
};

static bool mix_wrong(struct mix_reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool mix_wrong(struct mix_reader *r, const char *fmt, ...)
{
	va_list list;

	va_start(list, fmt);
	vsnprintf(r->why, r->why_size, fmt, list);
	va_end(list);
	return false;
}

/* ---- numbers ---- */

static bool mix_number(struct mix_reader *r, const char *name, const char *text, double least, double most, double *out)
{
	char *end;
	double v = strtod(text, &end);

	if (!*text || *end || !(v >= least && v <= most)) /* nor NaN */
		return mix_wrong(r, "%s must be a number from %g to %g, not '%.40s'", name, least, most, text);
	*out = v;
	return true;
}

static bool mix_whole(struct mix_reader *r, const char *name, const char *text, uint64_t most, uint64_t *out)
{
	uint64_t v = 0;
	bool ok = *text;

	for (const char *c = text; *c && ok; c++) {
		ok = *c >= '0' && *c <= '9' && v <= (most - (uint64_t)(*c - '0')) / 10;
		v = ok ? v * 10 + (uint64_t)(*c - '0') : v;
	}
	*out = v;
	return ok ? true
		  : mix_wrong(r, "%s must be a whole number from 0 to %llu, not '%.40s'", name,
			      (unsigned long long)most, text);
}

static bool mix_alpha(struct mix_reader *r, const char *name, const char *text, bool may_be_0, double *out)
{
	if (!mix_number(r, name, text, 0, most_alpha, out))
		return false;
	return *out > 0 || may_be_0
		       ? true
		       : mix_wrong(r, "%s must be above 0, as the parameter of a Beta distribution is", name);
}

/* ---- settings ---- */

static bool target_setting(struct mix_reader *r, const char *name, const char *value)
{
	uint64_t n;

	if (strcmp(name, "classes") == 0) {
		if (!mix_whole(r, "classes", value, MIX_MAX_CLASSES, &n))
			return false;
		r->mix->n_classes = (uint32_t)n;
		return n ? true : mix_wrong(r, "classes must be at least 1; leave it out for pairs of labels");
	}
	if (strcmp(name, "smoothing") == 0)
		return mix_number(r, "smoothing", value, 0, 1, &r->mix->smoothing);
	if (strcmp(name, "off_epoch") == 0)
		return mix_whole(r, "off_epoch", value, UINT64_MAX / 2, &r->mix->off_epoch);
	return mix_wrong(r, "targets has classes, smoothing and off_epoch, not '%.40s'", name);
}

static bool mode_setting(struct mix_reader *r, const char *value)
{
	static const char *const modes[] = { "batch", "pair", "elem" };

	for (unsigned i = 0; i < 3; i++)
		if (strcmp(value, modes[i]) == 0) {
			r->step->timm.mode = (enum mix_mode)i;
			return true;
		}
	return mix_wrong(r, "mode must be batch, pair or elem, not '%.40s'", value);
}

static bool timm_setting(struct mix_reader *r, const char *name, const char *value)
{
	struct mix_timm *t = &r->step->timm;
	double v = 0;

	if (strcmp(name, "mixup_alpha") == 0)
		return mix_alpha(r, name, value, true, &t->mixup_alpha);
	if (strcmp(name, "cutmix_alpha") == 0)
		return mix_alpha(r, name, value, true, &t->cutmix_alpha);
	if (strcmp(name, "cutmix_min") == 0)
		return mix_number(r, name, value, 0, 1, &t->minmax[0]) && (t->has_minmax = true);
	if (strcmp(name, "cutmix_max") == 0)
		return mix_number(r, name, value, 0, 1, &t->minmax[1]) && (t->has_minmax = true);
	if (strcmp(name, "prob") == 0)
		return mix_number(r, name, value, 0, 1, &t->prob);
	if (strcmp(name, "switch_prob") == 0)
		return mix_number(r, name, value, 0, 1, &t->switch_prob);
	if (strcmp(name, "correct_lam") == 0) {
		if (!mix_number(r, name, value, 0, 1, &v))
			return false;
		t->correct_lam = v != 0;
		return true;
	}
	if (strcmp(name, "mode") == 0)
		return mode_setting(r, value);
	return mix_wrong(r, "timm has no setting '%.40s'", name);
}

static bool step_setting(struct mix_reader *r, const char *name, const char *value)
{
	if (strcmp(name, "p") == 0)
		return mix_number(r, "p", value, 0, most_alpha, &r->step->weight);
	if (r->step->kind == MIX_STEP_TIMM)
		return timm_setting(r, name, value);
	if (r->step->kind != MIX_STEP_NONE && strcmp(name, "alpha") == 0)
		return mix_alpha(r, "alpha", value, false, &r->step->alpha);
	return mix_wrong(r, "'%.40s' is not known: mixup and cutmix have alpha and p, none has p", name);
}

/* Takes the text apart in place. */
static bool mix_settings(struct mix_reader *r, char *text)
{
	char *rest = NULL;

	for (char *part = strtok_r(text, ",", &rest); part; part = strtok_r(NULL, ",", &rest)) {
		char *value = strchr(part, '=');

		if (!value)
			return mix_wrong(r, "'%.40s' is no setting: write name=value", part);
		*value++ = 0;
		if (!(r->step ? step_setting(r, part, value) : target_setting(r, part, value)))
			return false;
	}
	return true;
}

/* ---- steps ---- */

static bool check_timm(struct mix_reader *r, const struct mix_timm *t)
{
	if (t->has_minmax && !(t->minmax[0] < t->minmax[1]))
		return mix_wrong(r, "cutmix_minmax must be two numbers, the first one smaller: %g, %g", t->minmax[0],
				 t->minmax[1]);
	if (t->mixup_alpha > 0 || t->cutmix_alpha > 0)
		return true;
	return mix_wrong(r, "timm needs mixup_alpha above 0, cutmix_alpha above 0 or cutmix_minmax, as timm asserts");
}

static bool mix_step(struct mix_reader *r, char *text)
{
	static const char *const kinds[] = { "none", "mixup", "cutmix", "timm" };
	char *settings = strchr(text, ':'), nothing[1] = "";
	struct mix *m = r->mix;

	if (settings)
		*settings++ = 0;
	else
		settings = nothing;
	r->step = NULL;
	if (strcmp(text, "targets") == 0)
		return mix_settings(r, settings);
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		if (strcmp(text, kinds[i]) != 0)
			continue;
		if (m->n_steps == MIX_MAX_STEPS)
			return mix_wrong(r, "more than %d steps", MIX_MAX_STEPS);
		r->step = &m->step[m->n_steps++];
		*r->step = (struct mix_step){ .kind = (enum mix_kind)i, .alpha = 1, .weight = 1 };
		r->step->timm =
			(struct mix_timm){ .mixup_alpha = 1, .prob = 1, .switch_prob = 0.5, .correct_lam = true };
		if (!mix_settings(r, settings))
			return false;
		if (r->step->timm.has_minmax) /* as timm does */
			r->step->timm.cutmix_alpha = 1;
		return i != MIX_STEP_TIMM || check_timm(r, &r->step->timm);
	}
	return mix_wrong(r, "'%.40s' is none of mixup, cutmix, timm, none and targets", text);
}

bool mix_parse(const char *text, struct mix *out, char *why, size_t why_size)
{
	struct mix_reader r = { .mix = out, .why = why, .why_size = why_size };
	char copy[MIX_MAX_TEXT + 1], *rest = NULL;
	double weights = 0;

	*out = (struct mix){ 0 };
	if (strlen(text) > MIX_MAX_TEXT)
		return mix_wrong(&r, "the description has more than %d bytes", MIX_MAX_TEXT);
	strcpy(copy, text);
	for (char *step = strtok_r(copy, ";", &rest); step; step = strtok_r(NULL, ";", &rest))
		if (!mix_step(&r, step))
			return false;
	for (uint32_t i = 0; i < out->n_steps; i++)
		weights += out->step[i].weight;
	if (!(weights > 0))
		return mix_wrong(&r, out->n_steps ? "p is 0 for every step"
						  : "the description has no step: mixup, cutmix, timm or none");
	return true;
}

bool mix_wants_even(const struct mix *m)
{
	for (uint32_t i = 0; i < m->n_steps; i++)
		if (m->step[i].kind == MIX_STEP_TIMM)
			return true;
	return false;
}

bool mix_may_cut(const struct mix *m)
{
	for (uint32_t i = 0; i < m->n_steps; i++)
		if (m->step[i].kind == MIX_STEP_CUTMIX ||
		    (m->step[i].kind == MIX_STEP_TIMM &&
		     (m->step[i].timm.cutmix_alpha > 0.0 || m->step[i].timm.has_minmax)))
			return true;
	return false;
}
