/* batchctl status: asks the daemon for its state, once or repeatedly, and prints it as JSON or through
 * status-text.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "batchd.h"
#include "ctl/ctl.h"
#include "ctl/term/options.h"
#include "ctl/command/status-text.h"

struct status {
	const char *socket, *from;
	json_t *last; /* the state before, with --watch; NULL before the first */
	uint64_t interval_ns;
	bool json, watch;
};

static char *read_saved(const char *path)
{
	FILE *f = !strcmp(path, "-") ? stdin : fopen(path, "re");
	char *json = NULL;
	size_t size = 0;

	if (f && getdelim(&json, &size, 0, f) < 0) {
		free(json);
		json = strdup("");
	}
	if (!f)
		ctl_complain("status", "cannot read '%s': %s", path, strerror(errno));
	else if (f != stdin)
		fclose(f);
	return json;
}

/* Parts may be missing in another version, but not all of them. */
static bool is_status(const json_t *root)
{
	static const char *const parts[] = { "daemon", "workers", "memory", "loaders", "sessions" };
	bool found = false;

	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		found |= json_object_get(root, parts[i]) != NULL;
	return found;
}

static int ctl_status_fetch(const struct status *o, json_t **out)
{
	const char *source = !o->from ? "the daemon's answer" : !strcmp(o->from, "-") ? "standard input" : o->from;
	char err[1024] = "", *json = NULL;
	json_error_t syntax;
	int r;

	if (o->from) {
		json = read_saved(o->from);
		if (!json)
			return CTL_UNKNOWN;
	} else {
		r = batchd_status(o->socket, &json, err, sizeof err);
		if (r < 0) {
			ctl_complain("status", "%s", *err ? err : batchd_code_name(r));
			return ctl_exit_of(r) == CTL_FAILED ? CTL_UNKNOWN : ctl_exit_of(r);
		}
	}
	*out = json_loads(json, JSON_REJECT_DUPLICATES, &syntax);
	free(json);
	if (is_status(*out))
		return CTL_OK;
	if (*out)
		ctl_complain(
			"status",
			"%s does not hold a daemon's status but some other JSON; 'batchctl status --json' makes one",
			source);
	else
		ctl_complain("status", "%s is not JSON: line %d: %s", source, syntax.line, syntax.text);
	json_decref(*out);
	return CTL_UNKNOWN;
}

static int print_json_line(const json_t *root)
{
	json_dumpf(root, stdout, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
	putchar('\n');
	return ctl_flush("status");
}

static void sleep_ns(uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };

	nanosleep(&t, NULL); /* a signal ends the command anyway */
}

/* ---- on a terminal, repeatedly ---- */

/* Prints the line, cut to `columns` of the screen: escape sequences and the continuation bytes of a character take no
 * column. */
static void put_cut(const char *line, size_t n, unsigned columns)
{
	unsigned shown = 0;

	for (size_t i = 0; i < n; i++) {
		bool escape = line[i] == '\033';
		size_t begin = i;

		while (escape && i + 1 < n && (line[i] < '@' || line[i] > 'z' || line[i] == '['))
			i++; /* a sequence ends with a letter */
		if (!escape && (line[i] & 0xc0) != 0x80)
			shown++;
		if (escape || shown <= columns)
			fwrite(line + begin, i - begin + 1, 1, stdout);
	}
	fputs("\033[K", stdout);
}

/* Prints the top of the text, as much as fits on the screen. */
static void put_screen(const char *text)
{
	struct winsize w = { .ws_row = 24, .ws_col = 80 };
	unsigned row = 0;

	ioctl(STDOUT_FILENO, TIOCGWINSZ, &w);
	fputs("\033[H", stdout);
	for (const char *line = text, *end; *line && row < w.ws_row; line = *end ? end + 1 : end, row++) {
		end = strchrnul(line, '\n');
		if (row)
			putchar('\n');
		if (row + 1u == w.ws_row && *end && end[1])
			put_cut("... (more than the screen has room for)",
				strlen("... (more than the screen has room for)"), w.ws_col);
		else
			put_cut(line, (size_t)(end - line), w.ws_col);
	}
	fputs("\033[J", stdout);
}

/* Prints the same text as for a pipe, laid out for the terminal's width, and cut. */
static void print_screen(const json_t *root, const json_t *last)
{
	FILE *terminal = stdout;
	char *text = NULL;
	size_t n;

	stdout = open_memstream(&text, &n);
	if (stdout) {
		status_print(root, last);
		fclose(stdout);
	}
	stdout = terminal;
	if (text)
		put_screen(text);
	free(text);
}

static int ctl_status_once(struct status *o)
{
	json_t *root = NULL;
	int code = ctl_status_fetch(o, &root);

	if (code != CTL_OK)
		return code;
	if (o->json && !o->watch)
		return ctl_print_json("status", root);
	if (o->watch && !o->json && isatty(STDOUT_FILENO))
		print_screen(root, o->last);
	else if (!o->json)
		status_print(root, o->last);
	code = o->json ? print_json_line(root) : ctl_flush("status");
	json_decref(o->last);
	o->last = root;
	return code;
}

int status_main(int argc, char **argv)
{
	struct status o = { .interval_ns = 1000000000u };
	const struct option_spec specs[] = {
		{ "socket", OPTION_TEXT, &o.socket, "PATH",
		  "ask the daemon at PATH (default $BATCHD_SOCKET, then your own, then the system's)", 0, 0, NULL },
		{ "watch", OPTION_FLAG, &o.watch, NULL,
		  "again and again until interrupted; with --json one line each time", 0, 0, NULL },
		{ "interval", OPTION_DURATION, &o.interval_ns, "TIME", "between two looks with --watch", 50000000u, 0,
		  NULL },
		{ "from", OPTION_TEXT, &o.from, "FILE", "show what 'status --json' saved earlier; - is standard input",
		  0, 0, NULL },
		{ "json", OPTION_FLAG, &o.json, NULL, "everything the daemon says, as JSON", 0, 0, NULL },
		{ 0 },
	};
	const struct command cmd = {
		"status",
		"",
		"Shows what the daemon does, and who waits for whom.",
		"Exit codes: 0 running, 2 wrong usage, 3 no daemon is running, 4 there is one but it could not be asked.",
		0,
	};
	int code;

	if (!command_parse(&cmd, specs, argc, argv, NULL, &code))
		return code;
	if (o.from && (o.socket || o.watch)) {
		ctl_complain("status", "--from shows a saved file; it goes with neither --socket nor --watch");
		return CTL_USAGE;
	}
	while ((code = ctl_status_once(&o)) == CTL_OK && o.watch) {
		if (!o.json && !isatty(STDOUT_FILENO))
			puts("----");
		sleep_ns(o.interval_ns);
	}
	json_decref(o.last);
	return code;
}
