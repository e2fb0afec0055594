/* The SSE4.1 path: the AVX2 path's arithmetic (a weight is high * 2^15 + low, two sums of pairwise products joined at
 * the end) in registers of half the size. A register holds one pixel, so weights are used as four copies of a pair. */
#if defined(__x86_64__)
#include "image/resample-paths.h"

#include <smmintrin.h>
#include <string.h>

#define SSE41 __attribute__((target("sse4.1")))
#define INLINE static inline __attribute__((target("sse4.1"), always_inline))

enum {
	ROUND = 1 << (TAPS_PRECISION_BITS - 1),
	TAPS_AT_ONCE = 4,
	LOW_BITS = 15,
};

struct weights {
	int16_t high[TAPS_AT_ONCE], low[TAPS_AT_ONCE];
};

static bool can_run(void)
{
	return __builtin_cpu_supports("sse4.1");
}

static uint32_t groups_of(const struct taps *t)
{
	return (t->width + TAPS_AT_ONCE - 1) / TAPS_AT_ONCE;
}

static size_t table_bytes(const struct taps *t)
{
	return (size_t)t->made.n * groups_of(t) * sizeof(struct weights);
}

/* struct weights [pixel][group of taps]. */
static void prepare(const struct taps *t, void *table)
{
	uint32_t n_groups = groups_of(t);

	memset(table, 0, table_bytes(t));
	for (uint32_t x = 0; x < t->made.n; x++) {
		struct weights *w = (struct weights *)table + (size_t)x * n_groups;

		for (uint32_t j = 0; j < t->width; j++) {
			int32_t k = t->k[(size_t)x * t->width + j];

			w[j / TAPS_AT_ONCE].high[j % TAPS_AT_ONCE] = (int16_t)(k >> LOW_BITS);
			w[j / TAPS_AT_ONCE].low[j % TAPS_AT_ONCE] = (int16_t)(k & ((1 << LOW_BITS) - 1));
		}
	}
}

struct sums {
	__m128i high, low;
};

INLINE struct sums no_sums(void)
{
	return (struct sums){ _mm_setzero_si128(), _mm_set1_epi32(ROUND) };
}

INLINE __m128i join(struct sums s)
{
	return _mm_srai_epi32(_mm_add_epi32(_mm_slli_epi32(s.high, LOW_BITS), s.low), TAPS_PRECISION_BITS);
}

/* Four taps of one pixel: 12 bytes. */
INLINE void add_taps(struct sums *s, const uint8_t *from, __m128i w)
{
	__m128i px = _mm_loadu_si128((const void *)from);
	__m128i px01 = _mm_shuffle_epi8(px, _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
	__m128i px23 = _mm_shuffle_epi8(px, _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));

	s->high = _mm_add_epi32(s->high, _mm_add_epi32(_mm_madd_epi16(px01, _mm_shuffle_epi32(w, 0x00)),
						       _mm_madd_epi16(px23, _mm_shuffle_epi32(w, 0x55))));
	s->low = _mm_add_epi32(s->low, _mm_add_epi32(_mm_madd_epi16(px01, _mm_shuffle_epi32(w, 0xaa)),
						     _mm_madd_epi16(px23, _mm_shuffle_epi32(w, 0xff))));
}

SSE41 static void horizontal_row(const struct taps *t, const struct weights *w, const uint8_t *src, uint8_t *dst)
{
	uint32_t n_groups = groups_of(t);

	for (uint32_t x = 0; x < t->made.n; x++, dst += 3) {
		const uint8_t *from = src + (size_t)t->first[x] * 3;
		struct sums s = no_sums();
		__m128i words;
		int32_t px;

		for (uint32_t g = 0; g < n_groups; g++, w++, from += TAPS_AT_ONCE * 3)
			add_taps(&s, from, _mm_loadu_si128((const void *)w));
		words = _mm_packs_epi32(join(s), _mm_setzero_si128());
		px = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
		memcpy(dst, &px, 4); /* one byte too many, which the next pixel or the slack absorbs */
	}
}

static void horizontal(const struct taps *t, const void *table, const uint8_t *src, size_t src_stride, uint8_t *dst,
		       size_t dst_stride, unsigned n_rows)
{
	for (unsigned y = 0; y < n_rows; y++)
		horizontal_row(t, table, src + y * src_stride, dst + y * dst_stride);
}

INLINE __m128i pair_of(int32_t first, int32_t second)
{
	return _mm_set1_epi32((int32_t)((uint32_t)first & 0xffff) | (int32_t)((uint32_t)second << 16));
}

/* 16 bytes of two rows, times their weights. */
INLINE void add_rows(struct sums s[4], __m128i a, __m128i b, __m128i high, __m128i low)
{
	const __m128i zero = _mm_setzero_si128();
	__m128i ab[2] = { _mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b) };

	for (int i = 0; i < 4; i++) {
		__m128i pairs = i % 2 ? _mm_unpackhi_epi8(ab[i / 2], zero) : _mm_unpacklo_epi8(ab[i / 2], zero);

		s[i].high = _mm_add_epi32(s[i].high, _mm_madd_epi16(pairs, high));
		s[i].low = _mm_add_epi32(s[i].low, _mm_madd_epi16(pairs, low));
	}
}

INLINE __m128i sum_columns(const int32_t *k, uint32_t n_rows, const uint8_t *const *rows, size_t i)
{
	const int32_t low_mask = (1 << LOW_BITS) - 1;
	struct sums s[4] = { no_sums(), no_sums(), no_sums(), no_sums() };

	for (uint32_t j = 0; j < n_rows; j += 2) {
		bool two = j + 1 < n_rows;
		int32_t next = two ? k[j + 1] : 0;

		add_rows(s, _mm_loadu_si128((const void *)(rows[j] + i)),
			 _mm_loadu_si128((const void *)(rows[two ? j + 1 : j] + i)),
			 pair_of(k[j] >> LOW_BITS, next >> LOW_BITS), pair_of(k[j] & low_mask, next & low_mask));
	}
	return _mm_packus_epi16(_mm_packs_epi32(join(s[0]), join(s[1])), _mm_packs_epi32(join(s[2]), join(s[3])));
}

SSE41 static void vertical(const int32_t *k, uint32_t n_rows, const uint8_t *const *rows, uint8_t *dst, size_t n_bytes)
{
	size_t i = 0;

	if (n_bytes < 16) {
		resample_c.vertical(k, n_rows, rows, dst, n_bytes);
		return;
	}
	for (; i + 16 <= n_bytes; i += 16)
		_mm_storeu_si128((void *)(dst + i), sum_columns(k, n_rows, rows, i));
	if (i < n_bytes) /* the last 16 bytes overlap those before */
		_mm_storeu_si128((void *)(dst + n_bytes - 16), sum_columns(k, n_rows, rows, n_bytes - 16));
}

const struct resample_path resample_sse41 = {
	.name = "sse4.1",
	.can_run = can_run,
	.table_bytes = table_bytes,
	.prepare = prepare,
	.horizontal = horizontal,
	.vertical = vertical,
};
#endif
