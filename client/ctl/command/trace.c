/* batchctl trace: records what the daemon does for a while, as a file that Perfetto and chrome://tracing open.
 *
 * Tracks: a thread for each ring of the recording, a track of batches, from a slot's begin to its batch's publication,
 * with an arrow from the last rows to the trainer that gets the batch, and counters. Times are those of CLOCK_REALTIME,
 * as in the files of torch.profiler, so that --merge only has to put both into one list. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "batchd.h"
#include "ctl/ctl.h"
#include "ctl/term/options.h"
#include "recording.h"

enum { PID = 1000000000, TRAINERS = 100, COUNTERS = 99 }; /* of the file: no real process has this number */

struct trace_row {
	const struct trace_event *event;
	unsigned ring;
};

struct trace {
	const char *socket, *out, *merge;
	uint64_t ns;
	bool json;

	const struct trace_memory *memory;
	struct trace_row *row; /* all events by time */
	size_t n_rows;
	double base_us;   /* what the file's times are counted from; with --merge the other file's */
	double offset_ns; /* of CLOCK_REALTIME over CLOCK_MONOTONIC */
	json_t *root, *events;
	size_t n_lost;
};

static int by_time(const void *a, const void *b)
{
	uint64_t x = ((const struct trace_row *)a)->event->begin_ns, y = ((const struct trace_row *)b)->event->begin_ns;

	return (x > y) - (x < y);
}

/* The client library's copy is checked here: a damaged count must not lead beyond a ring. */
static int trace_sort(struct trace *t)
{
	size_t n = 0;

	if (t->memory->magic != TRACE_MAGIC || t->memory->n_rings != TRACE_RINGS) {
		ctl_complain("trace",
			     "the daemon's recording has an unknown form; batchctl and batchd differ in version");
		return CTL_FAILED;
	}
	t->row = calloc((size_t)TRACE_RINGS * TRACE_EVENTS, sizeof *t->row);
	if (!t->row) {
		ctl_complain("trace", "not enough memory");
		return CTL_FAILED;
	}
	for (unsigned r = 0; r < TRACE_RINGS; r++) {
		uint32_t most = atomic_load(&t->memory->ring[r].n);

		t->n_lost += atomic_load(&t->memory->ring[r].n_lost);
		for (uint32_t i = 0; i < most && i < TRACE_EVENTS; i++)
			t->row[n++] = (struct trace_row){ &t->memory->ring[r].event[i], r };
	}
	t->n_rows = n;
	qsort(t->row, n, sizeof *t->row, by_time);
	return CTL_OK;
}

/* ---- events ---- */

static double us(const struct trace *t, uint64_t ns)
{
	return ((double)ns + t->offset_ns) / 1000 - t->base_us;
}

/* Takes args. */
static json_t *put_event(struct trace *t, const char *phase, const char *name, double at_us, int tid, json_t *args)
{
	json_t *e = json_pack("{s:s, s:s, s:s, s:f, s:i, s:i, s:o*}", "ph", phase, "name", name, "cat", "batchd", "ts",
			      at_us, "pid", PID, "tid", tid, "args", args);

	json_array_append_new(t->events, e);
	return e;
}

static void put_name(struct trace *t, const char *what, int tid, const char *name)
{
	put_event(t, "M", what, 0, tid, json_pack("{s:o}", "name", ctl_json_text(name)));
}

/* The stages of a row, one after the other: a decoder and its ops take turns, and only their sums are known. */
static void put_stages(struct trace *t, const struct trace_row *row)
{
	static const char *const names[] = { "read", "decode", "transform" };
	const struct trace_event *e = row->event;
	uint64_t all = e->end_ns > e->begin_ns ? e->end_ns - e->begin_ns : 0, at = 0;
	uint64_t ns[] = { (e->b >> 32) * TRACE_STEP_NS, (e->b & UINT32_MAX) * TRACE_STEP_NS, all };

	for (unsigned i = 0; i < 3; i++) {
		uint64_t n = ns[i] < all - at ? ns[i] : all - at;
		json_t *span = put_event(t, "X", names[i], us(t, e->begin_ns + at), (int)row->ring + 1,
					 json_pack("{s:I, s:I}", "batch", (json_int_t)e->a, "row", (json_int_t)e->c));

		json_object_set_new(span, "dur", json_real((double)n / 1000));
		at += n;
	}
}

static void put_span(struct trace *t, const struct trace_row *row, const char *name)
{
	const struct trace_event *e = row->event;
	json_t *span = put_event(t, "X", name, us(t, e->begin_ns), (int)row->ring + 1,
				 json_pack("{s:I, s:I, s:I}", "batch", (json_int_t)e->a, "row", (json_int_t)e->c,
					   "rows", (json_int_t)e->b));

	json_object_set_new(span, "dur", json_real((double)(e->end_ns - e->begin_ns) / 1000));
}

/* Slots that are in work or hold a batch that no trainer has been given. */
struct open_batch {
	uint64_t slot, generation, id;
	const struct trace_row *rows; /* the last that were made */
	bool ready;
};
enum { MOST_OPEN = 4096 };

struct batches {
	struct open_batch open[MOST_OPEN];
	unsigned n_open, n_ready;
	uint64_t n;
};

static struct open_batch *find_open(struct batches *b, uint64_t slot)
{
	for (unsigned i = 0; i < b->n_open; i++)
		if (b->open[i].slot == slot)
			return &b->open[i];
	return NULL;
}

static void put_life(struct trace *t, const char *phase, const struct open_batch *b, double at_us)
{
	char id[32];
	json_t *e = put_event(t, phase, "batch", at_us, COUNTERS, NULL);

	snprintf(id, sizeof id, "%" PRIu64, b->id);
	json_object_set_new(e, "id", json_string(id));
}

static void put_ready_count(struct trace *t, const struct batches *b, double at_us)
{
	put_event(t, "C", "batches ready", at_us, COUNTERS, json_pack("{s:i}", "ready", (int)b->n_ready));
}

static void begin_batch(struct trace *t, struct batches *b, const struct trace_event *e)
{
	struct open_batch *open = find_open(b, e->a);

	if (!open && b->n_open < MOST_OPEN)
		open = &b->open[b->n_open++];
	if (!open)
		return;
	b->n_ready -= open->ready;
	*open = (struct open_batch){ .slot = e->a, .generation = e->b, .id = ++b->n };
	put_life(t, "b", open, us(t, e->begin_ns));
}

/* An arrow needs an event at both ends: the rows' span, and a short one in the trainer's track. */
static void put_arrow(struct trace *t, const struct open_batch *b, const struct trace_event *e)
{
	double at = us(t, e->begin_ns);
	int trainer = TRAINERS + (int)(e->c % 1000000);
	json_t *given = put_event(t, "X", "given a batch", at, trainer,
				  json_pack("{s:I, s:I}", "batch", (json_int_t)e->a, "generation", (json_int_t)e->b));
	json_t *from, *to;

	json_object_set_new(given, "dur", json_real(5));
	if (!b->rows)
		return;
	from = put_event(t, "s", "row to trainer", us(t, b->rows->event->end_ns) - 0.001, (int)b->rows->ring + 1, NULL);
	to = put_event(t, "f", "row to trainer", at + 0.001, trainer, NULL);
	json_object_set_new(from, "id", json_integer((json_int_t)b->id));
	json_object_set_new(to, "id", json_integer((json_int_t)b->id));
	json_object_set_new(to, "bp", json_string("e"));
}

static void follow(struct trace *t, struct batches *b, const struct trace_row *row)
{
	const struct trace_event *e = row->event;
	struct open_batch *open = find_open(b, e->a);

	switch (e->kind) {
	case TRACE_ROWS:
		put_span(t, row, "rows");
		if (open && (!open->rows || open->rows->event->end_ns < e->end_ns))
			open->rows = row;
		break;
	case TRACE_READ:
		put_span(t, row, "read");
		break;
	case TRACE_STAGES:
		put_stages(t, row);
		break;
	case TRACE_BEGIN:
		begin_batch(t, b, e);
		break;
	case TRACE_READY:
		if (open && !open->ready) {
			open->ready = true;
			b->n_ready++;
			put_ready_count(t, b, us(t, e->begin_ns));
		}
		break;
	case TRACE_PUBLISH:
		if (!open)
			break;
		put_arrow(t, open, e);
		if (open->ready) { /* share: the first trainer ends its life here */
			put_life(t, "e", open, us(t, e->begin_ns));
			open->ready = false;
			b->n_ready--;
			put_ready_count(t, b, us(t, e->begin_ns));
		}
		break;
	default:
		break;
	}
}

static int put_all(struct trace *t)
{
	struct batches *b = calloc(1, sizeof *b);
	bool *named = calloc(1000000, sizeof *named);

	if (!b || !named) {
		free(b);
		free(named);
		ctl_complain("trace", "not enough memory");
		return CTL_FAILED;
	}
	put_name(t, "process_name", 0, "batchd");
	put_name(t, "thread_name", COUNTERS, "batches");
	for (unsigned r = 0; r < TRACE_RINGS; r++) {
		char name[TRACE_NAME_BYTES + 16];

		snprintf(name, sizeof name, "%.*s %u", TRACE_NAME_BYTES, t->memory->ring[r].name, r);
		if (atomic_load(&t->memory->ring[r].n))
			put_name(t, "thread_name", (int)r + 1, name);
	}
	for (size_t i = 0; i < t->n_rows; i++) {
		const struct trace_event *e = t->row[i].event;
		char name[48];

		if (e->kind == TRACE_PUBLISH && !named[e->c % 1000000]) {
			named[e->c % 1000000] = true;
			snprintf(name, sizeof name, "trainer, session %" PRIu64, e->c);
			put_name(t, "thread_name", TRAINERS + (int)(e->c % 1000000), name);
		}
		follow(t, b, &t->row[i]);
	}
	free(named);
	free(b);
	return CTL_OK;
}

/* ---- the file ---- */

/* The profiler's file counts from baseTimeNanoseconds; older ones from the epoch of CLOCK_REALTIME. */
static int open_root(struct trace *t)
{
	json_error_t why;

	t->root = t->merge ? json_load_file(t->merge, 0, &why) : json_object();
	t->events = json_object_get(t->root, "traceEvents");
	if (t->merge && !json_is_array(t->events)) {
		ctl_complain("trace", "'%s' is no trace: %s", t->merge, t->root ? "it has no traceEvents" : why.text);
		return CTL_FAILED;
	}
	if (!t->merge) { /* from now, so that times have few digits */
		json_object_set_new(t->root, "baseTimeNanoseconds", json_integer((json_int_t)time(NULL) * 1000000000));
		json_object_set_new(t->root, "displayTimeUnit", json_string("ms"));
		json_object_set_new(t->root, "traceEvents", json_array());
		t->events = json_object_get(t->root, "traceEvents");
	}
	t->base_us = json_number_value(json_object_get(t->root, "baseTimeNanoseconds")) / 1000;
	return CTL_OK;
}

static void note_clock(struct trace *t)
{
	struct timespec real, mono;

	clock_gettime(CLOCK_MONOTONIC, &mono);
	clock_gettime(CLOCK_REALTIME, &real);
	t->offset_ns = ((double)real.tv_sec - (double)mono.tv_sec) * 1e9 + (double)(real.tv_nsec - mono.tv_nsec);
	json_object_set_new(t->root, "batchd",
			    json_pack("{s:f, s:I}", "realtime_minus_monotonic_ns", t->offset_ns, "events_lost",
				      (json_int_t)t->n_lost));
}

static int trace_write(struct trace *t)
{
	size_t n = t->n_rows;

	if (json_dump_file(t->root, t->out, JSON_COMPACT) < 0) {
		ctl_complain("trace", "cannot write '%s': %s", t->out, strerror(errno));
		return CTL_FAILED;
	}
	if (t->json)
		return ctl_print_json("trace", json_pack("{s:o, s:I, s:I}", "file", ctl_json_text(t->out), "events",
							 (json_int_t)n, "lost", (json_int_t)t->n_lost));
	printf("%s: %zu events, %zu lost; open it at https://ui.perfetto.dev\n", t->out, n, t->n_lost);
	return ctl_flush("trace");
}

/* A file that cannot be written is known before the recording. It is not emptied: the recording may fail. */
static int trace_try_out(const struct trace *t, bool *is_new)
{
	int fd = open(t->out, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	*is_new = fd >= 0;
	if (fd < 0)
		fd = open(t->out, O_WRONLY | O_CLOEXEC);
	if (fd < 0) {
		ctl_complain("trace", "cannot write '%s': %s", t->out, strerror(errno));
		return CTL_FAILED;
	}
	close(fd);
	return CTL_OK;
}

static void on_interrupt(int number)
{
	(void)number;
}

/* Ctrl-C ends the recording, which is then written; a second one ends the program. */
static int trace_record(struct trace *t)
{
	struct sigaction interrupt = { .sa_handler = on_interrupt, .sa_flags = SA_RESETHAND }, before;
	char err[1024] = "";
	void *memory;
	size_t n;
	int r;

	sigaction(SIGINT, &interrupt, &before);
	r = batchd_trace(t->socket, (unsigned)(t->ns / 1000000), &memory, &n, err, sizeof err);
	sigaction(SIGINT, &before, NULL);

	t->memory = memory;
	if (r == 0)
		return CTL_OK;
	ctl_complain("trace", "%s", *err ? err : batchd_code_name(r));
	return ctl_exit_of(r);
}

/* What was recorded is written alone where it cannot be merged: a recording may have been long. */
static int trace_make(struct trace *t)
{
	int merged = open_root(t), code = CTL_OK;

	if (merged != CTL_OK) {
		json_decref(t->root);
		t->merge = NULL;
		code = open_root(t);
	}
	if (code == CTL_OK) {
		note_clock(t);
		code = put_all(t);
	}
	if (code == CTL_OK)
		code = trace_write(t);
	return code == CTL_OK ? merged : code;
}

int trace_main(int argc, char **argv)
{
	struct trace t = { .out = "batchd-trace.json", .ns = 5000000000u };
	const struct option_spec specs[] = {
		{ "time", OPTION_DURATION, &t.ns, "TIME", "how long to record", 1000000u, 0, NULL },
		{ "out", OPTION_TEXT, &t.out, "FILE", "the file to write", 0, 0, NULL },
		{ "merge", OPTION_TEXT, &t.merge, "FILE", "put it together with this file of torch.profiler", 0, 0,
		  NULL },
		{ "socket", OPTION_TEXT, &t.socket, "PATH",
		  "ask the daemon at PATH (default $BATCHD_SOCKET, then your own, then the system's)", 0, 0, NULL },
		{ "json", OPTION_FLAG, &t.json, NULL, "the result as JSON", 0, 0, NULL },
		{ 0 },
	};
	const struct command cmd = {
		"trace",
		"",
		"Records what the daemon does, as a file for Perfetto or chrome://tracing.",
		"Only the daemon's own user and root may. Ctrl-C ends the recording early. A merged file shows\n"
		"the trainer's profile on the same clock; it is read after the recording, so a profiler may write it meanwhile.",
		0,
	};
	bool is_new = false;
	int code;

	if (!command_parse(&cmd, specs, argc, argv, NULL, &code))
		return code;
	code = trace_try_out(&t, &is_new);
	if (code == CTL_OK)
		code = trace_record(&t);
	if (code != CTL_OK && is_new)
		unlink(t.out);
	if (code == CTL_OK)
		code = trace_sort(&t);
	if (code == CTL_OK)
		code = trace_make(&t);
	json_decref(t.root);
	free(t.row);
	free((void *)(uintptr_t)t.memory);
	return code;
}
