/* Jobs: a job is made by its first session, joined by later ones, and kept warm for a while after the last.
 *
 * The difficult part is opening. An I/O thread opens the data set (it may take minutes to index) while sessions come
 * and go. The opening belongs to the job, and the job to the sessions that wait for it. A job without sessions still
 * has to wait until its opening returns. */
#include "job.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/feed.h"
#include "data/endings.h"
#include "request.h"
#include "session-state.h"
#include "util/closing.h"
#include "util/container.h"
#include "util/list.h"
#include "util/log.h"
#include "util/probe.h"
#include "util/size.h"

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

struct opening {
	struct job_task task;
	uv_timer_t progress;
	struct charge place;   /* holds no charge while it waits in the daemon's list */
	struct charge memory;  /* of the data set that it opens */
	int refused;           /* ACCOUNT_E_: there was no memory for it */
	uint64_t wanted_bytes; /* if refused: the total */
	struct meter meter;
	struct opening *next_waiting;
	/* the I/O thread's, until done */
	struct data_access access;
	char *source;
	char *manifest_dir;
	uint64_t index_dir_limit_bytes;
	struct cache *cache;
	uint64_t decoded_budget_bytes;
	bool choose_decoded;
	struct decode_limits limits;
	int fds[WIRE_MAX_FDS];
	unsigned n_fds;
	struct recipe recipe;
	int result;
	struct refusal why; /* if it failed */
	atomic_uint_fast64_t done, total;
	_Atomic(const char *) phase;
};

static void free_recipe(struct opening *o)
{
	recipe_finish(&o->recipe);
	charge_end(&o->memory);
}

/* ---- on the I/O thread ---- */

/* The data set grows: its user is charged at once, because indexing may need more memory than there is. */
static int on_more_memory(void *arg, uint64_t bytes)
{
	struct opening *o = arg;
	int r = budget_charge_data(&o->task.job->engine->budget, o->task.job->spec.uid, &o->memory, bytes);
	o->refused = r > 0 ? r : 0;
	if (r > 0) {
		o->wanted_bytes = o->memory.amount + bytes;
	}
	return r > 0 ? -EDQUOT : r;
}

static void on_dataset_progress(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	struct opening *o = arg;
	atomic_store(&o->done, done);
	atomic_store(&o->total, total);
	atomic_store(&o->phase, phase);
}

static void fail_opening(struct opening *o, Batchd__Wire__ErrorCode code, const char *field, const char *text)
{
	o->result = -EINVAL;
	refuse(&o->why, code, field, "%s", text);
}

static void explain_refusal(struct opening *o)
{
	char text[sizeof(o->why.text)], what[512];
	snprintf(what, sizeof(what), "%.400s: the data set has more names and labels than there is room for: it",
		 o->source);
	budget_explain(&o->task.job->engine->budget, o->task.job->spec.uid, o->refused, what, o->wanted_bytes,
		       "close other loaders, raise the limit, or split the data set", text, sizeof(text));
	fail_opening(o, BATCHD__WIRE__ERROR_CODE__LIMIT, o->refused == ACCOUNT_E_USER ? "memory_per_user" : "memory",
		     text);
}

/* Bytes for the bit per sample that marks bad ones. */
static uint64_t bits_bytes(const struct recipe *r, bool has_pipeline)
{
	const struct dataset *ds = r->dataset;
	bool may_be_bad = dataset_is_image(ds) || has_pipeline;
	for (unsigned k = 0; k < dataset_n_fields(ds); k++) {
		const struct field *f = dataset_field(ds, k);
		may_be_bad |= f->kind == FIELD_RAGGED && f->longest > r->value_bytes / dtype_bytes(f->dtype);
	}
	return may_be_bad ? dataset_n(ds) / 8 : 0;
}

static int charge_bits(struct opening *o)
{
	return meter_take(&o->meter, bits_bytes(&o->recipe, o->task.job->spec.transform[0]));
}

static bool lacks_fields(struct opening *o, const struct loader_spec *spec)
{
	char text[sizeof(o->why.text)];
	if (fields_check(o->recipe.dataset, spec->fields, text, sizeof(text)))
		return false;
	fail_opening(o, BATCHD__WIRE__ERROR_CODE__INVALID, "fields", text);
	return true;
}

static void open_pipeline(struct opening *o, const struct loader_spec *spec)
{
	struct pipeline_error err;
	const struct dataset *ds = o->recipe.dataset;
	const struct field *first = dataset_field(ds, 0);
	struct image_form form = { .n_channels = 3 };
	bool image = dataset_is_image(ds);
	char text[400];
	if (!image && !spec->transform[0])
		return;
	if (!image && pixels_of(first, &o->recipe.pixels, text, sizeof(text))) {
		fail_opening(o, BATCHD__WIRE__ERROR_CODE__INVALID, "transform", text);
		return;
	}
	if (!fields_wants(spec->fields, first->name))
		return;
	if (!image)
		form = o->recipe.pixels.form;
	if (spec->layout == LAYOUT_AS_STORED) {
		fail_opening(o, BATCHD__WIRE__ERROR_CODE__INVALID, "layout", "images are delivered as NCHW or NHWC");
		return;
	}
	if (pipeline_parse_for(spec->transform, &form, spec->dtype, spec->layout, &o->recipe.pipeline, &err)) {
		fail_opening(o, BATCHD__WIRE__ERROR_CODE__INVALID, "transform", err.text);
		return;
	}
	o->recipe.apply_exif = spec->apply_exif;
	if (!image)
		return; /* pixels in memory or in the page cache need no cache of ours */
	if (recipe_attach(&o->recipe, o->cache, o->decoded_budget_bytes, o->choose_decoded, &o->limits))
		fail_opening(o, BATCHD__WIRE__ERROR_CODE__INTERNAL, "", "out of memory");
}

/* Reports files of kinds that cannot be decoded, before the first batch. */
static bool refuses_kinds(struct opening *o, const struct loader_spec *spec)
{
	char text[512];
	enum endings found = dataset_is_image(o->recipe.dataset) ? endings_look(o->recipe.dataset, text, sizeof(text))
								 : ENDINGS_READ;
	if (found == ENDINGS_SOME_UNREAD)
		log_record(LOG_LEVEL_WARNING, "kinds-not-read", "%s: %s; until then they are replaced by others",
			   spec->dataset, text);
	if (found == ENDINGS_ALL_UNREAD)
		fail_opening(o, BATCHD__WIRE__ERROR_CODE__BAD_DATA, "dataset", text);
	return found == ENDINGS_ALL_UNREAD;
}

static void open_source(struct opening *o)
{
	const struct loader_spec *spec = &o->task.job->spec;
	atomic_store(&o->phase, NULL); /* if it had to wait */
	struct dataset_error err = { .text = "" };
	struct dataset_source source = { .spec = o->source,
					 .fds = o->fds,
					 .n_fds = o->n_fds,
					 .access = &o->access,
					 .cache_dir = o->manifest_dir,
					 .cache_limit_bytes = o->index_dir_limit_bytes,
					 .meter = &o->meter,
					 .on_progress = on_dataset_progress,
					 .progress_arg = o };
	o->meter = (struct meter){ .more = on_more_memory, .arg = o };
	int r = dataset_open(&source, &o->recipe.dataset, &err);
	if (r == 0)
		r = charge_bits(o);
	if (r && o->refused) {
		explain_refusal(o);
		return;
	}
	if (r) {
		fail_opening(o, err.code ? (Batchd__Wire__ErrorCode)err.code : BATCHD__WIRE__ERROR_CODE__INTERNAL,
			     "dataset", err.text[0] ? err.text : strerror(-r));
		return;
	}
	if (dataset_n(o->recipe.dataset) == 0)
		fail_opening(o, BATCHD__WIRE__ERROR_CODE__INVALID, "dataset", "the data set has no samples");
	else if (!lacks_fields(o, spec) && !refuses_kinds(o, spec))
		open_pipeline(o, spec);
}

static void opening_run(struct job_task *t)
{
	struct opening *o = container_of(t, struct opening, task);
	open_source(o);
	/* Closed here and not on the loop: closing a file on a FUSE file system waits for its server. */
	wire_close_fds(o->fds, o->n_fds);
	o->n_fds = 0;
}

/* ---- the list ---- */

static struct job *find_job(struct engine *e, uid_t uid, const char *name)
{
	for (struct job *j = e->jobs; j; j = j->next) {
		if (j->state != JOB_CLOSING && j->state != JOB_ENDING && !j->retired && j->spec.uid == uid &&
		    !strcmp(j->spec.job, name))
			return j;
	}
	return NULL;
}

static void on_linger_closed(uv_handle_t *h)
{
	struct job *j = h->data;
	struct engine *e = j->engine;
	assert(!j->sessions && !j->n_tasks && !j->producer && !j->loader);
	list_remove(&e->jobs, j, next);
	loader_spec_finish(&j->spec);
	free(j->served);
	free(j);
	e->on_ended(e);
}

static void on_loader_closed(struct loader *l)
{
	struct job *j = l->owner;
	assert(j->state == JOB_CLOSING);
	if (j->feed)
		feed_close(j->feed);
	j->feed = NULL;
	j->loader = NULL; /* it is freed when this returns */
	charge_end(&j->data_bytes);
	uv_close((uv_handle_t *)&j->linger, on_linger_closed);
}

void job_close(struct job *j)
{
	if (j->state == JOB_CLOSING || j->n_tasks)
		return;
	assert(!j->sessions);
	job_move(j, JOB_CLOSING);
	charge_end(&j->loader_charge);
	charge_end(&j->fds);
	uv_timer_stop(&j->linger);
	if (j->loader)
		loader_close(j->loader);
	else
		uv_close((uv_handle_t *)&j->linger, on_linger_closed);
	if (j->on_closing)
		j->on_closing(j);
}

bool job_close_lingering(struct engine *e, uid_t uid, bool any_user)
{
	struct job *oldest = NULL;
	for (struct job *j = e->jobs; j; j = j->next) { /* the newest first */
		if (j->state == JOB_READY && !j->sessions && !j->n_tasks && (any_user || j->spec.uid == uid))
			oldest = j;
	}
	if (oldest)
		job_close(oldest);
	return oldest != NULL;
}

static void on_linger_over(uv_timer_t *t)
{
	job_close(t->data);
}

/* ---- the loader's news ---- */

void job_end_sessions(struct job *j, const struct refusal *why)
{
	while (j->sessions) {
		struct session *s = j->sessions;
		j->engine->job_ops->ended(s, why);
		if (j->sessions == s) /* its peer was closing already */
			job_leave(s);
	}
}

static void on_fail_timer(uv_timer_t *t)
{
	struct job *j = t->data;
	const char *field = j->fail_code == BATCHD__WIRE__ERROR_CODE__LIMIT ? "memory"
			    : j->served                                     ? "producer"
									    : "dataset";
	struct refusal why;
	refuse(&why, j->fail_code ? j->fail_code : BATCHD__WIRE__ERROR_CODE__BAD_DATA, field, "%s", j->loader->error);
	job_end_sessions(j, &why);
	job_close(j); /* a job that was lingering has no other timer: this one replaced it */
}

/* The failure may be reported from deep inside a stream: the sessions are told when no stream function is on the
 * stack. */
static void on_loader_failed(struct loader *l)
{
	struct job *j = l->owner;
	if (j->state != JOB_READY && j->state != JOB_ENDING)
		return;
	job_move(j, JOB_FAILED);
	uv_timer_start(&j->linger, on_fail_timer, 0, 0);
}

/* A session that has had all its batches. */
static struct session *find_ended(const struct job *j)
{
	struct session *s = j->sessions;
	while (s && stream_has_more(&s->consumer))
		s = s->next_in_job;
	return s;
}

static void on_end_timer(uv_timer_t *t)
{
	struct job *j = t->data;
	struct session *s;
	struct refusal why;
	refuse(&why, j->fail_code, j->fail_code == BATCHD__WIRE__ERROR_CODE__REOPEN ? NULL : "producer", "%s",
	       j->loader->error);
	while ((s = find_ended(j))) {
		j->engine->job_ops->ended(s, &why);
		if (find_ended(j) == s) /* its peer was closing already */
			job_leave(s);
	}
	if (!j->sessions)
		job_close(j);
}

void job_end(struct job *j, Batchd__Wire__ErrorCode code, const char *text)
{
	if (j->state != JOB_READY)
		return;
	job_move(j, JOB_ENDING);
	j->fail_code = code;
	snprintf(j->loader->error, sizeof(j->loader->error), "%s", text);
	uv_timer_start(&j->linger, on_end_timer, 0, 0);
}

/* Sessions are told when no stream function is on the stack. */
void job_note_moved(struct job *j)
{
	if (j->state == JOB_ENDING)
		uv_timer_start(&j->linger, on_end_timer, 0, 0);
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

static void admit_waiting(struct engine *e);

/* Making an order takes an I/O thread for a time that grows with the number of samples: it counts as an opening. */
static bool on_begin_task(struct loader *l, struct charge *place)
{
	struct job *j = l->owner;
	return charge_begin(place, &j->engine->budget.accounts, j->spec.uid, ACCOUNT_OPENINGS, 1) == 0;
}

static void on_end_task(struct loader *l, struct charge *place)
{
	struct job *j = l->owner;
	charge_end(place);
	admit_waiting(j->engine);
}

static const struct loader_ops loader_ops = { .failed = on_loader_failed,
					      .published = on_loader_published,
					      .closed = on_loader_closed,
					      .charge = on_charge,
					      .begin_task = on_begin_task,
					      .end_task = on_end_task };

int job_make_loader(struct job *j, struct loader_spec *spec, struct recipe *recipe)
{
	return loader_create(j->engine->pool, spec, recipe, j->engine->config->bad_data, &loader_ops, j, &j->loader);
}

/* ---- tasks ---- */

void job_task_begin(struct job_task *t, struct job *j)
{
	assert(j->state != JOB_CLOSING);
	t->job = j;
	j->n_tasks++;
}

void job_task_await(struct job_task *t, struct session *s, struct job_task **place)
{
	assert(t->job == s->job && !*place);
	t->session = s;
	t->place = place;
	*place = t;
}

void job_task_forget(struct job_task **place)
{
	if (*place)
		(*place)->session = NULL;
	*place = NULL;
}

void job_task_drop(struct job_task *t)
{
	assert(t->job->n_tasks > 0);
	t->job->n_tasks--;
}

void job_task_end(struct job_task *t)
{
	struct job *j = t->job;
	bool lets_linger = t->lets_linger;
	assert(j->n_tasks > 0 && j->state != JOB_CLOSING);
	assert(!t->session || (*t->place == t && t->session->job == j));
	j->n_tasks--;
	if (t->session)
		*t->place = NULL;
	t->done(t);
	job_advance(j);
	if (!j->sessions && !(lets_linger && uv_is_active((uv_handle_t *)&j->linger)))
		job_close(j);
}

static void run_task(struct pool_task *p)
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
	t->pool_task = (struct pool_task){ .run = run_task, .done = end_task };
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
	for (struct session *s = o->task.job->sessions; s; s = s->next_in_job) {
		if (s->peer)
			peer_send(s->peer, WIRE_SERVER(PROGRESS, progress, &p), NULL, 0);
	}
}

static void free_opening(uv_handle_t *h)
{
	struct opening *o = h->data;
	closing_add(o->access.uid, o->fds, o->n_fds); /* of an opening that never ran */
	free_recipe(o);
	free(o->source);
	free(o->manifest_dir);
	free(o);
}

/* One user's openings must not take every I/O thread: on a file system that hangs they would keep them. */
static bool take_place(struct opening *o)
{
	struct engine *e = o->task.job->engine;
	const struct accounts *a = &e->budget.accounts;
	/* The same holds for several users together: a user gets no more places than are left for the others. */
	uint64_t all = a->limit[ACCOUNT_OPENINGS], used = a->used[ACCOUNT_OPENINGS];
	if (all && used < all && account_used(a, o->task.job->spec.uid, ACCOUNT_OPENINGS) >= all - used)
		return false;
	if (charge_begin(&o->place, &e->budget.accounts, o->task.job->spec.uid, ACCOUNT_OPENINGS, 1) > 0)
		return false;
	job_task_run(&o->task);
	return true;
}

static void wait_for_place(struct opening *o)
{
	list_append(&o->task.job->engine->waiting, o, next_waiting);
	atomic_store(&o->phase, "waiting for your other data sets");
}

/* An opening has ended: each waiting opening that may have a place gets it. */
static void admit_waiting(struct engine *e)
{
	for (struct opening *o = e->waiting, *next; o; o = next) {
		next = o->next_waiting;
		if (take_place(o))
			list_remove(&e->waiting, o, next_waiting);
	}
	for (struct job *j = e->jobs; j; j = j->next) {
		if (j->loader && j->loader->wants_task && j->state == JOB_READY)
			loader_retry(j->loader);
	}
}

/* Drops an opening that no session waits for and that no thread has yet. */
static void drop_if_waiting(struct job *j)
{
	struct opening *o = j->opening;
	if (!o || !list_has(&j->engine->waiting, o, next_waiting))
		return;
	list_remove(&j->engine->waiting, o, next_waiting);
	j->opening = NULL;
	job_task_drop(&o->task);
	uv_close((uv_handle_t *)&o->progress, free_opening);
}

/* The part of an opening's memory that stays as long as the loader. */
static uint64_t keeps_bytes(const struct job *j)
{
	const struct dataset *ds = j->loader->recipe.dataset;
	uint64_t bytes = dataset_memory_bytes(ds) + bits_bytes(&j->loader->recipe, j->loader->recipe.pipeline);
	return bytes < j->data_bytes.amount ? bytes : j->data_bytes.amount;
}

static void refuse_batches(struct job *j)
{
	const struct slot_layout *l = &j->loader->layout;
	char text[400], batch[32], row[32], most[32];
	uint64_t limit = j->engine->config->limits.batch_bytes, fits = limit / (l->slot_bytes / j->spec.batch_size + 1);
	size_format(l->slot_bytes, batch, sizeof(batch));
	size_format(l->slot_bytes / j->spec.batch_size, row, sizeof(row));
	size_format(limit, most, sizeof(most));
	int n = snprintf(text, sizeof(text),
			 "a batch of %u samples takes %s (%s each), more than the %s that limits.batch_bytes in the "
			 "daemon's configuration allows; ",
			 j->spec.batch_size, batch, row, most);
	snprintf(text + n, sizeof(text) - (size_t)n,
		 fits ? "use a batch_size of at most %llu, or raise it" : "raise it", (unsigned long long)fits);
	struct refusal why;
	refuse(&why, BATCHD__WIRE__ERROR_CODE__LIMIT, "batch_bytes", "%s", text);
	job_end_sessions(j, &why);
}

static void opening_done(struct job_task *t)
{
	struct opening *o = container_of(t, struct opening, task);
	struct job *j = t->job;
	struct engine *e = j->engine;
	/* Lingering jobs are closed to make room. */
	if (o->refused && j->sessions && job_close_lingering(e, j->spec.uid, o->refused == ACCOUNT_E_ALL)) {
		free_recipe(o);
		o->refused = o->result = 0;
		job_task_begin(t, j);
		job_task_run(t);
		return;
	}
	assert(j->opening == o && j->state == JOB_OPENING && !j->loader);
	j->opening = NULL;
	charge_end(&o->place);
	admit_waiting(e);
	struct loader_spec spec;
	int r = o->result ? o->result : loader_spec_copy(&j->spec, &spec);
	if (r == 0) {
		r = job_make_loader(j, &spec, &o->recipe);
		if (r)
			loader_spec_finish(&spec);
	}
	if (r == 0 && o->memory.account) { /* frees the part that only the opening needed */
		charge_move(&j->data_bytes, &o->memory);
		charge_shrink(&j->data_bytes, j->data_bytes.amount - keeps_bytes(j));
	}
	if (r && !o->result)
		fail_opening(o, BATCHD__WIRE__ERROR_CODE__INTERNAL, "", strerror(-r));
	job_move(j, r ? JOB_FAILED : JOB_READY);
	if (r)
		job_end_sessions(j, &o->why);
	else if (j->loader->layout.slot_bytes > e->config->limits.batch_bytes)
		refuse_batches(j);
	uv_close((uv_handle_t *)&o->progress, free_opening);
}

/* Advancing one session may end others (it fences them), perhaps the next in the list: the list is read from the start
 * after each. */
void job_advance(struct job *j)
{
	struct session *s = j->sessions;
	j->n_advances++;
	while (s) {
		if (s->advanced == j->n_advances) {
			s = s->next_in_job;
			continue;
		}
		s->advanced = j->n_advances;
		j->engine->job_ops->advance(s);
		s = j->sessions;
	}
}

static void start_opening(struct job *j, struct request *r, int *fds, unsigned n_fds)
{
	struct engine *e = j->engine;
	struct opening *o = calloc(1, sizeof(*o));
	if (!o) {
		job_move(j, JOB_FAILED);
		return;
	}
	o->task = (struct job_task){ .run = opening_run, .done = opening_done };
	job_task_begin(&o->task, j);
	o->access = r->access;
	o->source = r->source;
	r->source = NULL;
	/* A copy: a reload may replace the configuration during indexing. Without memory for it the index is not
	 * kept. */
	o->manifest_dir = e->config->index_cache ? strdup(e->config->index_cache) : NULL;
	o->index_dir_limit_bytes = e->config->cache_disk_bytes;
	o->cache = e->budget.cache;
	o->decoded_budget_bytes = e->budget.decoded_bytes;
	o->choose_decoded = e->config->cache_decoded_bytes == CONFIG_AUTO;
	o->limits = budget_decode_limits(&e->budget, e->config);
	o->recipe.value_bytes = e->config->limits.value_bytes;
	for (unsigned i = 0; i < n_fds; i++) {
		o->fds[i] = fds[i];
		fds[i] = -1;
	}
	o->n_fds = n_fds;
	uv_timer_init(&e->loop, &o->progress);
	o->progress.data = o;
	uv_timer_start(&o->progress, on_progress_timer, PROGRESS_MS, PROGRESS_MS);
	j->opening = o;
	if (!take_place(o))
		wait_for_place(o);
}

static struct job *make_job(struct engine *e, struct request *r, int *fds, unsigned n_fds,
			    const struct data_identity *data, struct charge *loader, struct charge *open_fds)
{
	struct job *j = calloc(1, sizeof(*j));
	if (!j)
		return NULL;
	j->engine = e;
	j->spec = r->spec;
	r->spec = (struct loader_spec){ 0 };
	j->data = *data;
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

/* ---- joining ---- */

/* Uses only dev and inode, which the kernel knows without asking a file system that may hang. Data without descriptors
 * counts as trusted: it is no client's file, or its path is allowed only to trusted clients. */
static void identify(const int *fds, unsigned n_fds, bool trusted, struct data_identity *out)
{
	*out = (struct data_identity){ .trusted = trusted || !n_fds, .n = n_fds };
	for (unsigned i = 0; i < n_fds; i++) {
		struct statx st;
		if (statx(fds[i], "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &st))
			continue;
		out->files[i].dev = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor;
		out->files[i].ino = st.stx_ino;
	}
}

/* The first field in which a request differs from the job; NULL: none. *text describes the difference if only the name
 * of the data is the same. */
static const char *difference(const struct job *j, const struct loader_spec *spec, const struct data_identity *data,
			      const char **text)
{
	const char *field = loader_spec_difference(&j->spec, spec);
	*text = field;
	if (field)
		return field;
	if (j->data.n == data->n && !memcmp(j->data.files, data->files, sizeof(data->files))) {
		*text = "dataset (opened from another mount namespace, with other rights)";
		return j->data.trusted == data->trusted ? NULL : "dataset";
	}
	*text = "dataset (another folder or file of the same name: another container's, or it has been replaced)";
	return "dataset";
}

static void enter(struct job *j, struct session *s)
{
	assert(!s->job && s->state == SESSION_GREETED && j->state != JOB_CLOSING);
	s->job = j;
	list_push(&j->sessions, s, next_in_job);
	j->n_sessions++;
	if (j->state == JOB_READY)
		uv_timer_stop(&j->linger);
}

/* Charges a new job to its user. Lingering jobs are closed to make room. 0, the kind's limit that refuses it, or
 * -ENOMEM. */
enum { OVER_LOADERS = 1, OVER_USERS_LOADERS, OVER_FDS };

static int charge_job(struct engine *e, uid_t uid, unsigned n_fds, struct charge *loader, struct charge *open_fds)
{
	int r;
	do
		r = charge_begin(loader, &e->budget.accounts, uid, ACCOUNT_LOADERS, 1);
	while (r > 0 && job_close_lingering(e, uid, r == ACCOUNT_E_ALL));
	if (r)
		return r < 0 ? r : r == ACCOUNT_E_ALL ? OVER_LOADERS : OVER_USERS_LOADERS;
	r = charge_begin(open_fds, &e->budget.accounts, uid, ACCOUNT_FDS, n_fds);
	if (r == 0)
		return 0;
	charge_end(loader);
	return r < 0 ? r : OVER_FDS;
}

static int refuse_job(int over, struct refusal *why)
{
	if (over < 0)
		return refuse_memory(why);
	if (over == OVER_LOADERS)
		return refuse(why, BATCHD__WIRE__ERROR_CODE__LIMIT, "loaders",
			      "the daemon has as many loaders as limits.loaders in its configuration allows");
	if (over == OVER_USERS_LOADERS)
		return refuse(
			why, BATCHD__WIRE__ERROR_CODE__LIMIT, "loaders_per_user",
			"this user has as many loaders as limits.loaders_per_user in the daemon's configuration allows");
	return refuse(
		why, BATCHD__WIRE__ERROR_CODE__LIMIT, "fds_per_user",
		"the daemon has too many descriptors open for this user (limits.fds_per_user in its configuration)");
}

/* A new incarnation of the whole job: ends every session of the old one, whatever it asked for and in whatever state.
 * The loader stays if the new incarnation can use it. It cannot in share mode, where one slab is for all and processes
 * of the old incarnation may still hold its slots. */
static void fence_all(struct job *j, const struct loader_spec *successor, const struct data_identity *data)
{
	const char *what;
	struct refusal why;
	bool keep = (j->state == JOB_READY || j->state == JOB_OPENING) && !successor->share &&
		    !difference(j, successor, data, &what);
	refuse(&why, BATCHD__WIRE__ERROR_CODE__FENCED, "incarnation",
	       "a newer incarnation of this job has started (%llu, this is %llu)",
	       (unsigned long long)successor->incarnation, (unsigned long long)j->spec.incarnation);
	job_end_sessions(j, &why);
	j->spec.incarnation = successor->incarnation;
	if (keep && j->state != JOB_CLOSING)
		return;
	j->retired = true;
	job_close(j);
}

int job_join(struct engine *e, struct session *s, struct request *r, int *fds, unsigned n_fds, struct refusal *why)
{
	struct job *j = find_job(e, r->spec.uid, r->spec.job);
	struct data_identity data;
	/* Memory of which the text tells the content is the same data in whichever memfd it comes. */
	bool named = !strncmp(r->spec.dataset, "memory:id=", strlen("memory:id="));
	identify(fds, named ? 0 : n_fds, r->access.trusted, &data);
	if (j && r->spec.incarnation > j->spec.incarnation) {
		fence_all(j, &r->spec, &data);
		j = find_job(e, r->spec.uid, r->spec.job);
	}
	if (j && j->state == JOB_FAILED && !j->sessions) {
		job_close(j);
		j = find_job(e, r->spec.uid, r->spec.job);
	}
	if (j && r->spec.incarnation < j->spec.incarnation)
		return refuse(why, BATCHD__WIRE__ERROR_CODE__FENCED, "incarnation",
			      "a newer incarnation of this job is running");
	const char *what, *field = j ? difference(j, &r->spec, &data, &what) : NULL;
	/* No session uses the warm loader: a changed script simply replaces it. */
	if (field && !j->sessions && j->state == JOB_READY && !j->n_tasks) {
		job_close(j);
		j = NULL;
		field = NULL;
	}
	if (field)
		return refuse(
			why, BATCHD__WIRE__ERROR_CODE__MISMATCH, field,
			"job '%s' is running with another %s; use the same, or another job name, or a higher incarnation to end what runs",
			r->spec.job, what);
	struct charge loader = { 0 }, open_fds = { 0 };
	int over = j ? 0 : charge_job(e, s->uid, n_fds, &loader, &open_fds);
	if (over)
		return refuse_job(over, why);
	if (!j)
		j = make_job(e, r, fds, n_fds, &data, &loader, &open_fds);
	if (!j) {
		charge_end(&loader);
		charge_end(&open_fds);
		return refuse_memory(why);
	}
	enter(j, s);
	return 0;
}

void job_leave(struct session *s)
{
	struct job *j = s->job;
	if (!j)
		return;
	list_remove(&j->sessions, s, next_in_job);
	assert(j->n_sessions > 0);
	j->n_sessions--;
	s->job = NULL;
	if (s->again && s->state == SESSION_OPENING && j->loader) { /* for example, fenced before it was attached */
		j->loader->host.n_returned++;
		if (j->feed && j->feed->maker.n_returning)
			j->loader->host.source->ops->moved(j->loader->host.source);
	}
	if (!j->sessions)
		drop_if_waiting(j);
	if (j->sessions || j->state == JOB_CLOSING || j->opening)
		return;
	if (j->state == JOB_FAILED || j->state == JOB_ENDING || j->state == JOB_OPENING || j->engine->stopping ||
	    !j->engine->config->linger_ns)
		job_close(j);
	else
		uv_timer_start(&j->linger, on_linger_over, j->engine->config->linger_ns / 1000000, 0);
}
