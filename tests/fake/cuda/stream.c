/* Streams. Each has a thread, started with its first operation, which runs one operation after the other, each after a
 * delay of its own. The legacy default stream and the blocking streams wait for each other. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

_Thread_local CUcontext running_context;

int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void pause_ns(long ns)
{
	if (ns > 0)
		nanosleep(&(struct timespec){ ns / 1000000000, ns % 1000000000 }, NULL);
}

CUstream stream_create(CUcontext ctx, unsigned flags, int priority)
{
	CUstream s = calloc(1, sizeof *s);

	if (!s)
		abort();
	*s = (struct CUstream_st){ .next = fake.streams, .ctx = ctx, .flags = flags, .priority = priority, .refs = 1 };
	s->last = &s->first;
	s->random = settings.seed * 1000003 + ++fake.last_id;
	fake.streams = s;
	return s;
}

static void stream_unref(CUstream s)
{
	if (--s->refs)
		return;
	for (CUstream *p = &fake.streams; *p; p = &(*p)->next)
		if (*p == s) {
			*p = s->next;
			break;
		}
	free(s);
}

/* Drops the caller's reference; submitted work still runs. */
void stream_drop(CUstream s)
{
	s->closing = true;
	pthread_cond_broadcast(&fake.changed);
	stream_unref(s);
}

bool stream_idle(CUstream s)
{
	return s->completed == s->submitted;
}

/* ---- running operations ---- */

/* Waits a little with the lock released, so that other threads make progress. For events of other processes, which
 * cannot wake this thread. */
static void wait_shortly(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += 200000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&fake.changed, &fake.lock, &t);
}

static bool blocked(const struct op *op)
{
	if (op->kind == OP_WAIT)
		return !record_done(op);
	return op->kind == OP_JOIN && op->other->completed < op->until;
}

static CUresult copy(struct op *op, long delay_ns)
{
	bool overlap = op->from < op->to + op->n_bytes && op->to < op->from + op->n_bytes;
	CUresult r = op->to_memory ? memory_usable(op->to_memory) : CUDA_SUCCESS;

	if (!r && op->from_memory)
		r = memory_usable(op->from_memory);
	if (r)
		return r;
	if (!overlap)
		memset(op->to, 0xa5, op->n_bytes); /* no reader may rely on the destination while a copy runs */
	pause_ns(delay_ns);
	memmove(op->to, op->from, op->n_bytes);
	return CUDA_SUCCESS;
}

static CUresult set(struct op *op)
{
	CUresult r = op->to_memory ? memory_usable(op->to_memory) : CUDA_SUCCESS;

	if (r)
		return r;
	if (op->width == 1)
		memset(op->to, (int)op->value, op->n_bytes);
	else
		for (size_t i = 0; i + 4 <= op->n_bytes; i += 4)
			memcpy(op->to + i, &op->value, 4);
	return CUDA_SUCCESS;
}

/* Without the lock. */
static CUresult perform(CUstream s, struct op *op, long delay_ns)
{
	switch (op->kind) {
	case OP_COPY:
		pause_ns(delay_ns / 2);
		return copy(op, delay_ns / 2);
	case OP_SET:
		pause_ns(delay_ns);
		return set(op);
	case OP_HOST:
		pause_ns(delay_ns);
		op->fn(op->data);
		return CUDA_SUCCESS;
	case OP_KERNEL:
		pause_ns(delay_ns);
		launch_run(op->launch, s->ctx);
		return CUDA_SUCCESS;
	case OP_RECORD:
	case OP_WAIT:
	case OP_JOIN:
		break;
	}
	return CUDA_SUCCESS;
}

static void finish(CUstream s, struct op *op)
{
	if (op->kind == OP_RECORD) {
		op->record->at_ns = now_ns();
		op->record->done = true;
		if (op->shared)
			atomic_store(&op->shared->records[op->number % RECORDS].done, op->number);
	}
	if (op->record)
		record_unref(op->record);
	if (op->kind == OP_JOIN)
		stream_unref(op->other);
	s->first = op->next;
	if (!s->first)
		s->last = &s->first;
	s->completed++;
	free(op->launch);
	free(op);
	pthread_cond_broadcast(&fake.changed);
}

static void *stream_main(void *arg)
{
	CUstream s = arg;

	fakecuda_forbid_thread(); /* host functions must not call CUDA */
	pthread_mutex_lock(&fake.lock);
	running_context = s->ctx;
	for (;;) {
		struct op *op = s->first;
		CUresult r;

		if (!op && s->closing)
			break;
		if (!op || fake.held) {
			pthread_cond_wait(&fake.changed, &fake.lock);
			continue;
		}
		if (!s->ctx->lost && blocked(op)) {
			if (op->shared)
				wait_shortly();
			else
				pthread_cond_wait(&fake.changed, &fake.lock);
			continue;
		}
		if (!s->ctx->lost) {
			long delay_ns = settings.delay_us > 0
						? (long)(random_next(&s->random) % (uint64_t)(settings.delay_us * 1000))
						: 0;

			r = op->kind == OP_COPY || op->kind == OP_SET || op->kind == OP_KERNEL ? inject("run")
											       : CUDA_SUCCESS;
			if (!r) {
				pthread_mutex_unlock(&fake.lock);
				r = perform(s, op, delay_ns);
				pthread_mutex_lock(&fake.lock);
			}
			if (r)
				sticky(s->ctx, r);
		}
		finish(s, op);
	}
	stream_unref(s);
	pthread_mutex_unlock(&fake.lock);
	return NULL;
}

static void start(CUstream s)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 1 << 20);
	if (pthread_create(&thread, &attr, stream_main, s))
		abort();
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	s->started = true;
	s->refs++;
}

static void append(CUstream s, const struct op *op)
{
	struct op *own = malloc(sizeof *own);

	if (!own)
		abort();
	*own = *op;
	own->next = NULL;
	*s->last = own;
	s->last = &own->next;
	s->submitted++;
	if (!s->started)
		start(s);
}

static void join(CUstream s, CUstream other)
{
	if (s == other || stream_idle(other))
		return;
	other->refs++;
	append(s, &(struct op){ .kind = OP_JOIN, .other = other, .until = other->submitted });
}

void stream_submit(CUstream s, struct op *op)
{
	if (capture_take(s)) {
		free(op->launch);
		return;
	}
	if (s == s->ctx->legacy) {
		for (CUstream t = fake.streams; t; t = t->next)
			if (t->ctx == s->ctx && !(t->flags & CU_STREAM_NON_BLOCKING))
				join(s, t);
	} else if (!(s->flags & CU_STREAM_NON_BLOCKING)) {
		join(s, s->ctx->legacy);
	}
	append(s, op);
	pthread_cond_broadcast(&fake.changed);
}

CUresult stream_finish(CUstream s)
{
	uint64_t until = s->submitted;
	CUcontext ctx = s->ctx;

	s->refs++;
	while (s->completed < until)
		pthread_cond_wait(&fake.changed, &fake.lock);
	stream_unref(s);
	return ctx->lost;
}

void context_drain(CUcontext ctx)
{
	bool again = true;

	while (again) { /* the list may change whenever the lock is released */
		again = false;
		for (CUstream s = fake.streams; s && !again; s = s->next)
			if ((!ctx || s->ctx == ctx) && !stream_idle(s)) {
				stream_finish(s);
				again = true;
			}
	}
}

/* Each thread has one per-thread stream in each context. It lives as long as the context, which is acceptable here. */
static CUstream per_thread(CUcontext ctx)
{
	pthread_t self = pthread_self();

	for (CUstream s = fake.streams; s; s = s->next)
		if (s->ctx == ctx && s->of_thread && pthread_equal(s->thread, self))
			return s;
	CUstream s = stream_create(ctx, 0, 0);
	s->of_thread = true;
	s->thread = self;
	return s;
}

CUresult stream_check(CUstream *stream)
{
	CUcontext ctx = context_current();

	if (*stream == NULL || *stream == CU_STREAM_LEGACY)
		*stream = ctx->legacy;
	else if (*stream == CU_STREAM_PER_THREAD)
		*stream = per_thread(ctx);
	for (CUstream s = fake.streams; s; s = s->next)
		if (s == *stream && !s->closing)
			return CUDA_SUCCESS;
	violation("a stream was used that does not exist, or no more");
	return CUDA_ERROR_INVALID_HANDLE;
}

CUresult stream_for_work(CUstream *stream)
{
	CUresult r = stream_check(stream);

	return r ? r : capture_work(*stream);
}

void fakecuda_hold_streams(bool hold)
{
	pthread_mutex_lock(&fake.lock);
	fake.held = hold;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

unsigned fakecuda_n_streams(int priority)
{
	unsigned n = 0;

	pthread_mutex_lock(&fake.lock);
	for (CUstream s = fake.streams; s; s = s->next)
		n += !s->closing && s->priority == priority;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

/* ---- calls ---- */

static CUresult create(enum api api, CUstream *stream, unsigned flags, int priority)
{
	struct call c;
	CUresult r = call_begin(&c, api, NEED_CONTEXT);

	if (!r && flags & ~1u)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*stream = stream_create(context_current(), flags, priority < -5 ? -5 : priority > 0 ? 0 : priority);
	return call_end(&c, r);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
	return create(API_cuStreamCreate, stream, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
	return create(API_cuStreamCreateWithPriority, stream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuStreamDestroy_v2, NEED_CONTEXT);

	if (!r)
		r = stream <= CU_STREAM_PER_THREAD ? CUDA_ERROR_INVALID_VALUE : stream_check(&stream);
	if (!r)
		capture_forget_stream(stream);
	if (!r)
		stream_drop(stream);
	return call_end(&c, r);
}

CUresult cuStreamQuery(CUstream stream)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuStreamQuery, NEED_CONTEXT);

	if (!r)
		r = stream_for_work(&stream);
	if (!r)
		r = capture_look(stream);
	if (!r && !stream_idle(stream))
		r = CUDA_ERROR_NOT_READY;
	return call_end(&c, r);
}

CUresult cuStreamSynchronize(CUstream stream)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuStreamSynchronize, NEED_CONTEXT);

	if (!r)
		r = stream_for_work(&stream);
	if (!r)
		r = capture_look(stream);
	if (!r)
		r = stream_finish(stream);
	return call_end(&c, r);
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *ctx)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuStreamGetCtx, NEED_CONTEXT);

	if (!r)
		r = stream_check(&stream);
	if (!r)
		*ctx = stream->ctx;
	return call_end(&c, r);
}

CUresult cuStreamGetFlags(CUstream stream, unsigned *flags)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuStreamGetFlags, NEED_CONTEXT);

	if (!r)
		r = stream_check(&stream);
	if (!r)
		*flags = stream->flags;
	return call_end(&c, r);
}

CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuStreamGetPriority, NEED_CONTEXT);

	if (!r)
		r = stream_check(&stream);
	if (!r)
		*priority = stream->priority;
	return call_end(&c, r);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *data)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuLaunchHostFunc, NEED_CONTEXT);

	if (!r)
		r = fn ? stream_for_work(&stream) : CUDA_ERROR_INVALID_VALUE;
	if (!r)
		stream_submit(stream, &(struct op){ .kind = OP_HOST, .fn = fn, .data = data });
	return call_end(&c, r);
}
