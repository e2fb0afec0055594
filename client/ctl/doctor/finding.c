/* doctor_say: a finding, as a line for a person or for the JSON. */
#include "ctl/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ctl/ctl.h"

static const char *const states[] = { "ok", "note", "problem" };

/* Breaks long lines at spaces, and indents them to the column where the text begins. */
static void print_wrapped(const char *text, unsigned indent)
{
	enum { WIDTH = 110 };
	unsigned column = indent;

	while (*text) {
		size_t n = strcspn(text, " ");

		if (column > indent && column + 1 + n > WIDTH) {
			printf("\n%*s", (int)indent, "");
			column = indent;
		} else if (column > indent) {
			putchar(' ');
			column++;
		}
		printf("%.*s", (int)n, text);
		column += (unsigned)n;
		text += n + (text[n] == ' ');
	}
	putchar('\n');
}

void doctor_say(struct doctor *d, enum finding state, const char *about, const char *advice, const char *fmt, ...)
{
	char text[1024];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	ctl_make_printable(text);
	d->n_notes += state == FINDING_NOTE;
	d->n_problems += state == FINDING_PROBLEM;
	if (d->json) {
		json_array_append_new(d->findings, json_pack("{s:s, s:s, s:o, s:s?}", "state", states[state], "about",
							     about, "text", ctl_json_text(text), "advice", advice));
		return;
	}
	printf("%-8s %-12s ", states[state], about);
	print_wrapped(text, 22);
	if (advice) {
		printf("%22s", "-> ");
		print_wrapped(advice, 22);
	}
}
