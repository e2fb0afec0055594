/* Order of names. For valid UTF-8 the order of code points is the order of bytes. The difficult case is invalid names,
 * which Python decodes with "surrogateescape" and which therefore sort between U+D7FF and U+E000. Class numbers depend
 * on the order, so it must be exact. */
#include "dataset/name.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

/* Length of a valid UTF-8 sequence at p, or 0. Overlong forms, surrogates and code points above U+10FFFF are
 * invalid. */
static unsigned utf8_length(const unsigned char *p)
{
	static const struct {
		unsigned char low, high, second_low, second_high, n;
	} forms[] = {
		{ 0x01, 0x7f, 0, 0, 1 },       { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
		{ 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
		{ 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};

	for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
		if (*p < forms[f].low || *p > forms[f].high)
			continue;
		if (forms[f].n > 1 && (p[1] < forms[f].second_low || p[1] > forms[f].second_high))
			return 0;
		for (unsigned k = 2; k < forms[f].n; k++) {
			if ((p[k] & 0xc0) != 0x80)
				return 0;
		}
		return forms[f].n;
	}
	return 0;
}

static uint32_t next_code_point(const unsigned char **p)
{
	static const unsigned char lead_bits[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
	const unsigned char *q = *p;
	unsigned n = utf8_length(q);
	uint32_t c;

	if (!*q)
		return 0;
	if (!n) {
		*p = q + 1;
		return 0xdc00u + *q;
	}
	c = *q & lead_bits[n];
	for (unsigned k = 1; k < n; k++)
		c = c << 6 | (q[k] & 0x3fu);
	*p = q + n;
	return c;
}

int name_compare(const char *a, const char *b)
{
	const unsigned char *p = (const unsigned char *)a, *q = (const unsigned char *)b;
	size_t i = 0;

	while (p[i] && p[i] == q[i])
		i++;
	/* An ASCII byte ends any sequence before it, in the same way in both names. */
	if ((p[i] | q[i]) < 0x80)
		return p[i] - q[i];
	for (;;) {
		uint32_t c = next_code_point(&p), d = next_code_point(&q);

		if (c != d || !c)
			return c < d ? -1 : c > d;
	}
}

bool name_is_utf8(const char *text, size_t n)
{
	const unsigned char *p = (const unsigned char *)text, *end = p + n;

	while (p < end) {
		unsigned n_form = *p ? utf8_length(p) : 1;

		if (!n_form)
			return false;
		p += n_form;
	}
	return true;
}

bool name_is_image(const char *name)
{
	static const char *const extensions[] = { ".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
						  ".pgm", ".tif",  ".tiff", ".webp" };
	size_t n = strlen(name);

	for (size_t i = 0; i < sizeof(extensions) / sizeof(extensions[0]); i++) {
		size_t n_ext = strlen(extensions[i]);

		if (n >= n_ext && !strcasecmp(name + n - n_ext, extensions[i]))
			return true;
	}
	return false;
}
