/* Kernels written for the host. Those of the conformance program do what its PTX (tests/gpu/kernels.ptx) does; the client's finishing kernel is compiled from
 * the source that the GPU version and the CPU tests share. */
#include "kernels.h"

#include <stdint.h>
#include <string.h>
#include <time.h>

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

/* conformance_spin(uint64_t ns): keeps its stream busy for so long */
static void run_spin(void **params, const struct fakecuda_grid *grid)
{
	uint64_t ns;

	(void)grid;
	memcpy(&ns, params[0], 8);
	nanosleep(&(struct timespec){ (time_t)(ns / 1000000000), (long)(ns % 1000000000) }, NULL);
}

static const struct fakecuda_kernel kernels[] = {
	{ "conformance_add", 4, { 8, 8, 4, 4 }, run_add },
	{ "conformance_spin", 1, { 8 }, run_spin },
};

const struct fakecuda_kernel *kernels_find(const char *name)
{
	for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
		if (!strcmp(kernels[i].name, name))
			return &kernels[i];
	return NULL;
}
