/* Arrays and random samples: rows and labels gathered from them. */
#include <sys/mman.h>

#include "support/datasets.h"

static const char *two_files(const char *a, const char *b)
{
	static char both[600];

	snprintf(both, sizeof(both), "%s,%s", in_root(a), in_root(b));
	return both;
}

START_TEST(test_rows_are_gathered)
{
	/* Proves every row width that has a copy loop of its own, and widths between them, against the plain
	 * definition. */
	static const unsigned widths[] = { 1, 2, 3, 4, 5, 8, 12, 16, 31, 32, 33, 64, 100, 300 };
	uint64_t indices[200];

	for (int i = 0; i < 200; i++) {
		indices[i] = (uint64_t)(i * 37 % 100);
	}
	for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
		unsigned char data[100 * 300], rows[200 * 300 + 1];
		struct dataset *ds;
		char text[32];

		for (unsigned i = 0; i < 100 * widths[w]; i++) {
			data[i] = (unsigned char)(i * 131 + i / 251);
		}
		snprintf(text, sizeof(text), "(100, %u)", widths[w]);
		put_npy("x.npy", "|u1", text, data, 100 * widths[w]);
		ds = open_trusted("npy", in_root("x.npy"));
		ck_assert_uint_eq(dataset_n(ds), 100);
		ck_assert(!dataset_is_image(ds));
		ck_assert_uint_eq(dataset_n_fields(ds), 1); /* and no label, which nothing says */
		ck_assert_uint_eq(dataset_field(ds, 0)->n_dims, 1);
		ck_assert_uint_eq(dataset_field(ds, 0)->shape[0], widths[w]);
		ck_assert_int_eq(dataset_field(ds, 0)->dtype, DTYPE_UINT8);
		rows[200 * widths[w]] = 0xa5;
		ck_assert_int_eq(dataset_gather(ds, indices, 200, ROWS(rows), &f.err), 0);
		for (int i = 0; i < 200; i++) {
			ck_assert_int_eq(memcmp(rows + (size_t)i * widths[w], data + indices[i] * widths[w], widths[w]),
					 0);
		}
		ck_assert_uint_eq(rows[200 * widths[w]], 0xa5);
		dataset_unref(ds);
	}
}
END_TEST

START_TEST(test_integer_labels_become_int64)
{
	/* Proves widening with sign for each integer type, and that other labels are delivered as stored. */
	static const int8_t features[4] = { 0 };
	static const uint8_t u1[4] = { 0, 255, 3, 4 };
	static const int16_t i2[4] = { -1, 32767, -32768, 4 };
	static const int32_t i4[4] = { -1, INT32_MAX, INT32_MIN, 4 };
	static const int64_t i8[4] = { -1, INT64_MAX, INT64_MIN, 4 };
	static const float f4[8] = { 1.5f, 2, 3, 4, 5, 6, 7, 8 };
	static const uint64_t indices[] = { 3, 2, 1, 0 };
	static const int64_t expected[4][4] = { { 4, 3, 255, 0 },
						{ 4, -32768, 32767, -1 },
						{ 4, INT32_MIN, INT32_MAX, -1 },
						{ 4, INT64_MIN, INT64_MAX, -1 } };
	static const struct {
		const char *descr;
		const void *data;
		size_t n;
	} types[] = { { "|u1", u1, sizeof(u1) },
		      { "<i2", i2, sizeof(i2) },
		      { "<i4", i4, sizeof(i4) },
		      { "<i8", i8, sizeof(i8) } };
	struct dataset *ds;
	int8_t rows[4];
	float labels[8];

	put_npy("x.npy", "|u1", "(4,)", features, 4);
	for (int t = 0; t < 4; t++) {
		int64_t got[4];

		put_npy("y.npy", types[t].descr, "(4,)", types[t].data, types[t].n);
		ds = open_trusted("npy", two_files("x.npy", "y.npy"));
		ck_assert_uint_eq(dataset_field(ds, 1)->n_dims, 0);
		ck_assert_int_eq(dataset_field(ds, 1)->dtype, DTYPE_INT64);
		ck_assert_int_eq(dataset_gather(ds, indices, 4, ROWS(rows, got), &f.err), 0);
		ck_assert_int_eq(memcmp(got, expected[t], sizeof(got)), 0);
		dataset_unref(ds);
	}
	put_npy("y.npy", "<f4", "(4, 2)", f4, sizeof(f4));
	ds = open_trusted("npy", two_files("x.npy", "y.npy"));
	ck_assert_uint_eq(dataset_field(ds, 1)->n_dims, 1);
	ck_assert_uint_eq(dataset_field(ds, 1)->shape[0], 2);
	ck_assert_int_eq(dataset_field(ds, 1)->dtype, DTYPE_FLOAT32);
	ck_assert_int_eq(dataset_gather(ds, indices, 4, ROWS(rows, labels), &f.err), 0);
	ck_assert(labels[0] == 7 && labels[1] == 8 && labels[6] == 1.5f);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_arrays_that_do_not_fit_are_refused)
{
	/* Proves the checks across files: numbers of samples, promised size, no samples, descriptors. */
	static const char zeros[64];
	struct dataset *ds;
	int fd;

	put_npy("x.npy", "<f4", "(4,)", zeros, 16);
	put_npy("y.npy", "<i4", "(3,)", zeros, 12);
	ck_assert_int_eq(open_as(&f.trusted, "npy", two_files("x.npy", "y.npy"), NULL, NULL, 0, &ds), -EINVAL);
	ck_assert_msg(strstr(f.err.text, "4 samples") && strstr(f.err.text, "'label' 3"), "%s", f.err.text);
	put_npy("x.npy", "<f4", "(5,)", zeros, 16);
	ck_assert_int_eq(open_as(&f.trusted, "npy", in_root("x.npy"), NULL, NULL, 0, &ds), -EINVAL);
	ck_assert_msg(strstr(f.err.text, "its header promises") != NULL, "%s", f.err.text);
	put_npy("x.npy", "<f4", "(0, 4)", zeros, 0);
	ck_assert_int_eq(open_as(&f.trusted, "npy", in_root("x.npy"), NULL, NULL, 0, &ds), -EINVAL);
	put_npy("x.npy", "<f4", "()", zeros, 4);
	ck_assert_int_eq(open_as(&f.trusted, "npy", in_root("x.npy"), NULL, NULL, 0, &ds), -EINVAL);
	put("x.npy", "text");
	ck_assert_int_eq(open_as(&f.trusted, "npy", in_root("x.npy"), NULL, NULL, 0, &ds), -EINVAL);
	ck_assert_msg(strstr(f.err.text, "not a .npy file") != NULL, "%s", f.err.text);
	fd = open(in_root("x.npy"), O_WRONLY);
	ck_assert_int_eq(open_as(&f.other, "npy", in_root("x.npy"), NULL, &fd, 1, &ds), -EACCES);
	close(fd);
	fd = open(in_root("x.npy"), O_PATH);
	ck_assert_int_lt(open_as(&f.other, "npy", in_root("x.npy"), NULL, &fd, 1, &ds), 0);
	close(fd);
}
END_TEST

START_TEST(test_arrays_in_huge_pages_are_refused)
{
	/* Proves that an array on hugetlbfs is refused by name, because its mapping cannot be undone by its length.
	 * Skipped where no huge page is available to write the array to. */
	static const char header[] = "\x93NUMPY\1\0\x76\0{'descr': '<i4', 'fortran_order': False, 'shape': (4,), }";
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
	size_t size = 2 << 20;
	char *map = MAP_FAILED;
	struct dataset *ds;

	if (fd >= 0 && ftruncate(fd, (off_t)size) == 0) {
		map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	}
	if (map == MAP_FAILED) {
		printf("skipped: no huge pages here: %s\n", strerror(errno));
	} else {
		memcpy(map, header, sizeof(header) - 1);
		memset(map + sizeof(header) - 1, ' ', 128 - sizeof(header));
		map[127] = '\n';
		ck_assert_int_eq(open_as(&f.other, "npy", "/huge", NULL, &fd, 1, &ds), -EINVAL);
		ck_assert_msg(strstr(f.err.text, "/huge: in huge pages") != NULL, "%s", f.err.text);
		munmap(map, size);
	}
	if (fd >= 0) {
		close(fd);
	}
}
END_TEST

START_TEST(test_a_file_cut_short_is_an_error_not_a_crash)
{
	/* Proves that pages that vanish under a mapping, and a cut inside the last page, are -EIO naming the file; the
	 * data set works again when the file is restored. */
	static const uint64_t indices[] = { 0, 9999 };
	static unsigned char data[10000];
	struct dataset *ds;
	unsigned char rows[2];
	int64_t labels[2];
	struct stat st;

	memset(data, 7, sizeof(data));
	put_npy("x.npy", "|u1", "(10000,)", data, sizeof(data));
	ds = open_trusted("npy", in_root("x.npy"));
	ck_assert_int_eq(dataset_gather(ds, indices, 2, ROWS(rows, labels), &f.err), 0);
	ck_assert_int_eq(stat(in_root("x.npy"), &st), 0);
	for (int turn = 0; turn < 2; turn++) {
		ck_assert_int_eq(truncate(in_root("x.npy"), turn ? st.st_size - 1 : 100), 0);
		ck_assert_int_eq(dataset_gather(ds, indices, 2, ROWS(rows, labels), &f.err), -EIO);
		ck_assert_msg(strstr(f.err.text, "x.npy: the file has become shorter") != NULL, "%s", f.err.text);
		ck_assert_int_eq(truncate(in_root("x.npy"), st.st_size), 0);
		ck_assert_int_eq(dataset_gather(ds, indices, 2, ROWS(rows, labels), &f.err), 0);
	}
	dataset_unref(ds);
}
END_TEST

START_TEST(test_arrays_have_the_names_that_they_are_given)
{
	/* Proves that any number of arrays is gathered, each under its name and in its type; only "label" becomes int64. */
	static const float x[6] = { 0, 1, 2, 3, 4, 5 };
	static const int16_t label[3] = { 7, -8, 9 }, id[3] = { 1, 2, 3 };
	static const uint64_t indices[] = { 2, 0 };
	struct dataset *ds;
	char spec[600];
	int64_t labels[2];
	int16_t ids[2];
	float rows[4];

	put_npy("x.npy", "<f4", "(3, 2)", x, sizeof(x));
	put_npy("l.npy", "<i2", "(3,)", label, sizeof(label));
	put_npy("i.npy", "<i2", "(3,)", id, sizeof(id));
	snprintf(spec, sizeof(spec), "id=%s,label=%s,x=%s", in_root("i.npy"), in_root("l.npy"), in_root("x.npy"));
	ds = open_trusted("npy", spec);
	ck_assert_uint_eq(dataset_n_fields(ds), 3);
	ck_assert_int_eq(dataset_find_field(ds, "x"), 2);
	ck_assert_int_eq(dataset_field(ds, 0)->dtype, DTYPE_INT16);
	ck_assert_int_eq(dataset_field(ds, 1)->dtype, DTYPE_INT64);
	ck_assert_int_eq(dataset_gather(ds, indices, 2, ROWS(ids, labels, rows), &f.err), 0);
	ck_assert(ids[0] == 3 && ids[1] == 1 && labels[0] == 9 && labels[1] == 7);
	ck_assert(rows[0] == 4 && rows[1] == 5 && rows[2] == 0 && rows[3] == 1);
	ck_assert_int_eq(dataset_gather(ds, indices, 2, ROWS(NULL, NULL, rows), &f.err), 0);
	dataset_unref(ds);
	snprintf(spec, sizeof(spec), "x=%s,x=%s", in_root("i.npy"), in_root("x.npy"));
	ck_assert_int_lt(open_as(&f.trusted, "npy", spec, NULL, NULL, 0, &ds), 0);
	ck_assert_msg(strstr(f.err.text, "'x' is there twice") != NULL, "%s", f.err.text);
	snprintf(spec, sizeof(spec), "%s,%s,%s", in_root("i.npy"), in_root("l.npy"), in_root("x.npy"));
	ck_assert_int_lt(open_as(&f.trusted, "npy", spec, NULL, NULL, 0, &ds), 0);
	ck_assert_msg(strstr(f.err.text, "need names") != NULL, "%s", f.err.text);
}
END_TEST

static int make_memory(unsigned seals)
{
	static unsigned char bytes[1 << 16];
	int fd = memfd_create("x", MFD_ALLOW_SEALING | MFD_CLOEXEC), from = open(in_root("x.npy"), O_RDONLY);
	ssize_t n = read(from, bytes, sizeof(bytes));

	ck_assert_int_eq(write(fd, bytes, (size_t)n), n);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	close(from);
	return fd;
}

START_TEST(test_memory_has_to_be_sealed)
{
	/* Proves that arrays in memfds are read like files, and that one that could shrink or grow, or a file, is refused:
	 * the peer is charged what it has when it is opened. */
	static const float x[6] = { 0, 1, 2, 3, 4, 5 };
	static const uint64_t index = 2;
	struct dataset *ds;
	float rows[2];
	int fd;

	put_npy("x.npy", "<f4", "(3, 2)", x, sizeof(x));
	fd = make_memory(F_SEAL_SHRINK | F_SEAL_GROW);
	ck_assert_msg(open_as(&f.other, "memory", "id=12,x", NULL, &fd, 1, &ds) == 0, "%s", f.err.text);
	close(fd);
	ck_assert_uint_ge(dataset_memory_bytes(ds), sizeof(x));
	ck_assert_int_eq(dataset_gather(ds, &index, 1, ROWS(rows), &f.err), 0);
	ck_assert(rows[0] == 4 && rows[1] == 5);
	dataset_unref(ds);
	for (unsigned i = 0; i < 2; i++) {
		fd = make_memory(i ? F_SEAL_GROW : F_SEAL_SHRINK);
		ck_assert_int_eq(open_as(&f.other, "memory", "x", NULL, &fd, 1, &ds), -EINVAL);
		ck_assert_msg(strstr(f.err.text, "sealed against shrinking and growing") != NULL, "%s", f.err.text);
		close(fd);
	}
	fd = open(in_root("x.npy"), O_RDONLY);
	ck_assert_int_eq(open_as(&f.other, "memory", "x", NULL, &fd, 1, &ds), -EINVAL);
	ck_assert_int_eq(open_as(&f.other, "memory", "x,y", NULL, &fd, 1, &ds), -EINVAL);
	ck_assert_int_eq(open_as(&f.trusted, "memory", "x", NULL, NULL, 0, &ds), -EINVAL);
	close(fd);
}
END_TEST

static int grant(void *arg, uint64_t bytes)
{
	uint64_t *left = arg;

	if (bytes > *left) {
		return -EDQUOT;
	}
	*left -= bytes;
	return 0;
}

START_TEST(test_holes_in_memory_are_charged)
{
	/* Proves that a sparse memfd, which takes memory where it is read, is charged to its peer, and refused if it is
	 * larger than the peer may have. */
	static const char zeros[16];
	uint64_t left = 1 << 20;
	struct meter meter = { .more = grant, .arg = &left };
	struct dataset_source source = { .spec = "npy:x", .access = &f.other, .meter = &meter, .n_fds = 1 };
	struct dataset *ds = NULL;
	int fd;

	put_npy("x.npy", "<f4", "(1048576, 8)", zeros, sizeof(zeros));
	fd = make_memory(0);
	ck_assert_int_eq(ftruncate(fd, 40 << 20), 0);
	source.fds = &fd;
	ck_assert_int_eq(dataset_open(&source, &ds, &f.err), -EDQUOT);
	left = 64 << 20;
	meter = (struct meter){ .more = grant, .arg = &left };
	ck_assert_msg(dataset_open(&source, &ds, &f.err) == 0, "%s", f.err.text);
	ck_assert_uint_ge(dataset_memory_bytes(ds), 32 << 20);
	ck_assert_uint_ge(meter.used, dataset_memory_bytes(ds));
	dataset_unref(ds);
	close(fd);
}
END_TEST

START_TEST(test_an_index_beyond_the_array_is_refused)
{
	/* Proves that no index of a client's own batch reads outside the array. */
	static const char zeros[16];
	uint64_t indices[] = { 0, 4 };
	struct dataset *ds;
	float rows[2];
	int64_t labels[2];

	put_npy("x.npy", "<f4", "(4,)", zeros, 16);
	ds = open_trusted("npy", in_root("x.npy"));
	ck_assert_int_eq(dataset_gather(ds, indices, 2, ROWS(rows, labels), &f.err), -ERANGE);
	indices[1] = 3;
	ck_assert_int_eq(dataset_gather(ds, indices, 2, ROWS(rows, labels), &f.err), 0);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_random_samples_depend_on_seed_and_index_alone)
{
	/* Proves that an index is the same sample in any batch and position, and that different seeds and indices give
	 * different samples. */
	struct dataset *a = open_trusted("random", "length=1000,shape=3x5x7,dtype=float32,classes=10,seed=1");
	struct dataset *b = open_trusted("random", "length=1000,shape=3x5x7,dtype=float32,classes=10,seed=2");
	static const uint64_t forward[] = { 5, 6, 999 }, backward[] = { 999, 5 };
	static float x[3][105], y[2][105], z[3][105];
	int64_t lx[3], ly[2], lz[3];

	ck_assert_int_eq(dataset_gather(a, forward, 3, ROWS(x, lx), &f.err), 0);
	ck_assert_int_eq(dataset_gather(a, backward, 2, ROWS(y, ly), &f.err), 0);
	ck_assert_int_eq(dataset_gather(b, forward, 3, ROWS(z, lz), &f.err), 0);
	ck_assert_int_eq(memcmp(x[0], y[1], sizeof(x[0])), 0);
	ck_assert_int_eq(memcmp(x[2], y[0], sizeof(x[0])), 0);
	ck_assert_int_ne(memcmp(x[0], x[1], sizeof(x[0])), 0);
	ck_assert_int_ne(memcmp(x[0], z[0], sizeof(x[0])), 0);
	ck_assert(lx[0] == ly[1] && lx[2] == ly[0]);
	ck_assert_uint_eq(dataset_n_classes(a), 10);
	ck_assert_str_eq(dataset_class(a, 9), "9");
	ck_assert_uint_ne(dataset_id(a), dataset_id(b));
	dataset_unref(a);
	dataset_unref(b);
}
END_TEST

START_TEST(test_random_values_are_what_their_type_promises)
{
	/* Proves range and mean of floats, all values of bool and classes, and sizes that are no multiple of the
	 * generator's block. */
	static float x[20000];
	static double d[1001];
	static uint16_t h[4096];
	static uint8_t flags[1000];
	static int64_t labels[1000];
	uint64_t indices[1000], zero = 0;
	unsigned seen[10] = { 0 }, ones = 0;
	double sum = 0;
	struct dataset *ds = open_trusted("random", "length=1,shape=20000");

	ck_assert_int_eq(dataset_gather(ds, &zero, 1, ROWS(x, labels), &f.err), 0);
	for (int i = 0; i < 20000; i++) {
		ck_assert(x[i] >= 0 && x[i] < 1);
		sum += x[i];
	}
	ck_assert(sum / 20000 > 0.48 && sum / 20000 < 0.52);
	dataset_unref(ds);
	ds = open_trusted("random", "length=1,shape=1001,dtype=float64");
	ck_assert_int_eq(dataset_gather(ds, &zero, 1, ROWS(d, labels), &f.err), 0);
	for (int i = 0; i < 1001; i++) {
		ck_assert(d[i] >= 0 && d[i] < 1);
	}
	dataset_unref(ds);
	ds = open_trusted("random", "length=1,shape=64x64,dtype=float16");
	ck_assert_int_eq(dataset_gather(ds, &zero, 1, ROWS(h, labels), &f.err), 0);
	for (int i = 0; i < 4096; i++) {
		ck_assert_uint_lt(h[i], 0x3c00); /* 1.0 */
	}
	dataset_unref(ds);
	ds = open_trusted("random", "length=1000,shape=1,dtype=bool,classes=10");
	for (uint64_t i = 0; i < 1000; i++) {
		indices[i] = i;
	}
	ck_assert_int_eq(dataset_gather(ds, indices, 1000, ROWS(flags, labels), &f.err), 0);
	for (int i = 0; i < 1000; i++) {
		ck_assert_uint_le(flags[i], 1);
		ones += flags[i];
		ck_assert(labels[i] >= 0 && labels[i] < 10);
		seen[labels[i]]++;
	}
	ck_assert(ones > 400 && ones < 600);
	for (int i = 0; i < 10; i++) {
		ck_assert_uint_gt(seen[i], 50);
	}
	dataset_unref(ds);
}
END_TEST

SUITE(arrays)
{
	Suite *s = suite_create("arrays");
	TCase *tc = tcase_create("arrays");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_rows_are_gathered);
	tcase_add_test(tc, test_integer_labels_become_int64);
	tcase_add_test(tc, test_arrays_that_do_not_fit_are_refused);
	tcase_add_test(tc, test_arrays_in_huge_pages_are_refused);
	tcase_add_test(tc, test_a_file_cut_short_is_an_error_not_a_crash);
	tcase_add_test(tc, test_arrays_have_the_names_that_they_are_given);
	tcase_add_test(tc, test_memory_has_to_be_sealed);
	tcase_add_test(tc, test_holes_in_memory_are_charged);
	tcase_add_test(tc, test_an_index_beyond_the_array_is_refused);
	tcase_add_test(tc, test_random_samples_depend_on_seed_and_index_alone);
	tcase_add_test(tc, test_random_values_are_what_their_type_promises);
	suite_add_tcase(s, tc);
	return s;
}
