/* batchctl doctor: what stands in the way of batches on a GPU, and of batchd at all, on this machine and from where it
 * is run. */
#include "doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl.h"
#include "options.h"

static const char *const states[] = { "ok", "note", "problem" };

/* Long lines are broken at spaces, behind the column where the text begins. */
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

static int finish(struct doctor *d)
{
	int code;

	if (d->json) {
		code = ctl_print_json("doctor", json_pack("{s:o, s:i, s:i}", "findings", d->findings, "problems",
							  (int)d->n_problems, "notes", (int)d->n_notes));
	} else {
		if (d->n_problems)
			printf("\n%u problem%s.\n", d->n_problems, d->n_problems == 1 ? "" : "s");
		else
			printf("\nNo problems%s.\n", d->n_notes ? "; the notes say what could be better" : "");
		code = ctl_flush("doctor");
	}
	return code == CTL_OK && d->n_problems ? CTL_FAILED : code;
}

int doctor_main(int argc, char **argv)
{
	struct doctor d = { 0 };
	const struct option_spec specs[] = {
		{ "socket", OPTION_TEXT, &d.socket, "PATH",
		  "the daemon at PATH (default $BATCHD_SOCKET, then your own, then the system's)", 0, 0, NULL },
		{ "gpu", OPTION_FLAG, &d.device_wanted, NULL, "a machine without a usable GPU has a problem", 0, 0,
		  NULL },
		{ "json", OPTION_FLAG, &d.json, NULL, "the findings as JSON", 0, 0, NULL },
		{ 0 },
	};
	const struct command cmd = {
		"doctor",
		"",
		"Looks for what stands in the way of batchd here, above all of batches on a GPU, and says what to change.",
		"Run it where trainers run: as their user, in their container.\n"
		"Exit codes: 0 no problem, 1 problems, 2 wrong usage.",
		0,
	};
	int code;

	if (!options_parse(&cmd, specs, argc, argv, NULL, &code))
		return code;
	if (d.json && !(d.findings = json_array())) {
		ctl_complain("doctor", "out of memory");
		return CTL_FAILED;
	}
	doctor_daemon(&d);
	doctor_system(&d);
	doctor_gpu(&d);
	doctor_sides(&d);
	return finish(&d);
}
