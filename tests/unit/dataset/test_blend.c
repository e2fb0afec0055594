/* Blends: whose files their parts are, and what a plan takes of each part. */
#include "support/datasets.h"

#include "batch/plan/blend.h"

START_TEST(test_a_part_is_opened_with_its_own_descriptors)
{
	/* Proves that no part of another user's blend is opened by its path alone, or by another part's descriptors. */
	struct dataset *ds = NULL;
	char spec[512];
	int fd[2];

	make_pets();
	fd[0] = open_dir("pets");
	fd[1] = open_dir("pets");
	snprintf(spec, sizeof(spec), "imagefolder:%s/pets;;imagefolder:%s/pets", f.root, f.root);
	ck_assert_msg(open_as(&f.other, "blend", spec, NULL, fd, 2, &ds) == 0, "%s", f.err.text);
	ck_assert_uint_eq(dataset_n(ds), 6);
	ck_assert_uint_eq(dataset_n_classes(ds), 2);
	dataset_unref(ds);
	ck_assert_int_eq(open_as(&f.other, "blend", spec, NULL, fd, 1, &ds), -EINVAL);
	ck_assert_int_eq(open_as(&f.other, "blend", spec, NULL, NULL, 0, &ds), -EACCES);
	snprintf(spec, sizeof(spec), "imagefolder:%s/pets", f.root);
	ck_assert_int_eq(open_as(&f.other, "blend", spec, NULL, fd, 2, &ds), -EINVAL);
	close(fd[0]);
	close(fd[1]);
}
END_TEST

START_TEST(test_a_file_that_the_peer_may_not_read_is_refused)
{
	/* Proves that the second part's rights are checked at each read like the first one's. */
	struct file_bytes b = { 0 };
	struct dataset *ds = NULL;
	char spec[512];
	int fd[2];

	make_pets();
	make_dir("more", 0755);
	make_dir("more/cat", 0755);
	make_dir("more/dog", 0755);
	put("more/cat/x.jpg", "x");
	put_bytes("more/dog/secret.jpg", "s", 1, 0600);
	fd[0] = open_dir("pets");
	fd[1] = open_dir("more");
	snprintf(spec, sizeof(spec), "imagefolder:%s/pets;;imagefolder:%s/more", f.root, f.root);
	ck_assert_msg(open_as(&f.other, "blend", spec, NULL, fd, 2, &ds) == 0, "%s", f.err.text);
	close(fd[0]);
	close(fd[1]);
	ck_assert_int_eq(dataset_read(ds, 3, READ_WAIT, &b, &f.err), 0);
	ck_assert_int_eq(dataset_read(ds, 4, READ_WAIT, &b, &f.err), -EACCES);
	ck_assert_int_eq(dataset_label(ds, 4), 1);
	file_bytes_finish(&b);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_counts_follow_the_weights)
{
	/* Proves shares, their remainders, parts without samples, and weights of the smallest and largest size. */
	struct dataset_blend blend = { .n = 3, .part = { { 0, 5, 1 }, { 5, 5, 1 }, { 10, 5, 1 } } };
	uint64_t counts[64];

	plan_blend_counts(&blend, 10, counts);
	ck_assert_uint_eq(counts[0] + counts[1] + counts[2], 10);
	ck_assert_uint_eq(counts[0], 4);
	blend.part[1].n = 0;
	plan_blend_counts(&blend, 10, counts);
	ck_assert_uint_eq(counts[1], 0);
	ck_assert_uint_eq(counts[0], 5);
	blend.part[1] = (struct dataset_part){ 5, 5, 999999999999999999u };
	plan_blend_counts(&blend, UINT64_C(1) << 62, counts);
	ck_assert_uint_eq(counts[0] + counts[1] + counts[2], UINT64_C(1) << 62);
	ck_assert_uint_eq(counts[0], 5);
}
END_TEST

START_TEST(test_every_sample_of_a_list_is_given_out_on_any_number_of_ranks)
{
	/* Proves that ranks divide the list of a blend as they divide a data set, and a resumed epoch the rest of it. */
	struct dataset_blend blend = { .n = 2, .part = { { 0, 7, 3 }, { 7, 50, 1 } } };

	for (uint32_t world = 1; world <= 8; world++) {
		struct plan_spec spec = { .n_samples = 57,
					  .seed = 3,
					  .epoch = 2,
					  .world_size = world,
					  .shuffle = world % 2,
					  .blend = &blend };
		struct plan *whole, *rest;
		uint64_t n = 0;

		ck_assert_int_eq(plan_create(&spec, &whole), 0);
		spec.base = 20;
		spec.world_size = 3;
		ck_assert_int_eq(plan_create(&spec, &rest), 0);
		for (uint64_t at = 20; at < 57; at++) {
			ck_assert_uint_eq(plan_at(whole, (uint32_t)(at % world), at / world),
					  plan_at(rest, (uint32_t)((at - 20) % 3), (at - 20) / 3));
		}
		for (uint64_t at = 0; at < 57; at++) {
			n += plan_at(whole, (uint32_t)(at % world), at / world) < 7;
		}
		ck_assert_uint_eq(n, 43); /* 57 x 3 / 4 = 42.75 */
		plan_unref(whole);
		plan_unref(rest);
	}
}
END_TEST

SUITE(blend)
{
	TCase *t = tcase_create("blend");
	Suite *s = suite_create("blend");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, test_a_part_is_opened_with_its_own_descriptors);
	tcase_add_test(t, test_a_file_that_the_peer_may_not_read_is_refused);
	tcase_add_test(t, test_counts_follow_the_weights);
	tcase_add_test(t, test_every_sample_of_a_list_is_given_out_on_any_number_of_ranks);
	suite_add_tcase(s, t);
	return s;
}
