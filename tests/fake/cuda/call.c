/* The beginning and the end of every call. Checks whether this thread may make the call, whether this very process has
 * initialised the library, whether there is a context that is not lost, and whether the test wants the call to fail. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

struct fake fake = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

const char *api_name(enum api api)
{
#define NAME(name, symbol, since, params) #name,
	static const char *const names[] = { FAKECUDA_API(NAME) };
#undef NAME
	return names[api];
}

CUresult call_begin(struct call *c, enum api api, enum need need)
{
	const char *name = api_name(api);
	int owner = atomic_load(&fake.pid);
	CUresult r;

	*c = (struct call){ .api = api };
	atomic_fetch_add(&fake.n_inside, 1);
	if (owner && owner != getpid()) { /* before any lock: the parent's threads may have held them */
		violation("%s called in process %d, forked from %d, which had called cuInit", name, (int)getpid(),
			  owner);
		return CUDA_ERROR_NOT_INITIALIZED;
	}
	if (atomic_load(&fake.deinitialized))
		return CUDA_ERROR_DEINITIALIZED;
	settings_read();
	if (thread_forbidden()) {
		violation("%s called on a thread that must not use CUDA", name);
		return CUDA_ERROR_NOT_PERMITTED;
	}
	count_call(api);
	inject_latency(name);
	wait_if_held(name);
	pthread_mutex_lock(&fake.lock);
	c->locked = true;
	if (need >= NEED_INIT && !owner) {
		violation("%s called before cuInit", name);
		return CUDA_ERROR_NOT_INITIALIZED;
	}
	if (need == NEED_CONTEXT) {
		CUcontext ctx = context_current();

		if (!ctx) {
			violation("%s called on a thread without a current context", name);
			return CUDA_ERROR_INVALID_CONTEXT;
		}
		if (!context_valid(ctx)) {
			violation("%s called with a context that was destroyed", name);
			return CUDA_ERROR_CONTEXT_IS_DESTROYED;
		}
		if (ctx->lost)
			return ctx->lost;
	}
	r = capture_permits(api);
	if (r)
		return r;
	r = inject(name);
	if (r && need == NEED_CONTEXT)
		sticky(context_current(), r);
	return r;
}

CUresult call_end(struct call *c, CUresult result)
{
	if (c->locked)
		pthread_mutex_unlock(&fake.lock);
	atomic_fetch_sub(&fake.n_inside, 1);
	return result;
}

/* After these errors the process must end, as the driver's documentation says ("must be terminated and relaunched"). */
bool error_is_fatal(CUresult error)
{
	static const CUresult fatal[] = { CUDA_ERROR_ECC_UNCORRECTABLE,
					  220,
					  226,
					  CUDA_ERROR_ILLEGAL_ADDRESS,
					  CUDA_ERROR_LAUNCH_TIMEOUT,
					  710,
					  CUDA_ERROR_HARDWARE_STACK_ERROR,
					  715,
					  716,
					  717,
					  718,
					  CUDA_ERROR_LAUNCH_FAILED,
					  721 };

	for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
		if (error == fatal[i])
			return true;
	return false;
}

/* The error stays with the context. */
void sticky(CUcontext ctx, CUresult error)
{
	if (!ctx || ctx->lost || !error_is_fatal(error))
		return;
	ctx->lost = error;
	pthread_cond_broadcast(&fake.changed);
}
