/* Random histories of the daemon's state machines in a simulated world (sim/sim.h): trainers connect, seek, join, hold,
 * release, stop, die, are fenced and misbehave. So do producers. Workers finish rows in any order, tasks and copies to
 * GPUs take time, memory runs out, and the daemon is killed or stopped. After every event all invariants are checked.
 * At the end of a history every trainer that wants batches gets them, then all leave and nothing may be left.
 *
 *     test_simulation
 *         as a test: SIM_ROUNDS histories (default below), and the kept ones
 *     test_simulation --rounds N [--first SEED] [--tell-every N]
 *         that many from that seed on, in this process; prints how many it has done
 *     SIM_TRACE=1 test_simulation --first SEED --features N --rounds 1
 *         replays one history and prints what happens
 *
 * The simulation can fail. It found these bugs when it was written:
 *
 *   - sessions freed while their job continues to open
 *   - a slab's task that outlives its failed job
 *   - a share job that waits for ever for slots that an orphan has given back
 *   - a gap in the batches of a trainer that joins late
 *   - slots written to while the daemon stops and their holders read
 *
 * Mutants that it caught within 20000 histories:
 *
 *   - slots freed at hang-up instead of exit
 *   - a lease not counted on its slot
 *   - publishing past a batch that is not ready
 *   - a generation that stays
 *   - a wake-up only for a trainer that holds one batch or none
 *   - a detached rank that is still pending
 *   - a charge not refunded
 *   - a dropped slot used again before its rows are done
 *   - a seek that keeps what was made
 *   - a stale release taken
 *   - a leaked pidfd
 *   - a slab without its last unref
 *   - a batch that is published before its copy to a GPU is there
 *   - memory on a GPU freed while a trainer has it open
 *   - a producer's slab given out unsealed
 *   - a cancelled fill's slot used at once
 *   - an incomplete round given out
 *   - a trainer that comes back and fences a younger one
 *   - an answer sent to a session that has gone
 *
 * Caught less often (within 40000): a loader that continues to make batches while the daemon stops. */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "batch/producer-source.h"
#include "sim/sim.h"
#include "server/spare.h"
#include "support/suite.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ROUNDS = 4000, WHOLE_ROUNDS = 4000 };
#else
enum { ROUNDS = 20000, WHOLE_ROUNDS = 1000000 };
#endif
enum { MAX_PROCESSES = 8 };

/* Every socket of the history: a daemon's orphan refers to one that its trainer has forgotten. */
static struct sim_socket *sockets[1024];
static unsigned n_sockets;

void sim_note_socket(struct sim_socket *s)
{
	SIM_CHECK(n_sockets < sizeof(sockets) / sizeof(sockets[0]), "too many connections in one history");
	sockets[n_sockets++] = s;
}

static bool somebody_joins(void)
{
	struct sim_job *j = &sim_jobs[sim_below(sim_n_jobs)];
	for (unsigned i = 0; i < SIM_MAX_TRAINERS; i++) {
		struct sim_trainer *t = &sim_trainers[i];
		if (t->phase != SIM_UNUSED && t->phase != SIM_EXITED)
			continue;
		if (sim_chance(3))
			j->incarnation++;
		int32_t rank = (int32_t)sim_below(
			sim_has(SIM_WORLDS) && sim_chance(50) && j->world_size > 3 ? 3 : j->world_size);
		if (sim_chance(30) && (j->share || j->world_size == 1))
			rank = -1;
		sim_trainer_join(t, j, rank);
		return true;
	}
	return false;
}

/* One of the sockets that the daemon has open. Most sockets of a history are closed after a while. */
static struct sim_socket *open_socket(void)
{
	struct peer *p = sim_server.peers;
	for (unsigned n = sim_server.n_peers ? sim_below(sim_server.n_peers) : 0; n > 0; n--)
		p = p->next;
	return p ? sim_fd_thing(p->fd) : NULL;
}

static bool orphan_ends(void)
{
	for (struct session *s = sim_engine.sessions; s; s = s->next) {
		if (s->state == SESSION_ORPHANED && ((struct sim_socket *)sim_fd_thing(s->pidfd))->dead &&
		    sim_poll_fires(s->pidfd))
			return true;
	}
	return false;
}

static bool owner_of_spare_ends(void)
{
	for (struct spare *x = sim_engine.spares; x; x = x->next) {
		if (((struct sim_socket *)sim_fd_thing(x->pidfd))->dead && sim_poll_fires(x->pidfd))
			return true;
	}
	return false;
}

static bool is_received(void)
{
	struct sim_socket *s = open_socket();
	return s && sim_daemon_receives(s);
}

static bool hears(void)
{
	struct sim_socket *s = open_socket();
	return (s && (sim_chance(50) ? sim_daemon_sees_hangup(s) || sim_daemon_sees_exit(s)
				     : sim_daemon_sees_exit(s) || sim_daemon_sees_hangup(s))) ||
	       orphan_ends() || owner_of_spare_ends();
}

static bool somebody_goes_elsewhere(void)
{
	struct sim_trainer *t = &sim_trainers[sim_below(SIM_MAX_TRAINERS)];
	if (t->phase != SIM_STREAMING || t->stopped)
		return false;
	if (sim_chance(50))
		sim_trainer_leaves(t);
	else
		sim_trainer_seeks(t);
	return true;
}

/* Closes its loader, or opens another one when it has closed the last. */
static bool somebody_changes_loader(void)
{
	struct sim_trainer *t = &sim_trainers[sim_below(SIM_MAX_TRAINERS)], *left = NULL;
	for (unsigned i = 0; i < SIM_MAX_TRAINERS; i++) {
		if (sim_trainers[i].phase == SIM_EXITED && sim_trainers[i].left)
			left = &sim_trainers[i];
	}
	if (left)
		sim_trainer_join(left, left->job, left->wanted_rank);
	else if (t->phase == SIM_STREAMING && !t->stopped)
		sim_trainer_leaves(t);
	else
		return false;
	return true;
}

static void restart_daemon(void);

static bool one_event(void)
{
	if (sim_has(SIM_RESTARTS) && sim_below(400) == 0) {
		restart_daemon();
		return true;
	}
	if (sim_has(SIM_STALLS) && sim_chance(4))
		return sim_timer_fires(true);
	if (sim_has(SIM_GPUS) && sim_chance(12))
		return sim_gpu_works();
	if (sim_has(SIM_APART) && sim_chance(5))
		return sim_chance(40) ? somebody_goes_elsewhere() : somebody_joins();
	if (sim_has(SIM_SPARES) && sim_chance(12))
		return somebody_changes_loader();
	if (sim_has(SIM_SERVED) && sim_chance(25))
		return sim_producer_acts(&sim_producers[sim_below(SIM_MAX_PRODUCERS)]);
	unsigned what = sim_below(1000);
	if (what < 25)
		return somebody_joins();
	if (what < 400)
		return sim_trainer_acts(&sim_trainers[sim_below(SIM_MAX_TRAINERS)]);
	if (what < 650)
		return is_received();
	if (what < 800)
		return sim_worker_works();
	if (what < 860)
		return sim_task_runs();
	if (what < 930)
		return sim_pool_wakes_loop();
	if (what < 960)
		return hears();
	if (what < 970)
		return sim_timer_fires(true);
	return sim_handle_closes() || sim_peer_ends();
}

/* ---- quiet ends ---- */

static bool anybody_gets_on(void)
{
	bool any = false;
	for (unsigned i = 0; i < SIM_MAX_TRAINERS; i++)
		any |= sim_trainer_gets_on(&sim_trainers[i]);
	for (unsigned i = 0; i < SIM_MAX_PRODUCERS; i++)
		any |= sim_producer_gets_on(&sim_producers[i]);
	return any;
}

static bool hears_everybody(void)
{
	bool any = orphan_ends() | owner_of_spare_ends();
	for (unsigned i = 0; i < n_sockets; i++) {
		any |= sim_daemon_receives(sockets[i]);
		any |= sim_daemon_sees_exit(sockets[i]) || sim_daemon_sees_hangup(sockets[i]);
	}
	return any;
}

/* Runs until nothing more happens by itself. */
static void settle(bool time_passes)
{
	bool any = true;
	for (unsigned n = 0; any; n++) {
		SIM_CHECK(n < 100000, "it does not come to rest");
		any = hears_everybody();
		any |= anybody_gets_on();
		any |= sim_pool_wakes_loop();
		sim_check();
		any |= sim_worker_works() || sim_task_runs();
		any |= sim_gpu_works();
		any |= sim_handle_closes() || sim_peer_ends();
		sim_check();
		if (sim_has(SIM_SERVED))
			any |= sim_timer_fires(false); /* due timers fire before everything else has come to rest */
		any = any || sim_timer_fires(time_passes);
	}
}

static void wind_down(void)
{
	for (unsigned n = 0; sim_pool_wakes_loop() | sim_worker_works() | sim_task_runs() | sim_gpu_works() |
			     sim_handle_closes() | sim_peer_ends() | sim_timer_fires(false);
	     n++) {
		sim_check();
		SIM_CHECK(n < 10000, "a daemon that stops does not come to rest");
	}
}

/* Between the old daemon's end and the new one's start, trainers may do anything, but it makes no difference: no daemon
 * receives it. */
static void restart_daemon(void)
{
	bool killed = sim_chance(50);
	sim_trace("the daemon %s", killed ? "is killed" : "stops, and another takes its place");
	if (killed)
		sim_kill_daemon();
	else
		sim_stop_daemon();
	wind_down();
	for (unsigned i = 0; !killed && i < SIM_MAX_TRAINERS; i++) {
		struct sim_trainer *t = &sim_trainers[i];
		sim_trainer_hears_the_end(t);
		if (t->socket && t->phase != SIM_UNUSED)
			while (sim_daemon_receives(t->socket))
				;
	}
	wind_down();
	sim_shutdown_timer(); /* a stopped trainer has sent nothing */
	wind_down();
	SIM_CHECK(sim_daemon_is_gone(), "a daemon that stops does not end");
	sim_another_daemon();
	sim_check();
}

static void want_more(void)
{
	for (unsigned i = 0; i < SIM_MAX_TRAINERS; i++) {
		struct sim_trainer *t = &sim_trainers[i];
		t->target = t->n_got + 2 + sim_below(6);
		t->keeps = t->phase >= SIM_ATTACHED && !t->job->share && !t->job->served ? sim_below(t->n_slots) : 0;
	}
}

/* In an open group with another policy than wait no trainer waits for a stuck trainer, except trainers that asked to
 * wait for the others. */
static bool nobody_is_waited_for(const struct sim_trainer *t)
{
	return t->job->async && t->job->world_size == 1 && t->job->policy != GROUP_WAIT && !t->waits_for_epoch;
}

/* A round goes out when its last rank's batch is there, or a later one: where that rank has left, or is ahead of another,
 * the ranks may wait for each other, as in every job whose ranks do not keep step. */
static bool waits_for_last_rank(const struct sim_trainer *t)
{
	const struct session *s = t->socket->peer ? t->socket->peer->session : NULL;
	const struct loader *l = t->job->served && !t->job->share && s && s->job ? s->job->loader : NULL;
	const struct stream *last = l ? streams_find(&l->streams, loader_n_ranks(l) - 1) : NULL;
	const struct consumer *c = last ? last->consumers[0] : NULL;
	bool waits = l && (!c || !consumer_is_placed(c));
	for (uint32_t i = 0; l && !waits && i < l->streams.n; i++) {
		const struct consumer *other = l->streams.list[i]->consumers[0];
		waits = other && consumer_is_placed(other) && position_compare(&other->cursor, &c->cursor) < 0;
	}
	return waits;
}

static void check_served(bool share_too)
{
	for (unsigned i = 0; i < SIM_MAX_TRAINERS; i++) {
		const struct sim_trainer *t = &sim_trainers[i];
		bool with_others = t->phase != SIM_UNUSED && (t->job->share || t->job->served);
		if (t->phase == SIM_OPENING && t->job->served && !share_too)
			continue; /* its producer may take long to come */
		SIM_CHECK(t->phase != SIM_OPENING || t->stopped, "trainer %u is never told whether it may", i);
		if (t->phase != SIM_STREAMING || t->stopped || t->misbehaved ||
		    (with_others && !share_too && !nobody_is_waited_for(t)))
			continue;
		SIM_CHECK(t->n_got >= t->target || waits_for_last_rank(t), "trainer %u waits for ever at %u.%u", i,
			  (unsigned)t->expect.epoch, (unsigned)t->expect.step);
	}
}

/* Trainers that closed their loader and lived on exit. */
static void those_who_closed_exit(void)
{
	for (unsigned i = 0; i < n_sockets; i++) {
		bool in_use = false;
		for (unsigned k = 0; k < SIM_MAX_TRAINERS; k++)
			in_use |= sim_trainers[k].pid == sockets[i]->pid && sim_trainers[k].phase != SIM_EXITED;
		for (unsigned k = 0; k < SIM_MAX_PRODUCERS; k++)
			in_use |= sim_producers[k].job && sim_producers[k].socket == sockets[i];
		sockets[i]->dead |= !in_use;
	}
}

static struct sim_producer *unused_producer(void)
{
	for (unsigned i = 0; i < SIM_MAX_PRODUCERS; i++) {
		if (!sim_producers[i].job)
			return &sim_producers[i];
	}
	sim_producer_exits(&sim_producers[0]); /* of a job that has another producer, because there are more places than
	                                  * jobs */
	return &sim_producers[0];
}

/* Stopped trainers continue, trainers that hung up end, expected trainers come: then no trainer holds up another in
 * share mode either. */
static void put_right(void)
{
	for (unsigned i = 0; i < SIM_MAX_TRAINERS; i++) {
		struct sim_trainer *t = &sim_trainers[i];
		t->stopped = false;
		bool connected = t->phase >= SIM_OPENING && t->phase <= SIM_STREAMING;
		if (t->phase == SIM_CLOSED || (connected && (t->misbehaved || !t->socket->peer)))
			sim_trainer_exits(t, false);
	}
	those_who_closed_exit();
	for (unsigned i = 0; i < SIM_MAX_PRODUCERS; i++) {
		struct sim_producer *k = &sim_producers[i];
		k->stopped = false;
		if (k->job && (k->misbehaved || !k->socket->peer))
			sim_producer_exits(k);
	}
	for (unsigned i = 0; i < sim_n_jobs; i++) {
		if (sim_jobs[i].served && !sim_producer_is_there(&sim_jobs[i]))
			sim_producer_starts(unused_producer(), &sim_jobs[i]);
	}
}

static bool group_is_complete(void)
{
	for (const struct job *j = sim_engine.jobs; j; j = j->next) {
		if (j->state == JOB_READY && j->loader->spec.share && j->loader->streams.list[0]->expected)
			return false;
		if (j->source && j->loader->streams.n < loader_n_ranks(j->loader))
			return false;
		for (uint32_t i = 0; j->source && i < j->loader->streams.n; i++) {
			if (!j->loader->streams.list[i]->fed && !j->loader->streams.list[i]->positioned)
				return false;
		}
	}
	for (unsigned i = 0; i < SIM_MAX_TRAINERS; i++) {
		const struct sim_trainer *t = &sim_trainers[i];
		if (t->phase == SIM_ATTACHED && (t->job->share || t->job->served))
			return false;
	}
	return true;
}

static void everybody_leaves(void)
{
	for (unsigned i = 0; i < SIM_MAX_TRAINERS; i++) {
		struct sim_trainer *t = &sim_trainers[i];
		if (t->phase == SIM_UNUSED || t->phase == SIM_EXITED)
			continue;
		if (t->phase != SIM_CLOSED && sim_chance(50))
			sim_trainer_leaves(t);
		else
			sim_trainer_exits(t, sim_chance(30));
	}
	for (unsigned i = 0; i < SIM_MAX_PRODUCERS; i++)
		sim_producer_exits(&sim_producers[i]);
	those_who_closed_exit();
}

static void run_history(uint64_t seed, unsigned features)
{
	for (unsigned i = 0; i < SIM_MAX_TRAINERS; i++)
		memset(&sim_trainers[i], 0, offsetof(struct sim_trainer, held));
	sim_begin(seed, features);
	for (unsigned n = 20 + sim_below(350); n > 0; n--) {
		if (!one_event())
			continue;
		sim_check();
		if (sim_chance(10))
			sim_trainer_looks(&sim_trainers[sim_below(SIM_MAX_TRAINERS)]);
	}
	sim_bad_row_percent = 0;
	if (sim_chance(15)) {
		sim_trace("the daemon stops");
		sim_stop_daemon();
		sim_check();
	} else {
		sim_trace("those who wait for nobody get on, whoever else is stuck");
		want_more();
		settle(false);
		check_served(false);
		sim_trace("everybody gets on");
		put_right();
		want_more();
		settle(false);
		check_served(group_is_complete());
	}
	for (unsigned i = 0; i < SIM_MAX_TRAINERS; i++)
		sim_trainer_looks(&sim_trainers[i]);
	sim_trace("everybody leaves");
	everybody_leaves();
	settle(true);
	for (unsigned i = 0; i < n_sockets; i++)
		sim_socket_free(sockets[i]);
	n_sockets = 0;
	sim_end();
}

/* ---- as a program ---- */

static void on_abort(int number)
{
	char text[160];
	int n = snprintf(
		text, sizeof(text),
		"simulation: to replay it: SIM_TRACE=1 build/tests/test_simulation --rounds 1 --first %llu --features %u\n",
		(unsigned long long)sim_seed, sim_features);
	(void)!write(STDERR_FILENO, text, (size_t)n);
	signal(number, SIG_DFL);
	raise(number);
}

static void prepare(void)
{
	/* Slabs are mostly address space: giving it back and taking it again each time costs more than everything
	 * else. */
	mallopt(M_MMAP_THRESHOLD, 1 << 25);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	signal(SIGABRT, on_abort);
	signal(SIGSEGV, on_abort);
}

static void run(uint64_t first, uint64_t rounds, uint64_t stride, unsigned features, uint64_t tell_every)
{
	prepare();
	for (uint64_t i = 0; i < rounds; i += stride) {
		run_history(first + i, features);
		if (tell_every && (i + 1) % tell_every == 0) {
			printf("%llu\n", (unsigned long long)(i + 1));
			fflush(stdout);
		}
	}
}

/* As many processes as there are processors, each with every n-th seed. Returns whether all succeeded. */
static bool run_in_parallel(uint64_t first, uint64_t rounds)
{
	long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned n = n_cpus < 1 ? 1 : n_cpus > MAX_PROCESSES ? MAX_PROCESSES : (unsigned)n_cpus;
	pid_t pid[MAX_PROCESSES];
	bool ok = true;
	for (unsigned i = 0; i < n; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			run(first + i, rounds > i ? rounds - i : 0, n, SIM_ANY_FEATURES, 0);
			_exit(0);
		}
		ok &= pid[i] > 0;
	}
	for (unsigned i = 0; i < n; i++) {
		int status = 0;
		ok &= pid[i] < 0 || (waitpid(pid[i], &status, 0) == pid[i] && status == 0);
	}
	return ok;
}

/* Histories that once failed. */
static const struct {
	uint64_t seed;
	unsigned features;
} kept[] = {
	{ 10222780, 0 }, /* skip: a trainer left alone in its cohort after an epoch's last batch waited for ever */
	{ 20573858, SIM_BASES }, /* detach: a trainer that held all it may cost slow ones their batch, was left alone,
	                          * met them at the same place again, for ever */
	{ 20017, SIM_BASES | SIM_RESTARTS }, /* lockstep: a trainer that came back to a new daemon after one that was
	                                      * ahead of it was refused */
	{ 186, SIM_SERVED },  /* a rank that was taken over while its job's producer came: the session that lost it was
	                       * used after its end */
	{ 4143, SIM_SERVED }, /* a producer that cannot go back was not asked to begin an epoch for the second rank when
	                       * the first had left */
	{ 70848878, SIM_BASES | SIM_SERVED }, /* served: an epoch that was repeated ended earlier, and the mark of its
	                                       * old end became that of the next epoch */
	{ 2053, SIM_SERVED | SIM_LENGTHS },   /* served: ranks got batches of an incomplete round, because another rank
	                                       * was elsewhere */
	{ 205274, SIM_SERVED | SIM_LENGTHS }, /* the same, after its mark was sent */
	{ 309090, SIM_SERVED | SIM_LENGTHS | SIM_RESTARTS },  /* the same */
	{ 90134286, SIM_SERVED | SIM_STALLS | SIM_ASKS },     /* served to all: after going back for a trainer that
	                                                       * left, the stream ran past the end of another's epoch */
	{ 110693047, SIM_SERVED | SIM_STALLS | SIM_LENGTHS }, /* served: the death of the rank that was next, which held
	                                                       * every slot, went unnoticed */
	/* served: the same as 2053, where the epoch's length was unknown */
	{ 1002586, SIM_BASES | SIM_RESTARTS | SIM_SERVED | SIM_LENGTHS },
	{ 12030, 255 }, /* served: a mark was sent before it was known whether the round before it was complete */
	/* lockstep: a trainer whose ring proved to be broken while its successor opened kept the place */
	{ 182137, SIM_BASES | SIM_GPUS | SIM_APART | SIM_LIES | SIM_CLOSES },
	/* served: a rank began again while an epoch of unknown length ended, and no rank got the last round, though it was
	 * complete */
	{ 462802, SIM_BASES | SIM_SERVED | SIM_GPUS | SIM_ASKS | SIM_UNCOUNTED | SIM_APART | SIM_GREEDY | SIM_LIES |
			  SIM_LARGE },
	{ 22974,
	  SIM_CLOSES | SIM_ASKS | SIM_BASES }, /* shard: the first slot's batch is kept beyond the error for slots
	                                               * that could not be made, which is the simulated trainer's fault */
	{ 2655, SIM_BASES }, /* lockstep: a trainer that resumed from another sample than the others got the next epoch
	                      * instead of an error */
};

START_TEST(test_kept_histories_go_well)
{
	prepare();
	run_history(kept[_i].seed, kept[_i].features);
}
END_TEST

START_TEST(test_random_histories_keep_every_promise)
{
	/* Always the same ones, so that a failure is due to the change; `make soak` runs others. */
	const char *rounds = getenv("SIM_ROUNDS");
	ck_assert_msg(run_in_parallel(1, rounds             ? strtoull(rounds, NULL, 10)
					 : suite_is_whole() ? WHOLE_ROUNDS
							    : ROUNDS),
		      "see above which history");
}
END_TEST

int main(int argc, char **argv)
{
	uint64_t first = 1, rounds = 0, tell_every = 0;
	unsigned features = SIM_ANY_FEATURES;
	for (int i = 1; i + 1 < argc; i += 2) {
		uint64_t value = strtoull(argv[i + 1], NULL, 10);
		if (!strcmp(argv[i], "--first"))
			first = value;
		else if (!strcmp(argv[i], "--rounds"))
			rounds = value;
		else if (!strcmp(argv[i], "--features"))
			features = (unsigned)value;
		else if (!strcmp(argv[i], "--tell-every"))
			tell_every = value;
	}
	if (rounds) {
		run(first, rounds, 1, features, tell_every);
		printf("%llu histories, every promise kept\n", (unsigned long long)rounds);
		return 0;
	}
	Suite *s = suite_create("simulation");
	TCase *t = tcase_create("simulation");
	tcase_add_loop_test(t, test_kept_histories_go_well, 0, sizeof(kept) / sizeof(kept[0]));
	tcase_add_test(t, test_random_histories_keep_every_promise);
	suite_add_tcase(s, t);
	return suite_run(s);
}
