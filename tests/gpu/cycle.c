/* The latency of a batch when the trainer has none left: cycle DEVICE N [stay]
 *
 * The trainer keeps all slots but one and gives one back: the daemon makes the next batch (one row of 4 KiB), copies it
 * to the GPU if DEVICE is not "cpu", and publishes it; then batchd_next returns, and the trainer could launch. Prints
 * "cycle<tab>VALUE<tab>us", the median of N, and the 99th percentile. stay: the session lasts until standard input
 * ends, for a look at the daemon's status. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../client/batchd.h"

static struct batchd_loader *loader;

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void next(struct batchd_batch *b)
{
	int r = batchd_next(loader, b, 10000);

	if (r != BATCHD_OK) {
		fprintf(stderr, "cycle: batchd_next: %s: %s\n", batchd_code_name(r), batchd_error(loader));
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct batchd_batch b = { .size_bytes = sizeof b }, *kept;
	struct batchd_info info = { .size_bytes = sizeof info };
	unsigned n = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;
	double *took = calloc(n, sizeof *took);
	struct batchd_options o;
	char err[1024];

	if (argc < 2 || !took)
		return 64;
	batchd_options_init(&o);
	o.dataset = "random:length=1000000,shape=1024,dtype=float32";
	o.batch_size = 1;
	o.n_slots = 4;
	o.device = argv[1];
	o.autostart = 0;
	if (batchd_open(&o, &loader, err, sizeof err) < 0) {
		fprintf(stderr, "cycle: %s\n", err);
		return 1;
	}
	batchd_get_info(loader, &info);
	kept = calloc(info.window, sizeof *kept);
	if (!kept || batchd_start(loader, 0, 0, 0, NULL) < 0)
		return 1;
	for (unsigned i = 0; i + 1 < info.window; i++)
		next(&b), kept[i] = b;
	next(&b); /* the last slot, which is the one that is reused */
	for (unsigned i = 0; i < n; i++) {
		double began = now_us();

		batchd_release(loader, b.slot, b.generation);
		next(&b);
		took[i] = now_us() - began;
	}
	qsort(took, n, sizeof *took, by_size);
	printf("cycle\t%.4g\tus\n", took[n / 2]);
	printf("cycle, 99th percentile\t%.4g\tus\n", took[n * 99 / 100]);
	fflush(stdout);
	while (argc > 3 && getchar() != EOF)
		;
	batchd_release(loader, b.slot, b.generation);
	for (unsigned i = 0; i + 1 < info.window; i++)
		batchd_release(loader, kept[i].slot, kept[i].generation);
	batchd_close(loader);
	free(kept);
	free(took);
	return 0;
}
