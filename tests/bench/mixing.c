/* What MixUp and CutMix add to the finishing pass on the CPU.
 *
 *     mixing [ROWS [SIZE [REPEATS]]]        64 rows of 224 x 224, 21 repeats by default
 *
 * Finishes the same batch clean, with MixUp and with CutMix in turn, with each path, to float32 and float16 planes, and
 * prints the median CPU time of each and its share of the clean one. "floats" mixes float rows that a slot has already,
 * compared with a copy of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "finish/finish.h"
#include "finish/mix.h"

enum { MAX_REPEATS = 1001, WAYS = 3 };

static const char *const texts[WAYS] = { "none", "mixup:alpha=1", "cutmix:alpha=1" };
static const char *const paths[] = { "avx512", "avx2", "c" };
static const float mean[3] = { 0.485f, 0.456f, 0.406f }, std[3] = { 0.229f, 0.224f, 0.225f };

static double cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return (d > 0) - (d < 0);
}

static void measure(const struct finish *f, const char *what, uint32_t n_rows, uint32_t size, int repeats,
		    const void *in, void *out)
{
	static double took[WAYS][MAX_REPEATS];
	struct batchd_mix_row *rows = calloc(n_rows, sizeof *rows);
	uint8_t *scratch = malloc((size_t)size * 3);
	struct mix mix[WAYS];
	char why[256];

	for (int w = 0; w < WAYS; w++)
		if (!rows || !scratch || !mix_parse(texts[w], &mix[w], why, sizeof why))
			exit(1);
	for (int i = 0; i < repeats; i++)
		for (int w = 0; w < WAYS; w++) {
			struct mix_place place = { .position = (uint64_t)i };
			double began = cpu_now();

			mix_draw(&mix[w], &place, n_rows, size, size, rows);
			finish_rows(f, in, rows, n_rows, scratch, out);
			took[w][i] = cpu_now() - began;
		}
	for (int w = 0; w < WAYS; w++)
		qsort(took[w], (size_t)repeats, sizeof(double), compare);
	printf("%-16s %-6s clean %7.3f ms   mixup %7.3f ms (%+5.1f %%)   cutmix %7.3f ms (%+5.1f %%)\n", what,
	       f->path->name, 1e3 * took[0][repeats / 2], 1e3 * took[1][repeats / 2],
	       100 * (took[1][repeats / 2] / took[0][repeats / 2] - 1), 1e3 * took[2][repeats / 2],
	       100 * (took[2][repeats / 2] / took[0][repeats / 2] - 1));
	free(rows);
	free(scratch);
}

int main(int argc, char **argv)
{
	uint32_t n_rows = argc > 1 ? (uint32_t)atoi(argv[1]) : 64, size = argc > 2 ? (uint32_t)atoi(argv[2]) : 224;
	int repeats = argc > 3 ? atoi(argv[3]) : 21;
	size_t n = (size_t)n_rows * size * size * 3 / 64 * 64 + 64;
	uint8_t *in = calloc(n, sizeof(float));
	void *out = aligned_alloc(64, n * sizeof(float) + 64); /* as torch aligns its tensors */
	struct convert_plan plan;
	struct finish f;

	if (!in || !out || repeats < 1 || repeats > MAX_REPEATS)
		return 1;
	for (size_t i = 0; i < n; i++)
		in[i] = (uint8_t)(i * 2654435761u >> 24);
	memset(out, 1, n * sizeof(float));
	for (int half = 0; half < 2; half++)
		for (unsigned path = 0; path < sizeof paths / sizeof *paths; path++) {
			convert_plan_init(&plan, half ? CONVERT_TO_FLOAT16 : CONVERT_TO_FLOAT32, 1, 3, size * size,
					  mean, std);
			finish_init(&f, &plan, size, size, 0);
			if (!finish_set_path(&f, paths[path]))
				continue;
			measure(&f, half ? "bytes to float16" : "bytes to float32", n_rows, size,
				f.path == &finish_c ? repeats / 4 + 1 : repeats, in, out);
		}
	finish_init(&f, &plan, size, size, 1);
	f.plan.number = CONVERT_TO_FLOAT32;
	memset(in, 0, n * sizeof(float));
	measure(&f, "floats", n_rows, size, repeats, in, out);
	free(in);
	free(out);
	return 0;
}
