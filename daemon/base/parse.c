/* Numbers, fractions and modes. None of this uses the locale: a configuration means the same
 * everywhere, which rules out strtod and isdigit. */
#include "base/parse.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum {
	MAX_SHARE_DIGITS = 12, /* after the point */
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
