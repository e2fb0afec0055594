/* The AVX-512 path's horizontal pass for windows of many taps, as when an image shrinks to less than a seventh.
 *
 * One vpermb sorts 16 pixels by channel: red in the first 16 bytes, then green, then blue. So 16 weights, the same for
 * all three, are multiplied at once (vpdpbusd, in base 256 as in avx512.c). At the end each channel has four
 * partial sums. A transposition adds them for four rows together. */
#if defined(__x86_64__)
#include "image/kernels/resample/paths.h"

#include <immintrin.h>
#include <string.h>

#define TARGET "avx2,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni"
#define AVX512 __attribute__((target(TARGET)))
#define INLINE static inline __attribute__((target(TARGET), always_inline))

enum { ROUND = 1 << (TAPS_PRECISION_BITS - 1), TAPS_AT_ONCE = 16 };

/* Digits of the weights of so many taps of one pixel. */
struct digits {
	int8_t high[TAPS_AT_ONCE], middle[TAPS_AT_ONCE], low[TAPS_AT_ONCE];
};

static uint32_t wide_groups_of(const struct taps *t)
{
	return (t->width + TAPS_AT_ONCE - 1) / TAPS_AT_ONCE;
}

static size_t wide_table_bytes(const struct taps *t)
{
	return sizeof(struct digits) * wide_groups_of(t) * t->made.n;
}

static void wide_prepare(const struct taps *t, void *table)
{
	struct digits *to = table;

	memset(table, 0, wide_table_bytes(t)); /* the taps that complete the last group have zero weights */
	for (uint32_t x = 0; x < t->made.n; x++, to += wide_groups_of(t))
		for (uint32_t j = 0; j < t->width; j++) {
			struct digits *d = &to[j / TAPS_AT_ONCE];
			uint32_t at = j % TAPS_AT_ONCE;
			int32_t rest = t->k[(size_t)x * t->width + j];

			d->low[at] = (int8_t)rest;
			rest = (rest - d->low[at]) >> 8;
			d->middle[at] = (int8_t)rest;
			d->high[at] = (int8_t)((rest - d->middle[at]) >> 8);
		}
}

INLINE __m512i wide_digits(const int8_t digits[TAPS_AT_ONCE])
{
	return _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)digits));
}

/* Where the bytes of 16 pixels go: [channel][tap]. */
INLINE __m512i by_channel(void)
{
	const __m512i red =
		_mm512_broadcast_i32x4(_mm_setr_epi8(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45));

	return _mm512_add_epi8(red, _mm512_set_epi64(0, 0, 0x0202020202020202, 0x0202020202020202, 0x0101010101010101,
						     0x0101010101010101, 0, 0));
}

/* The sums of one pixel in four rows, four partial ones of each channel. */
INLINE void wide_sum(const struct digits *d, uint32_t n_groups, const uint8_t *const from[RESAMPLE_BATCH_ROWS],
		     __m512i sums[RESAMPLE_BATCH_ROWS])
{
	const __m512i places = by_channel();
	const __m512i round = _mm512_maskz_set1_epi32(0x1111, ROUND);
	__m512i high[RESAMPLE_BATCH_ROWS], middle[RESAMPLE_BATCH_ROWS], low[RESAMPLE_BATCH_ROWS];

	for (unsigned y = 0; y < RESAMPLE_BATCH_ROWS; y++) {
		high[y] = middle[y] = _mm512_setzero_si512();
		low[y] = round;
	}
	for (uint32_t g = 0; g < n_groups; g++, d++) {
		const __m512i by_high = wide_digits(d->high), by_middle = wide_digits(d->middle),
			      by_low = wide_digits(d->low);

		for (unsigned y = 0; y < RESAMPLE_BATCH_ROWS; y++) {
			__m512i px = _mm512_permutexvar_epi8(
				places, _mm512_loadu_si512(from[y] + (size_t)g * TAPS_AT_ONCE * 3));

			high[y] = _mm512_dpbusd_epi32(high[y], px, by_high);
			middle[y] = _mm512_dpbusd_epi32(middle[y], px, by_middle);
			low[y] = _mm512_dpbusd_epi32(low[y], px, by_low);
		}
	}
	for (unsigned y = 0; y < RESAMPLE_BATCH_ROWS; y++)
		sums[y] = _mm512_add_epi32(
			_mm512_slli_epi32(_mm512_add_epi32(_mm512_slli_epi32(high[y], 8), middle[y]), 8), low[y]);
}

/* The pixel's reds of four rows, then its greens, its blues, and four arbitrary bytes. */
INLINE __m128i wide_join_fours(const __m512i s[RESAMPLE_BATCH_ROWS])
{
	__m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
	__m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
	__m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));

	all = _mm512_max_epi32(_mm512_srai_epi32(all, TAPS_PRECISION_BITS), _mm512_setzero_si512());
	return _mm512_cvtusepi32_epi8(all);
}

/* Of four rows, the pixel in four bytes each: red, green, blue and an arbitrary one. */
INLINE __m128i wide_join(const __m512i s[RESAMPLE_BATCH_ROWS])
{
	return _mm_shuffle_epi8(wide_join_fours(s),
				_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
}

INLINE void wide_rows(const struct taps *t, const struct digits *d, uint32_t n_groups, const uint8_t *src,
		      size_t src_stride, uint8_t *dst, size_t dst_stride, unsigned n_rows)
{
	for (uint32_t x = 0; x < t->made.n; x++, d += n_groups, dst += 3) {
		const uint8_t *from[RESAMPLE_BATCH_ROWS];
		__m512i sums[RESAMPLE_BATCH_ROWS];
		uint32_t pixels[RESAMPLE_BATCH_ROWS];

		for (unsigned y = 0; y < RESAMPLE_BATCH_ROWS; y++)
			from[y] = src + (size_t)t->first[x] * 3 + (y < n_rows ? y : 0) * src_stride;
		wide_sum(d, n_groups, from, sums);
		_mm_storeu_si128((void *)pixels, wide_join(sums));
		for (unsigned y = 0; y < n_rows; y++) /* the fourth byte is the next pixel's first */
			memcpy(dst + y * dst_stride, &pixels[y], sizeof(pixels[y]));
	}
}

AVX512 static void wide_horizontal(const struct taps *t, const void *table, const uint8_t *src, size_t src_stride,
				   uint8_t *dst, size_t dst_stride, unsigned n_rows)
{
	uint32_t n_groups = wide_groups_of(t);

	/* The common cases with constants, so that the compiler unrolls their loops. */
	if (n_groups == 1 && n_rows == RESAMPLE_BATCH_ROWS)
		wide_rows(t, table, 1, src, src_stride, dst, dst_stride, RESAMPLE_BATCH_ROWS);
	else if (n_groups == 2 && n_rows == RESAMPLE_BATCH_ROWS)
		wide_rows(t, table, 2, src, src_stride, dst, dst_stride, RESAMPLE_BATCH_ROWS);
	else
		wide_rows(t, table, n_groups, src, src_stride, dst, dst_stride, n_rows);
}

INLINE void wide_four(const struct taps *t, const struct digits *d, uint32_t n_groups,
		      const uint8_t *const src[RESAMPLE_BATCH_ROWS], uint8_t *dst)
{
	for (uint32_t x = 0; x < t->made.n; x++, d += n_groups, dst += 3 * (size_t)RESAMPLE_BATCH_ROWS) {
		const uint8_t *from[RESAMPLE_BATCH_ROWS];
		__m512i sums[RESAMPLE_BATCH_ROWS];

		for (unsigned y = 0; y < RESAMPLE_BATCH_ROWS; y++)
			from[y] = src[y] + (size_t)t->first[x] * 3;
		wide_sum(d, n_groups, from, sums);
		_mm_storeu_si128((void *)dst, wide_join_fours(sums)); /* the last four bytes are the next pixel's */
	}
}

AVX512 static void wide_horizontal_four(const struct taps *t, const void *table,
					const uint8_t *const src[RESAMPLE_BATCH_ROWS], uint8_t *dst)
{
	uint32_t n_groups = wide_groups_of(t);

	if (n_groups == 1)
		wide_four(t, table, 1, src, dst);
	else if (n_groups == 2)
		wide_four(t, table, 2, src, dst);
	else
		wide_four(t, table, n_groups, src, dst);
}

const struct resample_path resample_avx512_wide = {
	.name = "avx512-wide",
	.table_bytes = wide_table_bytes,
	.prepare = wide_prepare,
	.horizontal = wide_horizontal,
	.horizontal_four = wide_horizontal_four,
};
#else
typedef int resample_avx512_wide_is_empty; /* ISO C requires a declaration in every file */
#endif
