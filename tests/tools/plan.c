/* Prints what one rank reads in an epoch: its sample indices as native int64, for tests that compare with torch.
 *
 *     plan N WORLD_SIZE RANK SHUFFLE DROP_LAST SEED EPOCH [BASE]
 *
 * RANK -1: all ranks, one after the other. Exits with 2 on bad usage. */
#include <stdio.h>
#include <stdlib.h>

#include "batch/plan/plan.h"

static int print_rank(const struct plan *p, uint32_t rank)
{
	for (uint64_t i = 0; i < plan_n_per_rank(p); i++) {
		int64_t index = (int64_t)plan_at(p, rank, i);

		if (fwrite(&index, sizeof(index), 1, stdout) != 1) {
			return 1;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct plan_spec spec = { 0 };
	struct plan *p;
	uint32_t first, end;
	long rank;
	int r = 0;

	if (argc < 8 || argc > 9) {
		fprintf(stderr, "usage: plan N WORLD_SIZE RANK SHUFFLE DROP_LAST SEED EPOCH [BASE]\n");
		return 2;
	}
	spec.n_samples = strtoull(argv[1], NULL, 10);
	spec.world_size = (uint32_t)strtoul(argv[2], NULL, 10);
	rank = strtol(argv[3], NULL, 10);
	spec.shuffle = atoi(argv[4]) != 0;
	spec.drop_last = atoi(argv[5]) != 0;
	spec.seed = strtoull(argv[6], NULL, 10);
	spec.epoch = strtoull(argv[7], NULL, 10);
	spec.base = argc > 8 ? strtoull(argv[8], NULL, 10) : 0;
	if (plan_create(&spec, &p) < 0) {
		fprintf(stderr, "plan: cannot make this plan\n");
		return 2;
	}
	first = rank < 0 ? 0 : (uint32_t)rank;
	end = rank < 0 ? spec.world_size : first + 1;
	for (uint32_t k = first; k < end && !r; k++) {
		r = print_rank(p, k);
	}
	plan_unref(p);
	return r || fflush(stdout) ? 1 : 0;
}
