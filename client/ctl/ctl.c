/* Small functions that every subcommand needs.
 *
 * The awkward part is printing text from other users: file names, program names and class names may contain escape
 * sequences, and a status display that prints them unchanged lets the author of a file name control the operator's
 * terminal. So all such text passes through ctl_make_printable. */
#include "ctl.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "batchd.h"

void ctl_make_printable(char *text)
{
	for (unsigned char *c = (unsigned char *)text; *c; c++) {
		bool c1 = *c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0; /* U+0080..U+009F: 8-bit escape sequences */

		if (*c < 0x20 || *c == 0x7f)
			*c = '?';
		else if (c1)
			c[0] = c[1] = '?';
	}
}

void ctl_complain(const char *command, const char *fmt, ...)
{
	char text[2048];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	ctl_make_printable(text);
	if (command)
		fprintf(stderr, "batchctl %s: %s\n", command, text);
	else
		fprintf(stderr, "batchctl: %s\n", text);
}

int ctl_flush(const char *command)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return CTL_OK;
	ctl_complain(command, "cannot write the result to standard output: %s", strerror(errno));
	return CTL_FAILED;
}

int ctl_exit_of(int batchd_code)
{
	switch (batchd_code) {
	case BATCHD_OK:
		return CTL_OK;
	case BATCHD_E_CONNECT:
		return CTL_NOT_RUNNING;
	case BATCHD_E_NOT_FOUND:
	case BATCHD_E_ACCESS:
		return CTL_UNKNOWN;
	default:
		return CTL_FAILED;
	}
}

char *ctl_dataset_spec(const char *text)
{
	struct stat st;
	char *spec;

	if (stat(text, &st) != 0 || !S_ISDIR(st.st_mode))
		return strdup(text);
	if (asprintf(&spec, "imagefolder:%s", text) < 0)
		return NULL;
	return spec;
}

json_t *ctl_json_text(const char *text)
{
	json_t *out = json_string(text);
	char *copy;

	if (out)
		return out;
	copy = strdup(text);
	if (!copy)
		return NULL;
	for (char *c = copy; *c; c++)
		if (*c & 0x80)
			*c = '?';
	out = json_string(copy);
	free(copy);
	return out;
}

int ctl_print_json(const char *command, json_t *result)
{
	if (!result || json_dumpf(result, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9)) != 0)
		ctl_complain(command, "cannot make the JSON result: not enough memory");
	putchar('\n');
	json_decref(result);
	return result ? ctl_flush(command) : CTL_FAILED;
}

unsigned ctl_n_cpus(void)
{
	cpu_set_t set;
	int n;

	if (sched_getaffinity(0, sizeof set, &set) != 0)
		return 1; /* more processors than a cpu_set_t has room for; the user can say how many */
	n = CPU_COUNT(&set);
	return n > 0 ? (unsigned)n : 1;
}
