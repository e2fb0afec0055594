/* Workers and I/O threads that make progress when an event or a call from the loop lets them: in every call into the
 * pool, real threads may have made progress in the meantime. A queue's rows are started in order and finish in any
 * order. The rules for waking the loop are those of batch/pool/wake.h. See sim.h. */
#include "sim.h"

enum { MAX_PIECES = 4 };

struct piece {
	struct pool_job *job;
	uint32_t first, n;
};

struct pool {
	struct pool_queue *queues;
	struct piece piece[MAX_PIECES]; /* in work */
	unsigned n_pieces;
	struct pool_job *done;
	struct pool_task *tasks, *tasks_done;
	bool awake; /* uv_async_send has been called */
};

static struct pool pool;
unsigned sim_bad_row_percent;
bool sim_rows_fail;

void sim_pool_start(void)
{
	pool = (struct pool){ 0 };
}

struct pool *sim_pool(void)
{
	return &pool;
}

static struct slot *slot_of(struct pool_job *job)
{
	return (struct slot *)(void *)((char *)job - offsetof(struct slot, job));
}

static void finish_if_done(struct pool_job *job)
{
	if (job->finished || job->n_open > 0 || (!job->cancelled && job->n_taken < job->n_rows))
		return;
	job->finished = true;
	pool.awake |= job->cancelled || job->queue->waited_for;
	job->next = pool.done;
	pool.done = job;
}

static void unlink_job(struct pool_job *job)
{
	struct pool_queue *q = job->queue;
	struct pool_job **at = &q->first, *before = NULL;
	for (; *at && *at != job; at = &(*at)->next)
		before = *at;
	if (!*at)
		return;
	*at = job->next;
	if (q->last == job)
		q->last = before;
	job->next = NULL;
}

static bool take(void)
{
	unsigned n = 0, pick;
	for (struct pool_queue *q = pool.queues; q; q = q->next)
		n += q->first != NULL;
	if (!n || pool.n_pieces == MAX_PIECES)
		return false;
	pick = sim_below(n);
	struct pool_queue *q = pool.queues;
	while (!q->first || pick-- > 0)
		q = q->next;
	struct pool_job *job = q->first;
	uint32_t rows = 1 + sim_below(job->n_rows - job->n_taken);
	pool.piece[pool.n_pieces++] = (struct piece){ job, job->n_taken, rows };
	job->n_taken += rows;
	job->n_open += rows;
	if (job->n_taken == job->n_rows)
		unlink_job(job);
	return true;
}

/* Writes as a worker does: whatever happened to the batch meanwhile, its memory must exist and belong to no other
 * batch. */
static void write_rows(const struct piece *p)
{
	struct slot *slot = slot_of(p->job);
	struct sim_slab *slab = sim_fd_thing(slot->slots->slab.fd);
	SIM_CHECK(slot->state == SLOT_FILLING || slot->state == SLOT_DROPPED,
		  "a worker writes into slot %u in state %d", slot->number, slot->state);
	SIM_CHECK(slot->n_copying == 0, "a worker writes into slot %u, which is being copied", slot->number);
	SIM_CHECK(slot->n_leases == 0, "a worker writes into slot %u, which is on lease", slot->number);
	for (unsigned i = 0; i < SIM_MAX_TRAINERS; i++)
		SIM_CHECK(!sim_trainer_holds(&sim_trainers[i], slab, slot->number),
			  "a worker writes into slot %u, which trainer %u holds", slot->number, i);
	for (uint32_t row = p->first; row < p->first + p->n; row++) {
		uint64_t stamp[2];
		sim_stamp((uint64_t)slot_indices(slot)[row], stamp);
		memcpy(slot_data(slot) + (size_t)row * SIM_ROW_BYTES, stamp, sizeof(stamp));
		if (sim_bad_row_percent && sim_chance(sim_bad_row_percent))
			atomic_store(&slot->failed, true);
	}
}

static bool finish_one(void)
{
	if (!pool.n_pieces)
		return false;
	unsigned pick = sim_below(pool.n_pieces);
	struct piece p = pool.piece[pick];
	pool.piece[pick] = pool.piece[--pool.n_pieces];
	write_rows(&p);
	p.job->n_open -= p.n;
	finish_if_done(p.job);
	return true;
}

bool sim_worker_works(void)
{
	return sim_chance(50) ? take() || finish_one() : finish_one() || take();
}

bool sim_task_runs(void)
{
	struct pool_task *t = pool.tasks;
	if (!t)
		return false;
	pool.tasks = t->next;
	t->run(t);
	t->next = pool.tasks_done;
	pool.tasks_done = t;
	pool.awake = true;
	return true;
}

static void finish_tasks(struct pool *p);

bool sim_pool_wakes_loop(void)
{
	if (!pool.awake)
		return false;
	pool.awake = false;
	pool_drain(&pool);
	finish_tasks(&pool);
	return true;
}

bool sim_pool_is_empty(void)
{
	return !pool.queues && !pool.n_pieces && !pool.done && !pool.tasks && !pool.tasks_done;
}

/* ---- what the daemon calls ---- */

/* Threads make progress while the loop is inside a call. */
static void meanwhile(void)
{
	sim_liars_scribble();
	while (sim_chance(25) && sim_worker_works())
		;
}

void pool_queue_set_lane(struct pool *p, struct pool_queue *q, struct pool_lane_user *u)
{
	(void)p, (void)q, (void)u;
	SIM_CHECK(false, "no data set here is on a server");
}

int pool_lane_join(struct pool *p, uint64_t filesystem, uid_t owner, struct pool_lane_user **out)
{
	(void)p, (void)filesystem, (void)owner, (void)out;
	SIM_CHECK(false, "no data set here is on a server");
	return -ENOMEM;
}

void pool_lane_leave(struct pool *p, struct pool_lane_user *u)
{
	(void)p;
	SIM_CHECK(!u, "a lane that does not exist is left");
}

int pool_queue_add(struct pool *p, struct pool_queue *q, unsigned max_busy, uid_t owner, const void *job)
{
	(void)owner, (void)job;
	*q = (struct pool_queue){ .max_busy = max_busy, .waited_for = true, .next = p->queues };
	p->queues = q;
	return 0;
}

void pool_queue_remove(struct pool *p, struct pool_queue *q)
{
	struct pool_queue **at = &p->queues;
	SIM_CHECK(!q->first, "a queue with jobs is removed");
	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
}

void pool_queue_set_urgency(struct pool *p, struct pool_queue *q, int n_ready, bool waited_for)
{
	meanwhile();
	q->n_ready = n_ready;
	q->waited_for = waited_for;
	p->awake |= waited_for && p->done;
	meanwhile();
}

bool pool_queue_has_rows(struct pool *p, const struct pool_queue *q)
{
	(void)p;
	meanwhile();
	return q->first != NULL;
}

void pool_drain(struct pool *p)
{
	meanwhile();
	struct pool_job *jobs = p->done;
	p->done = NULL;
	while (jobs) {
		struct pool_job *next = jobs->next;
		jobs->next = NULL;
		jobs->ops->done(jobs);
		jobs = next;
	}
}

static void finish_tasks(struct pool *p)
{
	struct pool_task *tasks = p->tasks_done;
	p->tasks_done = NULL;
	while (tasks) {
		struct pool_task *next = tasks->next;
		tasks->done(tasks);
		tasks = next;
	}
}

void pool_submit(struct pool *p, struct pool_queue *q, struct pool_job *job)
{
	(void)p;
	SIM_CHECK(job->n_rows > 0 && job->chunk > 0, "an empty job");
	job->queue = q;
	job->next = NULL;
	job->n_taken = job->n_open = 0;
	job->cancelled = job->finished = false;
	if (q->first)
		q->last->next = job;
	else
		q->first = job;
	q->last = job;
	meanwhile();
}

void pool_cancel(struct pool *p, struct pool_job *job)
{
	meanwhile();
	if (job->finished) {
		p->awake = true;
		return;
	}
	job->cancelled = true;
	unlink_job(job);
	finish_if_done(job);
}

bool pool_is_finished(struct pool *p, const struct pool_job *job)
{
	(void)p;
	return job->finished;
}

void pool_run_task(struct pool *p, struct pool_task *t)
{
	struct pool_task **at = &p->tasks;
	while (*at)
		at = &(*at)->next;
	t->next = NULL;
	*at = t;
}

bool pool_drop_task(struct pool *p, struct pool_task *t)
{
	struct pool_task **at = &p->tasks;
	while (*at && *at != t)
		at = &(*at)->next;
	if (!*at)
		return false;
	*at = t->next;
	return true;
}

void pool_call(struct pool *p, struct pool_task *t)
{
	t->next = p->tasks_done;
	p->tasks_done = t;
	p->awake = true;
}

void pool_set_target(struct pool *p, unsigned n)
{
	(void)p, (void)n;
}

void pool_charge(struct pool *p, uid_t owner, uint64_t ns)
{
	(void)p, (void)owner, (void)ns;
}

void pool_close(struct pool *p, void (*on_closed)(void *arg), void *arg)
{
	(void)p;
	SIM_CHECK(sim_pool_is_empty(), "a pool is closed that has work");
	on_closed(arg);
}

void pool_get_stats(struct pool *p, struct pool_stats *s)
{
	(void)p;
	*s = (struct pool_stats){ .max = MAX_PIECES };
}

void pool_lane_set_name(struct pool_lane_user *u, const char *name)
{
	(void)u, (void)name;
}

bool pool_get_lane_stats(struct pool *p, unsigned i, uid_t user, struct pool_lane_stats *out)
{
	(void)p, (void)i, (void)user, (void)out;
	return false;
}

uint64_t pool_io_oldest_ns(struct pool *p)
{
	(void)p;
	return 0;
}

void pool_look(struct pool *p, const struct pool_queue *q, struct pool_look *out)
{
	(void)p, (void)q;
	*out = (struct pool_look){ .n_workers = MAX_PIECES, .n_idle = MAX_PIECES };
}
