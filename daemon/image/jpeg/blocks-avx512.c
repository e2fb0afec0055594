/* The colours in AVX-512, 64 pixels at a time, for processors with VBMI and VNNI; the inverse DCT is AVX2's.
 *
 * As in blocks-avx2.c, pixels are words, the even ones apart from the odd ones. One permutation for each channel and 64
 * bytes of the result puts them side by side again: only the mask of its bytes differs between channels. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "image/jpeg/blocks.h"

#define TARGET __attribute__((target("avx2,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")))
#define INLINE TARGET static inline __attribute__((always_inline))

enum { PIXELS = 64 };

struct words512 {
	__m512i even, odd;
};

INLINE struct words512 split512(const uint8_t *from)
{
	__m512i all = _mm512_loadu_si512(from);

	return (struct words512){ _mm512_and_si512(all, _mm512_set1_epi16(255)), _mm512_srli_epi16(all, 8) };
}

INLINE __m512i load32_wide(const uint8_t *from)
{
	return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)from));
}

INLINE __m512i three_times(__m512i v)
{
	return _mm512_add_epi16(_mm512_add_epi16(v, v), v);
}

/* -0.34414 cb - 0.71414 cr, rounded; both less 128. */
INLINE __m512i green512(__m512i cb, __m512i cr)
{
	const __m512i half = _mm512_set1_epi32(32768);
	const __m512i by = _mm512_set1_epi32((int)(((65536u - 46802) << 16) | ((uint32_t)-22554 & 0xffff)));
	__m512i low = _mm512_dpwssd_epi32(half, _mm512_unpacklo_epi16(cb, cr), by);
	__m512i high = _mm512_dpwssd_epi32(half, _mm512_unpackhi_epi16(cb, cr), by);

	return _mm512_sub_epi16(_mm512_packs_epi32(_mm512_srai_epi32(low, 16), _mm512_srai_epi32(high, 16)), cr);
}

/* y + factor / 32768 * 2 chroma, for red and blue. */
INLINE __m512i add_chroma(__m512i y, __m512i chroma, short factor)
{
	return _mm512_add_epi16(y, _mm512_mulhrs_epi16(_mm512_add_epi16(chroma, chroma), _mm512_set1_epi16(factor)));
}

/* Where byte i of the 64 from `part` * 64 on comes from: pixel (part * 64 + i) / 3, as packing leaves pixels, eight even
 * ones and then eight odd ones. A table, as compilers would make it again for each 64 bytes. */
static const _Alignas(64) uint8_t places[3][64] = {
	{ 0,  0,  0,  8,  8,  8,  1,  1,  1,  9,  9,  9,  2,  2,  2,  10, 10, 10, 3,  3,  3, 11,
	  11, 11, 4,  4,  4,  12, 12, 12, 5,  5,  5,  13, 13, 13, 6,  6,  6,  14, 14, 14, 7, 7,
	  7,  15, 15, 15, 16, 16, 16, 24, 24, 24, 17, 17, 17, 25, 25, 25, 18, 18, 18, 26 },
	{ 26, 26, 19, 19, 19, 27, 27, 27, 20, 20, 20, 28, 28, 28, 21, 21, 21, 29, 29, 29, 22, 22,
	  22, 30, 30, 30, 23, 23, 23, 31, 31, 31, 32, 32, 32, 40, 40, 40, 33, 33, 33, 41, 41, 41,
	  34, 34, 34, 42, 42, 42, 35, 35, 35, 43, 43, 43, 36, 36, 36, 44, 44, 44, 37, 37 },
	{ 37, 45, 45, 45, 38, 38, 38, 46, 46, 46, 39, 39, 39, 47, 47, 47, 48, 48, 48, 56, 56, 56,
	  49, 49, 49, 57, 57, 57, 50, 50, 50, 58, 58, 58, 51, 51, 51, 59, 59, 59, 52, 52, 52, 60,
	  60, 60, 53, 53, 53, 61, 61, 61, 54, 54, 54, 62, 62, 62, 55, 55, 55, 63, 63, 63 },
};

/* n of the 192 bytes of 64 pixels. */
INLINE void store512(__m512i r, __m512i g, __m512i b, uint8_t *rgb, uint32_t n)
{
	/* Every third bit, from bit 0, 1 and 2 on. */
	const __mmask64 every[3] = { 0x9249249249249249, 0x2492492492492492, 0x4924924924924924 };

	for (unsigned part = 0; part < 3 && n > part * 64; part++) {
		const __m512i from = _mm512_load_si512(places[part]);
		/* Byte part * 64 + i is of channel (part + i) % 3. */
		__m512i out = _mm512_maskz_permutexvar_epi8(every[(3 - part) % 3], from, r);
		uint32_t left = n - part * 64;

		out = _mm512_mask_permutexvar_epi8(out, every[(4 - part) % 3], from, g);
		out = _mm512_mask_permutexvar_epi8(out, every[(5 - part) % 3], from, b);
		if (left >= 64)
			_mm512_storeu_si512(rgb + part * 64, out);
		else
			_mm512_mask_storeu_epi8(rgb + part * 64, (1ull << left) - 1, out);
	}
}

/* cb and cr less 128. */
INLINE void store_centred512(struct words512 y, struct words512 cb, struct words512 cr, uint8_t *rgb, uint32_t n)
{
	store512(_mm512_packus_epi16(add_chroma(y.even, cr.even, 22971), add_chroma(y.odd, cr.odd, 22971)),
		 _mm512_packus_epi16(_mm512_add_epi16(y.even, green512(cb.even, cr.even)),
				     _mm512_add_epi16(y.odd, green512(cb.odd, cr.odd))),
		 _mm512_packus_epi16(add_chroma(y.even, cb.even, 29033), add_chroma(y.odd, cb.odd, 29033)), rgb, n);
}

INLINE void store_ycc512(struct words512 y, struct words512 cb, struct words512 cr, uint8_t *rgb, uint32_t n)
{
	const __m512i bias = _mm512_set1_epi16(128);

	cb = (struct words512){ _mm512_sub_epi16(cb.even, bias), _mm512_sub_epi16(cb.odd, bias) };
	cr = (struct words512){ _mm512_sub_epi16(cr.even, bias), _mm512_sub_epi16(cr.odd, bias) };
	store_centred512(y, cb, cr, rgb, n);
}

/* Upsampled chroma, 64 pixels from `near` (and `far`) on. */
INLINE struct words512 up512_none(const uint8_t *near, const uint8_t *far, int below)
{
	(void)far;
	(void)below;
	return split512(near);
}

INLINE struct words512 up512_h2(const uint8_t *near, const uint8_t *far, int below)
{
	__m512i three = _mm512_add_epi16(three_times(load32_wide(near)), _mm512_set1_epi16(1));
	__m512i before = _mm512_add_epi16(three, load32_wide(near - 1));
	__m512i behind = _mm512_add_epi16(_mm512_add_epi16(three, _mm512_set1_epi16(1)), load32_wide(near + 1));

	(void)far;
	(void)below;
	return (struct words512){ _mm512_srli_epi16(before, 2), _mm512_srli_epi16(behind, 2) };
}

INLINE struct words512 up512_v2(const uint8_t *near, const uint8_t *far, int below)
{
	const __m512i bias = _mm512_set1_epi16(below ? 2 : 1);
	struct words512 n = split512(near), f = split512(far);
	__m512i even = _mm512_add_epi16(_mm512_add_epi16(three_times(n.even), f.even), bias);
	__m512i odd = _mm512_add_epi16(_mm512_add_epi16(three_times(n.odd), f.odd), bias);

	return (struct words512){ _mm512_srli_epi16(even, 2), _mm512_srli_epi16(odd, 2) };
}

INLINE __m512i columns512(const uint8_t *near, const uint8_t *far)
{
	return _mm512_add_epi16(three_times(load32_wide(near)), load32_wide(far));
}

INLINE struct words512 up512_h2v2(const uint8_t *near, const uint8_t *far, int below)
{
	__m512i three = _mm512_add_epi16(three_times(columns512(near, far)), _mm512_set1_epi16(7));
	__m512i before = _mm512_add_epi16(_mm512_add_epi16(three, _mm512_set1_epi16(1)), columns512(near - 1, far - 1));
	__m512i behind = _mm512_add_epi16(three, columns512(near + 1, far + 1));

	(void)below;
	return (struct words512){ _mm512_srli_epi16(before, 4), _mm512_srli_epi16(behind, 4) };
}

typedef struct words512 up512_fn(const uint8_t *near, const uint8_t *far, int below);

/* A row by one kind of upsampling; h: 2 if halved horizontally. */
INLINE void ycc512_row(up512_fn *up, unsigned h, unsigned v, const uint8_t *y, const struct chroma_row *c, uint8_t *rgb,
		       uint32_t n_px)
{
	const uint8_t *cb = c->near[0], *cr = c->near[1], *cb_far = c->far[0], *cr_far = c->far[1];

	if (h == 2 && c->odd && n_px) {
		blocks_c.ycc[v - 1][h - 1](y++, c, rgb, 1);
		rgb += 3;
		n_px--;
		cb++, cr++, cb_far++, cr_far++;
	}
	for (;; rgb += PIXELS * 3, y += PIXELS) {
		if (n_px == 0)
			return;
		store_ycc512(split512(y), up(cb, cb_far, c->below), up(cr, cr_far, c->below), rgb, n_px * 3);
		if (n_px <= PIXELS)
			return;
		n_px -= PIXELS;
		cb += PIXELS / h, cr += PIXELS / h, cb_far += PIXELS / h, cr_far += PIXELS / h;
	}
}

TARGET static void ycc512(const uint8_t *y, const struct chroma_row *c, uint8_t *rgb, uint32_t n_px)
{
	ycc512_row(up512_none, 1, 1, y, c, rgb, n_px);
}

TARGET static void ycc512_h2(const uint8_t *y, const struct chroma_row *c, uint8_t *rgb, uint32_t n_px)
{
	ycc512_row(up512_h2, 2, 1, y, c, rgb, n_px);
}

TARGET static void ycc512_v2(const uint8_t *y, const struct chroma_row *c, uint8_t *rgb, uint32_t n_px)
{
	ycc512_row(up512_v2, 1, 2, y, c, rgb, n_px);
}

/* Chroma halved in both directions. Each sum of two rows is made once and read three times, for the pixels on both
 * sides of it and its own; a piece of a row at a time, so that the sums stay in the first-level cache. Rows of few
 * pixels would wait for the sums to reach the cache. */
enum { NARROW = 192 };
enum { PIECE = 480 }; /* samples, a multiple of 32; with one more on both sides less than a multiple of 64 */

/* Three of near and one of far, of n samples rounded up to 64. */
INLINE void sum_columns(const uint8_t *near, const uint8_t *far, uint32_t n, int16_t *to)
{
	const __m512i lanes = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7); /* as unpacking wants them */
	const __m512i by = _mm512_set1_epi16(0x0103);

	for (uint32_t i = 0; i < n; i += 64) {
		__m512i a = _mm512_permutexvar_epi64(lanes, _mm512_loadu_si512(near + i));
		__m512i b = _mm512_permutexvar_epi64(lanes, _mm512_loadu_si512(far + i));

		_mm512_store_si512(to + i, _mm512_maddubs_epi16(_mm512_unpacklo_epi8(a, b), by));
		_mm512_store_si512(to + i + 32, _mm512_maddubs_epi16(_mm512_unpackhi_epi8(a, b), by));
	}
}

/* Chroma of 64 pixels from the sums of their 32 samples, less 128. */
INLINE struct words512 up_columns(const int16_t *sums)
{
	__m512i own = _mm512_mullo_epi16(_mm512_loadu_si512(sums), _mm512_set1_epi16(3));
	__m512i three = _mm512_add_epi16(own, _mm512_set1_epi16(7 - 16 * 128));
	__m512i before = _mm512_add_epi16(_mm512_add_epi16(three, _mm512_set1_epi16(1)), _mm512_loadu_si512(sums - 1));
	__m512i behind = _mm512_add_epi16(three, _mm512_loadu_si512(sums + 1));

	return (struct words512){ _mm512_srai_epi16(before, 4), _mm512_srai_epi16(behind, 4) };
}

TARGET static void ycc512_h2v2(const uint8_t *y, const struct chroma_row *c, uint8_t *rgb, uint32_t n_px)
{
	_Alignas(64) int16_t sums[2][(PIECE + 2 + 63) / 64 * 64];
	uint32_t skip = c->odd && n_px;

	if (n_px <= NARROW) {
		ycc512_row(up512_h2v2, 2, 2, y, c, rgb, n_px);
		return;
	}
	if (skip) {
		blocks_c.ycc[1][1](y++, c, rgb, 1);
		rgb += 3;
		n_px--;
	}
	for (uint32_t at = 0; at < n_px; at += 2 * PIECE) {
		const uint32_t n = n_px - at < 2 * PIECE ? n_px - at : 2 * PIECE;

		/* From the sample before the piece's first to the one after its last. */
		for (unsigned i = 0; i < 2; i++)
			sum_columns(c->near[i] + skip + at / 2 - 1, c->far[i] + skip + at / 2 - 1, (n + 1) / 2 + 2,
				    sums[i]);
		for (uint32_t x = 0; x < n; x += PIXELS)
			store_centred512(split512(y + at + x), up_columns(sums[0] + 1 + x / 2),
					 up_columns(sums[1] + 1 + x / 2), rgb + (size_t)(at + x) * 3, (n - x) * 3);
	}
}

const struct blocks_ops blocks_avx512 = { "avx512",
					  blocks_avx2_idct_pair,
					  blocks_avx2_idct_small,
					  { { ycc512, ycc512_h2 }, { ycc512_v2, ycc512_h2v2 } },
					  blocks_avx2_interleave };
#else
typedef int blocks_avx512_is_empty; /* ISO C requires a declaration in every file */
#endif
