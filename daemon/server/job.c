/* Jobs: a job is made by its first session, joined by later ones, and kept warm for a while after the last.
 *
 * The difficult part is opening. An I/O thread opens the data set (it may take minutes to index, and a server that hangs
 * may never answer) while sessions come and go. The opening belongs to the job, and the job to the sessions that wait for it. A job without sessions still
 * has to wait until its opening returns. */
#include "server/job.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch/producer-source.h"
#include "server/opening.h"
#include "server/open-request.h"
#include "server/session-state.h"
#include "sources.h"
#include "server/spare.h"
#include "base/container.h"
#include "base/list.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/size.h"
#include "base/thread-kind.h"

enum { PROGRESS_MS = 200 };

/* ---- states ---- */

const char *job_state_name(enum job_state state)
{
	static const char *const names[] = { "opening", "ready", "failed", "closing", "ending" };
	return names[state];
}

/* A move that is not in the table is a bug of the daemon; no peer can cause it. */
void job_move(struct job *j, enum job_state to)
{
	assert(is_loop_thread());
	static const bool allowed[5][5] = {
		[JOB_OPENING] = { [JOB_READY] = true, [JOB_FAILED] = true, [JOB_CLOSING] = true },
		[JOB_READY] = { [JOB_ENDING] = true, [JOB_FAILED] = true, [JOB_CLOSING] = true },
		[JOB_ENDING] = { [JOB_FAILED] = true, [JOB_CLOSING] = true },
		[JOB_FAILED] = { [JOB_CLOSING] = true },
	};
	assert(allowed[j->state][to]);
	log_record(LOG_LEVEL_DEBUG, "job", "job %llu (%s): %s -> %s, %u sessions", (unsigned long long)j->number,
		   j->spec.job, job_state_name(j->state), job_state_name(to), j->n_sessions);
	PROBE(job_move, j->number, j->state, to);
	j->state = to;
}

/* ---- the end ---- */

static void on_linger_closed(uv_handle_t *h)
{
	struct job *j = h->data;
	struct engine *e = j->engine;
	assert(!j->sessions && !j->n_tasks && !j->producer && !j->loader);
	list_remove(&e->jobs, j, next);
	loader_spec_finish(&j->spec);
	sources_free(j->data.sources);
	free(j->served);
	free(j);
	e->on_ended(e);
}

static void on_loader_closed(struct loader *l)
{
	struct job *j = l->owner;
	assert(j->state == JOB_CLOSING);
	if (j->source)
		producer_source_close(j->source);
	j->source = NULL;
	j->loader = NULL; /* it is freed when this returns */
	charge_release(&j->data_bytes);
	uv_close((uv_handle_t *)&j->linger, on_linger_closed);
}

void job_close(struct job *j)
{
	assert(is_loop_thread());
	if (j->state == JOB_CLOSING)
		return;
	if (j->n_tasks) { /* the last of them closes it */
		uv_timer_stop(&j->linger);
		return;
	}
	assert(!j->sessions);
	job_move(j, JOB_CLOSING);
	charge_release(&j->loader_charge);
	charge_release(&j->fds);
	uv_timer_stop(&j->linger);
	if (j->loader)
		loader_close(j->loader);
	else
		uv_close((uv_handle_t *)&j->linger, on_linger_closed);
	if (j->on_closing)
		j->on_closing(j);
}

void job_retire(struct job *j)
{
	assert(is_loop_thread());
	j->retired = true;
	if (!j->sessions)
		job_close(j);
}

bool job_close_lingering(struct engine *e, uid_t uid, bool any_user)
{
	assert(is_loop_thread());
	struct job *oldest = NULL;
	if (spare_drop_oldest(e, uid, any_user))
		return true;
	for (struct job *j = e->jobs; j; j = j->next) { /* the newest first */
		if (j->state != JOB_CLOSING && !j->sessions && !j->n_tasks && (any_user || j->spec.uid == uid))
			oldest = j;
	}
	if (oldest)
		job_close(oldest);
	return oldest != NULL;
}

/* ---- the loader's news ---- */

void job_end_sessions(struct job *j, const struct refusal *why)
{
	assert(is_loop_thread());
	for (struct session *s = j->sessions, *next; s; s = next) {
		next = s->next_in_job;
		j->engine->job_ops->end(s, why);
	}
}

/* A job without sessions closes. One that has failed, or is ENDING, tells them: an ENDING one those that have had all
 * their batches. */
static void on_settle(uv_timer_t *t)
{
	struct job *j = t->data;
	Batchd__Wire__ErrorCode code = j->fail_code ? j->fail_code : BATCHD__WIRE__ERROR_CODE__BAD_DATA;
	const char *field = code == BATCHD__WIRE__ERROR_CODE__LIMIT ? "memory" : j->served ? "producer" : "dataset";
	struct refusal why;
	if (!j->sessions)
		job_close(j);
	if (!j->sessions || (j->state != JOB_FAILED && j->state != JOB_ENDING))
		return;
	refuse(&why, code, field, "%s", j->loader->error);
	for (struct session *s = j->sessions, *next; s; s = next) {
		next = s->next_in_job;
		if (j->state == JOB_FAILED || !stream_has_more(&s->consumer))
			j->engine->job_ops->end(s, &why);
	}
}

/* Later: sessions are told when no stream function is on the stack. */
static void job_settle(struct job *j, uint64_t after_ns)
{
	uv_timer_start(&j->linger, on_settle, after_ns / 1000000, 0);
}

static void on_loader_failed(struct loader *l)
{
	struct job *j = l->owner;
	if (j->state != JOB_READY && j->state != JOB_ENDING)
		return;
	job_move(j, JOB_FAILED);
	job_settle(j, 0);
}

void job_end(struct job *j, Batchd__Wire__ErrorCode code, const char *text)
{
	assert(is_loop_thread());
	if (j->state != JOB_READY)
		return;
	job_move(j, JOB_ENDING);
	j->fail_code = code;
	snprintf(j->loader->error, sizeof(j->loader->error), "%s", text);
	job_settle(j, 0);
}

void job_note_moved(struct job *j)
{
	assert(is_loop_thread());
	if (j->state == JOB_ENDING)
		job_settle(j, 0);
}

static void on_loader_published(struct loader *l, bool waited)
{
	struct job *j = l->owner;
	job_note_moved(j);
	if (!j->served) /* no number of workers would suit a producer */
		tuner_note(&j->engine->tuner, waited);
}

/* Orders count as the user's memory, too. A lingering job does not close others, nor itself. */
static int on_charge(struct loader *l, const char *what, uint64_t bytes, bool must_be, struct charge *c, char *why,
		     size_t size)
{
	struct job *j = l->owner;
	struct engine *e = j->engine;
	int r;
	do
		r = budget_charge_data(&e->budget, j->spec.uid, c, bytes);
	while (r > 0 && must_be && j->sessions && job_close_lingering(e, j->spec.uid, r == ACCOUNT_E_ALL));
	if (r == 0) {
		if (must_be && j->fail_code == BATCHD__WIRE__ERROR_CODE__LIMIT)
			j->fail_code = 0; /* the charge failed before, until an older plan made room */
		return 0;
	}
	budget_explain(&e->budget, j->spec.uid, r, what, bytes,
		       "close other loaders, raise the limit, or go without shuffle", why, size);
	if (must_be)
		j->fail_code = BATCHD__WIRE__ERROR_CODE__LIMIT;
	return LOADER_E_MEMORY;
}

static const struct loader_ops loader_ops = {
	.failed = on_loader_failed, .published = on_loader_published, .closed = on_loader_closed, .charge = on_charge
};

int job_make_loader(struct job *j, struct loader_spec *spec, struct recipe *recipe)
{
	assert(is_loop_thread());
	assert(!j->loader);
	return loader_create(j->engine->pool, spec, recipe, j->engine->config->bad_data, &loader_ops, j, &j->loader);
}

/* ---- tasks ---- */

void job_task_begin(struct job_task *t, struct job *j)
{
	assert(is_loop_thread());
	assert(j->state != JOB_CLOSING);
	t->job = j;
	j->n_tasks++;
}

void job_task_await(struct job_task *t, struct session *s, struct job_task **place)
{
	assert(is_loop_thread());
	assert(t->job == s->job && !*place);
	t->session = s;
	t->place = place;
	*place = t;
}

void job_task_forget(struct job_task **place)
{
	assert(is_loop_thread());
	if (*place)
		(*place)->session = NULL;
	*place = NULL;
}

void job_task_drop(struct job_task *t)
{
	assert(is_loop_thread());
	assert(t->job->n_tasks > 0);
	t->job->n_tasks--;
}

void job_task_end(struct job_task *t)
{
	assert(is_loop_thread());
	struct job *j = t->job;
	assert(j->n_tasks > 0 && j->state != JOB_CLOSING);
	assert(!t->session || (*t->place == t && t->session->job == j));
	j->n_tasks--;
	if (t->session)
		*t->place = NULL;
	t->done(t);
	job_advance(j);
	/* A job that lingers does so on: it was left while slots were made, or data compared. */
	if (!j->sessions && !uv_is_active((uv_handle_t *)&j->linger))
		job_close(j);
}


static void job_run_task(struct pool_task *p)
{
	struct job_task *t = container_of(p, struct job_task, pool_task);
	t->run(t);
}

static void end_task(struct pool_task *p)
{
	job_task_end(container_of(p, struct job_task, pool_task));
}

void job_task_run(struct job_task *t)
{
	assert(is_loop_thread());
	assert(t->run && t->job->n_tasks > 0);
	const struct opening *o = t->job->opening;
	bool opens = o && t == &o->task && t->run == opening_run;
	t->pool_task = (struct pool_task){ .run = job_run_task,
					   .done = end_task,
					   .owner = t->job->spec.uid,
					   .opens = opens,
					   .lane_user = opens ? o->lane : NULL };
	pool_run_task(t->job->engine->pool, &t->pool_task);
}

/* ---- opening, on the loop thread ---- */

static void on_progress_timer(uv_timer_t *t)
{
	struct opening *o = t->data;
	const char *phase = atomic_load(&o->phase);
	if (!phase)
		return;
	Batchd__Wire__Progress p = BATCHD__WIRE__PROGRESS__INIT;
	p.phase = (char *)phase;
	p.done = atomic_load(&o->done);
	p.total = atomic_load(&o->total);
	for (struct session *s = o->task.job->sessions; s; s = s->next_in_job)
		peer_send(s->peer, WIRE_SERVER(PROGRESS, progress, &p), NULL, 0);
}

static void end_opening(struct opening *o)
{
	assert(o->task.job->opening != o);
	pool_lane_leave(o->task.job->engine->pool, o->lane);
	uv_close((uv_handle_t *)&o->progress, opening_free);
}

/* Drops an opening that no session waits for and that no thread has yet. */
static void drop_if_waiting(struct job *j)
{
	struct opening *o = j->opening;
	if (!o || !pool_drop_task(j->engine->pool, &o->task.pool_task))
		return;
	j->opening = NULL;
	job_task_drop(&o->task);
	end_opening(o);
}

/* The part of an opening's memory that stays as long as the loader. */
static uint64_t keeps_bytes(const struct job *j)
{
	const struct dataset *ds = j->loader->recipe.dataset;
	uint64_t bytes = dataset_memory_bytes(ds) + opening_bits_bytes(&j->loader->recipe, j->loader->recipe.pipeline);
	return bytes < j->data_bytes.amount ? bytes : j->data_bytes.amount;
}

static void refuse_batches(struct job *j)
{
	const struct slot_layout *l = &j->loader->layout;
	char text[640], batch[32], row[32], most[32], what[200];
	uint64_t limit = j->engine->config->limits.batch_bytes, fits = limit / (l->slot_bytes / j->spec.batch_size + 1);
	size_format(l->slot_bytes, batch, sizeof(batch));
	size_format(l->slot_bytes / j->spec.batch_size, row, sizeof(row));
	size_format(limit, most, sizeof(most));
	int n = snprintf(text, sizeof(text),
			 "a batch of %u samples takes %s (%s each), more than the %s that limits.batch_bytes in the "
			 "daemon's configuration allows; ",
			 j->spec.batch_size, batch, row, most);
	n += snprintf(text + n, sizeof(text) - (size_t)n,
		      fits ? "use a batch_size of at most %llu, or raise it" : "raise it", (unsigned long long)fits);
	fields_explain(j->loader->fields, l, what, sizeof(what));
	snprintf(text + n, sizeof(text) - (size_t)n, "%s", what);
	struct refusal why;
	refuse(&why, BATCHD__WIRE__ERROR_CODE__LIMIT, "batch_bytes", "%s", text);
	job_end_sessions(j, &why);
}

/* No lane of the file system that its files are on: r is pool_lane_join's. */
static void refuse_lane(struct opening *o, int r)
{
	const struct config_limits *l = &o->task.job->engine->config->limits;
	char text[600];
	if (r > 0) {
		bool user = r == ACCOUNT_E_USER;
		snprintf(
			text, sizeof(text),
			"%s has data sets on %u network file systems, all that limits.%s in the daemon's configuration "
			"allows: close loaders, or raise it",
			user ? "this user" : "the daemon", user ? l->file_systems_per_user : l->file_systems,
			user ? "file_systems_per_user" : "file_systems");
		opening_fail(o, BATCHD__WIRE__ERROR_CODE__LIMIT, user ? "file_systems_per_user" : "file_systems", text);
		return;
	}
	snprintf(text, sizeof(text),
		 "no thread can be made to read %s: %s; raise the limit of threads (ulimit -u, TasksMax=), or lower "
		 "io_threads in the daemon's configuration",
		 o->where.name, strerror(-r));
	opening_fail(o, BATCHD__WIRE__ERROR_CODE__INTERNAL, "", text);
}

static void opening_done(struct job_task *t)
{
	struct opening *o = container_of(t, struct opening, task);
	struct job *j = t->job;
	struct engine *e = j->engine;
	/* Lingering jobs are closed to make room. */
	if (o->refused && j->n_sessions && job_close_lingering(e, j->spec.uid, o->refused == ACCOUNT_E_ALL)) {
		opening_free_recipe(o);
		o->refused = o->result = 0;
		job_task_begin(t, j);
		job_task_run(t);
		return;
	}
	assert(j->opening == o && j->state == JOB_OPENING && !j->loader);
	j->opening = NULL;
	struct loader_spec spec;
	int r = o->result ? o->result : loader_spec_copy(&j->spec, &spec);
	if (r == 0) {
		do
			r = job_make_loader(j, &spec, &o->recipe);
		while (r > 0 && job_close_lingering(e, j->spec.uid, r == ACCOUNT_E_ALL));
		if (r)
			loader_spec_finish(&spec);
		else if (j->loader->host.lane)
			pool_lane_set_name(j->loader->host.lane, o->where.name);
	}
	if (r == 0 && o->memory.account) { /* frees the part that only the opening needed */
		charge_move(&j->data_bytes, &o->memory);
		charge_shrink(&j->data_bytes, j->data_bytes.amount - keeps_bytes(j));
	}
	if (r == -EAGAIN || r > 0)
		refuse_lane(o, r);
	else if (r && !o->result)
		opening_fail(o, BATCHD__WIRE__ERROR_CODE__INTERNAL, "", strerror(-r));
	job_move(j, r ? JOB_FAILED : JOB_READY);
	if (r)
		job_end_sessions(j, &o->why);
	else if (j->loader->layout.slot_bytes > e->config->limits.batch_bytes)
		refuse_batches(j);
	end_opening(o);
}

/* From here on a server that hangs has threads of its own file system alone. */
static void opening_located(struct job_task *t)
{
	assert(!t->session || t->session->job == t->job);
	struct opening *o = container_of(t, struct opening, task);
	struct job *j = t->job;
	int r;
	do /* lingering jobs are closed to make room */
		r = o->where.server ? pool_lane_join(j->engine->pool, o->where.server, j->spec.uid, &o->lane) : 0;
	while (r > 0 && job_close_lingering(j->engine, j->spec.uid, r == ACCOUNT_E_ALL));
	t->run = opening_run;
	t->done = opening_done;
	if (o->lane)
		pool_lane_set_name(o->lane, o->where.name);
	if (r == 0 && !atomic_load(&o->stop)) {
		job_task_begin(t, j);
		job_task_run(t);
		return;
	}
	if (r)
		refuse_lane(o, r);
	else
		opening_fail(o, BATCHD__WIRE__ERROR_CODE__SHUTDOWN, "", "the opening was stopped");
	opening_done(t);
}

void job_advance(struct job *j)
{
	assert(is_loop_thread());
	for (struct session *s = j->sessions; s; s = s->next_in_job)
		j->engine->job_ops->advance(s);
}

static int on_path(void *arg, const char *path)
{
	(void)arg, (void)path;
	return 1;
}

static void start_opening(struct job *j, struct open_request *r, int *fds, unsigned n_fds)
{
	assert(!j->opening && j->state == JOB_OPENING);
	struct engine *e = j->engine;
	struct opening *o = calloc(1, sizeof(*o));
	if (!o) {
		job_move(j, JOB_FAILED);
		return;
	}
	bool has_files = n_fds || sources_each_path(r->sources, on_path, NULL);
	o->task = (struct job_task){ .run = has_files ? opening_locate : opening_run,
				     .done = has_files ? opening_located : opening_done };
	job_task_begin(&o->task, j);
	o->access = r->access;
	o->sources = r->sources;
	r->sources = NULL;
	/* A copy: a reload may replace the configuration during indexing. Without memory for it the index is not
	 * kept. */
	o->manifest_dir = e->config->index_cache ? strdup(e->config->index_cache) : NULL;
	o->index_dir_limit_bytes = e->config->cache_disk_bytes;
	o->bad_data = e->config->bad_data;
	o->cache = e->budget.cache;
	o->decoded_budget_bytes = e->budget.decoded_bytes;
	o->choose_decoded = e->config->cache_decoded_bytes == CONFIG_AUTO;
	o->limits = budget_decode_limits(&e->budget, e->config);
	o->recipe.value_bytes = e->config->limits.value_bytes;
	o->recipe.uid = o->task.job->spec.uid;
	for (unsigned i = 0; i < n_fds; i++) {
		o->fds[i] = fds[i];
		fds[i] = -1;
	}
	o->n_fds = n_fds;
	uv_timer_init(&e->loop, &o->progress);
	o->progress.data = o;
	uv_timer_start(&o->progress, on_progress_timer, PROGRESS_MS, PROGRESS_MS);
	j->opening = o;
	atomic_store(&o->phase, "waiting for your other data sets");
	job_task_run(&o->task);
}

struct job *job_make(struct engine *e, struct open_request *r, int *fds, unsigned n_fds,
		     const struct data_identity *data, struct charge *loader, struct charge *open_fds)
{
	assert(is_loop_thread());
	assert(n_fds <= WIRE_MAX_FDS);
	struct job *j = calloc(1, sizeof(*j));
	if (!j)
		return NULL;
	j->engine = e;
	j->spec = r->spec;
	r->spec = (struct loader_spec){ 0 };
	j->data = *data;
	r->asked = NULL;
	j->number = ++e->n_jobs;
	charge_move(&j->loader_charge, loader);
	charge_move(&j->fds, open_fds);
	uv_timer_init(&e->loop, &j->linger);
	j->linger.data = j;
	list_push(&e->jobs, j, next);
	j->served = r->served;
	r->served = NULL;
	if (!j->served)
		start_opening(j, r, fds, n_fds);
	return j;
}

/* ---- sessions ---- */

void job_enter(struct job *j, struct session *s)
{
	assert(is_loop_thread());
	assert(!s->job && s->state == SESSION_GREETED && j->state != JOB_CLOSING);
	s->job = j;
	list_push(&j->sessions, s, next_in_job);
	j->n_sessions++;
	if (j->state == JOB_READY)
		uv_timer_stop(&j->linger);
}

void job_note_ending(struct session *s)
{
	assert(is_loop_thread());
	struct job *j = s->job;
	if (!j)
		return;
	assert(s->state != SESSION_ENDING && j->n_sessions > 0);
	j->n_sessions--;
}

void job_leave(struct session *s)
{
	assert(is_loop_thread());
	struct job *j = s->job;
	if (!j)
		return;
	list_remove(&j->sessions, s, next_in_job);
	j->n_sessions -= s->state != SESSION_ENDING;
	s->job = NULL;
	if (!j->sessions)
		drop_if_waiting(j);
	if (!j->sessions && j->opening) { /* no session joins it: what it makes is no loader */
		atomic_store(&j->opening->stop, true);
		j->retired = true;
	}
	if (j->sessions || j->state == JOB_CLOSING || j->opening)
		return;
	j->retired |= j->state != JOB_READY || s->ends_job || j->outgrown;
	job_settle(j, j->retired ? 0 : j->engine->config->linger_ns);
}
