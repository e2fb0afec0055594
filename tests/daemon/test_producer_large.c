/* Batches of a producer that do not fit their slots, packet by packet. */
#include <check.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "support/producers.h"
#include "support/suite.h"

static void end_alone(struct test_producer *m, struct client *c)
{
	hang_up(c);
	close(m->fd);
	stop_daemon();
}

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

SUITE(producer_large)
{
	Suite *s = suite_create("producer_large");
	TCase *t = tcase_create("producer_large");
	tcase_add_test(t, test_a_batch_that_does_not_fit_comes_in_a_memfd);
	tcase_add_test(t, test_memory_that_is_no_batch_costs_a_producer_its_connection);
	tcase_add_test(t, test_a_large_batch_waits_until_its_job_gives_one_back);
	tcase_add_test(t, test_a_large_batch_for_which_memory_never_comes_ends_its_job);
	suite_add_tcase(s, t);
	return s;
}
