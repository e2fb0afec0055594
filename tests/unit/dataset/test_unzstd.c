/* Bytes that zstd's own library has compressed: what comes out, what is counted, and how the work is stopped. */
#include <errno.h>
#include <zstd.h>

#include "dataset/shards/unzstd.h"
#include "support/suite.h"

enum { N_BYTES = 6 << 20, STOP_AT = 5 };

static uint8_t plain[2 * N_BYTES];
static uint8_t *packed;
static size_t n_packed;

static struct {
	unsigned n, most; /* calls; the one that stops. 0: none does */
	uint64_t at;
} calls;

static int count(void *arg, uint64_t at)
{
	(void)arg;
	ck_assert_uint_ge(at, calls.at);
	calls.at = at;
	return ++calls.n == calls.most ? -ECANCELED : 0;
}

static int grant(void *arg, uint64_t bytes)
{
	(void)arg;
	(void)bytes;
	return 0;
}

static struct meter meter = { .more = grant };
static const struct unzstd_watch watch = { count, NULL };

/* Two frames, of bytes of which about half are zero. */
static void set_up(void)
{
	uint32_t x = 1;

	for (size_t i = 0; i < sizeof(plain); i++) {
		x = x * 1664525 + 1013904223;
		plain[i] = x >> 31 ? (uint8_t)(x >> 16) : 0;
	}
	packed = malloc(ZSTD_compressBound(sizeof(plain)) + 100);
	for (int i = 0; i < 2; i++) {
		size_t n =
			ZSTD_compress(packed + n_packed, ZSTD_compressBound(N_BYTES), plain + i * N_BYTES, N_BYTES, 3);

		ck_assert(!ZSTD_isError(n));
		n_packed += n;
	}
	ck_assert_uint_gt(n_packed, 1 << 20);
}

static void tear_down(void)
{
	free(packed);
}

static int unpack(size_t n, uint8_t **out, const char **why)
{
	size_t n_out = 0;
	int r = unzstd_all(packed, n, UINT32_MAX, &meter, &watch, out, &n_out, why);

	ck_assert_uint_eq(meter.used, r ? 0 : sizeof(plain));
	ck_assert(r ? !*out : n_out == sizeof(plain));
	return r;
}

START_TEST(test_frames_come_out_as_they_went_in)
{
	/* Proves it for large frames, with a step for a small part of one, up to the end. */
	const char *why = NULL;
	uint8_t *out = NULL;

	ck_assert_int_eq(unpack(n_packed, &out, &why), 0);
	ck_assert_int_eq(memcmp(out, plain, sizeof(plain)), 0);
	ck_assert_uint_ge(calls.n, 100);
	ck_assert_uint_eq(calls.at, n_packed);
	free(out);
}
END_TEST

START_TEST(test_a_large_frame_can_be_stopped)
{
	/* Proves that the work ends in the first frame, and gives its memory back. */
	const char *why = NULL;
	uint8_t *out = NULL;

	calls.most = STOP_AT;
	ck_assert_int_eq(unpack(n_packed, &out, &why), -ECANCELED);
	ck_assert_uint_eq(calls.n, STOP_AT);
	ck_assert_uint_lt(calls.at, n_packed / 4);
}
END_TEST

START_TEST(test_damage_is_told)
{
	/* Cut short, a wrong byte amid a frame, a length that is too small: an error each time, as zstd itself says. */
	const char *why = NULL;
	uint8_t *out = NULL;

	ck_assert_int_eq(unpack(n_packed - 1, &out, &why), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "no whole frame"));
	ck_assert_int_eq(packed[4] >> 6, 2); /* the length has four bytes */
	packed[6 - (packed[4] >> 5 & 1)] ^= 1;
	why = NULL;
	ck_assert_int_eq(unzstd_all(packed, n_packed, UINT32_MAX, &meter, &watch, &out, &(size_t){ 0 }, &why), -EINVAL);
	ck_assert_ptr_nonnull(why);
	ck_assert_uint_eq(meter.used, 0);
}
END_TEST

SUITE(unzstd)
{
	Suite *s = suite_create("unzstd");
	TCase *t = tcase_create("unzstd");
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, test_frames_come_out_as_they_went_in);
	tcase_add_test(t, test_a_large_frame_can_be_stopped);
	tcase_add_test(t, test_damage_is_told);
	suite_add_tcase(s, t);
	return s;
}
