/* Memory on the GPU and registered memory of the host. */
#include "case.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

void case_memory(void)
{
	CUdeviceptr a, base = 0;
	size_t n = 0, left, total;
	unsigned type = 0;
	int capable = -1, x = 0;

	begin();
	exact_of("allocate 0 bytes", cu.cuMemAlloc_v2(&a, 0));
	exact_of("allocate more than there is", cu.cuMemAlloc_v2(&a, (size_t)1 << 46));
	class_of("free nothing", cu.cuMemFree_v2(0));
	exact_of("memory info", cu.cuMemGetInfo_v2(&left, &total));
	exact_bool("some of it is free", left > 0 && left <= total);
	a = slab_of(SLAB);
	exact_bool("2 MiB aligned", a % (2 << 20) == 0);
	exact_of("range of an address in the middle", cu.cuMemGetAddressRange_v2(&base, &n, a + 12345));
	exact_bool("it is the piece", base == a && n == SLAB);
	exact_of("memory type", cu.cuPointerGetAttribute(&type, 2, a));
	exact_bool("it is device memory", type == CU_MEMORYTYPE_DEVICE);
	exact_of("may be shared by handle", cu.cuPointerGetAttribute(&capable, 10, a));
	exact_bool("it may", capable == 1);
	exact_of("type of a stack address", cu.cuPointerGetAttribute(&type, 2, (uintptr_t)&x));
	exact_of("fill", cu.cuMemsetD8_v2(a, 7, SLAB));
	class_of("fill past the end", cu.cuMemsetD8_v2(a, 7, (size_t)1 << 40));
	class_of("free an address in the middle", cu.cuMemFree_v2(a + 4096));
	exact_of("free", cu.cuMemFree_v2(a));
	class_of("free again", cu.cuMemFree_v2(a));
}

static int sealed_memfd(size_t n, char **writable, char **readable)
{
	int fd = memfd_create("conformance", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)n))
		must(CUDA_ERROR_OPERATING_SYSTEM, "memfd");
	*writable = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	*readable = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);
	if (*writable == MAP_FAILED || *readable == MAP_FAILED)
		must(CUDA_ERROR_OPERATING_SYSTEM, "mmap");
	return fd;
}

void case_host(void)
{
	char *p, *writable, *readable, *gone;
	CUdeviceptr a, d;
	CUstream s;
	unsigned type = 0;

	begin();
	a = slab_of(SLAB);
	s = stream_new();
	p = host_new(64 * PAGE);
	exact_of("register 0 bytes", cu.cuMemHostRegister_v2(p, 0, 0));
	exact_of("register", cu.cuMemHostRegister_v2(p, 16 * PAGE, CU_MEMHOSTREGISTER_PORTABLE));
	exact_of("register again", cu.cuMemHostRegister_v2(p, 16 * PAGE, 0));
	exact_of("register what overlaps", cu.cuMemHostRegister_v2(p + 15 * PAGE, 2 * PAGE, 0));
	exact_of("register next to it", cu.cuMemHostRegister_v2(p + 16 * PAGE, 16 * PAGE, 0));
	exact_of("copy from a registered piece", cu.cuMemcpyHtoDAsync_v2(a, p, 16 * PAGE, s));
	MUST(cu.cuStreamSynchronize(s));
	class_of("copy that straddles two registrations", cu.cuMemcpyHtoDAsync_v2(a, p + 15 * PAGE, 2 * PAGE, s));
	cu.cuStreamSynchronize(s);
	class_of("copy that leaves a registration", cu.cuMemcpyHtoDAsync_v2(a, p + 31 * PAGE, 2 * PAGE, s));
	cu.cuStreamSynchronize(s);
	exact_of("device pointer", cu.cuMemHostGetDevicePointer_v2(&d, p, 0));
	exact_bool("it is the same address", d == (uintptr_t)p);
	exact_of("type of registered memory", cu.cuPointerGetAttribute(&type, 2, (uintptr_t)p));
	exact_bool("it is host memory", type == CU_MEMORYTYPE_HOST);
	class_of("unregister an address in the middle", cu.cuMemHostUnregister(p + PAGE));
	exact_of("unregister", cu.cuMemHostUnregister(p));
	exact_of("unregister again", cu.cuMemHostUnregister(p));
	exact_of("unregister its neighbour", cu.cuMemHostUnregister(p + 16 * PAGE));
	gone = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(gone, PAGE);
	class_of("register what is not mapped", cu.cuMemHostRegister_v2(gone, PAGE, 0));
	sealed_memfd(SLAB, &writable, &readable);
	exact_of("register the daemon's mapping of a sealed memfd",
		 cu.cuMemHostRegister_v2(writable, SLAB, CU_MEMHOSTREGISTER_PORTABLE));
	class_of("register a read-only mapping", cu.cuMemHostRegister_v2(readable, SLAB, CU_MEMHOSTREGISTER_PORTABLE));
	CUresult r =
		cu.cuMemHostRegister_v2(readable, SLAB, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_READ_ONLY);
	/* Machines where GPU and processors share page tables can; those behind PCIe on x86 cannot. */
	open_of("register a read-only mapping as such", r ? "fails" : "works");
	memset(writable, 42, SLAB);
	if (!r) {
		char out[16] = "";
		bool ok = !cu.cuMemcpyHtoDAsync_v2(a, readable, SLAB, s) && !cu.cuStreamSynchronize(s) &&
			  !cu.cuMemcpyDtoH_v2(out, a + SLAB - 16, 16) && out[15] == 42;

		open_of("copies from it arrive", ok ? "yes" : "no");
		open_of("unregister it", cu.cuMemHostUnregister(readable) ? "fails" : "works");
	}
	exact_of("unregister the daemon's mapping", cu.cuMemHostUnregister(writable));
}
