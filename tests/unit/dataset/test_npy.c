/* The header of .npy files, from bytes. tests/system/dataset/test_arrays.py reads the files that numpy itself
 * writes. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/arrays/npy.h"
#include "support/suite.h"

struct fixture {
	unsigned char bytes[70000];
	size_t n;
	struct npy npy;
	struct npy_error err;
};

static struct fixture f;

static void set_up(void)
{
	memset(&f, 0, sizeof(f));
}

/* A file of the given version whose header is `text`. */
static int parse(unsigned version, const char *text)
{
	size_t n_text = strlen(text), n_before = version == 1 ? 10 : 12;

	memcpy(f.bytes, "\x93NUMPY", 6);
	f.bytes[6] = (unsigned char)version;
	f.bytes[8] = (unsigned char)n_text;
	f.bytes[9] = (unsigned char)(n_text >> 8);
	f.bytes[10] = f.bytes[11] = 0;
	memcpy(f.bytes + n_before, text, n_text);
	f.n = n_before + n_text;
	return npy_parse(f.bytes, f.n, &f.npy, &f.err);
}

START_TEST(test_what_numpy_writes_is_read)
{
	/* Proves type, shape and offsets of numpy.save's header, in all three versions. */
	for (unsigned version = 1; version <= 3; version++) {
		ck_assert_int_eq(
			parse(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (10000, 256), }      \n"), 0);
		ck_assert_int_eq(f.npy.dtype, DTYPE_FLOAT32);
		ck_assert_uint_eq(f.npy.n_dims, 2);
		ck_assert_uint_eq(f.npy.shape[0], 10000);
		ck_assert_uint_eq(f.npy.shape[1], 256);
		ck_assert_uint_eq(f.npy.data_offset_bytes, f.n);
		ck_assert_uint_eq(f.npy.data_bytes, 10240000);
	}
}
END_TEST

START_TEST(test_every_served_type_has_its_size)
{
	/* Proves the whole table of types. */
	static const struct {
		const char *descr;
		enum dtype dtype;
		unsigned bytes;
	} types[] = {
		{ "|b1", DTYPE_BOOL8, 1 },     { "|u1", DTYPE_UINT8, 1 },        { "<i2", DTYPE_INT16, 2 },
		{ "<i4", DTYPE_INT32, 4 },     { "<i8", DTYPE_INT64, 8 },        { "<f2", DTYPE_FLOAT16, 2 },
		{ "<f4", DTYPE_FLOAT32, 4 },   { "<f8", DTYPE_FLOAT64, 8 },      { "|i1", DTYPE_INT8, 1 },
		{ "<u2", DTYPE_UINT16, 2 },    { "<u4", DTYPE_UINT32, 4 },       { "<u8", DTYPE_UINT64, 8 },
		{ "<c8", DTYPE_COMPLEX64, 8 }, { "<c16", DTYPE_COMPLEX128, 16 },
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		char text[128];

		snprintf(text, sizeof(text), "{'descr': '%s', 'fortran_order': False, 'shape': (3,)}", types[i].descr);
		ck_assert_int_eq(parse(1, text), 0);
		ck_assert_int_eq(f.npy.dtype, types[i].dtype);
		ck_assert_uint_eq(f.npy.data_bytes, 3 * types[i].bytes);
	}
}
END_TEST

START_TEST(test_other_spellings_of_the_same_dictionary_are_read)
{
	/* Proves key order, quotes, spaces, and shapes of zero, one and nine dimensions. */
	static const struct {
		const char *text;
		unsigned n_dims;
	} good[] = {
		{ "{\"shape\":(),\"fortran_order\":False,\"descr\":\"<i8\"}", 0 },
		{ "{'shape' : ( 7 , ) , 'descr' : '|u1' , 'fortran_order' : False , }\n", 1 },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (1,2,3,4,5,6,7,8,9)}", 9 },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (1,2,)}", 2 },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 5)}", 2 },
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ck_assert_msg(parse(1, good[i].text) == 0, "%s: %s", good[i].text, f.err.text);
		ck_assert_uint_eq(f.npy.n_dims, good[i].n_dims);
	}
}
END_TEST

START_TEST(test_refusals_say_what_to_do)
{
	/* Proves that each unsupported or damaged header is refused with a fitting message. */
	static const struct {
		const char *text, *words;
	} refused[] = {
		{ "{'descr': '<f4', 'fortran_order': True, 'shape': (3,)}", "numpy.ascontiguousarray" },
		{ "{'descr': '>f4', 'fortran_order': False, 'shape': (3,)}",
		  "dtype '>f4' is not served: convert with numpy.save(file, a.astype('float32'))" },
		{ "{'descr': '>u2', 'fortran_order': False, 'shape': (3,)}",
		  "dtype '>u2' is not served: convert with numpy.save(file, a.astype('uint16'))" },
		{ "{'descr': '<f16', 'fortran_order': False, 'shape': (3,)}",
		  "dtype '<f16' is not served: convert with numpy.save(file, a.astype('float64'))" },
		{ "{'descr': '|O', 'fortran_order': False, 'shape': (3,)}", "dtype '|O' is not served: expected bool" },
		{ "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}", "structured" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (3)}", "not a tuple" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': 3}", "not a tuple" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}", "not a size" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (3L,)}", "not a tuple" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "not a size" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "too large" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1)}",
		  "more than 9 dimensions" },
		{ "{'descr': '<f4', 'fortran_order': False}", "each once" },
		{ "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "each once" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}", "each once" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} import os", "nothing after" },
		{ "{'descr': '<f4', 'fortran_order': maybe, 'shape': (3,)}", "neither True nor False" },
		{ "{'descr': '<f4\\x00', 'fortran_order': False, 'shape': (3,)}", "structured or unreadable" },
		{ "{'descr': '<f4", "structured or unreadable" },
		{ "", "expected a dictionary" },
	};

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		ck_assert_msg(parse(1, refused[i].text) == -EINVAL, "accepted: %s", refused[i].text);
		ck_assert_msg(strstr(f.err.text, refused[i].words) != NULL, "%s: %s", refused[i].text, f.err.text);
	}
}
END_TEST

START_TEST(test_every_cut_of_a_header_is_refused)
{
	/* Proves that a file that ends anywhere in its header is refused, and reading stays inside the bytes given
	 * (seen by sanitizers). */
	ck_assert_int_eq(parse(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (10000, 256), }\n"), 0);
	for (size_t n = 0; n < f.n; n++) {
		unsigned char *exact = malloc(n ? n : 1);

		memcpy(exact, f.bytes, n);
		ck_assert_int_eq(npy_parse(exact, n, &f.npy, &f.err), -EINVAL);
		free(exact);
	}
}
END_TEST

START_TEST(test_foreign_files_and_versions_are_refused)
{
	/* Proves magic, version and the limit on the header's length. */
	ck_assert_int_eq(parse(4, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}"), -EINVAL);
	ck_assert(strstr(f.err.text, "version 4.0"));
	ck_assert_int_eq(parse(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}"), 0);
	f.bytes[10] = 1; /* 64 KiB more than the file has */
	ck_assert_int_eq(npy_parse(f.bytes, sizeof(f.bytes), &f.npy, &f.err), -EINVAL);
	ck_assert(strstr(f.err.text, "64 KiB"));
	ck_assert_int_eq(npy_parse("PK\3\4 a zip file, .npz", 20, &f.npy, &f.err), -EINVAL);
	ck_assert(strstr(f.err.text, "not a .npy file"));
}
END_TEST

SUITE(npy)
{
	Suite *s = suite_create("npy");
	TCase *tc = tcase_create("header");

	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_test(tc, test_what_numpy_writes_is_read);
	tcase_add_test(tc, test_every_served_type_has_its_size);
	tcase_add_test(tc, test_other_spellings_of_the_same_dictionary_are_read);
	tcase_add_test(tc, test_refusals_say_what_to_do);
	tcase_add_test(tc, test_every_cut_of_a_header_is_refused);
	tcase_add_test(tc, test_foreign_files_and_versions_are_refused);
	suite_add_tcase(s, tc);
	return s;
}
