/* Numbers, fractions, modes and misspelt words. None of this uses the locale: a configuration means the same
 * everywhere, which rules out strtod and isdigit. */
#include "util/parse.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum {
	MAX_SHARE_DIGITS = 12, /* after the point */
	MAX_WORD_BYTES = 32,   /* longer words are not compared */
};

static bool parse_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

int number_parse(const char *text, uint64_t *out)
{
	uint64_t value = 0;

	if (!parse_is_digit(*text))
		return -EINVAL;
	for (; parse_is_digit(*text); text++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
			return -ERANGE;
	if (*text)
		return -EINVAL;
	*out = value;
	return 0;
}

int share_parse(const char *text, double *out)
{
	uint64_t digits = 0, scale = 1;
	const char *p = text;

	if (!parse_is_digit(*p))
		return -EINVAL;
	for (; parse_is_digit(*p); p++) {
		if (digits > 100)
			return -ERANGE;
		digits = digits * 10 + (uint64_t)(*p - '0');
	}
	if (*p == '.') {
		const char *first = ++p;

		for (; parse_is_digit(*p) && p - first < MAX_SHARE_DIGITS; p++) {
			digits = digits * 10 + (uint64_t)(*p - '0');
			scale *= 10;
		}
		if (p == first)
			return -EINVAL;
	}
	if (*p == '%') {
		scale *= 100;
		p++;
	}
	if (*p)
		return -EINVAL;
	if (digits > scale)
		return -ERANGE;
	*out = (double)digits / (double)scale;
	return 0;
}

int mode_parse(const char *text, mode_t *out)
{
	mode_t mode = 0;

	if (!*text)
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '7')
			return -EINVAL;
		mode = mode * 8 + (mode_t)(*text - '0');
		if (mode > 0777)
			return -ERANGE;
	}
	*out = mode;
	return 0;
}

/* Letters to insert, remove or replace to get from a to b (Levenshtein). */
static size_t word_distance(const char *a, const char *b)
{
	size_t n_a = strlen(a), n_b = strlen(b);
	size_t row[MAX_WORD_BYTES + 1];

	if (n_a > MAX_WORD_BYTES || n_b > MAX_WORD_BYTES)
		return SIZE_MAX;
	for (size_t j = 0; j <= n_b; j++)
		row[j] = j;
	for (size_t i = 1; i <= n_a; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n_b; j++) {
			size_t best = diagonal + (a[i - 1] != b[j - 1]);

			if (best > row[j] + 1)
				best = row[j] + 1;
			if (best > row[j - 1] + 1)
				best = row[j - 1] + 1;
			diagonal = row[j];
			row[j] = best;
		}
	}
	return row[n_b];
}

const char *word_nearest(const char *word, const char *const *candidates)
{
	const char *nearest = NULL;
	size_t best = 1 + strlen(word) / 3; /* a third of the letters may be wrong */

	for (; *candidates; candidates++) {
		size_t d = word_distance(word, *candidates);

		if (d < best || (d == best && !nearest)) {
			best = d;
			nearest = *candidates;
		}
	}
	return nearest;
}
