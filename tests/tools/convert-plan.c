/* A plan of the finishing kernel as libbatchd makes it, for tests that run the kernel's PTX.
 *
 *     convert-plan IN OUT N_PX PLANE CHANNELS NUMBER PLANAR DIVIDES [MEAN... STD...]
 *
 * NUMBER as in enum convert_number; DIVIDES: auto, or 1 to force the divisions. Writes struct convert_plan to standard
 * output, then the kernel's name (32 bytes), the number of blocks and whether the kernel divides (uint32_t each). Exits
 * with 2 on bad usage. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "finish/convert-plan.h"

int main(int argc, char **argv)
{
	float numbers[2 * CONVERT_MAX_CHANNELS];
	struct convert_plan p;
	char name[32] = "";
	uint32_t n_channels = argc > 8 ? (uint32_t)atoi(argv[5]) : 0, n_blocks;

	if (n_channels < 1 || n_channels > CONVERT_MAX_CHANNELS || (argc != 9 && argc != 9 + 2 * (int)n_channels)) {
		fprintf(stderr,
			"usage: convert-plan IN OUT N_PX PLANE CHANNELS NUMBER PLANAR DIVIDES [MEAN... STD...]\n");
		return 2;
	}
	for (int i = 9; i < argc; i++)
		numbers[i - 9] = strtof(argv[i], NULL);
	convert_plan_init(&p, (enum convert_number)atoi(argv[6]), atoi(argv[7]), n_channels, (uint32_t)atoi(argv[4]),
			  argc > 9 ? numbers : NULL, argc > 9 ? numbers + n_channels : NULL);
	p.in = strtoull(argv[1], NULL, 0);
	p.out = strtoull(argv[2], NULL, 0);
	p.n_px = (uint32_t)strtoul(argv[3], NULL, 10);
	if (strcmp(argv[8], "auto"))
		p.divides = 1;
	convert_plan_kernel(&p, name);
	n_blocks = convert_plan_blocks(&p);
	fwrite(&p, sizeof p, 1, stdout);
	fwrite(name, sizeof name, 1, stdout);
	fwrite(&n_blocks, sizeof n_blocks, 1, stdout);
	fwrite(&p.divides, sizeof p.divides, 1, stdout);
	return fflush(stdout) ? 1 : 0;
}
