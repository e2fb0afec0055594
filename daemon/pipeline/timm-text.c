/* See timm-text.h. A text is read as timm reads it (timm/data/auto_augment.py): sections behind dashes, each a key and
 * a number; of a section that comes twice the last one counts, but of mstd and mmax the first. Stricter than timm is only
 * what it skips in silence, a section without a number: that is an error. */
#include "pipeline/timm-text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/op-types.h"
#include "pipeline/timm-policies.h"

enum { MOST_SECTIONS = 16, MOST_DIGITS = 15, UNIFORM_ABOVE = 100 };

/* ---- the other ops ---- */

static bool is_any_of(const char *name, const char *const *names)
{
	while (*names && strcmp(*names, name) != 0)
		names++;
	return *names != NULL;
}

/* The argument of an entry [op, ...], by name or position; NULL: not given. */
static json_t *argument_of(json_t *entry, const char *op, const char *argument)
{
	const struct op_type *type = op_type_find(op);
	struct pipeline_error unheard = { .text = "" };
	struct arguments a = { .position = "", .op = op, .names = type ? type->args : NULL, .err = &unheard };

	if (!type || arguments_bind(&a, entry) != 0)
		return NULL; /* the op's own reader complains */
	for (unsigned i = 0; type->args && type->args[i]; i++)
		if (strcmp(type->args[i], argument) == 0)
			return a.values[i];
	return NULL;
}

static void note_size(json_t *size, struct timm_surroundings *out)
{
	json_t *one = json_is_array(size) ? json_array_get(size, 0) : size;
	json_t *two = json_is_array(size) && json_array_size(size) > 1 ? json_array_get(size, 1) : one;
	double least = fmin(json_number_value(one), json_number_value(two));

	if (least >= 1.0 && least <= SPEC_MAX_EDGE)
		out->size = (uint32_t)least;
}

static void note_mean(json_t *mean, struct timm_surroundings *out)
{
	size_t n = json_is_array(mean) ? json_array_size(mean) : json_is_number(mean);

	if (n != 1 && n != 3)
		return;
	out->n_mean = (unsigned)n;
	for (size_t c = 0; c < n; c++)
		out->mean[c] = json_number_value(json_is_array(mean) ? json_array_get(mean, c) : mean);
}

static void note_op(json_t *entry, struct timm_surroundings *out)
{
	static const char *const crops[] = { "RandomResizedCrop", "RandomCrop",      "CenterCrop",
					     "RandomCropOrPad",   "CenterCropOrPad", NULL };
	static const char *const resizes[] = { "RandomResizedCrop", "Resize", "ResizeKeepRatio",
					       "RandomResizeKeepRatio", NULL };
	const char *name = json_string_value(json_array_get(entry, 0));
	const char *filter;

	if (!name)
		return;
	if (is_any_of(name, crops))
		note_size(argument_of(entry, name, "size"), out);
	if (is_any_of(name, resizes) && (filter = json_string_value(argument_of(entry, name, "interpolation"))))
		out->filter = filter;
	if (strcmp(name, "Normalize") == 0)
		note_mean(argument_of(entry, name, "mean"), out);
}

void timm_look_around(json_t *list, struct timm_surroundings *out)
{
	json_t *entry, *inner;
	size_t i, k;

	*out = (struct timm_surroundings){
		.size = 224, .mean = { 0.485, 0.456, 0.406 }, .n_mean = 3, .filter = "bilinear"
	};
	json_array_foreach (list, i, entry) {
		const char *name = json_string_value(json_array_get(entry, 0));

		note_op(entry, out);
		if (name && strcmp(name, "SharedByViews") == 0) {
			json_array_foreach (argument_of(entry, name, "transforms"), k, inner)
				note_op(inner, out);
		}
	}
}

/* ---- the text ---- */

enum kind { KIND_RAND, KIND_MIX, KIND_POLICY };

static const struct kind_of_text {
	const char *name;
	enum kind kind;
	const char *keys; /* for messages */
	const struct timm_step (*policy)[2];
	unsigned n_pairs;
	bool increasing; /* Posterize is timm's PosterizeIncreasing */
} kinds[] = {
	{ "rand", KIND_RAND, "m, n, p, mstd, mmax, inc and t", NULL, 0, false },
	{ "augmix", KIND_MIX, "m, w, d, a, b and mstd", NULL, 0, false },
	{ "v0", KIND_POLICY, "mstd", timm_policy_v0, TIMM_N_V0, false },
	{ "v0r", KIND_POLICY, "mstd", timm_policy_v0, TIMM_N_V0, true },
	{ "original", KIND_POLICY, "mstd", timm_policy_original, TIMM_N_ORIGINAL, false },
	{ "originalr", KIND_POLICY, "mstd", timm_policy_original, TIMM_N_ORIGINAL, true },
	{ "3a", KIND_POLICY, "mstd", timm_policy_3a, TIMM_N_3A, false },
};

static const struct kind_of_text *kind_of(const char *text)
{
	size_t n = strcspn(text, "-");

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strlen(kinds[i].name) == n && strncmp(kinds[i].name, text, n) == 0)
			return &kinds[i];
	return NULL;
}

bool timm_is_text(const char *name)
{
	return kind_of(name) != NULL;
}

/* What the sections say; numbers are those of timm's where none is given. */
struct sections {
	const char *position, *text;
	const struct kind_of_text *kind;
	struct pipeline_error *err;
	bool short_of_memory; /* something of the op is missing */
	double magnitude, layers, p, increasing, width, depth, alpha, blended, deviation, most;
	const struct timm_weight *set;
};

static int complain(const struct sections *s, const char *section, size_t n, const char *why)
{
	snprintf(s->err->text, sizeof(s->err->text), "op %s: timm's text '%.60s': '%.*s' %s; '%s' takes %s",
		 s->position, s->text, (int)(n < 40 ? n : 40), section, why, s->kind->name, s->kind->keys);
	return -EINVAL;
}

/* "0.5": digits, and a point among them. The result is the nearest double, and no locale has a say. */
static bool read_decimal(const char *text, size_t n, bool whole, double *out)
{
	double digits = 0.0, by = 1.0;
	bool point = false;

	if (n == 0 || n > MOST_DIGITS)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (text[i] == '.' && !point && !whole) {
			point = true;
			continue;
		}
		if (text[i] < '0' || text[i] > '9')
			return false;
		digits = digits * 10.0 + (text[i] - '0');
		by *= point ? 10.0 : 1.0;
	}
	*out = digits / by;
	return true;
}

static const struct timm_weight *set_named(const char *name, size_t n)
{
	static const struct {
		const char *name;
		const struct timm_weight *set;
	} sets[] = { { "3a", timm_set_3a }, { "3aw", timm_set_3aw }, { "weights", timm_set_weights } };

	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
		if (strlen(sets[i].name) == n && strncmp(sets[i].name, name, n) == 0)
			return sets[i].set;
	return NULL; /* timm: as without it */
}

static int read_section(struct sections *s, const char *section, size_t n)
{
	const struct {
		unsigned kinds; /* bits of enum kind */
		bool whole, first;
		const char *key;
		double *to;
	} keys[] = {
		{ 1 << KIND_RAND | 1 << KIND_MIX, true, false, "m", &s->magnitude },
		{ 1 << KIND_RAND, true, false, "n", &s->layers },
		{ 1 << KIND_RAND, false, false, "p", &s->p },
		{ 1 << KIND_RAND, true, false, "inc", &s->increasing },
		{ 1 << KIND_RAND, true, true, "mmax", &s->most },
		{ 1 << KIND_MIX, true, false, "w", &s->width },
		{ 1 << KIND_MIX, true, false, "d", &s->depth },
		{ 1 << KIND_MIX, false, false, "a", &s->alpha },
		{ 1 << KIND_MIX, true, false, "b", &s->blended },
		{ 1 << KIND_RAND | 1 << KIND_MIX | 1 << KIND_POLICY, false, true, "mstd", &s->deviation },
	};
	size_t n_key = strcspn(section, "0123456789-");
	double number;

	if (s->kind->kind == KIND_RAND && n > 0 && *section == 't') {
		s->set = set_named(section + 1, n - 1);
		return 0;
	}
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (!(keys[i].kinds >> s->kind->kind & 1) || strlen(keys[i].key) != n_key ||
		    strncmp(keys[i].key, section, n_key) != 0)
			continue;
		if (!read_decimal(section + n_key, n - n_key, keys[i].whole, &number))
			return complain(s, section, n, keys[i].whole ? "wants a whole number" : "wants a number");
		if (!keys[i].first || isnan(*keys[i].to))
			*keys[i].to = number;
		return 0;
	}
	return complain(s, section, n, "is not known");
}

static int read_sections(struct sections *s)
{
	const char *at = s->text + strcspn(s->text, "-");
	int rc = 0;

	for (unsigned i = 0; rc == 0 && *at; i++) {
		size_t n = strcspn(++at, "-");

		rc = i < MOST_SECTIONS ? read_section(s, at, n) : complain(s, at, n, "is one section too many");
		at += n;
	}
	return rc;
}

/* ---- the op ---- */

static void append(struct sections *s, json_t *list, json_t *value)
{
	s->short_of_memory |= json_array_append_new(list, value) != 0;
}

static void set(struct sections *s, json_t *object, const char *name, json_t *value)
{
	s->short_of_memory |= json_object_set_new(object, name, value) != 0;
}

static void rand_arguments(struct sections *s, json_t *out)
{
	const struct timm_weight *o = s->set ? s->set : s->increasing > 0.0 ? timm_set_increasing : timm_set_plain;
	json_t *ops = json_array(), *weights = o->weight > 0.0 ? json_array() : json_null();

	for (; o->name; o++) {
		append(s, ops, json_pack("[sff]", o->name, s->p, s->magnitude));
		if (o->weight > 0.0)
			append(s, weights, json_real(o->weight));
	}
	set(s, out, "ops", ops);
	set(s, out, "num_layers", json_real(s->layers));
	set(s, out, "choice_weights", weights);
}

static void mixture_arguments(struct sections *s, json_t *out)
{
	json_t *ops = json_array();

	for (const char *const *name = timm_set_mixture; *name; name++)
		append(s, ops, json_pack("[sff]", *name, 1.0, s->magnitude));
	set(s, out, "ops", ops);
	set(s, out, "alpha", json_real(s->alpha));
	set(s, out, "width", json_real(s->width));
	set(s, out, "depth", json_real(s->depth));
	set(s, out, "blended", json_boolean(s->blended > 0.0));
	set(s, out, "translate_pct", json_real(0.3));
}

static const char *step_name(const struct kind_of_text *kind, const char *name)
{
	bool posterize = strcmp(name, "Posterize") == 0 || strcmp(name, "PosterizeOriginal") == 0;

	return kind->increasing && posterize ? "PosterizeIncreasing" : name;
}

static void policy_arguments(struct sections *s, json_t *out)
{
	json_t *policy = json_array();

	for (unsigned i = 0; i < s->kind->n_pairs; i++) {
		json_t *steps = json_array();

		for (const struct timm_step *p = s->kind->policy[i]; p < s->kind->policy[i] + 2 && p->name; p++)
			append(s, steps,
			       json_pack("[sff]", step_name(s->kind, p->name), p->tenths / 10.0, (double)p->magnitude));
		append(s, policy, steps);
	}
	set(s, out, "policy", policy);
}

static json_t *fill_of(struct sections *s, const struct timm_surroundings *around)
{
	json_int_t color[3];
	json_t *fill;

	for (unsigned c = 0; c < around->n_mean; c++)
		color[c] = (json_int_t)fmax(0.0, fmin(255.0, rint(255.0 * around->mean[c])));
	if (around->n_mean == 1)
		return json_integer(color[0]);
	fill = json_array();
	for (unsigned c = 0; c < around->n_mean; c++)
		append(s, fill, json_integer(color[c]));
	return fill;
}

static json_t *deviation_of(const struct sections *s)
{
	if (isnan(s->deviation))
		return s->kind->kind == KIND_MIX ? json_string("uniform") : json_real(0.0);
	return s->deviation > UNIFORM_ABOVE && s->kind->kind == KIND_RAND ? json_string("uniform")
									  : json_real(s->deviation);
}

static void all_arguments(struct sections *s, const struct timm_surroundings *around, json_t *out)
{
	if (s->kind->kind == KIND_RAND)
		rand_arguments(s, out);
	else if (s->kind->kind == KIND_MIX)
		mixture_arguments(s, out);
	else
		policy_arguments(s, out);
	set(s, out, "fill", fill_of(s, around));
	set(s, out, "interpolation", json_string(around->filter));
	set(s, out, "translate_const", json_integer((json_int_t)(around->size * 0.45)));
	set(s, out, "magnitude_std", deviation_of(s));
	if (!isnan(s->most))
		set(s, out, "magnitude_max", json_real(s->most));
}

int timm_text_op(const char *position, const char *text, const struct timm_surroundings *around, json_t **op,
		 struct pipeline_error *err)
{
	static const char *const names[] = { "TimmRandAugment", "TimmAugMix", "TimmAutoAugment" };
	struct sections s = { .position = position,
			      .text = text,
			      .kind = kind_of(text),
			      .err = err,
			      .layers = 2,
			      .p = 0.5,
			      .width = 3,
			      .depth = -1,
			      .alpha = 1,
			      .deviation = NAN,
			      .most = NAN };
	json_t *given;
	int rc;

	s.magnitude = s.kind->kind == KIND_RAND ? 10 : 3;
	rc = read_sections(&s);
	if (rc != 0)
		return rc;
	given = json_object();
	all_arguments(&s, around, given);
	*op = s.short_of_memory ? NULL : json_pack("[sO]", names[s.kind->kind], given);
	json_decref(given);
	return *op ? 0 : -ENOMEM;
}
