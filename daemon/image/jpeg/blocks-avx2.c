/* The blocks in AVX2: blocks-c.c has the definition; this is the fast implementation.
 *
 * Inverse DCT: a register holds the same row of two blocks, one in each 128-bit lane. One pmaddwd gives the products of
 * pairs, so the rotations are written as two-by-two matrices. If all coefficients after zigzag position 9 are zero,
 * everything outside the upper left 4x4 is zero and half of the work can be skipped; the remaining sums are the same.
 *
 * Colour: 32 pixels at a time as 16-bit words of even and of odd pixels. Horizontal upsampling gives them in this form,
 * and it costs nothing elsewhere. The red and blue factors round correctly in one multiplication for all 256 inputs;
 * green needs 32 bits. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "image/jpeg/blocks.h"

#define TARGET __attribute__((target("avx2")))
#define INLINE TARGET static inline __attribute__((always_inline))
#define IDCT_TARGET TARGET
#include "image/jpeg/idct-small.h"

/* ---- inverse DCT ---- */

/* (a, b) times (ka, kb), of interleaved words. */
INLINE __m256i products(__m256i ab, int ka, int kb)
{
	return _mm256_madd_epi16(ab, _mm256_set1_epi32((int)((uint32_t)ka & 0xffff) | (int)((uint32_t)kb << 16)));
}

/* Intermediate sums of eight values (or four, when the others are zero) for one half of the lanes' columns, 32 bits
 * wide. */
struct wide {
	__m256i even[4], odd[4];
};

INLINE void butterfly(__m256i sum, __m256i difference, __m256i rotated2, __m256i rotated3, int shift, struct wide *w)
{
	const __m256i half = _mm256_set1_epi32(1 << (shift - 1)); /* words come in the upper halves: 16 - 3 = 13 bits */

	sum = _mm256_add_epi32(_mm256_srai_epi32(sum, 3), half);
	difference = _mm256_add_epi32(_mm256_srai_epi32(difference, 3), half);
	w->even[0] = _mm256_add_epi32(sum, rotated3);
	w->even[1] = _mm256_add_epi32(difference, rotated2);
	w->even[2] = _mm256_sub_epi32(difference, rotated2);
	w->even[3] = _mm256_sub_epi32(sum, rotated3);
}

INLINE void wide_full(__m256i sum, __m256i difference, __m256i v26, __m256i v71, __m256i v53, __m256i z34, int shift,
		      struct wide *w)
{
	__m256i p3 = products(z34, 9633 - 16069, 9633), p4 = products(z34, 9633, 9633 - 3196);

	butterfly(sum, difference, products(v26, 4433, 4433 - 15137), products(v26, 4433 + 6270, 4433), shift, w);
	w->odd[0] = _mm256_add_epi32(products(v71, -7373, 12299 - 7373), p4);
	w->odd[1] = _mm256_add_epi32(products(v53, -20995, 25172 - 20995), p3);
	w->odd[2] = _mm256_add_epi32(products(v53, 16819 - 20995, -20995), p4);
	w->odd[3] = _mm256_add_epi32(products(v71, 2446 - 7373, -7373), p3);
}

/* v4 to v7 are zero: the odd part becomes one product each. */
INLINE void wide_sparse(__m256i v0, __m256i v2, __m256i v31, int shift, struct wide *w)
{
	butterfly(v0, v0, products(v2, 0, 4433), products(v2, 0, 4433 + 6270), shift, w);
	w->odd[0] = products(v31, 9633, 9633 - 3196 + 12299 - 7373);
	w->odd[1] = products(v31, 9633 - 16069 + 25172 - 20995, 9633);
	w->odd[2] = products(v31, 9633 - 20995, 9633 - 3196);
	w->odd[3] = products(v31, 9633 - 16069, 9633 - 7373);
}

INLINE void descale(const struct wide *low, const struct wide *high, int shift, __m256i v[8])
{
	for (unsigned i = 0; i < 4; i++) {
		v[i] = _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(low->even[i], low->odd[i]), shift),
					  _mm256_srai_epi32(_mm256_add_epi32(high->even[i], high->odd[i]), shift));
		v[7 - i] = _mm256_packs_epi32(_mm256_srai_epi32(_mm256_sub_epi32(low->even[i], low->odd[i]), shift),
					      _mm256_srai_epi32(_mm256_sub_epi32(high->even[i], high->odd[i]), shift));
	}
}

INLINE void pass_full(__m256i v[8], int shift)
{
	const __m256i zero = _mm256_setzero_si256();
	__m256i sum = _mm256_add_epi16(v[0], v[4]), difference = _mm256_sub_epi16(v[0], v[4]);
	__m256i z3 = _mm256_add_epi16(v[7], v[3]), z4 = _mm256_add_epi16(v[5], v[1]);
	struct wide low, high;

	wide_full(_mm256_unpacklo_epi16(zero, sum), _mm256_unpacklo_epi16(zero, difference),
		  _mm256_unpacklo_epi16(v[2], v[6]), _mm256_unpacklo_epi16(v[7], v[1]),
		  _mm256_unpacklo_epi16(v[5], v[3]), _mm256_unpacklo_epi16(z3, z4), shift, &low);
	wide_full(_mm256_unpackhi_epi16(zero, sum), _mm256_unpackhi_epi16(zero, difference),
		  _mm256_unpackhi_epi16(v[2], v[6]), _mm256_unpackhi_epi16(v[7], v[1]),
		  _mm256_unpackhi_epi16(v[5], v[3]), _mm256_unpackhi_epi16(z3, z4), shift, &high);
	descale(&low, &high, shift, v);
}

/* v[4] to v[7] are zero on entry. */
INLINE void pass_sparse(__m256i v[8], int shift)
{
	const __m256i zero = _mm256_setzero_si256();
	struct wide low, high;

	wide_sparse(_mm256_unpacklo_epi16(zero, v[0]), _mm256_unpacklo_epi16(zero, v[2]),
		    _mm256_unpacklo_epi16(v[3], v[1]), shift, &low);
	wide_sparse(_mm256_unpackhi_epi16(zero, v[0]), _mm256_unpackhi_epi16(zero, v[2]),
		    _mm256_unpackhi_epi16(v[3], v[1]), shift, &high);
	descale(&low, &high, shift, v);
}

/* Columns 4 to 7 are zero, too, also on return. */
INLINE void pass_corner(__m256i v[8], int shift)
{
	const __m256i zero = _mm256_setzero_si256();
	struct wide low, nothing;

	for (unsigned i = 0; i < 4; i++)
		nothing.even[i] = nothing.odd[i] = zero;
	wide_sparse(_mm256_unpacklo_epi16(zero, v[0]), _mm256_unpacklo_epi16(zero, v[2]),
		    _mm256_unpacklo_epi16(v[3], v[1]), shift, &low);
	descale(&low, &nothing, shift, v);
}

/* 8x8 words in each lane. */
INLINE void transpose(__m256i v[8])
{
	__m256i a[8], b[8];

	for (unsigned i = 0; i < 4; i++) {
		a[i] = _mm256_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
		a[i + 4] = _mm256_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
	}
	for (unsigned i = 0; i < 8; i += 4) {
		b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
		b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
		b[i + 2] = _mm256_unpacklo_epi32(a[i + 2], a[i + 3]);
		b[i + 3] = _mm256_unpackhi_epi32(a[i + 2], a[i + 3]);
	}
	for (unsigned i = 0; i < 8; i += 4) {
		v[i] = _mm256_unpacklo_epi64(b[i], b[i + 2]);
		v[i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 2]);
		v[i + 2] = _mm256_unpacklo_epi64(b[i + 1], b[i + 3]);
		v[i + 3] = _mm256_unpackhi_epi64(b[i + 1], b[i + 3]);
	}
}

/* Columns of words to rows of samples. */
INLINE void store_blocks(const __m256i v[8], uint8_t *a, uint8_t *b, size_t stride_bytes)
{
	const __m256i centre = _mm256_set1_epi8(-128);
	__m256i p[4], q[4], r[4], rows[4];

	for (unsigned i = 0; i < 4; i++)
		p[i] = _mm256_xor_si256(_mm256_packs_epi16(v[i], v[i + 4]), centre); /* columns i, i + 4 */
	q[0] = _mm256_unpacklo_epi8(p[0], p[1]);                                     /* 0 1 */
	q[1] = _mm256_unpacklo_epi8(p[2], p[3]);                                     /* 2 3 */
	q[2] = _mm256_unpackhi_epi8(p[0], p[1]);                                     /* 4 5 */
	q[3] = _mm256_unpackhi_epi8(p[2], p[3]);                                     /* 6 7 */
	r[0] = _mm256_unpacklo_epi16(q[0], q[1]);                                    /* columns 0 to 3, rows 0 to 3 */
	r[1] = _mm256_unpackhi_epi16(q[0], q[1]);
	r[2] = _mm256_unpacklo_epi16(q[2], q[3]); /* columns 4 to 7 */
	r[3] = _mm256_unpackhi_epi16(q[2], q[3]);
	rows[0] = _mm256_unpacklo_epi32(r[0], r[2]); /* rows 0 and 1 of both blocks */
	rows[1] = _mm256_unpackhi_epi32(r[0], r[2]);
	rows[2] = _mm256_unpacklo_epi32(r[1], r[3]);
	rows[3] = _mm256_unpackhi_epi32(r[1], r[3]);
	for (unsigned i = 0; i < 4; i++) {
		uint8_t *row_a = a + 2 * i * stride_bytes, *row_b = b + 2 * i * stride_bytes;
		__m128i low = _mm256_castsi256_si128(rows[i]), high = _mm256_extracti128_si256(rows[i], 1);

		_mm_storel_epi64((__m128i *)row_a, low);
		_mm_storeh_pd((double *)(row_a + stride_bytes), _mm_castsi128_pd(low));
		_mm_storel_epi64((__m128i *)row_b, high);
		_mm_storeh_pd((double *)(row_b + stride_bytes), _mm_castsi128_pd(high));
	}
}

INLINE void load_rows(int16_t *coef, const uint16_t *quant, unsigned n, __m256i v[8])
{
	for (unsigned i = 0; i < n; i++) {
		__m256i *row = (__m256i *)(coef + i * COEF_ROW);

		v[i] = _mm256_mullo_epi16(_mm256_load_si256(row),
					  _mm256_load_si256((const __m256i *)(quant + i * COEF_ROW)));
		_mm256_store_si256(row, _mm256_setzero_si256());
	}
}

enum { CORNER_LAST = 9 /* zigzag positions of the first four diagonals */, SHIFT1 = 11, SHIFT2 = 18 };

TARGET int blocks_avx2_idct_pair(int16_t coef[COEF_PAIR], const uint16_t quant[COEF_PAIR], unsigned last, uint8_t *a,
				 uint8_t *b, size_t stride_bytes)
{
	__m256i v[8], exceeded;

	if (last <= CORNER_LAST) {
		load_rows(coef, quant, 4, v);
		exceeded = v[0];
		pass_corner(v, SHIFT1);
		transpose(v);
		pass_sparse(v, SHIFT2);
	} else {
		load_rows(coef, quant, 8, v);
		exceeded = v[0];
		pass_full(v, SHIFT1);
		transpose(v);
		pass_full(v, SHIFT2);
	}
	store_blocks(v, a, b, stride_bytes);
	exceeded = _mm256_srli_epi16(_mm256_add_epi16(exceeded, _mm256_set1_epi16(DEQUANTIZED_MAX + 1)), 14);
	return !_mm256_testz_si256(exceeded, exceeded);
}

/* ---- colour ---- */

/* Words of even and odd pixels. */
struct words {
	__m256i even, odd;
};

INLINE struct words split(__m256i bytes)
{
	return (struct words){ _mm256_and_si256(bytes, _mm256_set1_epi16(255)), _mm256_srli_epi16(bytes, 8) };
}

INLINE __m256i load32(const uint8_t *p)
{
	return _mm256_loadu_si256((const __m256i *)p);
}

INLINE __m256i load16_wide(const uint8_t *p)
{
	return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p));
}

/* Writes 32 pixels of three channels, in the order in which `place` expects them within each lane, as 96 bytes. `place`
 * moves each of a channel's sixteen bytes to its final position modulo 16; then blends select the bytes. */
INLINE void store_spread(__m256i r, __m256i g, __m256i b, uint8_t *rgb)
{
	const __m256i is_g =
		_mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0));
	const __m256i is_b =
		_mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0));
	const __m256i is_r =
		_mm256_broadcastsi128_si256(_mm_setr_epi8(-1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1));
	__m256i first = _mm256_blendv_epi8(_mm256_blendv_epi8(r, g, is_g), b, is_b);  /* r g b r ... r */
	__m256i second = _mm256_blendv_epi8(_mm256_blendv_epi8(g, b, is_g), r, is_b); /* g b r g ... g */
	__m256i third = _mm256_blendv_epi8(_mm256_blendv_epi8(g, b, is_r), r, is_g);  /* b r g b ... b */

	_mm_storeu_si128((__m128i *)rgb, _mm256_castsi256_si128(first));
	_mm_storeu_si128((__m128i *)(rgb + 16), _mm256_castsi256_si128(second));
	_mm_storeu_si128((__m128i *)(rgb + 32), _mm256_castsi256_si128(third));
	_mm_storeu_si128((__m128i *)(rgb + 48), _mm256_extracti128_si256(first, 1));
	_mm_storeu_si128((__m128i *)(rgb + 64), _mm256_extracti128_si256(second, 1));
	_mm_storeu_si128((__m128i *)(rgb + 80), _mm256_extracti128_si256(third, 1));
}

/* The position of a channel's pixel modulo 16: pixel i goes to byte 3 i + channel, so byte j comes from pixel
 * (j - channel) / 3 modulo 16, which is 11 (j - channel). */
INLINE __m256i place_pixels(unsigned channel)
{
	char from[16];

	for (unsigned j = 0; j < 16; j++)
		from[j] = (char)((11 * (j + 16 - channel)) & 15);
	return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)from));
}

/* The same for a lane of eight even pixels and then eight odd ones. */
INLINE __m256i place_words(unsigned channel)
{
	char from[16];

	for (unsigned j = 0; j < 16; j++) {
		unsigned pixel = (11 * (j + 16 - channel)) & 15;

		from[j] = (char)(pixel / 2 + pixel % 2 * 8);
	}
	return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)from));
}

/* -0.34414 (cb - 128) - 0.71414 (cr - 128), rounded. */
INLINE __m256i green(__m256i cb, __m256i cr)
{
	const __m256i half = _mm256_set1_epi32(32768);
	__m256i low = _mm256_add_epi32(products(_mm256_unpacklo_epi16(cb, cr), -22554, 65536 - 46802), half);
	__m256i high = _mm256_add_epi32(products(_mm256_unpackhi_epi16(cb, cr), -22554, 65536 - 46802), half);

	return _mm256_sub_epi16(_mm256_packs_epi32(_mm256_srai_epi32(low, 16), _mm256_srai_epi32(high, 16)), cr);
}

INLINE void store_ycc(struct words y, struct words cb, struct words cr, uint8_t *rgb)
{
	const __m256i bias = _mm256_set1_epi16(128), red = _mm256_set1_epi16(22971), blue = _mm256_set1_epi16(29033);

	cb.even = _mm256_sub_epi16(cb.even, bias);
	cb.odd = _mm256_sub_epi16(cb.odd, bias);
	cr.even = _mm256_sub_epi16(cr.even, bias);
	cr.odd = _mm256_sub_epi16(cr.odd, bias);
	__m256i r = _mm256_packus_epi16(
		_mm256_add_epi16(y.even, _mm256_mulhrs_epi16(_mm256_add_epi16(cr.even, cr.even), red)),
		_mm256_add_epi16(y.odd, _mm256_mulhrs_epi16(_mm256_add_epi16(cr.odd, cr.odd), red)));
	__m256i g = _mm256_packus_epi16(_mm256_add_epi16(y.even, green(cb.even, cr.even)),
					_mm256_add_epi16(y.odd, green(cb.odd, cr.odd)));
	__m256i b = _mm256_packus_epi16(
		_mm256_add_epi16(y.even, _mm256_mulhrs_epi16(_mm256_add_epi16(cb.even, cb.even), blue)),
		_mm256_add_epi16(y.odd, _mm256_mulhrs_epi16(_mm256_add_epi16(cb.odd, cb.odd), blue)));

	store_spread(_mm256_shuffle_epi8(r, place_words(0)), _mm256_shuffle_epi8(g, place_words(1)),
		     _mm256_shuffle_epi8(b, place_words(2)), rgb);
}

/* Upsampled chroma, 32 pixels from `near` (and `far`) on. */
INLINE struct words up_none(const uint8_t *near, const uint8_t *far, int below)
{
	(void)far;
	(void)below;
	return split(load32(near));
}

INLINE struct words up_h2(const uint8_t *near, const uint8_t *far, int below)
{
	__m256i own = load16_wide(near);
	__m256i three = _mm256_add_epi16(_mm256_add_epi16(own, own), _mm256_add_epi16(own, _mm256_set1_epi16(1)));
	__m256i before = _mm256_add_epi16(three, load16_wide(near - 1));
	__m256i behind = _mm256_add_epi16(_mm256_add_epi16(three, _mm256_set1_epi16(1)), load16_wide(near + 1));

	(void)far;
	(void)below;
	return (struct words){ _mm256_srli_epi16(before, 2), _mm256_srli_epi16(behind, 2) };
}

INLINE struct words up_v2(const uint8_t *near, const uint8_t *far, int below)
{
	const __m256i bias = _mm256_set1_epi16(below ? 2 : 1);
	struct words n = split(load32(near)), f = split(load32(far));
	__m256i even = _mm256_add_epi16(_mm256_add_epi16(n.even, n.even), _mm256_add_epi16(n.even, f.even));
	__m256i odd = _mm256_add_epi16(_mm256_add_epi16(n.odd, n.odd), _mm256_add_epi16(n.odd, f.odd));

	return (struct words){ _mm256_srli_epi16(_mm256_add_epi16(even, bias), 2),
			       _mm256_srli_epi16(_mm256_add_epi16(odd, bias), 2) };
}

/* Three of near and one of far: sixteen column sums. */
INLINE __m256i columns(const uint8_t *near, const uint8_t *far)
{
	__m256i n = load16_wide(near);

	return _mm256_add_epi16(_mm256_add_epi16(n, n), _mm256_add_epi16(n, load16_wide(far)));
}

INLINE struct words up_h2v2(const uint8_t *near, const uint8_t *far, int below)
{
	__m256i own = columns(near, far);
	__m256i three = _mm256_add_epi16(_mm256_add_epi16(own, own), _mm256_add_epi16(own, _mm256_set1_epi16(7)));
	__m256i before = _mm256_add_epi16(_mm256_add_epi16(three, _mm256_set1_epi16(1)), columns(near - 1, far - 1));
	__m256i behind = _mm256_add_epi16(three, columns(near + 1, far + 1));

	(void)below;
	return (struct words){ _mm256_srli_epi16(before, 4), _mm256_srli_epi16(behind, 4) };
}

typedef struct words up_fn(const uint8_t *near, const uint8_t *far, int below);

/* A row by one kind of upsampling; h: 2 if halved horizontally. */
INLINE void ycc_row(up_fn *up, unsigned h, unsigned v, const uint8_t *y, const struct chroma_row *c, uint8_t *rgb,
		    uint32_t n_px)
{
	const uint8_t *cb = c->near[0], *cr = c->near[1], *cb_far = c->far[0], *cr_far = c->far[1];
	uint8_t tail[96];

	if (h == 2 && c->odd && n_px) {
		blocks_c.ycc[v - 1][h - 1](y++, c, rgb, 1);
		rgb += 3;
		n_px--;
		cb++, cr++, cb_far++, cr_far++;
	}
	for (; n_px; rgb += 96) {
		uint8_t *to = n_px < 32 ? tail : rgb;

		store_ycc(split(load32(y)), up(cb, cb_far, c->below), up(cr, cr_far, c->below), to);
		if (n_px < 32) {
			memcpy(rgb, tail, n_px * 3);
			return;
		}
		n_px -= 32;
		y += 32;
		cb += 32 / h, cr += 32 / h, cb_far += 32 / h, cr_far += 32 / h;
	}
}

TARGET static void ycc(const uint8_t *y, const struct chroma_row *c, uint8_t *rgb, uint32_t n_px)
{
	ycc_row(up_none, 1, 1, y, c, rgb, n_px);
}

TARGET static void ycc_h2(const uint8_t *y, const struct chroma_row *c, uint8_t *rgb, uint32_t n_px)
{
	ycc_row(up_h2, 2, 1, y, c, rgb, n_px);
}

TARGET static void ycc_v2(const uint8_t *y, const struct chroma_row *c, uint8_t *rgb, uint32_t n_px)
{
	ycc_row(up_v2, 1, 2, y, c, rgb, n_px);
}

TARGET static void ycc_h2v2(const uint8_t *y, const struct chroma_row *c, uint8_t *rgb, uint32_t n_px)
{
	ycc_row(up_h2v2, 2, 2, y, c, rgb, n_px);
}

TARGET void blocks_avx2_interleave(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint8_t *rgb, uint32_t n_px)
{
	for (; n_px >= 32; n_px -= 32, r += 32, g += 32, b += 32, rgb += 96)
		store_spread(_mm256_shuffle_epi8(load32(r), place_pixels(0)),
			     _mm256_shuffle_epi8(load32(g), place_pixels(1)),
			     _mm256_shuffle_epi8(load32(b), place_pixels(2)), rgb);
	blocks_c.interleave(r, g, b, rgb, n_px);
}

TARGET int blocks_avx2_idct_small(unsigned edge, int16_t *coef, const uint16_t *quant, unsigned last, uint8_t *out,
				  size_t stride_bytes)
{
	return idct_small_block(edge, coef, quant, last, out, stride_bytes);
}

const struct blocks_ops blocks_avx2 = { "avx2",
					blocks_avx2_idct_pair,
					blocks_avx2_idct_small,
					{ { ycc, ycc_h2 }, { ycc_v2, ycc_h2v2 } },
					blocks_avx2_interleave };
#else
typedef int blocks_avx2_is_empty; /* ISO C requires a declaration in every file */
#endif
