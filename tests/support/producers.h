/* Producers, packet by packet, for suites of a whole daemon: what they send, what they and their trainers are sent. */
#ifndef BATCHD_TESTS_PRODUCERS_H
#define BATCHD_TESTS_PRODUCERS_H

#include "support/packets.h"

struct test_producer {
	int fd, slab[4];
	uint32_t n_slots;
	uint64_t slot_bytes;
};

static inline Batchd__Wire__Produce usual_produce(void)
{
	Batchd__Wire__Produce p = BATCHD__WIRE__PRODUCE__INIT;
	p.name = (char *)"speech";
	p.slot_bytes = 5000;
	return p;
}

static inline int try_produce(Batchd__Wire__Produce p)
{
	int fd = dial();
	greet(fd);
	SEND(fd, PRODUCE, produce, &p);
	return fd;
}

static inline struct test_producer produce_with(Batchd__Wire__Produce p)
{
	struct test_producer m = { .fd = try_produce(p), .slab = { -1, -1, -1, -1 } };
	const Batchd__Wire__ServerMessage *a = receive(m.fd, NULL);
	ck_assert_ptr_nonnull(a);
	ck_assert_int_eq(a->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_PRODUCING);
	ck_assert_uint_eq(a->producing->slab, 0);
	return m;
}

/* Takes a slab and says that it is mapped; nothing is mapped here, because only messages are checked. */
static inline uint32_t take_slab(struct test_producer *m)
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
static inline Batchd__Wire__Fill any_fill(struct test_producer *m)
{
	const Batchd__Wire__ServerMessage *a = receive(m->fd, NULL);
	ck_assert_ptr_nonnull(a);
	if (a->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR)
		ck_abort_msg("%s", a->error->text);
	ck_assert_int_eq(a->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_FILL);
	return *a->fill;
}

static inline Batchd__Wire__Fill next_fill(struct test_producer *m)
{
	Batchd__Wire__Fill f;
	do
		f = any_fill(m);
	while (f.cancel);
	return f;
}

static inline void expect_fill(struct test_producer *m, uint64_t number, uint64_t epoch, uint64_t step)
{
	Batchd__Wire__Fill f = next_fill(m);
	ck_assert_uint_eq(f.fill, number);
	ck_assert_msg(f.epoch == epoch && f.step == step, "fill %d is for batch %d of epoch %d", (int)number,
		      (int)f.step, (int)f.epoch);
}

static inline void answer(struct test_producer *m, uint64_t fill, uint32_t n_rows, bool end)
{
	Batchd__Wire__Filled f = BATCHD__WIRE__FILLED__INIT;
	f.fill = fill;
	f.n_rows = n_rows;
	f.end = end;
	SEND(m->fd, FILLED, filled, &f);
}

static inline void answer_skipped(struct test_producer *m, uint64_t fill)
{
	Batchd__Wire__Filled f = BATCHD__WIRE__FILLED__INIT;
	f.fill = fill;
	f.skipped = true;
	SEND(m->fd, FILLED, filled, &f);
}

static inline bool is_quiet(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };
	return poll(&p, 1, 50) == 0;
}

static inline Batchd__Wire__Open served_open(void)
{
	Batchd__Wire__Open o = usual_open();
	o.sources = sources_of("serve:speech");
	o.n_slots = 3;
	return o;
}

/* An Open whose answer waits for the producer's. */
static inline int ask_open(Batchd__Wire__Open o)
{
	int fd = dial();
	greet(fd);
	SEND(fd, OPEN, open, &o);
	return fd;
}

static inline struct client await_opened(int fd)
{
	struct client c = { .fd = fd, .slab = -1 };
	const Batchd__Wire__ServerMessage *m = await_answer(&c);
	ck_assert_ptr_nonnull(m);
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR)
		ck_abort_msg("%s", m->error->text);
	ck_assert(m->opened->served);
	return c;
}

static inline Batchd__Wire__Open open_of_rank(int rank)
{
	Batchd__Wire__Open o = served_open();
	o.world_size = 2;
	o.rank = rank;
	return o;
}

static inline void expect_batch(struct client *c, uint64_t epoch, uint64_t step, uint32_t n_rows)
{
	Batchd__Wire__Batch b = next_batch(c);
	ck_assert_msg(b.epoch == epoch && b.step == step && b.n_rows == n_rows && b.last == !n_rows,
		      "batch %d of epoch %d has %u rows", (int)b.step, (int)b.epoch, b.n_rows);
}

static inline Batchd__Wire__Open shared_open(uint32_t n_slots)
{
	Batchd__Wire__Open o = served_open();
	o.mode = BATCHD__WIRE__MODE__SHARE;
	o.rank = -1;
	o.n_slots = n_slots;
	return o;
}

static inline void close_and_hang_up(struct client *c)
{
	Batchd__Wire__Close body = BATCHD__WIRE__CLOSE__INIT;
	SEND(c->fd, CLOSE, close, &body);
	hang_up(c);
}

static inline void take(struct client *c, uint64_t epoch, uint64_t step)
{
	Batchd__Wire__Batch b = next_batch(c);
	ck_assert_msg(b.epoch == epoch && b.step == step, "batch %d of epoch %d", (int)b.step, (int)b.epoch);
	release(c, b.slot, b.generation);
}

#endif
