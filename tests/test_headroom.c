/* Measurements with replays, against the whole daemon: what is granted, and clients that lie. */
#include "packets.h"
#include "suite.h"

static struct client trainer(const char *job, bool allows)
{
	Batchd__Wire__Open o = usual_open();
	o.job = (char *)job;
	o.headroom = allows;
	struct client c = join_with(o);
	seek_to(&c, 0, 0);
	return c;
}

/* A client that asks for a measurement. */
static int ask(const char *job, uint32_t n_before, uint32_t n_steps)
{
	Batchd__Wire__Headroom h = BATCHD__WIRE__HEADROOM__INIT;
	int fd = dial();
	greet(fd);
	h.job = (char *)job;
	h.n_before = n_before;
	h.n_steps = n_steps;
	SEND(fd, HEADROOM, headroom, &h);
	return fd;
}

static void tell(const struct client *c, uint64_t replay, uint32_t n_steps, bool done)
{
	Batchd__Wire__Stepped s = BATCHD__WIRE__STEPPED__INIT;
	s.replay = replay;
	s.n_before = 1;
	s.before_ns = 1;
	s.n_steps = n_steps;
	s.ns = UINT64_MAX;
	s.done = done;
	SEND(c->fd, STEPPED, stepped, &s);
}

/* Gives back the batches that come before it. */
static Batchd__Wire__Replay next_replay(struct client *c)
{
	const Batchd__Wire__ServerMessage *m = receive(c->fd, NULL);
	while (m && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH) {
		release(c, m->batch->slot, m->batch->generation);
		m = receive(c->fd, NULL);
	}
	ck_assert_ptr_nonnull(m);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_REPLAY);
	return *m->replay;
}

/* Takes batches until one is marked. */
static Batchd__Wire__Batch marked(struct client *c)
{
	for (int i = 0; i < 200; i++) {
		Batchd__Wire__Batch b = next_batch(c);
		if (b.replay)
			return b;
		release(c, b.slot, b.generation);
	}
	ck_abort_msg("no batch is marked");
}

/* The daemon has seen all that this trainer sent: it answers reports in turn, and this one is of no measurement. One
 * that a busy daemon hears for a packet at a time may otherwise be behind clients that came later. */
static void settle_trainer(struct client *c)
{
	const uint64_t none = UINT64_MAX;
	Batchd__Wire__Replay r;
	tell(c, none, 0, false);
	do
		r = next_replay(c);
	while (r.replay != none);
}

/* The daemon has seen what clients that ask sent before this. */
static void settle(void)
{
	struct client c = trainer("another", false);
	next_batch(&c);
	hang_up(&c);
}

START_TEST(test_replays_are_granted_in_parts_and_end_with_the_client_that_asked)
{
	start_daemon();
	struct client c = trainer("job", true);
	Batchd__Wire__Batch b = next_batch(&c);
	release(&c, b.slot, b.generation);
	int fd = ask("job", 3, 80);
	settle();
	b = marked(&c);
	ck_assert_uint_eq(b.replay_before, 3);
	ck_assert_uint_eq(b.replay_steps, 80);
	tell(&c, b.replay, 0, false);
	Batchd__Wire__Replay first = next_replay(&c);
	ck_assert(first.upto > 0 && first.upto < 80 && !first.end);
	tell(&c, b.replay, first.upto / 2, false);
	Batchd__Wire__Replay second = next_replay(&c);
	ck_assert(second.upto > first.upto && second.upto < 80 && !second.end);
	close(fd);
	Batchd__Wire__Replay last = next_replay(&c);
	ck_assert(last.end && last.upto == second.upto && last.replay == b.replay);
	/* until it has gone on, another measurement would not find it where the others are */
	fd = ask("job", 3, 80);
	ck_assert_int_eq(last_words(fd), CODE(LIMIT));
	close(fd);
	tell(&c, b.replay, last.upto, true);
	settle_trainer(&c);
	fd = ask("job", 3, 80);
	settle();
	ck_assert_uint_ne(marked(&c).replay, b.replay);
	close(fd);
	hang_up(&c);
	stop_daemon();
}
END_TEST

START_TEST(test_a_trainer_that_lies_about_its_steps_is_granted_no_more)
{
	start_daemon();
	struct client c = trainer("job", true);
	int fd = ask("job", 1, 40);
	settle();
	Batchd__Wire__Batch b = marked(&c);
	tell(&c, b.replay + 1, 0, false); /* another measurement's, which has ended */
	Batchd__Wire__Replay other = next_replay(&c);
	ck_assert(other.end && other.replay == b.replay + 1 && other.upto == 0);
	tell(&c, b.replay, UINT32_MAX, false);
	ck_assert_uint_eq(next_replay(&c).upto, 40);
	for (int i = 0; i < 1000; i++)
		tell(&c, b.replay, UINT32_MAX - (uint32_t)i, false);
	tell(&c, b.replay, UINT32_MAX, true);
	const Batchd__Wire__ServerMessage *m = receive(fd, NULL);
	ck_assert_ptr_nonnull(m);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_HEADROOM);
	ck_assert_uint_eq(m->headroom->n_rank, 1);
	tell(&c, b.replay, 1, true); /* too late */
	close(fd);
	hang_up(&c);
	settle();
	stop_daemon();
}
END_TEST

START_TEST(test_requests_that_are_refused)
{
	start_daemon();
	struct client no = trainer("no", false), yes = trainer("yes", true);
	static const struct {
		const char *job;
		uint32_t n_before, n_steps;
		int code;
	} cases[] = {
		{ "none", 1, 2, CODE(NOT_FOUND) }, { "no", 1, 2, CODE(ACCESS) },      { "yes", 0, 2, CODE(INVALID) },
		{ "yes", 1, 1, CODE(INVALID) },    { "yes", 1001, 2, CODE(INVALID) }, { "yes", 1, 1001, CODE(INVALID) },
	};
	next_batch(&no);
	next_batch(&yes);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int fd = ask(cases[i].job, cases[i].n_before, cases[i].n_steps);
		ck_assert_int_eq(last_words(fd), cases[i].code);
		close(fd);
	}
	Batchd__Wire__Headroom h = BATCHD__WIRE__HEADROOM__INIT;
	h.job = (char *)"yes";
	h.n_before = h.n_steps = 2;
	int fd = ask("yes", 2, 2);
	SEND(fd, HEADROOM, headroom, &h); /* twice */
	ck_assert_int_eq(last_words(fd), CODE(PROTOCOL));
	close(fd);
	SEND(yes.fd, HEADROOM, headroom, &h); /* from a trainer */
	ck_assert_int_eq(last_words(yes.fd), CODE(PROTOCOL));
	hang_up(&no);
	hang_up(&yes);
	stop_daemon();
}
END_TEST

START_TEST(test_a_client_that_asked_cannot_become_a_trainer)
{
	/* Another measurement, of its own job, would take the place of the one that it asked for; the trainers of that
	 * would wait for replays for ever. */
	start_daemon();
	struct client c = trainer("job", true);
	int fd = ask("job", 1, 80);
	settle();
	Batchd__Wire__Batch b = marked(&c);
	tell(&c, b.replay, 0, false);
	ck_assert(!next_replay(&c).end);
	Batchd__Wire__Open o = usual_open();
	o.job = (char *)"another";
	o.headroom = true;
	SEND(fd, OPEN, open, &o);
	ck_assert_int_eq(last_words(fd), CODE(PROTOCOL));
	ck_assert(next_replay(&c).end);
	close(fd);
	hang_up(&c);
	stop_daemon();
}
END_TEST

START_TEST(test_a_trainer_is_told_of_a_run_that_ended_while_it_was_elsewhere)
{
	/* It times steps, moves back to where nothing is marked, and the client that asked goes. Its report asks for
	 * replays, and must be answered. */
	start_daemon();
	struct client c = trainer("job", true);
	Batchd__Wire__Batch b = next_batch(&c);
	release(&c, b.slot, b.generation);
	b = next_batch(&c);
	release(&c, b.slot, b.generation);
	int fd = ask("job", 1, 80);
	settle();
	uint64_t run = marked(&c).replay;
	seek_to(&c, 0, 0);
	settle_trainer(&c);
	close(fd);
	settle();
	tell(&c, run, 0, false);
	Batchd__Wire__Replay r = next_replay(&c);
	ck_assert(r.end && r.upto == 0 && r.replay == run);
	hang_up(&c);
	stop_daemon();
}
END_TEST

static void come_and_go(uint32_t seed)
{
	struct client c[3];
	int fd[3];
	for (uint32_t k = 0; k < 3; k++) {
		Batchd__Wire__Open o = usual_open();
		o.headroom = true;
		o.rank = (int32_t)k;
		o.world_size = 3;
		c[k] = join_with(o);
		seek_to(&c[k], 0, 0);
	}
	for (int k = 0; k < 3; k++)
		next_batch(&c[k]);
	fd[0] = ask("job", 1, 8);
	settle();
	uint64_t replay = marked(&c[0]).replay;
	for (int k = 1; k < 3; k++)
		fd[k] = ask("job", 1, 8);
	for (int k = 0; k < 12; k++) {
		uint32_t what = (seed = seed * 1664525 + 1013904223) >> 8, who = what / 8 % 3;
		if (what % 8 < 5)
			tell(&c[who], replay + (what % 16 == 0), what % 11, what % 8 == 4);
		else if (what % 8 == 5)
			shutdown(fd[who], SHUT_RDWR);
		else if (what % 8 == 6)
			shutdown(c[who].fd, SHUT_RDWR);
		else
			seek_to(&c[who], what % 3, 0);
	}
}

START_TEST(test_clients_come_and_go_in_any_order)
{
	/* Clients that ask, trainers that report and both that hang up at any time: the daemon serves the others, and
	 * no session is left at its end. */
	start_daemon();
	for (uint32_t i = 0; i < 40; i++) {
		int status;
		pid_t child = fork(); /* the end of its process ends a trainer's leases */
		if (child == 0) {
			come_and_go(i);
			_exit(0);
		}
		waitpid(child, &status, 0);
		ck_assert_int_eq(status, 0);
	}
	settle();
	stop_daemon();
}
END_TEST

SUITE(headroom)
{
	Suite *s = suite_create("headroom");
	TCase *t = tcase_create("headroom");
	tcase_add_test(t, test_replays_are_granted_in_parts_and_end_with_the_client_that_asked);
	tcase_add_test(t, test_a_trainer_that_lies_about_its_steps_is_granted_no_more);
	tcase_add_test(t, test_requests_that_are_refused);
	tcase_add_test(t, test_a_client_that_asked_cannot_become_a_trainer);
	tcase_add_test(t, test_a_trainer_is_told_of_a_run_that_ended_while_it_was_elsewhere);
	tcase_add_test(t, test_clients_come_and_go_in_any_order);
	suite_add_tcase(s, t);
	return s;
}
