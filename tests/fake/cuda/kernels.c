/* Kernels written for the host. Those of the conformance program do the same as its PTX (tests/gpu/cuda.c). The
 * client's finishing kernel is compiled from the source that the GPU version and the CPU tests share. */
#include "kernels.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "finish/convert-plan.h"
#include "finish/mix-plan.h"

/* conformance_add(uint32_t *to, const uint32_t *from, uint32_t add, uint32_t n): to[i] = from[i] + add */
static void run_add(void **params, const struct fakecuda_grid *grid)
{
	unsigned long long to, from;
	uint32_t add, n;

	(void)grid;
	memcpy(&to, params[0], 8);
	memcpy(&from, params[1], 8);
	memcpy(&add, params[2], 4);
	memcpy(&n, params[3], 4);
	uint32_t *t = fakecuda_memory(to, n * 4ul);
	const uint32_t *f = fakecuda_memory(from, n * 4ul);
	for (uint32_t i = 0; i < n; i++)
		t[i] = f[i] + add;
}

/* conformance_spin(uint64_t ns): keeps its stream busy for that time */
static void run_spin(void **params, const struct fakecuda_grid *grid)
{
	uint64_t ns;

	(void)grid;
	memcpy(&ns, params[0], 8);
	nanosleep(&(struct timespec){ (time_t)(ns / 1000000000), (long)(ns % 1000000000) }, NULL);
}

/* conformance_count(uint32_t *to, uint64_t ns): counts in *to for that time */
static void run_count(void **params, const struct fakecuda_grid *grid)
{
	unsigned long long to;
	struct timespec pause = { 0, 500000 };
	uint64_t ns;

	(void)grid;
	memcpy(&to, params[0], 8);
	memcpy(&ns, params[1], 8);
	_Atomic(uint32_t) *count = fakecuda_memory(to, 4);
	for (uint64_t i = 0; i < ns / 500000; i++) {
		++*count;
		nanosleep(&pause, NULL);
	}
}

/* conformance_fma(float *to, uint32_t rounds): arithmetic that keeps a GPU busy; here only time passes */
static void run_fma(void **params, const struct fakecuda_grid *grid)
{
	unsigned long long to;
	uint32_t rounds;

	memcpy(&to, params[0], 8);
	memcpy(&rounds, params[1], 4);
	memset(fakecuda_memory(to, 4ul * grid->block[0]), 0, 4ul * grid->block[0]);
	nanosleep(&(struct timespec){ 0, rounds < 900000000 ? rounds : 900000000 }, NULL);
}

/* conformance_copy(to, from, uint32_t n, uint32_t rounds): n pieces of 16 bytes; further rounds only take time here */
static void run_copy(void **params, const struct fakecuda_grid *grid)
{
	unsigned long long to, from;
	uint32_t n, rounds;

	(void)grid;
	memcpy(&to, params[0], 8);
	memcpy(&from, params[1], 8);
	memcpy(&n, params[2], 4);
	memcpy(&rounds, params[3], 4);
	memcpy(fakecuda_memory(to, n * 16ul), fakecuda_memory(from, n * 16ul), n * 16ul);
	nanosleep(&(struct timespec){ 0, rounds < 9000 ? rounds * 100000l : 900000000l }, NULL);
}

/* The client's finishing kernels: one implementation, and a check that the client launched the right kernel. */
static void run_finish(void **params, const struct fakecuda_grid *grid)
{
	struct convert_plan p;
	size_t n, n_out;
	char name[32];

	memcpy(&p, params[0], sizeof p);
	if (p.n_channels < 1 || p.n_channels > CONVERT_MAX_CHANNELS || p.number > CONVERT_TO_FLOAT32 || !p.plane) {
		fakecuda_misuse("a finishing kernel was given a plan that makes no sense");
		return;
	}
	convert_plan_kernel(&p, name);
	n = (size_t)p.n_px * p.n_channels;
	n_out = convert_number_bytes((enum convert_number)p.number);
	if (strcmp(name, grid->kernel))
		fakecuda_misuse("%s was launched with a plan for %s", grid->kernel, name);
	if (grid->block[0] != CONVERT_THREADS || grid->block[1] != 1 || grid->block[2] != 1 || grid->grid[1] != 1 ||
	    grid->grid[2] != 1)
		fakecuda_misuse("%s was launched with blocks of %u threads", grid->kernel, grid->block[0]);
	if (p.out % n_out || n >> 31)
		fakecuda_misuse("%s: tensor at 0x%llx, %zu numbers", grid->kernel, (unsigned long long)p.out, n);
	convert_plan_run(&p, fakecuda_memory(p.in, n), fakecuda_memory(p.out, n * n_out));
}

/* The client's mixing kernels. */
static void run_bytes(const struct mix_plan *p, const void *in, void *out)
{
	mix_plan_run(p, in, out);
}

static void run_mix_of(void **params, const struct fakecuda_grid *grid, bool numbers)
{
	struct mix_plan p;
	size_t n, n_out, n_in, n_images = 0;
	char name[32];

	memcpy(&p, params[0], sizeof p);
	if (p.convert.n_channels < 1 || p.convert.n_channels > CONVERT_MAX_CHANNELS || !p.convert.plane || !p.n_rows ||
	    p.convert.number < CONVERT_TO_FLOAT16 || p.convert.number > CONVERT_TO_FLOAT32 ||
	    p.n_rows > MIX_LAUNCH_ROWS) {
		fakecuda_misuse("a mixing kernel was given a plan that makes no sense");
		return;
	}
	if (numbers)
		mix_plan_numbers_kernel(&p, name);
	else
		mix_plan_kernel(&p, name);
	if (strcmp(name, grid->kernel))
		fakecuda_misuse("%s was launched with a plan for %s", grid->kernel, name);
	if (grid->block[0] != CONVERT_THREADS || grid->grid[0] != p.n_rows * p.n_tiles)
		fakecuda_misuse("%s was launched with %u blocks of %u threads", grid->kernel, grid->grid[0],
				grid->block[0]);
	n = (size_t)p.convert.plane * p.convert.n_channels;
	n_out = convert_number_bytes((enum convert_number)p.convert.number);
	for (uint32_t i = 0; i < p.n_rows; i++) {
		n_images = p.row[i].partner >= n_images ? p.row[i].partner + 1 : n_images;
		n_images = p.first + i >= n_images ? p.first + i + 1 : n_images;
	}
	n_in = !numbers ? 1 : p.convert.number == CONVERT_TO_FLOAT16 ? 2 : 4;
	if (p.convert.in % n_in)
		fakecuda_misuse("%s: numbers at 0x%llx", grid->kernel, (unsigned long long)p.convert.in);
	(numbers ? mix_plan_run_numbers : run_bytes)(&p, fakecuda_memory(p.convert.in, n * n_images * n_in),
						     fakecuda_memory(p.convert.out, (p.first + p.n_rows) * n * n_out));
}

static void run_mix(void **params, const struct fakecuda_grid *grid)
{
	run_mix_of(params, grid, false);
}

static void run_mix_numbers(void **params, const struct fakecuda_grid *grid)
{
	run_mix_of(params, grid, true);
}

static void run_targets(void **params, const struct fakecuda_grid *grid)
{
	struct mix_target_plan p;
	size_t n_labels = 0;

	(void)grid;
	memcpy(&p, params[0], sizeof p);
	for (uint32_t i = 0; i < p.n_rows; i++) {
		n_labels = p.row[i].partner >= n_labels ? p.row[i].partner + 1 : n_labels;
		n_labels = p.first + i >= n_labels ? p.first + i + 1 : n_labels;
	}
	mix_target_plan_run(&p, fakecuda_memory(p.labels, n_labels * 8),
			    fakecuda_memory(p.out, (size_t)(p.first + p.n_rows) * p.n_classes * 4));
}

#define FINISH(name) { name, 1, { sizeof(struct convert_plan) }, run_finish }
#define CONVERT_OF(number) \
	FINISH("convert_flat_" number "_1"), FINISH("convert_flat_" number "_2"), FINISH("convert_flat_" number "_3"), \
		FINISH("convert_flat_" number "_4"), FINISH("convert_planar_" number "_2"), \
		FINISH("convert_planar_" number "_3"), FINISH("convert_planar_" number "_4")

#define MIX(name) { name, 1, { sizeof(struct mix_plan) }, run_mix }
#define MIX_OF(number) \
	MIX("mix_flat_" number "_1"), MIX("mix_flat_" number "_2"), MIX("mix_flat_" number "_3"), \
		MIX("mix_flat_" number "_4"), MIX("mix_planar_" number "_2"), MIX("mix_planar_" number "_3"), \
		MIX("mix_planar_" number "_4")

static const struct fakecuda_kernel kernels[] = {
	{ "conformance_add", 4, { 8, 8, 4, 4 }, run_add },
	{ "conformance_spin", 1, { 8 }, run_spin },
	{ "conformance_count", 2, { 8, 8 }, run_count },
	{ "conformance_fma", 2, { 8, 4 }, run_fma },
	{ "conformance_copy", 4, { 8, 8, 4, 4 }, run_copy },
	CONVERT_OF("uint8"),
	CONVERT_OF("float16"),
	CONVERT_OF("bfloat16"),
	CONVERT_OF("float32"),
	MIX_OF("float16"),
	MIX_OF("bfloat16"),
	MIX_OF("float32"),
	{ "mix_numbers_float16", 1, { sizeof(struct mix_plan) }, run_mix_numbers },
	{ "mix_numbers_bfloat16", 1, { sizeof(struct mix_plan) }, run_mix_numbers },
	{ "mix_numbers_float32", 1, { sizeof(struct mix_plan) }, run_mix_numbers },
	{ "mix_targets", 1, { sizeof(struct mix_target_plan) }, run_targets },
};

const struct fakecuda_kernel *kernels_find(const char *name)
{
	for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
		if (!strcmp(kernels[i].name, name))
			return &kernels[i];
	return NULL;
}
