/* The AVX2 path of color_hue: eight pixels at a time, with the operations and the types of color.c, each rounded on its
 * own. Bytes are exact in floats; what color.c computes in doubles is computed in two halves of four doubles. */
#if defined(__x86_64__)
#include "image/exact.h"

#include "image/hue-paths.h"

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE static inline __attribute__((target("avx2"), always_inline))

enum { PX_AT_ONCE = 8, BYTES = 3 * PX_AT_ONCE };

/* Red, green and blue of eight pixels. */
struct planes {
	__m256i c[3];
};

/* In byte k: which of the 16 bytes stands there, -1 for none. */
#define PICK(...) _mm_setr_epi8(__VA_ARGS__)

INLINE struct planes planes_of(const uint8_t *p)
{
	__m128i low = _mm_loadu_si128((const __m128i *)(const void *)p);
	__m128i high = _mm_loadl_epi64((const __m128i *)(const void *)(p + 16));
	__m128i r = _mm_or_si128(
		_mm_shuffle_epi8(low, PICK(0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1)),
		_mm_shuffle_epi8(high, PICK(-1, -1, -1, -1, -1, -1, 2, 5, -1, -1, -1, -1, -1, -1, -1, -1)));
	__m128i g =
		_mm_or_si128(_mm_shuffle_epi8(low, PICK(1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1)),
			     _mm_shuffle_epi8(high, PICK(-1, -1, -1, -1, -1, 0, 3, 6, -1, -1, -1, -1, -1, -1, -1, -1)));
	__m128i b =
		_mm_or_si128(_mm_shuffle_epi8(low, PICK(2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1)),
			     _mm_shuffle_epi8(high, PICK(-1, -1, -1, -1, -1, 1, 4, 7, -1, -1, -1, -1, -1, -1, -1, -1)));

	return (struct planes){ { _mm256_cvtepu8_epi32(r), _mm256_cvtepu8_epi32(g), _mm256_cvtepu8_epi32(b) } };
}

/* Eight numbers of 0 to 255 as bytes. */
INLINE __m128i bytes_of(__m256i x)
{
	__m128i words = _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));

	return _mm_packus_epi16(words, words);
}

INLINE void planes_write(const struct planes *from, uint8_t *p)
{
	__m128i r = bytes_of(from->c[0]), g = bytes_of(from->c[1]), b = bytes_of(from->c[2]);
	__m128i rg = _mm_unpacklo_epi64(r, g); /* blue comes from another register */
	__m128i low =
		_mm_or_si128(_mm_shuffle_epi8(rg, PICK(0, 8, -1, 1, 9, -1, 2, 10, -1, 3, 11, -1, 4, 12, -1, 5)),
			     _mm_shuffle_epi8(b, PICK(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1)));
	__m128i high =
		_mm_or_si128(_mm_shuffle_epi8(rg, PICK(13, -1, 6, 14, -1, 7, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1)),
			     _mm_shuffle_epi8(b, PICK(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, -1, -1, -1, -1, -1, -1)));

	_mm_storeu_si128((__m128i *)(void *)p, low);
	_mm_storel_epi64((__m128i *)(void *)(p + 16), high);
}

INLINE __m256d half(__m256 x, int which)
{
	return _mm256_cvtps_pd(which ? _mm256_extractf128_ps(x, 1) : _mm256_castps256_ps128(x));
}

/* (int)(x * 255.0) of both halves. */
INLINE __m256i in_255ths(__m256 x)
{
	const __m256d full = _mm256_set1_pd(255.0);

	return _mm256_set_m128i(_mm256_cvttpd_epi32(_mm256_mul_pd(half(x, 1), full)),
				_mm256_cvttpd_epi32(_mm256_mul_pd(half(x, 0), full)));
}

/* The fraction of a turn, from which the hue's byte comes. */
INLINE __m128 turns_of(__m256d offset, __m256d plus, __m256d minus)
{
	const __m256d one = _mm256_set1_pd(1.0);
	__m128 hue = _mm256_cvtpd_ps(_mm256_sub_pd(_mm256_add_pd(offset, plus), minus));
	__m256d turns = _mm256_add_pd(_mm256_div_pd(_mm256_cvtps_pd(hue), _mm256_set1_pd(6.0)), one);
	__m256d whole = _mm256_and_pd(_mm256_cmp_pd(turns, one, _CMP_GE_OQ), one);

	return _mm256_cvtpd_ps(_mm256_sub_pd(turns, whole));
}

/* (int)(v * (1 - x) + 0.5) */
INLINE __m128i level(__m256d v, __m256d x)
{
	__m256d y = _mm256_mul_pd(v, _mm256_sub_pd(_mm256_set1_pd(1.0), x));

	return _mm256_cvttpd_epi32(_mm256_add_pd(y, _mm256_set1_pd(0.5)));
}

struct levels {
	__m256i full, rising, low, falling;
};

INLINE struct levels levels_of(__m256i value, __m256 f, __m256 s)
{
	__m256 v = _mm256_cvtepi32_ps(value), sf = _mm256_mul_ps(s, f);
	const __m256d one = _mm256_set1_pd(1.0);
	__m128i rising[2], low[2], falling[2];

	for (int i = 0; i < 2; i++) {
		__m256d v_i = half(v, i), s_i = half(s, i);

		rising[i] = level(v_i, _mm256_mul_pd(s_i, _mm256_sub_pd(one, half(f, i))));
		low[i] = level(v_i, s_i);
		falling[i] = level(v_i, half(sf, i));
	}
	return (struct levels){ value, _mm256_set_m128i(rising[1], rising[0]), _mm256_set_m128i(low[1], low[0]),
				_mm256_set_m128i(falling[1], falling[0]) };
}

INLINE __m256i is(__m256i a, int b)
{
	return _mm256_cmpeq_epi32(a, _mm256_set1_epi32(b));
}

/* A channel: full in sectors a and b, rising in r, falling in f, low in the two others. */
INLINE __m256i channel(const struct levels *l, __m256i sector, int a, int b, int r, int f)
{
	__m256i x = _mm256_blendv_epi8(l->low, l->full, _mm256_or_si256(is(sector, a), is(sector, b)));

	x = _mm256_blendv_epi8(x, l->rising, is(sector, r));
	return _mm256_blendv_epi8(x, l->falling, is(sector, f));
}

INLINE __m256i hue_bytes(const struct planes *p, __m256i max, __m256 range)
{
	__m256i red = _mm256_cmpeq_epi32(p->c[0], max);
	__m256i green = _mm256_andnot_si256(red, _mm256_cmpeq_epi32(p->c[1], max));
	/* Red is the largest: plus b, minus g; green: plus r, minus b; blue: plus g, minus r. */
	__m256i plus = _mm256_blendv_epi8(_mm256_blendv_epi8(p->c[1], p->c[0], green), p->c[2], red);
	__m256i minus = _mm256_blendv_epi8(_mm256_blendv_epi8(p->c[0], p->c[2], green), p->c[1], red);
	__m256 up = _mm256_div_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(max, plus)), range);
	__m256 down = _mm256_div_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(max, minus)), range);
	__m256 offset = _mm256_blendv_ps(_mm256_set1_ps(4.0f), _mm256_set1_ps(2.0f), _mm256_castsi256_ps(green));

	offset = _mm256_andnot_ps(_mm256_castsi256_ps(red), offset);
	return in_255ths(_mm256_set_m128(turns_of(half(offset, 1), half(up, 1), half(down, 1)),
					 turns_of(half(offset, 0), half(up, 0), half(down, 0))));
}

INLINE void turn_eight(const struct hue *t, uint8_t *rgb)
{
	struct planes p = planes_of(rgb), made;
	__m256i max = _mm256_max_epi32(_mm256_max_epi32(p.c[0], p.c[1]), p.c[2]);
	__m256i min = _mm256_min_epi32(_mm256_min_epi32(p.c[0], p.c[1]), p.c[2]);
	__m256i grey = _mm256_cmpeq_epi32(max, min), one = _mm256_set1_epi32(1);
	/* Grey has no hue: 1 in place of 0, which would be divided by. */
	__m256 range = _mm256_cvtepi32_ps(_mm256_max_epi32(_mm256_sub_epi32(max, min), one));
	__m256i hue = hue_bytes(&p, max, range);
	__m256i saturation = in_255ths(_mm256_div_ps(range, _mm256_cvtepi32_ps(_mm256_max_epi32(max, one))));
	__m256i sector = _mm256_i32gather_epi32(t->sector, hue, 4);
	struct levels l =
		levels_of(max, _mm256_i32gather_ps(t->into, hue, 4), _mm256_i32gather_ps(t->share, saturation, 4));

	made.c[0] = _mm256_blendv_epi8(channel(&l, sector, 0, 5, 4, 1), p.c[0], grey);
	made.c[1] = _mm256_blendv_epi8(channel(&l, sector, 1, 2, 0, 3), p.c[1], grey);
	made.c[2] = _mm256_blendv_epi8(channel(&l, sector, 3, 4, 2, 5), p.c[2], grey);
	planes_write(&made, rgb);
}

AVX2 uint32_t hue_turn_avx2(const struct hue *t, uint8_t *rgb, uint32_t n_px)
{
	uint32_t done = 0;

	for (; n_px - done >= PX_AT_ONCE; done += PX_AT_ONCE)
		turn_eight(t, rgb + (size_t)done * 3);
	return done;
}
#endif
