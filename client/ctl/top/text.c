/* See text.h. Lines are cut by the caller's screen; the table leaves out columns for which there is no room, the
 * least telling ones first. */
#include "ctl/top/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "ctl/doctor/nvml.h"
#include "ctl/command/transform-text.h"
#include "base/size.h"
#include "ctl/term/wrap.h"

enum { MOST_GPUS = 8, BAR = 40, LEAST_JOB = 14, MOST_JOB = 40 };

static const char *top_text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static double top_number_of(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

static const char *size_text(double bytes, char *buf, size_t size)
{
	return size_format(bytes > 0 ? (uint64_t)bytes : 0, buf, size);
}

/* ---- the head ---- */

static void print_caches(FILE *f, const json_t *status)
{
	const json_t *tier;
	char used[32];
	size_t i;

	json_array_foreach (json_object_get(status, "cache"), i, tier) {
		double hits = top_number_of(tier, "hits"), all = hits + top_number_of(tier, "misses");

		if (all <= 0)
			continue;
		fprintf(f, "  %s cache %s, %.0f %% hits", top_text_of(tier, "tier"),
			size_text(top_number_of(tier, "bytes"), used, sizeof used), 100 * hits / all);
	}
}

static unsigned print_gpus(FILE *f)
{
	struct nvml_gpu gpus[MOST_GPUS];
	unsigned n = nvml_read(gpus, MOST_GPUS);

	for (unsigned i = 0; i < n; i++) {
		ctl_make_printable(gpus[i].name);
		fprintf(f, "GPU %u %s: busy %u %%, memory %u %%", i, gpus[i].name, gpus[i].busy_percent,
			gpus[i].memory_percent);
		if (gpus[i].receives_mb_per_s >= 0)
			fprintf(f, ", receives %.0f MB/s", gpus[i].receives_mb_per_s);
		fputc('\n', f);
	}
	return n;
}

/* Of the job's trainer that loses most; NULL: it has none. */
static const json_t *verdict_of_job(const json_t *status, const char *job)
{
	const json_t *worst = NULL, *session;
	size_t i;

	json_array_foreach (json_object_get(status, "sessions"), i, session) {
		const json_t *verdict = json_object_get(session, "verdict");

		if (verdict && strcmp(top_text_of(session, "job"), job) == 0 &&
		    (!worst || top_number_of(verdict, "share") > top_number_of(worst, "share")))
			worst = verdict;
	}
	return worst;
}

/* The daemon's own sentence, of the trainer that loses most. */
static unsigned print_verdict(FILE *f, const struct top_view *v)
{
	const json_t *verdict = v->job ? verdict_of_job(v->status, v->job) : json_object_get(v->status, "verdict");
	const char *text = top_text_of(verdict, "text"), *job = v->job ? v->job : top_text_of(verdict, "job");
	char line[1024];

	if (!*text)
		return 0;
	snprintf(line, sizeof line, "%s%s%s%s", text, *job ? " [job " : "", job, *job ? "]" : "");
	ctl_make_printable(line);
	return wrap_put(f, line, 0, 2, v->columns);
}

static const char *const sorted_by[TOP_N_SORTS] = { "most time lost first", "longest wait first", "fastest first",
						    "by job" };

unsigned top_print_head(FILE *f, const struct top_view *v)
{
	const json_t *daemon = json_object_get(v->status, "daemon"), *workers = json_object_get(v->status, "workers");
	const json_t *memory = json_object_get(v->status, "memory");
	char used[32], all[32];
	double in_use = top_number_of(memory, "slots_bytes") + top_number_of(memory, "spare_bytes") +
			top_number_of(memory, "data_bytes") + top_number_of(memory, "cache_bytes");
	unsigned n = print_verdict(f, v);

	fprintf(f, "batchd %s  up %.0f s  %.0f of %.0f workers busy  %.0f of %.0f reading  %s of %s\n",
		top_text_of(daemon, "version"), top_number_of(daemon, "uptime_s"), top_number_of(workers, "busy"),
		top_number_of(workers, "target"), top_number_of(workers, "io_busy"),
		top_number_of(workers, "io_threads"), size_text(in_use, used, sizeof used),
		size_text(top_number_of(memory, "budget_bytes"), all, sizeof all));
	fprintf(f, "%zu trainer%s, %s", v->rows->n, v->rows->n == 1 ? "" : "s", sorted_by[v->sort]);
	print_caches(f, v->status);
	fputc('\n', f);
	return n + 2 + print_gpus(f);
}

/* ---- the table ---- */

/* Columns after the job, and at which width of the screen they appear. */
enum column { C_RANK, C_WAIT, C_CAUSE, C_LOST, C_READY, C_RATE, C_STATE, C_SHARES, C_PROGRAM, N_COLUMNS };
static const unsigned appears_at[N_COLUMNS] = { [C_STATE] = 78, [C_SHARES] = 132, [C_PROGRAM] = 152 };

static bool has_column(const struct top_view *v, enum column c)
{
	return !v->columns || v->columns >= appears_at[c];
}

static int job_width(const struct top_view *v)
{
	size_t longest = LEAST_JOB;

	for (size_t i = 0; i < v->rows->n; i++)
		if (strlen(v->rows->row[i].job) > longest)
			longest = strlen(v->rows->row[i].job);
	if (v->columns && v->columns < 100 && longest > LEAST_JOB)
		return LEAST_JOB;
	return longest > MOST_JOB ? MOST_JOB : (int)longest;
}

/* The text in exactly `width` columns; a byte that continues a character takes none. */
static void put_cell(FILE *f, const char *text, int width)
{
	int shown = 0;
	size_t n = 0;

	while (text[n]) {
		if ((text[n] & 0xc0) != 0x80 && shown++ == width)
			break;
		n++;
	}
	shown = shown > width ? width : shown;
	fprintf(f, "%.*s%*s", (int)n, text, width - shown, "");
}

static void print_shares(FILE *f, const struct top_row *r)
{
	static const enum top_state shown[] = { TOP_READ,  TOP_DECODE,   TOP_TRANSFORM, TOP_COPY,
						TOP_ORDER, TOP_PRODUCER, TOP_PEER,      TOP_MEMORY };

	for (unsigned i = 0; i < sizeof shown / sizeof *shown; i++) {
		if (r->has_clock && r->share[shown[i]] >= 0.005)
			fprintf(f, " %5.0f%%", 100 * r->share[shown[i]]);
		else
			fprintf(f, " %6s", r->has_clock ? "." : "-");
	}
}

static void print_row(FILE *f, const struct top_view *v, const struct top_row *r, int width)
{
	put_cell(f, r->job[0] ? r->job : "-", width);
	fprintf(f, " %4d %5.0f%% ", r->rank, 100 * r->wait);
	put_cell(f, r->cause < 0 ? "-" : top_state_names[r->cause], 9);
	fprintf(f, " %8.1f %5.0f/%-3.0f %8.0f", r->lost_s, r->ready, r->window, r->images_per_s);
	if (has_column(v, C_STATE)) {
		fputc(' ', f);
		put_cell(f, r->state, 9);
	}
	if (has_column(v, C_SHARES))
		print_shares(f, r);
	if (has_column(v, C_PROGRAM))
		fprintf(f, " %7ld %s", r->pid, r->program);
}

void top_print_table(FILE *f, const struct top_view *v)
{
	int width = job_width(v);
	size_t end = v->rows->n;

	if (v->lines && end - v->first > v->lines)
		end = v->first + v->lines;
	fputs(v->colours ? "\033[7m" : "", f);
	put_cell(f, "JOB", width);
	fprintf(f, " %4s %6s %-9s %8s %9s %8s", "RANK", "WAIT", "FOR", "LOST s", "READY/OF", "IMG/s");
	if (has_column(v, C_STATE))
		fprintf(f, " %-9s", "STATE");
	if (has_column(v, C_SHARES))
		fprintf(f, " %6s %6s %6s %6s %6s %6s %6s %6s", "READ", "DECODE", "XFORM", "COPY", "ORDER", "PRODUC",
			"PEER", "MEMORY");
	if (has_column(v, C_PROGRAM))
		fprintf(f, " %7s %s", "PID", "PROGRAM");
	fputs(v->colours ? "\033[K\033[0m\n" : "\n", f);
	for (size_t i = v->first; i < end; i++) {
		const struct top_row *r = &v->rows->row[i];

		if (v->colours && i == v->chosen)
			fputs("\033[1m", f);
		if (v->colours && r->stalled)
			fputs("\033[31m", f);
		print_row(f, v, r, width);
		fputs(v->colours ? "\033[0m\n" : "\n", f);
	}
	if (!v->rows->n)
		fputs("no trainers\n", f);
}

/* ---- one trainer ---- */

static const json_t *loader_of(const json_t *status, const char *job)
{
	const json_t *loader;
	size_t i;

	json_array_foreach (json_object_get(status, "loaders"), i, loader)
		if (!strcmp(top_text_of(loader, "job"), job))
			return loader;
	return NULL;
}

static void print_bars(FILE *f, const struct top_row *r)
{
	for (int s = 0; s < TOP_N_STATES; s++) {
		int n = (int)(r->share[s] * BAR + 0.5);

		fprintf(f, "  %-9s %5.1f%% ", top_state_names[s], 100 * r->share[s]);
		for (int i = 0; i < n; i++)
			fputc('#', f);
		fputc('\n', f);
	}
}

static void print_text(FILE *f, const char *name, const char *text)
{
	char *copy = *text ? strdup(text) : NULL;

	if (!copy)
		return;
	ctl_make_printable(copy);
	fprintf(f, "  %-9s %s\n", name, copy);
	free(copy);
}

void top_print_detail(FILE *f, const struct top_view *v, const struct top_row *r)
{
	const json_t *loader = loader_of(v->status, r->job), *bad = json_object_get(loader, "bad"), *stream, *one;
	char folded[160];
	size_t i;

	fprintf(f, "%s, rank %d: %s, process %ld\n", r->job, r->rank, r->state, r->pid);
	fprintf(f, "  waited %.1f s in all; of the last 10 s:\n", r->lost_s);
	print_bars(f, r);
	print_text(f, "program", r->program);
	print_text(f, "data set", top_text_of(loader, "dataset"));
	transform_text(top_text_of(loader, "transform"), folded, sizeof folded);
	print_text(f, "transform", folded);
	fprintf(f, "  %-9s batches of %.0f, %.0f made, %.0f delivered, %.0f bad samples\n", "rows",
		top_number_of(loader, "batch_size"), top_number_of(loader, "samples_decoded"),
		top_number_of(loader, "samples_delivered"), top_number_of(loader, "n_bad"));
	json_array_foreach (json_object_get(loader, "streams"), i, stream)
		fprintf(f, "  stream %-2.0f epoch %.0f, step %.0f: %.0f ready, %.0f making, %.0f held of %.0f%s%s\n",
			top_number_of(stream, "rank"), top_number_of(stream, "epoch"), top_number_of(stream, "step"),
			top_number_of(stream, "ready"), top_number_of(stream, "making"), top_number_of(stream, "held"),
			top_number_of(stream, "window"), *top_text_of(stream, "waiting_for") ? "; waits for " : "",
			top_text_of(stream, "waiting_for"));
	json_array_foreach (bad, i, one)
		print_text(f, "bad", top_text_of(one, "error"));
	print_text(f, "error", top_text_of(loader, "error"));
}
