/* The daemon around the state machines, and what must be true of it after every event. See sim.h. */
#include "sim.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "batch/device-slab.h"
#include "batch/plan/plan.h"
#include "dataset/cache/sample-cache.h"
#include "server/producer.h"
#include "watch/status-cache.h"
#include "server/sampler.h"
#include "watch/session-questions.h"
#include "shutdown.h"
#include "server/spare.h"

uint64_t sim_seed;
unsigned sim_features;
struct engine sim_engine;
struct server sim_server;
static struct shutdown ending;
static bool finished;
static struct status_cache status_cache;
struct sim_job sim_jobs[SIM_MAX_JOBS];
unsigned sim_n_jobs;
static uint64_t dice;
static struct config config;
static struct cache *cache;

/* ---- dice and words ---- */

uint32_t sim_below(uint32_t n)
{
	uint64_t x = dice += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return (uint32_t)(((x ^ x >> 31) >> 32) * n >> 32);
}

bool sim_chance(unsigned percent)
{
	return percent && sim_below(100) < percent;
}

void sim_trace(const char *fmt, ...)
{
	static int wanted = -1;
	va_list ap;
	if (wanted < 0)
		wanted = getenv("SIM_TRACE") != NULL;
	if (!wanted)
		return;
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

static void trace_stream(const struct stream *s)
{
	sim_trace("  stream: %spositioned, next %u.%u.%u of %u, expected %llx, %u own", s->positioned ? "" : "not ",
		  (unsigned)s->next.epoch, (unsigned)s->next.base, (unsigned)s->next.step, (unsigned)s->n_batches,
		  (unsigned long long)s->expected, s->n_own);
	for (uint32_t i = 0; s->slots && i < s->slots->n; i++) {
		const struct slot *slot = &s->slots->slot[i];
		sim_trace("    slot %u: state %d, %u.%u.%u, pending %llx, %u leases%s", i, slot->state,
			  (unsigned)slot->at.epoch, (unsigned)slot->at.base, (unsigned)slot->at.step,
			  (unsigned long long)slot->pending, slot->n_leases, slot->linked ? "" : ", not listed");
	}
	for (uint32_t i = 0; s->consumers && i < s->n_consumers; i++) {
		const struct consumer *c = s->consumers[i];
		if (c)
			sim_trace("    place %u: %spositioned at %u.%u.%u, %u leases%s", i,
				  consumer_is_placed(c) ? "" : "not ", (unsigned)c->cursor.epoch,
				  (unsigned)c->cursor.base, (unsigned)c->cursor.step, c->n_leases,
				  c->waiting ? ", waiting" : "");
	}
}

static void trace_world(void)
{
	for (const struct job *j = sim_engine.jobs; j; j = j->next) {
		sim_trace("  %s: state %d, %u sessions, %u tasks", j->spec.job, j->state, j->n_sessions, j->n_tasks);
		for (uint32_t i = 0; j->loader && i < j->loader->streams.n; i++)
			trace_stream(j->loader->streams.list[i]);
	}
}

void sim_fail(const char *fmt, ...)
{
	va_list ap;
	trace_world();
	fprintf(stderr, "simulation: seed %llu: ", (unsigned long long)sim_seed);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	abort(); /* its handler prints how to replay the history */
}

/* ---- descriptors ---- */

static void *things[SIM_MAX_FDS];
static unsigned n_fds, next_fd;

int sim_fd_open(void *thing)
{
	SIM_CHECK(next_fd < SIM_MAX_FDS, "too many descriptors in one history");
	things[next_fd] = thing;
	n_fds++;
	return SIM_FD + (int)next_fd++; /* a number is never used twice, so that a use after close is detected */
}

void *sim_fd_thing(int fd)
{
	SIM_CHECK(fd >= SIM_FD && fd < SIM_FD + SIM_MAX_FDS && things[fd - SIM_FD],
		  "descriptor %d is used, which is not open", fd - SIM_FD);
	return things[fd - SIM_FD];
}

unsigned sim_n_fds(void)
{
	return n_fds;
}

int __wrap_close(int fd);
int __wrap_close(int fd)
{
	if (fd < SIM_FD)
		return (int)syscall(SYS_close, fd);
	(void)sim_fd_thing(fd);
	things[fd - SIM_FD] = NULL;
	n_fds--;
	return 0;
}

/* ---- the root ---- */

static void on_finished(struct shutdown *shutdown)
{
	uv_close((uv_handle_t *)&shutdown->engine->stall, NULL);
	uv_close((uv_handle_t *)&shutdown->engine->sampler.timer, NULL);
	sim_timer_put_aside(NULL);
	finished = true;
}

static void on_activity(struct engine *e)
{
	(void)e;
	shutdown_note_activity(&ending);
}

static void on_ended(struct engine *e)
{
	(void)e;
	shutdown_go_on(&ending);
}

void sim_stop_daemon(void)
{
	shutdown_begin(&ending, 0, "it is told to");
}

void sim_kill_daemon(void)
{
	for (struct peer *p = sim_server.peers; p; p = p->next)
		((struct sim_socket *)sim_fd_thing(p->fd))->lost = true;
	sim_stop_daemon();
	sim_shutdown_timer();
}

void sim_shutdown_timer(void)
{
	if (sim_engine.pool) /* otherwise it waits only for the threads of its GPUs */
		sim_held_timer_fires();
}

bool sim_daemon_is_gone(void)
{
	return finished && !sim_server.n_peers;
}

/* ---- golden data ---- */

void sim_stamp(uint64_t index, uint64_t out[2])
{
	out[0] = index * 0x9e3779b97f4a7c15 + 1;
	out[1] = ~out[0];
}

static struct plan_spec plan_spec_of(const struct sim_job *j, uint64_t epoch, uint64_t base)
{
	return (struct plan_spec){ .n_samples = j->n_samples,
				   .seed = j->seed,
				   .epoch = epoch,
				   .base = base,
				   .world_size = j->share ? 1 : j->world_size,
				   .shuffle = j->shuffle,
				   .drop_last = j->drop_last };
}

struct plan *sim_plan(struct sim_job *j, uint64_t epoch, uint64_t base)
{
	for (unsigned i = 0; i < 8; i++) {
		if (j->plans[i].plan && j->plans[i].epoch == epoch && j->plans[i].base == base)
			return j->plans[i].plan;
	}
	struct plan_cache *e = &j->plans[j->next_plan++ % 8];
	struct plan_spec spec = plan_spec_of(j, epoch, base);
	plan_unref(e->plan);
	*e = (struct plan_cache){ .epoch = epoch, .base = base };
	SIM_CHECK(plan_create(&spec, &e->plan) == 0, "no plan");
	return e->plan;
}

uint64_t sim_n_batches(const struct sim_job *j, uint64_t base)
{
	struct plan_spec spec = plan_spec_of(j, 0, base);
	return plan_n_batches(plan_spec_n_per_rank(&spec), j->batch_size, j->drop_last);
}

/* ---- a history's beginning and end ---- */

static void roll_job(unsigned i)
{
	struct sim_job *j = &sim_jobs[i];
	unsigned kind = sim_below(6);
	*j = (struct sim_job){ .n_samples = 1 + sim_below(24),
			       .batch_size = 1 + sim_below(4),
			       .world_size = 1 + sim_below(3),
			       .n_slots = 2 + sim_below(3),
			       .seed = sim_below(4),
			       .uid = 1000 + sim_below(2),
			       .shuffle = sim_chance(50),
			       .drop_last = sim_chance(30) };
	j->own = kind == 0;
	j->share = kind >= 4;
	j->policy = (enum group_policy)sim_below(3);
	j->async = j->share && (j->world_size == 1 || j->policy != GROUP_WAIT);
	if (j->own)
		j->shuffle = false;
	if (sim_chance(5))
		j->n_slots = 0;
	if (sim_has(SIM_WORLDS) && sim_chance(60))
		j->world_size = 1 + sim_below(j->share ? LOADER_MAX_SHARE : LOADER_MAX_WORLD);
	j->async = j->share && (j->world_size == 1 || j->policy != GROUP_WAIT);
	snprintf(j->name, sizeof(j->name), "job%u", i);
	snprintf(j->dataset, sizeof(j->dataset), "random:length=%u,shape=4,dtype=float32", j->n_samples);
	if (sim_has(SIM_GPUS) && sim_chance(85))
		j->uid = geteuid(); /* CUDA IPC is used between processes of one user only */
	if (sim_has(SIM_SERVED) && sim_chance(sim_has(SIM_APART) ? 90 : 50)) {
		j->served = true;
		j->resumable = sim_chance(60);
		j->is_known = sim_has(SIM_LENGTHS) && sim_chance(60);
		j->counts = !(sim_has(SIM_UNCOUNTED) && sim_chance(50));
		if (sim_has(SIM_APART) && sim_chance(60)) {
			j->share = false;
			j->world_size = 2 + sim_below(2);
		}
		if (!j->share && j->world_size > LOADER_MAX_SERVED)
			j->world_size = LOADER_MAX_SERVED;
		j->own = j->shuffle = j->drop_last = j->async = false;
		j->policy = GROUP_WAIT;
		snprintf(j->dataset, sizeof(j->dataset), "serve:job%u", i);
	}
	sim_trace("%s: %s%s%s of %u samples, batches of %u, %u ranks, %u slots%s%s", j->name,
		  j->is_known ? "of known length, " : "", j->served && !j->counts ? "uncounted, " : "",
		  j->served  ? (j->share ? "served to all" : "served")
		  : j->own   ? "own batches"
		  : j->share ? group_policy_name(j->policy)
			     : "shard",
		  j->n_samples, j->batch_size, j->world_size, j->n_slots, j->shuffle ? ", shuffled" : "",
		  j->drop_last ? ", last dropped" : "");
}

static void begin_daemon(uint64_t budget_bytes, uint64_t n_loaders, uint64_t n_loaders_per_user)
{
	struct engine *e = &sim_engine;
	sim_pool_start();
	*e = (struct engine){ .config = &config,
			      .budget.cache = cache,
			      .budget.bytes = budget_bytes,
			      .pool = sim_pool(),
			      .status_cache = &status_cache,
			      .job_ops = &session_job_ops,
			      .reader = session_questions,
			      .on_activity = on_activity,
			      .on_ended = on_ended,
			      .version = "simulated",
			      .socket_path = "simulated" };
	sim_server = (struct server){ .ops = &session_peer_ops, .owner = e, .version = "simulated" };
	ending = (struct shutdown){ .engine = e, .server = &sim_server, .finished = on_finished };
	shutdown_init(&ending);
	sim_timer_hold(&ending.shutdown_timer);
	finished = false;
	uv_timer_init(&e->loop, &e->stall);
	e->stall.data = e;
	sampler_init(e);
	sim_timer_put_aside(&e->sampler.timer);
	e->budget.accounts.limit[ACCOUNT_LOADERS] = n_loaders;
	e->budget.accounts.limit_per_user[ACCOUNT_LOADERS] = n_loaders_per_user;
	e->budget.accounts.memory_limit = budget_bytes;
	e->budget.accounts.memory_limit_per_user = budget_bytes / 10 * 8;
	tuner_init(&e->tuner, e->pool, 4, false);
}

/* Ends the daemon. Only what trainers have mapped is left. */
static void end_daemon(void)
{
	SIM_CHECK(!sim_engine.jobs, "a job is left at the end");
	SIM_CHECK(!sim_engine.sessions, "a session is left at the end");
	SIM_CHECK(!sim_engine.producers, "a producer is left at the end");
	SIM_CHECK(!sim_server.n_peers, "a connection is left at the end");
	status_cache_finish(&status_cache);
	SIM_CHECK(accounts_balanced(&sim_engine.budget.accounts), "a user is charged at the end");
	SIM_CHECK(sim_n_slabs_in_daemon() == 0, "%u slabs are left at the end", sim_n_slabs_in_daemon());
	SIM_CHECK(sim_n_fds() == 0, "%u descriptors are left at the end", sim_n_fds());
	if (!sim_engine.stopping)
		sim_stop_daemon();
	SIM_CHECK(finished, "a daemon that stops does not come to its end");
	SIM_CHECK(sim_n_handles() == 0, "%u handles are left at the end", sim_n_handles());
	SIM_CHECK(sim_pool_is_empty(), "the pool is not empty at the end");
}

void sim_another_daemon(void)
{
	const struct accounts *a = &sim_engine.budget.accounts;
	end_daemon();
	begin_daemon(sim_engine.budget.bytes, a->limit[ACCOUNT_LOADERS], a->limit_per_user[ACCOUNT_LOADERS]);
}

static unsigned features_of(uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15;
	return (unsigned)((x ^ x >> 32) * 0xbf58476d1ce4e5b9 >> 40) & SIM_ALL_FEATURES;
}

void sim_begin(uint64_t seed, unsigned features)
{
	sim_seed = seed;
	sim_features = features == SIM_ANY_FEATURES ? features_of(seed) : features;
	dice = seed * 0x2545f4914f6cdd1d;
	if (!cache) {
		struct cache_config none = { 0 };
		log_set_level(LOG_LEVEL_ERROR);
		SIM_CHECK(config_defaults(&config) == 0 && cache_create(&none, &cache) == 0, "cannot begin");
		config.index_cache = NULL;
		config.idle_exit_ns = config.gpu_idle_exit_ns = CONFIG_NEVER;
	}
	config.stall_after_ns = sim_has(SIM_STALLS) ? 20000000 : CONFIG_NEVER;
	config.linger_ns = sim_chance(50) ? 0 : 30000000000u;
	next_fd = 0;
	sim_claims_hold = false;
	uint64_t budget_bytes = sim_chance(90) ? 1 << 30 : (8 + sim_below(24)) * 4096;
	uint64_t n_loaders = sim_chance(90) ? 64 : 1, n_loaders_per_user = sim_chance(90) ? 32 : 1;
	begin_daemon(budget_bytes, n_loaders, n_loaders_per_user);
	sim_no_memory_percent = sim_chance(10) ? 20 : 0;
	sim_bad_row_percent = sim_chance(10) ? 2 : 0;
	sim_rows_fail = sim_bad_row_percent > 0;
	sim_gpu_error_percent = sim_has(SIM_GPUS) && sim_chance(15) ? 3 : 0;
	sim_n_jobs = 1 + sim_below(SIM_MAX_JOBS);
	for (unsigned i = 0; i < sim_n_jobs; i++)
		roll_job(i);
}

void sim_end(void)
{
	for (unsigned i = 0; i < sim_n_jobs; i++) {
		for (unsigned k = 0; k < 8; k++)
			plan_unref(sim_jobs[i].plans[k].plan);
	}
	end_daemon();
	SIM_CHECK(sim_n_slabs() == 0, "%u slabs are left at the end", sim_n_slabs());
	sim_gpu_end();
	SIM_CHECK(sim_n_gpu_slabs() == 0, "%u slabs are left on GPUs at the end", sim_n_gpu_slabs());
	SIM_CHECK(sim_n_pages() == 0, "%u rings are left at the end", sim_n_pages());
}

/* ---- what must be true between any two events ---- */

enum { MAX_SLOTS_SETS = 64 };

static struct slots *sets[MAX_SLOTS_SETS];
static unsigned refs[MAX_SLOTS_SETS], n_sets;
static uint32_t leases[MAX_SLOTS_SETS][SIM_MAX_SLOTS]; /* of each slot, summed over all sessions */

static unsigned note_ref(struct slots *s)
{
	unsigned i = 0;
	if (!s)
		return 0;
	while (i < n_sets && sets[i] != s)
		i++;
	if (i == n_sets) {
		SIM_CHECK(n_sets < MAX_SLOTS_SETS, "too many slabs at once");
		sets[n_sets] = s;
		refs[n_sets++] = 0;
		memset(leases[i], 0, s->n_made * sizeof(leases[i][0]));
	}
	refs[i]++;
	return i;
}

static void check_stream(const struct stream *s)
{
	const struct slot *before = NULL;
	uint32_t n_held = 0, n_unheld = 0;
	note_ref(s->slots);
	if (s->slots && s->slots->growing) /* by a task */
		note_ref(s->slots);
	for (const struct slot *slot = s->first; slot; slot = slot->next) {
		SIM_CHECK(slot->linked && slot->stream == s && slot->slots == s->slots,
			  "slot %u is in a list it does not belong to", slot->number);
		SIM_CHECK(slot->state == SLOT_FILLING || slot->state == SLOT_READY, "slot %u is listed in state %d",
			  slot->number, slot->state);
		SIM_CHECK(!before || position_compare(&before->at, &slot->at) < 0,
			  "the list is out of order at slot %u", slot->number);
		before = slot;
		n_unheld += slot->n_leases == 0;
	}
	SIM_CHECK(n_unheld == s->n_unheld, "%u batches that nobody has, not %u", n_unheld, s->n_unheld);
	SIM_CHECK(s->last == before || !s->first, "the list's end is wrong");
	for (uint32_t i = 0; i < s->n_consumers; i++)
		SIM_CHECK(!s->consumers[i] || s->consumers[i]->stream == s, "place %u is somebody's who is elsewhere",
			  i);
	for (uint32_t i = 0; s->group && s->slots && i < s->slots->n_made; i++) {
		const struct slot *slot = &s->slots->slot[i];
		bool held = false;
		for (uint32_t k = 0; k < s->n_consumers; k++)
			held |= s->consumers[k] && s->consumers[k]->leases[i];
		n_held += held;
		SIM_CHECK(held == ((slot->holders & s->members) != 0), "slot %u is wrong about its holders", i);
	}
	SIM_CHECK(n_held == s->n_held, "a cohort's members have %u slots, not %u", n_held, s->n_held);
	for (uint32_t i = 0; s->group && i < s->n_consumers; i++)
		SIM_CHECK(!s->consumers[i] || s->group->member[i] == s->consumers[i], "place %u is not of its group",
			  i);
}

static struct sim_trainer *trainer_of(const struct session *s)
{
	const struct sim_socket *socket = s->peer ? sim_fd_thing(s->peer->fd) : NULL;
	return socket && !socket->hung_up && !socket->dead ? sim_trainer_of(socket) : NULL;
}

/* The slots that the daemon considers lent are those that the trainer has or that are in transit to it. */
static void check_session(const struct session *s)
{
	const struct consumer *c = &s->consumer;
	struct sim_trainer *t = s->state == SESSION_ATTACHED ? trainer_of(s) : NULL;
	t = t && t->lies ? NULL : t;
	unsigned count[SIM_MAX_SLOTS];
	unsigned sum = 0, set = note_ref(c->slots);
	if (t)
		sim_trainer_leases(t, count);
	for (uint32_t i = 0; c->slots && i < c->slots->n_made; i++) {
		sum += c->leases[i];
		leases[set][i] += c->leases[i];
		SIM_CHECK(!t || c->leases[i] == count[i],
			  "session %u: slot %u is lent %u times, the trainer has it %u times", (unsigned)s->number, i,
			  c->leases[i], count[i]);
	}
	SIM_CHECK(!c->slots || !c->stream || c->n_leases <= (c->quota ? c->quota : 2 * c->slots->n_made),
		  "session %u is lent %u slots", (unsigned)s->number, c->n_leases);
	SIM_CHECK(sum == c->n_leases, "session %u: %u leases, %u counted", (unsigned)s->number, sum, c->n_leases);
	SIM_CHECK((s->state == SESSION_ORPHANED) == (s->peer == NULL),
		  "session %u is an orphan with a connection, or neither", (unsigned)s->number);
	SIM_CHECK(s->state != SESSION_ORPHANED || c->n_leases || c->device_slab ||
			  uv_is_closing((const uv_handle_t *)&s->exit_poll),
		  "session %u is an orphan that holds nothing", (unsigned)s->number);
}

static void check_slots(const struct slots *s, unsigned n_refs, const uint32_t *lent)
{
	struct sim_slab *slab = sim_fd_thing(s->slab.fd);
	for (uint32_t i = 0; i < s->n_made; i++) {
		const struct slot *slot = &s->slot[i];
		SIM_CHECK(lent[i] == slot->n_leases, "slot %u has %u leases, its holders %u", i, slot->n_leases,
			  lent[i]);
		SIM_CHECK(slot->state == SLOT_READY || !lent[i], "slot %u is on lease in state %d", i, slot->state);
		SIM_CHECK(slot->state != SLOT_FREE || (!slot->pending && !slot->linked),
			  "slot %u is free, and yet pending or listed", i);
		SIM_CHECK(slot->state != SLOT_READY || lent[i] || slot->pending || slot->n_copying,
			  "slot %u is nobody's and not free", i);
		SIM_CHECK(slot->generation >= slab->generation[i], "slot %u went back a generation", i);
		slab->generation[i] = slot->generation;
		SIM_CHECK(!slot->n_copying || slot->state == SLOT_READY, "slot %u is copied in state %d", i,
			  slot->state);
		n_refs += slot->state == SLOT_FILLING || slot->state == SLOT_DROPPED;
		n_refs += slot->n_copying;
	}
	for (unsigned i = 0; i < s->n_device_slabs; i++)
		n_refs += !s->device_slabs[i]->slab; /* the slab is being opened */
	SIM_CHECK(n_refs == s->n_refs, "%u references to a slab, %u counted", s->n_refs, n_refs);
}

/* Compares the accounts with what exists. */
static void check_accounts(void)
{
	const struct accounts *a = &sim_engine.budget.accounts;
	uint64_t n_loaders = 0, n_sessions = 0, n_fds_charged = 0;
	for (const struct peer *p = sim_server.peers; p; p = p->next) {
		SIM_CHECK(p->ending || p->connection.account, "a connection that is not charged");
		n_sessions += p->connection.account != NULL;
		n_fds_charged += p->connection.account ? 2 : 0;
	}
	for (const struct job *j = sim_engine.jobs; j; j = j->next)
		n_loaders += j->state != JOB_CLOSING;
	for (const struct session *s = sim_engine.sessions; s; s = s->next) {
		n_sessions += s->state == SESSION_ORPHANED;
		n_fds_charged += s->state == SESSION_ORPHANED ? 2 : 0;
	}
	SIM_CHECK(a->used[ACCOUNT_LOADERS] == n_loaders, "%u loaders charged of %u", (unsigned)a->used[ACCOUNT_LOADERS],
		  (unsigned)n_loaders);
	SIM_CHECK(a->used[ACCOUNT_SESSIONS] == n_sessions, "%u sessions charged of %u",
		  (unsigned)a->used[ACCOUNT_SESSIONS], (unsigned)n_sessions);
	SIM_CHECK(a->used[ACCOUNT_FDS] >= n_fds_charged + sim_n_slabs_in_daemon(), "%u descriptors charged of %u",
		  (unsigned)a->used[ACCOUNT_FDS], (unsigned)n_fds_charged + sim_n_slabs_in_daemon());
}

void sim_check(void)
{
	uint64_t bytes = 0, pages = 0, streams = 0, charged;
	uint64_t large = sim_large_bytes();
	unsigned n_pending = 0;
	n_sets = 0;
	for (const struct job *j = sim_engine.jobs; j; j = j->next) {
		unsigned n = 0;
		for (const struct session *s = j->sessions; s; s = s->next_in_job) {
			SIM_CHECK(s->job == j, "session %u is in the list of a job that it is not of",
				  (unsigned)s->number);
			n += s->state != SESSION_ENDING;
		}
		SIM_CHECK(n == j->n_sessions, "job %s counts %u sessions of %u", j->spec.job, j->n_sessions, n);
		n_pending += j->n_tasks - (j->opening != NULL); /* it is charged for no slots */
		for (uint32_t i = 0; j->loader && i < j->loader->streams.n && j->loader->streams.list[i]->consumers;
		     i++) {
			check_stream(j->loader->streams.list[i]);
			streams += j->loader->streams.list[i]->bytes.amount;
		}
		if (j->loader && j->loader->is_async)
			note_ref(j->loader->group.slots);
		if (j->loader && j->loader->group.slots && j->slots_pending) /* memory for one more set of slots is
		                                                              * being allocated */
			note_ref(j->loader->group.slots);
	}
	for (const struct spare *x = sim_engine.spares; x; x = x->next) {
		const struct sim_slab *slab = sim_fd_thing(x->slots->slab.fd);
		SIM_CHECK(x->slots->bytes.account->uid == x->uid, "a spare is charged to another user");
		SIM_CHECK(!slab->reader || slab->reader == x->pid,
			  "another process has had what is spare for process %d", (int)x->pid);
		note_ref(x->slots);
	}
	for (const struct producer *p = sim_engine.producers; p; p = p->next) {
		SIM_CHECK(p->session->producer == p && (!p->job || p->job->producer == p),
			  "producer %s is not its session's or its job's", p->name);
		for (const struct offer *o = p->offers; o; o = o->next)
			note_ref(o->slots);
		SIM_CHECK(!p->untaken.batch || p->is_waiting, "producer %s does not wait for its batch", p->name);
		large -= p->untaken.batch ? p->untaken.batch->held_bytes : 0;
	}
	for (const struct session *s = sim_engine.sessions; s; s = s->next) {
		check_session(s);
		pages += s->ring_bytes.amount;
	}
	for (unsigned i = 0; i < n_sets; i++) {
		check_slots(sets[i], refs[i], leases[i]);
		bytes += (uint64_t)sets[i]->n_made * sets[i]->layout.slot_bytes;
	}
	check_accounts();
	charged = accounts_used(&sim_engine.budget.accounts, ACCOUNT_SLOT_BYTES);
	/* A slab is not in `sets` when its only references are rows in work; tasks are charged in advance. */
	SIM_CHECK(charged >= sim_daemon_slab_bytes() + pages + streams + large && bytes <= sim_daemon_slab_bytes(),
		  "%llu bytes charged, %llu made, %llu reachable", (unsigned long long)charged,
		  (unsigned long long)sim_daemon_slab_bytes(), (unsigned long long)bytes);
	SIM_CHECK(n_pending || charged == sim_daemon_slab_bytes() + pages + streams + large,
		  "%llu bytes charged, %llu made", (unsigned long long)charged,
		  (unsigned long long)sim_daemon_slab_bytes());
}
