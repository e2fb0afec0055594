/* Sizes and durations. Both are "a decimal number, then at most one unit", so one reader serves both; they differ in
 * their table of units. The arithmetic is on integers: "1.5GiB" must be 1610612736 and not a double's approximation,
 * and a value that does not fit is refused instead of wrapping. Fractions finer than the result's unit (bytes, ns) are
 * cut off. */
#include "base/size.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { MAX_FRACTION_DIGITS = 9 };

struct unit {
	const char *name;
	uint64_t factor; /* in bytes, or ns */
};

static const struct unit size_units[] = {
	{ "", 1 },
	{ "B", 1 },
	{ "KiB", UINT64_C(1) << 10 },
	{ "MiB", UINT64_C(1) << 20 },
	{ "GiB", UINT64_C(1) << 30 },
	{ "TiB", UINT64_C(1) << 40 },
	{ "PiB", UINT64_C(1) << 50 },
	{ "kB", 1000 },
	{ "KB", 1000 },
	{ "MB", 1000 * 1000 },
	{ "GB", 1000 * 1000 * 1000 },
	{ "TB", UINT64_C(1000) * 1000 * 1000 * 1000 },
	{ "PB", UINT64_C(1000) * 1000 * 1000 * 1000 * 1000 },
	{ NULL, 0 },
};

static const struct unit duration_units[] = {
	{ "", UINT64_C(1000000000) },
	{ "ns", 1 },
	{ "us", 1000 },
	{ "ms", 1000 * 1000 },
	{ "s", UINT64_C(1000000000) },
	{ "min", UINT64_C(60000000000) },
	{ "h", UINT64_C(3600000000000) },
	{ "d", UINT64_C(86400000000000) },
	{ NULL, 0 },
};

/* Not isdigit(): a configuration means the same in every locale. */
static bool size_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static const struct unit *unit_find(const struct unit *units, const char *name)
{
	for (; units->name; units++)
		if (strcmp(units->name, name) == 0)
			return units;
	return NULL;
}

/* value = whole + fraction / scale, in the unit that follows. */
struct decimal {
	uint64_t whole, fraction, scale;
};

/* Reads the digits and leaves *text at the unit. */
static int decimal_read(const char **text, struct decimal *d)
{
	const char *p = *text;

	*d = (struct decimal){ .scale = 1 };
	if (!size_is_digit(*p))
		return -EINVAL;
	for (; size_is_digit(*p); p++)
		if (__builtin_mul_overflow(d->whole, 10, &d->whole) ||
		    __builtin_add_overflow(d->whole, (uint64_t)(*p - '0'), &d->whole))
			return -ERANGE;
	if (*p == '.') {
		const char *first = ++p;

		for (; size_is_digit(*p) && p - first < MAX_FRACTION_DIGITS; p++) {
			d->fraction = d->fraction * 10 + (uint64_t)(*p - '0');
			d->scale *= 10;
		}
		if (p == first)
			return -EINVAL;
	}
	*text = p;
	return 0;
}

static int with_unit_parse(const char *text, const struct unit *units, uint64_t *out)
{
	struct decimal d;
	int r = decimal_read(&text, &d);

	if (r < 0)
		return r;
	const struct unit *u = unit_find(units, text);

	if (!u || (d.scale > 1 && u->factor == 1)) /* a byte or a ns has no fractions */
		return -EINVAL;
	/* fraction < 10^9 and scale <= 10^9: the 128-bit product is exact. */
	uint64_t part = (uint64_t)((unsigned __int128)u->factor * d.fraction / d.scale);
	uint64_t value;

	if (__builtin_mul_overflow(d.whole, u->factor, &value) || __builtin_add_overflow(value, part, &value))
		return -ERANGE;
	*out = value;
	return 0;
}

int size_parse(const char *text, uint64_t *bytes)
{
	return with_unit_parse(text, size_units, bytes);
}

int duration_parse(const char *text, uint64_t *ns)
{
	return with_unit_parse(text, duration_units, ns);
}

const char *size_format(uint64_t bytes, char *buf, unsigned long buf_size)
{
	static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes;
	unsigned i = 0;

	if (bytes < 1024) {
		snprintf(buf, buf_size, "%u B", (unsigned)bytes);
		return buf;
	}
	/* 1023.95 would be printed as 1024.0: print 1.0 of the next unit instead. */
	while (value >= 1023.95 && i + 1 < sizeof names / sizeof *names) {
		value /= 1024;
		i++;
	}
	snprintf(buf, buf_size, "%.1f %s", value, names[i]);
	return buf;
}
