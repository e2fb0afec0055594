/* Thumbnails of rows whose sizes are at the limits. Those of ordinary rows: tests/system/loader/test_last_batch.py. */
#include <sys/mman.h>

#include "image/transform/thumbnail.h"
#include "support/suite.h"

START_TEST(test_the_longest_rows_have_thumbnails)
{
	/* Proves that the places in the last block of a row are counted beyond 2^32 and not from 0 again, which would
	 * not end. The pixels are holes but for the last. */
	const uint64_t edges[] = { UINT32_MAX, UINT32_MAX - 1, (uint64_t)UINT32_MAX - UINT32_MAX / 400, 97 };
	uint8_t *row =
		mmap(NULL, UINT32_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct thumbnail made;

	ck_assert_ptr_ne(row, MAP_FAILED);
	ck_assert_int_eq(madvise(row, UINT32_MAX, MADV_NOHUGEPAGE), 0);
	for (unsigned i = 0; i < 2 * sizeof(edges) / sizeof(*edges); i++) {
		uint32_t edge = (uint32_t)edges[i / 2];
		struct thumbnail_form form = {
			.dtype = DTYPE_UINT8, .width = edge, .height = 1, .n_channels = 1, .scale = { 1, 1, 1 }
		};

		if (i % 2) {
			form.width = 1;
			form.height = edge;
		}
		memset(&made, 255, sizeof(made));
		thumbnail_make(&form, row, &made);
		ck_assert_uint_le(made.width, THUMBNAIL_EDGE);
		ck_assert_uint_le(made.height, THUMBNAIL_EDGE);
		ck_assert_uint_ge(made.width * made.height, THUMBNAIL_EDGE / 2);
		for (uint32_t k = 0; k < made.width * made.height * 3; k++)
			ck_assert_uint_eq(made.rgb[k], 0);
	}
	munmap(row, UINT32_MAX);
}
END_TEST

SUITE(thumbnail)
{
	Suite *s = suite_create("thumbnail");
	TCase *t = tcase_create("thumbnail");
	tcase_add_test(t, test_the_longest_rows_have_thumbnails);
	suite_add_tcase(s, t);
	return s;
}
