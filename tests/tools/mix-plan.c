/* A plan of a mixing kernel as libbatchd makes it, for tests that run the kernel's PTX.
 *
 *     mix-plan IN OUT WIDTH PLANE CHANNELS NUMBER PLANAR DIVIDES FIRST N_ROWS MEAN... STD... <RECORDS
 *
 * NUMBER as in enum convert_number; DIVIDES: auto, or 1 to force the divisions. Reads N_ROWS records (struct
 * batchd_mix_row) from standard input. Writes struct mix_plan to standard output, then the kernel's name (32 bytes) and
 * the number of blocks (uint32_t). Exits with 2 on bad usage. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "finish/mix-plan.h"

int main(int argc, char **argv)
{
	float numbers[2 * CONVERT_MAX_CHANNELS];
	uint32_t n_channels = argc > 10 ? (uint32_t)atoi(argv[5]) : 0, n_blocks;
	struct convert_plan convert;
	struct mix_plan p;
	char name[32] = "";

	if (n_channels < 1 || n_channels > CONVERT_MAX_CHANNELS || argc != 11 + 2 * (int)n_channels)
		return 2;
	for (uint32_t i = 0; i < 2 * n_channels; i++)
		numbers[i] = strtof(argv[11 + i], NULL);
	convert_plan_init(&convert, (enum convert_number)atoi(argv[6]), atoi(argv[7]), n_channels,
			  (uint32_t)atoi(argv[4]), numbers, numbers + n_channels);
	if (strcmp(argv[8], "auto"))
		convert.divides = 1;
	mix_plan_init(&p, &convert, (uint32_t)atoi(argv[3]));
	p.convert.in = strtoull(argv[1], NULL, 0);
	p.convert.out = strtoull(argv[2], NULL, 0);
	p.first = (uint32_t)atoi(argv[9]);
	p.n_rows = (uint32_t)atoi(argv[10]);
	if (p.n_rows > MIX_LAUNCH_ROWS || fread(p.row, sizeof *p.row, p.n_rows, stdin) != p.n_rows)
		return 2;
	n_blocks = p.n_rows * p.n_tiles;
	mix_plan_kernel(&p, name);
	fwrite(&p, sizeof p, 1, stdout);
	fwrite(name, sizeof name, 1, stdout);
	fwrite(&n_blocks, sizeof n_blocks, 1, stdout);
	return fflush(stdout) ? 1 : 0;
}
