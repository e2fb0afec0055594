/* Contexts: the primary context of each device, which is counted, and others; the stack of each thread. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fake.h"

enum { DEEPEST = 16 };
static _Thread_local CUcontext stack[DEEPEST];
static _Thread_local int depth;

CUcontext context_current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

bool context_valid(CUcontext ctx)
{
	for (CUcontext c = fake.contexts; c; c = c->next)
		if (c == ctx)
			return true;
	return false;
}

static CUresult context_create(int device, bool primary, unsigned flags, CUcontext *ctxp)
{
	struct device *d = &fake.devices[device];
	CUcontext ctx;

	if (settings.prohibited)
		return primary ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_DEVICE_UNAVAILABLE; /* as documented */
	if (!device_claim(d) && settings.exclusive && !device_under_mps())
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	if (!device_charge(d, settings.context_bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ctx = calloc(1, sizeof *ctx);
	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ctx = (struct CUctx_st){ .next = fake.contexts, .device = device, .primary = primary, .flags = flags };
	fake.contexts = ctx;
	ctx->legacy = stream_create(ctx, 0, 0);
	*ctxp = ctx;
	return CUDA_SUCCESS;
}

/* Destroys the context and everything in it. Reports what the program has not freed itself. */
static void context_destroy(CUcontext ctx)
{
	unsigned n_memory = 0, n_streams = 0;

	context_drain(ctx);
	for (struct memory **m = &fake.memory; *m;)
		if ((*m)->ctx == ctx) {
			n_memory++;
			memory_remove(*m);
		} else {
			m = &(*m)->next;
		}
	for (CUstream s = fake.streams, next; s; s = next) {
		next = s->next;
		if (s->ctx == ctx && !s->closing) {
			n_streams += s != ctx->legacy && !s->of_thread;
			stream_drop(s);
		}
	}
	if ((n_memory || n_streams) && !ctx->lost) /* after this call the program cannot free it any more */
		violation("a context was destroyed with %u pieces of memory and %u streams still in it", n_memory,
			  n_streams);
	for (CUcontext *p = &fake.contexts; *p; p = &(*p)->next)
		if (*p == ctx) {
			*p = ctx->next;
			break;
		}
	device_refund(&fake.devices[ctx->device], settings.context_bytes);
	if (fake.devices[ctx->device].primary == ctx)
		fake.devices[ctx->device].primary = NULL;
	ctx->next = NULL; /* kept, a few bytes: a thread may have it current and must get this error */
	static CUcontext graveyard;
	ctx->next = graveyard;
	graveyard = ctx;
}

static CUresult valid(CUdevice device)
{
	return device >= 0 && device < fake.n_devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuDevicePrimaryCtxRetain, NEED_INIT);

	if (!r)
		r = valid(device);
	if (!r) {
		struct device *d = &fake.devices[device];

		if (!d->primary)
			r = context_create(device, true, d->primary_flags, &d->primary);
		if (!r) {
			d->primary_refs++;
			*ctx = d->primary;
		}
	}
	return call_end(&c, r);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuDevicePrimaryCtxRelease_v2, NEED_INIT);

	if (!r)
		r = valid(device);
	if (!r) {
		struct device *d = &fake.devices[device];

		if (!d->primary_refs) {
			violation("cuDevicePrimaryCtxRelease without a retain");
			r = CUDA_ERROR_INVALID_CONTEXT;
		} else if (!--d->primary_refs) {
			context_destroy(d->primary);
		}
	}
	return call_end(&c, r);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuDevicePrimaryCtxSetFlags_v2, NEED_INIT);

	if (!r)
		r = flags & ~0xffu ? CUDA_ERROR_INVALID_VALUE : valid(device);
	if (!r) {
		fake.devices[device].primary_flags = flags;
		if (fake.devices[device].primary)
			fake.devices[device].primary->flags = flags;
	}
	return call_end(&c, r);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuDevicePrimaryCtxGetState, NEED_INIT);

	if (!r)
		r = valid(device);
	if (!r) {
		*flags = fake.devices[device].primary_flags;
		*active = !!fake.devices[device].primary;
	}
	return call_end(&c, r);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuDevicePrimaryCtxReset_v2, NEED_INIT);

	if (!r)
		r = valid(device);
	if (!r && fake.devices[device].primary) {
		fake.devices[device].primary_refs = 0;
		context_destroy(fake.devices[device].primary);
	}
	return call_end(&c, r);
}

static CUresult push(CUcontext ctx)
{
	if (!ctx || !context_valid(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth == DEEPEST) {
		violation("contexts pushed %d deep: a pop is missing", DEEPEST);
		return CUDA_ERROR_INVALID_VALUE;
	}
	stack[depth++] = ctx;
	return CUDA_SUCCESS;
}

static CUresult create(enum api api, CUcontext *ctx, unsigned flags, CUdevice device)
{
	struct call c;
	CUresult r = call_begin(&c, api, NEED_INIT);

	if (!r)
		r = valid(device);
	if (!r)
		r = context_create(device, false, flags, ctx);
	if (!r)
		r = push(*ctx);
	return call_end(&c, r);
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device)
{
	return create(API_cuCtxCreate_v2, ctx, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *ctx, void *params, unsigned flags, CUdevice device)
{
	(void)params;
	return create(API_cuCtxCreate_v4, ctx, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuCtxDestroy_v2, NEED_INIT);

	if (!r && (!context_valid(ctx) || ctx->primary))
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (!r) {
		context_destroy(ctx);
		if (context_current() == ctx)
			depth--;
	}
	return call_end(&c, r);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuCtxSetCurrent, NEED_INIT);

	if (!r && ctx && !context_valid(ctx))
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (!r) {
		depth -= depth > 0;
		if (ctx)
			r = push(ctx);
	}
	return call_end(&c, r);
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuCtxGetCurrent, NEED_INIT);

	if (!r)
		*ctx = context_current();
	return call_end(&c, r);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuCtxPushCurrent_v2, NEED_INIT);

	if (!r)
		r = push(ctx);
	return call_end(&c, r);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuCtxPopCurrent_v2, NEED_INIT);

	if (!r && !depth) {
		violation("cuCtxPopCurrent of a thread that has no context");
		r = CUDA_ERROR_INVALID_CONTEXT;
	}
	if (!r) {
		depth--;
		if (ctx)
			*ctx = stack[depth];
	}
	return call_end(&c, r);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuCtxGetDevice, NEED_CONTEXT);

	if (!r)
		*device = context_current()->device;
	return call_end(&c, r);
}

CUresult cuCtxGetFlags(unsigned *flags)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuCtxGetFlags, NEED_CONTEXT);

	if (!r)
		*flags = context_current()->flags;
	return call_end(&c, r);
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned *version)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuCtxGetApiVersion, NEED_INIT);

	if (!r && ctx && !context_valid(ctx))
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (!r)
		*version = 3020;
	return call_end(&c, r);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuCtxGetStreamPriorityRange, NEED_CONTEXT);

	if (!r) {
		if (least)
			*least = 0;
		if (greatest)
			*greatest = -5;
	}
	return call_end(&c, r);
}

CUresult cuCtxSynchronize(void)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuCtxSynchronize, NEED_CONTEXT);

	if (!r)
		r = capture_look_context(context_current());
	if (!r) {
		context_drain(context_current());
		r = context_current()->lost;
	}
	return call_end(&c, r);
}
