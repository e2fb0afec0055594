/* `batchctl tune --job NAME`: the data set and the pipeline of a job that runs, and its own figures beside the
 * measurements. The measurements have daemons of their own, so the job keeps its settings; the two share the machine,
 * which the report says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "batchd.h"
#include "ctl/bench/bench.h"
#include "ctl/ctl.h"
#include "ctl/term/progress.h"
#include "ctl/tune/tune.h"

#define BASELINE_NS 2000000000u

/* A reference to the daemon's state; NULL: it complained, and *code says how. */
static json_t *ask_status(const struct tune *t, int *code)
{
	char err[1024] = "", *text = NULL;
	int r = batchd_status(t->socket, &text, err, sizeof err);
	json_t *status = r < 0 ? NULL : json_loads(text, 0, NULL);

	free(text);
	if (r < 0)
		ctl_complain("tune", "%s", *err ? err : batchd_code_name(r));
	*code = r < 0 ? ctl_exit_of(r) : status ? CTL_OK : CTL_FAILED;
	return status;
}

/* Of the job of that name whose data this user may see; NULL: there is none. Borrowed. */
static const json_t *find_job(const json_t *status, const char *name)
{
	const json_t *loader, *found = NULL;
	size_t i;

	json_array_foreach (json_object_get(status, "loaders"), i, loader) {
		const char *job = json_string_value(json_object_get(loader, "job"));
		bool own = json_integer_value(json_object_get(loader, "uid")) == (json_int_t)geteuid();

		if (job && !strcmp(job, name) && json_object_get(loader, "dataset") && (!found || own))
			found = loader;
	}
	return found;
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : "";
}

/* Data that only the job's trainers have: no other process can open it. NULL: another daemon can. */
static const char *why_not(const json_t *loader)
{
	const char *dataset = text_of(loader, "dataset");

	if (json_is_true(json_object_get(loader, "served")))
		return "its batches are made by a producer, which has no settings to measure";
	if (!strncmp(dataset, "memory:", 7) || !strncmp(dataset, "arrow:", 6))
		return "its data is memory of its trainers, which no other process can open; save it as a file and tune that";
	if (!strchr(dataset, ':') && dataset[0] != '/')
		return "its data set is a name in the daemon's configuration; give tune its place instead of the job";
	return NULL;
}

static int take_settings(struct tune *t, const json_t *loader)
{
	struct tune_job *j = &t->job;
	const char *problem = why_not(loader), *transform = text_of(loader, "transform");

	if (problem) {
		ctl_complain("tune", "job '%s' (%s) cannot be measured: %s", j->name, text_of(loader, "dataset"),
			     problem);
		return CTL_FAILED;
	}
	j->dataset = strdup(text_of(loader, "dataset"));
	j->transform = *transform ? strdup(transform) : NULL;
	snprintf(j->dtype, sizeof j->dtype, "%s", text_of(loader, "dtype"));
	snprintf(j->layout, sizeof j->layout, "%s", text_of(loader, "layout"));
	if (strcmp(j->dtype, "uint8") != 0 && strcmp(j->dtype, "float16") != 0 && strcmp(j->dtype, "float32") != 0)
		j->dtype[0] = '\0'; /* arrays have a type of their own */
	if (strcmp(j->layout, "NCHW") != 0 && strcmp(j->layout, "NHWC") != 0)
		j->layout[0] = '\0';
	t->dataset = j->dataset;
	t->transform = j->transform;
	t->batch_size = (uint64_t)json_integer_value(json_object_get(loader, "batch_size"));
	return j->dataset ? CTL_OK : CTL_FAILED;
}

/* The verdict of the job's trainer that has waited longest. */
static void take_verdict(struct tune_job *j, const json_t *status)
{
	const json_t *session;
	double most = -1;
	size_t i;

	json_array_foreach (json_object_get(status, "sessions"), i, session) {
		const char *text = text_of(json_object_get(session, "verdict"), "text");
		double wait_s = bench_number(session, "wait_s");

		if (strcmp(text_of(session, "job"), j->name) != 0 || !*text || wait_s <= most)
			continue;
		most = wait_s;
		snprintf(j->verdict, sizeof j->verdict, "%s", text);
	}
}

static void begin_span(struct tune_job *j, const json_t *loader)
{
	j->at_ns = progress_now_ns();
	j->delivered = bench_number(loader, "samples_delivered");
}

static double end_span(const struct tune_job *j, const json_t *loader)
{
	double seconds = (double)(progress_now_ns() - j->at_ns) / 1e9;

	return loader && seconds > 0 ? (bench_number(loader, "samples_delivered") - j->delivered) / seconds : -1;
}

int tune_job_begin(struct tune *t)
{
	int code;
	json_t *status = ask_status(t, &code);
	const json_t *loader = find_job(status, t->job.name);

	if (status && !loader) {
		ctl_complain("tune", "you have no job named '%s'; 'batchctl status' lists the jobs", t->job.name);
		code = CTL_UNKNOWN;
	}
	if (loader)
		code = take_settings(t, loader);
	if (code == CTL_OK) {
		begin_span(&t->job, loader);
		json_decref(status);
		nanosleep(&(struct timespec){ .tv_sec = BASELINE_NS / 1000000000u }, NULL);
		status = ask_status(t, &code);
		loader = find_job(status, t->job.name);
		t->job.before = end_span(&t->job, loader);
		take_verdict(&t->job, status);
		if (loader)
			begin_span(&t->job, loader);
	}
	json_decref(status);
	return code;
}

void tune_job_end(struct tune *t)
{
	char *text = NULL;
	json_t *status = batchd_status(t->socket, &text, NULL, 0) < 0 ? NULL : json_loads(text, 0, NULL);

	t->job.beside = end_span(&t->job, find_job(status, t->job.name));
	free(text);
	json_decref(status);
}

void tune_job_print(const struct tune *t)
{
	const struct tune_job *j = &t->job;

	printf("Job %s: %.0f images/s before the measurements", j->name, j->before);
	if (j->beside >= 0)
		printf(", %.0f beside them, as they share the machine", j->beside);
	else
		printf("; it has ended since");
	printf("\n");
	if (*j->verdict)
		printf("  %s\n", j->verdict);
	printf("\n");
}

json_t *tune_job_json(const struct tune *t)
{
	const struct tune_job *j = &t->job;

	return json_pack("{s:o, s:f, s:f, s:o}", "name", ctl_json_text(j->name), "images_per_s", j->before,
			 "images_per_s_beside", j->beside, "verdict", ctl_json_text(j->verdict));
}

void tune_job_finish(struct tune *t)
{
	free(t->job.dataset);
	free(t->job.transform);
}
