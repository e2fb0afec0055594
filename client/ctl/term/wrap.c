/* See wrap.h. */
#include "ctl/term/wrap.h"

#include <stdbool.h>
#include <string.h>

/* Characters, not bytes, of UTF-8. */
static unsigned n_columns(const char *text, size_t n)
{
	unsigned columns = 0;

	for (size_t i = 0; i < n; i++)
		columns += (text[i] & 0xc0) != 0x80;
	return columns;
}

unsigned wrap_put(FILE *f, const char *text, unsigned at, unsigned indent, unsigned limit)
{
	unsigned lines = 1;
	bool first = true;

	while (*text) {
		size_t n = strcspn(text, " ");
		unsigned width = n_columns(text, n);

		if (!first && limit && at + 1 + width > limit) {
			fprintf(f, "\n%*s", (int)indent, "");
			at = indent;
			lines++;
		} else if (!first) {
			fputc(' ', f);
			at++;
		}
		fwrite(text, 1, n, f);
		at += width;
		first = false;
		text += n;
		text += *text == ' ';
	}
	fputc('\n', f);
	return lines;
}
