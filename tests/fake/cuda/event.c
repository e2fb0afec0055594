/* Events. A record is an object of its own, referenced by its waiters: a wait is for the record that was current at the
 * time of the call. Events that other processes may open keep numbers in a shared page instead. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"

static const uint64_t EVENT_MAGIC = 0x62646576656e7421u;

struct event_handle {
	uint64_t magic, id, start, pidns;
	int32_t pid, fd;
};
_Static_assert(sizeof(struct event_handle) <= 64, "fits");

void record_unref(struct record *r)
{
	if (r && !--r->refs)
		free(r);
}

static bool shared_done(const struct shared_event *e, uint64_t number)
{
	int32_t pid;

	if (!number || atomic_load(&e->records[number % RECORDS].done) >= number)
		return true;
	pid = atomic_load(&e->records[number % RECORDS].pid);
	return pid && kill(pid, 0) != 0; /* the GPU work of a dead process is gone with it */
}

bool record_done(const struct op *op)
{
	return op->shared ? shared_done(op->shared, op->number) : op->record->done;
}

static bool valid(CUevent event)
{
	for (CUevent e = fake.events; e; e = e->next)
		if (e == event)
			return true;
	violation("an event was used that does not exist, or no more");
	return false;
}

static bool complete(CUevent e)
{
	if (e->shared)
		return shared_done(e->shared, atomic_load(&e->shared->requested));
	return !e->current || e->current->done;
}

static CUevent add(CUcontext ctx, unsigned flags)
{
	CUevent e = calloc(1, sizeof *e);

	if (!e)
		abort();
	*e = (struct CUevent_st){ .next = fake.events, .ctx = ctx, .flags = flags, .fd = -1 };
	fake.events = e;
	return e;
}

static CUresult share(CUevent e)
{
	int fd = memfd_create("fakecuda-event", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, sizeof *e->shared))
		return CUDA_ERROR_OUT_OF_MEMORY;
	e->shared = mmap(NULL, sizeof *e->shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (e->shared == MAP_FAILED)
		abort();
	e->fd = fd;
	e->shared->magic = EVENT_MAGIC;
	e->shared->id = (uint64_t)getpid() << 32 | ++fake.last_id;
	e->shared->pid = getpid();
	e->shared->start = process_start(getpid());
	e->shared->pidns = settings.pidns;
	return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuEventCreate, NEED_CONTEXT);

	if (!r && (flags & ~7u || ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r) {
		*event = add(context_current(), flags);
		if (flags & CU_EVENT_INTERPROCESS)
			r = share(*event);
	}
	return call_end(&c, r);
}

/* Operations that wait for a record keep it; an event's shared page stays mapped while a stream may look at it. */
CUresult cuEventDestroy_v2(CUevent event)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuEventDestroy_v2, NEED_CONTEXT);

	if (!r && !valid(event))
		r = CUDA_ERROR_INVALID_HANDLE;
	if (!r) {
		if (event->shared)
			context_drain(NULL);
		for (CUevent *p = &fake.events; *p; p = &(*p)->next)
			if (*p == event) {
				*p = event->next;
				break;
			}
		record_unref(event->current);
		if (event->shared)
			munmap(event->shared, sizeof *event->shared);
		if (event->fd >= 0)
			close(event->fd);
		free(event);
	}
	return call_end(&c, r);
}

static void record(CUevent e, CUstream s)
{
	struct record *rec;
	struct op op = { .kind = OP_RECORD, .shared = e->shared };

	e->captured = capture_take(s);
	e->capture = s->capture;
	if (e->captured)
		return;
	op.record = rec = calloc(1, sizeof *rec);
	if (!rec)
		abort();
	rec->refs = 2; /* the event's and the operation's */
	record_unref(e->current);
	e->current = rec;
	if (e->shared) {
		op.number = atomic_fetch_add(&e->shared->requested, 1) + 1;
		atomic_store(&e->shared->records[op.number % RECORDS].pid, getpid());
	}
	stream_submit(s, &op);
}

static CUresult record_call(enum api api, CUevent event, CUstream stream, unsigned flags)
{
	struct call c;
	CUresult r = call_begin(&c, api, NEED_CONTEXT);

	if (!r && flags & ~1u)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		r = valid(event) ? stream_for_work(&stream) : CUDA_ERROR_INVALID_HANDLE;
	if (!r && event->ctx != stream->ctx) {
		violation("an event was recorded in a stream of another context");
		r = CUDA_ERROR_INVALID_HANDLE;
	}
	if (!r)
		record(event, stream);
	return call_end(&c, r);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return record_call(API_cuEventRecord, event, stream, 0);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
	return record_call(API_cuEventRecordWithFlags, event, stream, flags);
}

CUresult cuEventQuery(CUevent event)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuEventQuery, NEED_CONTEXT);

	if (!r)
		r = !valid(event)     ? CUDA_ERROR_INVALID_HANDLE
		    : event->captured ? CUDA_ERROR_CAPTURED_EVENT
		    : complete(event) ? CUDA_SUCCESS
				      : CUDA_ERROR_NOT_READY;
	return call_end(&c, r);
}

CUresult cuEventSynchronize(CUevent event)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuEventSynchronize, NEED_CONTEXT);

	if (!r)
		r = !valid(event)     ? CUDA_ERROR_INVALID_HANDLE
		    : event->captured ? CUDA_ERROR_CAPTURED_EVENT
				      : CUDA_SUCCESS;
	if (!r && event->shared) {
		struct op op = { .shared = event->shared, .number = atomic_load(&event->shared->requested) };

		while (!record_done(&op) && !event->ctx->lost) {
			pthread_mutex_unlock(&fake.lock);
			nanosleep(&(struct timespec){ 0, 100000 }, NULL);
			pthread_mutex_lock(&fake.lock);
		}
		r = event->ctx->lost;
	} else if (!r && event->current) {
		struct record *rec = event->current;
		CUcontext ctx = event->ctx;

		rec->refs++;
		while (!rec->done)
			pthread_cond_wait(&fake.changed, &fake.lock);
		record_unref(rec);
		r = ctx->lost;
	}
	return call_end(&c, r);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuStreamWaitEvent, NEED_CONTEXT);

	if (!r && flags & ~1u)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		r = valid(event) ? stream_for_work(&stream) : CUDA_ERROR_INVALID_HANDLE;
	if (!r)
		r = capture_wait(stream, event);
	if (!r && !event->captured && !complete(event)) {
		struct op op = { .kind = OP_WAIT, .shared = event->shared };

		if (event->shared) {
			op.number = atomic_load(&event->shared->requested);
		} else {
			op.record = event->current;
			op.record->refs++;
		}
		stream_submit(stream, &op);
	}
	return call_end(&c, r);
}

static CUresult elapsed(enum api api, float *ms, CUevent begin, CUevent end)
{
	struct call c;
	CUresult r = call_begin(&c, api, NEED_CONTEXT);

	if (!r && (!valid(begin) || !valid(end) || (begin->flags | end->flags) & CU_EVENT_DISABLE_TIMING ||
		   !begin->current || !end->current))
		r = CUDA_ERROR_INVALID_HANDLE;
	if (!r && (!begin->current->done || !end->current->done))
		r = CUDA_ERROR_NOT_READY;
	if (!r)
		*ms = (float)(end->current->at_ns - begin->current->at_ns) / 1e6f;
	return call_end(&c, r);
}

CUresult cuEventElapsedTime(float *ms, CUevent begin, CUevent end)
{
	return elapsed(API_cuEventElapsedTime, ms, begin, end);
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent begin, CUevent end)
{
	return elapsed(API_cuEventElapsedTime_v2, ms, begin, end);
}

/* ---- between processes ---- */

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuIpcGetEventHandle, NEED_CONTEXT);
	struct event_handle h;

	if (!r && (settings.no_ipc || settings.mig))
		r = CUDA_ERROR_NOT_SUPPORTED;
	if (!r && (!valid(event) || !event->shared || event->imported))
		r = CUDA_ERROR_INVALID_HANDLE;
	if (!r) {
		h = (struct event_handle){ .magic = EVENT_MAGIC,
					   .id = event->shared->id,
					   .start = event->shared->start,
					   .pidns = event->shared->pidns,
					   .pid = event->shared->pid,
					   .fd = event->fd };
		memset(handle, 0, sizeof *handle);
		memcpy(handle, &h, sizeof h);
	}
	return call_end(&c, r);
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuIpcOpenEventHandle, NEED_CONTEXT);
	struct shared_event *shared = MAP_FAILED;
	struct event_handle h;
	char path[64];
	int fd = -1;

	memcpy(&h, &handle, sizeof h);
	if (!r && h.magic != EVENT_MAGIC)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r && h.pid == getpid())
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (!r && h.pidns != settings.pidns)
		r = CUDA_ERROR_INVALID_HANDLE;
	if (!r) {
		snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
		fd = process_alive(h.pid, h.start) ? open(path, O_RDWR | O_CLOEXEC) : -1;
		if (fd >= 0)
			shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (shared == MAP_FAILED)
			r = CUDA_ERROR_INVALID_HANDLE;
	}
	if (!r && (shared->magic != EVENT_MAGIC || shared->id != h.id))
		r = CUDA_ERROR_INVALID_HANDLE;
	if (!r) {
		*event = add(context_current(), CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
		(*event)->shared = shared;
		(*event)->imported = true;
	} else if (shared != MAP_FAILED) {
		munmap(shared, sizeof *shared);
	}
	if (fd >= 0)
		close(fd);
	return call_end(&c, r);
}
