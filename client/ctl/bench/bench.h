/* One run of batchctl bench, between bench.c, which runs it, and report.c, which reports it. */
#ifndef BATCHCTL_BENCH_H
#define BATCHCTL_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "ctl/bench/private-daemon.h"
#include "ctl/term/table.h"
#include "ctl/bench/stats.h"
#include "ctl/bench/trainer.h"

enum { MAX_TRAINERS = 256 };

struct bench {
	const char *path, *transform, *socket, *device;
	uint64_t batch_size, n_trainers, epochs, until_ns, workers, slots, seed;
	unsigned dtype, layout, mode;
	bool touch, own_daemon, json, quiet;

	char *spec, job[64];
	struct private_daemon daemon;
	struct trainer trainers[MAX_TRAINERS];
	struct bench_stats total, by_trainer[MAX_TRAINERS];
	uint64_t open_ns[MAX_TRAINERS];
	uint64_t n_samples;
	uint64_t n_batches, window;  /* of an epoch of one trainer; that it may have ahead */
	json_t *epoch_list, *status; /* status: the daemon's, after the last epoch */
	const json_t *loader;        /* this run's, in status; NULL: not in it */
	struct table *rows;
};

/* By the numbers of the client library's enums; NULL-terminated. */
extern const char *const bench_dtypes[], *const bench_layouts[], *const bench_modes[];

/* A number from the daemon's state; NAN when it is not there. */
double bench_number(const json_t *o, const char *key);

/* A row of b->rows: an epoch, or everything. */
void bench_add_row(struct bench *b, const char *name, struct bench_stats *t);

/* Exit codes. */
int bench_print_json(struct bench *b);
int bench_print_text(struct bench *b);

#endif
