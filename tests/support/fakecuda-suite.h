/* The fake driver, loaded into a test's own process as batchd does, with all its calls by name; and the beginning and the
 * end of most of its tests. */
#ifndef BATCHD_TESTS_FAKECUDA_SUITE_H
#define BATCHD_TESTS_FAKECUDA_SUITE_H

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake/cuda/abi.h"
#include "fake/cuda/fakecuda.h"
#include "suite.h"

enum { SLAB = 4 << 20, MB = 1 << 20 };

/* ---- the library ---- */

static struct {
#define MEMBER(name, symbol, since, params) __typeof__(&symbol) symbol;
	FAKECUDA_API(MEMBER)
#undef MEMBER
	__typeof__(&fakecuda_fail) inject;
	__typeof__(&fakecuda_forbid_thread) forbid_thread;
	__typeof__(&fakecuda_counter) counter;
	__typeof__(&fakecuda_alive) alive;
	__typeof__(&fakecuda_last_violation) last_violation;
	__typeof__(&fakecuda_hold_streams) hold_streams;
	void *library;
} cu __attribute__((unused));

static inline void find(void *member, const char *name)
{
	void *fn = dlsym(cu.library, name);

	ck_assert_msg(fn, "the fake driver has no %s", name);
	memcpy(member, &fn, sizeof fn);
}

static inline void load_named(const char *file)
{
	char path[4096];

	snprintf(path, sizeof path, "%s/%s", getenv("BATCHD_BUILD") ? getenv("BATCHD_BUILD") : "build", file);
	cu.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(cu.library, "%s", dlerror());
}

static inline void load(void)
{
	load_named("libfakecuda.so");
#define FIND(name, symbol, since, params) find(&cu.symbol, #symbol);
	FAKECUDA_API(FIND)
#undef FIND
	find(&cu.inject, "fakecuda_fail");
	find(&cu.forbid_thread, "fakecuda_forbid_thread");
	find(&cu.counter, "fakecuda_counter");
	find(&cu.alive, "fakecuda_alive");
	find(&cu.last_violation, "fakecuda_last_violation");
	find(&cu.hold_streams, "fakecuda_hold_streams");
}

static inline void ok(CUresult r, int line)
{
	const char *name = "?";

	cu.cuGetErrorName(r, &name);
	ck_assert_msg(r == CUDA_SUCCESS, "line %d: %s (%s)", line, name, cu.last_violation());
}
#define OK(call) ok(call, __LINE__)
#define VIOLATIONS(n) \
	ck_assert_msg(cu.counter("violations") == (n), "%d violations, not %d; the last: %s", \
		      (int)cu.counter("violations"), (int)(n), cu.last_violation())

/* Loaded, initialised, the primary context current. */
static inline CUcontext begin(void)
{
	CUcontext ctx;

	setenv("FAKECUDA_QUIET", "1", 1);
	load();
	OK(cu.cuInit(0));
	OK(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cu.cuCtxSetCurrent(ctx));
	return ctx;
}

static inline void end(void)
{
	OK(cu.cuCtxSetCurrent(NULL));
	OK(cu.cuDevicePrimaryCtxRelease_v2(0));
	ck_assert_uint_eq(cu.alive(), 0);
}

static inline void *pinned(size_t n_bytes)
{
	void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	OK(cu.cuMemHostRegister_v2(p, n_bytes, CU_MEMHOSTREGISTER_PORTABLE));
	return p;
}

static inline void unpin(void *p, size_t n_bytes)
{
	OK(cu.cuMemHostUnregister(p));
	munmap(p, n_bytes);
}

#endif
