/* The AVX2 path of bilinear and bicubic transforms: four pixels at a time, in doubles, every operation in Pillow's
 * order and rounded on its own.
 *
 * A pixel's neighbours in a row are gathered into 64-bit lanes. A byte of a lane becomes a double without a conversion:
 * put into the lowest bits of 2^52, the number is 2^52 plus the byte, and differences of such numbers are exact. */
#if defined(__x86_64__)
#include "image/kernels/exact.h"

#include "image/kernels/warp-paths.h"

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE static inline __attribute__((target("avx2"), always_inline))

enum { PX_AT_ONCE = 4 };

#define BIG 0x1p52

/* Where four pixels of the result are in the source. */
struct places {
	__m256d left, top; /* of the pixels whose middles are next to them */
	__m256d dx, dy;
};

INLINE struct places places_of(const struct warp *w, uint32_t x, uint32_t y)
{
	__m256d u = _mm256_add_pd(_mm256_set1_pd((double)x), _mm256_setr_pd(0.5, 1.5, 2.5, 3.5));
	__m256d v = _mm256_set1_pd(y + 0.5), half = _mm256_set1_pd(0.5), at[2];
	struct places p;

	for (int i = 0; i < 2; i++) {
		const double *m = w->m + 3 * i;

		at[i] = _mm256_add_pd(_mm256_mul_pd(_mm256_set1_pd(m[0]), u), _mm256_mul_pd(_mm256_set1_pd(m[1]), v));
		at[i] = _mm256_add_pd(at[i], _mm256_set1_pd(m[2]));
	}
	if (w->perspective) {
		__m256d depth = _mm256_add_pd(_mm256_mul_pd(_mm256_set1_pd(w->m[6]), u),
					      _mm256_mul_pd(_mm256_set1_pd(w->m[7]), v));

		depth = _mm256_add_pd(depth, _mm256_set1_pd(1.0));
		at[0] = _mm256_div_pd(at[0], depth);
		at[1] = _mm256_div_pd(at[1], depth);
	}
	at[0] = _mm256_sub_pd(at[0], half);
	at[1] = _mm256_sub_pd(at[1], half);
	p.left = _mm256_floor_pd(at[0]);
	p.top = _mm256_floor_pd(at[1]);
	p.dx = _mm256_sub_pd(at[0], p.left);
	p.dy = _mm256_sub_pd(at[1], p.top);
	return p;
}

INLINE bool all(__m256d mask)
{
	return _mm256_movemask_pd(mask) == 15;
}

/* Whether all of from <= v <= to; not for NaN. */
INLINE __m256d within(__m256d v, double from, double to)
{
	return _mm256_and_pd(_mm256_cmp_pd(v, _mm256_set1_pd(from), _CMP_GE_OQ),
			     _mm256_cmp_pd(v, _mm256_set1_pd(to), _CMP_LE_OQ));
}

/* The places of pixels (left + x, top + y), in bytes. The largest images have less than 2^31 bytes. */
INLINE __m128i offsets(const struct image *src, const struct places *p, int x, int y)
{
	__m128i row = _mm_add_epi32(_mm256_cvttpd_epi32(p->top), _mm_set1_epi32(y));
	__m128i column = _mm_add_epi32(_mm256_cvttpd_epi32(p->left), _mm_set1_epi32(x));

	return _mm_add_epi32(_mm_mullo_epi32(row, _mm_set1_epi32((int)src->stride_bytes)),
			     _mm_add_epi32(column, _mm_add_epi32(column, column)));
}

/* Byte `at` of each lane, plus 2^52. */
INLINE __m256d byte_of(__m256i lanes, int at)
{
	__m256i pick = _mm256_set_epi64x((long long)(0x8080808080808000ull | (unsigned)(at + 8)),
					 (long long)(0x8080808080808000ull | (unsigned)at),
					 (long long)(0x8080808080808000ull | (unsigned)(at + 8)),
					 (long long)(0x8080808080808000ull | (unsigned)at));

	return _mm256_or_pd(_mm256_castsi256_pd(_mm256_shuffle_epi8(lanes, pick)), _mm256_set1_pd(BIG));
}

INLINE __m256i gather8(const struct image *src, __m128i at)
{
	return _mm256_i32gather_epi64((const void *)src->rgb, at, 1);
}

/* 4 bytes to each lane's lower half. */
INLINE __m256i gather4(const struct image *src, __m128i at)
{
	return _mm256_cvtepu32_epi64(_mm_i32gather_epi32((const void *)src->rgb, at, 1));
}

/* Four pixels from three channels of whole numbers. */
INLINE void store(const __m128i channel[3], uint8_t *to)
{
	__m128i px =
		_mm_or_si128(channel[0], _mm_or_si128(_mm_slli_epi32(channel[1], 8), _mm_slli_epi32(channel[2], 16)));
	__m128i packed = _mm_shuffle_epi8(px, _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
	int last = _mm_extract_epi32(packed, 2);

	_mm_storel_epi64((void *)to, packed);
	memcpy(to + 8, &last, sizeof(last));
}

/* Channel c between two neighbours in a row. */
INLINE __m256d linear(__m256i row, int c, __m256d dx)
{
	__m256d first = byte_of(row, c), second = byte_of(row, 3 + c);

	return _mm256_add_pd(_mm256_sub_pd(first, _mm256_set1_pd(BIG)),
			     _mm256_mul_pd(_mm256_sub_pd(second, first), dx));
}

AVX2 uint32_t warp_bilinear_avx2(const struct warp *w, const struct image *src, uint32_t x, uint32_t y, uint32_t n,
				 uint8_t *to)
{
	/* A gather reads 8 bytes: two pixels and two bytes of the next. */
	double right = (double)src->width - 3, low = (double)src->height - 2;
	__m128i stride = _mm_set1_epi32((int)src->stride_bytes);
	uint32_t done = 0;

	for (; n - done >= PX_AT_ONCE; done += PX_AT_ONCE, to += PX_AT_ONCE * 3) {
		struct places p = places_of(w, x + done, y);
		bool one_row = all(_mm256_cmp_pd(p.dy, _mm256_setzero_pd(), _CMP_EQ_OQ));
		__m256i above, below;
		__m128i out[3], at;

		if (!all(_mm256_and_pd(within(p.left, 0, right), within(p.top, 0, low))))
			break;
		at = offsets(src, &p, 0, 0);
		above = gather8(src, at);
		below = one_row ? above : gather8(src, _mm_add_epi32(at, stride));
		for (int c = 0; c < 3; c++) {
			__m256d v = linear(above, c, p.dx);

			if (!one_row)
				v = _mm256_add_pd(v, _mm256_mul_pd(_mm256_sub_pd(linear(below, c, p.dx), v), p.dy));
			out[c] = _mm256_cvttpd_epi32(v);
		}
		store(out, to);
	}
	return done;
}

/* 12 bytes of each of four rows: pixels left - 1 .. left + 2. */
struct row4 {
	__m256i first, last; /* 8 bytes, 4 bytes */
};

INLINE __m256d byte_of_row(const struct row4 *r, int at)
{
	return at < 8 ? byte_of(r->first, at) : byte_of(r->last, at - 8);
}

/* p1 + d * (p2 + d * (p3 + d * p4)), with p4 negated */
INLINE __m256d polynomial(__m256d p1, __m256d p2, __m256d p3, __m256d minus_p4, __m256d d)
{
	__m256d v = _mm256_sub_pd(p3, _mm256_mul_pd(d, minus_p4));

	v = _mm256_add_pd(p2, _mm256_mul_pd(d, v));
	return _mm256_add_pd(p1, _mm256_mul_pd(d, v));
}

/* Along a row the values are whole numbers, whose sums are exact in any order. */
INLINE __m256d cubic_row(const struct row4 *r, int c, __m256d dx)
{
	__m256d v1 = byte_of_row(r, c), v2 = byte_of_row(r, 3 + c), v3 = byte_of_row(r, 6 + c),
		v4 = byte_of_row(r, 9 + c);
	__m256d a = _mm256_sub_pd(v1, v2), b = _mm256_sub_pd(v3, v4), sum = _mm256_add_pd(a, b);

	return polynomial(_mm256_sub_pd(v2, _mm256_set1_pd(BIG)), _mm256_sub_pd(v3, v1), _mm256_add_pd(a, sum), sum,
			  dx);
}

INLINE __m256d cubic_column(const __m256d v[4], __m256d dy)
{
	__m256d a = _mm256_sub_pd(v[0], v[1]);
	__m256d p3 = _mm256_sub_pd(_mm256_add_pd(_mm256_add_pd(a, a), v[2]), v[3]);
	__m256d minus_p4 = _mm256_sub_pd(_mm256_add_pd(a, v[2]), v[3]);

	return polynomial(v[1], _mm256_sub_pd(v[2], v[0]), p3, minus_p4, dy);
}

AVX2 uint32_t warp_bicubic_avx2(const struct warp *w, const struct image *src, uint32_t x, uint32_t y, uint32_t n,
				uint8_t *to)
{
	double right = (double)src->width - 3, low = (double)src->height - 3;
	__m128i stride = _mm_set1_epi32((int)src->stride_bytes);
	uint32_t done = 0;

	for (; n - done >= PX_AT_ONCE; done += PX_AT_ONCE, to += PX_AT_ONCE * 3) {
		struct places p = places_of(w, x + done, y);
		bool one_row = all(_mm256_cmp_pd(p.dy, _mm256_setzero_pd(), _CMP_EQ_OQ));
		struct row4 rows[4];
		__m128i out[3], at;

		if (!all(_mm256_and_pd(within(p.left, 1, right), within(p.top, 1, low))))
			break;
		at = offsets(src, &p, -1, -1);
		for (int i = 0; i < 4; i++, at = _mm_add_epi32(at, stride)) {
			if (one_row && i != 1)
				continue;
			rows[i].first = gather8(src, at);
			rows[i].last = gather4(src, _mm_add_epi32(at, _mm_set1_epi32(8)));
		}
		for (int c = 0; c < 3; c++) {
			__m256d v[4];

			v[1] = cubic_row(&rows[1], c, p.dx);
			if (!one_row) {
				v[0] = cubic_row(&rows[0], c, p.dx);
				v[2] = cubic_row(&rows[2], c, p.dx);
				v[3] = cubic_row(&rows[3], c, p.dx);
				v[1] = cubic_column(v, p.dy);
			}
			v[1] = _mm256_min_pd(_mm256_max_pd(v[1], _mm256_setzero_pd()), _mm256_set1_pd(255.0));
			out[c] = _mm256_cvttpd_epi32(v[1]);
		}
		store(out, to);
	}
	return done;
}

#endif
