/* Progress in the form that suits its reader.
 *
 * The rate is that of the last seconds, not of the whole run: the first files come from a cold disk and the later ones
 * do not (or the other way round), and a remaining time from the overall average is wrong for most of the run. */
#include "ctl/term/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { BAR_WIDTH_MAX = 40 };

uint64_t progress_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

enum progress_style progress_style_for(bool json, bool quiet)
{
	if (quiet)
		return PROGRESS_QUIET;
	if (json)
		return PROGRESS_JSON;
	return isatty(STDERR_FILENO) ? PROGRESS_BAR : PROGRESS_LINES;
}

void progress_begin(struct progress *p, enum progress_style style, const char *phase, const char *unit, uint64_t total)
{
	uint64_t now = progress_now_ns();

	*p = (struct progress){ .style = style,
				.phase = phase,
				.unit = unit,
				.total = total,
				.begun_ns = now,
				.shown_ns = now,
				.mark_ns = now };
}

static uint64_t interval_ns(const struct progress *p)
{
	switch (p->style) {
	case PROGRESS_BAR:
		return 100000000u;
	case PROGRESS_JSON:
		return 1000000000u;
	default:
		return 5000000000u;
	}
}

static void measure_rate(struct progress *p, uint64_t now, uint64_t done)
{
	double seconds = (double)(now - p->mark_ns) / 1e9;
	double fresh;

	if (seconds < 0.5 && p->rate > 0)
		return;
	if (seconds <= 0 || done < p->mark_done)
		return;
	fresh = (double)(done - p->mark_done) / seconds;
	p->rate = p->rate > 0 ? 0.7 * p->rate + 0.3 * fresh : fresh;
	p->mark_ns = now;
	p->mark_done = done;
}

/* Writes ", 210/s, 35 s left", as far as it is known. */
static void format_pace(const struct progress *p, uint64_t done, char *buf, size_t size)
{
	int used = p->rate > 0 ? snprintf(buf, size, p->rate < 10 ? ", %.1f/s" : ", %.0f/s", p->rate) : 0;
	double s = p->rate > 0 && p->total > done ? (double)(p->total - done) / p->rate : 0;

	buf[used] = 0;
	if (p->rate <= 0 || p->total <= done)
		return;
	buf += used;
	size -= (size_t)used;
	if (s < 90)
		snprintf(buf, size, ", %.0f s left", s);
	else if (s < 5400)
		snprintf(buf, size, ", %.0f min left", s / 60);
	else
		snprintf(buf, size, ", %.1f h left", s / 3600);
}

static int bar_width(void)
{
	struct winsize w;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) != 0 || w.ws_col == 0)
		return 20;
	if (w.ws_col < 70)
		return 0;
	return w.ws_col - 60 < BAR_WIDTH_MAX ? w.ws_col - 60 : BAR_WIDTH_MAX;
}

static void show_bar(struct progress *p, uint64_t done)
{
	int width = p->total ? bar_width() : 0;
	int full = width ? (int)(done * (uint64_t)width / p->total) : 0;
	char pace[64];

	format_pace(p, done, pace, sizeof pace);
	fprintf(stderr, "\r%s ", p->phase);
	if (width) {
		fputc('[', stderr);
		for (int i = 0; i < width; i++)
			fputc(i < full ? '#' : '.', stderr);
		fputs("] ", stderr);
	}
	if (p->total)
		fprintf(stderr, "%" PRIu64 " of %" PRIu64 " %s%s\033[K", done, p->total, p->unit, pace);
	else
		fprintf(stderr, "%" PRIu64 " %s%s\033[K", done, p->unit, pace);
	p->shown = true;
}

static void show_line(const struct progress *p, uint64_t done)
{
	char pace[64];

	format_pace(p, done, pace, sizeof pace);
	if (p->total)
		fprintf(stderr, "%s: %" PRIu64 " of %" PRIu64 " %s (%" PRIu64 " %%)%s\n", p->phase, done, p->total,
			p->unit, done * 100 / p->total, pace);
	else
		fprintf(stderr, "%s: %" PRIu64 " %s%s\n", p->phase, done, p->unit, pace);
}

static void show_json(const struct progress *p, uint64_t done)
{
	fprintf(stderr,
		"{\"progress\": \"%s\", \"done\": %" PRIu64 ", \"total\": %" PRIu64
		", \"unit\": \"%s\", \"per_s\": %.1f}\n",
		p->phase, done, p->total, p->unit, p->rate);
}

void progress_update(struct progress *p, uint64_t done)
{
	uint64_t now;

	if (p->style == PROGRESS_QUIET)
		return;
	now = progress_now_ns();
	if (now - p->shown_ns < interval_ns(p))
		return;
	p->shown_ns = now;
	measure_rate(p, now, done);
	if (p->style == PROGRESS_BAR)
		show_bar(p, done);
	else if (p->style == PROGRESS_JSON)
		show_json(p, done);
	else
		show_line(p, done);
}

void progress_end(struct progress *p)
{
	if (p->shown)
		fputs("\r\033[K", stderr);
	p->shown = false;
}
