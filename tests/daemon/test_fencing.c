/* Which process is a job's rank when several claim it: the newest. No other process can take or give back anything,
 * whatever it still sends. */
#include <sys/mman.h>

#include "support/packets.h"
#include "support/suite.h"

static struct client join_as(uint64_t born_ns, bool again, uint64_t incarnation)
{
	Batchd__Wire__Open o = usual_open();
	o.born_ns = born_ns;
	o.again = again;
	o.incarnation = incarnation;
	return join_with(o);
}

/* The code of the refusal, or -1 when it is accepted. */
static int try_as(uint64_t born_ns, bool again, uint64_t incarnation)
{
	Batchd__Wire__Open o = usual_open();
	o.born_ns = born_ns;
	o.again = again;
	o.incarnation = incarnation;
	int fd = dial(), slab = -1;
	greet(fd);
	const Batchd__Wire__ServerMessage *m = answer_to_open(fd, &o, &slab);
	ck_assert_ptr_nonnull(m);
	int code = m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR ? (int)m->error->code : -1;
	close(slab);
	close(fd);
	return code;
}

static void read_steps(struct client *c, unsigned from, unsigned n)
{
	for (unsigned i = from; i < from + n; i++) {
		Batchd__Wire__Batch b = next_batch(c);
		ck_assert_uint_eq(b.step, i);
		release(c, b.slot, b.generation);
	}
}

START_TEST(test_a_trainer_that_comes_back_late_does_not_oust_its_successor)
{
	/* The older trainer was stopped, missed the message, and reconnects: refused. The newer one may come back any
	 * number of times. */
	start_daemon();
	struct client old = join_as(1000, false, 0);
	struct client fresh = join_as(2000, false, 0);
	ck_assert_int_eq(last_words(old.fd), CODE(FENCED));
	ck_assert_int_eq(try_as(1000, true, 0), CODE(FENCED));
	seek_to(&fresh, 0, 0);
	read_steps(&fresh, 0, 20);
	struct client back = join_as(2000, true, 0);
	ck_assert_int_eq(last_words(fresh.fd), CODE(FENCED)); /* its own earlier connection */
	seek_to(&back, 0, 20);
	read_steps(&back, 20, 20);
	hang_up(&old);
	hang_up(&fresh);
	hang_up(&back);
	stop_daemon();
}
END_TEST

START_TEST(test_after_a_restart_of_the_daemon_the_newer_trainer_wins_in_either_order)
{
	/* Both come back to a daemon that knows neither: in either order the one that was started later is the rank. */
	for (int newer_first = 0; newer_first < 2; newer_first++) {
		start_daemon();
		struct client first = join_as(newer_first ? 2000 : 1000, true, 0);
		if (newer_first) {
			ck_assert_int_eq(try_as(1000, true, 0), CODE(FENCED));
			seek_to(&first, 0, 0);
			read_steps(&first, 0, 5);
		} else {
			struct client second = join_as(2000, true, 0);
			ck_assert_int_eq(last_words(first.fd), CODE(FENCED));
			seek_to(&second, 0, 0);
			read_steps(&second, 0, 5);
			hang_up(&second);
		}
		hang_up(&first);
		stop_daemon();
	}
}
END_TEST

START_TEST(test_what_a_fenced_trainer_had_said_already_changes_nothing)
{
	/* The old trainer's releases, a seek and a close are in the socket when its rank is taken, and more come
	 * afterwards: its batches keep their bytes, because it still maps them. */
	start_daemon();
	struct client old = join_as(1, false, 0);
	const uint8_t *slab = mmap(NULL, old.slab_bytes, PROT_READ, MAP_PRIVATE, old.slab, 0);
	seek_to(&old, 7, 0);
	Batchd__Wire__Batch held[2] = { next_batch(&old), next_batch(&old) };
	uint8_t *before = malloc(old.slot_bytes);
	memcpy(before, slab + held[0].slot * old.slot_bytes, old.slot_bytes);

	kill(daemon_pid, SIGSTOP); /* so that the newer one's Open is read together with the older one's messages */
	struct client fresh = { .fd = dial(), .slab = -1 };
	Batchd__Wire__Hello h = BATCHD__WIRE__HELLO__INIT;
	h.version = WIRE_VERSION;
	h.program = (char *)"fresh";
	SEND(fresh.fd, HELLO, hello, &h);
	Batchd__Wire__Open o = usual_open();
	o.born_ns = 2;
	SEND(fresh.fd, OPEN, open, &o);
	kill(daemon_pid, SIGCONT);
	ck_assert_int_eq(receive(fresh.fd, NULL)->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_WELCOME);
	ck_assert_int_eq(await_answer(&fresh)->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED);
	release(&old, held[0].slot, held[0].generation);
	release_by_packet(&old, held[1].slot, held[1].generation);
	seek_to(&old, 9, 0);
	ck_assert_int_eq(last_words(old.fd), CODE(FENCED));
	seek_to(&fresh, 0, 0);
	read_steps(&fresh, 0, 60);
	ck_assert_mem_eq(before, slab + held[0].slot * old.slot_bytes, old.slot_bytes);
	munmap((void *)slab, old.slab_bytes);
	free(before);
	hang_up(&old);
	hang_up(&fresh);
	stop_daemon();
}
END_TEST

START_TEST(test_a_new_incarnation_takes_the_job_in_whatever_state_it_is)
{
	/* While the old one's data set is still being opened, while its slab is allocated, and when it is at work;
	 * afterwards no trainer of the old incarnation is accepted. */
	for (int stage = 0; stage < 3; stage++) {
		start_daemon();
		struct client old = { .fd = dial(), .slab = -1 };
		greet(old.fd);
		Batchd__Wire__Open o = usual_open();
		o.incarnation = 1;
		if (stage == 0)
			o.sources = sources_of("random:length=3000000,shape=64,dtype=float32");
		SEND(old.fd, OPEN, open, &o);
		if (stage == 2)
			ck_assert_int_eq(await_answer(&old)->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED);
		o.incarnation = 2;
		struct client fresh = join_with(o);
		ck_assert_int_eq(last_words(old.fd), CODE(FENCED));
		seek_to(&fresh, 0, 0);
		read_steps(&fresh, 0, 8);
		int fd = dial();
		greet(fd);
		o.incarnation = 1;
		const Batchd__Wire__ServerMessage *m = answer_to_open(fd, &o, NULL);
		ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR);
		ck_assert_int_eq(m->error->code, CODE(FENCED));
		close(fd);
		hang_up(&old);
		hang_up(&fresh);
		stop_daemon();
	}
}
END_TEST

START_TEST(test_a_new_incarnation_may_ask_for_something_else)
{
	/* Another batch size and seed: the old job ends at once, though its trainer still holds batches, and the new
	 * trainer does not join it by mistake. */
	start_daemon();
	struct client old = join_as(1, false, 4);
	seek_to(&old, 0, 0);
	next_batch(&old);
	Batchd__Wire__Open o = usual_open();
	o.incarnation = 5;
	o.batch_size = 20;
	struct client fresh = join_with(o);
	ck_assert_int_eq(last_words(old.fd), CODE(FENCED));
	seek_to(&fresh, 0, 0);
	Batchd__Wire__Batch b = next_batch(&fresh);
	ck_assert_uint_eq(b.n_rows, 20);
	ck_assert_int_eq(try_as(9, false, 4), CODE(FENCED));
	hang_up(&old);
	hang_up(&fresh);
	stop_daemon();
}
END_TEST

SUITE(fencing)
{
	Suite *s = suite_create("fencing");
	TCase *t = tcase_create("fencing");
	tcase_add_test(t, test_a_trainer_that_comes_back_late_does_not_oust_its_successor);
	tcase_add_test(t, test_after_a_restart_of_the_daemon_the_newer_trainer_wins_in_either_order);
	tcase_add_test(t, test_what_a_fenced_trainer_had_said_already_changes_nothing);
	tcase_add_test(t, test_a_new_incarnation_takes_the_job_in_whatever_state_it_is);
	tcase_add_test(t, test_a_new_incarnation_may_ask_for_something_else);
	suite_add_tcase(s, t);
	return s;
}
