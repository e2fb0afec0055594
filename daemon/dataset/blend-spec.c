/* See blend-spec.h. */
#include "dataset/blend-spec.h"

#include <errno.h>
#include <string.h>

enum { MAX_DIGITS = 9 };

static bool blend_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Up to 9 digits; *end is behind them. */
static uint64_t take_digits(const char *text, const char **end)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < MAX_DIGITS && blend_is_digit(*text); i++)
		v = v * 10 + (uint64_t)(*text++ - '0');
	*end = text;
	return v;
}

/* "0.7*": NULL, or what follows it. */
static const char *take_weight(const char *text, uint64_t *weight)
{
	const char *end;
	uint64_t whole = take_digits(text, &end), unit = BLEND_WEIGHT_ONE, part = 0;

	if (end == text)
		return NULL;
	if (*end == '.') {
		end++;
		for (unsigned i = 0; i < MAX_DIGITS && blend_is_digit(*end); i++) {
			unit /= 10;
			part += unit * (uint64_t)(*end++ - '0');
		}
	}
	*weight = whole * BLEND_WEIGHT_ONE + part;
	return *end == '*' ? end + 1 : NULL;
}

static const char *skip_head(const char *text, struct blend_part *out)
{
	const char *end = take_weight(text, &out->weight);

	text = end ? end : text;
	out->weight = end ? out->weight : 0;
	out->n_fds = (unsigned)take_digits(text, &end);
	if (end > text && *end == '@')
		return end + 1;
	out->n_fds = 0;
	return text;
}

const char *blend_spec_first(const char *spec)
{
	struct blend_part unused;

	if (strncmp(spec, "blend:", 6))
		return spec;
	spec += 6;
	if (!strncmp(spec, "seed=", 5)) {
		const char *next = strstr(spec, ";;");

		spec = next ? next + 2 : spec;
	}
	return skip_head(spec, &unused);
}

static int bad_blend(const char *text, const char *why, struct dataset_error *err)
{
	return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "blend: '%.100s': %s", text, why);
}

static int blend_take_part(struct blend_spec *out, const char *text, struct dataset_error *err)
{
	struct blend_part *p = &out->part[out->n];

	if (out->n == BLEND_MAX_PARTS)
		return bad_blend(text, "more than 64 data sets", err);
	p->spec = skip_head(text, p);
	if (!p->spec[0])
		return bad_blend(text, "expected a data set", err);
	if (memchr(text, '*', (size_t)(p->spec - text)) && !p->weight)
		return bad_blend(text, "a weight of 0: leave the data set out", err);
	if (out->n++ && (p->weight > 0) != out->has_weights)
		return bad_blend(text, "either every data set has a weight, or none", err);
	out->has_weights = p->weight > 0;
	return 0;
}

static int take_seed(struct blend_spec *out, const char *text, struct dataset_error *err)
{
	const char *at = text + strlen("seed=");

	for (; blend_is_digit(*at); at++) {
		if (__builtin_mul_overflow(out->seed, 10, &out->seed) ||
		    __builtin_add_overflow(out->seed, (uint64_t)(*at - '0'), &out->seed))
			return bad_blend(text, "a seed of more than 64 bits", err);
	}
	out->has_seed = true;
	return *at || !text[5] ? bad_blend(text, "expected seed=NUMBER", err) : 0;
}

int blend_spec_parse(char *text, struct blend_spec *out, struct dataset_error *err)
{
	int r = 0;

	*out = (struct blend_spec){ .n = 0 };
	for (char *next; !r && text; text = next) {
		next = strstr(text, ";;");
		if (next) {
			*next = '\0';
			next += 2;
		}
		r = !out->n && !out->has_seed && !strncmp(text, "seed=", 5) ? take_seed(out, text, err)
									    : blend_take_part(out, text, err);
	}
	if (!r && !out->n)
		return bad_blend("", "expected a data set", err);
	return !r && out->has_seed && !out->has_weights
		       ? bad_blend("seed", "it is for weights, and there are none", err)
		       : r;
}
