/* The order of an epoch: arithmetic here, torch itself in tests/system/loader/test_order.py. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "batch/plan/mt19937.h"
#include "batch/plan/plan.h"
#include "support/suite.h"

/* The sanitizers stop the program at an allocation that malloc would refuse; one case here needs the refusal. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "allocator_may_return_null=1";
}

static struct plan *make(struct plan_spec spec)
{
	struct plan *p = NULL;

	ck_assert_int_eq(plan_create(&spec, &p), 0);
	return p;
}

START_TEST(test_generator_draws_the_published_sequence)
{
	/* Proves the generator against the known 10000th output for seed 5489, and that only the low half of a seed
	 * counts. */
	struct mt19937 mt;
	uint32_t block[MT19937_N];

	mt19937_init(&mt, ((uint64_t)7 << 32) + 5489);
	for (int i = 0; i < 10000; i += MT19937_N) {
		mt19937_block(&mt, block);
	}
	ck_assert_uint_eq(block[9999 % MT19937_N], 4123659995u);
}
END_TEST

START_TEST(test_wide_shuffle_is_torchs)
{
	/* Proves the shuffle of very large sets on a small one, against the same loop over torch's draws with seed
	 * 5. */
	static const uint32_t expected[] = { 298, 127, 35, 39, 441, 895, 610, 299, 855, 876, 879, 511 };
	uint32_t order32[1000];
	uint64_t order64[1000];
	struct mt19937 mt;

	mt19937_init(&mt, 5);
	randperm_wide32(&mt, order32, 1000);
	mt19937_init(&mt, 5);
	randperm_wide64(&mt, order64, 1000);
	for (int i = 0; i < 12; i++) {
		ck_assert_uint_eq(order32[i < 8 ? i : 988 + i], expected[i]);
	}
	for (int i = 0; i < 1000; i++) {
		ck_assert_uint_eq(order64[i], order32[i]);
	}
}
END_TEST

START_TEST(test_every_sample_is_read_once_and_padding_is_marked)
{
	/* Proves that rows not marked as padding hold each sample exactly once, that padding comes last, and that ranks
	 * are equally long. */
	for (uint64_t n = 1; n < 40; n++) {
		for (uint32_t w = 1; w < 12; w++) {
			for (uint64_t base = 0; base <= n; base += 5) {
				struct plan *p = make((struct plan_spec){ .n_samples = n,
									  .seed = n,
									  .epoch = w,
									  .base = base,
									  .world_size = w,
									  .shuffle = true });
				unsigned seen[40] = { 0 }, n_real = 0;

				for (uint32_t rank = 0; rank < w; rank++) {
					bool padding = false;

					for (uint64_t i = 0; i < plan_n_per_rank(p); i++) {
						uint64_t at = plan_at(p, rank, i);

						ck_assert_uint_lt(at, n);
						ck_assert(plan_is_padding(p, rank, i) || !padding);
						padding = plan_is_padding(p, rank, i);
						seen[at] += !padding;
						n_real += !padding;
					}
				}
				ck_assert_uint_eq(n_real, n - base);
				for (uint64_t i = 0; i < n; i++) {
					ck_assert_uint_le(seen[i], 1);
				}
				plan_unref(p);
			}
		}
	}
}
END_TEST

START_TEST(test_repeats_follow_each_other_and_the_epoch_ends_where_asked)
{
	/* Proves each sample's number of positions for lengths around every limit, that padding is the epoch's beginning,
	 * and that products beyond 63 bits are cut instead of wrapping. */
	for (uint64_t length = 0; length <= 36; length++) {
		for (uint32_t w = 1; w < 6; w++) {
			struct plan *p = make((struct plan_spec){ .n_samples = 11,
								  .repeats = 3,
								  .n_rows = length,
								  .seed = 4,
								  .world_size = w,
								  .shuffle = true });
			struct plan *once = make(
				(struct plan_spec){ .n_samples = 11, .seed = 4, .world_size = 1, .shuffle = true });
			uint64_t n = length && length < 33 ? length : 33;

			ck_assert_uint_eq(plan_length(11, 3, length), n);
			ck_assert_uint_eq(plan_n_per_rank(p), (n + w - 1) / w);
			for (uint32_t rank = 0; rank < w; rank++) {
				for (uint64_t i = 0; i < plan_n_per_rank(p); i++) {
					uint64_t at = i * w + rank;

					ck_assert_uint_eq(plan_at(p, rank, i), plan_at(once, 0, at % n / 3));
					ck_assert_int_eq(plan_is_padding(p, rank, i), at >= n);
					ck_assert_uint_eq(plan_repeat(at, n, 3), at % n % 3);
				}
			}
			plan_unref(p);
			plan_unref(once);
		}
	}
	ck_assert_uint_eq(plan_length(INT64_MAX, 65536, 0), INT64_MAX);
	ck_assert_uint_eq(plan_length(INT64_MAX / 2 + 1, 2, UINT64_MAX), INT64_MAX);
	ck_assert_uint_eq(plan_length(0, 3, 7), 0);
	ck_assert_uint_eq(plan_repeat(5, 0, 3), 0);
}
END_TEST

START_TEST(test_drop_last_never_pads)
{
	/* Proves both sides of the limit: n below, at and above a multiple of the world size. */
	for (uint64_t n = 0; n < 17; n++) {
		struct plan_spec spec = { .n_samples = n, .world_size = 8, .drop_last = true, .shuffle = true };
		struct plan *p = make(spec);

		ck_assert_uint_eq(plan_n_per_rank(p), n / 8);
		ck_assert_uint_eq(plan_spec_n_per_rank(&spec), n / 8);
		for (uint32_t rank = 0; rank < 8; rank++) {
			for (uint64_t i = 0; i < plan_n_per_rank(p); i++) {
				ck_assert(!plan_is_padding(p, rank, i));
			}
		}
		plan_unref(p);
	}
}
END_TEST

START_TEST(test_resume_at_any_base_continues_the_same_order)
{
	/* Proves that an epoch cut anywhere and resumed with another world size continues the same sequence. */
	struct plan *whole = make((struct plan_spec){ .n_samples = 101, .seed = 3, .world_size = 1, .shuffle = true });

	for (uint64_t base = 0; base < 101; base++) {
		struct plan *rest = make((struct plan_spec){
			.n_samples = 101, .seed = 3, .base = base, .world_size = 4, .shuffle = true });

		for (uint64_t at = base; at < 101; at++) {
			uint64_t offset = at - base;

			ck_assert_uint_eq(plan_at(rest, (uint32_t)(offset % 4), offset / 4), plan_at(whole, 0, at));
		}
		plan_unref(rest);
	}
	plan_unref(whole);
}
END_TEST

START_TEST(test_an_epoch_that_is_all_consumed_has_no_rows)
{
	/* Proves that a base at or after the end, as in the token of an epoch's last batch, leaves nothing. */
	for (uint64_t base = 10; base < 13; base++) {
		struct plan *p =
			make((struct plan_spec){ .n_samples = 10, .base = base, .world_size = 3, .shuffle = true });

		ck_assert_uint_eq(plan_n_per_rank(p), 0);
		plan_unref(p);
	}
}
END_TEST

START_TEST(test_huge_sequential_sets_cost_no_memory)
{
	/* Proves that without shuffle no array is made, so that 2^62 samples are as cheap as ten. */
	struct plan *p = make((struct plan_spec){ .n_samples = 1ull << 62, .world_size = 7 });

	ck_assert_uint_eq(plan_at(p, 3, 1ull << 40), (7ull << 40) + 3);
	plan_unref(p);
}
END_TEST

START_TEST(test_impossible_plans_are_refused)
{
	/* Proves that a world of size 0 and a size beyond int64 are -EINVAL, and an impossible array -ENOMEM. */
	struct plan_spec nobody = { .n_samples = 5 }, large = { .n_samples = 1ull << 63, .world_size = 1 };
	struct plan_spec no_memory = { .n_samples = 1ull << 60, .world_size = 1, .shuffle = true };
	struct plan *p;

	ck_assert_int_eq(plan_create(&nobody, &p), -EINVAL);
	ck_assert_int_eq(plan_create(&large, &p), -EINVAL);
	ck_assert_int_eq(plan_create(&no_memory, &p), -ENOMEM);
}
END_TEST

START_TEST(test_batches_round_as_asked)
{
	/* Proves the number of batches on both sides of a multiple. */
	ck_assert_uint_eq(plan_n_batches(0, 64, false), 0);
	ck_assert_uint_eq(plan_n_batches(63, 64, true), 0);
	ck_assert_uint_eq(plan_n_batches(63, 64, false), 1);
	ck_assert_uint_eq(plan_n_batches(64, 64, false), 1);
	ck_assert_uint_eq(plan_n_batches(65, 64, true), 1);
	ck_assert_uint_eq(plan_n_batches(65, 64, false), 2);
	ck_assert_uint_eq(plan_n_batches(5, 0, false), 0);
}
END_TEST

static void *take_and_give_back(void *arg)
{
	struct plan *p = arg;

	for (int i = 0; i < 1000; i++) {
		plan_unref(plan_ref(p));
	}
	plan_unref(p);
	return NULL;
}

START_TEST(test_threads_share_a_plan)
{
	/* Proves that any thread may take and drop references; the last drop frees (checked by the sanitizers). */
	struct plan *p = make((struct plan_spec){ .n_samples = 1000, .world_size = 2, .shuffle = true });
	pthread_t t[4];

	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(pthread_create(&t[i], NULL, take_and_give_back, plan_ref(p)), 0);
	}
	plan_unref(p);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
	}
}
END_TEST

SUITE(plan)
{
	Suite *s = suite_create("sampler");
	TCase *tc = tcase_create("order");

	tcase_add_test(tc, test_generator_draws_the_published_sequence);
	tcase_add_test(tc, test_wide_shuffle_is_torchs);
	tcase_add_test(tc, test_every_sample_is_read_once_and_padding_is_marked);
	tcase_add_test(tc, test_repeats_follow_each_other_and_the_epoch_ends_where_asked);
	tcase_add_test(tc, test_drop_last_never_pads);
	tcase_add_test(tc, test_resume_at_any_base_continues_the_same_order);
	tcase_add_test(tc, test_an_epoch_that_is_all_consumed_has_no_rows);
	tcase_add_test(tc, test_huge_sequential_sets_cost_no_memory);
	tcase_add_test(tc, test_impossible_plans_are_refused);
	tcase_add_test(tc, test_batches_round_as_asked);
	tcase_add_test(tc, test_threads_share_a_plan);
	suite_add_tcase(s, tc);
	return s;
}
