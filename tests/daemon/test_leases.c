/* Clients that seek and release nothing, against the whole daemon: the number of their leases is bounded, and however
 * the clients end, every lease ends and the other trainers of their group continue. */
#include "support/packets.h"
#include "support/suite.h"

enum { SEEKS = 300 }; /* more than 8 bits can count */

static struct client of_pair(uint32_t rank)
{
	Batchd__Wire__Open o = usual_open();
	o.mode = BATCHD__WIRE__MODE__SHARE;
	o.policy = BATCHD__WIRE__POLICY__POLICY_WAIT;
	o.world_size = 2;
	o.n_slots = 2;
	o.rank = (int32_t)rank;
	return join_with(o);
}

struct lent {
	unsigned n;
	uint32_t slot[4 * SEEKS];
	uint64_t generation[4 * SEEKS];
};

static void note_lent(struct lent *l, const Batchd__Wire__Batch *b)
{
	ck_assert_uint_lt(l->n, sizeof(l->slot) / sizeof(l->slot[0]));
	l->slot[l->n] = b->slot;
	l->generation[l->n++] = b->generation;
}

/* Takes every batch that the daemon has put into the ring so far. */
static void read_lent(struct client *c, struct lent *l)
{
	Batchd__Wire__ClassesRequest r = BATCHD__WIRE__CLASSES_REQUEST__INIT;
	const Batchd__Wire__ServerMessage *m;
	SEND(c->fd, CLASSES, classes, &r);
	m = receive(c->fd, NULL);
	ck_assert_ptr_nonnull(m);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_CLASSES);
	while ((m = take_entry(c)))
		note_lent(l, m->batch);
}

static void seek_often(struct client *c, struct lent *l)
{
	for (int i = 0; i < SEEKS; i++)
		seek_to(c, 0, 0);
	read_lent(c, l);
}

/* Two trainers in lockstep; the first is lent as much as it can get. Returns the first. */
static struct client greedy(struct client *other, struct lent *l)
{
	struct client c = of_pair(0);
	*other = of_pair(1);
	*l = (struct lent){ 0 };
	seek_to(&c, 0, 0);
	seek_to(other, 0, 0);
	for (unsigned i = 0; i < c.window; i++) {
		Batchd__Wire__Batch b = next_batch(&c);
		note_lent(l, &b);
	}
	seek_often(&c, l);
	return c;
}

/* The group continues without the greedy trainer, and the daemon works. */
static void check_the_other_gets_on(struct client *other)
{
	for (unsigned i = 0; i < 10; i++) {
		Batchd__Wire__Batch b = next_batch(other);
		ck_assert_uint_eq(b.step, i);
		release(other, b.slot, b.generation);
	}
	check_it_serves();
	hang_up(other);
	stop_daemon(); /* its exit status says whether its accounts are balanced */
}

START_TEST(test_a_client_that_only_seeks_is_lent_two_windows)
{
	/* Each seek lends the same two slots again; the third round waits until something is given back. */
	struct client other;
	struct lent l;
	Batchd__Wire__Close bye = BATCHD__WIRE__CLOSE__INIT;
	start_daemon();
	struct client c = greedy(&other, &l);
	ck_assert_uint_eq(l.n, 2 * c.n_slots);
	release(&c, l.slot[0], l.generation[0]);
	unsigned before = l.n;
	read_lent(&c, &l);
	ck_assert_uint_eq(l.n, before + 1);
	for (unsigned i = 1; i < l.n; i++)
		release(&c, l.slot[i], l.generation[i]);
	SEND(c.fd, CLOSE, close, &bye); /* more may have been lent meanwhile */
	while (receive(c.fd, NULL))
		;
	hang_up(&c);
	check_the_other_gets_on(&other);
}
END_TEST

START_TEST(test_close_ends_every_lease_of_many_seeks)
{
	/* Once an assertion of the daemon failed here. */
	struct client other;
	struct lent l;
	Batchd__Wire__Close bye = BATCHD__WIRE__CLOSE__INIT;
	start_daemon();
	struct client c = greedy(&other, &l);
	SEND(c.fd, CLOSE, close, &bye);
	while (receive(c.fd, NULL))
		;
	hang_up(&c);
	check_the_other_gets_on(&other);
}
END_TEST

START_TEST(test_a_process_that_dies_ends_every_lease_of_many_seeks)
{
	/* The process holds its batches when it exits, so that only its pidfd ends the leases. */
	struct lent l;
	int ready[2];
	char byte;
	start_daemon();
	ck_assert_int_eq(pipe(ready), 0);
	struct client other = of_pair(1);
	pid_t pid = fork();
	if (pid == 0) {
		struct client c = of_pair(0);
		seek_to(&c, 0, 0);
		next_batch(&c);
		l = (struct lent){ .n = 1 };
		seek_often(&c, &l);
		(void)!write(ready[1], "", 1);
		pause();
	}
	seek_to(&other, 0, 0);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	close(ready[0]);
	close(ready[1]);
	check_the_other_gets_on(&other);
}
END_TEST

START_TEST(test_a_client_that_hangs_up_keeps_its_many_leases_until_the_daemon_ends)
{
	/* Its process lives, so the slots stay lent: the other trainer waits, other jobs are served, and the end is
	 * clean. */
	struct client other;
	struct lent l;
	start_daemon();
	struct client c = greedy(&other, &l);
	hang_up(&c);
	check_it_serves();
	hang_up(&other);
	stop_daemon();
}
END_TEST

SUITE(leases)
{
	Suite *s = suite_create("leases");
	TCase *t = tcase_create("leases");
	tcase_add_test(t, test_a_client_that_only_seeks_is_lent_two_windows);
	tcase_add_test(t, test_close_ends_every_lease_of_many_seeks);
	tcase_add_test(t, test_a_process_that_dies_ends_every_lease_of_many_seeks);
	tcase_add_test(t, test_a_client_that_hangs_up_keeps_its_many_leases_until_the_daemon_ends);
	suite_add_tcase(s, t);
	return s;
}
