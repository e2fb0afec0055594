/* The driver itself: names, versions, attributes, contexts, forks, the state after a fault. */
#include "case.h"

#include "gpu/driver.h"

#include <sys/wait.h>
#include <unistd.h>

enum { SCHED_MASK = 7 }; /* of a context's flags: how its threads wait */

const struct attribute attributes[] = { { 16, "multiprocessors" },
					{ 20, "compute mode" },
					{ 32, "ECC" },
					{ 40, "copy engines" },
					{ 41, "unified addressing" },
					{ 75, "compute capability, major" },
					{ 91, "host pointers are device pointers" },
					{ 99, "host registration" },
					{ 100, "host page tables" },
					{ 102, "virtual memory" },
					{ 103, "file descriptor handles" },
					{ 113, "read-only registration" },
					{ 125, "IPC events" },
					{ 133, "MPS" },
					{ 134, "NUMA node" } };
const size_t n_attributes = sizeof attributes / sizeof *attributes;

/* The driver must have all names that batchd uses; of the fake driver's names, which are of CUDA 13, an older driver lacks
 * the later ones. */
static void names(void)
{
	const char *needed = "yes", *expected = "yes";
	char later[1024] = "none";
	size_t at = 0;
	int version = 0;

	cu.cuDriverGetVersion(&version);
#define X(member, symbol, parameters) \
	if (cuda_lacks(#symbol)) \
		needed = #symbol;
	CUDA_CALLS(X)
#undef X
#define X(name, symbol, since, parameters) \
	if (cuda_lacks(#symbol) && since <= version) \
		expected = #symbol; \
	else if (cuda_lacks(#symbol) && at < sizeof later) \
		at += (size_t)snprintf(later + at, sizeof later - at, "%s%s", at ? " " : "", #symbol);
	FAKECUDA_API(X)
#undef X
	exact("every name that batchd needs", needed);
	exact("every name of the fake driver's that is as old", expected);
	open_of("names of the fake driver's that came later", later);
}

void case_driver(void)
{
	static const int codes[] = {
		1, 2, 3, 100, 101, 200, 201, 208, 400, 500, 600, 700, 712, 713, 719, 800, 801, 999
	};
	char name[64], text[128];
	void *fn = NULL;
	CUdevice device = -1;
	const char *error;
	int status, n = 0, value;
	CUuuid uuid = { { 0 } }, zero = { { 0 } };

	names();
	exact_of("a call before cuInit", cu.cuDeviceGetCount(&n));
	exact_of("cuInit with flags", cu.cuInit(1));
	exact_of("cuInit", cu.cuInit(0));
	exact_of("cuInit again", cu.cuInit(0));
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
		snprintf(name, sizeof name, "name of error %d", codes[i]);
		exact(name, cu.cuGetErrorName(codes[i], &error) ? "none" : error);
	}
	exact_of("name of an error that does not exist", cu.cuGetErrorName(12345, &error));
	cu.cuDriverGetVersion(&value);
	snprintf(text, sizeof text, "%d.%d", value / 1000, value % 1000 / 10);
	open_of("version", text);
	cu.cuDeviceGetCount(&n);
	exact_bool("at least one GPU", n > 0);
	exact_of("a GPU that does not exist", cu.cuDeviceGet(&device, n));
	exact_of("UUID", cu.cuDeviceGetUuid_v2(&uuid, 0));
	exact_bool("UUID is not zero", memcmp(&uuid, &zero, sizeof zero) != 0);
	cu.cuDeviceGetName(text, sizeof text, 0);
	open_of("name of the GPU", text);
	for (size_t i = 0; i < n_attributes; i++) {
		if (cu.cuDeviceGetAttribute(&value, attributes[i].number, 0))
			value = -999;
		snprintf(name, sizeof name, "attribute %d, %s", attributes[i].number, attributes[i].name);
		snprintf(text, sizeof text, "%d", value);
		open_of(name, text);
	}
	exact_of("attribute 0", cu.cuDeviceGetAttribute(&value, 0, 0));
	exact_of("cuGetProcAddress of cuMemAlloc", cu.cuGetProcAddress_v2("cuMemAlloc", &fn, 12000, 0, &status));
	/* Either may be a stub in front of the other; programs do not compare them. */
	open_of("it is dlsym's cuMemAlloc_v2", fn == (void *)cu.cuMemAlloc_v2 ? "yes" : "no");
	cu.cuGetProcAddress_v2("cuMemAlloc", &fn, 2000, 0, &status);
	open_of("cuGetProcAddress of cuMemAlloc as of 2.0", fn == (void *)cu.cuMemAlloc_v2 ? "the young one"
							    : fn                           ? "another one"
											   : "nothing");
	fn = NULL;
	class_of("cuGetProcAddress of no such name", cu.cuGetProcAddress_v2("cuNoSuchThing", &fn, 12000, 0, &status) ? 1
						     : status == 1 && !fn ? 500
									  : 0);
	class_of("cuGetProcAddress with a suffix", cu.cuGetProcAddress_v2("cuMemAlloc_v2", &fn, 12000, 0, &status) ? 1
						   : fn                                                            ? 0
							: 500);
}

void case_contexts(void)
{
	CUdeviceptr a;
	CUcontext c = (CUcontext)1, again;
	unsigned flags = 9;
	int active = 9;
	double began;
	char text[16];

	MUST(cu.cuInit(0));
	exact_of("allocate without a context", cu.cuMemAlloc_v2(&a, SLAB));
	exact_of("synchronise without a context", cu.cuCtxSynchronize());
	cu.cuCtxGetCurrent(&c);
	exact_bool("no context is current at first", c == NULL);
	exact_of("pop without a context", cu.cuCtxPopCurrent_v2(&c));
	exact_of("release without a retain", cu.cuDevicePrimaryCtxRelease_v2(0));
	exact_of("flags before the context is there", cu.cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
	exact_of("state", cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
	exact_bool("primary context is not active", active == 0);
	began = now();
	MUST(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	timed("make a context", (now() - began) * 1e3, "ms");
	cu.cuDevicePrimaryCtxGetState(0, &flags, &active);
	exact_bool("primary context is active", active == 1);
	exact_bool("the scheduling flag was kept", (flags & SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC);
	snprintf(text, sizeof text, "0x%x", flags); /* a driver may add some of its own */
	open_of("all flags", text);
	MUST(cu.cuDevicePrimaryCtxRetain(&again, 0));
	exact_bool("the same context again", again == ctx);
	exact_of("retained is not current", cu.cuMemAlloc_v2(&a, SLAB));
	exact_of("push", cu.cuCtxPushCurrent_v2(ctx));
	exact_of("allocate", cu.cuMemAlloc_v2(&a, SLAB));
	exact_of("free", cu.cuMemFree_v2(a));
	exact_of("pop", cu.cuCtxPopCurrent_v2(&c));
	exact_bool("popped what was pushed", c == ctx);
	exact_of("release", cu.cuDevicePrimaryCtxRelease_v2(0));
	exact_of("release again", cu.cuDevicePrimaryCtxRelease_v2(0));
	cu.cuDevicePrimaryCtxGetState(0, &flags, &active);
	exact_bool("primary context is gone", active == 0);
}

void case_sticky(void)
{
	CUdeviceptr a, b;
	CUevent e;

	begin();
	a = slab_of(SLAB);
	e = event_new(CU_EVENT_DISABLE_TIMING);
	MUST(add(0x10, a, 1, 16, NULL)); /* an unmapped address */
	exact_of("a kernel that writes to nowhere", cu.cuCtxSynchronize());
	exact_of("allocate afterwards", cu.cuMemAlloc_v2(&b, SLAB));
	exact_of("record afterwards", cu.cuEventRecord(e, NULL));
	exact_of("copy afterwards", cu.cuMemcpyHtoD_v2(a, "x", 1));
	exact_of("free afterwards", cu.cuMemFree_v2(a));
	CUresult r = cu.cuDevicePrimaryCtxRelease_v2(0);
	open_of("release afterwards", cuda_name(r));
}

void case_fork(void)
{
	CUdeviceptr a;
	pid_t child;

	begin();
	a = slab_of(SLAB);
	fflush(stdout);
	child = fork();
	if (!child) {
		exact_of("allocate in a forked child", cu.cuMemAlloc_v2(&a, SLAB));
		_exit(0);
	}
	waitpid(child, NULL, 0);
	exact_of("and the parent goes on", cu.cuMemsetD8_v2(a, 1, SLAB));
}
