/* Orders by shard with a window. */
#include "support/datasets.h"

#include "batch/plan/window.h"
#include "dataset/impl.h"

enum { PER_FOLDER = 40 };

/* A blend of three folders of pictures, which are its shards. */
static struct dataset *open_three(void)
{
	char spec[600], name[32];

	for (unsigned d = 0; d < 3; d++) {
		snprintf(name, sizeof(name), "%u", d);
		make_dir(name, 0755);
		snprintf(name, sizeof(name), "%u/c", d);
		make_dir(name, 0755);
		for (unsigned i = 0; i < PER_FOLDER; i++) {
			snprintf(name, sizeof(name), "%u/c/%02u.jpg", d, i);
			put(name, "");
		}
	}
	snprintf(spec, sizeof(spec), "imagefolder:%s/0;;imagefolder:%s/1;;imagefolder:%s/2", f.root, f.root, f.root);
	return open_trusted("blend", spec);
}

static struct plan *plan_of(struct dataset *ds, uint32_t window, uint64_t epoch, uint64_t base, uint32_t world)
{
	struct plan_spec spec = { .n_samples = dataset_n(ds),
				  .seed = 3,
				  .epoch = epoch,
				  .base = base,
				  .world_size = world,
				  .shuffle = window,
				  .shards = ds };
	struct plan *p;

	ck_assert_int_eq(plan_create(&spec, &p), 0);
	return p;
}

START_TEST(test_shards_come_whole_and_samples_near_their_turns)
{
	/* Proves that each sample comes once, no earlier than a window before its turn in the order of shards, and that
	 * epochs have other orders of shards and samples. */
	struct dataset *ds = open_three();
	uint64_t n = 3 * PER_FOLDER, shards[8];
	unsigned n_moved = 0, n_others = 0;

	for (uint64_t epoch = 0; epoch < 8; epoch++) {
		struct plan *whole = plan_of(ds, 2, epoch, 0, 1), *p = plan_of(ds, 10, epoch, 0, 1);
		uint8_t seen[3 * PER_FOLDER] = { 0 };
		uint64_t turn_of[3 * PER_FOLDER] = { 0 }, order[3];

		for (unsigned k = 0; k < 3; k++) { /* of a window of 2 the shard in the middle is clear */
			order[k] = plan_at(whole, 0, k * PER_FOLDER + PER_FOLDER / 2) / PER_FOLDER;
		}
		shards[epoch] = order[0] * 9 + order[1] * 3 + order[2];
		ck_assert_uint_eq((1u << order[0]) | (1u << order[1]) | (1u << order[2]), 7);
		for (uint64_t i = 0; i < n; i++) {
			turn_of[order[i / PER_FOLDER] * PER_FOLDER + i % PER_FOLDER] = i;
		}
		for (uint64_t i = 0; i < n; i++) {
			uint64_t sample = plan_at(p, 0, i);

			ck_assert_uint_eq(seen[sample]++, 0);
			ck_assert_uint_lt(turn_of[sample], i + 10);
			n_moved += turn_of[sample] != i;
		}
		n_others += shards[epoch] != shards[0];
		plan_unref(whole);
		plan_unref(p);
	}
	ck_assert_uint_gt(n_moved, 8 * n / 2);
	ck_assert_uint_gt(n_others, 2);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_ranks_and_resumes_divide_the_same_order)
{
	/* Proves it for 1 to 5 ranks, a resume in mid-epoch with 3, and windows of any size. */
	struct dataset *ds = open_three();

	for (uint32_t window = 2; window < 400; window *= 3) {
		struct plan *one = plan_of(ds, window, 1, 0, 1), *rest = plan_of(ds, window, 1, 20, 3);

		for (uint32_t world = 1; world <= 5; world++) {
			struct plan *p = plan_of(ds, window, 1, 0, world);

			for (uint64_t i = 0; i < 120; i++) {
				ck_assert_uint_eq(plan_at(p, (uint32_t)(i % world), i / world), plan_at(one, 0, i));
			}
			plan_unref(p);
		}
		for (uint64_t i = 20; i < 120; i++) {
			ck_assert_uint_eq(plan_at(rest, (uint32_t)((i - 20) % 3), (i - 20) / 3), plan_at(one, 0, i));
		}
		plan_unref(one);
		plan_unref(rest);
	}
	dataset_unref(ds);
}
END_TEST

enum { N_EMPTY = 4000000, N_OTHERS = 10000 };

/* Many shards without a sample, and shards of one each. */
static uint64_t mostly_empty_end(const struct dataset *ds, uint32_t i)
{
	(void)ds;
	return i < N_EMPTY ? 0 : i - N_EMPTY + 1;
}

START_TEST(test_empty_shards_take_no_draws)
{
	/* Proves that a resampled order of a blend, whose first part is a sample after millions of empty shards, is made
	 * at once, and that the part has its share of the rows. */
	static const struct dataset_ops ops = { .shard_end = mostly_empty_end };
	struct dataset ds = { .ops = &ops, .n = 1 + N_OTHERS, .n_shards = N_EMPTY + 1 + N_OTHERS };
	struct dataset_blend blend = { .n = 2, .part = { { 0, 1, 1 }, { 1, N_OTHERS, 1 } } };
	struct plan_spec spec = {
		.n_samples = ds.n, .world_size = 1, .shuffle = PLAN_RESAMPLED + 1, .shards = &ds, .blend = &blend
	};
	static uint32_t order[1 + N_OTHERS];
	unsigned n_first = 0;

	ck_assert_int_eq(plan_window(&spec, order, NULL), 0);
	for (unsigned i = 0; i < ds.n; i++) {
		ck_assert_uint_lt(order[i], ds.n);
		n_first += !order[i];
	}
	ck_assert_uint_gt(n_first, N_OTHERS / 2 - N_OTHERS / 20);
	ck_assert_uint_lt(n_first, N_OTHERS / 2 + N_OTHERS / 20);
}
END_TEST

SUITE(plan_window)
{
	TCase *t = tcase_create("plan_window");
	Suite *s = suite_create("plan_window");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, test_shards_come_whole_and_samples_near_their_turns);
	tcase_add_test(t, test_ranks_and_resumes_divide_the_same_order);
	tcase_add_test(t, test_empty_shards_take_no_draws);
	suite_add_tcase(s, t);
	return s;
}
