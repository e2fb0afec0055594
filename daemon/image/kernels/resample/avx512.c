/* The AVX-512 path, for processors with VBMI and VNNI (Ice Lake, Zen 4 and later; others use AVX2).
 *
 * vpdpbusd multiplies four unsigned bytes with four signed ones and adds all to a 32-bit lane: four pixels and four
 * weights, if weights were bytes. So a weight is written in base 256 with digits -128..127, k = high * 65536 + middle *
 * 256 + low, and the three sums are joined at the end, which is the exact sum modulo 2^32.
 *
 * Horizontally lane i is byte i of the result, 16 at a time. One vpermb gives each lane its four bytes out of 64 source
 * bytes (or, with two registers, 128). If the sources are further apart, as when an image shrinks to less than a
 * seventh or so, avx512-wide.c does the work. Vertically four rows are interleaved bytewise. */
#if defined(__x86_64__)
#include "image/kernels/resample/paths.h"

#include <immintrin.h>
#include <string.h>

#define TARGET "avx2,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni"
#define AVX512 __attribute__((target(TARGET)))
#define INLINE static inline __attribute__((target(TARGET), always_inline))

enum {
	ROUND = 1 << (TAPS_PRECISION_BITS - 1),
	LANES = 16,
	TAPS_AT_ONCE = 4,
};

/* Four taps of 16 bytes of the result. */
struct lanes {
	uint8_t from[64];                     /* for each lane four places, relative to first_byte */
	int8_t high[64], middle[64], low[64]; /* digits of their weights */
	uint32_t first_byte;                  /* of the source row */
	uint32_t unused[15];
};

enum reach { REACH_64, REACH_128, REACH_TOO_FAR };

struct table {
	uint64_t reach; /* enum reach: how far apart the sources of one struct lanes are, in bytes */
	uint64_t unused[7];
	/* then struct lanes [vectors of a row][groups of taps] and digits, or the table of avx512-wide.c */
};

static bool resample_avx512_can_run(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
	       __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
}

static uint32_t resample_avx512_groups_of(const struct taps *t)
{
	return (t->width + TAPS_AT_ONCE - 1) / TAPS_AT_ONCE;
}

static uint32_t vectors_of(const struct taps *t)
{
	return (t->made.n * 3 + LANES - 1) / LANES;
}

struct pixels {
	uint32_t from, to;    /* positions of the result that a vector touches, inclusive */
	uint32_t first, last; /* smallest and largest start of their windows */
};

static struct pixels pixels_of(const struct taps *t, uint32_t vector)
{
	uint32_t end = vector * LANES + LANES - 1, a, b;
	struct pixels p = { .from = vector * LANES / 3, .to = end / 3 < t->made.n ? end / 3 : t->made.n - 1 };

	a = t->first[p.from];
	b = t->first[p.to]; /* windows move in one direction only, backwards when the result is mirrored */
	p.first = a < b ? a : b;
	p.last = a < b ? b : a;
	return p;
}

static enum reach reach_of(const struct taps *t)
{
	uint32_t most = 0;

	for (uint32_t v = 0; v < vectors_of(t); v++) {
		struct pixels p = pixels_of(t, v);

		most = p.last - p.first > most ? p.last - p.first : most;
	}
	most = (most + TAPS_AT_ONCE) * 3;
	if (most <= 64)
		return REACH_64;
	/* Two loads must not reach beyond the slack after the row, so the row must be at least as long as one load. */
	return most <= 128 - 3 * TAPS_AT_ONCE && t->made.n_avail * 3 >= 64 ? REACH_128 : REACH_TOO_FAR;
}

/* Room for one digit of all weights; a load of 16 pixels' may begin at the last pixel. */
static uint32_t digits_pitch(const struct taps *t)
{
	return (t->made.n + 3) / 4 * 4 + LANES;
}

static size_t digits_bytes(const struct taps *t)
{
	return (size_t)digits_pitch(t) * resample_avx512_groups_of(t) * TAPS_AT_ONCE;
}

static size_t resample_avx512_table_bytes(const struct taps *t)
{
	size_t own = sizeof(struct lanes) * vectors_of(t) * resample_avx512_groups_of(t) + 3 * digits_bytes(t);

	return sizeof(struct table) + (reach_of(t) == REACH_TOO_FAR ? resample_avx512_wide.table_bytes(t) : own);
}

/* Digits of all weights, for each group of taps one number of four digits per pixel, and zeros after a window's end. */
struct digits {
	int32_t *high, *middle, *low;
	uint32_t pitch; /* numbers from a group to the next */
};

/* The first n of 16 lanes. */
static __mmask16 lanes_below(uint32_t n)
{
	return (__mmask16)(n >= 16 ? 0xffff : (1u << n) - 1);
}

/* Of four pixels the digits of 16 taps each. to: where those of the first group go, of which there are n. */
INLINE void store_turned(const __m128i px[4], int32_t *to, uint32_t pitch, uint32_t n)
{
	__m128i a = _mm_unpacklo_epi32(px[0], px[1]), b = _mm_unpacklo_epi32(px[2], px[3]);
	__m128i c = _mm_unpackhi_epi32(px[0], px[1]), d = _mm_unpackhi_epi32(px[2], px[3]);

	_mm_storeu_si128((void *)to, _mm_unpacklo_epi64(a, b));
	if (n > 1)
		_mm_storeu_si128((void *)(to + pitch), _mm_unpackhi_epi64(a, b));
	if (n > 2)
		_mm_storeu_si128((void *)(to + 2 * (size_t)pitch), _mm_unpacklo_epi64(c, d));
	if (n > 3)
		_mm_storeu_si128((void *)(to + 3 * (size_t)pitch), _mm_unpackhi_epi64(c, d));
}

/* Four pixels from x on; beyond the last one it is that one again. */
AVX512 static void split_four(const struct taps *t, const struct digits *d, uint32_t x, uint32_t group)
{
	uint32_t tap = group * TAPS_AT_ONCE, n_left = resample_avx512_groups_of(t) - group, last = t->made.n - 1;
	size_t at = (size_t)group * d->pitch + x;
	__mmask16 there = lanes_below(t->width - tap);
	__m128i high[4], middle[4], low[4];

	for (uint32_t i = 0; i < 4; i++) {
		uint32_t row = x + i < last ? x + i : last;
		__m512i rest = _mm512_maskz_loadu_epi32(there, t->k + (size_t)row * t->width + tap);

		low[i] = _mm512_cvtepi32_epi8(rest);
		rest = _mm512_srai_epi32(_mm512_sub_epi32(rest, _mm512_cvtepi8_epi32(low[i])), 8);
		middle[i] = _mm512_cvtepi32_epi8(rest);
		rest = _mm512_srai_epi32(_mm512_sub_epi32(rest, _mm512_cvtepi8_epi32(middle[i])), 8);
		high[i] = _mm512_cvtepi32_epi8(rest);
	}
	store_turned(high, d->high + at, d->pitch, n_left);
	store_turned(middle, d->middle + at, d->pitch, n_left);
	store_turned(low, d->low + at, d->pitch, n_left);
}

/* What the lanes of a vector read, but for their group: which pixel after the first, and which byte. */
struct lane_pixels {
	__mmask16 there;
	uint32_t first; /* pixel */
	__m512i pixel, byte;
};

AVX512 static struct lane_pixels lane_pixels_of(const struct taps *t, uint32_t vector)
{
	const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	const __m512i three = _mm512_set1_epi32(3);
	uint32_t byte = vector * LANES, n_left = t->made.n - byte / 3;
	__m512i from_red = _mm512_add_epi32(lane, _mm512_set1_epi32((int)(byte % 3)));
	__m512i pixel = _mm512_srli_epi32(_mm512_mullo_epi32(from_red, _mm512_set1_epi32(43691)), 17); /* thirds */
	__m512i channel = _mm512_sub_epi32(from_red, _mm512_mullo_epi32(pixel, three));
	__m512i first = _mm512_maskz_loadu_epi32(lanes_below(n_left), t->first + byte / 3);

	first = _mm512_mullo_epi32(_mm512_permutexvar_epi32(pixel, first), three);
	return (struct lane_pixels){ lanes_below(t->made.n * 3 - byte), byte / 3, pixel,
				     _mm512_add_epi32(first, channel) };
}

INLINE __m512i digits_of(const struct lane_pixels *p, const int32_t *group)
{
	return _mm512_maskz_permutexvar_epi32(p->there, p->pixel, _mm512_loadu_si512(group + p->first));
}

/* The taps of a lane are four bytes. A place of weight 0 may be any. */
AVX512 static void prepare_lanes(const struct taps *t, const struct digits *d, enum reach reach, uint32_t vector,
				 struct lanes *to)
{
	const __m512i first_of_four = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
	uint32_t last = t->made.n_avail * 3 - 64; /* the last byte from which 128 may be read */
	uint32_t first = pixels_of(t, vector).first;
	struct lane_pixels px = lane_pixels_of(t, vector);

	for (uint32_t group = 0; group < resample_avx512_groups_of(t); group++, to++) {
		size_t at = (size_t)group * d->pitch;
		__m512i places;

		to->first_byte = (first + group * TAPS_AT_ONCE) * 3;
		if (reach == REACH_128 && to->first_byte > last)
			to->first_byte = last;
		places = _mm512_add_epi32(px.byte, _mm512_set1_epi32((int)(group * TAPS_AT_ONCE * 3 - to->first_byte)));
		places = _mm512_shuffle_epi8(places, first_of_four);
		places = _mm512_add_epi8(places, _mm512_set1_epi32(0x09060300)); /* a pixel has three bytes */
		_mm512_store_si512(to->from, _mm512_maskz_mov_epi32(px.there, places));
		_mm512_store_si512(to->high, digits_of(&px, d->high + at));
		_mm512_store_si512(to->middle, digits_of(&px, d->middle + at));
		_mm512_store_si512(to->low, digits_of(&px, d->low + at));
	}
}

AVX512 static void resample_avx512_prepare(const struct taps *t, void *table)
{
	struct table *head = table;
	enum reach reach = reach_of(t);
	struct lanes *to = (struct lanes *)(void *)(head + 1);
	uint32_t n_vectors = vectors_of(t), n_groups = resample_avx512_groups_of(t);
	size_t n_digits = digits_bytes(t) / sizeof(int32_t);
	struct digits d = { .high = (int32_t *)(void *)(to + (size_t)n_vectors * n_groups), .pitch = digits_pitch(t) };

	head->reach = reach;
	if (reach == REACH_TOO_FAR) {
		resample_avx512_wide.prepare(t, head + 1);
		return;
	}
	d.middle = d.high + n_digits;
	d.low = d.middle + n_digits;
	for (uint32_t group = 0; group < n_groups; group += LANES / TAPS_AT_ONCE)
		for (uint32_t x = 0; x < t->made.n; x += 4)
			split_four(t, &d, x, group);
	for (uint32_t v = 0; v < n_vectors; v++)
		prepare_lanes(t, &d, reach, v, to + (size_t)v * n_groups);
}

struct sums {
	__m512i high, middle, low;
};

INLINE struct sums no_sums(void)
{
	return (struct sums){ _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_set1_epi32(ROUND) };
}

INLINE void add_products(struct sums *s, __m512i px, __m512i high, __m512i middle, __m512i low)
{
	s->high = _mm512_dpbusd_epi32(s->high, px, high);
	s->middle = _mm512_dpbusd_epi32(s->middle, px, middle);
	s->low = _mm512_dpbusd_epi32(s->low, px, low);
}

INLINE __m512i join(struct sums s)
{
	__m512i upper = _mm512_add_epi32(_mm512_slli_epi32(s.high, 8), s.middle);

	return _mm512_srai_epi32(_mm512_add_epi32(_mm512_slli_epi32(upper, 8), s.low), TAPS_PRECISION_BITS);
}

/* The same for a sum of only four taps, in fewer steps: each product is added to the shifted sum of the previous
 * ones. */
INLINE __m512i sum_once(__m512i px, __m512i high, __m512i middle, __m512i low)
{
	__m512i sum = _mm512_dpbusd_epi32(_mm512_set1_epi32(ROUND >> 16), px, high);

	sum = _mm512_dpbusd_epi32(_mm512_slli_epi32(sum, 8), px, middle);
	sum = _mm512_dpbusd_epi32(_mm512_slli_epi32(sum, 8), px, low);
	return _mm512_srai_epi32(sum, TAPS_PRECISION_BITS);
}

INLINE __m512i gather(const uint8_t *from, __m512i places, enum reach reach)
{
	__m512i first = _mm512_loadu_si512(from);

	if (reach == REACH_64)
		return _mm512_permutexvar_epi8(places, first);
	return _mm512_permutex2var_epi8(first, places, _mm512_loadu_si512(from + 64));
}

INLINE void store_bytes(__m512i sum, uint8_t *dst)
{
	_mm_storeu_si128((void *)dst, _mm512_cvtusepi32_epi8(_mm512_max_epi32(sum, _mm512_setzero_si512())));
}

/* Results of at most four taps, all sources within 64 bytes. */
INLINE void resample_rows_once(const struct lanes *at, uint32_t n_vectors, const uint8_t *src, size_t src_stride,
			       uint8_t *dst, size_t dst_stride, unsigned n_rows)
{
	for (uint32_t v = 0; v < n_vectors; v++, at++, dst += LANES) {
		__m512i places = _mm512_load_si512(at->from), high = _mm512_load_si512(at->high);
		__m512i middle = _mm512_load_si512(at->middle), low = _mm512_load_si512(at->low);
		const uint8_t *from = src + at->first_byte;

		for (unsigned y = 0; y < n_rows; y++)
			store_bytes(sum_once(gather(from + y * src_stride, places, REACH_64), high, middle, low),
				    dst + y * dst_stride);
	}
}

INLINE void resample_rows(const struct lanes *at, uint32_t n_vectors, uint32_t n_groups, enum reach reach,
			  const uint8_t *src, size_t src_stride, uint8_t *dst, size_t dst_stride, unsigned n_rows)
{
	for (uint32_t v = 0; v < n_vectors; v++, dst += LANES) {
		struct sums s[RESAMPLE_BATCH_ROWS];

		for (unsigned y = 0; y < n_rows; y++)
			s[y] = no_sums();
		for (uint32_t g = 0; g < n_groups; g++, at++) {
			__m512i places = _mm512_load_si512(at->from), high = _mm512_load_si512(at->high);
			__m512i middle = _mm512_load_si512(at->middle), low = _mm512_load_si512(at->low);
			const uint8_t *from = src + at->first_byte;

			for (unsigned y = 0; y < n_rows; y++)
				add_products(&s[y], gather(from + y * src_stride, places, reach), high, middle, low);
		}
		for (unsigned y = 0; y < n_rows; y++)
			store_bytes(join(s[y]), dst + y * dst_stride);
	}
}

AVX512 static void horizontal(const struct taps *t, const void *table, const uint8_t *src, size_t src_stride,
			      uint8_t *dst, size_t dst_stride, unsigned n_rows)
{
	const struct table *head = table;
	const struct lanes *lanes = (const struct lanes *)(const void *)(head + 1);
	uint32_t n_vectors = vectors_of(t), n_groups = resample_avx512_groups_of(t);

	if (head->reach == REACH_TOO_FAR)
		resample_avx512_wide.horizontal(t, head + 1, src, src_stride, dst, dst_stride, n_rows);
	/* The common cases with constants, so that the compiler unrolls their loops. */
	else if (head->reach == REACH_64 && n_groups == 1 && n_rows == 4)
		resample_rows_once(lanes, n_vectors, src, src_stride, dst, dst_stride, 4);
	else if (head->reach == REACH_64 && n_rows == 4)
		resample_rows(lanes, n_vectors, n_groups, REACH_64, src, src_stride, dst, dst_stride, 4);
	else if (n_rows == 4)
		resample_rows(lanes, n_vectors, n_groups, REACH_128, src, src_stride, dst, dst_stride, 4);
	else
		for (unsigned y = 0; y < n_rows; y++)
			resample_rows(lanes, n_vectors, n_groups, (enum reach)head->reach, src + y * src_stride, 0,
				      dst + y * dst_stride, 0, 1);
}

/* Sums of four rows side by side. Clipping is what packing does. */
INLINE void store_four(const __m512i sum[RESAMPLE_BATCH_ROWS], uint8_t *dst)
{
	const __m512i side_by_side =
		_mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
	__m512i bytes = _mm512_packus_epi16(_mm512_packs_epi32(sum[0], sum[1]), _mm512_packs_epi32(sum[2], sum[3]));

	_mm512_storeu_si512(dst, _mm512_shuffle_epi8(bytes, side_by_side));
}

INLINE void resample_four(const struct lanes *at, uint32_t n_vectors, uint32_t n_groups, enum reach reach,
			  const uint8_t *const src[RESAMPLE_BATCH_ROWS], uint8_t *dst)
{
	for (uint32_t v = 0; v < n_vectors; v++, dst += (size_t)LANES * RESAMPLE_BATCH_ROWS) {
		struct sums s[RESAMPLE_BATCH_ROWS];
		__m512i made[RESAMPLE_BATCH_ROWS];

		for (unsigned y = 0; y < RESAMPLE_BATCH_ROWS; y++)
			s[y] = no_sums();
		for (uint32_t g = 0; g < n_groups; g++, at++) {
			__m512i places = _mm512_load_si512(at->from), high = _mm512_load_si512(at->high);
			__m512i middle = _mm512_load_si512(at->middle), low = _mm512_load_si512(at->low);

			for (unsigned y = 0; y < RESAMPLE_BATCH_ROWS; y++) {
				__m512i px = gather(src[y] + at->first_byte, places, reach);

				if (n_groups == 1)
					made[y] = sum_once(px, high, middle, low);
				else
					add_products(&s[y], px, high, middle, low);
			}
		}
		for (unsigned y = 0; y < RESAMPLE_BATCH_ROWS && n_groups > 1; y++)
			made[y] = join(s[y]);
		store_four(made, dst);
	}
}

AVX512 static void horizontal_four(const struct taps *t, const void *table,
				   const uint8_t *const src[RESAMPLE_BATCH_ROWS], uint8_t *dst)
{
	const struct table *head = table;
	const struct lanes *lanes = (const struct lanes *)(const void *)(head + 1);
	uint32_t n_vectors = vectors_of(t), n_groups = resample_avx512_groups_of(t);

	/* With constants, so that the compiler unrolls the loops and the sums stay where they are. */
	if (head->reach == REACH_TOO_FAR)
		resample_avx512_wide.horizontal_four(t, head + 1, src, dst);
	else if (head->reach == REACH_64 && n_groups == 1)
		resample_four(lanes, n_vectors, 1, REACH_64, src, dst);
	else if (head->reach == REACH_64 && n_groups == 2)
		resample_four(lanes, n_vectors, 2, REACH_64, src, dst);
	else if (head->reach == REACH_64 && n_groups == 3)
		resample_four(lanes, n_vectors, 3, REACH_64, src, dst);
	else if (head->reach == REACH_64)
		resample_four(lanes, n_vectors, n_groups, REACH_64, src, dst);
	else if (n_groups == 3)
		resample_four(lanes, n_vectors, 3, REACH_128, src, dst);
	else if (n_groups == 4)
		resample_four(lanes, n_vectors, 4, REACH_128, src, dst);
	else
		resample_four(lanes, n_vectors, n_groups, REACH_128, src, dst);
}

/* Digits of four rows' weights, the same in every lane. */
struct row_weights {
	__m512i high, middle, low;
};

INLINE struct row_weights split(const int32_t *k, uint32_t n)
{
	uint32_t digits[3] = { 0, 0, 0 };

	for (uint32_t j = 0; j < n; j++) {
		int8_t low = (int8_t)k[j], middle;
		int32_t rest = (k[j] - low) >> 8;

		middle = (int8_t)rest;
		digits[0] |= (uint32_t)(uint8_t)low << (8 * j);
		digits[1] |= (uint32_t)(uint8_t)middle << (8 * j);
		digits[2] |= (uint32_t)(uint8_t)((rest - middle) >> 8) << (8 * j);
	}
	return (struct row_weights){ _mm512_set1_epi32((int)digits[2]), _mm512_set1_epi32((int)digits[1]),
				     _mm512_set1_epi32((int)digits[0]) };
}

/* 64 bytes (those of mask) from each of four rows, side by side, in the lane order of the unpack instructions, which
 * packing reverses. */
INLINE void interleave(const uint8_t *const rows[4], size_t i, __mmask64 mask, __m512i px[4])
{
	__m512i a = _mm512_maskz_loadu_epi8(mask, rows[0] + i), b = _mm512_maskz_loadu_epi8(mask, rows[1] + i);
	__m512i c = _mm512_maskz_loadu_epi8(mask, rows[2] + i), d = _mm512_maskz_loadu_epi8(mask, rows[3] + i);
	__m512i ab0 = _mm512_unpacklo_epi8(a, b), ab1 = _mm512_unpackhi_epi8(a, b);
	__m512i cd0 = _mm512_unpacklo_epi8(c, d), cd1 = _mm512_unpackhi_epi8(c, d);

	px[0] = _mm512_unpacklo_epi16(ab0, cd0);
	px[1] = _mm512_unpackhi_epi16(ab0, cd0);
	px[2] = _mm512_unpacklo_epi16(ab1, cd1);
	px[3] = _mm512_unpackhi_epi16(ab1, cd1);
}

/* Four rows from j on; missing rows are replaced by an existing one with weight 0. */
INLINE void four_rows(const uint8_t *const *rows, uint32_t j, uint32_t n_rows, const uint8_t *out[4])
{
	for (uint32_t r = 0; r < 4; r++)
		out[r] = rows[j + r < n_rows ? j + r : j];
}

INLINE void store_sums(__m512i a, __m512i b, __m512i c, __m512i d, uint8_t *dst)
{
	_mm512_storeu_si512(dst, _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d)));
}

INLINE __mmask64 mask_of(size_t n_left)
{
	return n_left >= 64 ? ~0ull : (1ull << n_left) - 1;
}

/* Up to four rows: their weights stay in registers. */
INLINE void sum_few(const int32_t *k, uint32_t n_rows, const uint8_t *const *rows, uint8_t *dst, size_t n_bytes)
{
	struct row_weights w = split(k, n_rows);
	const uint8_t *four[4];

	four_rows(rows, 0, n_rows, four);
	for (size_t i = 0; i < n_bytes; i += 64) {
		__m512i px[4];

		interleave(four, i, mask_of(n_bytes - i), px);
		store_sums(sum_once(px[0], w.high, w.middle, w.low), sum_once(px[1], w.high, w.middle, w.low),
			   sum_once(px[2], w.high, w.middle, w.low), sum_once(px[3], w.high, w.middle, w.low), dst + i);
	}
}

INLINE void sum_many(const int32_t *k, uint32_t n_rows, const uint8_t *const *rows, uint8_t *dst, size_t n_bytes)
{
	for (size_t i = 0; i < n_bytes; i += 64) {
		struct sums s[4] = { no_sums(), no_sums(), no_sums(), no_sums() };

		for (uint32_t j = 0; j < n_rows; j += 4) {
			struct row_weights w = split(k + j, n_rows - j < 4 ? n_rows - j : 4);
			const uint8_t *four[4];
			__m512i px[4];

			four_rows(rows, j, n_rows, four);
			interleave(four, i, mask_of(n_bytes - i), px);
			for (int v = 0; v < 4; v++)
				add_products(&s[v], px[v], w.high, w.middle, w.low);
		}
		store_sums(join(s[0]), join(s[1]), join(s[2]), join(s[3]), dst + i);
	}
}

AVX512 static void vertical(const int32_t *k, uint32_t n_rows, const uint8_t *const *rows, uint8_t *dst, size_t n_bytes)
{
	if (n_rows <= 4)
		sum_few(k, n_rows, rows, dst, n_bytes);
	else
		sum_many(k, n_rows, rows, dst, n_bytes);
}

const struct resample_path resample_avx512 = {
	.name = "avx512",
	.can_run = resample_avx512_can_run,
	.table_bytes = resample_avx512_table_bytes,
	.prepare = resample_avx512_prepare,
	.horizontal = horizontal,
	.vertical = vertical,
	.horizontal_four = horizontal_four,
	.vertical_fours = resample_avx512_vertical_fours,
};
#endif
