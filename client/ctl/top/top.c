/* batchctl top: the trainers of a daemon, live, the one that loses most time to its input first.
 *
 * On a terminal it draws a screen and takes keys; in a pipe, or with --plain, each look is a table of lines, with --json
 * a line. The terminal is put back at every end, a signal's included. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "batchd.h"
#include "ctl/ctl.h"
#include "ctl/term/options.h"
#include "ctl/term/progress.h"
#include "ctl/top/text.h"

enum { NONE = -1 };

struct top {
	const char *socket, *job;
	uint64_t interval_ns, n;
	unsigned sort;
	bool plain, json;

	json_t *status, *last;
	uint64_t at_ns, last_at_ns;
	struct top_rows rows;
	bool paused, help, detail, ended;
	size_t chosen, first;
	char problem[512]; /* the last look failed: why */
};

static struct termios top_before;
static volatile sig_atomic_t top_signal;

static void top_on_signal(int number)
{
	top_signal = number;
}

/* ---- looking ---- */

static double top_seconds(const struct top *t)
{
	return t->last ? (double)(t->at_ns - t->last_at_ns) / 1e9 : 0;
}

static int top_look(struct top *t)
{
	char *json = NULL;
	json_t *status;
	int r = batchd_status(t->socket, &json, t->problem, sizeof t->problem);

	if (r < 0)
		return r;
	status = json_loads(json, 0, NULL);
	free(json);
	if (!status) {
		snprintf(t->problem, sizeof t->problem, "the daemon's answer is not JSON");
		return BATCHD_E_PROTOCOL;
	}
	t->problem[0] = '\0';
	json_decref(t->last);
	t->last = t->status;
	t->last_at_ns = t->at_ns;
	t->status = status;
	t->at_ns = progress_now_ns();
	return 0;
}

static int top_arrange(struct top *t)
{
	top_rows_finish(&t->rows);
	if (!t->status)
		return 0;
	if (top_rows_make(&t->rows, t->status, t->last, top_seconds(t), t->job) < 0) {
		ctl_complain("top", "not enough memory");
		return CTL_FAILED;
	}
	top_rows_sort(&t->rows, (enum top_sort)t->sort);
	return CTL_OK;
}

static struct top_view top_view(const struct top *t)
{
	return (struct top_view){ .status = t->status,
				  .job = t->job,
				  .rows = &t->rows,
				  .sort = (enum top_sort)t->sort,
				  .chosen = (size_t)NONE,
				  .seconds = top_seconds(t) };
}

/* ---- lines ---- */

static int top_print(struct top *t)
{
	struct top_view v = top_view(t);
	json_t *line;

	if (!t->json) {
		top_print_head(stdout, &v);
		top_print_table(stdout, &v);
		return ctl_flush("top");
	}
	line = json_pack("{s:o, s:O?, s:O?, s:O?}", "trainers", top_rows_json(&t->rows), "workers",
			 json_object_get(t->status, "workers"), "memory", json_object_get(t->status, "memory"), "cache",
			 json_object_get(t->status, "cache"));
	if (line)
		json_dumpf(line, stdout, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(line);
	return ctl_flush("top");
}

static int top_run_lines(struct top *t)
{
	for (uint64_t i = 0; !top_signal; i++) {
		int r = top_look(t), code;

		if (r < 0) {
			ctl_complain("top", "%s", t->problem);
			return ctl_exit_of(r) == CTL_FAILED ? CTL_UNKNOWN : ctl_exit_of(r);
		}
		if (i && !t->json)
			putchar('\n');
		code = top_arrange(t);
		if (code == CTL_OK)
			code = top_print(t);
		if (code != CTL_OK || i + 1 == t->n)
			return code;
		poll(NULL, 0, (int)(t->interval_ns / 1000000));
	}
	return CTL_OK;
}

/* ---- the screen ---- */

static const char top_help[] =
	"  l w r j   sort by lost seconds, waiting now, images per second, job\n"
	"  up down   choose a trainer;  Enter  look into it;  Escape  back\n"
	"  p         pause;  h  this help;  q  quit\n\n"
	"  WAIT is the part of the last 10 s in which the trainer waited for a batch, FOR what it\n"
	"  waited for most, LOST s all such time since it connected, READY/OF the batches that are\n"
	"  ready and the places for batches.\n";

/* Prints text[0..n) cut to the screen: escape sequences take no column, nor do a character's further bytes. */
static void put_line(FILE *f, const char *text, size_t n, unsigned columns)
{
	unsigned shown = 0;

	for (size_t i = 0; i < n; i++) {
		size_t begin = i;

		if (text[i] == '\033') {
			while (i + 1 < n && (text[i] < '@' || text[i] > 'z' || text[i] == '['))
				i++;
		} else if ((text[i] & 0xc0) != 0x80 && ++shown > columns) {
			continue;
		}
		if (text[begin] == '\033' || shown <= columns)
			fwrite(text + begin, i - begin + 1, 1, f);
	}
	fputs("\033[K", f);
}

static void put_text(const char *text, const struct winsize *w)
{
	unsigned row = 0;

	fputs("\033[H", stdout);
	for (const char *line = text, *end; *line && row + 1u < w->ws_row; line = *end ? end + 1 : end, row++) {
		end = strchrnul(line, '\n');
		put_line(stdout, line, (size_t)(end - line), w->ws_col);
		putchar('\n');
	}
	fputs("\033[J", stdout);
}

static void keep_chosen_in_sight(struct top *t, unsigned lines)
{
	if (t->chosen >= t->rows.n)
		t->chosen = t->rows.n ? t->rows.n - 1 : 0;
	if (t->chosen < t->first)
		t->first = t->chosen;
	if (lines && t->chosen >= t->first + lines)
		t->first = t->chosen - lines + 1;
	if (t->first >= t->rows.n)
		t->first = 0;
}

static void top_compose(struct top *t, FILE *f, const struct winsize *w)
{
	struct top_view v = top_view(t);
	unsigned n_head;

	v.colours = true;
	v.columns = w->ws_col;
	if (!t->status) {
		fprintf(f, "%s\n", t->problem);
		return;
	}
	n_head = top_print_head(f, &v);
	v.lines = w->ws_row > n_head + 3u ? w->ws_row - n_head - 3u : 1;
	keep_chosen_in_sight(t, v.lines);
	v.first = t->first;
	v.chosen = t->chosen;
	if (t->help)
		fputs(top_help, f);
	else if (t->detail && t->rows.n)
		top_print_detail(f, &v, &t->rows.row[t->chosen]);
	else
		top_print_table(f, &v);
}

static void top_draw(struct top *t)
{
	struct winsize w = { .ws_row = 24, .ws_col = 80 };
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 || !w.ws_row || !w.ws_col)
		w = (struct winsize){ .ws_row = 24, .ws_col = 80 };
	if (!f)
		return;
	top_compose(t, f, &w);
	if (fclose(f) == 0)
		put_text(text, &w);
	free(text);
	printf("\033[%d;1H\033[K", w.ws_row);
	if (t->problem[0] && t->status) {
		ctl_make_printable(t->problem);
		put_line(stdout, t->problem, strlen(t->problem), w.ws_col);
	} else {
		put_line(stdout, t->paused ? "paused; p goes on" : "h help  q quit", t->paused ? 17 : 14, w.ws_col);
	}
	fflush(stdout);
}

static void top_take_key(struct top *t, const char *key, size_t n)
{
	static const char sorts[] = "lwrj";
	const char *sort = n == 1 ? strchr(sorts, key[0]) : NULL;
	bool up = (n == 1 && key[0] == 'k') || (n >= 3 && !memcmp(key, "\033[A", 3));
	bool down = (n == 1 && key[0] == 'n') || (n >= 3 && !memcmp(key, "\033[B", 3));

	if (sort && *sort) {
		t->sort = (unsigned)(sort - sorts);
		t->chosen = 0;
	} else if (up) {
		t->chosen -= t->chosen > 0;
	} else if (down) {
		t->chosen++;
	} else if (n == 1 && (key[0] == '\n' || key[0] == '\r')) {
		t->detail = true;
	} else if (n == 1 && key[0] == '\033') {
		t->detail = t->help = false;
	} else if (n == 1 && key[0] == 'p') {
		t->paused = !t->paused;
	} else if (n == 1 && (key[0] == 'h' || key[0] == '?')) {
		t->help = !t->help;
	} else if (n == 1 && (key[0] == 'q' || key[0] == 3)) {
		t->ended = true;
	}
}

/* Takes keys until it is time to look again, or some were pressed; several can come at once. */
static void top_wait(struct top *t, uint64_t until_ns)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	uint64_t now = progress_now_ns();
	char key[16];
	ssize_t n;

	if (poll(&in, 1, until_ns > now ? (int)((until_ns - now) / 1000000) + 1 : 0) <= 0)
		return;
	n = read(STDIN_FILENO, key, sizeof key);
	if (n <= 0)
		t->ended = true; /* the terminal is gone */
	for (ssize_t at = 0, length; at < n; at += length) {
		bool sequence = n - at >= 3 && key[at] == '\033' && strchr("[O", key[at + 1]);

		length = sequence ? 3 : 1;
		top_take_key(t, key + at, (size_t)length);
	}
}

static void screen_begin(void)
{
	struct termios raw;

	tcgetattr(STDIN_FILENO, &top_before);
	raw = top_before;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	fputs("\033[?1049h\033[?25l", stdout);
}

static void screen_end(void)
{
	fputs("\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	tcsetattr(STDIN_FILENO, TCSANOW, &top_before);
}

static int top_run_screen(struct top *t)
{
	uint64_t next_ns = 0, looks = 0;
	int code = CTL_OK, r = top_look(t);

	if (r < 0) {
		ctl_complain("top", "%s", t->problem);
		return ctl_exit_of(r) == CTL_FAILED ? CTL_UNKNOWN : ctl_exit_of(r);
	}
	screen_begin();
	next_ns = t->at_ns + t->interval_ns;
	while (!t->ended && !top_signal && code == CTL_OK) {
		code = top_arrange(t);
		top_draw(t);
		if (++looks && t->n && looks > t->n)
			break;
		top_wait(t, next_ns);
		if (progress_now_ns() >= next_ns) {
			if (!t->paused)
				top_look(t); /* a daemon that is away may come back */
			next_ns = progress_now_ns() + t->interval_ns;
		}
	}
	screen_end();
	return code;
}

int top_main(int argc, char **argv)
{
	struct top t = { .interval_ns = 1000000000u };
	const struct option_spec specs[] = {
		{ "socket", OPTION_TEXT, &t.socket, "PATH",
		  "ask the daemon at PATH (default $BATCHD_SOCKET, then your own, then the system's)", 0, 0, NULL },
		{ "interval", OPTION_DURATION, &t.interval_ns, "TIME", "between two looks", 50000000u, 0, NULL },
		{ "n", OPTION_NUMBER, &t.n, "N", "so many looks, then end", 1, UINT64_MAX, NULL },
		{ "sort", OPTION_CHOICE, &t.sort, "BY", "lost, wait, rate or job", 0, 0, top_sort_names },
		{ "job", OPTION_TEXT, &t.job, "JOB", "only this job's trainers", 0, 0, NULL },
		{ "plain", OPTION_FLAG, &t.plain, NULL, "lines instead of a screen, as in a pipe", 0, 0, NULL },
		{ "json", OPTION_FLAG, &t.json, NULL, "a line of JSON for each look", 0, 0, NULL },
		{ 0 },
	};
	const struct command cmd = {
		"top",
		"",
		"Shows trainers live, the one that loses most time to its input first.",
		"Keys: l w r j sort, arrows and Enter look into a trainer, p pauses, h helps, q quits.",
		0,
	};
	struct sigaction stop = { .sa_handler = top_on_signal };
	int code;

	if (!command_parse(&cmd, specs, argc, argv, NULL, &code))
		return code;
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGHUP, &stop, NULL);
	if (!t.plain && !t.json && isatty(STDOUT_FILENO) && isatty(STDIN_FILENO))
		code = top_run_screen(&t);
	else
		code = top_run_lines(&t);
	json_decref(t.status);
	json_decref(t.last);
	top_rows_finish(&t.rows);
	return code;
}
