/* The daemon: owns the loop, the pool, the server, the jobs; starts and ends them.
 *
 * The end goes in steps, each begun by the last thing of the one before: no new connections and every session told
 * (begin_stop), every job closed (their rows in work finish) and the GPUs' memory let go by those who have it open, or
 * not within GPU_GRACE_S (on_grace_over), then the pool, then the GPUs' threads, then the loop's own handles. Nothing
 * is left behind, so that AddressSanitizer can say so. */
#include "daemon.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batchd.h" /* BATCHD_VERSION */
#include "data/sample-cache.h"
#include "notify.h"
#include "state.h"
#include "util/log.h"

enum {
	TICKETS = 128,           /* files that may be read ahead of decoding at once; a trainer that is alone gets
	                          * half of them */
	STUCK_PINGS = 8,         /* a row in work for that many intervals of the watchdog (2 min of the unit's) means
	                          * a stuck worker: no ping */
	SYNC_MS = 5 * 60 * 1000,
	GPU_PATIENCE_S = 10,
	EXIT_GPU = 75,           /* EX_TEMPFAIL of sysexits.h */
	GPU_GRACE_S = 3,         /* for trainers to let go of what they have open on a GPU */
};

/* ---- the pool's things ---- */

static void *create_worker(void *arg)
{
	const struct batchd *b = arg;
	struct decode_limits limits = budget_decode_limits(&b->budget, b->config);
	return sample_worker_create(&limits);
}

static void destroy_worker(void *worker)
{
	sample_worker_destroy(worker);
}

static void *create_input(void *arg)
{
	const struct batchd *b = arg;
	struct decode_limits limits = budget_decode_limits(&b->budget, b->config);
	return sample_input_create(&limits);
}

static void drop_input(void *input)
{
	sample_input_drop(input);
}

static void destroy_input(void *input)
{
	sample_input_destroy(input);
}

static int start_pool(struct batchd *b)
{
	bool fixed = b->config->workers != 0;
	struct pool_params params = {
		.max_workers = config_max_workers(b->config),
		.n_io = b->config->io_threads,
		/* each worker may have one reserved for the row that it tries */
		.n_tickets = TICKETS + config_max_workers(b->config),
		.worker_create = create_worker,
		.worker_destroy = destroy_worker,
		.input_create = create_input,
		.input_drop = drop_input,
		.input_destroy = destroy_input,
		.arg = b,
	};
	int r = pool_create(&b->loop, &params, &b->pool);
	if (r == 0)
		tuner_init(&b->tuner, b->pool, params.max_workers, fixed);
	return r;
}

/* ---- the end ---- */

static void close_handle(uv_handle_t *h, void *arg)
{
	(void)arg;
	if (!uv_is_closing(h))
		uv_close(h, NULL);
}

/* libuv gives a signal its default action back with the last watcher, and that would be our end with another exit code.
 * No other thread is left by now. */
static void ignore_signals(void)
{
	sigset_t stops;
	sigemptyset(&stops);
	sigaddset(&stops, SIGTERM);
	sigaddset(&stops, SIGINT);
	sigaddset(&stops, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &stops, NULL);
}

static void on_gpus_closed(void *arg)
{
	struct batchd *b = arg;
	b->gpus = NULL;
	ignore_signals();
	uv_walk(&b->loop, close_handle, NULL);
}

/* A driver whose GPU has gone may never return, and what it holds only the end of the process frees. */
static void on_patience_over(uv_timer_t *t)
{
	struct batchd *b = t->data;
	log_record(LOG_LEVEL_ERROR, "gpu-stuck", "a GPU's driver has not returned for %d s; ending without it",
		   GPU_PATIENCE_S);
	_exit(b->exit_code ? b->exit_code : EXIT_GPU);
}

static void on_pool_closed(void *arg)
{
	struct batchd *b = arg;
	uv_timer_start(&b->patience, on_patience_over, GPU_PATIENCE_S * 1000, 0);
	gpus_close(b->gpus, on_gpus_closed, b);
}

/* While stopping: goes on when the last job has gone. */
static void maybe_finish(struct batchd *b)
{
	if (!b->stopping || b->jobs || b->sessions || b->syncing || !b->pool)
		return;
	struct pool *pool = b->pool;
	b->pool = NULL;
	pool_close(pool, on_pool_closed, b);
}

/* What a trainer still holds is not waited for, so from here on nothing may be written into any slot that comes back.
 */
static void tell_everybody(struct batchd *b)
{
	for (struct job *j = b->jobs; j; j = j->next) {
		if (j->loader)
			loader_stop(j->loader);
	}
	for (struct peer *p = b->server.peers; p;) {
		bool tell = !p->dismissed;
		if (tell && p->session)
			session_dismiss(p->session);
		else if (tell)
			peer_fail(p, BATCHD__WIRE__ERROR_CODE__SHUTDOWN, NULL, "batchd at %s is stopping",
				  b->params->socket_path);
		p = tell ? b->server.peers : p->next; /* one's end may be that of others */
	}
	for (struct session *s = b->sessions, *next; s; s = next) {
		next = s->next;
		session_forsake(s);
	}
}

/* To free memory on a GPU that another process has open is undefined, so the rest is left to the end of this process.
 */
static void on_grace_over(uv_timer_t *t)
{
	struct batchd *b = t->data;
	unsigned n = 0;
	for (struct session *s = b->sessions, *next; s; s = next) {
		next = s->next;
		n += session_abandon(s);
	}
	if (n)
		log_record(LOG_LEVEL_WARNING, "gpu-left",
			   "%u trainers still have batches on a GPU open; ending without freeing them there", n);
}

static void begin_stop(struct batchd *b, const char *why)
{
	if (b->stopping)
		return;
	b->stopping = true;
	log_record(LOG_LEVEL_NOTICE, "stopping", "%s", why);
	notify_stopping();
	server_stop(&b->server);
	uv_timer_stop(&b->idle);
	uv_timer_stop(&b->stall);
	tell_everybody(b);
	uv_timer_start(&b->patience, on_grace_over, GPU_GRACE_S * 1000, 0);
	for (struct job *j = b->jobs, *next; j; j = next) {
		next = j->next;
		job_close(j);
	}
	maybe_finish(b);
}

/* Only a new process can use the GPU again. */
static void on_gpu_lost(void *arg, struct gpu *gpu, const char *text)
{
	struct batchd *b = arg;
	log_record(LOG_LEVEL_ERROR, "gpu-lost", "%s; ending, so that a new daemon can", text);
	device_on_lost(b, gpu, text);
	if (!b->exit_code)
		b->exit_code = EXIT_GPU;
	begin_stop(b, text);
}

/* ---- signals, timers ---- */

static void on_stop_signal(uv_signal_t *signal, int number)
{
	begin_stop(signal->data, number == SIGTERM ? "SIGTERM" : "SIGINT");
}

static void apply_config(struct batchd *b, struct config *fresh)
{
	struct config_change changes[CONFIG_MAX_CHANGES];
	size_t n = config_diff(b->config, fresh, changes);
	for (size_t i = 0; i < n; i++)
		log_record(LOG_LEVEL_NOTICE, "configuration-changed", "%s changed; %s", changes[i].key,
			   changes[i].live ? "in force" : "takes effect at the next start");
	bool workers = fresh->workers != b->config->workers;
	struct config old = *b->config;
	*b->config = *fresh;
	config_finish(&old);
	log_set_level(b->config->log_level);
	budget_set_limits(&b->budget, b->config, b->n_io);
	b->server.limits.pending = b->config->limits.pending;
	b->server.limits.hello_timeout_ns = b->config->limits.hello_timeout_ns;
	if (workers)
		tuner_set(&b->tuner, b->config->workers);
}

static void on_idle(uv_timer_t *t)
{
	begin_stop(t->data, "nobody has been here for idle_exit");
}

/* A session came or went: (re)starts or stops the idle clock. */
static void on_activity(struct batchd *b)
{
	if (b->stopping || b->config->idle_exit_ns == CONFIG_NEVER)
		return;
	if (b->sessions)
		uv_timer_stop(&b->idle);
	else
		uv_timer_start(&b->idle, on_idle, b->config->idle_exit_ns / 1000000, 0);
}

static void on_reload_signal(uv_signal_t *signal, int number)
{
	(void)number;
	struct batchd *b = signal->data;
	struct config fresh = { 0 };
	struct config_error err = { .text = "" };
	notify_reloading();
	if (b->params->reload(b->params->reload_arg, &fresh, &err)) {
		log_record(LOG_LEVEL_ERROR, "reload-failed", "configuration unchanged: %s", err.text);
	} else {
		apply_config(b, &fresh);
		on_activity(b); /* idle_exit may have begun to count */
		stall_watch(b);
		log_record(LOG_LEVEL_NOTICE, "reloaded", "configuration read again");
	}
	notify_ready("serving");
}

/* What was learnt about files is written down now and then, and once more at the end, for a start after a crash. */
static void sync_run(struct pool_task *t)
{
	struct batchd *b = (struct batchd *)(void *)((char *)t - offsetof(struct batchd, sync_task));
	cache_sync(b->budget.cache);
}

static void sync_done(struct pool_task *t)
{
	struct batchd *b = (struct batchd *)(void *)((char *)t - offsetof(struct batchd, sync_task));
	b->syncing = false;
	maybe_finish(b);
}

static void on_sync_timer(uv_timer_t *t)
{
	struct batchd *b = t->data;
	if (b->syncing || b->stopping || !b->jobs)
		return;
	b->syncing = true;
	b->sync_task = (struct pool_task){ .run = sync_run, .done = sync_done };
	pool_run_task(b->pool, &b->sync_task);
}

/* The loop turns, or this would not run; what is left to ask is whether every worker and every GPU's thread gets on. */
static void on_watchdog(uv_timer_t *t)
{
	struct batchd *b = t->data;
	struct pool_stats s;
	if (!b->pool)
		return;
	pool_get_stats(b->pool, &s);
	uint64_t stuck_ns = STUCK_PINGS * uv_timer_get_repeat(t) * 1000000, gpu_ns = gpus_oldest_busy_ns(b->gpus);
	if (s.oldest_busy_ns >= stuck_ns)
		log_record(LOG_LEVEL_ERROR, "worker-stuck",
			   "a worker has been at one sample for %llu s: no ping for the watchdog",
			   (unsigned long long)(s.oldest_busy_ns / 1000000000));
	else if (gpu_ns >= stuck_ns)
		log_record(LOG_LEVEL_ERROR, "gpu-stuck",
			   "a GPU's driver has not returned for %llu s: no ping for the watchdog",
			   (unsigned long long)(gpu_ns / 1000000000));
	else
		notify_watchdog();
}

/* Every charge lies beside something that is there; when nothing is, all books are zero. */
static void audit(struct batchd *b)
{
	if (b->uneven || accounts_are_even(&b->budget.accounts))
		return;
	b->uneven = true; /* told by the exit code, too: no test passes with it */
	log_record(LOG_LEVEL_ERROR, "charges-left",
		   "a user is charged for something that is not there any more; this is a fault of batchd");
}

/* Slots may outlive their job for a moment: a GPU's thread lets go of them first. */
static void on_audit(uv_check_t *check)
{
	struct batchd *b = check->data;
	if (!b->sessions && !b->jobs && !b->server.peers && !b->budget.slots_bytes)
		audit(b);
}

static void start_handles(struct batchd *b)
{
	uv_check_init(&b->loop, &b->audit);
	b->audit.data = b;
	uv_check_start(&b->audit, on_audit);
	uv_signal_init(&b->loop, &b->on_term);
	uv_signal_init(&b->loop, &b->on_int);
	uv_signal_init(&b->loop, &b->on_hup);
	uv_timer_init(&b->loop, &b->idle);
	uv_timer_init(&b->loop, &b->watchdog);
	uv_timer_init(&b->loop, &b->sync);
	uv_timer_init(&b->loop, &b->stall);
	b->stall.data = b;
	uv_timer_init(&b->loop, &b->patience);
	b->patience.data = b;
	b->sync.data = b;
	if (b->config->cache_directory)
		uv_timer_start(&b->sync, on_sync_timer, SYNC_MS, SYNC_MS);
	b->on_term.data = b->on_int.data = b->on_hup.data = b->idle.data = b->watchdog.data = b;
	uv_signal_start(&b->on_term, on_stop_signal, SIGTERM);
	uv_signal_start(&b->on_int, on_stop_signal, SIGINT);
	uv_signal_start(&b->on_hup, on_reload_signal, SIGHUP);
	uint64_t interval_ms = notify_watchdog_interval_ns() / 1000000;
	if (interval_ms)
		uv_timer_start(&b->watchdog, on_watchdog, interval_ms, interval_ms);
	on_activity(b);
}

static int start_gpus(struct batchd *b)
{
	const struct config *c = b->config;
	struct gpus_params params = {
		.memory_bytes = c->gpu_memory_bytes == CONFIG_AUTO ? GPU_MEMORY_AUTO : c->gpu_memory_bytes,
		.pin = c->pin_memory == CONFIG_ON    ? GPU_PIN_ON
		       : c->pin_memory == CONFIG_OFF ? GPU_PIN_OFF
						     : GPU_PIN_AUTO,
		.pin_limit = c->pin_limit,
		.on_lost = on_gpu_lost,
		.arg = b,
	};
	return gpus_create(&b->loop, &params, &b->gpus);
}

static int start_server(struct batchd *b)
{
	struct server_limits limits = {
		.pending = b->config->limits.pending,
		.hello_timeout_ns = b->config->limits.hello_timeout_ns,
	};
	budget_set_limits(&b->budget, b->config, b->n_io);
	return server_init(&b->server, &b->loop, b->params->listen_fd, &limits, &b->budget.accounts, &session_peer_ops, b,
			   BATCHD_VERSION);
}

int batchd_run(const struct batchd_params *params)
{
	struct batchd *b = calloc(1, sizeof(*b));
	if (!b)
		return EXIT_FAILURE;
	b->params = params;
	b->config = params->config;
	b->n_io = b->config->io_threads;
	b->job_ops = &session_job_ops;
	b->on_activity = on_activity;
	b->on_ended = maybe_finish;
	b->started_ns = uv_hrtime();
	signal(SIGPIPE, SIG_IGN);
	int r = uv_loop_init(&b->loop);
	if (r == 0)
		r = budget_init(&b->budget, b->config);
	if (r == 0)
		r = start_pool(b);
	if (r == 0)
		r = start_gpus(b);
	if (r == 0)
		r = start_server(b);
	if (r) {
		log_record(LOG_LEVEL_ERROR, "start-failed", "cannot start: %s", uv_strerror(r));
		free(b);
		return EXIT_FAILURE;
	}
	start_handles(b);
	log_record(LOG_LEVEL_NOTICE, "started", "batchd " BATCHD_VERSION " serves at %s with up to %u workers",
		   params->socket_path, b->tuner.max);
	notify_ready("serving");
	uv_run(&b->loop, UV_RUN_DEFAULT);
	uv_loop_close(&b->loop);
	audit(b);
	bool even = !b->uneven;
	reports_finish(&b->reports);
	budget_finish(&b->budget);
	log_record(LOG_LEVEL_NOTICE, "stopped", "stopped");
	int exit_code = b->exit_code;
	free(b);
	return exit_code ? exit_code : even ? EXIT_SUCCESS : EXIT_FAILURE;
}
