/* What clients' files and requests make the daemon spend: it is counted while it grows, given back with the last
 * reference, and refused at the limit. */
#include <pthread.h>
#include <stdatomic.h>

#include "batch/plan/plan.h"
#include "dataset/folder/manifest.h"
#include "support/datasets.h"
#include "base/account.h"

enum { MANY = 40000 };

static struct accounts a;

/* A meter that grants `limit` bytes and records how much was requested. */
struct purse {
	uint64_t limit, granted;
};

static int grant(void *arg, uint64_t bytes)
{
	struct purse *p = arg;

	if (bytes > p->limit - p->granted) {
		return -EDQUOT;
	}
	p->granted += bytes;
	return 0;
}

static int open_with(struct purse *p, const char *kind, const char *rest, struct dataset **out)
{
	struct meter meter = { .more = grant, .arg = p };
	char spec[600];
	struct dataset_source source = { .spec = spec, .access = &f.trusted, .meter = &meter };

	snprintf(spec, sizeof(spec), "%s:%s", kind, rest);
	return dataset_open(&source, out, &f.err);
}

/* ---- accounts ---- */

START_TEST(test_batches_and_data_come_out_of_one_budget)
{
	/* Proves that memory taken by one kind is not available to the other, for one user and for all. */
	struct charge slots = { 0 }, data = { 0 }, other = { 0 };

	a = (struct accounts){ .memory_limit = 100, .memory_limit_per_user = 80 };
	ck_assert_int_eq(charge_begin(&slots, &a, 1, ACCOUNT_SLOT_BYTES, 50), 0);
	ck_assert_int_eq(charge_begin(&data, &a, 1, ACCOUNT_DATA_BYTES, 31), ACCOUNT_E_USER);
	ck_assert_int_eq(charge_begin(&data, &a, 1, ACCOUNT_DATA_BYTES, 30), 0);
	ck_assert_uint_eq(account_memory_left(&a, 1), 0);
	ck_assert_uint_eq(account_memory_left(&a, 2), 20);
	ck_assert_int_eq(charge_begin(&other, &a, 2, ACCOUNT_DATA_BYTES, 21), ACCOUNT_E_ALL);
	ck_assert_int_eq(charge_begin(&other, &a, 2, ACCOUNT_DATA_BYTES, 20), 0);
	ck_assert_int_eq(charge_grow(&slots, 1), ACCOUNT_E_ALL);
	charge_release(&data);
	ck_assert_int_eq(charge_grow(&slots, 1), 0);
	ck_assert_uint_eq(accounts_memory_used(&a), 71);
	charge_release(&slots);
	charge_release(&other);
	ck_assert(accounts_balanced(&a));
}
END_TEST

static void *charge_and_give_back(void *arg)
{
	struct charge c = { 0 };

	(void)arg;
	for (int i = 0; i < 20000; i++) {
		if (charge_begin(&c, &a, (uid_t)(i % 3), ACCOUNT_DATA_BYTES, 7) == 0) {
			(void)charge_grow(&c, 5);
			charge_release(&c);
		}
	}
	return NULL;
}

START_TEST(test_threads_charge_one_user_without_losing_a_byte)
{
	/* Proves that I/O threads may charge: after four threads' charges the accounts are balanced. */
	pthread_t t[4];

	a = (struct accounts){ .memory_limit = 40 };
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(pthread_create(&t[i], NULL, charge_and_give_back, NULL), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
	}
	ck_assert(accounts_balanced(&a));
}
END_TEST

static atomic_bool merging;
static atomic_uint n_taken;

/* Takes whatever another user leaves free. */
static void *take_what_is_free(void *arg)
{
	struct charge c = { 0 };

	(void)arg;
	while (atomic_load(&merging)) {
		if (charge_begin(&c, &a, 2, ACCOUNT_SLOT_BYTES, 10) == 0) {
			atomic_fetch_add(&n_taken, 1);
			charge_release(&c);
		}
	}
	return NULL;
}

START_TEST(test_two_charges_become_one_and_leave_no_hole_between)
{
	/* Proves that what is moved from one charge to another is charged at every moment: with the whole budget in use,
	 * a second user that asks all the time gets nothing. */
	struct charge slots = { 0 }, more = { 0 };
	pthread_t taker;

	a = (struct accounts){ .memory_limit = 100000 };
	atomic_store(&merging, true);
	atomic_store(&n_taken, 0);
	ck_assert_int_eq(charge_begin(&slots, &a, 1, ACCOUNT_SLOT_BYTES, 0), 0);
	ck_assert_int_eq(charge_begin(&more, &a, 1, ACCOUNT_SLOT_BYTES, 100000), 0);
	ck_assert_int_eq(pthread_create(&taker, NULL, take_what_is_free, NULL), 0);
	for (int i = 0; i < 100000; i++) {
		charge_merge(&slots, &more);
		charge_move(&more, &slots);
		ck_assert_int_eq(charge_begin(&slots, &a, 1, ACCOUNT_SLOT_BYTES, 0), 0);
	}
	atomic_store(&merging, false);
	pthread_join(taker, NULL);
	ck_assert_uint_eq(atomic_load(&n_taken), 0);
	ck_assert_uint_eq(more.amount, 100000);
	charge_merge(&slots, &more);
	ck_assert_ptr_null(more.account);
	charge_release(&slots);
	ck_assert(accounts_balanced(&a));
}
END_TEST

START_TEST(test_an_order_is_charged_until_its_last_reference_goes)
{
	/* Proves that a plan that a stream keeps stays charged although its loader has forgotten it. */
	struct plan_spec spec = { .n_samples = 1000, .world_size = 1, .shuffle = true };
	struct charge c = { 0 };
	struct plan *p;

	a = (struct accounts){ 0 };
	ck_assert_uint_eq(plan_spec_bytes(&spec), 4000);
	spec.n_samples = UINT64_C(5) << 30;
	ck_assert_uint_eq(plan_spec_bytes(&spec), UINT64_C(40) << 30);
	spec.n_samples = UINT64_C(1) << 62;
	ck_assert_uint_eq(plan_spec_bytes(&spec), UINT64_MAX);
	spec.shuffle = false;
	ck_assert_uint_lt(plan_spec_bytes(&spec), 1000);
	spec = (struct plan_spec){ .n_samples = 1000, .world_size = 1, .shuffle = true };
	ck_assert_int_eq(charge_begin(&c, &a, 1, ACCOUNT_DATA_BYTES, plan_spec_bytes(&spec)), 0);
	ck_assert_int_eq(plan_create(&spec, &p), 0);
	plan_take_charge(p, &c);
	plan_ref(p);
	plan_unref(p);
	ck_assert_uint_eq(account_used(&a, 1, ACCOUNT_DATA_BYTES), 4000);
	plan_unref(p);
	ck_assert(accounts_balanced(&a));
}
END_TEST

/* ---- lists and folders ---- */

/* `n` lines, every third of them in a folder of its own; about 3 MB for 40000. */
static void put_long_list(const char *name, unsigned n)
{
	FILE *list = fopen(in_root(name), "w");

	for (unsigned i = 0; i < n; i++) {
		fprintf(list, "%s%u/a-name-that-makes-lines-end-at-odd-places-%u.jpg\t%u\n", i % 3 ? "dir" : "own",
			i % 3, i, i);
	}
	ck_assert_int_eq(fclose(list), 0);
}

START_TEST(test_a_list_longer_than_a_piece_has_every_line)
{
	/* Proves that lines across the borders of chunks are complete, and that the last line needs no newline. */
	struct dataset *ds;
	char name[128], wanted[128];
	int fd;

	put_long_list("list", MANY);
	fd = open(in_root("list"), O_WRONLY);
	ck_assert_int_eq(ftruncate(fd, lseek(fd, 0, SEEK_END) - 1), 0);
	close(fd);
	ds = open_trusted("files", in_root("list"));
	ck_assert_uint_eq(dataset_n(ds), MANY);
	for (unsigned i = 0; i < MANY; i++) {
		dataset_name(ds, i, name, sizeof(name));
		snprintf(wanted, sizeof(wanted), "%s%u/a-name-that-makes-lines-end-at-odd-places-%u.jpg",
			 i % 3 ? "dir" : "own", i % 3, i);
		ck_assert_str_eq(name, wanted);
		ck_assert_int_eq(dataset_label(ds, i), (int64_t)i);
	}
	dataset_unref(ds);
}
END_TEST

START_TEST(test_a_sparse_list_takes_no_memory)
{
	/* Proves that a file of 7 GiB without a newline costs one chunk: it is refused after the first 64 KiB, naming
	 * the line. */
	struct purse p = { .limit = 1 << 20 };
	struct dataset *ds;
	int fd = open(in_root("list"), O_WRONLY | O_CREAT, 0644);

	ck_assert_int_eq(write(fd, "a.jpg 1\n", 8), 8);
	ck_assert_int_eq(ftruncate(fd, (off_t)7 << 30), 0);
	close(fd);
	ck_assert_int_lt(open_with(&p, "files", in_root("list"), &ds), 0);
	ck_assert_msg(strstr(f.err.text, ":2: a line of more than 64 KiB") != NULL, "%s", f.err.text);
}
END_TEST

START_TEST(test_a_data_set_asks_before_it_grows)
{
	/* Proves for lists, folders and names of classes that a limit one byte below the memory that they keep refuses
	 * them, and that a limit equal to the memory that they requested does not. */
	const char *kinds[] = { "files", "imagefolder", "random" };
	char list[64], tree[64], path[64];
	const char *rest[] = { list, tree, "length=5,shape=1,classes=1000000" };

	snprintf(list, sizeof(list), "%.40s/list", f.root);
	snprintf(tree, sizeof(tree), "%.40s/tree", f.root);

	put_long_list("list", MANY);
	make_dir("tree", 0755);
	for (unsigned c = 0; c < 300; c++) {
		snprintf(path, sizeof(path), "tree/%u", c);
		make_dir(path, 0755);
		for (unsigned i = 0; i < 10; i++) {
			snprintf(path, sizeof(path), "tree/%u/picture-%u.jpg", c, i);
			put(path, "");
		}
	}
	for (int i = 0; i < 3; i++) {
		struct purse p = { .limit = UINT64_MAX };
		struct dataset *ds;
		uint64_t needed, kept;

		ck_assert_msg(open_with(&p, kinds[i], rest[i], &ds) == 0, "%s: %s", kinds[i], f.err.text);
		ck_assert_uint_ge(p.granted, dataset_memory_bytes(ds));
		ck_assert_uint_gt(dataset_memory_bytes(ds), i == 1 ? 30000 : 1 << 20);
		kept = dataset_memory_bytes(ds);
		dataset_unref(ds);
		needed = p.granted;
		p = (struct purse){ .limit = needed };
		ck_assert_int_eq(open_with(&p, kinds[i], rest[i], &ds), 0);
		dataset_unref(ds);
		p = (struct purse){ .limit = kept - 1 };
		ck_assert_int_eq(open_with(&p, kinds[i], rest[i], &ds), -EDQUOT);
		ck_assert_int_eq(f.err.code, DATASET_E_LIMIT);
	}
}
END_TEST

SUITE(charges)
{
	Suite *s = suite_create("charges");
	TCase *t = tcase_create("charges");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, test_batches_and_data_come_out_of_one_budget);
	tcase_add_test(t, test_threads_charge_one_user_without_losing_a_byte);
	tcase_add_test(t, test_two_charges_become_one_and_leave_no_hole_between);
	tcase_add_test(t, test_an_order_is_charged_until_its_last_reference_goes);
	tcase_add_test(t, test_a_list_longer_than_a_piece_has_every_line);
	tcase_add_test(t, test_a_sparse_list_takes_no_memory);
	tcase_add_test(t, test_a_data_set_asks_before_it_grows);
	suite_add_tcase(s, t);
	return s;
}
