/* Sums, and quantiles from all values rather than from buckets: an epoch has at most some ten thousand batches. */
#include "ctl/bench/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void bench_stats_init(struct bench_stats *t)
{
	*t = (struct bench_stats){ .daemon_cpu_s = NAN, .decoded = NAN };
}

void bench_stats_finish(struct bench_stats *t)
{
	free(t->waits_ns);
	t->waits_ns = NULL;
	t->n_waits = 0;
}

static uint64_t bench_stats_integer(const json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}

/* Room for n more waits; NULL when memory is short. */
static uint64_t *bench_stats_extend(struct bench_stats *t, size_t n)
{
	uint64_t *grown = realloc(t->waits_ns, (t->n_waits + n + 1) * sizeof *grown);
	uint64_t *room;

	if (!grown)
		return NULL;
	t->waits_ns = grown;
	room = grown + t->n_waits;
	t->n_waits += n;
	return room;
}

bool bench_stats_add(struct bench_stats *t, const json_t *answer)
{
	const json_t *waits = json_object_get(answer, "waits_ns");
	uint64_t begun = bench_stats_integer(answer, "begun_ns"), ended = bench_stats_integer(answer, "ended_ns"),
		 first = bench_stats_integer(answer, "first_ns");
	size_t n = json_array_size(waits);
	uint64_t *room = bench_stats_extend(t, n);

	if (!room)
		return false;
	for (size_t i = 0; i < n; i++)
		room[i] = (uint64_t)json_integer_value(json_array_get(waits, i));
	t->images += bench_stats_integer(answer, "images");
	t->bytes += bench_stats_integer(answer, "bytes");
	t->batches += bench_stats_integer(answer, "batches");
	t->padding += bench_stats_integer(answer, "padding");
	t->replaced += bench_stats_integer(answer, "replaced");
	t->trainer_cpu_ns += bench_stats_integer(answer, "cpu_ns");
	if (!t->begun_ns || begun < t->begun_ns)
		t->begun_ns = begun;
	if (ended > t->ended_ns)
		t->ended_ns = ended;
	if (first > t->first_ns)
		t->first_ns = first;
	t->seconds = (double)(t->ended_ns - t->begun_ns) / 1e9;
	t->partial |= !json_is_true(json_object_get(answer, "complete"));
	return true;
}

static double sum_known(double so_far, double more, bool begun)
{
	return begun ? so_far + more : more;
}

bool bench_stats_append(struct bench_stats *t, const struct bench_stats *later)
{
	bool begun = t->batches > 0;
	uint64_t *room = bench_stats_extend(t, later->n_waits);

	if (!room)
		return false;
	if (later->n_waits)
		memcpy(room, later->waits_ns, later->n_waits * sizeof *room);
	if (!begun)
		t->first_ns = later->first_ns;
	t->daemon_cpu_s = sum_known(t->daemon_cpu_s, later->daemon_cpu_s, begun);
	t->decoded = sum_known(t->decoded, later->decoded, begun);
	t->images += later->images;
	t->bytes += later->bytes;
	t->batches += later->batches;
	t->padding += later->padding;
	t->replaced += later->replaced;
	t->trainer_cpu_ns += later->trainer_cpu_ns;
	t->seconds += later->seconds;
	t->partial |= later->partial;
	t->begun_ns = t->ended_ns = 0;
	return true;
}

double bench_stats_images_per_s(const struct bench_stats *t)
{
	return t->seconds > 0 ? (double)t->images / t->seconds : NAN;
}

double bench_stats_daemon_cpu_ms(const struct bench_stats *t)
{
	return t->images ? t->daemon_cpu_s * 1e3 / (double)t->images : NAN;
}

double bench_stats_trainer_cpu_ms(const struct bench_stats *t)
{
	return t->images ? (double)t->trainer_cpu_ns / 1e6 / (double)t->images : NAN;
}

static int bench_stats_ascending(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

double bench_stats_wait_ms(struct bench_stats *t, double quantile)
{
	if (!t->n_waits)
		return NAN;
	qsort(t->waits_ns, t->n_waits, sizeof *t->waits_ns, bench_stats_ascending);
	return (double)t->waits_ns[(size_t)ceil(quantile * (double)t->n_waits) - 1] / 1e6;
}

static json_t *real_or_null(double v)
{
	return isnan(v) ? json_null() : json_real(v);
}

json_t *bench_stats_json(struct bench_stats *t)
{
	double daemon = bench_stats_daemon_cpu_ms(t), trainers = bench_stats_trainer_cpu_ms(t);

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:b}", "images",
			 (json_int_t)t->images, "bytes", (json_int_t)t->bytes, "batches", (json_int_t)t->batches,
			 "padding", (json_int_t)t->padding, "replaced", (json_int_t)t->replaced, "seconds", t->seconds,
			 "images_per_s", real_or_null(bench_stats_images_per_s(t)), "bytes_per_s",
			 real_or_null(t->seconds > 0 ? (double)t->bytes / t->seconds : NAN), "cpu_ms_per_image",
			 real_or_null(daemon + trainers), "daemon_cpu_ms_per_image", real_or_null(daemon),
			 "trainer_cpu_ms_per_image", real_or_null(trainers), "decoded", real_or_null(t->decoded),
			 "wait_p50_ms", real_or_null(bench_stats_wait_ms(t, 0.5)), "wait_p99_ms",
			 real_or_null(bench_stats_wait_ms(t, 0.99)), "first_batch_ms", (double)t->first_ns / 1e6,
			 "partial", t->partial);
}
