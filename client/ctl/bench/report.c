/* The results of bench, for people and for programs. */
#include "ctl/bench/bench.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "ctl/ctl.h"
#include "base/size.h"

const char *const bench_dtypes[] = { "uint8", "float16", "float32", NULL };
const char *const bench_layouts[] = { "NCHW", "NHWC", NULL };
const char *const bench_modes[] = { "shard", "share", NULL };

double bench_number(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_number(v) ? json_number_value(v) : NAN;
}

static void bench_report_cell(struct table *t, int decimals, double value)
{
	char text[64];

	snprintf(text, sizeof text, "%.*f", decimals, value);
	table_cell(t, "%s", isnan(value) ? "-" : text);
}

/* Three digits, whatever the size: decoding a photograph takes a millisecond, gathering a row of numbers a thousandth
 * of that. */
static void cell_ms(struct table *t, double ms)
{
	if (isnan(ms))
		table_cell(t, "-");
	else
		table_cell(t, ms >= 100 ? "%.0f" : "%#.3g", ms);
}

void bench_add_row(struct bench *b, const char *name, struct bench_stats *t)
{
	char bytes[32];

	table_cell(b->rows, "%s%s", name, t->partial && t != &b->total ? " (part)" : "");
	table_cell(b->rows, "%" PRIu64, t->images);
	bench_report_cell(b->rows, 2, t->seconds);
	bench_report_cell(b->rows, 0, bench_stats_images_per_s(t));
	table_cell(b->rows, "%s/s",
		   t->seconds > 0 ? size_format((uint64_t)((double)t->bytes / t->seconds), bytes, sizeof bytes) : "-");
	bench_report_cell(b->rows, 0, t->decoded);
	cell_ms(b->rows, bench_stats_daemon_cpu_ms(t) + bench_stats_trainer_cpu_ms(t));
	cell_ms(b->rows, bench_stats_daemon_cpu_ms(t));
	cell_ms(b->rows, bench_stats_trainer_cpu_ms(t));
	bench_report_cell(b->rows, 2, bench_stats_wait_ms(t, 0.5));
	bench_report_cell(b->rows, 2, bench_stats_wait_ms(t, 0.99));
	bench_report_cell(b->rows, 1, (double)t->first_ns / 1e6);
}

static void cpu_model(char *buf, size_t size)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	struct utsname u;
	char line[256];

	uname(&u);
	snprintf(buf, size, "%s", u.machine); /* ARM's cpuinfo has no model name */
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, "model name", 10) && strchr(line, ':')) {
			line[strcspn(line, "\n")] = 0;
			snprintf(buf, size, "%s", strchr(line, ':') + 2);
			break;
		}
	if (f)
		fclose(f);
}

/* From a trainer's first call to its first batch. */
static double first_call_ms(const struct bench *b, unsigned i)
{
	return (double)(b->open_ns[i] + b->by_trainer[i].first_ns) / 1e6;
}

/* The daemon's reading of the request: the data set's own pipeline by name, an array's own type. */
static const char *served(const struct bench *b, const char *key, const char *asked)
{
	const char *s = json_string_value(json_object_get(b->loader, key));

	return s ? s : asked;
}

int bench_print_json(struct bench *b)
{
	const json_t *daemon = json_object_get(b->status, "daemon"), *workers = json_object_get(b->status, "workers");
	json_t *trainers = json_array(), *total = bench_stats_json(&b->total);
	double slowest_ms = 0;
	char model[256];

	cpu_model(model, sizeof model);
	for (unsigned i = 0; i < b->n_trainers; i++) {
		json_t *one = bench_stats_json(&b->by_trainer[i]);

		/* The daemon's numbers do not belong to one trainer. */
		json_object_del(one, "decoded");
		json_object_del(one, "cpu_ms_per_image");
		json_object_del(one, "daemon_cpu_ms_per_image");
		json_object_set_new(one, "trainer", json_integer(i));
		json_object_set_new(one, "first_batch_ms", json_real(first_call_ms(b, i)));
		json_array_append_new(trainers, one);
		if (first_call_ms(b, i) > slowest_ms)
			slowest_ms = first_call_ms(b, i);
	}
	json_object_set_new(total, "first_batch_ms", json_real(slowest_ms));
	return ctl_print_json(
		"bench",
		json_pack("{s:{s:o, s:s, s:s, s:s, s:I, s:s, s:I, s:I, s:I, s:b}, s:{s:s, s:i}, s:{s:O?, s:O?, s:b},"
			  " s:o, s:O, s:o}",
			  "bench", "dataset", ctl_json_text(b->spec), "transform",
			  served(b, "transform", b->transform ? b->transform : ""), "dtype",
			  served(b, "dtype", bench_dtypes[b->dtype]), "layout",
			  served(b, "layout", bench_layouts[b->layout]), "batch_size", (json_int_t)b->batch_size,
			  "mode", bench_modes[b->mode], "trainers", (json_int_t)b->n_trainers, "n_samples",
			  (json_int_t)b->n_samples, "seed", (json_int_t)b->seed, "touch", b->touch, "machine", "cpu",
			  model, "cpus", (int)ctl_n_cpus(), "daemon", "version", json_object_get(daemon, "version"),
			  "workers", json_object_get(workers, "target"), "private", b->own_daemon, "total", total,
			  "epochs", b->epoch_list, "trainers", trainers));
}

static void print_trainers(struct bench *b)
{
	struct table *t = table_create(
		">TRAINER|>BATCHES|>IMAGES|>IMAGES/S|>CPU US/BATCH|>WAIT P50 MS|>P99|>FIRST CALL TO FIRST BATCH MS");

	for (unsigned i = 0; i < b->n_trainers; i++) {
		struct bench_stats *one = &b->by_trainer[i];

		table_cell(t, "%u", i);
		table_cell(t, "%" PRIu64, one->batches);
		table_cell(t, "%" PRIu64, one->images);
		bench_report_cell(t, 0, bench_stats_images_per_s(one));
		bench_report_cell(t, 1, one->batches ? (double)one->trainer_cpu_ns / 1e3 / (double)one->batches : NAN);
		bench_report_cell(t, 2, bench_stats_wait_ms(one, 0.5));
		bench_report_cell(t, 2, bench_stats_wait_ms(one, 0.99));
		bench_report_cell(t, 1, first_call_ms(b, i));
	}
	table_print(t, 0);
	table_destroy(t);
}

int bench_print_text(struct bench *b)
{
	const json_t *daemon = json_object_get(b->status, "daemon"), *workers = json_object_get(b->status, "workers");
	const char *version = json_string_value(json_object_get(daemon, "version")), *transform;
	char model[256];

	cpu_model(model, sizeof model);
	transform = served(b, "transform", b->transform ? b->transform : "");
	printf("%s, %" PRIu64 " samples, %s%s%s %s, batch %" PRIu64 "\n", b->spec, b->n_samples, transform,
	       *transform ? ", " : "", served(b, "dtype", bench_dtypes[b->dtype]),
	       served(b, "layout", bench_layouts[b->layout]), b->batch_size);
	printf("%" PRIu64 " trainer%s (%s), batchd %s with %.0f workers, %u processors, %s\n\n", b->n_trainers,
	       b->n_trainers > 1 ? "s" : "", bench_modes[b->mode], version ? version : "?",
	       bench_number(workers, "target"), ctl_n_cpus(), model);
	bench_add_row(b, "all", &b->total);
	table_print(b->rows, 0);
	puts("CPU is per delivered image: the daemon's and the trainers'.\n"
	     "Waits leave out each epoch's first batch.\n");
	print_trainers(b);
	if (b->n_batches <= b->window)
		printf("An epoch has %" PRIu64 " batches and a trainer up to %" PRIu64
		       " ahead: most were ready before they\n"
		       "were asked for. Measure more images, or with a smaller --batch-size.\n",
		       b->n_batches, b->window);
	if (b->total.replaced)
		printf("%" PRIu64 " images stand for undecodable ones; 'batchctl verify' names them.\n",
		       b->total.replaced);
	return ctl_flush("bench");
}
