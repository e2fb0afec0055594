/* Producers, tested packet by packet: which clients may be producers, the order in which slots are filled, what happens
 * to rounds and ends, and to trainers when a producer leaves. */
#include <check.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "support/producers.h"
#include "support/suite.h"

static void answer_end(struct test_producer *m, uint64_t fill, uint64_t n_batches)
{
	Batchd__Wire__Filled f = BATCHD__WIRE__FILLED__INIT;
	f.fill = fill;
	f.end = true;
	f.n_batches = n_batches;
	SEND(m->fd, FILLED, filled, &f);
}

START_TEST(test_a_slab_is_sealed_once_its_producer_has_it)
{
	/* Before the trainer is opened: after that no process can map the slab writable, through either descriptor. */
	start_daemon();
	struct test_producer m = produce_with(usual_produce());
	int fd = ask_open(served_open());
	take_slab(&m);
	struct client c = await_opened(fd);
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, m.slab[0], 0), MAP_FAILED);
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, c.slab, 0), MAP_FAILED);
	ck_assert_ptr_ne(mmap(NULL, 4096, PROT_READ, MAP_SHARED, c.slab, 0), MAP_FAILED);
	hang_up(&c);
	close(m.fd);
	stop_daemon();
}
END_TEST

START_TEST(test_batches_go_out_in_order_and_free_slots_are_the_limit)
{
	/* Three slots: three fills; the fourth comes with the first release. The end is a mark without rows, after
	 * which the next epoch begins. */
	start_daemon();
	struct test_producer m = produce_with(usual_produce());
	int fd = ask_open(served_open());
	take_slab(&m);
	struct client c = await_opened(fd);
	seek_to(&c, 4, 0);
	for (uint64_t i = 0; i < 3; i++) {
		Batchd__Wire__Fill f = next_fill(&m);
		ck_assert_uint_eq(f.fill, i + 1);
		ck_assert(f.epoch == 4 && f.step == i);
	}
	struct pollfd quiet = { m.fd, POLLIN, 0 };
	ck_assert_int_eq(poll(&quiet, 1, 50), 0);
	answer(&m, 1, 7, false);
	Batchd__Wire__Batch b = next_batch(&c);
	ck_assert(b.epoch == 4 && b.step == 0 && b.n_rows == 7 && !b.last);
	answer(&m, 2, 0, true); /* there is no second batch; fill 3, for the third, is meant for the next epoch now */
	b = next_batch(&c);
	ck_assert(b.step == 1 && b.n_rows == 0 && b.last);
	Batchd__Wire__Fill f = next_fill(&m);
	ck_assert(f.epoch == 5 && f.step == 0 && f.fill == 4);
	answer(&m, 3, 0, true); /* too late: no session waits for it */
	answer(&m, 4, 9, false);
	b = next_batch(&c);
	ck_assert(b.epoch == 5 && b.step == 0 && b.n_rows == 9);
	hang_up(&c);
	close(m.fd);
	stop_daemon();
}
END_TEST

START_TEST(test_ranks_get_batches_in_turn_and_only_whole_rounds)
{
	/* Batch k goes to rank k % 2; neither rank gets a step before both batches of it exist; an odd last batch goes
	 * to no rank. */
	start_daemon();
	struct test_producer m = produce_with(usual_produce());
	struct client c[2];
	int fd[2];
	for (int r = 0; r < 2; r++) {
		Batchd__Wire__Open o = served_open();
		o.world_size = 2;
		o.rank = r;
		fd[r] = ask_open(o);
	}
	take_slab(&m);
	take_slab(&m);
	for (int r = 0; r < 2; r++)
		c[r] = await_opened(fd[r]);
	seek_to(&c[0], 0, 0);
	struct pollfd quiet = { m.fd, POLLIN, 0 };
	ck_assert_int_eq(poll(&quiet, 1, 50), 0); /* rank 1 has not sent where it begins */
	seek_to(&c[1], 0, 0);
	for (uint64_t i = 0; i < 6; i++)
		ck_assert_uint_eq(next_fill(&m).step, i);
	answer(&m, 1, 1, false);
	ck_assert(gets_none(&c[0], 50));
	answer(&m, 2, 2, false);
	ck_assert_uint_eq(next_batch(&c[0]).n_rows, 1);
	ck_assert_uint_eq(next_batch(&c[1]).n_rows, 2);
	answer(&m, 3, 3, false);
	answer(&m, 4, 0, true); /* batch 2 has no partner */
	for (int r = 0; r < 2; r++) {
		Batchd__Wire__Batch b = next_batch(&c[r]);
		ck_assert(b.step == 1 && b.n_rows == 0 && b.last);
	}
	hang_up(&c[0]);
	hang_up(&c[1]);
	close(m.fd);
	stop_daemon();
}
END_TEST

/* Two ranks of that producer; neither rank has a position yet. */
static struct test_producer produce_for_two_with(Batchd__Wire__Produce p, struct client c[2])
{
	struct test_producer m = produce_with(p);
	int fd[2];
	for (int r = 0; r < 2; r++)
		fd[r] = ask_open(open_of_rank(r));
	take_slab(&m);
	take_slab(&m);
	for (int r = 0; r < 2; r++)
		c[r] = await_opened(fd[r]);
	return m;
}

/* The producer looks ahead and does not know the length of its epochs. */
static struct test_producer produce_for_two(struct client c[2])
{
	return produce_for_two_with(usual_produce(), c);
}

static void end_with_two(struct test_producer *m, struct client c[2])
{
	hang_up(&c[0]);
	hang_up(&c[1]);
	close(m->fd);
	stop_daemon();
}

/* The second rank leaves while the second of every two fills is in progress. */
static void go_with_fills(struct client *c, struct test_producer *m, uint64_t n)
{
	hang_up(c);
	*c = (struct client){ .fd = -1, .slab = -1 };
	for (uint64_t k = 2; k <= n; k += 2) {
		Batchd__Wire__Fill f = any_fill(m);
		ck_assert(f.cancel && f.fill == k);
	}
}

START_TEST(test_a_batch_whose_rank_has_gone_tells_that_it_exists)
{
	/* Rank 1 leaves while its batches are in progress. Either the producer has started the first already, which
	 * completes that round; or it skips it, and its next message decides. */
	enum { MADE, PASSED_OVER, COUNTED, REST, N };
	for (int how = MADE; how < N; how++) {
		start_daemon();
		struct client c[2];
		struct test_producer m = produce_for_two(c);
		for (int r = 0; r < 2; r++)
			seek_to(&c[r], 0, 0);
		for (uint64_t k = 0; k < 6; k++)
			expect_fill(&m, k + 1, 0, k);
		go_with_fills(&c[1], &m, 6);
		answer(&m, 1, 1, false);
		if (how == MADE)
			answer(&m, 2, 2, false);
		else
			answer_skipped(&m, 2);
		ck_assert(how == MADE || gets_none(&c[0], 50));
		if (how == PASSED_OVER)
			answer(&m, 3, 3, false);
		else if (how != MADE)
			answer_end(&m, 3, how == COUNTED ? 2 : 1);
		expect_batch(&c[0], 0, 0, how != REST);
		if (how == COUNTED)
			expect_batch(&c[0], 0, 1, 0);
		end_with_two(&m, c);
	}
}
END_TEST

START_TEST(test_a_producer_that_can_go_back_is_asked_for_the_batch_that_it_skipped)
{
	/* The epoch ends, of unknown length, while rank 1's batches are cancelled, because it begins again. The producer
	 * skipped the batch that completes rank 0's round, which exists or does not. */
	for (int rest = 0; rest < 2; rest++) {
		start_daemon();
		struct client c[2];
		Batchd__Wire__Produce p = usual_produce();
		p.resumable = true;
		struct test_producer m = produce_for_two_with(p, c);
		for (int r = 0; r < 2; r++)
			seek_to(&c[r], 0, 0);
		for (uint64_t k = 0; k < 6; k++)
			expect_fill(&m, k + 1, 0, k);
		seek_to(&c[1], 0, 0);
		for (uint64_t k = 2; k <= 6; k += 2)
			ck_assert(any_fill(&m).cancel);
		answer(&m, 1, 1, false);
		answer_skipped(&m, 2);
		expect_fill(&m, 7, 0, 1);
		answer_end(&m, 3, 0);
		answer_skipped(&m, 4);
		answer_end(&m, 5, 0);
		answer_skipped(&m, 6);
		ck_assert(gets_none(&c[0], 50));
		answer(&m, 7, rest ? 0 : 2, rest);
		for (int r = 0; r < 2; r++) {
			if (!rest)
				expect_batch(&c[r], 0, 0, r ? 2 : 1);
			expect_batch(&c[r], 0, !rest, 0);
		}
		end_with_two(&m, c);
	}
}
END_TEST

START_TEST(test_a_round_waits_for_its_last_rank)
{
	/* Rank 1 has left. A later batch shows that a round is whole; the last one waits until the rank is back, and
	 * the producer is asked for nothing meanwhile. */
	start_daemon();
	struct client c[2];
	struct test_producer m = produce_for_two(c);
	for (int r = 0; r < 2; r++)
		seek_to(&c[r], 0, 0);
	for (uint64_t k = 0; k < 6; k++)
		expect_fill(&m, k + 1, 0, k);
	go_with_fills(&c[1], &m, 6);
	for (uint64_t k = 1; k <= 6; k++) {
		if (k % 2)
			answer(&m, k, (uint32_t)k, false);
		else
			answer_skipped(&m, k);
	}
	for (uint64_t i = 0; i < 2; i++)
		expect_batch(&c[0], 0, i, (uint32_t)(2 * i + 1));
	ck_assert(is_quiet(m.fd) && gets_none(&c[0], 50));
	c[1] = join_with(open_of_rank(1));
	seek_to(&c[1], 0, 2);
	expect_fill(&m, 7, 0, 5);
	ck_assert(gets_none(&c[0], 50));
	answer(&m, 7, 4, false);
	expect_batch(&c[0], 0, 2, 5);
	expect_batch(&c[1], 0, 2, 4);
	end_with_two(&m, c);
}
END_TEST

START_TEST(test_a_length_that_proves_wrong_is_not_believed_any_more)
{
	/* Three batches were announced, of which two ranks get one each; there are five. The rank that comes back to an
	 * epoch that the others have left gets as many batches as they had. */
	start_daemon();
	Batchd__Wire__Produce p = usual_produce();
	p.n_batches = 3;
	p.resumable = true;
	struct client c[2];
	struct test_producer m = produce_with(p);
	int fd[2];
	for (int r = 0; r < 2; r++)
		fd[r] = ask_open(open_of_rank(r));
	take_slab(&m);
	take_slab(&m);
	for (int r = 0; r < 2; r++) {
		c[r] = await_opened(fd[r]);
		seek_to(&c[r], 0, 0);
	}
	for (uint64_t k = 0; k < 6; k++) {
		expect_fill(&m, k + 1, 0, k);
		if (k < 5)
			answer(&m, k + 1, 1, false);
		else
			answer_end(&m, k + 1, 5);
	}
	for (uint64_t i = 0; i < 3; i++) {
		expect_batch(&c[0], 0, i, i < 2);
		Batchd__Wire__Batch b = next_batch(&c[1]);
		ck_assert(b.step == i && b.last == (i == 2));
		release(&c[1], b.slot, b.generation);
	}
	seek_to(&c[1], 0, 1);
	expect_fill(&m, 7, 0, 3);
	answer(&m, 7, 1, false);
	expect_batch(&c[1], 0, 1, 1);
	end_with_two(&m, c);
}
END_TEST

START_TEST(test_a_producer_that_goes_is_an_error_behind_its_batches)
{
	/* The batch that it made arrives first; its last words are passed on; without last words the reason is reported
	 * all the same. */
	for (int with_words = 0; with_words < 2; with_words++) {
		start_daemon();
		struct test_producer m = produce_with(usual_produce());
		int fd = ask_open(served_open());
		take_slab(&m);
		struct client c = await_opened(fd);
		seek_to(&c, 0, 0);
		next_fill(&m);
		answer(&m, 1, 3, false);
		if (with_words) {
			Batchd__Wire__ProducerEnd e = BATCHD__WIRE__PRODUCER_END__INIT;
			e.text = (char *)"Traceback:\n  no sound";
			SEND(m.fd, PRODUCER_END, producer_end, &e);
		} else {
			close(m.fd);
		}
		ck_assert_uint_eq(next_batch(&c).n_rows, 3);
		const Batchd__Wire__ServerMessage *a = receive(c.fd, NULL);
		while (a && a->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR)
			a = receive(c.fd, NULL);
		ck_assert_ptr_nonnull(a);
		ck_assert_int_eq(a->error->code, BATCHD__WIRE__ERROR_CODE__PRODUCER);
		ck_assert_ptr_nonnull(strstr(
			a->error->text, with_words ? "no sound" : "was killed or crashed after batch 0 of epoch 0"));
		hang_up(&c);
		if (with_words)
			close(m.fd);
		stop_daemon();
	}
}
END_TEST

START_TEST(test_nonsense_costs_a_producer_its_connection)
{
	/* Answers out of order, to no request, without rows, for slabs that it was not sent; a second Produce; messages
	 * of trainers; an end before batches that exist; a batch that does not fit its slot, without a memfd. */
	start_daemon();
	for (int i = 0; i < 8; i++) {
		struct test_producer m = produce_with(usual_produce());
		int fd = ask_open(served_open());
		take_slab(&m);
		struct client c = await_opened(fd);
		seek_to(&c, 0, 0);
		next_fill(&m);
		next_fill(&m);
		Batchd__Wire__Filled f = BATCHD__WIRE__FILLED__INIT;
		Batchd__Wire__Produce again = usual_produce();
		Batchd__Wire__Wake w = BATCHD__WIRE__WAKE__INIT;
		f.slab = 17;
		if (i == 7)
			f = (Batchd__Wire__Filled){ .base = f.base, .fill = 1, .n_rows = 1, .n_bytes = 5001 };
		switch (i) {
		case 0:
			answer(&m, 2, 1, false);
			break;
		case 1:
			answer(&m, 99, 1, false);
			break;
		case 2:
			answer(&m, 1, 0, false);
			break;
		case 3:
		case 7:
			SEND(m.fd, FILLED, filled, &f);
			break;
		case 4:
			SEND(m.fd, PRODUCE, produce, &again);
			break;
		case 5:
			answer_end(&m, 1, 1);
			break;
		default:
			SEND(m.fd, WAKE, wake, &w);
			break;
		}
		bool invalid = i == 2 || i == 5 || i == 7;
		ck_assert_int_eq(last_words(m.fd),
				 invalid ? BATCHD__WIRE__ERROR_CODE__INVALID : BATCHD__WIRE__ERROR_CODE__PROTOCOL);
		ck_assert_int_eq(last_words(c.fd), BATCHD__WIRE__ERROR_CODE__PRODUCER);
		hang_up(&c);
		close(m.fd);
	}
	stop_daemon();
}
END_TEST

static void one_producer(struct config *c)
{
	c->limits.producers = 1;
}

START_TEST(test_producers_are_limited_and_the_newer_takes_the_name)
{
	/* One in all; a second producer of the same name replaces the first, unless its incarnation is lower; slots
	 * have a size. */
	start_daemon_with(one_producer);
	Batchd__Wire__Produce p = usual_produce(), q = usual_produce();
	p.incarnation = 2;
	struct test_producer m = produce_with(p);
	q.name = (char *)"other";
	int fd = try_produce(q);
	ck_assert_int_eq(last_words(fd), BATCHD__WIRE__ERROR_CODE__LIMIT);
	close(fd);
	q = usual_produce();
	q.incarnation = 1;
	fd = try_produce(q);
	ck_assert_int_eq(last_words(fd), BATCHD__WIRE__ERROR_CODE__FENCED);
	close(fd);
	q.incarnation = 2;
	q.slot_bytes = 0;
	fd = try_produce(q);
	ck_assert_int_eq(last_words(fd), BATCHD__WIRE__ERROR_CODE__LIMIT);
	close(fd);
	struct test_producer newer = produce_with(p);
	ck_assert_int_eq(last_words(m.fd), BATCHD__WIRE__ERROR_CODE__FENCED);
	close(m.fd);
	close(newer.fd);
	stop_daemon();
}
END_TEST

static void eight_producers(struct config *c)
{
	c->limits.producers = 8;
}

static void three_producers(struct config *c)
{
	c->limits.producers_per_user = 3;
}

START_TEST(test_a_user_leaves_places_to_others)
{
	/* One user has at most producers_per_user, and as many as are left for others; each limit is named, and a place
	 * is free again when its producer has gone. */
	for (int i = 0; i < 2; i++) {
		Batchd__Wire__Produce p = usual_produce();
		struct test_producer m[4];
		unsigned n = i ? 3 : 4;
		char name[8];
		start_daemon_with(i ? three_producers : eight_producers);
		for (unsigned k = 0; k < n; k++) {
			snprintf(name, sizeof(name), "p%u", k);
			p.name = name;
			m[k] = produce_with(p);
		}
		p.name = (char *)"more";
		int fd = try_produce(p);
		const Batchd__Wire__ServerMessage *e = receive(fd, NULL);
		ck_assert_ptr_nonnull(e);
		ck_assert_int_eq(e->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR);
		ck_assert_str_eq(e->error->field, i ? "producers_per_user" : "producers");
		ck_assert_ptr_nonnull(strstr(e->error->text, i ? "has 3 producers" : "4 are left for other users"));
		close(fd);
		close(m[0].fd);
		do { /* until the daemon has seen the hang-up */
			fd = try_produce(p);
			e = receive(fd, NULL);
			close(fd);
			usleep(1000);
		} while (e->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR);
		for (unsigned k = 1; k < n; k++)
			close(m[k].fd);
		stop_daemon();
	}
}
END_TEST

START_TEST(test_a_seek_takes_back_what_was_asked_for)
{
	/* Fills in progress are cancelled, and their slots are filled again only after the answers. */
	start_daemon();
	Batchd__Wire__Produce p = usual_produce();
	p.resumable = true;
	struct test_producer m = produce_with(p);
	int fd = ask_open(served_open());
	take_slab(&m);
	struct client c = await_opened(fd);
	seek_to(&c, 0, 0);
	for (int i = 0; i < 3; i++)
		next_fill(&m);
	seek_to(&c, 2, 5);
	for (uint64_t i = 1; i <= 3; i++) {
		const Batchd__Wire__ServerMessage *a = receive(m.fd, NULL);
		ck_assert(a && a->fill->cancel && a->fill->fill == i);
	}
	struct pollfd quiet = { m.fd, POLLIN, 0 };
	ck_assert_int_eq(poll(&quiet, 1, 50), 0);
	answer(&m, 1, 4, false); /* it had already started */
	Batchd__Wire__Fill f = next_fill(&m);
	ck_assert(f.fill == 4 && f.epoch == 2 && f.step == 5);
	hang_up(&c);
	close(m.fd);
	stop_daemon();
}
END_TEST

SUITE(producer)
{
	Suite *s = suite_create("producer");
	TCase *t = tcase_create("producer");
	tcase_add_test(t, test_a_slab_is_sealed_once_its_producer_has_it);
	tcase_add_test(t, test_batches_go_out_in_order_and_free_slots_are_the_limit);
	tcase_add_test(t, test_ranks_get_batches_in_turn_and_only_whole_rounds);
	tcase_add_test(t, test_a_batch_whose_rank_has_gone_tells_that_it_exists);
	tcase_add_test(t, test_a_producer_that_can_go_back_is_asked_for_the_batch_that_it_skipped);
	tcase_add_test(t, test_a_round_waits_for_its_last_rank);
	tcase_add_test(t, test_a_length_that_proves_wrong_is_not_believed_any_more);
	tcase_add_test(t, test_a_producer_that_goes_is_an_error_behind_its_batches);
	tcase_add_test(t, test_nonsense_costs_a_producer_its_connection);
	tcase_add_test(t, test_producers_are_limited_and_the_newer_takes_the_name);
	tcase_add_test(t, test_a_user_leaves_places_to_others);
	tcase_add_test(t, test_a_seek_takes_back_what_was_asked_for);
	suite_add_tcase(s, t);
	return s;
}
