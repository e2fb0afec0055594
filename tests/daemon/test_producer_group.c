/* Share groups of a producer's trainers, packet by packet. */
#include <check.h>

#include "support/producers.h"
#include "support/suite.h"

static struct client join_served(uint32_t n_slots)
{
	return join_with(shared_open(n_slots));
}

START_TEST(test_a_group_of_known_size_begins_when_all_of_it_are_there)
{
	/* A producer makes its batches once, and may end soon: the daemon requests nothing from it before every rank is
	 * there, or will not come. */
	for (int comes = 0; comes < 2; comes++) {
		start_daemon();
		struct test_producer m = produce_with(usual_produce());
		Batchd__Wire__Open o = shared_open(3);
		o.world_size = 2;
		int fd = ask_open(o);
		take_slab(&m);
		struct client a = await_opened(fd), b = join_with(o);
		seek_to(&a, 0, 0);
		ck_assert(is_quiet(m.fd));
		if (comes)
			seek_to(&b, 0, 0);
		else
			close_and_hang_up(&b);
		for (uint64_t k = 0; k < 3; k++) {
			expect_fill(&m, k + 1, 0, k);
			answer(&m, k + 1, 1, false);
		}
		for (uint64_t k = 0; k < 3; k++) {
			expect_batch(&a, 0, k, 1);
			if (comes)
				expect_batch(&b, 0, k, 1);
		}
		close_and_hang_up(&a);
		if (comes)
			close_and_hang_up(&b);
		close(m.fd);
		stop_daemon();
	}
}
END_TEST

START_TEST(test_a_trainer_that_returns_to_a_group_gets_what_the_others_have_had_meanwhile)
{
	/* A trainer has lost its connection, and the others continued without it: a resumable producer makes the
	 * batches once more, for it alone. A trainer that merely wants to begin there is refused, and so is every
	 * trainer where the producer cannot go back. */
	for (int resumable = 0; resumable < 2; resumable++) {
		start_daemon();
		Batchd__Wire__Produce p = usual_produce();
		p.resumable = resumable;
		struct test_producer m = produce_with(p);
		int fd = ask_open(shared_open(3));
		take_slab(&m);
		struct client a = await_opened(fd), b = join_served(3);
		(void)join_group(&a, BATCHD__WIRE__START__AT_NEXT);
		(void)join_group(&b, BATCHD__WIRE__START__AT_NEXT);
		uint64_t fill = 0;
		for (; fill < 3; fill++) {
			expect_fill(&m, fill + 1, 0, fill);
			answer(&m, fill + 1, 1, false);
		}
		take(&a, 0, 0);
		take(&b, 0, 0);
		close_and_hang_up(&b);
		for (uint64_t k = 1; k < 4; k++) {
			take(&a, 0, k);
			expect_fill(&m, fill + 1, 0, fill);
			if (fill < 4)
				answer(&m, fill + 1, 1, false);
			fill++;
		}
		expect_fill(&m, fill + 1, 0, fill);
		fill++;
		struct client c = join_served(3);
		seek_to(&c, 0, 1);
		ck_assert_int_eq(last_words(c.fd), CODE(BEHIND));
		hang_up(&c);
		Batchd__Wire__Open o = shared_open(3);
		o.again = true;
		b = join_with(o);
		seek_to(&b, 0, 1);
		if (!resumable) {
			ck_assert_int_eq(last_words(b.fd), CODE(BEHIND));
		} else {
			for (uint64_t k = 4; k < fill; k++)
				answer_skipped(&m, k + 1);
			for (uint64_t k = 1; k < 4; k++) {
				expect_fill(&m, ++fill, 0, k);
				answer(&m, fill, 1, false);
				take(&b, 0, k);
			}
		}
		hang_up(&a);
		hang_up(&b);
		close(m.fd);
		stop_daemon();
	}
}
END_TEST

START_TEST(test_a_latecomer_begins_with_a_batch_that_no_trainer_has_had)
{
	/* A joining trainer does not get the position to which the stream has run ahead: only the producer knows where
	 * the epoch ends, and it has not said so yet. Afterwards, or when it announced the number of batches, the next
	 * batch is the next epoch's. The same holds for a trainer that asks for the epoch's start, which exists only as
	 * long as no trainer is past it. */
	for (uint64_t n_batches = 0; n_batches <= 2; n_batches += 2) {
		start_daemon();
		Batchd__Wire__Produce p = usual_produce();
		p.n_batches = n_batches;
		struct test_producer m = produce_with(p);
		Batchd__Wire__Open o = served_open();
		o.mode = BATCHD__WIRE__MODE__SHARE;
		o.n_slots = 5;
		int fd = ask_open(o);
		take_slab(&m);
		struct client a = await_opened(fd);
		Batchd__Wire__Joined at = join_group(&a, BATCHD__WIRE__START__AT_START);
		ck_assert(at.epoch == 0 && at.step == 0);
		for (uint64_t i = 0; i < 5; i++)
			ck_assert_uint_eq(next_fill(&m).step, i);
		for (uint64_t i = 0; i < 2; i++) {
			answer(&m, i + 1, 7, false);
			Batchd__Wire__Batch b = next_batch(&a);
			ck_assert(b.epoch == 0 && b.step == i && b.n_rows == 7);
		}
		struct client b = join_served(5), c = join_served(5);
		at = join_group(&b, BATCHD__WIRE__START__AT_NEXT);
		ck_assert_uint_eq(at.epoch, n_batches ? 1 : 0);
		ck_assert_uint_eq(at.step, n_batches ? 0 : 2);
		answer(&m, 3, 0, true); /* there were two */
		Batchd__Wire__Batch mark = next_batch(&a);
		ck_assert(mark.step == 2 && mark.last && mark.n_rows == 0);
		if (!n_batches) {
			mark = next_batch(&b);
			ck_assert(mark.step == 2 && mark.last && mark.n_rows == 0);
		}
		at = join_group(&c, n_batches ? BATCHD__WIRE__START__AT_EPOCH : BATCHD__WIRE__START__AT_NEXT);
		ck_assert(at.epoch == 1 && at.step == 0);
		answer(&m, 4, 0, true);
		answer(&m, 5, 0, true);
		Batchd__Wire__Fill f = next_fill(&m);
		ck_assert(f.epoch == 1 && f.step == 0);
		answer(&m, f.fill, 3, false);
		struct client *const all[] = { &a, &b, &c };
		for (unsigned i = 0; i < 3; i++) {
			Batchd__Wire__Batch first = next_batch(all[i]);
			ck_assert(first.epoch == 1 && first.step == 0 && first.n_rows == 3);
		}
		struct client d = join_served(5);
		Batchd__Wire__Join late = BATCHD__WIRE__JOIN__INIT;
		late.seek = 1;
		late.start = BATCHD__WIRE__START__AT_START;
		SEND(d.fd, JOIN, join, &late);
		ck_assert_int_eq(last_words(d.fd), CODE(INVALID));
		hang_up(&a);
		hang_up(&b);
		hang_up(&c);
		hang_up(&d);
		close(m.fd);
		stop_daemon();
	}
}
END_TEST

/* A request whose answer shows that all earlier messages have been read. */
static void await_heard(struct client *c)
{
	Batchd__Wire__StatusRequest s = BATCHD__WIRE__STATUS_REQUEST__INIT;
	const Batchd__Wire__ServerMessage *a;
	SEND(c->fd, STATUS, status, &s);
	do
		a = receive(c->fd, NULL);
	while (a && (a->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_STATUS || a->status->more));
	ck_assert_ptr_nonnull(a);
}

START_TEST(test_a_trainer_that_waits_for_the_next_epoch_is_not_where_the_group_is)
{
	/* A trainer that waits for the next epoch, or seeks to it alone, does not move the group: a trainer that then
	 * asks for the group's next batch gets that batch. */
	for (int seeks = 0; seeks < 2; seeks++) {
		start_daemon();
		struct test_producer m = produce_with(usual_produce());
		int fd = ask_open(shared_open(3));
		take_slab(&m);
		struct client a = await_opened(fd), ahead = join_served(3), late = join_served(3);
		(void)join_group(&a, BATCHD__WIRE__START__AT_NEXT);
		for (uint64_t k = 0; k < 3; k++)
			expect_fill(&m, k + 1, 0, k);
		answer(&m, 1, 1, false);
		take(&a, 0, 0);
		if (seeks)
			seek_to(&ahead, 7, 0);
		else
			ck_assert_uint_eq(join_group(&ahead, BATCHD__WIRE__START__AT_EPOCH).epoch, 1);
		await_heard(&ahead);
		Batchd__Wire__Joined at = join_group(&late, BATCHD__WIRE__START__AT_NEXT);
		ck_assert(at.epoch == 0 && at.step == 1);
		answer(&m, 2, 1, false);
		take(&a, 0, 1);
		take(&late, 0, 1);
		hang_up(&a);
		hang_up(&ahead);
		hang_up(&late);
		close(m.fd);
		stop_daemon();
	}
}
END_TEST

START_TEST(test_the_groups_next_batch_is_where_all_of_it_wait)
{
	/* The trainers of the first epoch have left, and the remaining one is in a later epoch: a trainer that joins
	 * begins with that. */
	start_daemon();
	struct test_producer m = produce_with(usual_produce());
	int fd = ask_open(shared_open(3));
	take_slab(&m);
	struct client a = await_opened(fd), ahead = join_served(3), late = join_served(3);
	(void)join_group(&a, BATCHD__WIRE__START__AT_NEXT);
	for (uint64_t k = 0; k < 3; k++) {
		expect_fill(&m, k + 1, 0, k);
		answer(&m, k + 1, 1, false);
	}
	seek_to(&ahead, 7, 0);
	await_heard(&ahead);
	close_and_hang_up(&a);
	ck_assert_uint_eq(next_fill(&m).epoch, 7);
	Batchd__Wire__Joined at = join_group(&late, BATCHD__WIRE__START__AT_NEXT);
	ck_assert(at.epoch == 7 && at.step == 0);
	answer(&m, 4, 2, false);
	expect_batch(&ahead, 7, 0, 2);
	expect_batch(&late, 7, 0, 2);
	hang_up(&ahead);
	hang_up(&late);
	close(m.fd);
	stop_daemon();
}
END_TEST

START_TEST(test_a_trainer_that_has_not_begun_keeps_no_other_waiting)
{
	/* In an open group. A trainer that has opened its loader may do something else for an hour; then it begins
	 * where the others are. */
	start_daemon();
	struct test_producer m = produce_with(usual_produce());
	int fd = ask_open(shared_open(3));
	take_slab(&m);
	struct client a = await_opened(fd), idle = join_served(3);
	(void)join_group(&a, BATCHD__WIRE__START__AT_NEXT);
	for (uint64_t k = 0; k < 8; k++) {
		expect_fill(&m, k + 1, 0, k);
		answer(&m, k + 1, 1, false);
		if (k >= 2)
			take(&a, 0, k - 2);
	}
	take(&a, 0, 6);
	take(&a, 0, 7);
	Batchd__Wire__Joined at = join_group(&idle, BATCHD__WIRE__START__AT_NEXT);
	ck_assert(at.epoch == 0 && at.step == 8);
	answer(&m, 9, 1, false);
	expect_batch(&a, 0, 8, 1);
	expect_batch(&idle, 0, 8, 1);
	hang_up(&a);
	hang_up(&idle);
	close(m.fd);
	stop_daemon();
}
END_TEST

SUITE(producer_group)
{
	Suite *s = suite_create("producer_group");
	TCase *t = tcase_create("producer_group");
	tcase_add_test(t, test_a_group_of_known_size_begins_when_all_of_it_are_there);
	tcase_add_test(t, test_a_trainer_that_returns_to_a_group_gets_what_the_others_have_had_meanwhile);
	tcase_add_test(t, test_a_trainer_that_waits_for_the_next_epoch_is_not_where_the_group_is);
	tcase_add_test(t, test_the_groups_next_batch_is_where_all_of_it_wait);
	tcase_add_test(t, test_a_trainer_that_has_not_begun_keeps_no_other_waiting);
	tcase_add_test(t, test_a_latecomer_begins_with_a_batch_that_no_trainer_has_had);
	suite_add_tcase(s, t);
	return s;
}
