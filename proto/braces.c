/* See braces.h. */
#include "braces.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MAX_BRACES = 8, MAX_DIGITS = 9 };

struct braces {
	char path[PATH_MAX];
	unsigned depth;
	size_t n;
	int (*fn)(void *arg, const char *path);
	void *arg;
	const char *pattern;
	char *text;
	size_t size;
};

static int bad_braces(const struct braces *b, const char *why)
{
	snprintf(b->text, b->size, "%.300s: %s", b->pattern, why);
	return -EINVAL;
}

static int expand_rest(struct braces *b, size_t n_path, const char *rest);

static int expand_with(struct braces *b, size_t n_path, const char *part, size_t n_part, const char *rest)
{
	if (n_path + n_part >= sizeof(b->path))
		return bad_braces(b, "the path is too long");
	memcpy(b->path + n_path, part, n_part);
	return expand_rest(b, n_path + n_part, rest);
}

static int expand_list(struct braces *b, size_t n_path, const char *body, size_t n_body, const char *rest)
{
	const char *end = body + n_body;
	int r = 0;

	while (!r && body <= end) {
		const char *comma = memchr(body, ',', (size_t)(end - body));
		size_t n = (size_t)((comma ? comma : end) - body);

		r = expand_with(b, n_path, body, n, rest);
		body += n + 1;
	}
	return r;
}

/* A number of a range, at most MAX_DIGITS long. */
static bool take_digits(const char **at, const char *end, int64_t *value, int *width)
{
	*width = 0;
	*value = 0;
	while (*at < end && **at >= '0' && **at <= '9' && *width <= MAX_DIGITS) {
		*value = *value * 10 + (**at - '0');
		++*at;
		++*width;
	}
	return *width > 0 && *width <= MAX_DIGITS;
}

static bool take_dots(const char **at, const char *end)
{
	bool has = end - *at >= 2 && !memcmp(*at, "..", 2);

	*at += has ? 2 : 0;
	return has;
}

struct range {
	int64_t first, last, step;
	int width; /* of numbers with leading zeros; 0: as they are */
};

static bool parse_range(const char *body, size_t n, struct range *range)
{
	const char *end = body + n, *last;
	const char *first = body;
	int n_first, n_last, n_step;

	range->step = 1;
	if (!take_digits(&body, end, &range->first, &n_first) || !take_dots(&body, end))
		return false;
	last = body;
	if (!take_digits(&body, end, &range->last, &n_last) ||
	    (take_dots(&body, end) && !take_digits(&body, end, &range->step, &n_step)) || body != end)
		return false;
	range->step = range->step ? range->step : 1;
	range->width = (n_first > 1 && *first == '0') || (n_last > 1 && *last == '0')
			       ? n_first > n_last ? n_first : n_last
			       : 0;
	return true;
}

static int expand_range(struct braces *b, size_t n_path, const struct range *range, const char *rest)
{
	bool up = range->first <= range->last;
	int r = 0;

	for (int64_t i = range->first; !r && (up ? i <= range->last : i >= range->last);
	     i += up ? range->step : -range->step) {
		char text[24];
		int n = snprintf(text, sizeof(text), "%0*lld", range->width, (long long)i);

		r = expand_with(b, n_path, text, (size_t)n, rest);
	}
	return r;
}

static int expand_braces(struct braces *b, size_t n_path, const char *body, const char *close)
{
	size_t n = (size_t)(close - body);
	struct range range;

	if (memchr(body, ',', n))
		return expand_list(b, n_path, body, n, close + 1);
	return parse_range(body, n, &range)
		       ? expand_range(b, n_path, &range, close + 1)
		       : bad_braces(b, "expected {000..123} or {a,b} in braces, numbers of at most 9 digits");
}

static int expand_rest(struct braces *b, size_t n_path, const char *rest)
{
	size_t n = strcspn(rest, "{}");
	const char *body, *close;
	int r;

	if (n_path + n >= sizeof(b->path))
		return bad_braces(b, "the path is too long");
	memcpy(b->path + n_path, rest, n);
	if (!rest[n]) {
		b->path[n_path + n] = '\0';
		return b->n++ < BRACES_MAX_PATHS ? b->fn(b->arg, b->path) : bad_braces(b, "more than 1048576 paths");
	}
	body = rest + n + 1;
	close = body + strcspn(body, "{}");
	if (rest[n] == '}' || *close != '}')
		return bad_braces(b, "braces that do not match, or stand in each other");
	if (b->depth == MAX_BRACES)
		return bad_braces(b, "more than 8 pairs of braces");
	b->depth++;
	r = expand_braces(b, n_path + n, body, close);
	b->depth--;
	return r;
}

int braces_expand(const char *pattern, int (*fn)(void *arg, const char *path), void *arg, char *why, size_t size)
{
	struct braces b = { .fn = fn, .arg = arg, .pattern = pattern, .text = why, .size = size };

	*why = '\0';
	return expand_rest(&b, 0, pattern);
}
