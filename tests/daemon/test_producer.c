/* Producers, tested packet by packet: which clients may be producers, the order in which slots are filled, what happens
 * to rounds and ends, and to trainers when a producer leaves. */
#include <check.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "support/packets.h"
#include "support/suite.h"

struct test_producer {
	int fd, slab[4];
	uint32_t n_slots;
	uint64_t slot_bytes;
};

static Batchd__Wire__Produce usual_produce(void)
{
	Batchd__Wire__Produce p = BATCHD__WIRE__PRODUCE__INIT;
	p.name = (char *)"speech";
	p.slot_bytes = 5000;
	return p;
}

static int try_produce(Batchd__Wire__Produce p)
{
	int fd = dial();
	greet(fd);
	SEND(fd, PRODUCE, produce, &p);
	return fd;
}

static struct test_producer produce_with(Batchd__Wire__Produce p)
{
	struct test_producer m = { .fd = try_produce(p), .slab = { -1, -1, -1, -1 } };
	const Batchd__Wire__ServerMessage *a = receive(m.fd, NULL);
	ck_assert_ptr_nonnull(a);
	ck_assert_int_eq(a->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_PRODUCING);
	ck_assert_uint_eq(a->producing->slab, 0);
	return m;
}

/* Takes a slab and says that it is mapped; nothing is mapped here, because only messages are checked. */
static uint32_t take_slab(struct test_producer *m)
{
	int fd = -1;
	const Batchd__Wire__ServerMessage *a = receive(m->fd, &fd);
	ck_assert_ptr_nonnull(a);
	ck_assert_int_eq(a->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_PRODUCING);
	uint32_t rank = a->producing->rank;
	ck_assert_uint_lt(rank, 4);
	ck_assert_int_ge(fd, 0);
	m->slab[rank] = fd;
	m->n_slots = a->producing->n_slots;
	m->slot_bytes = a->producing->slot_bytes;
	ck_assert_uint_ge(m->slot_bytes, 5000);
	Batchd__Wire__Filled f = BATCHD__WIRE__FILLED__INIT;
	f.slab = a->producing->slab;
	SEND(m->fd, FILLED, filled, &f);
	return rank;
}

/* A Fill, or the cancellation of a Fill. */
static Batchd__Wire__Fill any_fill(struct test_producer *m)
{
	const Batchd__Wire__ServerMessage *a = receive(m->fd, NULL);
	ck_assert_ptr_nonnull(a);
	if (a->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR)
		ck_abort_msg("%s", a->error->text);
	ck_assert_int_eq(a->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_FILL);
	return *a->fill;
}

static Batchd__Wire__Fill next_fill(struct test_producer *m)
{
	Batchd__Wire__Fill f;
	do
		f = any_fill(m);
	while (f.cancel);
	return f;
}

static void expect_fill(struct test_producer *m, uint64_t number, uint64_t epoch, uint64_t step)
{
	Batchd__Wire__Fill f = next_fill(m);
	ck_assert_uint_eq(f.fill, number);
	ck_assert_msg(f.epoch == epoch && f.step == step, "fill %d is for batch %d of epoch %d", (int)number,
		      (int)f.step, (int)f.epoch);
}

static void answer(struct test_producer *m, uint64_t fill, uint32_t n_rows, bool end)
{
	Batchd__Wire__Filled f = BATCHD__WIRE__FILLED__INIT;
	f.fill = fill;
	f.n_rows = n_rows;
	f.end = end;
	SEND(m->fd, FILLED, filled, &f);
}

static void answer_end(struct test_producer *m, uint64_t fill, uint64_t n_batches)
{
	Batchd__Wire__Filled f = BATCHD__WIRE__FILLED__INIT;
	f.fill = fill;
	f.end = true;
	f.n_batches = n_batches;
	SEND(m->fd, FILLED, filled, &f);
}

static void answer_skipped(struct test_producer *m, uint64_t fill)
{
	Batchd__Wire__Filled f = BATCHD__WIRE__FILLED__INIT;
	f.fill = fill;
	f.skipped = true;
	SEND(m->fd, FILLED, filled, &f);
}

static bool is_quiet(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };
	return poll(&p, 1, 50) == 0;
}

static Batchd__Wire__Open served_open(void)
{
	Batchd__Wire__Open o = usual_open();
	o.dataset = (char *)"serve:speech";
	o.n_slots = 3;
	return o;
}

/* An Open whose answer waits for the producer's. */
static int ask_open(Batchd__Wire__Open o)
{
	int fd = dial();
	greet(fd);
	SEND(fd, OPEN, open, &o);
	return fd;
}

static struct client await_opened(int fd)
{
	struct client c = { .fd = fd, .slab = -1 };
	const Batchd__Wire__ServerMessage *m = await_answer(&c);
	ck_assert_ptr_nonnull(m);
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR)
		ck_abort_msg("%s", m->error->text);
	ck_assert(m->opened->served);
	return c;
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

static Batchd__Wire__Open open_of_rank(int rank)
{
	Batchd__Wire__Open o = served_open();
	o.world_size = 2;
	o.rank = rank;
	return o;
}

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

static void expect_batch(struct client *c, uint64_t epoch, uint64_t step, uint32_t n_rows)
{
	Batchd__Wire__Batch b = next_batch(c);
	ck_assert_msg(b.epoch == epoch && b.step == step && b.n_rows == n_rows && b.last == !n_rows,
		      "batch %d of epoch %d has %u rows", (int)b.step, (int)b.epoch, b.n_rows);
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

static Batchd__Wire__Open shared_open(uint32_t n_slots)
{
	Batchd__Wire__Open o = served_open();
	o.mode = BATCHD__WIRE__MODE__SHARE;
	o.rank = -1;
	o.n_slots = n_slots;
	return o;
}

static void close_and_hang_up(struct client *c)
{
	Batchd__Wire__Close body = BATCHD__WIRE__CLOSE__INIT;
	SEND(c->fd, CLOSE, close, &body);
	hang_up(c);
}

static void take(struct client *c, uint64_t epoch, uint64_t step)
{
	Batchd__Wire__Batch b = next_batch(c);
	ck_assert_msg(b.epoch == epoch && b.step == step, "batch %d of epoch %d", (int)b.step, (int)b.epoch);
	release(c, b.slot, b.generation);
}

static void end_alone(struct test_producer *m, struct client *c)
{
	hang_up(c);
	close(m->fd);
	stop_daemon();
}

/* ---- batches that do not fit their slot ---- */

enum { LARGE = 50000, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

/* A memfd whose first byte is `byte`; the rest is not there, and so takes no memory. */
static int large_memory(uint64_t n_bytes, int seals, char byte)
{
	int fd = memfd_create("batch", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_eq(ftruncate(fd, (off_t)n_bytes), 0);
	ck_assert_int_eq(pwrite(fd, &byte, 1, 0), 1);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* Answers with these descriptors, which are closed here. */
static void answer_with_fds(struct test_producer *m, Batchd__Wire__Filled f, int *fds, unsigned n_fds)
{
	Batchd__Wire__ClientMessage message = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	message.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_FILLED;
	message.filled = &f;
	ck_assert_int_eq(wire_send(m->fd, &message.base, fds, n_fds, 0), 0);
	wire_close_fds(fds, n_fds);
}

static Batchd__Wire__Filled filled_with(uint64_t fill, uint64_t n_bytes)
{
	Batchd__Wire__Filled f = BATCHD__WIRE__FILLED__INIT;
	f.fill = fill;
	f.n_rows = 1;
	f.n_bytes = n_bytes;
	return f;
}

static void answer_large(struct test_producer *m, uint64_t fill, uint64_t n_bytes, char byte)
{
	int fd = large_memory(n_bytes, SEALS, byte);
	answer_with_fds(m, filled_with(fill, n_bytes), &fd, 1);
}

static void expect_taken(struct test_producer *m, uint64_t fill)
{
	Batchd__Wire__Fill f;
	do
		f = any_fill(m);
	while (!f.taken);
	ck_assert_uint_eq(f.fill, fill);
}

/* The next batch of the trainer is this one: its memory comes first, and is what the producer wrote. */
static Batchd__Wire__Batch expect_large(struct client *c, uint64_t step, uint64_t n_bytes, char byte)
{
	const Batchd__Wire__ServerMessage *m;
	char got = 0;
	int fd = -1;
	m = receive(c->fd, &fd);
	ck_assert(m && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_LARGE && fd >= 0);
	Batchd__Wire__Large large = *m->large;
	Batchd__Wire__Batch b = next_batch(c);
	ck_assert(b.step == step && b.n_rows == 1 && b.large_bytes == n_bytes);
	ck_assert(large.slot == b.slot && large.generation == b.generation && large.n_bytes == n_bytes);
	ck_assert_int_eq(pread(fd, &got, 1, 0), 1);
	ck_assert_int_eq(got, byte);
	ck_assert_ptr_eq(mmap(NULL, 1, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	close(fd);
	return b;
}

START_TEST(test_a_batch_that_does_not_fit_comes_in_a_memfd)
{
	/* In its order, to every trainer of a group; again after a seek; and the slots of the next job have room for
	 * it. */
	start_daemon();
	struct test_producer m = produce_with(usual_produce());
	int fd = ask_open(shared_open(3));
	take_slab(&m);
	struct client a = await_opened(fd), b = join_with(shared_open(3));
	(void)join_group(&a, BATCHD__WIRE__START__AT_NEXT);
	(void)join_group(&b, BATCHD__WIRE__START__AT_NEXT);
	for (uint64_t k = 0; k < 3; k++)
		expect_fill(&m, k + 1, 0, k);
	answer(&m, 1, 1, false);
	answer_large(&m, 2, LARGE, 'L');
	expect_taken(&m, 2);
	answer(&m, 3, 1, false);
	take(&a, 0, 0);
	Batchd__Wire__Batch large = expect_large(&a, 1, LARGE, 'L');
	expect_batch(&a, 0, 2, 1);
	seek_to(&a, 0, 1);
	large = expect_large(&a, 1, LARGE, 'L');
	release(&a, large.slot, large.generation);
	take(&b, 0, 0);
	expect_large(&b, 1, LARGE, 'L');
	expect_fill(&m, 4, 0, 3);
	close_and_hang_up(&a);
	close_and_hang_up(&b);
	fd = ask_open(open_of_rank(0));
	const Batchd__Wire__ServerMessage *p;
	int slab = -1;
	while ((p = receive(m.fd, &slab)) && p->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_FILL)
		;
	ck_assert(p && p->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_PRODUCING);
	ck_assert_uint_eq(p->producing->room_bytes, LARGE);
	ck_assert_uint_ge(p->producing->slot_bytes, LARGE);
	answer_large(&m, 4, LARGE / 2, 'x'); /* it did not fit the slot that it was made for, whose job has closed */
	expect_taken(&m, 4);
	close(slab);
	close(fd);
	close(m.fd);
	stop_daemon();
}
END_TEST

START_TEST(test_memory_that_is_no_batch_costs_a_producer_its_connection)
{
	/* Each seal is missing once; memory of another size; of none; more than the limit; a
	 * file; a pipe; with an end, and with a skipped batch; two descriptors; in huge pages, where there are any. */
	enum { SEAL, SIZE = 3, EMPTY, LIMIT, A_FILE, A_PIPE, END, SKIPPED, TWO, HUGE_PAGES, N };
	for (int i = 0; i < N; i++) {
		const int missing[] = { F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE };
		Batchd__Wire__Filled f = filled_with(1, LARGE);
		int fds[2] = { -1, -1 };
		start_daemon();
		struct test_producer m = produce_with(usual_produce());
		int fd = ask_open(served_open());
		take_slab(&m);
		struct client c = await_opened(fd);
		seek_to(&c, 0, 0);
		next_fill(&m);
		next_fill(&m);
		if (i == A_FILE) {
			fds[0] = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
			ck_assert_int_eq(ftruncate(fds[0], LARGE), 0);
		} else if (i == A_PIPE) {
			ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
			close(fds[1]);
		} else if (i == HUGE_PAGES) {
			fds[0] = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
			if (fds[0] >= 0 && (ftruncate(fds[0], 2 << 20) || fcntl(fds[0], F_ADD_SEALS, SEALS)))
				ck_abort_msg("%s", strerror(errno));
			f.n_bytes = 2 << 20;
		} else {
			fds[0] = large_memory(LARGE, i < SIZE ? SEALS & ~missing[i] : SEALS, 'x');
		}
		if (i == SIZE)
			f.n_bytes--;
		if (i == EMPTY)
			f.n_bytes = 0;
		if (i == LIMIT)
			f.n_bytes = UINT64_MAX;
		f.end = i == END;
		f.skipped = i == SKIPPED;
		if (i == TWO)
			fds[1] = large_memory(LARGE, SEALS, 'x');
		if (fds[0] < 0 && i == HUGE_PAGES) { /* this kernel has none */
			end_alone(&m, &c);
			continue;
		}
		answer_with_fds(&m, f, fds, i == TWO ? 2 : 1);
		ck_assert_int_eq(last_words(m.fd), i == LIMIT ? BATCHD__WIRE__ERROR_CODE__LIMIT
						   : i == TWO ? BATCHD__WIRE__ERROR_CODE__PROTOCOL
							      : BATCHD__WIRE__ERROR_CODE__INVALID);
		ck_assert_int_eq(last_words(c.fd), BATCHD__WIRE__ERROR_CODE__PRODUCER);
		end_alone(&m, &c);
	}
}
END_TEST

static void little_memory(struct config *c)
{
	c->memory_bytes = 160 << 20;
}

/* Makes large batches until there is no memory for the next one, which is not taken. Returns that one's fill. */
static uint64_t fill_memory(struct test_producer *m, uint64_t n_bytes)
{
	struct pollfd p = { m->fd, POLLIN, 0 };
	for (uint64_t asked = 0, taken = 0, answered = 0;;) {
		while (asked == answered || poll(&p, 1, 200) > 0) {
			Batchd__Wire__Fill f = any_fill(m);
			taken += f.taken;
			asked += !f.taken;
		}
		if (taken < answered)
			return answered;
		answered++;
		answer_large(m, answered, n_bytes, (char)('a' + answered));
	}
}

START_TEST(test_a_large_batch_waits_until_its_job_gives_one_back)
{
	/* Nothing else can be answered meanwhile: that ends the producer. */
	for (int impatient = 0; impatient < 2; impatient++) {
		start_daemon_with(little_memory);
		Batchd__Wire__Open o = served_open();
		o.n_slots = 8;
		struct test_producer m = produce_with(usual_produce());
		int fd = ask_open(o);
		take_slab(&m);
		struct client c = await_opened(fd);
		const uint64_t n_bytes = 48 << 20;
		seek_to(&c, 0, 0);
		uint64_t last = fill_memory(&m, n_bytes);
		ck_assert_uint_ge(last, 2);
		if (impatient) {
			answer(&m, last + 1, 1, false);
			ck_assert_int_eq(last_words(m.fd), BATCHD__WIRE__ERROR_CODE__PROTOCOL);
		} else {
			Batchd__Wire__Batch b = expect_large(&c, 0, n_bytes, 'b');
			release(&c, b.slot, b.generation);
			expect_taken(&m, last);
			for (uint64_t k = 1; k < last; k++)
				expect_large(&c, k, n_bytes, (char)('b' + k));
		}
		end_alone(&m, &c);
	}
}
END_TEST

START_TEST(test_a_large_batch_for_which_memory_never_comes_ends_its_job)
{
	/* The producer is left alone: another job gets its batches, in slots, or not at all. */
	start_daemon_with(little_memory);
	struct test_producer m = produce_with(usual_produce());
	int fd = ask_open(served_open());
	take_slab(&m);
	struct client c = await_opened(fd);
	seek_to(&c, 0, 0);
	next_fill(&m);
	answer_large(&m, 1, 300 << 20, 'x');
	const Batchd__Wire__ServerMessage *e;
	do
		e = receive(c.fd, NULL);
	while (e && e->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR);
	ck_assert_ptr_nonnull(e);
	ck_assert_int_eq(e->error->code, BATCHD__WIRE__ERROR_CODE__LIMIT);
	ck_assert_ptr_nonnull(
		strstr(e->error->text, "a batch of producer 'speech', which does not fit its slot, needs 300"));
	expect_taken(&m, 1);
	end_alone(&m, &c);
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
	tcase_add_test(t, test_a_batch_that_does_not_fit_comes_in_a_memfd);
	tcase_add_test(t, test_memory_that_is_no_batch_costs_a_producer_its_connection);
	tcase_add_test(t, test_a_large_batch_waits_until_its_job_gives_one_back);
	tcase_add_test(t, test_a_large_batch_for_which_memory_never_comes_ends_its_job);
	tcase_add_test(t, test_producers_are_limited_and_the_newer_takes_the_name);
	tcase_add_test(t, test_a_user_leaves_places_to_others);
	tcase_add_test(t, test_a_seek_takes_back_what_was_asked_for);
	tcase_add_test(t, test_a_group_of_known_size_begins_when_all_of_it_are_there);
	tcase_add_test(t, test_a_trainer_that_returns_to_a_group_gets_what_the_others_have_had_meanwhile);
	tcase_add_test(t, test_a_trainer_that_waits_for_the_next_epoch_is_not_where_the_group_is);
	tcase_add_test(t, test_the_groups_next_batch_is_where_all_of_it_wait);
	tcase_add_test(t, test_a_trainer_that_has_not_begun_keeps_no_other_waiting);
	tcase_add_test(t, test_a_latecomer_begins_with_a_batch_that_no_trainer_has_had);
	suite_add_tcase(s, t);
	return s;
}
