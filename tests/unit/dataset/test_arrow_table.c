/* Arrow tables in a client's memory: what the memfd must be, what the samples are, and what a broken one costs. The table is
 * the one that the fuzzer begins with: nine rows, of which the odd ones have pictures and the even ones name them. */
#include "support/datasets.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "support/arrow-seeds.h"

enum { ALL_SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

static int memory_of(size_t n, int seals)
{
	int fd = memfd_create("table", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int open_table(int fd, const char *names, struct dataset **out)
{
	int r = open_as(&f.other, "arrow", names, NULL, &fd, 1, out);

	close(fd); /* the data set has its own */
	return r;
}

static int more_memory(void *arg, uint64_t n)
{
	uint64_t *left = arg;

	if (n > *left) {
		return -EDQUOT;
	}
	*left -= n;
	return 0;
}

START_TEST(test_pictures_are_read_from_the_table)
{
	/* Pictures, labels and texts of the rows that have pictures; the same ids from another memfd with the same bytes, other
	 * ones from other bytes under the same hash. */
	static const char names[] = "table=abc,#image=i,label=l,t=t", picture[] = "\xff\xd8"
										  "3";
	static const uint64_t odd[] = { 1, 3, 5, 7 };
	struct dataset *ds[3] = { NULL };
	struct file_bytes b = { 0 };
	struct field_value v;
	char name[64];

	take_seed("stream");
	for (int i = 0; i < 3; i++) {
		int fds[2] = { memfd_create("rows", MFD_CLOEXEC), -1 };

		if (i == 2) {
			memcpy(memmem(bytes, n_bytes, picture, 3),
			       "\xff\xd8"
			       "x",
			       3);
		}
		fds[1] = memory_of(n_bytes, ALL_SEALS);
		ck_assert_int_eq(write(fds[0], odd, sizeof(odd)), sizeof(odd));
		ck_assert_msg(open_as(&f.other, "arrow", "table=abc,rows=def,#image=i,label=l,t=t", NULL, fds, 2,
				      &ds[i]) == 0,
			      "%s", f.err.text);
		close(fds[0]);
		close(fds[1]);
	}
	ck_assert(dataset_is_image(ds[0]));
	ck_assert_uint_eq(dataset_n(ds[0]), 4);
	ck_assert_int_eq(dataset_read(ds[0], 1, READ_NOWAIT, &b, &f.err), 0);
	ck_assert_uint_eq(b.n_bytes, 3);
	ck_assert_mem_eq(b.data, picture, 3);
	ck_assert_int_eq(dataset_is_current(ds[0], 1, READ_NOWAIT, &b), 1);
	ck_assert_int_eq(dataset_is_current(ds[1], 1, READ_NOWAIT, &b), 1);
	ck_assert_int_eq(dataset_is_current(ds[2], 1, READ_NOWAIT, &b), 0);
	ck_assert_int_eq(dataset_label(ds[0], 2), 1);
	dataset_value(ds[0], 2, 2, &v);
	ck_assert_uint_eq(v.n_bytes, 5);
	dataset_name(ds[0], 2, name, sizeof(name));
	ck_assert_str_eq(name, "table in memory: row 5");
	ck_assert_uint_eq(dataset_cache_id(ds[0]), dataset_cache_id(ds[1]));
	ck_assert_uint_eq(dataset_content_id(ds[0]), dataset_content_id(ds[1]));
	ck_assert_uint_ne(dataset_cache_id(ds[0]), dataset_cache_id(ds[2]));
	ck_assert_uint_ne(dataset_content_id(ds[0]), dataset_content_id(ds[2]));
	ck_assert_int_eq(open_table(memory_of(n_bytes, ALL_SEALS), names, &ds[2]), -EACCES); /* even rows name files */
	dataset_unref(ds[0]);
	dataset_unref(ds[1]);
	dataset_unref(ds[2]);
	file_bytes_finish(&b);
}
END_TEST

START_TEST(test_memory_that_could_change_is_refused)
{
	/* Each seal is needed; a file, a pipe and nothing are no table; a table goes with no files. */
	static const int too_few[] = { 0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_WRITE,
				       F_SEAL_GROW | F_SEAL_WRITE };
	static const char names[] = "table=abc,#v=v";
	struct dataset *ds = NULL;
	int pipes[2];

	take_seed("stream");
	for (size_t i = 0; i < sizeof(too_few) / sizeof(too_few[0]); i++) {
		ck_assert_int_eq(open_table(memory_of(n_bytes, too_few[i]), names, &ds), -EINVAL);
		ck_assert_ptr_nonnull(strstr(f.err.text, "sealed against shrinking, growing and writing"));
	}
	put_bytes("a.arrow", bytes, n_bytes, 0644);
	ck_assert_int_eq(open_table(open(in_root("a.arrow"), O_RDONLY), names, &ds), -EINVAL);
	ck_assert_ptr_nonnull(strstr(f.err.text, "sealed"));
	ck_assert_int_eq(pipe(pipes), 0);
	ck_assert_int_lt(open_table(pipes[0], names, &ds), 0);
	close(pipes[1]);
	ck_assert_int_eq(open_table(memory_of(0, ALL_SEALS), names, &ds), -EINVAL);
	ck_assert_ptr_nonnull(strstr(f.err.text, "empty"));
	ck_assert_int_eq(open_as(&f.trusted, "arrow", names, NULL, NULL, 0, &ds), -EINVAL);
	ck_assert_ptr_nonnull(strstr(f.err.text, "0 descriptors"));
	ck_assert_int_eq(open_table(memory_of(n_bytes, ALL_SEALS), "table=abc,/tmp//a.arrow#v=v", &ds), -EINVAL);
	ck_assert_ptr_nonnull(strstr(f.err.text, "has no files"));
}
END_TEST

START_TEST(test_a_table_that_is_cut_short_is_refused)
{
	/* At each byte, in both forms: an error, and no descriptor or memory left (the fixture counts, and sanitizers). */
	struct dataset *ds = NULL;

	for (int form = 0; form < 2; form++) {
		take_seed(form ? "file" : "stream");
		for (size_t n = 1; n < n_bytes - 8; n += 7) {
			ck_assert_int_lt(open_table(memory_of(n, ALL_SEALS), "table=abc,#v=v,l=l,r=r,t=t", &ds), 0);
			ck_assert_ptr_nonnull(strstr(f.err.text, "table in memory"));
		}
	}
}
END_TEST

START_TEST(test_memory_is_charged_while_it_is_held)
{
	/* With pictures as long as the data set is open; without, only until the values are read; more than there is room for is
	 * refused before it is mapped. */
	struct dataset *ds = NULL;
	uint64_t left = 1 << 20;
	struct meter meter = { .more = more_memory, .arg = &left };
	char spec[] = "arrow:table=abc,#v=v";
	int fd;

	take_seed("stream");
	fd = memory_of(n_bytes, F_SEAL_SHRINK);
	ck_assert_int_eq(ftruncate(fd, 512 << 10), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, ALL_SEALS), 0);
	struct dataset_source source = { .spec = spec, .access = &f.other, .fds = &fd, .n_fds = 1, .meter = &meter };

	ck_assert_msg(dataset_open(&source, &ds, &f.err) == 0, "%s", f.err.text);
	ck_assert_uint_lt(dataset_memory_bytes(ds), 256 << 10);
	dataset_unref(ds);
	left = 256 << 10;
	meter = (struct meter){ .more = more_memory, .arg = &left };
	ck_assert_int_eq(dataset_open(&source, &ds, &f.err), -EDQUOT);
	close(fd);
	fd = memory_of(n_bytes, ALL_SEALS);
	ck_assert_int_eq(open_table(fd, "table=abc,images=/,#image=i", &ds), -EINVAL); /* no folder was sent */
}
END_TEST

static atomic_bool stop;

static void stop_at_once(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	uint64_t *far = arg;

	(void)phase;
	ck_assert_uint_eq(*far, 0); /* it is not called after that */
	ck_assert_uint_lt(done, total);
	*far = done;
	atomic_store(&stop, true);
}

START_TEST(test_an_opening_that_is_stopped_ends_amid_the_table)
{
	/* Proves that a large table is not hashed to its end once the opening is stopped. */
	struct dataset *ds = NULL;
	uint64_t far = 0;
	char spec[] = "arrow:table=abc,#v=v";
	int fd;

	take_seed("stream");
	fd = memory_of(n_bytes, F_SEAL_SHRINK);
	ck_assert_int_eq(ftruncate(fd, 100 << 20), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, ALL_SEALS), 0);
	struct dataset_source source = { .spec = spec,
					 .access = &f.other,
					 .fds = &fd,
					 .n_fds = 1,
					 .on_progress = stop_at_once,
					 .progress_arg = &far,
					 .stop = &stop };

	ck_assert_int_eq(dataset_open(&source, &ds, &f.err), -ECANCELED);
	ck_assert_uint_gt(far, 0);
	close(fd);
}
END_TEST

SUITE(arrow_table)
{
	Suite *s = suite_create("arrow_table");
	TCase *tc = tcase_create("arrow_table");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_pictures_are_read_from_the_table);
	tcase_add_test(tc, test_memory_that_could_change_is_refused);
	tcase_add_test(tc, test_a_table_that_is_cut_short_is_refused);
	tcase_add_test(tc, test_memory_is_charged_while_it_is_held);
	tcase_add_test(tc, test_an_opening_that_is_stopped_ends_amid_the_table);
	suite_add_tcase(s, tc);
	return s;
}
