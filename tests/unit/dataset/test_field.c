/* Fields: how they are described, what bounds a batch of ragged rows, and the values of data sets that have several. */
#include "dataset/impl.h"
#include "support/datasets.h"

#define SEVERAL "length=1000,shape=3x5x7,dtype=uint8,classes=10,seed=1,field=x:float32:4,field=n:int32,"

START_TEST(test_a_batch_of_any_rows_fits_its_bound)
{
	/* Proves that no choice of n different rows has more values than field_most_values says, and that the bound is
	 * at most an eighth larger than the n longest rows for n a power of two. */
	struct field_measure *m = calloc(1, sizeof(*m));
	uint64_t length[600], sum = 0;
	struct field field = { .kind = FIELD_RAGGED };

	for (unsigned i = 0; i < 600; i++) { /* falling, over many size classes */
		length[i] = 1000000 / (i + 1) + (600 - i);
		field_measure_add(m, length[i]);
	}
	field_measure_end(m, &field);
	ck_assert_uint_eq(field.longest, length[0]);
	for (unsigned n = 1; n <= 600; n++) {
		sum += length[n - 1];
		ck_assert_uint_ge(field_most_values(&field, n), sum);
		if ((n & (n - 1)) == 0) {
			ck_assert_uint_le(field_most_values(&field, n), sum + sum / 8);
		}
	}
	ck_assert_uint_ge(field_most_values(&field, UINT64_MAX), sum);
	free(m);
}
END_TEST

START_TEST(test_lengths_at_the_edges_are_measured)
{
	/* Proves the measure for lengths 0 and 1, for each border between size classes, and for sums beyond 64 bits. */
	for (unsigned bit = 0; bit < 64; bit++) {
		for (int d = -1; d <= 1; d++) {
			struct field_measure m = { .longest = 0 };
			struct field field = { .kind = FIELD_RAGGED };
			uint64_t length = ((uint64_t)1 << bit) + (uint64_t)d;

			field_measure_add(&m, length);
			field_measure_end(&m, &field);
			ck_assert_uint_eq(field.longest, length);
			ck_assert_uint_eq(field_most_values(&field, 1), length);
			field_measure_add(&m, length);
			field_measure_end(&m, &field);
			ck_assert_uint_eq(field_most_values(&field, 2), bit == 63 && d >= 0 ? UINT64_MAX : 2 * length);
		}
	}
}
END_TEST

START_TEST(test_names_that_could_be_misread_are_refused)
{
	/* Proves the rule for names on both sides of its limits. */
	char name[FIELD_NAME_BYTES + 1];

	memset(name, 'a', sizeof(name));
	name[FIELD_NAME_BYTES] = '\0';
	ck_assert(!field_name_is_valid(name));
	name[FIELD_NAME_BYTES - 1] = '\0';
	ck_assert(field_name_is_valid(name));
	ck_assert(field_name_is_valid("jpg;png"));
	ck_assert(field_name_is_valid("meta.json:key"));
	ck_assert(!field_name_is_valid(""));
	ck_assert(!field_name_is_valid("a b"));
	ck_assert(!field_name_is_valid("a,b"));
	ck_assert(!field_name_is_valid("a\"b"));
	ck_assert(!field_name_is_valid("a\nb"));
	ck_assert(!field_name_is_valid("\xc3\xa9"));
}
END_TEST

START_TEST(test_a_data_set_has_at_most_64_different_fields)
{
	/* Proves that a duplicate, a name that is not valid and the 65th field are refused by name, and that what was
	 * there before stays. */
	struct dataset_error err;
	struct dataset ds = { .n = 1 };
	char name[16];

	for (int i = 0; i < DATASET_MAX_FIELDS; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		ck_assert_ptr_nonnull(dataset_add_field(&ds, name, DTYPE_UINT8, &err));
		ck_assert_ptr_null(dataset_add_field(&ds, name, DTYPE_UINT8, &err));
		ck_assert_ptr_nonnull(strstr(err.text, name));
	}
	ck_assert_ptr_null(dataset_add_field(&ds, "more", DTYPE_UINT8, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "'more'"));
	ck_assert_ptr_nonnull(strstr(err.text, "64"));
	ck_assert_ptr_null(dataset_add_field(&ds, "a b", DTYPE_UINT8, &err));
	ck_assert_uint_eq(dataset_n_fields(&ds), DATASET_MAX_FIELDS);
	ck_assert_int_eq(dataset_find_field(&ds, "f63"), 63);
	ck_assert_int_eq(dataset_find_field(&ds, "f64"), -1);
	free(ds.fields);
}
END_TEST

START_TEST(test_pictures_have_an_image_and_a_label)
{
	/* Proves the fields of a folder, and that labels are gathered without a look at the files. */
	uint64_t indices[] = { 2, 0, 1 };
	struct dataset *ds;
	int64_t labels[3];

	make_pets();
	ds = open_trusted("imagefolder", in_root("pets"));
	ck_assert_uint_eq(dataset_n_fields(ds), 2);
	ck_assert_str_eq(dataset_field(ds, 0)->name, "image");
	ck_assert_str_eq(dataset_field(ds, 1)->name, "label");
	ck_assert_int_eq(dataset_gather(ds, indices, 3, ROWS(NULL, labels), &f.err), 0);
	ck_assert(labels[0] == 1 && labels[1] == 0 && labels[2] == 0);
	ck_assert_int_eq(dataset_gather(ds, indices, 3, ROWS(labels, labels), &f.err), -EINVAL);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_fields_are_gathered_that_are_wanted)
{
	/* Proves that each dense field depends on seed, index and field only, whatever else is gathered with it, and
	 * that further fields leave the first two as they were. */
	struct dataset *ds = open_trusted("random", SEVERAL "field=b:bool:2");
	struct dataset *plain = open_trusted("random", "length=1000,shape=3x5x7,dtype=uint8,classes=10,seed=1");
	static uint8_t data[2][3][105];
	uint64_t indices[] = { 7, 7, 999 };
	int64_t labels[2][3];
	float x[2][3][4];
	int32_t n[3];

	ck_assert_uint_eq(dataset_n_fields(ds), 5);
	ck_assert_int_eq(dataset_field(ds, 2)->dtype, DTYPE_FLOAT32);
	ck_assert_uint_eq(dataset_field(ds, 2)->shape[0], 4);
	ck_assert_uint_eq(dataset_field(ds, 3)->n_dims, 0);
	ck_assert_int_eq(dataset_gather(ds, indices, 3, ROWS(data[0], labels[0], x[0], n, NULL), &f.err), 0);
	ck_assert_int_eq(dataset_gather(ds, indices, 3, ROWS(NULL, NULL, x[1], NULL, NULL), &f.err), 0);
	ck_assert_int_eq(dataset_gather(plain, indices, 3, ROWS(data[1], labels[1]), &f.err), 0);
	ck_assert_mem_eq(x[0], x[1], sizeof(x[0]));
	ck_assert_mem_eq(data[0], data[1], sizeof(data[0]));
	ck_assert_mem_eq(labels[0], labels[1], sizeof(labels[0]));
	ck_assert_mem_eq(x[0][0], x[0][1], sizeof(x[0][0]));
	ck_assert_mem_ne(x[0][0], x[0][2], sizeof(x[0][0]));
	ck_assert_int_eq(n[0], n[1]);
	ck_assert_int_ne(n[0], n[2]);
	ck_assert_uint_ne(dataset_id(ds), dataset_id(plain));
	dataset_unref(plain);
	dataset_unref(ds);
}
END_TEST

START_TEST(test_fields_that_make_no_sense_are_refused)
{
	/* Proves that each mistake in a field of random: is answered with its place in the text. */
	static const char *const bad[] = { "field=x",           "field=x:float7",    "field=x:text:40",
					   "field=x:int32:*20", "field=x:bytes:33",  "field=x:int32:0",
					   "field=x:int32:2x",  "field=label:int32", "field=data:int32",
					   "field=:int32" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char spec[100];
		struct dataset *ds;

		snprintf(spec, sizeof(spec), "length=1,shape=1,%s", bad[i]);
		ck_assert_msg(open_as(&f.trusted, "random", spec, NULL, NULL, 0, &ds) < 0, "%s", bad[i]);
		ck_assert_msg(strstr(f.err.text, "field") != NULL, "%s: %s", bad[i], f.err.text);
	}
}
END_TEST

SUITE(field)
{
	Suite *s = suite_create("field");
	TCase *tc = tcase_create("field");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_a_batch_of_any_rows_fits_its_bound);
	tcase_add_test(tc, test_lengths_at_the_edges_are_measured);
	tcase_add_test(tc, test_names_that_could_be_misread_are_refused);
	tcase_add_test(tc, test_a_data_set_has_at_most_64_different_fields);
	tcase_add_test(tc, test_pictures_have_an_image_and_a_label);
	tcase_add_test(tc, test_fields_are_gathered_that_are_wanted);
	tcase_add_test(tc, test_fields_that_make_no_sense_are_refused);
	suite_add_tcase(s, tc);
	return s;
}
