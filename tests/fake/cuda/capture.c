/* Stream capture. Work that is given to a capturing stream is not run but becomes part of a graph. Only the number of
 * operations in a graph is kept; a graph is never replayed. Calls that are not allowed during a capture fail and
 * invalidate it, as the documentation of cuThreadExchangeStreamCaptureMode and of the error codes says. */
#include <signal.h>
#include <stdlib.h>

#include "fake.h"

struct capture {
	struct capture *next;
	CUstream origin;
	int mode;
	pthread_t thread;
	bool invalid;
	unsigned n_ops;
};

struct CUgraph_st {
	unsigned n_ops;
};

static struct capture *captures;
static _Thread_local int mode_here; /* CU_STREAM_CAPTURE_MODE_GLOBAL is 0 */

/* "Potentially unsafe": calls that are not queued on a stream, that wait, or that look at unfinished work. */
static bool unsafe(enum api api)
{
	switch (api) {
	case API_cuMemAlloc_v2:
	case API_cuMemFree_v2:
	case API_cuMemAllocHost_v2:
	case API_cuMemHostAlloc:
	case API_cuMemFreeHost:
	case API_cuMemHostRegister_v2:
	case API_cuMemHostUnregister:
	case API_cuIpcOpenMemHandle_v2:
	case API_cuIpcCloseMemHandle:
	case API_cuEventQuery:
	case API_cuEventSynchronize:
	case API_cuStreamQuery:
	case API_cuStreamSynchronize:
	case API_cuCtxSynchronize:
	case API_cuModuleLoadData:
	case API_cuModuleUnload:
	case API_cuMemcpy:
	case API_cuMemcpyHtoD_v2:
	case API_cuMemcpyDtoH_v2:
	case API_cuMemcpyDtoD_v2:
	case API_cuMemsetD8_v2:
	case API_cuMemsetD32_v2:
		return true;
	default:
		return false;
	}
}

CUresult capture_permits(enum api api)
{
	CUresult r = CUDA_SUCCESS;

	for (struct capture *c = unsafe(api) ? captures : NULL; c; c = c->next) {
		bool own = pthread_equal(c->thread, pthread_self());

		if (own ? c->mode == CU_STREAM_CAPTURE_MODE_RELAXED || mode_here == CU_STREAM_CAPTURE_MODE_RELAXED
			: c->mode != CU_STREAM_CAPTURE_MODE_GLOBAL || mode_here != CU_STREAM_CAPTURE_MODE_GLOBAL)
			continue;
		c->invalid = true;
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return r;
}

static struct capture *of_blocking_stream(CUcontext ctx)
{
	for (CUstream s = fake.streams; s; s = s->next)
		if (s->ctx == ctx && s->capture && !(s->flags & CU_STREAM_NON_BLOCKING))
			return s->capture;
	return NULL;
}

CUresult capture_work(CUstream s)
{
	struct capture *blocking = s == s->ctx->legacy ? of_blocking_stream(s->ctx) : NULL;

	if (blocking) {
		blocking->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	return s->capture && s->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

bool capture_take(CUstream s)
{
	if (s->capture)
		s->capture->n_ops++;
	return s->capture;
}

CUresult capture_wait(CUstream s, CUevent event)
{
	if (!event->captured) {
		if (!s->capture)
			return CUDA_SUCCESS;
		s->capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	if (!event->capture)
		return CUDA_ERROR_CAPTURED_EVENT;
	if (s->capture && s->capture != event->capture) {
		s->capture->invalid = event->capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	s->capture = event->capture; /* from here on the stream takes part in the capture */
	return CUDA_SUCCESS;
}

CUresult capture_look(CUstream s)
{
	if (!s->capture)
		return CUDA_SUCCESS;
	s->capture->invalid = true;
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* "A broader handle which encompasses active stream capture": invalid whatever the modes. */
CUresult capture_look_context(CUcontext ctx)
{
	CUresult r = CUDA_SUCCESS;

	for (CUstream s = fake.streams; s; s = s->next)
		if (s->ctx == ctx && s->capture)
			r = capture_look(s);
	return r;
}

static void forget(struct capture *c)
{
	struct capture **p = &captures;

	for (CUstream s = fake.streams; s; s = s->next)
		if (s->capture == c)
			s->capture = NULL;
	for (CUevent e = fake.events; e; e = e->next)
		if (e->capture == c)
			e->capture = NULL;
	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	free(c);
}

void capture_forget_stream(CUstream s)
{
	if (s->capture && s->capture->origin == s) {
		violation("a stream was destroyed while it was capturing");
		forget(s->capture);
	}
}

/* ---- calls ---- */

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuStreamBeginCapture_v2, NEED_CONTEXT);

	if (!r)
		r = stream_check(&stream);
	if (!r && (mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED || stream->capture))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r && stream == stream->ctx->legacy)
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (!r) {
		struct capture *capture = calloc(1, sizeof *capture);

		if (!capture)
			abort();
		*capture =
			(struct capture){ .next = captures, .origin = stream, .mode = mode, .thread = pthread_self() };
		captures = stream->capture = capture;
	}
	return call_end(&c, r);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuStreamEndCapture, NEED_CONTEXT);
	struct capture *capture;

	*graph = NULL;
	if (!r)
		r = stream_check(&stream);
	capture = r ? NULL : stream->capture;
	if (!r && !capture)
		r = CUDA_ERROR_ILLEGAL_STATE;
	if (!r && capture->origin != stream)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self())) {
		r = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
		forget(capture); /* driver 580: it is over all the same */
	}
	if (!r) {
		if (capture->invalid) {
			r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		} else {
			*graph = malloc(sizeof **graph);
			if (!*graph)
				abort();
			(*graph)->n_ops = capture->n_ops;
		}
		forget(capture);
	}
	return call_end(&c, r);
}

CUresult cuGraphDestroy(CUgraph graph)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuGraphDestroy, NEED_INIT);

	if (!r)
		free(graph);
	return call_end(&c, r);
}

CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuStreamIsCapturing, NEED_CONTEXT);

	if (!r)
		r = stream_check(&stream);
	if (r == CUDA_ERROR_INVALID_HANDLE)
		raise(SIGSEGV); /* as driver 580 does */
	if (!r && stream == stream->ctx->legacy && of_blocking_stream(stream->ctx))
		r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	if (!r)
		*status = !stream->capture ? 0 : stream->capture->invalid ? 2 : 1;
	return call_end(&c, r);
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuThreadExchangeStreamCaptureMode, NEED_INIT);

	if (!r && (!mode || *mode < 0 || *mode > CU_STREAM_CAPTURE_MODE_RELAXED))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r) {
		int before = mode_here;

		mode_here = *mode;
		*mode = before;
	}
	return call_end(&c, r);
}
