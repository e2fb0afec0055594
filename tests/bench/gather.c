/* How fast rows of an array are gathered, compared with the obvious loop.
 *
 *     gather [ROWS COLUMNS BATCH]        float32; 10000 256 128 by default
 *
 * Both copy the same shuffled batches out of the same mapped file, in turn; medians of many repetitions. The last
 * figure is the cost of dataset_gather with all its checks, labels included. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dataset/dataset.h"
#include "dataset/arrays/gather.h"

enum { REPEATS = 101 };

static size_t n_rows = 10000, row_bytes = 1024, batch = 128;
static uint64_t *order;
static char *rows, *source_rows;
static int64_t *labels;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return (d > 0) - (d < 0);
}

static void plain(struct dataset *ds, const uint64_t *indices, size_t n)
{
	(void)ds;
	for (size_t i = 0; i < n; i++) {
		memcpy(rows + i * row_bytes, source_rows + indices[i] * row_bytes, row_bytes);
	}
}

static void tuned(struct dataset *ds, const uint64_t *indices, size_t n)
{
	(void)ds;
	gather_rows(rows, source_rows, row_bytes, indices, n);
}

static void whole(struct dataset *ds, const uint64_t *indices, size_t n)
{
	struct dataset_error err;

	if (dataset_gather(ds, indices, n, (void *[]){ rows, labels }, &err) < 0) {
		fprintf(stderr, "gather: %s\n", err.text);
		exit(1);
	}
}

/* Seconds of one epoch. */
static double epoch(struct dataset *ds, void (*copy)(struct dataset *ds, const uint64_t *indices, size_t n))
{
	double begin = now();

	for (size_t at = 0; at + batch <= n_rows; at += batch) {
		copy(ds, order + at, batch);
	}
	return now() - begin;
}

static struct dataset *make_array(void)
{
	char path[] = "/tmp/bench-gather.XXXXXX", header[128], spec[64];
	int fd = mkstemp(path),
	    n = snprintf(header + 10, 110, "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu)}", n_rows,
			 row_bytes / 4);
	struct data_access access = { .trusted = true };
	struct dataset_source source = { .spec = spec, .access = &access };
	struct dataset_error err;
	struct dataset *ds;

	memcpy(header, "\x93NUMPY\1\0\166\0", 10);
	memset(header + 10 + n, ' ', sizeof(header) - 10 - (size_t)n);
	if (fd < 0 || write(fd, header, sizeof(header)) != sizeof(header) ||
	    write(fd, source_rows, n_rows * row_bytes) != (ssize_t)(n_rows * row_bytes)) {
		perror("gather: temporary file");
		exit(1);
	}
	snprintf(spec, sizeof(spec), "npy:%s", path);
	if (dataset_open(&source, &ds, &err) < 0) {
		fprintf(stderr, "gather: %s\n", err.text);
		exit(1);
	}
	close(fd);
	unlink(path);
	return ds;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*copy)(struct dataset *, const uint64_t *, size_t);
	} ways[] = { { "plain loop", plain }, { "gather_rows", tuned }, { "dataset_gather", whole } };
	double seconds[3][REPEATS];
	struct dataset *ds;

	if (argc == 4) {
		n_rows = strtoull(argv[1], NULL, 10);
		row_bytes = strtoull(argv[2], NULL, 10) * 4;
		batch = strtoull(argv[3], NULL, 10);
	} else if (argc != 1) {
		fprintf(stderr, "usage: gather [ROWS COLUMNS BATCH]\n");
		return 2;
	}
	order = malloc(n_rows * sizeof(*order));
	source_rows = malloc(n_rows * row_bytes);
	rows = malloc(batch * row_bytes);
	labels = malloc(batch * sizeof(*labels));
	if (!order || !source_rows || !rows || !labels) {
		fprintf(stderr, "gather: out of memory\n");
		return 1;
	}
	memset(source_rows, 1, n_rows * row_bytes);
	for (size_t i = 0; i < n_rows; i++) {
		size_t k = (size_t)rand() % (i + 1);

		order[i] = order[k];
		order[k] = i;
	}
	ds = make_array();
	for (int r = 0; r < REPEATS; r++) {
		for (int w = 0; w < 3; w++) {
			seconds[w][r] = epoch(ds, ways[w].copy);
		}
	}
	for (int w = 0; w < 3; w++) {
		double n = (double)(n_rows / batch), t;

		qsort(seconds[w], REPEATS, sizeof(double), compare);
		t = seconds[w][REPEATS / 2];
		printf("%-16s %8.2f us/batch %8.2f GB/s\n", ways[w].name, 1e6 * t / n,
		       1e-9 * n * (double)(batch * row_bytes) / t);
	}
	dataset_unref(ds);
	return 0;
}
