/* Share groups that are not in lockstep: late, slow, stopped and leaving trainers. A trainer must be given, batch for
 * batch, what it would be given alone, and one trainer's behaviour must not keep another waiting. */
#include "batch/group.h"
#include "batch/stream-impl.h"
#include "support/streams.h"

enum { BATCH = 4, SAMPLES = 80, PER_EPOCH = SAMPLES / BATCH };

static struct fixture f;

static void begin(enum group_policy policy, uint32_t size)
{
	setup(&f,
	      (struct loader_spec){ .batch_size = BATCH,
				    .world_size = size,
				    .share = true,
				    .shuffle = true,
				    .seed = 3,
				    .policy = policy },
	      SAMPLES);
	ck_assert(f.loader->is_async);
}

/* Joins as the daemon lets a session join: with memory for its share. */
static struct trainer *come(uint32_t place, uint32_t window)
{
	struct group *g = &f.loader->group;
	if (!g->slots) {
		struct slots *slots;
		uint32_t share = group_slot_quota(window, 0);
		ck_assert_int_eq(slots_create(&f.loader->layout, window + share * (g->n_places - 1 + GROUP_ORPHANS),
					      window, &slots),
				 0);
		group_set_slots(g, slots, window, share);
	}
	uint32_t missing = group_n_missing(g);
	ck_assert_int_eq(slots_extend(g->slots, missing), 0);
	g->slots->n_made += missing;
	return attach(loader_stream(f.loader, 0), place);
}

static struct trainer *come_and_seek(uint32_t place, uint64_t epoch, uint64_t step)
{
	struct trainer *t = come(place, 4);
	ck_assert_int_eq(loader_seek(&t->c, 1, &(struct position){ .epoch = epoch, .step = step }), 0);
	return t;
}

static struct position join(struct trainer *t, enum group_start how)
{
	struct position at;
	group_join(&t->c, 1, how, &at);
	group_pump(&f.loader->group);
	return at;
}

/* The samples of a batch according to the plan, computed without any stream. */
static void check_batch(const struct got *g)
{
	struct plan_spec spec = { .n_samples = SAMPLES,
				  .seed = 3,
				  .epoch = g->at.epoch,
				  .base = g->at.base,
				  .world_size = 1,
				  .shuffle = true };
	struct plan *plan;
	ck_assert_int_eq(plan_create(&spec, &plan), 0);
	ck_assert_uint_eq(g->n_rows, BATCH);
	for (uint32_t row = 0; row < g->n_rows; row++)
		ck_assert_int_eq(g->indices[row], (int64_t)plan_at(plan, 0, g->at.step * BATCH + row));
	ck_assert_int_eq(g->last, g->at.step == PER_EPOCH - 1);
	plan_unref(plan);
}

/* Everything that the trainer was given from `first` on is correct, one batch after the other. */
static void check_golden(const struct trainer *t, uint64_t epoch, uint64_t step)
{
	for (unsigned i = 0; i < t->n; i++) {
		ck_assert_uint_eq(t->got[i].at.epoch, epoch + (step + i) / PER_EPOCH);
		ck_assert_uint_eq(t->got[i].at.step, (step + i) % PER_EPOCH);
		check_batch(&t->got[i]);
	}
}

static unsigned count_cohorts(void)
{
	unsigned n = 0;
	for (uint32_t i = 0; i < f.loader->streams.n; i++)
		n += f.loader->streams.list[i]->n_members > 0;
	return n;
}

START_TEST(test_trainers_at_one_place_share_their_batches)
{
	/* Four in step: each batch is made once, and all four see the plan's. */
	begin(GROUP_DETACH, 1);
	struct trainer *t[4];
	for (uint32_t i = 0; i < 4; i++)
		t[i] = come_and_seek(i, 0, 0);
	for (unsigned n = 1; n <= 2 * PER_EPOCH; n++)
		for (int i = 0; i < 4; i++)
			consume(&f, t[i], n);
	ck_assert_uint_eq(count_cohorts(), 1);
	ck_assert_uint_le(tally_sum(&f.loader->host.source->sums, SOURCE_ROWS), 2 * SAMPLES + 13 * BATCH);
	for (int i = 0; i < 4; i++) {
		check_golden(t[i], 0, 0);
		ck_assert_uint_eq(t[i]->c.n_skipped, 0);
		leave(t[i]);
	}
	teardown(&f);
}
END_TEST

START_TEST(test_a_stopped_trainer_holds_up_no_other)
{
	/* The stopped trainer holds all that it may. Under skip and detach the others continue for epochs, one batch
	 * after the other, and no slot that it holds is filled again. */
	for (enum group_policy policy = GROUP_SKIP; policy <= GROUP_DETACH; policy++) {
		begin(policy, 1);
		struct trainer *stopped = come_and_seek(0, 0, 0), *a = come_and_seek(1, 0, 0),
			       *b = come_and_seek(2, 0, 0);
		for (unsigned n = 1; n <= 4 * PER_EPOCH; n++) {
			consume(&f, a, n);
			consume(&f, b, n);
		}
		check_golden(a, 0, 0);
		check_golden(b, 0, 0);
		ck_assert_uint_eq(a->c.n_skipped + b->c.n_skipped, 0);
		ck_assert_ptr_eq(a->c.stream, b->c.stream);
		ck_assert_uint_le(stopped->n, GROUP_SHARE);
		for (unsigned i = 0; i < stopped->n; i++)
			ck_assert_uint_eq(stopped->c.slots->slot[stopped->got[i].slot].generation,
					  stopped->got[i].generation);
		check_golden(stopped, 0, 0);
		leave(stopped);
		leave(a);
		leave(b);
		teardown(&f);
	}
}
END_TEST

START_TEST(test_a_trainer_left_with_a_stopped_one_goes_on)
{
	/* One trainer is stopped, another has just as many batches as it needs, when a third leaves. The group has
	 * fewer slots then, and drops batches that it made for the stopped one, newest first, down to before the
	 * position of the second. That one continues all the same. */
	for (enum group_policy policy = GROUP_SKIP; policy <= GROUP_DETACH; policy++) {
		enum { WINDOW = 16, SHARE = 4, SLOTS = WINDOW + 2 * SHARE, ENOUGH = 3 };
		struct trainer *t[3]; /* stopped, continuing, leaving */
		begin(policy, 1);
		for (uint32_t i = 0; i < 3; i++) {
			t[i] = come(i, WINDOW);
			ck_assert_int_eq(loader_seek(&t[i]->c, 1, &(struct position){ 0 }), 0);
		}
		wait_for(&f, t[0], SHARE);
		for (unsigned n = 1; n <= SLOTS - ENOUGH; n++)
			for (int i = 1; i < 3; i++)
				consume(&f, t[i], n);
		wait_for(&f, t[1], SLOTS);
		wait_for(&f, t[2], SLOTS);
		ck_assert_uint_eq(t[1]->c.n_leases, ENOUGH);
		leave(t[2]);
		struct position cursor = t[1]->c.cursor;
		ck_assert_int_lt(position_compare(&t[1]->c.stream->next, &cursor), 0);
		for (unsigned n = SLOTS - ENOUGH + 1; n <= 5 * PER_EPOCH; n++)
			consume(&f, t[1], n);
		check_golden(t[1], 0, 0);
		ck_assert_uint_eq(t[1]->c.n_skipped, 0);
		leave(t[0]);
		leave(t[1]);
		teardown(&f);
	}
}
END_TEST

START_TEST(test_all_but_one_stopped_at_different_places)
{
	/* Each trainer stops with as many different batches as it may hold: the worst case. The last one continues. */
	for (enum group_policy policy = GROUP_SKIP; policy <= GROUP_DETACH; policy++) {
		enum { N = 12 };
		struct trainer *t[N];
		begin(policy, 1);
		for (uint32_t i = 0; i < N; i++)
			t[i] = come_and_seek(i, 0, 0);
		for (unsigned alive = N; alive > 0; alive--) { /* t[alive - 1] stops next */
			unsigned until = (N - alive + 1) * 2 * GROUP_SHARE;
			for (unsigned n = (N - alive) * 2 * GROUP_SHARE + 1; n <= until; n++)
				for (unsigned i = 0; i < alive; i++)
					consume(&f, t[i], n);
		}
		for (unsigned n = t[0]->released + 1; n <= 10 * PER_EPOCH; n++)
			consume(&f, t[0], n);
		check_golden(t[0], 0, 0);
		for (unsigned i = 0; i < N; i++) {
			ck_assert_uint_le(t[i]->c.n_leases, GROUP_SHARE);
			leave(t[i]);
		}
		teardown(&f);
	}
}
END_TEST

START_TEST(test_with_policy_wait_the_group_waits_for_its_slowest)
{
	/* As far as the slots reach; then no trainer gets more, and none misses any. */
	begin(GROUP_WAIT, 1);
	struct trainer *slow = come_and_seek(0, 0, 0), *a = come_and_seek(1, 0, 0);
	unsigned n = 0;
	wait_for(&f, slow, GROUP_SHARE);
	consume(&f, a, 4);
	for (int idle = 0; idle < 200;) {
		while (a->released < a->n) {
			ck_assert_int_eq(
				stream_release(&a->c, a->got[a->released].slot, a->got[a->released].generation), 0);
			a->released++;
		}
		consumer_waits(&a->c);
		uv_run(&f.loop, UV_RUN_NOWAIT);
		idle = a->n == n ? idle + 1 : 0;
		n = a->n;
	}
	ck_assert_uint_le(n, f.loader->group.slots->n_made);
	ck_assert_uint_ge(n, 4);
	consume(&f, slow, n);
	for (unsigned k = n; k <= 2 * PER_EPOCH; k++) {
		consume(&f, a, k);
		consume(&f, slow, k);
	}
	check_golden(slow, 0, 0);
	check_golden(a, 0, 0);
	ck_assert_uint_eq(count_cohorts(), 1);
	leave(slow);
	leave(a);
	teardown(&f);
}
END_TEST

START_TEST(test_a_trainer_that_skips_is_told_how_many_it_missed)
{
	/* Its batches are correct and in order, and the gaps are exactly those that are reported to it. */
	begin(GROUP_SKIP, 1);
	struct trainer *slow = come_and_seek(0, 0, 0), *a = come_and_seek(1, 0, 0);
	uint64_t told = 0, at = 0;
	for (unsigned n = 1; n <= 6 * PER_EPOCH; n++) {
		consume(&f, a, n);
		if (n % 7 == 0) {
			wait_for(&f, slow, slow->released + 1);
			const struct got *g = &slow->got[slow->released];
			ck_assert_int_eq(stream_release(&slow->c, g->slot, g->generation), 0);
			slow->released++;
		}
	}
	for (unsigned i = 0; i < slow->n; i++) {
		const struct got *g = &slow->got[i];
		check_batch(g);
		told += g->n_missed;
		at += g->n_missed;
		ck_assert_uint_eq(g->at.epoch * PER_EPOCH + g->at.step, at);
		at++;
	}
	ck_assert_uint_gt(told, 3 * PER_EPOCH);
	ck_assert_uint_le(told, slow->c.n_skipped);
	ck_assert_uint_ge(f.loader->group.n_skipped, slow->c.n_skipped);
	check_golden(a, 0, 0);
	leave(slow);
	leave(a);
	teardown(&f);
}
END_TEST

START_TEST(test_a_detached_trainer_misses_nothing)
{
	/* It continues where it was, at its own pace, and meets the others again when they wait for it. */
	begin(GROUP_DETACH, 1);
	struct trainer *slow = come_and_seek(0, 0, 0), *a = come_and_seek(1, 0, 0), *b = come_and_seek(2, 0, 0);
	for (unsigned n = 1; n <= 2 * PER_EPOCH; n++) {
		consume(&f, a, n);
		consume(&f, b, n);
		if (n % 5 == 0)
			consume(&f, slow, n / 5);
	}
	ck_assert(group_is_apart(&slow->c));
	ck_assert(!group_is_apart(&a->c));
	ck_assert_uint_eq(f.loader->group.n_detached, 1);
	ck_assert_uint_eq(count_cohorts(), 2);
	consume(&f, slow, 2 * PER_EPOCH + 2); /* the other trainers take nothing meanwhile */
	ck_assert_uint_eq(count_cohorts(), 1);
	ck_assert(!group_is_apart(&slow->c));
	for (unsigned n = 2 * PER_EPOCH + 3; n <= 3 * PER_EPOCH; n++) {
		consume(&f, slow, n);
		consume(&f, a, n);
		consume(&f, b, n);
	}
	check_golden(slow, 0, 0);
	check_golden(a, 0, 0);
	check_golden(b, 0, 0);
	ck_assert_uint_eq(slow->c.n_skipped, 0);
	leave(slow);
	leave(a);
	leave(b);
	teardown(&f);
}
END_TEST

START_TEST(test_a_latecomer_begins_where_it_asks)
{
	/* In each of the three ways, in the middle of an epoch; the trainer that was there is not affected. */
	for (enum group_policy policy = GROUP_WAIT; policy <= GROUP_DETACH; policy++) {
		begin(policy, 1);
		struct trainer *a = come_and_seek(0, 2, 0);
		consume(&f, a, 7);
		struct position head = a->c.cursor;
		struct trainer *next = come(1, 4), *epoch = come(2, 4), *start = come(3, 4);
		struct position at = join(next, GROUP_AT_NEXT);
		ck_assert_int_eq(position_compare(&at, &head), 0);
		at = join(epoch, GROUP_AT_EPOCH);
		ck_assert_uint_eq(at.epoch, 3);
		ck_assert_uint_eq(at.step, 0);
		at = join(start, GROUP_AT_START);
		ck_assert_uint_eq(at.epoch, 2);
		ck_assert_uint_eq(at.step, 0);
		ck_assert_ptr_eq(next->c.stream, a->c.stream);
		ck_assert_ptr_ne(start->c.stream, a->c.stream);
		unsigned offset = (unsigned)head.step;
		consume(&f, start, offset + 1); /* it replays, and has caught up */
		ck_assert_ptr_eq(start->c.stream, a->c.stream);
		for (unsigned n = 1; n <= 2 * PER_EPOCH - offset; n++) {
			consume(&f, a, offset + n);
			consume(&f, next, n);
			consume(&f, start, offset + n);
			if (offset + n > PER_EPOCH)
				consume(&f, epoch, offset + n - PER_EPOCH);
		}
		ck_assert_uint_eq(count_cohorts(), 1);
		check_golden(a, 2, 0);
		check_golden(next, 2, offset);
		check_golden(epoch, 3, 0);
		check_golden(start, 2, 0);
		leave(a);
		leave(next);
		leave(epoch);
		leave(start);
		teardown(&f);
	}
}
END_TEST

START_TEST(test_the_first_of_a_group_begins_at_the_beginning)
{
	/* However it asks: there is no trainer to join, at first and again when all have left. */
	begin(GROUP_DETACH, 1);
	for (enum group_start how = GROUP_AT_NEXT; how <= GROUP_AT_START; how++) {
		struct trainer *t = come(0, 4);
		struct position at = join(t, how);
		ck_assert_int_eq(position_compare(&at, &(struct position){ 0 }), 0);
		consume(&f, t, 5);
		check_golden(t, 0, 0);
		leave(t);
	}
	teardown(&f);
}
END_TEST

START_TEST(test_a_resumed_group_has_not_had_the_beginning_of_its_epoch)
{
	/* It resumes after some samples of epoch 2: the group's first batch is not the first of that epoch, and the epoch
	 * has begun already. */
	begin(GROUP_DETACH, 1);
	struct trainer *a = come(0, 4), *b = come(1, 4), *c = come(2, 4);
	ck_assert_int_eq(loader_seek(&a->c, 1, &(struct position){ .epoch = 2, .base = BATCH }), 0);
	struct position at = join(b, GROUP_AT_START);
	ck_assert_int_eq(position_compare(&at, &(struct position){ .epoch = 2 }), 0);
	at = join(c, GROUP_AT_EPOCH);
	ck_assert_int_eq(position_compare(&at, &(struct position){ .epoch = 3 }), 0);
	consume(&f, b, 2);
	check_golden(b, 2, 0);
	ck_assert_uint_eq(c->n, 0);
	leave(a);
	leave(b);
	leave(c);
	teardown(&f);
}
END_TEST

START_TEST(test_waiting_for_the_next_epoch_does_not_wait_for_a_stuck_trainer)
{
	/* Two wait for the epoch of a trainer that holds all that it may. As long as it may just be busy they get
	 * nothing; when it is known to be stuck they begin, together, except under policy wait. It continues
	 * unaffected, and so does a trainer that never was stuck. */
	for (enum group_policy policy = GROUP_WAIT; policy <= GROUP_DETACH; policy++) {
		begin(policy, 1);
		struct trainer *a = come_and_seek(0, 0, 0), *b = come(1, 4), *c = come(2, 4);
		wait_for(&f, a, GROUP_SHARE);
		join(b, GROUP_AT_EPOCH);
		join(c, GROUP_AT_EPOCH);
		for (int i = 0; i < 50; i++)
			uv_run(&f.loop, UV_RUN_NOWAIT);
		ck_assert_uint_eq(b->n + c->n, 0);
		a->c.stalled = true;
		group_pump(&f.loader->group);
		if (policy != GROUP_WAIT) {
			for (unsigned n = 1; n <= PER_EPOCH; n++) {
				consume(&f, b, n);
				consume(&f, c, n);
			}
			ck_assert_ptr_eq(b->c.stream, c->c.stream);
			ck_assert_ptr_ne(b->c.stream, a->c.stream);
		}
		a->c.stalled = false;
		for (unsigned n = 1; n <= PER_EPOCH + 2; n++)
			consume(&f, a, n);
		consume(&f, b, 3);
		check_golden(a, 0, 0);
		check_golden(b, 1, 0);
		check_golden(c, 1, 0);
		ck_assert_uint_eq(a->c.n_skipped + b->c.n_skipped + c->c.n_skipped, 0);
		leave(a);
		leave(b);
		leave(c);
		teardown(&f);
	}
}
END_TEST

START_TEST(test_a_trainer_that_waits_for_the_next_epoch_gets_it_when_the_others_leave)
{
	/* The group that it waits for ends in the middle of its epoch. */
	begin(GROUP_DETACH, 1);
	struct trainer *a = come_and_seek(0, 0, 0), *b = come(1, 4);
	consume(&f, a, 5);
	join(b, GROUP_AT_EPOCH);
	leave(a);
	consume(&f, b, 3);
	check_golden(b, 1, 0);
	leave(b);
	teardown(&f);
}
END_TEST

START_TEST(test_a_trainer_left_alone_at_the_end_of_an_epoch_goes_on)
{
	/* b and c have had the epoch's last batch while a is at its first ones. c leaves, and more batches were made
	 * ahead for a than two trainers may have; then a leaves, and the batches to be made again for it are not
	 * made. */
	begin(GROUP_WAIT, 1);
	uint32_t most = 3 * GROUP_SHARE + 1; /* three shares, and the rest of the window of 4 */
	struct trainer *a = come_and_seek(0, 0, PER_EPOCH - most), *b = come_and_seek(1, 0, PER_EPOCH - most),
		       *c = come_and_seek(2, 0, PER_EPOCH - most);
	consume(&f, b, most);
	consume(&f, c, most);
	wait_for(&f, a, GROUP_SHARE);
	leave(c);
	leave(a);
	consume(&f, b, most + 5);
	check_golden(b, 0, PER_EPOCH - most);
	leave(b);
	teardown(&f);
}
END_TEST

START_TEST(test_a_replay_does_not_stop_the_group_nor_the_group_the_replay)
{
	/* Both sides are stopped in turn, with all that they may hold. */
	begin(GROUP_WAIT, 1);
	struct trainer *a = come_and_seek(0, 0, 0);
	consume(&f, a, 15);
	struct trainer *b = come(1, 4);
	join(b, GROUP_AT_START);
	wait_for(&f, b, GROUP_SHARE);
	consume(&f, a, 40);
	ck_assert_uint_eq(b->n, GROUP_SHARE);
	wait_for(&f, a, 40 + GROUP_SHARE);
	consume(&f, b, 35);
	check_golden(a, 0, 0);
	check_golden(b, 0, 0);
	leave(a);
	leave(b);
	teardown(&f);
}
END_TEST

START_TEST(test_a_trainer_that_resumes_elsewhere_is_not_refused)
{
	/* After the others, ahead of them, in another epoch, from another base: each gets exactly its position. */
	struct position places[] = { { .epoch = 0, .step = 2 },
				     { .epoch = 0, .step = 17 },
				     { .epoch = 7 },
				     { .epoch = 1, .base = 8, .step = 3 } };
	begin(GROUP_DETACH, 1);
	struct trainer *a = come_and_seek(0, 0, 0), *t[4];
	consume(&f, a, 9);
	for (uint32_t i = 0; i < 4; i++) {
		t[i] = come(i + 1, 4);
		ck_assert_int_eq(loader_seek(&t[i]->c, 1, &places[i]), 0);
	}
	for (unsigned n = 1; n <= 10; n++)
		for (int i = 0; i < 4; i++)
			consume(&f, t[i], n);
	consume(&f, a, 30);
	check_golden(a, 0, 0);
	for (int i = 0; i < 3; i++)
		check_golden(t[i], places[i].epoch, places[i].step);
	for (unsigned n = 0; n < t[3]->n; n++) {
		ck_assert_uint_eq(t[3]->got[n].at.step, 3 + n);
		ck_assert_uint_eq(t[3]->got[n].at.base, 8);
		check_batch(&t[3]->got[n]);
	}
	leave(a);
	for (int i = 0; i < 4; i++)
		leave(t[i]);
	teardown(&f);
}
END_TEST

START_TEST(test_a_group_of_known_size_waits_for_all_to_come_and_for_no_trainer_after)
{
	/* Policy detach with world_size 3: no more than the window before the third rank is there. */
	begin(GROUP_DETACH, 3);
	ck_assert_uint_eq(f.loader->group.n_places, 3);
	struct trainer *a = come_and_seek(0, 0, 0), *b = come_and_seek(1, 0, 0);
	settle(&f, a, 3);
	settle(&f, b, 3);
	while (a->released < 3) {
		ck_assert_int_eq(stream_release(&a->c, a->got[a->released].slot, a->got[a->released].generation), 0);
		a->released++;
	}
	for (int i = 0; i < 200; i++) {
		consumer_waits(&a->c);
		uv_run(&f.loop, UV_RUN_NOWAIT);
		for (; a->released < a->n; a->released++)
			ck_assert_int_eq(
				stream_release(&a->c, a->got[a->released].slot, a->got[a->released].generation), 0);
	}
	ck_assert_uint_le(a->n, f.loader->group.slots->n_made);
	ck_assert_ptr_eq(a->c.stream, b->c.stream);
	ck_assert_int_eq(group_free_place(&f.loader->group), 2);
	struct trainer *c = come(2, 4);
	c->c.comes_again = true;
	leave(c);
	ck_assert_int_eq(group_free_place(&f.loader->group), 2);
	c = come_and_seek(2, 0, 0);
	consume(&f, c, 2 * PER_EPOCH);
	consume(&f, a, 2 * PER_EPOCH);
	check_golden(a, 0, 0);
	check_golden(b, 0, 0);
	check_golden(c, 0, 0);
	ck_assert_int_eq(group_free_place(&f.loader->group), -1);
	leave(a);
	leave(b);
	leave(c);
	teardown(&f);
}
END_TEST

START_TEST(test_places_are_limited_and_orphans_are_counted)
{
	/* 64 places; a trainer that is gone while it holds batches keeps its share, not its place. */
	begin(GROUP_DETACH, 1);
	struct group *g = &f.loader->group;
	struct trainer *t[GROUP_MAX_PLACES];
	for (uint32_t i = 0; i < GROUP_MAX_PLACES; i++) {
		ck_assert_int_eq(group_free_place(g), (int32_t)i);
		t[i] = come_and_seek(i, 0, 0);
	}
	ck_assert_int_eq(group_free_place(g), -1);
	ck_assert_int_eq(group_attach(g, &(struct consumer){ 0 }, 7), STREAM_E_TAKEN);
	wait_for(&f, t[7], 3);
	loader_detach(&t[7]->c);
	ck_assert_int_eq(group_free_place(g), 7);
	ck_assert(!group_is_full(g));
	ck_assert_uint_eq(group_n_missing(g), GROUP_SHARE);
	struct trainer *other = come_and_seek(7, 0, 0);
	consume(&f, other, 10);
	check_golden(other, 0, 0);
	leave(other);
	for (uint32_t i = 0; i < GROUP_MAX_PLACES; i++)
		leave(t[i]);
	ck_assert_uint_eq(g->slots->n_holders, 0);
	for (uint32_t i = 0; i < g->slots->n_made; i++)
		ck_assert_uint_eq(g->slots->slot[i].n_leases, 0);
	teardown(&f);
}
END_TEST

/* ---- at random ---- */

static uint32_t random_state;

static unsigned roll(unsigned n)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % n;
}

/* No batch is used by more trainers than allowed, and every slot that is not free is accounted for. */
static void check_shares(const struct group *g)
{
	for (uint32_t i = 0; i < g->n_places; i++) {
		if (g->member[i])
			ck_assert_uint_le(g->member[i]->n_leases, g->slot_quota);
	}
	for (uint32_t i = 0; i < g->slots->n_made; i++) {
		const struct slot *slot = &g->slots->slot[i];
		ck_assert(slot->state != SLOT_READY || slot->pending || slot->n_leases);
		ck_assert(slot->state != SLOT_FREE || (!slot->linked && !slot->n_leases));
	}
}

static void random_history(uint32_t seed)
{
	enum { N = 6 };
	struct trainer *t[N] = { NULL };
	uint64_t at[N]; /* of its next batch, counted from the beginning of epoch 0 */
	unsigned checked[N] = { 0 };
	random_state = seed;
	begin((enum group_policy)(seed % 3), 1);
	for (int turn = 0; turn < 400; turn++) {
		unsigned i = roll(N);
		switch (t[i] ? roll(12) : 0) {
		case 0:
			if (t[i]) {
				leave(t[i]);
				t[i] = NULL;
				break;
			}
			t[i] = come(i, 4);
			struct position p = roll(2) ? join(t[i], (enum group_start)roll(3))
						    : (struct position){ .epoch = roll(2), .step = roll(PER_EPOCH) };
			if (t[i]->c.seek == 0)
				loader_seek(&t[i]->c, 1, &p);
			at[i] = p.epoch * PER_EPOCH + p.step;
			checked[i] = 0;
			break;
		case 1:
			uv_run(&f.loop, UV_RUN_NOWAIT);
			break;
		case 2:
			if (t[i]->n < MOST - 8)
				consumer_waits(&t[i]->c);
			break;
		default:
			if (t[i]->released < t[i]->n && t[i]->n < MOST - 8) {
				const struct got *g = &t[i]->got[t[i]->released++];
				ck_assert_int_eq(stream_release(&t[i]->c, g->slot, g->generation), 0);
			}
		}
		check_shares(&f.loader->group);
		for (unsigned k = 0; k < N; k++) {
			for (; t[k] && checked[k] < t[k]->n; checked[k]++) {
				const struct got *g = &t[k]->got[checked[k]];
				check_batch(g);
				at[k] += g->n_missed;
				ck_assert(!g->n_missed || f.loader->group.policy == GROUP_SKIP);
				ck_assert_uint_eq(g->at.epoch * PER_EPOCH + g->at.step, at[k]);
				at[k]++;
			}
		}
	}
	/* A trainer that joins now makes progress, whatever the others hold; with policy wait it has to be alone for
	 * that. */
	uint32_t place = 10;
	struct trainer *last = come(place, 4);
	loader_seek(&last->c, 1, &(struct position){ .epoch = 9 });
	consume(&f, last, PER_EPOCH);
	check_golden(last, 9, 0);
	leave(last);
	for (unsigned i = 0; i < N; i++) {
		if (t[i])
			leave(t[i]);
	}
	for (uint32_t i = 0; i < f.loader->group.slots->n_made; i++)
		ck_assert_uint_eq(f.loader->group.slots->slot[i].n_leases, 0);
	teardown(&f);
}

START_TEST(test_random_histories)
{
	/* Trainers that join, begin, take, stop and leave at random: batches, gaps and slots are correct at every
	 * moment. */
	for (uint32_t i = 0; i < 10; i++)
		random_history((uint32_t)_i * 10 + i);
}
END_TEST

SUITE(share)
{
	Suite *s = suite_create("share");
	TCase *t = tcase_create("share");
	tcase_add_test(t, test_trainers_at_one_place_share_their_batches);
	tcase_add_test(t, test_a_stopped_trainer_holds_up_no_other);
	tcase_add_test(t, test_all_but_one_stopped_at_different_places);
	tcase_add_test(t, test_a_trainer_left_with_a_stopped_one_goes_on);
	tcase_add_test(t, test_with_policy_wait_the_group_waits_for_its_slowest);
	tcase_add_test(t, test_a_trainer_that_skips_is_told_how_many_it_missed);
	tcase_add_test(t, test_a_detached_trainer_misses_nothing);
	tcase_add_test(t, test_a_latecomer_begins_where_it_asks);
	tcase_add_test(t, test_the_first_of_a_group_begins_at_the_beginning);
	tcase_add_test(t, test_a_resumed_group_has_not_had_the_beginning_of_its_epoch);
	tcase_add_test(t, test_waiting_for_the_next_epoch_does_not_wait_for_a_stuck_trainer);
	tcase_add_test(t, test_a_trainer_that_waits_for_the_next_epoch_gets_it_when_the_others_leave);
	tcase_add_test(t, test_a_trainer_left_alone_at_the_end_of_an_epoch_goes_on);
	tcase_add_test(t, test_a_replay_does_not_stop_the_group_nor_the_group_the_replay);
	tcase_add_test(t, test_a_trainer_that_resumes_elsewhere_is_not_refused);
	tcase_add_test(t, test_a_group_of_known_size_waits_for_all_to_come_and_for_no_trainer_after);
	tcase_add_test(t, test_places_are_limited_and_orphans_are_counted);
	tcase_add_loop_test(t, test_random_histories, 0, 6);
	suite_add_tcase(s, t);
	return s;
}
