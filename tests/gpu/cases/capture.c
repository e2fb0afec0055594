/* Streams that capture, and the default stream of each thread. */
#include "case.h"

#include <pthread.h>

static CUstream busy;
static CUevent earlier;

/* The calls of one thread while another captures in the strictest mode. */
static void *beside(void *arg)
{
	CUdeviceptr a;
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	(void)arg;
	MUST(cu.cuCtxSetCurrent(ctx));
	exact_of("relax", cu.cuThreadExchangeStreamCaptureMode(&mode));
	exact_bool("it was the strictest mode", mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
	exact_of("relaxed, look at an event", cu.cuEventQuery(earlier));
	exact_of("relaxed, allocate", cu.cuMemAlloc_v2(&a, SLAB));
	exact_of("relaxed, free", cu.cuMemFree_v2(a));
	exact_of("back", cu.cuThreadExchangeStreamCaptureMode(&mode));
	exact_bool("it was relaxed", mode == CU_STREAM_CAPTURE_MODE_RELAXED);
	return NULL;
}

static void *end_elsewhere(void *arg)
{
	CUgraph graph;

	(void)arg;
	MUST(cu.cuCtxSetCurrent(ctx));
	exact_of("end in another thread", cu.cuStreamEndCapture(busy, &graph));
	return NULL;
}

static void *beside_strictly(void *arg)
{
	(void)arg;
	MUST(cu.cuCtxSetCurrent(ctx));
	exact_of("strictly, look at an event", cu.cuEventQuery(earlier));
	return NULL;
}

static void in_thread(void *(*run)(void *))
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, run, NULL))
		must(CUDA_ERROR_OPERATING_SYSTEM, "pthread_create");
	pthread_join(thread, NULL);
}

static const char *status_of(CUstream s)
{
	static const char *const words[] = { "none", "active", "invalidated" };
	int status = 0;
	CUresult r = cu.cuStreamIsCapturing(s, &status);

	return r ? cuda_name(r) : words[status % 3];
}

/* Ends it and reports whether it was invalidated. */
static void end(const char *name, CUstream s)
{
	CUgraph graph = NULL;

	exact_of(name, cu.cuStreamEndCapture(s, &graph));
	if (graph)
		cu.cuGraphDestroy(graph);
}

void case_capture(void)
{
	CUevent captured, outside;
	CUdeviceptr a;
	CUstream s, blocking;

	begin();
	a = slab_of(SLAB);
	s = busy = stream_new();
	MUST(cu.cuStreamCreate(&blocking, 0));
	earlier = event_new(CU_EVENT_DISABLE_TIMING), outside = event_new(CU_EVENT_DISABLE_TIMING),
	captured = event_new(CU_EVENT_DISABLE_TIMING);
	MUST(add(a, a, 1, 16, s)); /* the first launch loads the kernel */
	MUST(cu.cuEventRecord(earlier, s));
	MUST(cu.cuEventRecord(outside, s));
	MUST(cu.cuStreamSynchronize(s));
	class_of("capture on the default stream", cu.cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
	exact("status before", status_of(s));
	exact_of("capture", cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	exact("status", status_of(s));
	exact("status of another stream", status_of(blocking));
	exact_of("a kernel", add(a, a, 1, 16, s));
	exact_of("record", cu.cuEventRecord(captured, s));
	in_thread(beside);
	end("nothing of that has spoilt it", s);
	class_of("look at what was recorded in it", cu.cuEventQuery(captured)); /* its graph is gone, too */
	exact_of("record it again", cu.cuEventRecord(captured, s));
	exact_of("wait for it", cu.cuEventSynchronize(captured));
	end("end what has ended", s);

	MUST(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	MUST(cu.cuEventRecord(captured, s));
	in_thread(end_elsewhere);
	open_of("status after that", status_of(s));
	end("which has ended it", s);
	open_of("look at what was recorded in that", cuda_name(cu.cuEventQuery(captured)));

	MUST(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	in_thread(beside_strictly);
	end("which has spoilt it", s);
	MUST(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	exact_of("wait for what was recorded before", cu.cuStreamWaitEvent(s, outside, 0));
	exact("status then", status_of(s));
	end("that has spoilt it", s);
	MUST(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	exact_of("look at the stream", cu.cuStreamQuery(s));
	end("that has, too", s);
	MUST(cu.cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	exact("status of the default stream while a blocking one captures", status_of(NULL));
	end("which spoils nothing", blocking);
}

static pthread_barrier_t turn;

static void *own_stream(void *arg)
{
	(void)arg;
	MUST(cu.cuCtxSetCurrent(ctx));
	spin(CU_STREAM_PER_THREAD, 200);
	exact_of("a thread's own default stream is busy", cu.cuStreamQuery(CU_STREAM_PER_THREAD));
	pthread_barrier_wait(&turn);
	pthread_barrier_wait(&turn);
	return NULL;
}

void case_threads_streams(void)
{
	CUevent own, legacy;
	pthread_t thread;

	begin();
	own = event_new(CU_EVENT_DISABLE_TIMING), legacy = event_new(CU_EVENT_DISABLE_TIMING);
	spin(CU_STREAM_PER_THREAD, 1);
	MUST(cu.cuStreamSynchronize(CU_STREAM_PER_THREAD));
	pthread_barrier_init(&turn, NULL, 2);
	if (pthread_create(&thread, NULL, own_stream, NULL))
		must(CUDA_ERROR_OPERATING_SYSTEM, "pthread_create");
	pthread_barrier_wait(&turn);
	MUST(cu.cuEventRecord(own, CU_STREAM_PER_THREAD));
	exact_of("another thread's is not", cu.cuEventSynchronize(own));
	exact_of("record in the legacy default stream", cu.cuEventRecord(legacy, CU_STREAM_LEGACY));
	exact_of("that waits for all threads' streams", cu.cuEventQuery(legacy));
	exact_of("and ends", cu.cuEventSynchronize(legacy));
	pthread_barrier_wait(&turn);
	pthread_join(thread, NULL);
}
