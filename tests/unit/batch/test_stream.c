/* Streams and loaders: order, windows, seeks, leases, the share mode's group in lockstep. test_share.c has the groups
 * that are not in lockstep. */
#include "batch/leases.h"
#include "batch/shortage.h"
#include "support/streams.h"

START_TEST(test_every_rank_gets_its_plan_batch_by_batch_over_epochs)
{
	/* Against the plan itself, which other tests compare with torch: rows, padding, last, and the step into the
	 * next epoch. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 4, .world_size = 3, .seed = 5, .shuffle = true }, 50);
	for (uint32_t rank = 0; rank < 3; rank++) {
		struct trainer *t = attach(with_slots(&f, rank, 3), rank);
		ck_assert_int_eq(loader_seek(&t->c, 1, &(struct position){ .epoch = 2 }), 0);
		consume(&f, t, 10); /* 17 rows a rank: 5 batches an epoch */
		for (unsigned i = 0; i < 10; i++) {
			struct plan_spec spec = {
				.n_samples = 50, .seed = 5, .epoch = 2 + i / 5, .world_size = 3, .shuffle = true
			};
			struct plan *plan;
			ck_assert_int_eq(plan_create(&spec, &plan), 0);
			const struct got *g = &t->got[i];
			ck_assert_uint_eq(g->at.epoch, 2 + i / 5);
			ck_assert_uint_eq(g->at.step, i % 5);
			ck_assert_uint_eq(g->n_rows, i % 5 == 4 ? 1 : 4);
			ck_assert_int_eq(g->last, i % 5 == 4);
			ck_assert_uint_eq(g->n_padding, i % 5 == 4 && rank == 2);
			for (uint32_t row = 0; row < g->n_rows; row++)
				ck_assert_int_eq(g->indices[row], (int64_t)plan_at(plan, rank, (i % 5) * 4 + row));
			plan_unref(plan);
		}
		leave(t);
	}
	teardown(&f);
}
END_TEST

START_TEST(test_a_held_slot_is_not_made_again)
{
	/* While every slot is held no batch comes; a release brings exactly one. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 2, .world_size = 1 }, 100);
	struct trainer *t = attach(with_slots(&f, 0, 3), 0);
	loader_seek(&t->c, 1, &(struct position){ 0 });
	settle(&f, t, 3);
	ck_assert_uint_eq(t->n, 3);
	ck_assert_int_eq(stream_release(&t->c, t->got[1].slot, t->got[1].generation), 0);
	settle(&f, t, 4);
	ck_assert_uint_eq(t->n, 4);
	ck_assert_uint_eq(t->got[3].slot, t->got[1].slot);
	ck_assert_uint_gt(t->got[3].generation, t->got[1].generation);
	ck_assert_uint_eq(t->got[3].at.step, 3);
	leave(t);
	teardown(&f);
}
END_TEST

START_TEST(test_batches_that_no_trainer_is_short_of_count_as_made)
{
	/* The loop is not woken for ready batches, and does not run here: only the workers' progress counts. */
	struct fixture f;
	struct stream_counts n;
	struct loader_spec spec = { .batch_size = 4, .world_size = 1 };
	setup(&f, spec, 100);
	struct stream *s = with_slots(&f, 0, 6);
	struct trainer *t = attach(s, 0);
	ck_assert_int_eq(loader_seek(&t->c, 1, &(struct position){ 0 }), 0);
	wait_for(&f, t, 1);
	unsigned held = t->n;
	do
		stream_count(s, &n);
	while (n.making > 0);
	ck_assert_uint_eq(n.held, held);
	ck_assert_uint_eq(n.ready, 6 - held);
	leave(t);
	teardown(&f);
}
END_TEST

START_TEST(test_workers_rest_when_every_row_is_taken_and_no_slot_is_free)
{
	/* More slots are made then, and only then: while workers have rows, a trainer gains nothing from more slots. */
	struct fixture f;
	struct loader_spec spec = { .batch_size = 4, .world_size = 1 };
	setup(&f, spec, 100);
	struct stream *s = with_slots(&f, 0, 4);
	struct trainer *t = attach(s, 0);
	s->slots->may_grow = true;
	ck_assert(!stream_rests(s)); /* slots are free */
	ck_assert_int_eq(loader_seek(&t->c, 1, &(struct position){ 0 }), 0);
	settle(&f, t, 4);
	ck_assert(stream_rests(s));
	s->slots->may_grow = false; /* there are no more */
	ck_assert(!stream_rests(s));
	s->slots->may_grow = true;
	struct pool_job more = { .n_rows = 1 };
	s->queue.first = &more; /* a row that no worker has taken */
	ck_assert(!stream_rests(s));
	s->queue.first = NULL;
	s->slots->may_grow = false;
	leave(t);
	teardown(&f);
}
END_TEST

static enum shortage lacked;

static int note_lack(struct consumer *c, const struct slot *slot)
{
	lacked = shortage_of(c);
	return on_publish(c, slot);
}

static const struct consumer_ops noting_ops = { .publish = note_lack, .look = consumer_look, .arm = consumer_arm };

START_TEST(test_what_a_trainer_waits_for_has_a_reason)
{
	/* Nothing before it has said where to begin; its rows, also at the moment before it is told that they are made; a
	 * slot, when it has all of them. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 2, .world_size = 1 }, 100);
	struct trainer *t = attach(with_slots(&f, 0, 3), 0);
	t->c.ops = &noting_ops;
	ck_assert_int_eq(shortage_of(&t->c), SHORTAGE_NONE);
	loader_seek(&t->c, 1, &(struct position){ 0 });
	settle(&f, t, 1);
	ck_assert_int_eq(lacked, SHORTAGE_ROWS);
	settle(&f, t, 3);
	ck_assert_int_eq(shortage_of(&t->c), SHORTAGE_MEMORY);
	ck_assert_int_eq(stream_release(&t->c, t->got[0].slot, t->got[0].generation), 0);
	ck_assert_int_eq(shortage_of(&t->c), SHORTAGE_ROWS);
	leave(t);
	teardown(&f);
}
END_TEST

START_TEST(test_a_trainer_waits_for_others_and_for_its_own_indices)
{
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 2, .world_size = 2, .share = true, .policy = GROUP_WAIT }, 100);
	struct stream *s = with_slots(&f, 0, 3);
	struct trainer *keen = attach(s, 0), *slow = attach(s, 1);
	loader_seek(&keen->c, 1, &(struct position){ 0 });
	loader_seek(&slow->c, 1, &(struct position){ 0 });
	consume(&f, keen, 3);
	ck_assert_int_eq(shortage_of(&keen->c), SHORTAGE_PEER);
	leave(keen);
	leave(slow);
	teardown(&f);

	setup(&f, (struct loader_spec){ .batch_size = 2, .world_size = 1, .own_batches = true }, 100);
	struct trainer *own = attach(with_slots(&f, 0, 3), 0);
	loader_seek(&own->c, 1, &(struct position){ 0 });
	ck_assert_int_eq(shortage_of(&own->c), SHORTAGE_ORDER);
	leave(own);
	teardown(&f);
}
END_TEST

START_TEST(test_a_stale_or_foreign_release_is_refused)
{
	/* Wrong slot, wrong generation, twice. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 2, .world_size = 1 }, 100);
	struct trainer *t = attach(with_slots(&f, 0, 2), 0);
	loader_seek(&t->c, 1, &(struct position){ 0 });
	settle(&f, t, 2);
	struct got g = t->got[0];
	ck_assert_int_eq(stream_release(&t->c, 2, g.generation), STREAM_E_INVALID);
	ck_assert_int_eq(stream_release(&t->c, UINT32_MAX, g.generation), STREAM_E_INVALID);
	ck_assert_int_eq(stream_release(&t->c, g.slot, g.generation + 1), STREAM_E_INVALID);
	ck_assert_int_eq(stream_release(&t->c, g.slot, g.generation), 0);
	settle(&f, t, 3);
	ck_assert_int_eq(stream_release(&t->c, g.slot, g.generation), STREAM_E_INVALID);
	leave(t);
	teardown(&f);
}
END_TEST

START_TEST(test_after_a_seek_batches_carry_its_number_and_begin_there)
{
	/* The old batches stay lent until given back; the new ones start at the requested step, also from another
	 * base. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 2, .world_size = 1 }, 40);
	struct trainer *t = attach(with_slots(&f, 0, 4), 0);
	loader_seek(&t->c, 1, &(struct position){ 0 });
	settle(&f, t, 4);
	ck_assert_int_eq(loader_seek(&t->c, 2, &(struct position){ .epoch = 1, .base = 10, .step = 3 }), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(stream_release(&t->c, t->got[i].slot, t->got[i].generation), 0);
	settle(&f, t, 8);
	for (unsigned i = 4; i < 8; i++) {
		ck_assert_uint_eq(t->got[i].seek, 2);
		ck_assert_uint_eq(t->got[i].at.epoch, 1);
		ck_assert_uint_eq(t->got[i].at.step, 3 + i - 4);
		ck_assert_int_eq(t->got[i].indices[0], 10 + (3 + (int64_t)i - 4) * 2);
	}
	leave(t);
	teardown(&f);
}
END_TEST

START_TEST(test_seeks_at_random_never_lose_a_slot)
{
	/* Many seeks while rows are in work; at the end every slot can still be filled. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 8, .world_size = 1, .shuffle = true }, 1000);
	struct trainer *t = attach(with_slots(&f, 0, 4), 0);
	unsigned released = 0;
	srand(7);
	for (uint64_t seek = 1; seek < 300; seek++) {
		loader_seek(&t->c, seek,
			    &(struct position){ .epoch = (uint64_t)rand() % 3, .step = (uint64_t)rand() % 125 });
		for (int i = rand() % 4; i > 0; i--)
			uv_run(&f.loop, UV_RUN_NOWAIT);
		for (; released < t->n; released++)
			ck_assert_int_eq(stream_release(&t->c, t->got[released].slot, t->got[released].generation), 0);
	}
	loader_seek(&t->c, 1000, &(struct position){ 0 });
	unsigned before = t->n;
	while (t->n < before + 4 || t->c.n_leases < 4) {
		for (; released < t->n && t->got[released].seek < 1000; released++)
			ck_assert_int_eq(stream_release(&t->c, t->got[released].slot, t->got[released].generation), 0);
		consumer_waits(&t->c);
		uv_run(&f.loop, UV_RUN_NOWAIT);
	}
	ck_assert_uint_eq(t->c.n_leases, 4);
	leave(t);
	teardown(&f);
}
END_TEST

START_TEST(test_what_a_dead_trainer_held_comes_back)
{
	/* Its successor on the same slots gets a whole window again, and the leases of a living stranger stay. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 2, .world_size = 1 }, 100);
	struct stream *s = with_slots(&f, 0, 3);
	struct trainer *t = attach(s, 0);
	loader_seek(&t->c, 1, &(struct position){ 0 });
	settle(&f, t, 3);
	loader_detach(&t->c);
	ck_assert(stream_has_strangers(s));
	leave(t);
	ck_assert(!stream_has_strangers(s));
	struct trainer *next = attach(s, 0);
	loader_seek(&next->c, 1, &(struct position){ 0 });
	settle(&f, next, 3);
	ck_assert_uint_eq(next->n, 3);
	leave(next);
	teardown(&f);
}
END_TEST

START_TEST(test_slots_outlive_their_loader_for_an_orphan)
{
	/* A stuck trainer holds its batch while the loader is closed; its memory stays readable until the trainer
	 * releases it. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 2, .world_size = 1 }, 100);
	struct trainer *t = attach(with_slots(&f, 0, 3), 0);
	loader_seek(&t->c, 1, &(struct position){ 0 });
	settle(&f, t, 3);
	const uint8_t *data = slot_data(&t->c.slots->slot[t->got[0].slot]);
	loader_detach(&t->c);
	teardown(&f);
	uint8_t sum = 0;
	for (size_t i = 0; i < 32; i++)
		sum |= data[i];
	ck_assert_uint_ne(sum, 0);
	leave(t);
}
END_TEST

START_TEST(test_share_gives_every_trainer_every_batch_in_lockstep)
{
	/* No rank is more than the window ahead of a rank that has not even come yet, and all see the same batches. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 4, .world_size = 3, .share = true, .shuffle = true }, 40);
	struct stream *s = with_slots(&f, 0, 4);
	struct trainer *t[3] = { attach(s, 0), attach(s, 1), NULL };
	for (int i = 0; i < 2; i++)
		loader_seek(&t[i]->c, 1, &(struct position){ 0 });
	consume(&f, t[0], 4);
	settle(&f, t[0], 4);
	ck_assert_uint_eq(t[0]->n, 4); /* rank 2 has had nothing: the whole window waits for it */
	t[2] = attach(s, 2);
	ck_assert_int_eq(loader_seek(&t[2]->c, 1, &(struct position){ 0 }), 0);
	for (unsigned i = 0; i < 10; i++) {
		for (int k = 0; k < 3; k++) {
			wait_for(&f, t[k], i + 1);
			if (k || i >= 4)
				ck_assert_int_eq(stream_release(&t[k]->c, t[k]->got[i].slot, t[k]->got[i].generation),
						 0);
			ck_assert_int_eq(
				memcmp(t[k]->got[i].indices, t[0]->got[i].indices, sizeof(t[0]->got[i].indices)), 0);
			ck_assert_uint_eq(t[k]->got[i].at.step, i);
		}
	}
	ck_assert_uint_le(tally_sum(&f.loader->host.source->sums, SOURCE_ROWS), 40 + 4 * 4); /* once, not three times */
	for (int k = 0; k < 3; k++)
		leave(t[k]);
	teardown(&f);
}
END_TEST

START_TEST(test_share_does_not_wait_for_a_trainer_that_has_left)
{
	/* One rank dies while it holds a batch: the others continue with the other slots, and with all slots after its
	 * leases end. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 4, .world_size = 2, .share = true }, 400);
	struct stream *s = with_slots(&f, 0, 4);
	struct trainer *a = attach(s, 0), *b = attach(s, 1);
	loader_seek(&a->c, 1, &(struct position){ 0 });
	loader_seek(&b->c, 1, &(struct position){ 0 });
	settle(&f, b, 4);
	consume(&f, b, 3);
	loader_detach(&b->c);
	consume(&f, a, 20);
	leave(b);
	consume(&f, a, 40);
	ck_assert_uint_ge(a->n, 40);
	leave(a);
	teardown(&f);
}
END_TEST

START_TEST(test_share_refuses_what_has_left_the_window)
{
	/* A rank that comes back and wants the beginning gets an error, also when only a newer batch than the requested
	 * one is gone; it can have the next epoch. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 4, .world_size = 2, .share = true }, 80);
	struct stream *s = with_slots(&f, 0, 4);
	struct trainer *a = attach(s, 0), *b = attach(s, 1);
	loader_seek(&a->c, 1, &(struct position){ 0 });
	loader_seek(&b->c, 1, &(struct position){ 0 });
	consume(&f, b, 2);
	leave(b);
	wait_for(&f, a, 3);
	ck_assert_int_eq(stream_release(&a->c, a->got[1].slot, a->got[1].generation), 0); /* 0 is held, 1 is gone */
	b = attach(s, 1);
	ck_assert_int_eq(loader_seek(&b->c, 1, &(struct position){ 0 }), STREAM_E_BEHIND);
	ck_assert_int_eq(stream_release(&a->c, a->got[0].slot, a->got[0].generation), 0);
	a->released = 2;
	leave(b); /* otherwise the group would wait for it to begin */
	consume(&f, a, 10);
	b = attach(s, 1);
	ck_assert_int_eq(loader_seek(&b->c, 2, &(struct position){ 0 }), STREAM_E_BEHIND);
	ck_assert_int_eq(loader_seek(&b->c, 3, &(struct position){ .epoch = 1 }), 0);
	consume(&f, a, 20);
	settle(&f, b, 1);
	ck_assert_uint_eq(b->got[0].at.epoch, 1);
	ck_assert_uint_eq(b->got[0].at.step, 0);
	leave(a);
	leave(b);
	teardown(&f);
}
END_TEST

START_TEST(test_share_waits_for_a_trainer_that_comes_again)
{
	/* It has found that it cannot use the memory that it was offered, and opens another way while the other ranks
	 * take what there is. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 4, .world_size = 2, .share = true }, 80);
	struct stream *s = with_slots(&f, 0, 4);
	struct trainer *a = attach(s, 0), *b = attach(s, 1);
	loader_seek(&a->c, 1, &(struct position){ 0 });
	consume(&f, a, 2);
	b->c.comes_again = true;
	leave(b);
	consume(&f, a, 4);
	for (int i = 0; i < 20; i++)
		uv_run(&f.loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(a->n, 4);
	b = attach(s, 1);
	ck_assert_int_eq(loader_seek(&b->c, 1, &(struct position){ 0 }), 0);
	consume(&f, b, 8);
	for (unsigned i = 0; i < b->n; i++)
		ck_assert_uint_eq(b->got[i].at.step, i);
	consume(&f, a, 8);
	for (unsigned i = 0; i < a->n; i++)
		ck_assert_uint_eq(a->got[i].at.step, i);
	b->c.comes_again = true; /* that was before it was given batches */
	leave(b);
	consume(&f, a, 30);
	leave(a);
	teardown(&f);
}
END_TEST

START_TEST(test_share_does_not_wait_for_a_trainer_that_was_there_and_does_not_come_again)
{
	/* It has had batches, and its successor says that it comes again, but ends before that. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 4, .world_size = 2, .share = true }, 80);
	struct stream *s = with_slots(&f, 0, 4);
	struct trainer *a = attach(s, 0), *b = attach(s, 1);
	loader_seek(&a->c, 1, &(struct position){ 0 });
	loader_seek(&b->c, 1, &(struct position){ 0 });
	consume(&f, b, 2);
	leave(b);
	b = attach(s, 1);
	consume(&f, a, 4);
	settle(&f, a, 8); /* four batches that were begun since b is there again */
	b->c.comes_again = true;
	leave(b);
	for (; a->released < 8; a->released++) {
		const struct got *g = &a->got[a->released];
		ck_assert_int_eq(stream_release(&a->c, g->slot, g->generation), 0);
		ck_assert_int_ne(s->slots->slot[g->slot].state, SLOT_READY);
	}
	consume(&f, a, 20);
	leave(a);
	teardown(&f);
}
END_TEST

START_TEST(test_share_begins_with_the_rearmost_trainer_in_any_order)
{
	/* They come back to a new daemon, one of them two batches ahead of the other, and at once: it has had the
	 * window when the other comes. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 4, .world_size = 2, .share = true }, 80);
	struct stream *s = with_slots(&f, 0, 4);
	struct trainer *a = attach(s, 0), *b = attach(s, 1);
	loader_seek(&a->c, 1, &(struct position){ .epoch = 1, .step = 1 });
	consume(&f, a, 3);
	wait_for(&f, a, 4);
	ck_assert_int_eq(loader_seek(&b->c, 1, &(struct position){ .step = 19 }), 0);
	consume(&f, b, 8);
	for (unsigned i = 0; i < b->n; i++) {
		ck_assert_uint_eq(b->got[i].at.epoch, (19 + i) / 20);
		ck_assert_uint_eq(b->got[i].at.step, (19 + i) % 20);
	}
	consume(&f, a, 7);
	for (unsigned i = 0; i < a->n; i++) {
		ck_assert_uint_eq(a->got[i].at.epoch, 1);
		ck_assert_uint_eq(a->got[i].at.step, 1 + i);
	}
	leave(b);
	b = attach(s, 1); /* it has been there: the others do not go back for it again */
	ck_assert_int_eq(loader_seek(&b->c, 1, &(struct position){ .step = 19 }), STREAM_E_BEHIND);
	leave(a);
	leave(b);
	teardown(&f);
}
END_TEST

START_TEST(test_share_refuses_an_epoch_that_is_counted_from_another_sample)
{
	/* An epoch that was resumed in its middle has no batch for a trainer that resumes it at another sample, even at
	 * a later one: the answer must not be the next epoch. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 4, .world_size = 2, .share = true }, 80);
	struct stream *s = with_slots(&f, 0, 4);
	struct trainer *a = attach(s, 0), *b = attach(s, 1);
	ck_assert_int_eq(loader_seek(&a->c, 1, &(struct position){ .epoch = 1, .base = 40 }), 0);
	ck_assert_int_eq(loader_seek(&b->c, 1, &(struct position){ .epoch = 1, .base = 48 }), STREAM_E_ELSEWHERE);
	ck_assert_int_eq(loader_seek(&b->c, 2, &(struct position){ .epoch = 1, .base = 0, .step = 12 }),
			 STREAM_E_ELSEWHERE);
	ck_assert_int_eq(loader_seek(&b->c, 3, &(struct position){ .epoch = 2, .base = 40 }), STREAM_E_ELSEWHERE);
	ck_assert_int_eq(loader_seek(&b->c, 4, &(struct position){ .epoch = 1, .base = 40, .step = 1 }), 0);
	wait_for(&f, a, 2);
	settle(&f, b, 1);
	ck_assert_uint_eq(b->got[0].at.base, 40);
	ck_assert_uint_eq(b->got[0].at.step, 1);
	leave(b);
	consume(&f, a, 9);
	wait_for(&f, a, 11); /* a holds the last batches of epoch 1 while the next one is begun */
	ck_assert_uint_eq(a->got[10].at.epoch, 2);
	b = attach(s, 1);
	ck_assert_int_eq(loader_seek(&b->c, 5, &(struct position){ .epoch = 2, .base = 40 }), STREAM_E_ELSEWHERE);
	leave(a);
	leave(b);
	teardown(&f);
}
END_TEST

START_TEST(test_share_jumps_when_all_have_called_set_epoch)
{
	/* No trainer wants the batches that were made ahead any more. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 4, .world_size = 2, .share = true }, 80);
	struct stream *s = with_slots(&f, 0, 4);
	struct trainer *t[2] = { attach(s, 0), attach(s, 1) };
	for (int k = 0; k < 2; k++)
		loader_seek(&t[k]->c, 1, &(struct position){ 0 });
	settle(&f, t[1], 4);
	for (int k = 0; k < 2; k++) {
		for (unsigned i = 0; i < 4; i++)
			stream_release(&t[k]->c, t[k]->got[i].slot, t[k]->got[i].generation);
		ck_assert_int_eq(loader_seek(&t[k]->c, 2, &(struct position){ .epoch = 9 }), 0);
	}
	unsigned n = t[1]->n;
	while (t[1]->got[t[1]->n - 1].at.epoch != 9) {
		for (int k = 0; k < 2; k++)
			for (uint32_t i = 0; i < t[k]->n; i++)
				(void)stream_release(&t[k]->c, t[k]->got[i].slot, t[k]->got[i].generation);
		for (int k = 0; k < 2; k++)
			consumer_waits(&t[k]->c);
		uv_run(&f.loop, UV_RUN_NOWAIT);
	}
	ck_assert_uint_ge(t[1]->n, n);
	for (int k = 0; k < 2; k++)
		leave(t[k]);
	teardown(&f);
}
END_TEST

START_TEST(test_share_goes_on_when_an_orphan_gives_its_slots_back)
{
	/* A trainer that hung up holds every slot; a waiting trainer is served as soon as it ends, without asking
	 * again. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 4, .world_size = 2, .share = true }, 400);
	struct stream *s = with_slots(&f, 0, 2);
	struct trainer *a = attach(s, 0), *b = attach(s, 1);
	loader_detach(&b->c);
	loader_seek(&a->c, 1, &(struct position){ 0 });
	settle(&f, a, 2);
	loader_detach(&a->c);
	struct trainer *next = attach(s, 1);
	loader_seek(&next->c, 1, &(struct position){ 0 });
	consumer_waits(&next->c);
	for (int i = 0; i < 20; i++)
		uv_run(&f.loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(next->n, 0);
	leave(a);
	while (next->n < 2)
		uv_run(&f.loop, UV_RUN_ONCE);
	leave(next);
	leave(b);
	teardown(&f);
}
END_TEST

START_TEST(test_share_lets_no_trainer_join_where_a_batch_is_missing)
{
	/* Batch 0 is still held, 1 is released and dropped: 0 is BEHIND, because 1 could not follow. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 4, .world_size = 2, .share = true }, 400);
	struct stream *s = with_slots(&f, 0, 4);
	struct trainer *a = attach(s, 0);
	leave(attach(s, 1));
	loader_seek(&a->c, 1, &(struct position){ 0 });
	settle(&f, a, 4);
	ck_assert_int_eq(stream_release(&a->c, a->got[1].slot, a->got[1].generation), 0);
	settle(&f, a, 5);
	struct trainer *b = attach(s, 1);
	ck_assert_int_eq(loader_seek(&b->c, 1, &(struct position){ 0 }), STREAM_E_BEHIND);
	ck_assert_int_eq(loader_seek(&b->c, 2, &(struct position){ .step = 1 }), STREAM_E_BEHIND);
	ck_assert_int_eq(loader_seek(&b->c, 3, &(struct position){ .step = 2 }), 0);
	settle(&f, b, 3);
	for (uint64_t i = 0; i < 3; i++)
		ck_assert_uint_eq(b->got[i].at.step, 2 + i);
	leave(a);
	leave(b);
	teardown(&f);
}
END_TEST

START_TEST(test_a_stopped_loader_begins_nothing_more)
{
	/* While the daemon stops, slots come back that their holders still read. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 4, .world_size = 2, .share = true }, 400);
	struct stream *s = with_slots(&f, 0, 2);
	struct trainer *a = attach(s, 0), *b = attach(s, 1);
	loader_seek(&a->c, 1, &(struct position){ 0 });
	loader_seek(&b->c, 1, &(struct position){ 0 });
	settle(&f, a, 2);
	settle(&f, b, 2);
	uint64_t generation = s->slots->slot[0].generation;
	loader_stop(f.loader);
	for (unsigned i = 0; i < 2; i++)
		stream_release(&b->c, b->got[i].slot, b->got[i].generation);
	leave(a);
	for (int i = 0; i < 20; i++)
		uv_run(&f.loop, UV_RUN_NOWAIT);
	ck_assert_int_eq(s->slots->slot[0].state, SLOT_FREE);
	ck_assert_uint_eq(s->slots->slot[0].generation, generation);
	leave(b);
	teardown(&f);
}
END_TEST

START_TEST(test_own_batches_come_back_as_they_were_sent)
{
	/* In order, split over packets, of different sizes; batches out of order and too many are refused. */
	struct fixture f;
	setup(&f, (struct loader_spec){ .batch_size = 4, .world_size = 1, .own_batches = true }, 100);
	struct trainer *t = attach(with_slots(&f, 0, 3), 0);
	uint64_t first[] = { 7, 7, 99 }, second[] = { 3 };
	loader_seek(&t->c, 1, &(struct position){ 0 });
	ck_assert_int_eq(stream_push(&t->c, 1, 1, first, 3, false), STREAM_E_INVALID); /* step 0 is missing */
	ck_assert_int_eq(stream_push(&t->c, 1, 0, first, 3, false), 0);
	ck_assert_int_eq(stream_push(&t->c, 1, 1, first, 2, true), 0);
	ck_assert_int_eq(stream_push(&t->c, 1, 1, second, 1, false), 0);
	ck_assert_int_eq(stream_push(&t->c, 1, 2, first, 3, true), 0);
	ck_assert_int_eq(stream_push(&t->c, 1, 2, first, 3, false), STREAM_E_INVALID); /* 6 rows of 4 */
	settle(&f, t, 2);
	ck_assert_uint_eq(t->n, 2);
	ck_assert_uint_eq(t->got[0].n_rows, 3);
	ck_assert_int_eq(t->got[0].indices[2], 99);
	ck_assert_uint_eq(t->got[1].n_rows, 3);
	ck_assert_int_eq(t->got[1].indices[2], 3);
	leave(t);
	teardown(&f);
}
END_TEST

START_TEST(test_a_loader_closed_in_the_middle_leaves_nothing)
{
	/* Rows in work when it is closed: done comes back before it frees itself (AddressSanitizer checks). */
	for (int i = 0; i < 30; i++) {
		struct fixture f;
		setup(&f, (struct loader_spec){ .batch_size = 64, .world_size = 1, .shuffle = true }, 100000);
		struct trainer *t = attach(with_slots(&f, 0, 4), 0);
		loader_seek(&t->c, 1, &(struct position){ 0 });
		for (int k = 0; k < i % 5; k++)
			uv_run(&f.loop, UV_RUN_NOWAIT);
		leave(t);
		teardown(&f);
	}
}
END_TEST

SUITE(stream)
{
	Suite *s = suite_create("stream");
	TCase *t = tcase_create("stream");
	tcase_add_test(t, test_every_rank_gets_its_plan_batch_by_batch_over_epochs);
	tcase_add_test(t, test_a_held_slot_is_not_made_again);
	tcase_add_test(t, test_batches_that_no_trainer_is_short_of_count_as_made);
	tcase_add_test(t, test_workers_rest_when_every_row_is_taken_and_no_slot_is_free);
	tcase_add_test(t, test_what_a_trainer_waits_for_has_a_reason);
	tcase_add_test(t, test_a_trainer_waits_for_others_and_for_its_own_indices);
	tcase_add_test(t, test_a_stale_or_foreign_release_is_refused);
	tcase_add_test(t, test_after_a_seek_batches_carry_its_number_and_begin_there);
	tcase_add_test(t, test_seeks_at_random_never_lose_a_slot);
	tcase_add_test(t, test_what_a_dead_trainer_held_comes_back);
	tcase_add_test(t, test_slots_outlive_their_loader_for_an_orphan);
	tcase_add_test(t, test_share_gives_every_trainer_every_batch_in_lockstep);
	tcase_add_test(t, test_share_does_not_wait_for_a_trainer_that_has_left);
	tcase_add_test(t, test_share_refuses_what_has_left_the_window);
	tcase_add_test(t, test_share_waits_for_a_trainer_that_comes_again);
	tcase_add_test(t, test_share_does_not_wait_for_a_trainer_that_was_there_and_does_not_come_again);
	tcase_add_test(t, test_share_begins_with_the_rearmost_trainer_in_any_order);
	tcase_add_test(t, test_share_refuses_an_epoch_that_is_counted_from_another_sample);
	tcase_add_test(t, test_share_jumps_when_all_have_called_set_epoch);
	tcase_add_test(t, test_share_goes_on_when_an_orphan_gives_its_slots_back);
	tcase_add_test(t, test_share_lets_no_trainer_join_where_a_batch_is_missing);
	tcase_add_test(t, test_a_stopped_loader_begins_nothing_more);
	tcase_add_test(t, test_own_batches_come_back_as_they_were_sent);
	tcase_add_test(t, test_a_loader_closed_in_the_middle_leaves_nothing);
	suite_add_tcase(s, t);
	return s;
}
