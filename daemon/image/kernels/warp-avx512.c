/* The AVX-512 path of bicubic transforms (with VBMI): warp-avx2.c's calculation for eight pixels at a time, every
 * operation in Pillow's order and rounded on its own.
 *
 * Where weights fall on one row or one column of a window, as in shears and moves along an axis, 16 pixels are made in
 * floats first. These are less than 0.0003 off (see UNSURE), so only what lies closer to a whole number is made again in
 * doubles: few pixels of a photograph, as plain areas, whose sums are exact, do not count. */
#if defined(__x86_64__)
#include "image/kernels/exact.h"

#include "image/kernels/warp-paths.h"

#include <immintrin.h>

#define TARGET "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi"
#define AVX512 __attribute__((target(TARGET)))
#define INLINE static inline __attribute__((target(TARGET), always_inline))

enum { PX_AT_ONCE = 8, ALL = (1 << PX_AT_ONCE) - 1 };

/* A byte in the lowest bits of this number is the number plus the byte. */
#define BIG 0x1p52

/* Where eight pixels of the result are in the source. */
struct places {
	__m512d x, y;
	__m512d left, top; /* of the pixels whose middles are next to them */
	__m512d dx, dy;
};

/* One coordinate, by three numbers of the matrix. */
INLINE __m512d coordinate(const double *m, __m512d u, __m512d v)
{
	__m512d at = _mm512_add_pd(_mm512_mul_pd(_mm512_set1_pd(m[0]), u), _mm512_mul_pd(_mm512_set1_pd(m[1]), v));

	return _mm512_add_pd(at, _mm512_set1_pd(m[2]));
}

INLINE struct places places_of(const struct warp *w, uint32_t x, uint32_t y)
{
	__m512d u = _mm512_add_pd(_mm512_set1_pd((double)x), _mm512_setr_pd(0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5));
	__m512d v = _mm512_set1_pd(y + 0.5), half = _mm512_set1_pd(0.5);
	__m512d at_x = coordinate(w->m, u, v), at_y = coordinate(w->m + 3, u, v);
	struct places p;

	if (w->perspective) {
		__m512d depth = coordinate((const double[3]){ w->m[6], w->m[7], 1.0 }, u, v);

		at_x = _mm512_div_pd(at_x, depth);
		at_y = _mm512_div_pd(at_y, depth);
	}
	p.x = at_x;
	p.y = at_y;
	at_x = _mm512_sub_pd(at_x, half);
	at_y = _mm512_sub_pd(at_y, half);
	p.left = _mm512_roundscale_pd(at_x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
	p.top = _mm512_roundscale_pd(at_y, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
	p.dx = _mm512_sub_pd(at_x, p.left);
	p.dy = _mm512_sub_pd(at_y, p.top);
	return p;
}

/* Whether from <= v <= to for each; not for NaN. */
INLINE bool within(__m512d v, double from, double to)
{
	__mmask8 above = _mm512_cmp_pd_mask(v, _mm512_set1_pd(from), _CMP_GE_OQ);

	return _mm512_mask_cmp_pd_mask(above, v, _mm512_set1_pd(to), _CMP_LE_OQ) == ALL;
}

/* Pixels beside the source; not those whose place is not a number. */
INLINE __mmask8 outside_of(const struct image *src, const struct places *p)
{
	const __m512d zero = _mm512_setzero_pd();
	__mmask8 x = _mm512_cmp_pd_mask(p->x, zero, _CMP_LT_OQ) |
		     _mm512_cmp_pd_mask(p->x, _mm512_set1_pd(src->width), _CMP_GE_OQ);
	__mmask8 y = _mm512_cmp_pd_mask(p->y, zero, _CMP_LT_OQ) |
		     _mm512_cmp_pd_mask(p->y, _mm512_set1_pd(src->height), _CMP_GE_OQ);

	return x | y;
}

INLINE bool are_numbers(const struct places *p)
{
	return _mm512_cmp_pd_mask(p->x, p->y, _CMP_ORD_Q) == ALL;
}

INLINE bool are_zero(__m512d v)
{
	return _mm512_cmp_pd_mask(v, _mm512_setzero_pd(), _CMP_EQ_OQ) == ALL;
}

/* Whether the pixels to their left and above are eight of one row, side by side. */
INLINE bool are_side_by_side(const struct places *p)
{
	__m512d left = _mm512_add_pd(_mm512_broadcastsd_pd(_mm512_castpd512_pd128(p->left)),
				     _mm512_setr_pd(0, 1, 2, 3, 4, 5, 6, 7));
	__m512d top = _mm512_broadcastsd_pd(_mm512_castpd512_pd128(p->top));
	__mmask8 x = _mm512_cmp_pd_mask(p->left, left, _CMP_EQ_OQ);

	return _mm512_mask_cmp_pd_mask(x, p->top, top, _CMP_EQ_OQ) == ALL;
}

/* The places of pixels (left - 1, top - 1), in bytes. The largest images have less than 2^31 bytes. */
INLINE __m256i offsets(const struct image *src, const struct places *p)
{
	const __m256i one = _mm256_set1_epi32(1);
	__m256i row = _mm256_sub_epi32(_mm512_cvttpd_epi32(p->top), one);
	__m256i column = _mm256_sub_epi32(_mm512_cvttpd_epi32(p->left), one);

	return _mm256_add_epi32(_mm256_mullo_epi32(row, _mm256_set1_epi32((int)src->stride_bytes)),
				_mm256_add_epi32(column, _mm256_add_epi32(column, column)));
}

/* 12 bytes of each of eight rows: pixels left - 1 .. left + 2. */
struct row8 {
	__m512i first, last; /* 8 bytes, 4 bytes */
};

INLINE struct row8 gather_row(const struct image *src, __m256i at)
{
	__m256i last = _mm256_i32gather_epi32((const void *)src->rgb, _mm256_add_epi32(at, _mm256_set1_epi32(8)), 1);

	return (struct row8){ _mm512_i32gather_epi64(at, (const void *)src->rgb, 1), _mm512_cvtepu32_epi64(last) };
}

/* The same of rows that lie side by side, the first of them at `from`: one load takes them all. */
INLINE struct row8 load_row(const uint8_t *from)
{
	const __m512i three = _mm512_setr_epi64(0, 0x0303030303030303, 0x0606060606060606, 0x0909090909090909,
						0x0c0c0c0c0c0c0c0c, 0x0f0f0f0f0f0f0f0f, 0x1212121212121212,
						0x1515151515151515); /* each pixel has three bytes */
	__m512i px = _mm512_maskz_loadu_epi8((1ull << 3 * (PX_AT_ONCE + 3)) - 1, from);
	__m512i places = _mm512_add_epi8(three, _mm512_set1_epi64(0x0706050403020100));

	return (struct row8){
		_mm512_permutexvar_epi8(places, px),
		_mm512_maskz_permutexvar_epi8(0x0f0f0f0f0f0f0f0full, _mm512_add_epi8(places, _mm512_set1_epi8(8)), px),
	};
}

INLINE __m256i clamped(__m256i v, uint32_t size)
{
	return _mm256_max_epi32(_mm256_setzero_si256(), _mm256_min_epi32(v, _mm256_set1_epi32((int)size - 1)));
}

/* A pixel of each lane in its three lowest bytes. A load has four, so that of the last pixel begins a byte earlier. */
INLINE __m512i gather_px(const struct image *src, __m256i row, __m256i column)
{
	__m256i at = _mm256_add_epi32(_mm256_mullo_epi32(row, _mm256_set1_epi32((int)src->stride_bytes)),
				      _mm256_add_epi32(column, _mm256_add_epi32(column, column)));
	__m256i last = _mm256_set1_epi32((int)((src->height - 1) * src->stride_bytes + src->width * 3 - 4));
	__m256i from = _mm256_min_epi32(at, last), late = _mm256_slli_epi32(_mm256_sub_epi32(at, from), 3);
	__m256i px = _mm256_srlv_epi32(_mm256_i32gather_epi32((const void *)src->rgb, from, 1), late);

	return _mm512_cvtepu32_epi64(_mm256_and_si256(px, _mm256_set1_epi32(0xffffff)));
}

/* The row at distance y from the one above each pixel; at the edges pixels repeat. */
INLINE struct row8 gather_clamped(const struct image *src, const struct places *p, int y)
{
	__m256i row = clamped(_mm256_add_epi32(_mm512_cvttpd_epi32(p->top), _mm256_set1_epi32(y)), src->height);
	__m256i left = _mm512_cvttpd_epi32(p->left);
	__m512i px[4];

	for (int x = 0; x < 4; x++)
		px[x] = gather_px(src, row, clamped(_mm256_add_epi32(left, _mm256_set1_epi32(x - 1)), src->width));
	return (struct row8){
		_mm512_or_si512(_mm512_or_si512(px[0], _mm512_slli_epi64(px[1], 24)), _mm512_slli_epi64(px[2], 48)),
		_mm512_or_si512(_mm512_srli_epi64(px[2], 16), _mm512_slli_epi64(px[3], 8)),
	};
}

/* Byte `at` of each lane, plus 2^52. */
INLINE __m512d byte_of(const struct row8 *r, int at)
{
	const __m512i big = _mm512_castpd_si512(_mm512_set1_pd(BIG));
	__m512i v = _mm512_srli_epi64(at < 8 ? r->first : r->last, (unsigned)(at % 8 * 8));

	/* (v & 255) | big */
	return _mm512_castsi512_pd(_mm512_ternarylogic_epi64(v, _mm512_set1_epi64(255), big, 0xea));
}

/* p1 + d * (p2 + d * (p3 + d * p4)), with p4 negated */
INLINE __m512d polynomial(__m512d p1, __m512d p2, __m512d p3, __m512d minus_p4, __m512d d)
{
	__m512d v = _mm512_sub_pd(p3, _mm512_mul_pd(d, minus_p4));

	v = _mm512_add_pd(p2, _mm512_mul_pd(d, v));
	return _mm512_add_pd(p1, _mm512_mul_pd(d, v));
}

/* Of whole numbers, each plus 2^52; their sums are exact in any order. */
INLINE __m512d cubic_whole(__m512d v1, __m512d v2, __m512d v3, __m512d v4, __m512d d)
{
	__m512d a = _mm512_sub_pd(v1, v2), b = _mm512_sub_pd(v3, v4), sum = _mm512_add_pd(a, b);

	return polynomial(_mm512_sub_pd(v2, _mm512_set1_pd(BIG)), _mm512_sub_pd(v3, v1), _mm512_add_pd(a, sum), sum, d);
}

INLINE __m512d cubic_row(const struct row8 *r, int c, __m512d dx)
{
	return cubic_whole(byte_of(r, c), byte_of(r, 3 + c), byte_of(r, 6 + c), byte_of(r, 9 + c), dx);
}

INLINE __m512d cubic_column(const __m512d v[4], __m512d dy)
{
	__m512d a = _mm512_sub_pd(v[0], v[1]);
	__m512d p3 = _mm512_sub_pd(_mm512_add_pd(_mm512_add_pd(a, a), v[2]), v[3]);
	__m512d minus_p4 = _mm512_sub_pd(_mm512_add_pd(a, v[2]), v[3]);

	return polynomial(v[1], _mm512_sub_pd(v[2], v[0]), p3, minus_p4, dy);
}

/* Eight pixels from three channels of whole numbers, 24 bytes. */
INLINE void store(const __m256i channel[3], uint8_t *to)
{
	const __m256i dense =
		_mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
	__m256i px = _mm256_or_si256(
		channel[0], _mm256_or_si256(_mm256_slli_epi32(channel[1], 8), _mm256_slli_epi32(channel[2], 16)));

	px = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(px, dense), _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7));
	_mm_storeu_si128((void *)to, _mm256_castsi256_si128(px));
	_mm_storel_epi64((void *)(to + 16), _mm256_extracti128_si256(px, 1));
}

/* On which pixels of a 4 x 4 window weights fall: where a middle lies on a row or column of middles, only on that. */
enum window { WINDOW_ALL, WINDOW_ROW, WINDOW_COLUMN };

INLINE enum window window_of(const struct places *p)
{
	return are_zero(p->dy) ? WINDOW_ROW : are_zero(p->dx) ? WINDOW_COLUMN : WINDOW_ALL;
}

/* A channel of eight pixels. */
INLINE __m256i channel_of(const struct row8 rows[4], int c, const struct places *p, enum window window)
{
	__m512d v[4], made;

	if (window == WINDOW_ROW) {
		made = cubic_row(&rows[1], c, p->dx);
	} else if (window == WINDOW_COLUMN) {
		made = cubic_whole(byte_of(&rows[0], 3 + c), byte_of(&rows[1], 3 + c), byte_of(&rows[2], 3 + c),
				   byte_of(&rows[3], 3 + c), p->dy);
	} else {
		for (int i = 0; i < 4; i++)
			v[i] = cubic_row(&rows[i], c, p->dx);
		made = cubic_column(v, p->dy);
	}
	made = _mm512_min_pd(_mm512_max_pd(made, _mm512_setzero_pd()), _mm512_set1_pd(255.0));
	return _mm512_cvttpd_epi32(made);
}

/* Whether all pixels of all windows are in the source. */
INLINE bool are_inside(const struct image *src, const struct places *p)
{
	return within(p->left, 1.0, (double)src->width - 3) && within(p->top, 1.0, (double)src->height - 3);
}

/* The rows of the windows that have weights. */
INLINE void rows_of(const struct image *src, const struct places *p, enum window window, struct row8 rows[4])
{
	bool inside = are_inside(src, p), dense = inside && are_side_by_side(p);
	__m256i at = offsets(src, p), stride = _mm256_set1_epi32((int)src->stride_bytes);
	const uint8_t *from = src->rgb + (inside ? _mm256_cvtsi256_si32(at) : 0);

	for (int i = 0; i < 4; i++, at = _mm256_add_epi32(at, stride)) {
		if (window == WINDOW_ROW && i != 1)
			continue;
		if (dense)
			rows[i] = load_row(from + (size_t)i * src->stride_bytes);
		else if (inside)
			rows[i] = gather_row(src, at);
		else
			rows[i] = gather_clamped(src, p, i - 1);
	}
}

/* ---- one row or one column, in floats ---- */

enum { WIDE = 2 * PX_AT_ONCE };

/* How close to a whole number a float may be on the wrong side of it. Sums are below 2048, so that each of three is
 * rounded by at most 2^-14; a distance is rounded by 2^-25, which counts less than 3400 times: 0.0003 in all. */
#define UNSURE 0x1p-11f

/* The places of 16 pixels, and their windows' common shape. */
struct wide_places {
	struct places first, second;
	bool row, side_by_side;
};

INLINE bool are_both_within(__m512d a, __m512d b, double from, double to)
{
	return within(a, from, to) && within(b, from, to);
}

/* Whether 16 pixels can be made in floats: all numbers, nothing outside, the same shape of windows. */
INLINE bool wide_places_of(const struct warp *w, const struct image *src, uint32_t x, uint32_t y, struct wide_places *p)
{
	double right = (double)src->width - 1, low = (double)src->height - 1;
	__m512d next;

	p->first = places_of(w, x, y);
	p->second = places_of(w, x + PX_AT_ONCE, y);
	p->row = are_zero(p->first.dy) && are_zero(p->second.dy);
	if (!p->row && !(are_zero(p->first.dx) && are_zero(p->second.dx)))
		return false;
	next = _mm512_add_pd(_mm512_broadcastsd_pd(_mm512_castpd512_pd128(p->first.left)), _mm512_set1_pd(PX_AT_ONCE));
	p->side_by_side = are_side_by_side(&p->first) && are_side_by_side(&p->second) &&
			  _mm512_cvtsd_f64(p->second.left) == _mm512_cvtsd_f64(next) &&
			  _mm512_cvtsd_f64(p->second.top) == _mm512_cvtsd_f64(p->first.top);
	if (p->row)
		return p->side_by_side && are_both_within(p->first.left, p->second.left, 1, right - 2) &&
		       are_both_within(p->first.top, p->second.top, 0, low);
	/* A pixel that is gathered takes a byte of the next. */
	return are_both_within(p->first.left, p->second.left, 0, p->side_by_side ? right : right - 1) &&
	       are_both_within(p->first.top, p->second.top, 1, low - 2);
}

/* 16 pixels from byte `at` on, in the lower three bytes of each lane. */
INLINE __m512i spread(__m512i bytes, int at)
{
	const __m512i thirds = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45);
	const __m512i px =
		_mm512_add_epi32(_mm512_mullo_epi32(thirds, _mm512_set1_epi32(0x010101)), _mm512_set1_epi32(0x020100));

	return _mm512_maskz_permutexvar_epi8(0x7777777777777777ull, _mm512_add_epi8(px, _mm512_set1_epi8((char)at)),
					     bytes);
}

INLINE __m512i load_px(const uint8_t *from, unsigned n)
{
	return _mm512_maskz_loadu_epi8((1ull << 3 * n) - 1, from);
}

/* The four pixels that have weights. */
INLINE void taps_of(const struct image *src, const struct wide_places *p, __m512i tap[4])
{
	ptrdiff_t stride = (ptrdiff_t)src->stride_bytes;
	const uint8_t *at = src->rgb + (ptrdiff_t)_mm512_cvtsd_f64(p->first.top) * stride +
			    (ptrdiff_t)_mm512_cvtsd_f64(p->first.left) * 3;
	__m512i row, from;

	if (p->row) {
		row = load_px(at - 3, WIDE + 3);
		for (int i = 0; i < 4; i++)
			tap[i] = spread(row, 3 * i);
		return;
	}
	if (p->side_by_side) {
		for (int i = 0; i < 4; i++)
			tap[i] = spread(load_px(at + (i - 1) * stride, WIDE), 0);
		return;
	}
	from = _mm512_inserti64x4(_mm512_castsi256_si512(offsets(src, &p->first)), offsets(src, &p->second), 1);
	from = _mm512_add_epi32(from, _mm512_set1_epi32(3)); /* of the pixel itself, in the row above */
	for (int i = 0; i < 4; i++, from = _mm512_add_epi32(from, _mm512_set1_epi32((int)stride)))
		tap[i] = _mm512_i32gather_epi32(from, (const void *)src->rgb, 1);
}

INLINE __m512i byte_in(__m512i px, int c)
{
	return _mm512_and_si512(_mm512_srli_epi32(px, (unsigned)c * 8), _mm512_set1_epi32(255));
}

/* A channel of 16 pixels; adds to *unsure where floats do not say what it is. */
INLINE __m512i cubic_in_floats(const __m512i tap[4], int c, __m512 d, __mmask16 *unsure)
{
	__m512i v1 = byte_in(tap[0], c), v2 = byte_in(tap[1], c), v3 = byte_in(tap[2], c), v4 = byte_in(tap[3], c);
	__m512i a = _mm512_sub_epi32(v1, v2), minus_p4 = _mm512_add_epi32(a, _mm512_sub_epi32(v3, v4));
	__m512i p2 = _mm512_sub_epi32(v3, v1), p3 = _mm512_add_epi32(a, minus_p4);
	__m512i bent = _mm512_or_si512(p2, _mm512_or_si512(p3, minus_p4));
	__m512 v = _mm512_fnmadd_ps(d, _mm512_cvtepi32_ps(minus_p4), _mm512_cvtepi32_ps(p3)), off;

	v = _mm512_fmadd_ps(d, v, _mm512_cvtepi32_ps(p2));
	v = _mm512_fmadd_ps(d, v, _mm512_cvtepi32_ps(v2));
	off = _mm512_sub_ps(v, _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
	*unsure |= _mm512_mask_cmp_ps_mask(_mm512_test_epi32_mask(bent, bent), _mm512_abs_ps(off),
					   _mm512_set1_ps(UNSURE), _CMP_LT_OQ);
	v = _mm512_min_ps(_mm512_max_ps(v, _mm512_setzero_ps()), _mm512_set1_ps(255.0f));
	return _mm512_cvttps_epi32(v);
}

INLINE __m512 as_floats(__m512d first, __m512d second)
{
	return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(first)), _mm512_cvtpd_ps(second), 1);
}

/* 16 pixels, or false. */
INLINE bool make_wide(const struct warp *w, const struct image *src, uint32_t x, uint32_t y, uint8_t *to)
{
	static const uint8_t dense[64] = { 0,  1,  2,  4,  5,  6,  8,  9,  10, 12, 13, 14, 16, 17, 18, 20,
					   21, 22, 24, 25, 26, 28, 29, 30, 32, 33, 34, 36, 37, 38, 40, 41,
					   42, 44, 45, 46, 48, 49, 50, 52, 53, 54, 56, 57, 58, 60, 61, 62 };
	struct wide_places p;
	__m512i tap[4], out[3], px;
	__mmask16 unsure = 0;
	__m512 d;

	if (!wide_places_of(w, src, x, y, &p))
		return false;
	taps_of(src, &p, tap);
	d = p.row ? as_floats(p.first.dx, p.second.dx) : as_floats(p.first.dy, p.second.dy);
	for (int c = 0; c < 3; c++)
		out[c] = cubic_in_floats(tap, c, d, &unsure);
	if (unsure)
		return false;
	px = _mm512_or_si512(out[0], _mm512_or_si512(_mm512_slli_epi32(out[1], 8), _mm512_slli_epi32(out[2], 16)));
	px = _mm512_permutexvar_epi8(_mm512_loadu_si512(dense), px);
	_mm256_storeu_si256((void *)to, _mm512_castsi512_si256(px));
	_mm_storeu_si128((void *)(to + 32), _mm512_extracti32x4_epi32(px, 2));
	return true;
}

/* Transforms that leave x or y as it is. */
static bool may_be_wide(const struct warp *w)
{
	return !w->perspective && w->m[0] == 1 && w->m[4] == 1 && (w->m[1] == 0 || w->m[3] == 0);
}

AVX512 uint32_t warp_bicubic_avx512(const struct warp *w, const struct image *src, uint32_t x, uint32_t y, uint32_t n,
				    uint8_t *to)
{
	const __m256i fill[3] = { _mm256_set1_epi32(w->fill[0]), _mm256_set1_epi32(w->fill[1]),
				  _mm256_set1_epi32(w->fill[2]) };
	uint32_t done = 0, narrow_to = may_be_wide(w) ? 0 : n; /* up to there in doubles */

	for (; n - done >= PX_AT_ONCE && src->width > 1; done += PX_AT_ONCE, to += PX_AT_ONCE * 3) {
		if (n - done >= WIDE && done >= narrow_to) {
			if (make_wide(w, src, x + done, y, to)) {
				done += WIDE - PX_AT_ONCE;
				to += (WIDE - PX_AT_ONCE) * 3;
				continue;
			}
			narrow_to = done + WIDE;
		}
		struct places p = places_of(w, x + done, y);
		__mmask8 outside = outside_of(src, &p);
		enum window window = window_of(&p);
		struct row8 rows[4];
		__m256i out[3];

		if (outside == ALL) {
			store(fill, to);
			continue;
		}
		if (!are_numbers(&p))
			break;
		rows_of(src, &p, window, rows);
		for (int c = 0; c < 3; c++)
			out[c] = _mm256_mask_mov_epi32(channel_of(rows, c, &p, window), outside, fill[c]);
		store(out, to);
	}
	return done + warp_bicubic_avx2(w, src, x + done, y, n - done, to);
}
#endif
