/* See rows.h. */
#include "ctl/top/rows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"

const char *const top_state_names[TOP_N_STATES] = {
	[TOP_READ] = "read",     [TOP_DECODE] = "decode", [TOP_TRANSFORM] = "transform", [TOP_COPY] = "gpu_copy",
	[TOP_ORDER] = "order",   [TOP_PEER] = "peer",     [TOP_PRODUCER] = "producer",   [TOP_BUSY] = "busy",
	[TOP_MEMORY] = "memory", [TOP_IDLE] = "idle",
};
const char *const top_sort_names[TOP_N_SORTS + 1] = { "lost", "wait", "rate", "job", NULL };

static const char *top_text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static double top_number(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

static void copy_text(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from);
	ctl_make_printable(to);
}

/* The object of a list whose key has the number, and the text if that is not NULL. */
static const json_t *find_in(const json_t *list, const char *key, double number, const char *text_key, const char *text)
{
	const json_t *one;
	size_t i;

	json_array_foreach (list, i, one)
		if ((!key || top_number(one, key) == number) && (!text || !strcmp(top_text(one, text_key), text)))
			return one;
	return NULL;
}

/* Shares of the last 10 seconds, and the seconds lost in all. Without a clock: waiting or not, since it connected. */
static void read_clock(struct top_row *r, const json_t *session)
{
	const json_t *clock = json_object_get(session, "clock"), *seconds = json_object_get(clock, "seconds");
	const json_t *shares = json_object_get(json_object_get(clock, "shares"), "last_10s");
	double connected = top_number(session, "connected_s"), waited = top_number(session, "wait_s");

	r->cause = -1;
	r->has_clock = json_is_object(shares);
	if (!r->has_clock) {
		r->wait = connected > 0 && waited <= connected ? waited / connected : 0;
		r->share[TOP_BUSY] = 1 - r->wait;
		r->lost_s = waited;
		return;
	}
	for (int s = 0; s < TOP_N_STATES; s++)
		r->share[s] = top_number(shares, top_state_names[s]);
	for (int s = 0; s < TOP_N_STARVED; s++) {
		r->wait += r->share[s];
		r->lost_s += top_number(seconds, top_state_names[s]);
		if (r->share[s] > 0.005 && (r->cause < 0 || r->share[s] > r->share[r->cause]))
			r->cause = s;
	}
}

static double images_per_s(const json_t *session, const json_t *loader, const json_t *before, double seconds)
{
	double rows = top_number(session, "batch_size"), n = top_number(session, "batches");

	if (rows <= 0)
		rows = top_number(loader, "batch_size");
	if (!before)
		seconds = top_number(session, "connected_s");
	else
		n -= top_number(before, "batches");
	return seconds > 0 && n > 0 ? n * rows / seconds : 0;
}

static void read_session(struct top_row *r, const json_t *status, const json_t *session, const json_t *last,
			 double seconds)
{
	const char *job = top_text(session, "job");
	const json_t *loader = find_in(json_object_get(status, "loaders"), NULL, 0, "job", job), *stream;
	const json_t *before = find_in(json_object_get(last, "sessions"), "id", top_number(session, "id"), NULL, NULL);

	*r = (struct top_row){ .rank = (int)top_number(session, "rank"),
			       .pid = (long)top_number(session, "pid"),
			       .uid = (long)top_number(session, "uid"),
			       .stalled = json_is_true(json_object_get(session, "stalled")) };
	copy_text(r->job, sizeof r->job, job);
	copy_text(r->program, sizeof r->program, top_text(session, "program"));
	copy_text(r->state, sizeof r->state, r->stalled ? "stalled" : top_text(session, "state"));
	read_clock(r, session);
	r->images_per_s = images_per_s(session, loader, before, seconds);
	stream = find_in(json_object_get(loader, "streams"), "rank", r->rank, NULL, NULL);
	if (!stream) /* share: one stream for all */
		stream = json_array_get(json_object_get(loader, "streams"), 0);
	r->ready = top_number(stream, "ready");
	r->window = top_number(stream, "window");
}

int top_rows_make(struct top_rows *rows, const json_t *status, const json_t *last, double seconds, const char *job)
{
	const json_t *sessions = json_object_get(status, "sessions"), *session;
	size_t i;

	*rows = (struct top_rows){ .row = calloc(json_array_size(sessions) + 1, sizeof *rows->row) };
	if (!rows->row)
		return -ENOMEM;
	json_array_foreach (sessions, i, session) {
		if (job && strcmp(top_text(session, "job"), job) != 0)
			continue;
		read_session(&rows->row[rows->n++], status, session, last, seconds);
	}
	return 0;
}

static int by_job(const struct top_row *a, const struct top_row *b)
{
	int order = strcmp(a->job, b->job);

	if (order)
		return order;
	return a->rank != b->rank ? (a->rank > b->rank) - (a->rank < b->rank) : (a->pid > b->pid) - (a->pid < b->pid);
}

/* The largest first; among equals by job and rank, so that rows stay where they are. */
static int by_number(const struct top_row *a, double x, const struct top_row *b, double y)
{
	return x != y ? (x < y) - (x > y) : by_job(a, b);
}

static int compare_lost(const void *a, const void *b)
{
	return by_number(a, ((const struct top_row *)a)->lost_s, b, ((const struct top_row *)b)->lost_s);
}

static int compare_wait(const void *a, const void *b)
{
	return by_number(a, ((const struct top_row *)a)->wait, b, ((const struct top_row *)b)->wait);
}

static int compare_rate(const void *a, const void *b)
{
	return by_number(a, ((const struct top_row *)a)->images_per_s, b, ((const struct top_row *)b)->images_per_s);
}

static int compare_job(const void *a, const void *b)
{
	return by_job(a, b);
}

void top_rows_sort(struct top_rows *rows, enum top_sort by)
{
	static int (*const compare[TOP_N_SORTS])(const void *, const void *) = { [TOP_BY_LOST] = compare_lost,
										 [TOP_BY_WAIT] = compare_wait,
										 [TOP_BY_RATE] = compare_rate,
										 [TOP_BY_JOB] = compare_job };

	qsort(rows->row, rows->n, sizeof *rows->row, compare[by]);
}

void top_rows_finish(struct top_rows *rows)
{
	free(rows->row);
	*rows = (struct top_rows){ .row = NULL };
}

static json_t *row_json(const struct top_row *r)
{
	json_t *shares = json_object();

	for (int s = 0; r->has_clock && s < TOP_N_STATES; s++)
		json_object_set_new(shares, top_state_names[s], json_real(r->share[s]));
	return json_pack("{s:o, s:i, s:I, s:I, s:o, s:o, s:f, s:f, s:f, s:s, s:i, s:i, s:o}", "job",
			 ctl_json_text(r->job), "rank", r->rank, "pid", (json_int_t)r->pid, "uid", (json_int_t)r->uid,
			 "program", ctl_json_text(r->program), "state", ctl_json_text(r->state), "wait", r->wait,
			 "lost_s", r->lost_s, "images_per_s", r->images_per_s, "cause",
			 r->cause < 0 ? "" : top_state_names[r->cause], "ready", (int)r->ready, "window",
			 (int)r->window, "shares", shares);
}

json_t *top_rows_json(const struct top_rows *rows)
{
	json_t *list = json_array();

	for (size_t i = 0; i < rows->n; i++)
		json_array_append_new(list, row_json(&rows->row[i]));
	return list;
}
