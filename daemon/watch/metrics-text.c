/* See metrics-text.h. The names are an interface: boards and alerts are written with them. `run` is the job, because
 * `job` is a label of Prometheus' own. A job's name is unique among the jobs of one user alone, so `uid` is a label of
 * each series of a job: no user can change, or hide, the series of another. There are no labels of processes or paths,
 * so that the number of series stays small. */
#include "watch/metrics-text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

/* The metric in the making. */
struct metrics_out {
	FILE *f;
	const json_t *root;
};

static void metrics_begin(struct metrics_out *o, const char *name, const char *type, const char *help)
{
	fprintf(o->f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static double number_of(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

/* As the format wants it: backslash, quote and newline escaped. */
static void put_label(FILE *f, const char *name, const char *value)
{
	fprintf(f, "%s=\"", name);
	for (; *value; value++) {
		if (*value == '\n') {
			fputs("\\n", f);
			continue;
		}
		if (*value == '\\' || *value == '"')
			fputc('\\', f);
		fputc(*value, f);
	}
	fputc('"', f);
}

static void put_sample(struct metrics_out *o, const char *name, const char *label, const char *value, double n)
{
	fputs(name, o->f);
	if (label) {
		fputc('{', o->f);
		put_label(o->f, label, value);
		fputc('}', o->f);
	}
	fprintf(o->f, " %.15g\n", n);
}

/* The data set's configured name; of any other only its kind, as the rest is a path. */
static void dataset_label(const json_t *loader, char *text, size_t size)
{
	const char *dataset = text_of(loader, "dataset");

	snprintf(text, size, "%.*s", (int)strcspn(dataset, ":"), dataset);
}

/* name{dataset="...",run="...",uid="..."  : the caller adds what else there is, and "} value". */
static void begin_sample(struct metrics_out *o, const char *name, const json_t *loader)
{
	char dataset[128];

	dataset_label(loader, dataset, sizeof dataset);
	fprintf(o->f, "%s{", name);
	put_label(o->f, "dataset", dataset);
	fputc(',', o->f);
	put_label(o->f, "run", text_of(loader, "job"));
	fprintf(o->f, ",uid=\"%.0f\"", number_of(loader, "uid"));
}

static const json_t *loaders_of(const struct metrics_out *o)
{
	return json_object_get(o->root, "loaders");
}

static bool are_of_one_job(const json_t *a, const json_t *b)
{
	return !strcmp(text_of(a, "job"), text_of(b, "job")) && number_of(a, "uid") == number_of(b, "uid");
}

static const json_t *loader_of_session(const struct metrics_out *o, const json_t *session)
{
	const json_t *loader;
	size_t i;

	json_array_foreach (loaders_of(o), i, loader)
		if (are_of_one_job(loader, session))
			return loader;
	return NULL;
}

static void put_per_loader(struct metrics_out *o, const char *name, const char *type, const char *help, const char *key)
{
	const json_t *loader;
	size_t i;

	metrics_begin(o, name, type, help);
	json_array_foreach (loaders_of(o), i, loader) {
		begin_sample(o, name, loader);
		fprintf(o->f, "} %.15g\n", number_of(loader, key));
	}
}

static void put_samples(struct metrics_out *o)
{
	const json_t *loader;
	size_t i;

	metrics_begin(o, "batchd_samples_total", "counter", "Rows made for batches, by how they were made.");
	json_array_foreach (loaders_of(o), i, loader) {
		begin_sample(o, "batchd_samples_total", loader);
		fprintf(o->f, ",source=\"%s\"} %.15g\n",
			json_is_true(json_object_get(loader, "served")) ? "served" : "decode",
			number_of(loader, "samples_decoded"));
	}
	metrics_begin(o, "batchd_bad_samples_total", "counter", "Different samples that could not be decoded.");
	json_array_foreach (loaders_of(o), i, loader) {
		begin_sample(o, "batchd_bad_samples_total", loader);
		fprintf(o->f, ",reason=\"decode\"} %.15g\n", number_of(loader, "n_bad"));
	}
}

/* Batches of a producer are read by its own process. */
static void put_reads(struct metrics_out *o)
{
	static const char *const sources[][2] = { { "file", "file_bytes_read" }, { "array", "array_bytes_read" } };
	const json_t *loader;
	size_t i;

	metrics_begin(o, "batchd_read_bytes_total", "counter",
		      "Bytes of samples: read from files, or copied from arrays, which the kernel reads as it needs.");
	json_array_foreach (loaders_of(o), i, loader)
		for (unsigned k = 0; k < sizeof sources / sizeof *sources; k++) {
			begin_sample(o, "batchd_read_bytes_total", loader);
			fprintf(o->f, ",source=\"%s\"} %.15g\n", sources[k][0], number_of(loader, sources[k][1]));
		}
}

/* One of "rows" and "seconds" of each stage. */
static void put_stage_numbers(struct metrics_out *o, const char *name, const char *key)
{
	const json_t *loader, *numbers;
	const char *stage;
	size_t i;

	json_array_foreach (loaders_of(o), i, loader)
		json_object_foreach (json_object_get(loader, "stages"), stage, numbers) {
			begin_sample(o, name, loader);
			fputc(',', o->f);
			put_label(o->f, "stage", stage);
			fprintf(o->f, "} %.15g\n", number_of(numbers, key));
		}
}

static void put_stages(struct metrics_out *o)
{
	metrics_begin(o, "batchd_stage_seconds_total", "counter",
		      "Time of workers by stage, sampled while a trainer is attached.");
	put_stage_numbers(o, "batchd_stage_seconds_total", "seconds");
	metrics_begin(o, "batchd_stage_rows_total", "counter", "Rows made, beside batchd_stage_seconds_total.");
	put_stage_numbers(o, "batchd_stage_rows_total", "rows");
}

static void put_waits_of(struct metrics_out *o, const json_t *loader, const json_t *waits)
{
	const json_t *counts = json_object_get(waits, "count"), *limits = json_object_get(waits, "le_s");
	double sum = 0;

	for (size_t i = 0; i < json_array_size(counts); i++) {
		sum += json_number_value(json_array_get(counts, i));
		begin_sample(o, "batchd_wait_seconds_bucket", loader);
		if (i < json_array_size(limits))
			fprintf(o->f, ",le=\"%.15g\"} %.15g\n", json_number_value(json_array_get(limits, i)), sum);
		else
			fprintf(o->f, ",le=\"+Inf\"} %.15g\n", sum);
	}
	begin_sample(o, "batchd_wait_seconds_sum", loader);
	fprintf(o->f, "} %.15g\n", number_of(waits, "sum_s"));
	begin_sample(o, "batchd_wait_seconds_count", loader);
	fprintf(o->f, "} %.15g\n", sum);
}

static void put_waits(struct metrics_out *o)
{
	const json_t *loader;
	size_t i;

	metrics_begin(o, "batchd_wait_seconds", "histogram", "How long trainers were blocked for a batch.");
	json_array_foreach (loaders_of(o), i, loader)
		put_waits_of(o, loader, json_object_get(loader, "waits"));
}

/* Of each trainer, the seconds in each state of its clock; they sum to its time. */
static void put_clocks(struct metrics_out *o)
{
	const json_t *session, *seconds;
	const char *state;
	size_t i;

	metrics_begin(o, "batchd_stream_seconds_total", "counter",
		      "Time of a trainer by state: busy (input is not the limit), or what its next batch waits for.");
	json_array_foreach (json_object_get(o->root, "sessions"), i, session) {
		const json_t *loader = loader_of_session(o, session);
		const json_t *total = json_object_get(json_object_get(session, "clock"), "seconds");

		if (!loader)
			continue;
		json_object_foreach ((json_t *)total, state, seconds) {
			begin_sample(o, "batchd_stream_seconds_total", loader);
			fprintf(o->f, ",rank=\"%d\",", (int)number_of(session, "rank"));
			put_label(o->f, "state", state);
			fprintf(o->f, "} %.15g\n", json_number_value(seconds));
		}
	}
}

static void put_slots(struct metrics_out *o)
{
	static const char *const states[] = { "ready", "making", "held" };
	double n[3] = { 0 }, window = 0;
	const json_t *loader, *stream;
	size_t i, k;

	json_array_foreach (loaders_of(o), i, loader)
		json_array_foreach (json_object_get(loader, "streams"), k, stream) {
			for (unsigned s = 0; s < 3; s++)
				n[s] += number_of(stream, states[s]);
			window += number_of(stream, "window");
		}
	metrics_begin(o, "batchd_slots", "gauge", "Places for batches, by state.");
	for (unsigned s = 0; s < 3; s++) {
		put_sample(o, "batchd_slots", "state", states[s], n[s]);
		window -= n[s];
	}
	put_sample(o, "batchd_slots", "state", "free", window > 0 ? window : 0);
}

static void put_workers(struct metrics_out *o)
{
	const json_t *workers = json_object_get(o->root, "workers");
	double busy = number_of(workers, "busy"), target = number_of(workers, "target"),
	       max = number_of(workers, "max");

	metrics_begin(o, "batchd_workers", "gauge",
		      "Threads that make rows, by state; parked: the tuner holds them back.");
	put_sample(o, "batchd_workers", "state", "busy", busy);
	put_sample(o, "batchd_workers", "state", "idle", target > busy ? target - busy : 0);
	put_sample(o, "batchd_workers", "state", "parked", max > target ? max - target : 0);
}

static void put_file_systems(struct metrics_out *o)
{
	const json_t *list = json_object_get(o->root, "file_systems"), *f;
	double longest = 0;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)list, i, f) {
		double s = number_of(f, "longest_s");
		longest = s > longest ? s : longest;
	}
	metrics_begin(
		o, "batchd_longest_read_seconds", "gauge",
		"How long the read or the opening that is at work for longest has been; it grows while a file system "
		"hangs.");
	put_sample(o, "batchd_longest_read_seconds", NULL, NULL, longest);
}

static void put_memory(struct metrics_out *o)
{
	const json_t *memory = json_object_get(o->root, "memory"), *tier;
	static const char *const uses[][2] = { { "slots", "slots_bytes" },
					       { "spare", "spare_bytes" },
					       { "data", "data_bytes" },
					       { "caches", "cache_bytes" },
					       { "work", "work_bytes" } };
	static const char *const tiers[][4] = {
		{ "batchd_cache_bytes", "gauge", "Memory of a cache.", "bytes" },
		{ "batchd_cache_hits_total", "counter", "Samples that a cache had.", "hits" },
		{ "batchd_cache_misses_total", "counter", "Samples that a cache did not have.", "misses" }
	};
	size_t i;

	metrics_begin(o, "batchd_budget_bytes", "gauge", "Memory in use, of the daemon's budget.");
	for (unsigned k = 0; k < sizeof uses / sizeof *uses; k++)
		put_sample(o, "batchd_budget_bytes", "use", uses[k][0], number_of(memory, uses[k][1]));
	metrics_begin(o, "batchd_budget_limit_bytes", "gauge", "The budget.");
	put_sample(o, "batchd_budget_limit_bytes", NULL, NULL, number_of(memory, "budget_bytes"));
	for (unsigned k = 0; k < sizeof tiers / sizeof *tiers; k++) {
		metrics_begin(o, tiers[k][0], tiers[k][1], tiers[k][2]);
		json_array_foreach (json_object_get(o->root, "cache"), i, tier)
			put_sample(o, tiers[k][0], "tier", text_of(tier, "tier"), number_of(tier, tiers[k][3]));
	}
}

static void put_trainers(struct metrics_out *o)
{
	const json_t *session;
	double n = 0, n_stalled = 0;
	size_t i;

	json_array_foreach (json_object_get(o->root, "sessions"), i, session) {
		n++;
		n_stalled += json_is_true(json_object_get(session, "stalled"));
	}
	metrics_begin(o, "batchd_trainers", "gauge", "Trainers that are connected or hold batches.");
	put_sample(o, "batchd_trainers", NULL, NULL, n);
	metrics_begin(o, "batchd_stalled_ranks", "gauge", "Trainers that have batches and make no progress.");
	put_sample(o, "batchd_stalled_ranks", NULL, NULL, n_stalled);
}

static void put_gpus(struct metrics_out *o)
{
	const json_t *gpu, *class;
	double all = 0, pageable = 0;
	size_t i, k;

	json_array_foreach (json_object_get(o->root, "gpus"), i, gpu) {
		pageable += number_of(gpu, "pageable_copies");
		json_array_foreach (json_object_get(gpu, "copies"), k, class)
			all += number_of(class, "copies");
	}
	metrics_begin(o, "batchd_gpu_copies_total", "counter",
		      "Batches copied to GPUs: from pinned memory, or slower.");
	put_sample(o, "batchd_gpu_copies_total", "kind", "dma", all > pageable ? all - pageable : 0);
	put_sample(o, "batchd_gpu_copies_total", "kind", "pageable", pageable);
}

static void put_daemon(struct metrics_out *o)
{
	const json_t *daemon = json_object_get(o->root, "daemon");

	metrics_begin(o, "batchd_build_info", "gauge", "1; the version is a label.");
	put_sample(o, "batchd_build_info", "version", text_of(daemon, "version"), 1);
	metrics_begin(o, "batchd_uptime_seconds", "gauge", "Since the daemon started.");
	put_sample(o, "batchd_uptime_seconds", NULL, NULL, number_of(daemon, "uptime_s"));
	metrics_begin(o, "process_cpu_seconds_total", "counter", "Processor time of the daemon.");
	put_sample(o, "process_cpu_seconds_total", NULL, NULL, number_of(daemon, "cpu_s"));
	metrics_begin(o, "process_resident_memory_bytes", "gauge",
		      "Resident memory of the daemon, shared pages included.");
	put_sample(o, "process_resident_memory_bytes", NULL, NULL, number_of(daemon, "rss_bytes"));
}

/* Two series of the same labels would spoil the whole answer: of a trainer and the one that it replaces. The later one
 * of the list is left out. */
static void leave_out_twins(json_t *list, const char *number)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *one = json_array_get(list, i);

		for (size_t k = json_array_size(list) - 1; k > i; k--) {
			const json_t *other = json_array_get(list, k);

			if (are_of_one_job(one, other) && number_of(one, number) == number_of(other, number))
				json_array_remove(list, k);
		}
	}
}

char *metrics_text(const char *status, size_t *n_bytes)
{
	char *text = NULL;
	struct metrics_out o = { .f = open_memstream(&text, n_bytes), .root = json_loads(status, 0, NULL) };

	if (!o.f || !o.root) {
		if (o.f)
			fclose(o.f);
		free(text);
		json_decref((json_t *)o.root);
		return NULL;
	}
	leave_out_twins(json_object_get(o.root, "loaders"), "");
	leave_out_twins(json_object_get(o.root, "sessions"), "rank");
	put_daemon(&o);
	put_clocks(&o);
	put_waits(&o);
	put_per_loader(&o, "batchd_batches_total", "counter", "Batches that trainers have taken.", "batches_delivered");
	put_per_loader(&o, "batchd_delivered_samples_total", "counter", "Rows of these.", "samples_delivered");
	put_samples(&o);
	put_reads(&o);
	put_stages(&o);
	put_slots(&o);
	put_workers(&o);
	put_file_systems(&o);
	put_trainers(&o);
	put_memory(&o);
	put_gpus(&o);
	json_decref((json_t *)o.root);
	if (fclose(o.f) == 0)
		return text;
	free(text);
	return NULL;
}
