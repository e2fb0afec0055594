/* Streams, events, kernels. */
#include "case.h"

void case_streams(void)
{
	CUdeviceptr a, b;
	CUstream one, two;
	CUevent e, f;
	int least, greatest;
	char *in, *out;

	begin();
	a = slab_of(SLAB), b = slab_of(SLAB);
	in = pinned_new(SLAB), out = pinned_new(SLAB);
	exact_of("priorities", cu.cuCtxGetStreamPriorityRange(&least, &greatest));
	exact_bool("the greatest is the smaller number", greatest < least);
	one = stream_new(), two = stream_new();
	exact_of("an idle stream", cu.cuStreamQuery(one));
	spin(one, 1); /* the first launch loads the kernel */
	MUST(cu.cuStreamSynchronize(one));
	spin(one, 100);
	exact_of("a busy stream", cu.cuStreamQuery(one));
	exact_of("another stream is not busy", cu.cuStreamQuery(two));
	e = event_new(CU_EVENT_DISABLE_TIMING), f = event_new(CU_EVENT_DISABLE_TIMING);
	exact_of("an event never recorded", cu.cuEventQuery(e));
	exact_of("wait for an event never recorded", cu.cuEventSynchronize(e));
	exact_of("record behind work", cu.cuEventRecord(e, one));
	exact_of("it is not ready", cu.cuEventQuery(e));
	exact_of("stream waits for an event never recorded", cu.cuStreamWaitEvent(two, f, 0));
	MUST(cu.cuEventRecord(f, two));
	exact_of("that did not wait", cu.cuEventSynchronize(f));
	exact_of("and the first still runs", cu.cuEventQuery(e));
	exact_of("it ends", cu.cuEventSynchronize(e));
	exact_of("and is ready", cu.cuEventQuery(e));

	/* A wait is for the record that was current at the call. */
	spin(one, 5);
	MUST(cu.cuEventRecord(e, one));
	MUST(cu.cuStreamWaitEvent(two, e, 0));
	spin(one, 300);
	MUST(cu.cuEventRecord(e, one));
	MUST(cu.cuEventRecord(f, two));
	MUST(cu.cuEventSynchronize(f));
	exact_of("a wait does not mean a later record", cu.cuEventQuery(e));
	MUST(cu.cuStreamSynchronize(one));

	/* The source is read when the copy runs; a driver may copy a few bytes during the call. */
	memset(in, 'a', MB);
	spin(one, 50);
	MUST(cu.cuMemcpyHtoDAsync_v2(a, in, MB, one));
	exact_of("a copy behind work has not run", cu.cuStreamQuery(one));
	memset(in, 'b', MB);
	MUST(cu.cuMemcpyDtoHAsync_v2(out, a, MB, one));
	MUST(cu.cuStreamSynchronize(one));
	exact("source changed before the copy ran",
	      out[0] == 'b' ? "the change was copied" : "the old bytes were copied");
	class_of("copy past the end", cu.cuMemcpyHtoDAsync_v2(a + SLAB - 10, in, 1 << 20, one));
	exact_of("a copy of 0 bytes", cu.cuMemcpyHtoDAsync_v2(a, in, 0, one));
	memset(in, 5, SLAB);
	MUST(cu.cuMemcpyHtoDAsync_v2(a, in, SLAB, one));
	MUST(cu.cuMemcpyDtoDAsync_v2(b, a, SLAB, one));
	exact_of("kernel", add(a, b, 0x01010101, SLAB / 4, one));
	MUST(cu.cuMemcpyDtoHAsync_v2(out, a, SLAB, one));
	exact_of("all of it ends", cu.cuStreamSynchronize(one));
	exact_bool("every byte is right", out[0] == 6 && !memcmp(out, out + 1, SLAB - 1));
	exact_of("kernel writes to registered memory", add((uintptr_t)out, a, 0x01010101, 1024, one));
	MUST(cu.cuStreamSynchronize(one));
	exact_bool("it is there", out[0] == 7 && out[4095] == 7 && out[4096] == 6);

	exact_of("an interprocess event with timing", cu.cuEventCreate(&e, CU_EVENT_INTERPROCESS));
	e = event_new(0), f = event_new(0);
	float ms = -1;
	exact_of("time between events never recorded", cu.cuEventElapsedTime(&ms, e, f));
	MUST(cu.cuEventRecord(e, one));
	spin(one, 20);
	MUST(cu.cuEventRecord(f, one));
	exact_of("time of work that still runs", cu.cuEventElapsedTime(&ms, e, f));
	MUST(cu.cuStreamSynchronize(one));
	exact_of("time between events", cu.cuEventElapsedTime(&ms, e, f));
	exact_bool("it is about right", ms >= 19.5 && ms < 2000);
	spin(one, 50);
	exact_of("destroy a busy stream", cu.cuStreamDestroy_v2(one));
	exact_of("everything ends", cu.cuCtxSynchronize());
	exact_of("destroy an event", cu.cuEventDestroy_v2(e));
}

void case_kernels(void)
{
	static char junk[256] = "this is neither PTX nor a cubin";
	CUdeviceptr a;
	CUfunction f;
	CUmodule m;
	uint32_t one = 1, n = 16;

	begin();
	a = slab_of(SLAB);
	class_of("load junk", cu.cuModuleLoadData(&m, junk));
	exact_of("load PTX", cu.cuModuleLoadData(&m, cuda_kernels));
	exact_of("a kernel that is not there", cu.cuModuleGetFunction(&f, m, "no_such_kernel"));
	exact_of("a kernel", cu.cuModuleGetFunction(&f, m, "conformance_add"));
	exact_of("1025 threads",
		 cu.cuLaunchKernel(f, 1, 1, 1, 1025, 1, 1, 0, NULL, (void *[]){ &a, &a, &one, &n }, NULL));
	exact_of("no blocks", cu.cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, NULL, (void *[]){ &a, &a, &one, &n }, NULL));
	exact_of("launch", cu.cuLaunchKernel(f, 1, 1, 1, 16, 1, 1, 0, NULL, (void *[]){ &a, &a, &one, &n }, NULL));
	one = 999; /* parameters are copied during the call */
	exact_of("ends", cu.cuCtxSynchronize());
	exact_of("unload", cu.cuModuleUnload(m));
}
