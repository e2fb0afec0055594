/* The AVX-512 path of bicubic transforms: warp-avx2.c's calculation for eight pixels at a time, every operation in
 * Pillow's order and rounded on its own. */
#if defined(__x86_64__)
#include "image/exact.h"

#include "image/warp-paths.h"

#include <immintrin.h>

#define TARGET "avx512f,avx512bw,avx512vl,avx512dq"
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

/* Whether 1 <= v <= to for each; not for NaN. */
INLINE bool within(__m512d v, double to)
{
	__mmask8 above = _mm512_cmp_pd_mask(v, _mm512_set1_pd(1.0), _CMP_GE_OQ);

	return _mm512_mask_cmp_pd_mask(above, v, _mm512_set1_pd(to), _CMP_LE_OQ) == ALL;
}

/* Whether all pixels are beside the source. */
INLINE bool are_outside(const struct image *src, const struct places *p)
{
	const __m512d zero = _mm512_setzero_pd();
	__mmask8 x = _mm512_cmp_pd_mask(p->x, zero, _CMP_LT_OQ) |
		     _mm512_cmp_pd_mask(p->x, _mm512_set1_pd(src->width), _CMP_GE_OQ);
	__mmask8 y = _mm512_cmp_pd_mask(p->y, zero, _CMP_LT_OQ) |
		     _mm512_cmp_pd_mask(p->y, _mm512_set1_pd(src->height), _CMP_GE_OQ);

	return (x | y) == ALL;
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

/* Along a row the values are whole numbers, whose sums are exact in any order. */
INLINE __m512d cubic_row(const struct row8 *r, int c, __m512d dx)
{
	__m512d v1 = byte_of(r, c), v2 = byte_of(r, 3 + c), v3 = byte_of(r, 6 + c), v4 = byte_of(r, 9 + c);
	__m512d a = _mm512_sub_pd(v1, v2), b = _mm512_sub_pd(v3, v4), sum = _mm512_add_pd(a, b);

	return polynomial(_mm512_sub_pd(v2, _mm512_set1_pd(BIG)), _mm512_sub_pd(v3, v1), _mm512_add_pd(a, sum), sum,
			  dx);
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

/* A channel of eight pixels. one_row: no weight falls on the rows above and below. */
INLINE __m256i channel_of(const struct row8 rows[4], int c, const struct places *p, bool one_row)
{
	__m512d v[4];

	v[1] = cubic_row(&rows[1], c, p->dx);
	if (!one_row) {
		v[0] = cubic_row(&rows[0], c, p->dx);
		v[2] = cubic_row(&rows[2], c, p->dx);
		v[3] = cubic_row(&rows[3], c, p->dx);
		v[1] = cubic_column(v, p->dy);
	}
	v[1] = _mm512_min_pd(_mm512_max_pd(v[1], _mm512_setzero_pd()), _mm512_set1_pd(255.0));
	return _mm512_cvttpd_epi32(v[1]);
}

AVX512 uint32_t warp_bicubic_avx512(const struct warp *w, const struct image *src, uint32_t x, uint32_t y, uint32_t n,
				    uint8_t *to)
{
	double right = (double)src->width - 3, low = (double)src->height - 3;
	__m256i stride = _mm256_set1_epi32((int)src->stride_bytes);
	const __m256i fill[3] = { _mm256_set1_epi32(w->fill[0]), _mm256_set1_epi32(w->fill[1]),
				  _mm256_set1_epi32(w->fill[2]) };
	uint32_t done = 0;

	for (; n - done >= PX_AT_ONCE; done += PX_AT_ONCE, to += PX_AT_ONCE * 3) {
		struct places p = places_of(w, x + done, y);
		bool one_row = _mm512_cmp_pd_mask(p.dy, _mm512_setzero_pd(), _CMP_EQ_OQ) == ALL;
		struct row8 rows[4];
		__m256i out[3], at;

		if (are_outside(src, &p)) {
			store(fill, to);
			continue;
		}
		if (!within(p.left, right) || !within(p.top, low))
			break;
		at = offsets(src, &p);
		for (int i = 0; i < 4; i++, at = _mm256_add_epi32(at, stride))
			if (!one_row || i == 1)
				rows[i] = gather_row(src, at);
		for (int c = 0; c < 3; c++)
			out[c] = channel_of(rows, c, &p, one_row);
		store(out, to);
	}
	/* Towards an edge smaller groups may still be inside. */
	return done + warp_bicubic_avx2(w, src, x + done, y, n - done, to);
}
#endif
