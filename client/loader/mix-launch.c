/* See mix-launch.h. A launch makes as many rows as records fit its parameter; the driver copies that during the call. */
#include "loader/mix-launch.h"

#include <string.h>

#include "finish/mix-plan.h"

static uint32_t rows_at_once(uint32_t n_left, uint64_t most)
{
	uint64_t n = n_left < MIX_LAUNCH_ROWS ? n_left : MIX_LAUNCH_ROWS;

	return n <= most ? (uint32_t)n : most ? (uint32_t)most : 1;
}

int mix_launch_images(const struct delivery *d, const struct finishing *of, const struct batchd_mix_row *rows,
		      uint32_t n_rows, cuda_ptr in, cuda_ptr to, struct cuda_stream *stream)
{
	struct mix_plan p;
	void *parameters[] = { &p };
	int r = CUDA_OK;

	mix_plan_init(&p, &of->plan, of->width);
	p.convert.in = in;
	p.convert.out = to;
	for (; p.first < n_rows && r == CUDA_OK; p.first += p.n_rows) {
		p.n_rows = rows_at_once(n_rows - p.first, INT32_MAX / p.n_tiles);
		if (rows)
			memcpy(p.row, rows + p.first, p.n_rows * sizeof *rows);
		for (uint32_t i = 0; i < p.n_rows && !rows; i++) /* kind BATCHD_MIX_NONE */
			p.row[i].partner = p.first + i;
		r = d->gpu.driver->launch_kernel(of->kernel, p.n_rows * p.n_tiles, 1, 1, CONVERT_THREADS, 1, 1, 0,
						 stream, parameters, NULL);
	}
	return r;
}

int mix_launch_targets(const struct delivery *d, const struct mix *mix, const struct batchd_mix_row *rows,
		       uint32_t n_rows, cuda_ptr labels, cuda_ptr to, struct cuda_stream *stream)
{
	struct mix_target_plan p = { .labels = labels, .out = to, .n_classes = mix->n_classes };
	void *parameters[] = { &p };
	uint32_t n;
	int r = CUDA_OK;

	mix_target_values(mix, &p.on, &p.off);
	for (; p.first < n_rows && r == CUDA_OK; p.first += p.n_rows) {
		p.n_rows = rows_at_once(n_rows - p.first, INT32_MAX / p.n_classes);
		memcpy(p.row, rows + p.first, p.n_rows * sizeof *rows);
		n = p.n_rows * p.n_classes;
		r = d->gpu.driver->launch_kernel(d->target_kernel, n / CONVERT_THREADS + !!(n % CONVERT_THREADS), 1, 1,
						 CONVERT_THREADS, 1, 1, 0, stream, parameters, NULL);
	}
	return r;
}
