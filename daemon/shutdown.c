/* See shutdown.h. */
#include "shutdown.h"

#include <assert.h>
#include <stdlib.h>

#include "batch/slab-release.h"
#include "gpu/gpus.h"
#include "server/job.h"
#include "base/notify.h"
#include "server/opening.h"
#include "server/session.h"
#include "server/spare.h"
#include "base/log.h"
#include "base/thread-kind.h"

enum {
	GPU_GRACE_S = 3, /* for trainers to close the memory that they have open on a GPU */
	GPU_TIMEOUT_S = 10,
	READS_S = 10,     /* the unit kills after twenty */
	READ_HANGS_S = 8, /* a read that takes so long is one that hangs */
};

void shutdown_init(struct shutdown *s)
{
	assert(is_loop_thread());
	assert(s->engine && s->server && s->finished);
	uv_timer_init(&s->engine->loop, &s->idle);
	uv_timer_init(&s->engine->loop, &s->shutdown_timer);
	uv_timer_init(&s->engine->loop, &s->reads_timer);
	s->idle.data = s->shutdown_timer.data = s->reads_timer.data = s;
}

/* ---- the last steps ---- */

static void on_gpus_closed(void *arg)
{
	struct shutdown *s = arg;
	assert(!s->engine->pool && !s->engine->jobs && !s->engine->sessions);
	s->engine->gpus = NULL;
	uv_close((uv_handle_t *)&s->idle, NULL);
	uv_close((uv_handle_t *)&s->shutdown_timer, NULL);
	uv_close((uv_handle_t *)&s->reads_timer, NULL);
	s->finished(s);
}

/* A driver whose GPU is lost may never return; only the end of the process frees its memory. */
static void on_shutdown_timer(uv_timer_t *t)
{
	struct shutdown *s = t->data;
	log_record(LOG_LEVEL_ERROR, "gpu-stuck", "a GPU's driver has not returned for %d s; ending without it",
		   GPU_TIMEOUT_S);
	s->exit_code = s->exit_code ? s->exit_code : EXIT_GPU;
	s->abandon(s);
}

static void on_pool_closed(void *arg)
{
	struct shutdown *s = arg;
	uv_timer_start(&s->shutdown_timer, on_shutdown_timer, GPU_TIMEOUT_S * 1000, 0);
	gpus_close(s->engine->gpus, on_gpus_closed, s);
}

/* Fires again and again: what hangs is what keeps the pool from being closed. */
static void on_reads_timer(uv_timer_t *t)
{
	struct shutdown *s = t->data;
	struct engine *e = s->engine;
	uint64_t seconds = e->pool ? pool_io_oldest_ns(e->pool) / 1000000000 : 0;
	if (seconds < READ_HANGS_S)
		return;
	log_record(LOG_LEVEL_WARNING, "reads-left", "a file system has not answered for %llu s; ending without it",
		   (unsigned long long)seconds);
	s->abandon(s);
}

void shutdown_go_on(struct shutdown *s)
{
	assert(is_loop_thread());
	struct engine *e = s->engine;
	if (!e->stopping || e->jobs || e->sessions || e->n_loads || s->syncing || !e->pool)
		return;
	uv_timer_stop(&s->reads_timer);
	struct pool *pool = e->pool;
	e->pool = NULL;
	slab_release_charge(NULL, NULL);
	pool_close(pool, on_pool_closed, s);
}

/* ---- the first steps ---- */

/* Slots that trainers still hold are not waited for, so from here on no slot that comes back may be written. */
static void tell_clients(struct shutdown *s)
{
	struct engine *e = s->engine;
	for (struct job *j = e->jobs; j; j = j->next) {
		if (j->loader)
			loader_stop(j->loader);
	}
	for (struct peer *p = s->server->peers; p; p = p->next) {
		if (!p->half_closed && p->session)
			session_drain(p->session);
		else if (!p->half_closed)
			peer_fail(p, BATCHD__WIRE__ERROR_CODE__SHUTDOWN, NULL, "batchd at %s is stopping",
				  e->socket_path);
	}
	for (struct session *x = e->sessions; x; x = x->next)
		session_drop_orphan(x);
}

/* Freeing GPU memory that another process has open is undefined, so the rest is left to the end of this process. */
static void on_grace_over(uv_timer_t *t)
{
	struct shutdown *s = t->data;
	unsigned n = 0;
	for (struct session *x = s->engine->sessions; x; x = x->next)
		n += session_detach_gpu(x);
	if (n)
		log_record(LOG_LEVEL_WARNING, "gpu-left",
			   "%u trainers still have batches on a GPU open; ending without freeing them there", n);
}

void shutdown_begin(struct shutdown *s, int exit_code, const char *why)
{
	assert(is_loop_thread());
	struct engine *e = s->engine;
	if (!s->exit_code)
		s->exit_code = exit_code;
	if (e->stopping)
		return;
	e->stopping = true;
	log_record(LOG_LEVEL_NOTICE, "stopping", "%s", why);
	notify_stopping();
	server_stop(s->server);
	uv_timer_stop(&s->idle);
	uv_timer_stop(&e->stall);
	uv_timer_stop(&e->sampler.timer);
	/* Started before anything ends: the last session, or job, may begin the next step. */
	uv_timer_start(&s->shutdown_timer, on_grace_over, GPU_GRACE_S * 1000, 0);
	uv_timer_start(&s->reads_timer, on_reads_timer, READS_S * 1000, 1000);
	tell_clients(s);
	for (struct job *j = e->jobs; j; j = j->next) {
		if (j->opening) /* an index may take minutes, and its thread is waited for */
			atomic_store(&j->opening->stop, true);
		job_retire(j);
	}
	while (spare_drop_oldest(e, 0, true))
		;
	shutdown_go_on(s);
}

/* ---- when no client is there ---- */

static void on_idle(uv_timer_t *t)
{
	shutdown_begin(t->data, 0, "no client for idle_exit");
}

static void on_gpu_idle(uv_timer_t *t)
{
	shutdown_begin(t->data, 0, "no trainer for gpu_idle_exit; the GPUs are let go with this process");
}

/* A driver that has been started keeps its GPUs open until the process ends. */
void shutdown_note_activity(struct shutdown *s)
{
	assert(is_loop_thread());
	const struct engine *e = s->engine;
	const struct config *c = e->config;
	bool gpu = c->gpu_idle_exit_ns < c->idle_exit_ns && gpus_driver_version(e->gpus);
	uint64_t after_ns = gpu ? c->gpu_idle_exit_ns : c->idle_exit_ns;
	if (e->stopping)
		return;
	if (e->sessions || after_ns == CONFIG_NEVER)
		uv_timer_stop(&s->idle);
	else
		uv_timer_start(&s->idle, gpu ? on_gpu_idle : on_idle, after_ns / 1000000, 0);
}
