/* Open share groups, tested packet by packet: where a trainer that joins begins, what each policy does to a trainer
 * that releases nothing, what its batches say about it, and what is refused. tests/unit/batch/test_share.c tests the
 * same state machine without sockets. */
#include <sys/mman.h>

#include "support/packets.h"
#include "support/suite.h"

enum { PER_EPOCH = 100, ROWS = 10 };

#define START(name) BATCHD__WIRE__START__AT_##name
#define POLICY(name) BATCHD__WIRE__POLICY__POLICY_##name

struct member {
	struct client c;
	const uint8_t *slab;
	struct {
		uint32_t slot;
		uint64_t generation;
	} held[64];
	unsigned n_held;
};

static Batchd__Wire__Open group_open(Batchd__Wire__Policy policy)
{
	Batchd__Wire__Open o = usual_open();
	o.mode = BATCHD__WIRE__MODE__SHARE;
	o.rank = -1;
	o.policy = policy;
	return o;
}

static struct member come(Batchd__Wire__Policy policy)
{
	struct member m = { .c = join_with(group_open(policy)) };
	m.slab = mmap(NULL, m.c.slab_bytes, PROT_READ, MAP_SHARED, m.c.slab, 0);
	ck_assert_ptr_ne(m.slab, MAP_FAILED);
	return m;
}

static void leave(struct member *m)
{
	munmap((void *)m->slab, m->c.slab_bytes);
	hang_up(&m->c);
}

/* The next batch, which is kept: checks that it has the rows that its epoch and step name, whichever other trainers
 * there are. */
static Batchd__Wire__Batch keep(struct member *m)
{
	Batchd__Wire__Batch b = next_batch(&m->c);
	const int64_t *indices =
		(const int64_t *)(const void *)(m->slab + b.slot * m->c.slot_bytes + m->c.indices_offset);
	ck_assert_uint_eq(b.seek, m->c.seek);
	ck_assert_uint_eq(b.n_rows, ROWS);
	for (unsigned i = 0; i < ROWS; i++)
		ck_assert_int_eq(indices[i], (int64_t)(b.step * ROWS + i));
	ck_assert_uint_lt(m->n_held, 64);
	m->held[m->n_held].slot = b.slot;
	m->held[m->n_held++].generation = b.generation;
	return b;
}

static void give_back_all(struct member *m)
{
	while (m->n_held) {
		m->n_held--;
		release(&m->c, m->held[m->n_held].slot, m->held[m->n_held].generation);
	}
}

static Batchd__Wire__Batch take(struct member *m)
{
	Batchd__Wire__Batch b = keep(m);
	give_back_all(m);
	return b;
}

static uint64_t place(const Batchd__Wire__Batch *b)
{
	return b->epoch * PER_EPOCH + b->step;
}

/* ---- joining ---- */

START_TEST(test_the_answer_to_join_says_where_the_first_batch_will_be)
{
	/* The first trainer of a group begins at the beginning however it asks. Then three others join: one for the
	 * next batch; one for the epoch's start, which gets all of it, apart from the group until it has caught up; and
	 * one for the next epoch, which gets nothing before the group reaches it. */
	static const Batchd__Wire__Start how[] = { START(NEXT), START(EPOCH), START(START) };
	for (unsigned i = 0; i < 3; i++) {
		start_daemon();
		struct member first = come(POLICY(DETACH));
		Batchd__Wire__Joined at = join_group(&first.c, how[i]);
		ck_assert(at.epoch == 0 && at.base_sample == 0 && at.step == 0);
		uint64_t last = 0;
		for (unsigned n = 0; n < 40; n++) {
			Batchd__Wire__Batch b = take(&first);
			ck_assert_uint_eq(last = place(&b), n);
			ck_assert(!b.apart && !b.n_skipped);
		}
		struct member late = come(POLICY(DETACH));
		at = join_group(&late.c, how[i]);
		if (how[i] == START(NEXT)) {
			ck_assert_uint_eq(at.epoch, 0);
			ck_assert_uint_gt(at.step, last); /* the first has been sent some more */
			ck_assert_uint_le(at.step, last + 1 + first.c.n_slots);
		} else {
			ck_assert(at.epoch == (how[i] == START(EPOCH) ? 1 : 0) && at.step == 0);
		}
		if (how[i] == START(EPOCH))
			ck_assert(gets_none(&late.c, 50));
		bool was_apart = false;
		for (uint64_t n = at.epoch * PER_EPOCH + at.step, k = last + 1; n < 120; n++) {
			for (; k <= n + 2 && how[i] != START(START); k++) { /* the two trainers are never far from each
			                                                     * other */
				Batchd__Wire__Batch b = take(&first);
				ck_assert_uint_eq(place(&b), k);
			}
			Batchd__Wire__Batch b = take(&late);
			ck_assert_uint_eq(place(&b), n);
			ck_assert_uint_eq(b.n_skipped, 0);
			was_apart |= b.apart;
			if (how[i] == START(START) && n > last)
				take(&first);
		}
		ck_assert_int_eq(was_apart, how[i] == START(START));
		leave(&first);
		leave(&late);
		stop_daemon();
	}
}
END_TEST

START_TEST(test_a_join_that_makes_no_sense_is_refused)
{
	/* In shard mode, in a group of known size, with a seek number that does not grow, before Opened. */
	start_daemon();
	for (int i = 0; i < 4; i++) {
		Batchd__Wire__Open o = group_open(POLICY(DEFAULT));
		Batchd__Wire__Join j = BATCHD__WIRE__JOIN__INIT;
		j.seek = 7;
		if (i == 0) {
			o.mode = BATCHD__WIRE__MODE__SHARD;
		} else if (i == 1) {
			o.world_size = 2;
			o.rank = 0;
		}
		struct client c = { .fd = dial(), .slab = -1 };
		greet(c.fd);
		if (i < 3) {
			hang_up(&c);
			c = join_with(o);
		}
		if (i == 2) {
			c.seek = 6;
			join_group(&c, START(NEXT));
		}
		SEND(c.fd, JOIN, join, &j);
		ck_assert_int_eq(last_words(c.fd), i < 2 ? CODE(INVALID) : CODE(PROTOCOL));
		hang_up(&c);
	}
	check_it_serves();
	stop_daemon();
}
END_TEST

/* ---- policies ---- */

START_TEST(test_a_trainer_that_gives_nothing_back_gets_its_share_and_no_more)
{
	/* It gets as many as Opened has said; the others continue for two epochs beside it, and its batches do not
	 * change. */
	static const Batchd__Wire__Policy policies[] = { POLICY(SKIP), POLICY(DETACH) };
	for (unsigned i = 0; i < 2; i++) {
		start_daemon();
		struct member stuck = come(policies[i]), a = come(policies[i]), b = come(policies[i]);
		join_group(&stuck.c, START(NEXT));
		join_group(&a.c, START(START));
		join_group(&b.c, START(START));
		ck_assert_uint_ge(stuck.c.window, 2);
		for (uint32_t n = 0; n < stuck.c.window; n++) {
			if (n == 1) { /* the others must continue, too, for a second batch to come */
				take(&a);
				take(&b);
			}
			keep(&stuck);
		}
		uint64_t from = 1;
		for (; from < 2 * PER_EPOCH; from++) {
			Batchd__Wire__Batch x = take(&a), y = take(&b);
			ck_assert(place(&x) == from && place(&y) == from && !x.n_skipped && !y.n_skipped);
		}
		ck_assert(gets_none(&stuck.c, 0));
		const int64_t *indices =
			(const int64_t *)(const void *)(stuck.slab + stuck.held[0].slot * stuck.c.slot_bytes +
							stuck.c.indices_offset);
		ck_assert_int_eq(indices[0], 0);
		/* It continues: with skip after the batches that it missed, which are counted; with detach where it
		 * was, and the counts are zero. */
		uint64_t had = stuck.c.window;
		give_back_all(&stuck);
		uint64_t skipped = 0, apart = 0;
		for (int n = 0; n < 20; n++) {
			Batchd__Wire__Batch x = take(&stuck);
			had += x.n_skipped;
			ck_assert_uint_eq(place(&x), had++);
			skipped += x.n_skipped;
			apart += x.apart;
			if (policies[i] == POLICY(SKIP))
				take(&a), take(&b);
		}
		ck_assert_int_eq(skipped > 0, policies[i] == POLICY(SKIP));
		ck_assert_int_eq(apart > 0, policies[i] == POLICY(DETACH));
		leave(&stuck);
		leave(&a);
		leave(&b);
		stop_daemon();
	}
}
END_TEST

START_TEST(test_with_wait_the_others_get_as_far_as_there_are_slots)
{
	/* The others continue as soon as one batch is given back, or the slow trainer leaves. */
	start_daemon();
	struct member slow = come(POLICY(WAIT)), fast = come(POLICY(WAIT));
	join_group(&slow.c, START(START));
	join_group(&fast.c, START(START));
	keep(&slow);
	uint64_t n = 1;
	take(&fast);
	take(&fast);
	while (!gets_none(&fast.c, 200)) {
		take(&fast);
		ck_assert_uint_le(++n, slow.c.n_slots);
	}
	give_back_all(&slow);
	for (unsigned k = 1; k <= n + 3; k++) {
		Batchd__Wire__Batch b = take(&slow);
		ck_assert_uint_eq(place(&b), k);
		ck_assert(!b.n_skipped && !b.apart);
	}
	for (unsigned k = 1; k <= 3; k++) {
		Batchd__Wire__Batch b = take(&fast);
		ck_assert_uint_eq(place(&b), n + k);
	}
	leave(&slow);
	for (unsigned k = 4; k < 2 * PER_EPOCH; k++) {
		Batchd__Wire__Batch b = take(&fast);
		ck_assert_uint_eq(place(&b), n + k);
	}
	leave(&fast);
	stop_daemon();
}
END_TEST

/* ---- what is refused ---- */

static int refusal(Batchd__Wire__Open o, const char *field)
{
	int fd = dial();
	greet(fd);
	const Batchd__Wire__ServerMessage *m = answer_to_open(fd, &o, NULL);
	ck_assert_ptr_nonnull(m);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR);
	ck_assert_str_eq(m->error->field, field);
	int code = (int)m->error->code;
	close(fd);
	return code;
}

START_TEST(test_what_a_group_cannot_have_is_refused_by_its_field)
{
	/* Slices that do not fit, a policy in shard mode, another policy or batch than the group's. Another slice size
	 * is accepted. */
	start_daemon();
	Batchd__Wire__Open o = group_open(POLICY(SKIP));
	o.own_batch_size = 4;
	ck_assert_int_eq(refusal(o, "own_batch_size"), CODE(INVALID));
	o.own_batch_size = 20;
	ck_assert_int_eq(refusal(o, "own_batch_size"), CODE(INVALID));
	o.own_batch_size = 5;
	struct client c = join_with(o);
	o.own_batch_size = 2;
	struct client d = join_with(o);
	o.policy = POLICY(WAIT);
	ck_assert_int_eq(refusal(o, "policy"), CODE(MISMATCH));
	o.policy = POLICY(SKIP);
	o.batch_size = 20;
	ck_assert_int_eq(refusal(o, "batch_size"), CODE(MISMATCH));
	o = usual_open();
	o.policy = POLICY(SKIP);
	ck_assert_int_eq(refusal(o, "policy"), CODE(INVALID));
	o = usual_open();
	o.own_batch_size = 5;
	ck_assert_int_eq(refusal(o, "own_batch_size"), CODE(INVALID));
	hang_up(&c);
	hang_up(&d);
	stop_daemon();
}
END_TEST

static void many_sessions(struct config *c)
{
	c->limits.sessions = c->limits.sessions_per_user = 200;
}

START_TEST(test_a_group_has_sixty_four_places)
{
	/* The next trainer gets an error, and gets the place of the first that leaves. */
	start_daemon_with(many_sessions);
	Batchd__Wire__Open o = group_open(POLICY(DEFAULT));
	o.n_slots = 2;
	struct client c[64];
	for (int i = 0; i < 64; i++)
		c[i] = join_with(o);
	ck_assert_int_eq(refusal(o, "world_size"), CODE(LIMIT));
	struct client *last = &c[63];
	Batchd__Wire__Close bye = BATCHD__WIRE__CLOSE__INIT;
	SEND(last->fd, CLOSE, close, &bye);
	ck_assert_int_eq(last_words(last->fd), -1); /* it has left when the connection is closed */
	hang_up(last);
	*last = join_with(o);
	join_group(last, START(START));
	ck_assert_uint_eq(next_batch(last).step, 0);
	for (int i = 0; i < 64; i++)
		hang_up(&c[i]);
	stop_daemon();
}
END_TEST

SUITE(group)
{
	Suite *s = suite_create("group");
	TCase *t = tcase_create("group");
	tcase_add_test(t, test_the_answer_to_join_says_where_the_first_batch_will_be);
	tcase_add_test(t, test_a_join_that_makes_no_sense_is_refused);
	tcase_add_test(t, test_a_trainer_that_gives_nothing_back_gets_its_share_and_no_more);
	tcase_add_test(t, test_with_wait_the_others_get_as_far_as_there_are_slots);
	tcase_add_test(t, test_what_a_group_cannot_have_is_refused_by_its_field);
	tcase_add_test(t, test_a_group_has_sixty_four_places);
	suite_add_tcase(s, t);
	return s;
}
