/* The tables of a mix as libbatchd draws them, for tests of their distribution.
 *
 *     mix TEXT SEED EPOCH N_ROWS HEIGHT WIDTH N_BATCHES
 *
 * Writes the records (struct batchd_mix_row) of one batch after the other to standard output. Exits with 1 and says why
 * where the description is wrong, and with 2 on bad usage. */
#include <stdio.h>
#include <stdlib.h>

#include "finish/mix.h"

int main(int argc, char **argv)
{
	struct mix_place place = { 0 };
	struct batchd_mix_row *rows;
	struct mix mix;
	char why[256];
	uint32_t n_rows;
	long n_batches;

	if (argc != 8) {
		fprintf(stderr, "usage: mix TEXT SEED EPOCH N_ROWS HEIGHT WIDTH N_BATCHES\n");
		return 2;
	}
	if (!mix_parse(argv[1], &mix, why, sizeof why)) {
		fprintf(stderr, "%s\n", why);
		return 1;
	}
	place.seed = strtoull(argv[2], NULL, 10);
	place.epoch = strtoull(argv[3], NULL, 10);
	n_rows = (uint32_t)strtoul(argv[4], NULL, 10);
	n_batches = strtol(argv[7], NULL, 10);
	rows = calloc(n_rows, sizeof *rows);
	if (!rows)
		return 1;
	for (long i = 0; i < n_batches; i++) {
		place.position = (uint64_t)i * n_rows;
		mix_draw(&mix, &place, n_rows, (uint32_t)atoi(argv[5]), (uint32_t)atoi(argv[6]), rows);
		fwrite(rows, sizeof *rows, n_rows, stdout);
	}
	free(rows);
	return fflush(stdout) ? 1 : 0;
}
