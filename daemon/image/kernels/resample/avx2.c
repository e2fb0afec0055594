/* The AVX2 path.
 *
 * A weight has 23 bits and a multiplication of pairs (vpmaddwd) takes 16, so each weight is split: k = high * 2^15 +
 * low, low in 0..32767. The two sums are kept apart and joined at the end, (high << 15) + low, which is the exact sum
 * modulo 2^32.
 *
 * Horizontally a register holds two pixels as four 32-bit lanes each (red, green, blue, unused); four taps are 12
 * neighbouring bytes, which one load fetches and two shuffles turn into pairs. Four pixels of up to four rows are made
 * together, so that weights are loaded once for four rows. Vertically lanes are bytes of the row, and two source rows
 * make the pairs. */
#if defined(__x86_64__)
#include "image/kernels/resample/paths.h"

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE static inline __attribute__((target("avx2"), always_inline))

enum {
	ROUND = 1 << (TAPS_PRECISION_BITS - 1),
	PX_AT_ONCE = 4,
	TAPS_AT_ONCE = 4,
	LOW_BITS = 15,
};

/* For four pixels: the starts of their windows, in bytes; after that, for every four taps, their weights. */
struct quad {
	uint32_t first_bytes[PX_AT_ONCE];
};

/* Weights of four taps of the pixels 0, 2, 1, 3 (that order makes the packing at the end easy), as pairs. */
struct quad_weights {
	struct {
		int16_t high[TAPS_AT_ONCE], low[TAPS_AT_ONCE];
	} px[PX_AT_ONCE];
};

static bool resample_avx2_can_run(void)
{
	return __builtin_cpu_supports("avx2");
}

static uint32_t resample_avx2_groups_of(const struct taps *t)
{
	return (t->width + TAPS_AT_ONCE - 1) / TAPS_AT_ONCE;
}

static size_t quad_bytes(const struct taps *t)
{
	return sizeof(struct quad) + resample_avx2_groups_of(t) * sizeof(struct quad_weights);
}

static size_t resample_avx2_table_bytes(const struct taps *t)
{
	return (t->made.n + PX_AT_ONCE - 1) / PX_AT_ONCE * quad_bytes(t);
}

static void prepare_px(const struct taps *t, uint32_t x, struct quad *q, uint32_t i)
{
	static const uint8_t place[PX_AT_ONCE] = { 0, 2, 1, 3 };
	struct quad_weights *weights = (struct quad_weights *)(q + 1);
	const int32_t *k = t->k + (size_t)x * t->width;

	q->first_bytes[i] = t->first[x] * 3;
	for (uint32_t j = 0; j < t->width; j++) {
		int16_t *high = weights[j / TAPS_AT_ONCE].px[place[i]].high,
			*low = weights[j / TAPS_AT_ONCE].px[place[i]].low;

		high[j % TAPS_AT_ONCE] = (int16_t)(k[j] >> LOW_BITS);
		low[j % TAPS_AT_ONCE] = (int16_t)(k[j] & ((1 << LOW_BITS) - 1));
	}
}

static void resample_avx2_prepare(const struct taps *t, void *table)
{
	uint8_t *at = table;

	memset(table, 0, resample_avx2_table_bytes(t)); /* the pixels that complete the last four have zero weights */
	for (uint32_t x = 0; x < t->made.n; x++)
		prepare_px(t, x, (struct quad *)(void *)(at + x / PX_AT_ONCE * quad_bytes(t)), x % PX_AT_ONCE);
}

struct sums {
	__m256i high, low;
};

/* Weights of one pair of pixels, each spread over its four lanes. */
struct pair_weights {
	__m256i high01, high23, low01, low23;
};

INLINE struct pair_weights load_weights(const void *from)
{
	__m256i all = _mm256_loadu_si256(from);

	return (struct pair_weights){ _mm256_shuffle_epi32(all, 0x00), _mm256_shuffle_epi32(all, 0x55),
				      _mm256_shuffle_epi32(all, 0xaa), _mm256_shuffle_epi32(all, 0xff) };
}

/* Four taps of two pixels. */
INLINE void add_taps(struct sums *s, const uint8_t *a, const uint8_t *b, const struct pair_weights *w)
{
	const __m256i first_pair =
		_mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
	const __m256i second_pair =
		_mm256_broadcastsi128_si256(_mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
	__m256i px = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)a)),
					     _mm_loadu_si128((const void *)b), 1);
	__m256i px01 = _mm256_shuffle_epi8(px, first_pair), px23 = _mm256_shuffle_epi8(px, second_pair);

	s->high = _mm256_add_epi32(
		s->high, _mm256_add_epi32(_mm256_madd_epi16(px01, w->high01), _mm256_madd_epi16(px23, w->high23)));
	s->low = _mm256_add_epi32(
		s->low, _mm256_add_epi32(_mm256_madd_epi16(px01, w->low01), _mm256_madd_epi16(px23, w->low23)));
}

INLINE __m256i join(struct sums s)
{
	__m256i sum = _mm256_add_epi32(_mm256_slli_epi32(s.high, LOW_BITS), s.low);

	return _mm256_srai_epi32(sum, TAPS_PRECISION_BITS);
}

/* One pair of pixels of the quad in n_rows rows; pair 0 is pixels 0 and 2, pair 1 is 1 and 3. */
INLINE void sum_pair(const struct quad *q, uint32_t n_groups, unsigned pair, const uint8_t *src, size_t stride,
		     unsigned n_rows, __m256i *out)
{
	const struct quad_weights *weights = (const struct quad_weights *)(q + 1);
	const uint8_t *a = src + q->first_bytes[pair], *b = src + q->first_bytes[pair + 2];
	struct sums s[RESAMPLE_BATCH_ROWS];

	for (unsigned y = 0; y < n_rows; y++)
		s[y] = (struct sums){ _mm256_setzero_si256(), _mm256_set1_epi32(ROUND) };
	for (uint32_t g = 0; g < n_groups; g++, a += TAPS_AT_ONCE * 3, b += TAPS_AT_ONCE * 3) {
		struct pair_weights w = load_weights(&weights[g].px[pair * 2]);

		for (unsigned y = 0; y < n_rows; y++)
			add_taps(&s[y], a + y * stride, b + y * stride, &w);
	}
	for (unsigned y = 0; y < n_rows; y++)
		out[y] = join(s[y]);
}

/* even: pixels 0 and 2 of a row, odd: 1 and 3. Bytes of both rows, each in its half: 12 bytes and 4 unused. */
INLINE __m256i pack_rows(__m256i even0, __m256i odd0, __m256i even1, __m256i odd1)
{
	const __m256i close =
		_mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
	__m256i both = _mm256_packus_epi16(_mm256_packs_epi32(even0, odd0), _mm256_packs_epi32(even1, odd1));

	return _mm256_shuffle_epi8(_mm256_permute4x64_epi64(both, 0xd8), close);
}

INLINE void resample_rows(const struct taps *t, const void *table, const uint8_t *src, size_t src_stride, uint8_t *dst,
			  size_t dst_stride, unsigned n_rows, uint32_t n_groups)
{
	size_t step = quad_bytes(t);
	const uint8_t *at = table;

	for (uint32_t x = 0; x < t->made.n; x += PX_AT_ONCE, at += step, dst += PX_AT_ONCE * 3) {
		const struct quad *q = (const struct quad *)(const void *)at;
		__m256i even[RESAMPLE_BATCH_ROWS], odd[RESAMPLE_BATCH_ROWS];

		sum_pair(q, n_groups, 0, src, src_stride, n_rows, even);
		sum_pair(q, n_groups, 1, src, src_stride, n_rows, odd);
		for (unsigned y = 0; y < n_rows; y += 2) {
			unsigned z = y + 1 < n_rows ? y + 1 : y;
			__m256i bytes = pack_rows(even[y], odd[y], even[z], odd[z]);

			_mm_storeu_si128((void *)(dst + y * dst_stride), _mm256_castsi256_si128(bytes));
			if (z != y)
				_mm_storeu_si128((void *)(dst + z * dst_stride), _mm256_extracti128_si256(bytes, 1));
		}
	}
}

AVX2 static void horizontal(const struct taps *t, const void *table, const uint8_t *src, size_t src_stride,
			    uint8_t *dst, size_t dst_stride, unsigned n_rows)
{
	uint32_t n_groups = resample_avx2_groups_of(t);

	/* The common cases with constants, so that the compiler unrolls their loops. */
	if (n_rows == 4 && n_groups == 1)
		resample_rows(t, table, src, src_stride, dst, dst_stride, 4, 1);
	else if (n_rows == 4)
		resample_rows(t, table, src, src_stride, dst, dst_stride, 4, n_groups);
	else
		for (unsigned y = 0; y < n_rows; y++)
			resample_rows(t, table, src + y * src_stride, src_stride, dst + y * dst_stride, dst_stride, 1,
				      n_groups);
}

/* Bytes of two rows, times their weights; byte i of the 32 goes to the lane order of the unpack instructions, which
 * packing reverses. */
INLINE void add_rows(struct sums s[4], __m256i a, __m256i b, __m256i high, __m256i low)
{
	const __m256i zero = _mm256_setzero_si256();
	__m256i ab[2] = { _mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b) };

	for (int i = 0; i < 4; i++) {
		__m256i pairs = i % 2 ? _mm256_unpackhi_epi8(ab[i / 2], zero) : _mm256_unpacklo_epi8(ab[i / 2], zero);

		s[i].high = _mm256_add_epi32(s[i].high, _mm256_madd_epi16(pairs, high));
		s[i].low = _mm256_add_epi32(s[i].low, _mm256_madd_epi16(pairs, low));
	}
}

INLINE __m256i pair_of(int32_t first, int32_t second)
{
	return _mm256_set1_epi32((int32_t)((uint32_t)first & 0xffff) | (int32_t)((uint32_t)second << 16));
}

/* 32 bytes from each row. */
INLINE __m256i sum_columns(const int32_t *k, uint32_t n_rows, const uint8_t *const *rows, size_t i)
{
	const int32_t low_mask = (1 << LOW_BITS) - 1;
	struct sums s[4];

	for (int v = 0; v < 4; v++)
		s[v] = (struct sums){ _mm256_setzero_si256(), _mm256_set1_epi32(ROUND) };
	for (uint32_t j = 0; j < n_rows; j += 2) {
		bool two = j + 1 < n_rows;
		int32_t next = two ? k[j + 1] : 0;
		__m256i a = _mm256_loadu_si256((const void *)(rows[j] + i));
		__m256i b = _mm256_loadu_si256((const void *)(rows[two ? j + 1 : j] + i));

		add_rows(s, a, b, pair_of(k[j] >> LOW_BITS, next >> LOW_BITS),
			 pair_of(k[j] & low_mask, next & low_mask));
	}
	return _mm256_packus_epi16(_mm256_packs_epi32(join(s[0]), join(s[1])),
				   _mm256_packs_epi32(join(s[2]), join(s[3])));
}

AVX2 static void vertical(const int32_t *k, uint32_t n_rows, const uint8_t *const *rows, uint8_t *dst, size_t n_bytes)
{
	size_t i = 0;

	if (n_bytes < 32) {
		resample_c.vertical(k, n_rows, rows, dst, n_bytes);
		return;
	}
	for (; i + 32 <= n_bytes; i += 32)
		_mm256_storeu_si256((void *)(dst + i), sum_columns(k, n_rows, rows, i));
	if (i < n_bytes) /* the last 32 bytes overlap those before */
		_mm256_storeu_si256((void *)(dst + n_bytes - 32), sum_columns(k, n_rows, rows, n_bytes - 32));
}

const struct resample_path resample_avx2 = {
	.name = "avx2",
	.can_run = resample_avx2_can_run,
	.table_bytes = resample_avx2_table_bytes,
	.prepare = resample_avx2_prepare,
	.horizontal = horizontal,
	.vertical = vertical,
};
#endif
