/* Reporting outcomes, and set-up: see case.h. */
#include "case.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- reporting ---- */

void exact(const char *name, const char *outcome)
{
	printf("exact %s = %s\n", name, outcome);
	fflush(stdout);
}

void exact_of(const char *name, CUresult r)
{
	exact(name, cuda_name(r));
}

void exact_bool(const char *name, bool value)
{
	exact(name, value ? "yes" : "no");
}

void class_of(const char *name, CUresult r)
{
	printf("class %s = %s\n", name, r ? "fails" : "works");
	if (r)
		printf("open  %s: code = %s\n", name, cuda_name(r));
	fflush(stdout);
}

void open_of(const char *name, const char *outcome)
{
	printf("open  %s = %s\n", name, outcome);
	fflush(stdout);
}

void timed(const char *name, double value, const char *unit)
{
	printf("time  %s = %.3g %s\n", name, value, unit);
	fflush(stdout);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double middle_of(double *values, size_t n)
{
	qsort(values, n, sizeof *values, by_size);
	return values[n / 2];
}

void timed_spread(const char *name, double *values, size_t n, const char *unit)
{
	char text[128];

	snprintf(text, sizeof text, "%s, middle", name);
	timed(text, middle_of(values, n), unit);
	snprintf(text, sizeof text, "%s, 99th percentile", name);
	timed(text, values[n * 99 / 100], unit);
	snprintf(text, sizeof text, "%s, worst", name);
	timed(text, values[n - 1], unit);
}

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void must(CUresult r, const char *what)
{
	if (!r)
		return;
	printf("exact %s = %s, and the case ends here\n", what, cuda_name(r));
	fflush(stdout);
	_exit(1);
}

/* ---- set-up of most cases ---- */

CUcontext ctx;
bool is_double;

void begin(void)
{
	MUST(cu.cuInit(0));
	MUST(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	MUST(cu.cuCtxSetCurrent(ctx));
}

CUdeviceptr slab_of(size_t n)
{
	CUdeviceptr a;

	MUST(cu.cuMemAlloc_v2(&a, n));
	return a;
}

CUstream stream_new(void)
{
	CUstream s;

	MUST(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	return s;
}

CUevent event_new(unsigned flags)
{
	CUevent e;

	MUST(cu.cuEventCreate(&e, flags));
	return e;
}

char *host_new(size_t n)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		must(CUDA_ERROR_OUT_OF_MEMORY, "mmap");
	return p;
}

char *pinned_new(size_t n)
{
	char *p = host_new(n);

	MUST(cu.cuMemHostRegister_v2(p, n, CU_MEMHOSTREGISTER_PORTABLE));
	return p;
}

CUfunction kernel(const char *name)
{
	static CUmodule module;
	CUfunction f;

	if (!module)
		MUST(cu.cuModuleLoadData(&module, cuda_kernels));
	MUST(cu.cuModuleGetFunction(&f, module, name));
	return f;
}

void spin(CUstream s, uint64_t ms)
{
	uint64_t ns = ms * 1000000;

	MUST(cu.cuLaunchKernel(kernel("conformance_spin"), 1, 1, 1, 1, 1, 1, 0, s, (void *[]){ &ns }, NULL));
}

CUresult add(CUdeviceptr to, CUdeviceptr from, uint32_t n_add, uint32_t n, CUstream s)
{
	return cu.cuLaunchKernel(kernel("conformance_add"), 64, 1, 1, 256, 1, 1, 0, s,
				 (void *[]){ &to, &from, &n_add, &n }, NULL);
}

uint32_t word_at(CUdeviceptr a)
{
	uint32_t word = 0;

	MUST(cu.cuMemcpyDtoH_v2(&word, a, 4));
	return word;
}
