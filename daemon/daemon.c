/* The daemon: owns the loop, the pool, the server and the jobs; starts and ends them.
 *
 * At the end it frees everything (shutdown.h), so that AddressSanitizer finds every leak. */
#include "daemon.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batch/slab-release.h"
#include "dataset/cache/sample-cache.h"
#include "server/device.h"
#include "server/ipc/server.h"
#include "server/job.h"
#include "watch/metrics.h"
#include "base/notify.h"
#include "server/pressure.h"
#include "server/recent-errors.h"
#include "watch/status-cache.h"
#include "server/sampler.h"
#include "watch/session-questions.h"
#include "server/session.h"
#include "shutdown.h"
#include "server/start-failure.h"
#include "server/stall.h"
#include "base/container.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/nodes.h"
#include "base/numa.h"
#include "batch/pool/priority.h"

enum {
	TICKETS = 128,   /* files on local disks that may be read ahead of decoding at once; a trainer that is alone
	                  * gets half of them */
	LANE_PART = 2,   /* a file system that a server provides has half as many of these, and of I/O threads */
	STUCK_PINGS = 8, /* a worker or a GPU's driver that makes no progress for that many intervals of the watchdog
	                  * (2 min with the unit's) is stuck: no ping */
	STUCK_ROWS = 4,  /* a row may take decoding and transform of two slow samples; a worker that has used that many
	                  * times as much of its processor is stuck, too */
	SYNC_MS = 5 * 60 * 1000,
	LEAST_SYNC_MS = 250,
	PARTS_OF_AGE = 4, /* what is to go when it is so old goes when it is a quarter older at the latest */
};

struct daemon {
	struct engine engine; /* shared by its parts */
	const struct daemon_params *params;
	struct server server;
	struct status_cache status_cache;
	struct recent_errors errors;
	struct metrics *metrics; /* NULL: none were asked for */
	uv_signal_t on_term, on_int, on_hup;
	uv_check_t audit; /* of the accounts, whenever no client is connected */
	bool unbalanced;  /* the audit found a charge */
	struct shutdown shutdown;
	uv_timer_t watchdog, sync;
	struct pool_task sync_task; /* and what it shall do: */
	bool writes;
	uint64_t give_back_bytes, unused_ns;
	struct pressure pressure;
	bool was_pressed; /* since the last sync */
};

static struct daemon *of_engine(struct engine *e)
{
	return container_of(e, struct daemon, engine);
}

/* ---- what the pool needs ---- */

static void *create_worker(void *arg)
{
	const struct engine *e = arg;
	struct decode_limits limits = budget_decode_limits(&e->budget, e->config);
	struct sample_worker *w = sample_worker_create(&limits);
	if (w && e->config->cache_filling == CONFIG_FILLING_ALWAYS)
		sample_worker_fill_always(w);
	return w;
}

static void destroy_worker(void *worker)
{
	sample_worker_destroy(worker);
}

static void *create_input(void *arg)
{
	const struct engine *e = arg;
	struct decode_limits limits = budget_decode_limits(&e->budget, e->config);
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

static enum stage worker_stage(const void *worker)
{
	return sample_worker_stage(worker);
}

static void charge_for_slab(void *pool, uid_t payer, uint64_t ns)
{
	pool_charge(pool, payer, ns);
}

/* An operator's own memory policy stays as it is. */
static void learn_nodes(struct engine *e)
{
	struct nodes *nodes = nodes_learn(NULL);
	if (nodes && numa_has_policy()) {
		log_record(
			LOG_LEVEL_INFO, "numa-policy",
			"the daemon has a memory policy of its own (numactl, NUMAPolicy=), so that neither workers nor "
			"batches are placed on the machine's %u NUMA nodes",
			nodes->n_memory);
		free(nodes);
		nodes = NULL;
	}
	e->nodes = nodes;
}

static void yield_to_trainers(const struct config *c)
{
	int r = priority_yield_session((int)c->nice);
	if (r)
		log_record(LOG_LEVEL_WARNING, "session-not-nice",
			   "/proc/self/autogroup does not take a niceness of %u: %s", c->nice, strerror(-r));
}

static int start_pool(struct engine *e)
{
	bool fixed = e->config->workers != 0;
	struct pool_params params = {
		.max_workers = config_max_workers(e->config),
		.n_io = e->config->io_threads,
		/* each worker may have one reserved for the row that it tries */
		.n_tickets = TICKETS + config_max_workers(e->config),
		.n_lane_io = (e->config->io_threads + LANE_PART - 1) / LANE_PART,
		.n_lane_tickets = TICKETS / LANE_PART + config_max_workers(e->config),
		.max_lanes = e->config->limits.file_systems,
		.accounts = &e->budget.accounts,
		.worker_create = create_worker,
		.worker_destroy = destroy_worker,
		.input_create = create_input,
		.input_drop = drop_input,
		.input_destroy = destroy_input,
		.worker_stage = worker_stage,
		.nice = e->config->nice,
		.n_processors = cpu_available(NULL),
		.nodes = e->nodes,
		.arg = e,
	};
	int r = pool_create(&e->loop, &params, &e->pool);
	if (r)
		return r;
	slab_release_charge(charge_for_slab, e->pool);
	tuner_init(&e->tuner, e->pool, params.max_workers, fixed);
	return 0;
}

/* ---- the end ---- */

static void close_handle(uv_handle_t *h, void *arg)
{
	(void)arg;
	if (!uv_is_closing(h))
		uv_close(h, NULL);
}

/* With the last watcher libuv resets a signal to its default action, and that would end the process with another exit
 * code. No other thread is left by now. */
static void ignore_signals(void)
{
	sigset_t stops;
	sigemptyset(&stops);
	sigaddset(&stops, SIGTERM);
	sigaddset(&stops, SIGINT);
	sigaddset(&stops, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &stops, NULL);
}

static void on_finished(struct shutdown *shutdown)
{
	metrics_stop(container_of(shutdown, struct daemon, shutdown)->metrics);
	ignore_signals();
	pressure_stop(&container_of(shutdown, struct daemon, shutdown)->pressure);
	uv_walk(&shutdown->engine->loop, close_handle, NULL);
}

/* What the end would have kept is kept; the rest goes with the process. */
static void on_abandon(struct shutdown *shutdown) __attribute__((noreturn));
static void on_abandon(struct shutdown *shutdown)
{
	struct daemon *d = container_of(shutdown, struct daemon, shutdown);
	if (!shutdown->syncing)
		cache_sync(d->engine.budget.cache);
	log_record(LOG_LEVEL_NOTICE, "stopped", "stopped");
	d->params->end(shutdown->exit_code);
}

static void on_job_ended(struct engine *e)
{
	shutdown_go_on(&of_engine(e)->shutdown);
}

static void on_activity(struct engine *e)
{
	shutdown_note_activity(&of_engine(e)->shutdown);
}

static void on_gpu_lost(void *arg, struct gpu *gpu, const char *text)
{
	struct daemon *d = arg;
	log_record(LOG_LEVEL_ERROR, "gpu-lost", "%s; ending, so that a new daemon can", text);
	device_on_lost(&d->engine, gpu, text);
	shutdown_begin(&d->shutdown, EXIT_GPU, text);
}

/* ---- signals, timers ---- */

static void on_stop_signal(uv_signal_t *signal, int number)
{
	struct daemon *d = signal->data;
	shutdown_begin(&d->shutdown, 0, number == SIGTERM ? "SIGTERM" : "SIGINT");
}

static void apply_config(struct daemon *d, struct config *fresh)
{
	struct engine *e = &d->engine;
	struct config_change changes[CONFIG_MAX_CHANGES];
	size_t n = config_diff(e->config, fresh, changes);
	for (size_t i = 0; i < n; i++)
		log_record(LOG_LEVEL_NOTICE, "configuration-changed", "%s changed; %s", changes[i].key,
			   changes[i].live ? "in force" : "takes effect at the next start");
	bool workers = fresh->workers != e->config->workers;
	struct config old = *e->config;
	*e->config = *fresh;
	config_finish(&old);
	log_set_level(e->config->log_level);
	budget_set_limits(&e->budget, e->config);
	d->server.limits.pending = e->config->limits.pending;
	d->server.limits.hello_timeout_ns = e->config->limits.hello_timeout_ns;
	if (workers)
		tuner_set(&e->tuner, e->config->workers);
}

static void on_reload_signal(uv_signal_t *signal, int number)
{
	(void)number;
	struct daemon *d = signal->data;
	struct config fresh = { 0 };
	struct config_error err = { .text = "" };
	notify_reloading();
	if (d->params->reload(d->params->reload_arg, &fresh, &err)) {
		log_record(LOG_LEVEL_ERROR, "reload-failed", "configuration unchanged: %s", err.text);
	} else {
		apply_config(d, &fresh);
		shutdown_note_activity(&d->shutdown); /* idle_exit may have begun to count */
		stall_watch(&d->engine);
		log_record(LOG_LEVEL_NOTICE, "reloaded", "configuration read again");
	}
	notify_ready("serving");
}

static struct daemon *of_sync_task(struct pool_task *t)
{
	return container_of(t, struct daemon, sync_task);
}

/* Writes new indexes to disk periodically, and once more at the end, so that a start after a crash finds them; drops what
 * is old, and gives back what others lack. */
static void sync_run(struct pool_task *t)
{
	struct daemon *d = of_sync_task(t);
	struct cache *cache = d->engine.budget.cache;
	if (d->writes)
		cache_sync(cache);
	if (d->unused_ns != CONFIG_NEVER)
		cache_drop_unused(cache, d->unused_ns);
	if (d->give_back_bytes)
		(void)cache_give_back(cache, d->give_back_bytes);
}

static void sync_done(struct pool_task *t)
{
	struct daemon *d = of_sync_task(t);
	d->shutdown.syncing = false;
	budget_balance(&d->engine.budget);
	shutdown_go_on(&d->shutdown);
}

static void sync_start(struct daemon *d, bool writes, uint64_t give_back_bytes)
{
	d->shutdown.syncing = true;
	d->writes = writes;
	d->give_back_bytes = give_back_bytes;
	d->unused_ns = d->engine.config->cache_unused_ns;
	d->sync_task = (struct pool_task){ .run = sync_run, .done = sync_done };
	pool_run_task(d->engine.pool, &d->sync_task);
}

static void on_sync_timer(uv_timer_t *t);

static void sync_later(struct daemon *d)
{
	uint64_t part_ms = d->engine.config->cache_unused_ns / 1000000 / PARTS_OF_AGE;
	part_ms = part_ms < LEAST_SYNC_MS ? LEAST_SYNC_MS : part_ms;
	uv_timer_start(&d->sync, on_sync_timer, part_ms < SYNC_MS ? part_ms : SYNC_MS, 0);
}

static void on_sync_timer(uv_timer_t *t)
{
	struct daemon *d = t->data;
	sync_later(d);
	if (!d->was_pressed)
		budget_relax(&d->engine.budget);
	d->was_pressed = false;
	const struct config *c = d->engine.config;
	bool writes = c->cache_directory && d->engine.jobs;
	if (!d->shutdown.syncing && !d->engine.stopping && (writes || c->cache_unused_ns != CONFIG_NEVER))
		sync_start(d, writes, 0);
}

/* What lingers goes at once; of the caches, a part each time. */
static void on_pressure(void *arg)
{
	struct daemon *d = arg;
	struct engine *e = &d->engine;
	if (d->shutdown.syncing || e->stopping)
		return; /* it tells again while it lasts */
	while (job_close_lingering(e, 0, true))
		;
	d->was_pressed = true;
	uint64_t give = budget_squeeze(&e->budget);
	if (!give)
		return;
	log_record(LOG_LEVEL_INFO, "pressure", "memory is scarce: caches give %llu MiB back",
		   (unsigned long long)(give >> 20));
	sync_start(d, false, give);
}

/* The loop is alive, because this callback runs. It remains to check that every worker makes progress, and every thread
 * of a GPU that has worked. */
static void on_watchdog(uv_timer_t *t)
{
	struct engine *e = &((struct daemon *)t->data)->engine;
	struct pool_progress p;
	if (!e->pool)
		return;
	pool_get_progress(e->pool, &p);
	uint64_t stuck_ns = STUCK_PINGS * uv_timer_get_repeat(t) * 1000000, gpu_ns = gpus_oldest_busy_ns(e->gpus);
	uint64_t row_ns = 2 * sample_most_ns(e->config->limits.image_time_ns);
	if (p.idle_ns >= stuck_ns)
		log_record(LOG_LEVEL_ERROR, "worker-stuck",
			   "a worker has done nothing at its sample for %llu s: no ping for the watchdog",
			   (unsigned long long)(p.idle_ns / 1000000000));
	else if (p.row_ns >= STUCK_ROWS * row_ns)
		log_record(LOG_LEVEL_ERROR, "worker-stuck",
			   "a worker has used %llu s of its processor for one sample: no ping for the watchdog",
			   (unsigned long long)(p.row_ns / 1000000000));
	else if (gpu_ns >= stuck_ns)
		log_record(LOG_LEVEL_ERROR, "gpu-stuck",
			   "a GPU's driver has not returned for %llu s: no ping for the watchdog",
			   (unsigned long long)(gpu_ns / 1000000000));
	else
		notify_watchdog();
}

/* Every charge is stored beside the object it is for; without objects, all accounts must be zero. */
static void audit_accounts(struct daemon *d)
{
	if (d->unbalanced || accounts_balanced(&d->engine.budget.accounts))
		return;
	d->unbalanced = true; /* changes the exit code, too, so that a test fails */
	log_record(LOG_LEVEL_ERROR, "charges-left",
		   "a user is charged for something that is not there any more; this is a fault of batchd");
}

/* Slots may outlive their job briefly: a GPU's thread must release them first. */
static void on_audit(uv_check_t *check)
{
	struct daemon *d = check->data;
	const struct engine *e = &d->engine;
	if (!e->sessions && !e->jobs && !e->n_loads && !d->server.peers &&
	    !accounts_used(&e->budget.accounts, ACCOUNT_SLOT_BYTES))
		audit_accounts(d);
}

/* ---- the beginning ---- */

static void start_handles(struct daemon *d)
{
	struct engine *e = &d->engine;
	uv_loop_t *loop = &e->loop;
	d->shutdown =
		(struct shutdown){ .engine = e, .server = &d->server, .finished = on_finished, .abandon = on_abandon };
	shutdown_init(&d->shutdown);
	uv_timer_init(loop, &e->stall);
	e->stall.data = e;
	sampler_init(e);
	uv_check_init(loop, &d->audit);
	uv_signal_init(loop, &d->on_term);
	uv_signal_init(loop, &d->on_int);
	uv_signal_init(loop, &d->on_hup);
	uv_timer_init(loop, &d->watchdog);
	uv_timer_init(loop, &d->sync);
	d->audit.data = d->on_term.data = d->on_int.data = d->on_hup.data = d->watchdog.data = d->sync.data = d;
	uv_check_start(&d->audit, on_audit);
	sync_later(d);
	d->pressure = (struct pressure){ .on_pressure = on_pressure, .arg = d };
	pressure_start(&d->pressure, loop);
	uv_signal_start(&d->on_term, on_stop_signal, SIGTERM);
	uv_signal_start(&d->on_int, on_stop_signal, SIGINT);
	uv_signal_start(&d->on_hup, on_reload_signal, SIGHUP);
	uint64_t interval_ms = notify_watchdog_interval_ns() / 1000000;
	if (interval_ms)
		uv_timer_start(&d->watchdog, on_watchdog, interval_ms, interval_ms);
	shutdown_note_activity(&d->shutdown);
}

static int start_gpus(struct daemon *d)
{
	const struct config *c = d->engine.config;
	struct gpus_params params = {
		.memory_bytes = c->gpu_memory_bytes == CONFIG_AUTO ? GPU_MEMORY_AUTO : c->gpu_memory_bytes,
		.pin = c->pin_memory == CONFIG_ON    ? GPU_PIN_ON
		       : c->pin_memory == CONFIG_OFF ? GPU_PIN_OFF
						     : GPU_PIN_AUTO,
		.pin_limit = c->pin_limit,
		.machine_bytes = memory_available(NULL),
		.on_lost = on_gpu_lost,
		.arg = d,
	};
	return gpus_create(&d->engine.loop, &params, &d->engine.gpus);
}

static int start_server(struct daemon *d)
{
	struct engine *e = &d->engine;
	struct server_limits limits = {
		.pending = e->config->limits.pending,
		.hello_timeout_ns = e->config->limits.hello_timeout_ns,
	};
	budget_set_limits(&e->budget, e->config);
	return server_init(&d->server, &e->loop, d->params->listen_fd, &limits, &e->budget.accounts, &session_peer_ops,
			   e, e->version);
}

static int start_serving(struct daemon *d)
{
	struct engine *e = &d->engine;
	int r = start_has_files() ? uv_loop_init(&e->loop) : -EMFILE;
	if (r)
		return r;
	yield_to_trainers(e->config);
	learn_nodes(e);
	r = budget_init(&e->budget, e->config);
	if (r == 0)
		r = start_gpus(d); /* before there are other threads */
	if (r == 0)
		r = start_pool(e);
	return r ? r : start_server(d);
}

int daemon_run(const struct daemon_params *params)
{
	struct daemon *d = calloc(1, sizeof(*d));
	if (!d)
		return EXIT_FAILURE;
	d->params = params;
	d->errors.accounts = &d->engine.budget.accounts;
	d->engine = (struct engine){ .config = params->config,
				     .status_cache = &d->status_cache,
				     .errors = &d->errors,
				     .job_ops = &session_job_ops,
				     .reader = session_questions,
				     .spare_least_bytes = 1 << 20,
				     .on_activity = on_activity,
				     .on_ended = on_job_ended,
				     .version = DAEMON_VERSION,
				     .socket_path = params->socket_path,
				     .config_path = params->config_path,
				     .started_ns = uv_hrtime() };
	signal(SIGPIPE, SIG_IGN);
	int r = start_serving(d);
	if (r) {
		char why[400];
		start_failure_text(params->config, r, why, sizeof(why));
		log_record(LOG_LEVEL_ERROR, "start-failed", "%s", why);
		free(d->engine.nodes);
		free(d);
		return EXIT_FAILURE;
	}
	start_handles(d);
	log_record(LOG_LEVEL_NOTICE, "started", "batchd " DAEMON_VERSION " serves at %s with up to %u workers",
		   params->socket_path, d->engine.tuner.max);
	if (params->config->metrics)
		d->metrics = metrics_start(&d->engine, params->config->metrics);
	notify_ready("serving");
	uv_run(&d->engine.loop, UV_RUN_DEFAULT);
	uv_loop_close(&d->engine.loop);
	metrics_destroy(d->metrics);
	audit_accounts(d);
	bool even = !d->unbalanced;
	status_cache_finish(&d->status_cache);
	recent_errors_finish(&d->errors);
	budget_finish(&d->engine.budget);
	slab_release_end();
	free(d->engine.nodes);
	log_record(LOG_LEVEL_NOTICE, "stopped", "stopped");
	int exit_code = d->shutdown.exit_code;
	free(d);
	return exit_code ? exit_code : even ? EXIT_SUCCESS : EXIT_FAILURE;
}
