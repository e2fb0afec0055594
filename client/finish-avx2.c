/* The AVX2 path of the finishing pass (with FMA and F16C): 16 pixels at a time for planes of three channels, eight
 * numbers for everything that keeps its order. */
#if defined(__x86_64__)
#include "../daemon/image/exact.h"

#include "finish.h"

#include <cpuid.h>
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define INLINE static inline __attribute__((target("avx2,fma,f16c"), always_inline))

enum { FINISH_PX = 16 };

static int avx2_can_run(const struct finish *f)
{
	unsigned a, b, c = 0, d;

	return f->plan.number != CONVERT_TO_BFLOAT16 && !f->plan.divides && __builtin_cpu_supports("avx2") &&
	       __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* Planes of one channel are in order, too. */
static int is_planar(const struct finish *f)
{
	return f->plan.planar && f->plan.n_channels > 1;
}

struct eight {
	__m256 mean, high, low;
};

/* ((v / 255) - mean) / std of eight pixel values. */
INLINE __m256 eight_numbers(const struct finish *f, __m128i bytes, struct eight k)
{
	__m256 v = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
	__m256 scaled = _mm256_fmadd_ps(v, _mm256_set1_ps(f->plan.scale_high),
					_mm256_mul_ps(v, _mm256_set1_ps(f->plan.scale_low)));
	__m256 centred = _mm256_sub_ps(scaled, k.mean);

	return _mm256_fmadd_ps(centred, k.high, _mm256_mul_ps(centred, k.low));
}

INLINE void eight_store(int float32, void *out, size_t i, __m256 v)
{
	if (float32)
		_mm256_storeu_ps((float *)out + i, v);
	else
		_mm_storeu_si128((void *)((uint16_t *)out + i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

/* 16 pixels, 48 bytes, to one register per channel: the bytes of channel c are at places c, c + 3 ... */
INLINE __m128i one_channel(__m128i a, __m128i b, __m128i c, int channel)
{
	static const int8_t picks[3][3][16] = {
		{ { 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 },
		  { -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14, -1, -1, -1, -1, -1 },
		  { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 4, 7, 10, 13 } },
		{ { 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 },
		  { -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1 },
		  { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14 } },
		{ { 2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 },
		  { -1, -1, -1, -1, -1, 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1 },
		  { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15 } },
	};
	const __m128i *pick = (const void *)picks[channel];

	return _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(a, _mm_loadu_si128(pick)),
					 _mm_shuffle_epi8(b, _mm_loadu_si128(pick + 1))),
			    _mm_shuffle_epi8(c, _mm_loadu_si128(pick + 2)));
}

struct rgb {
	__m128i part[3];
};

INLINE struct rgb load_rgb(const uint8_t *px)
{
	return (struct rgb){ { _mm_loadu_si128((const void *)px), _mm_loadu_si128((const void *)(px + 16)),
			       _mm_loadu_si128((const void *)(px + 32)) } };
}

/* What becomes of eight pixel values: numbers, or numbers mixed with a partner's. The floats of a tile are kept in the
 * order in which they are made. */
struct use {
	const struct finish *f;
	int float32; /* the numbers' type; known when compiling */
	float *tile; /* of the partner, then of own; NULL: there is none */
	int reads_tile;
	const struct batchd_mix_row *row, *other_row; /* other_row: of a pair */
	void *image, *other_image;                    /* NULL: floats go to the tile alone */
};

INLINE __m256 eight_mixed(const struct batchd_mix_row *row, __m256 own, __m256 partner)
{
	return _mm256_add_ps(_mm256_mul_ps(own, _mm256_set1_ps(row->weight)),
			     _mm256_mul_ps(partner, _mm256_set1_ps(row->partner_weight)));
}

/* kept: place in the tile; at: in the image. */
INLINE void eight_use(const struct use *u, __m128i own, __m128i other, struct eight k, size_t kept, size_t at)
{
	__m256 a = eight_numbers(u->f, own, k), b = a;

	if (u->other_row)
		b = eight_numbers(u->f, other, k);
	else if (u->reads_tile)
		b = _mm256_loadu_ps(u->tile + kept);
	if (u->tile)
		_mm256_storeu_ps(u->tile + kept, a);
	if (u->image)
		eight_store(u->float32, u->image, at, u->row ? eight_mixed(u->row, a, b) : a);
	if (u->other_row)
		eight_store(u->float32, u->other_image, at, eight_mixed(u->other_row, b, a));
}

INLINE void planes_as(const struct use *u, const uint8_t *own, const uint8_t *other, size_t first, size_t n)
{
	const struct convert_plan *p = &u->f->plan;

	for (size_t i = 0; i < n; i += FINISH_PX) {
		struct rgb px = load_rgb(own + i * 3), px2 = u->other_row ? load_rgb(other + i * 3) : px;

		for (int c = 0; c < 3; c++) {
			struct eight k = { _mm256_set1_ps(p->mean[c]), _mm256_set1_ps(p->std_high[c]),
					   _mm256_set1_ps(p->std_low[c]) };
			__m128i x = one_channel(px.part[0], px.part[1], px.part[2], c),
				y = u->other_row ? one_channel(px2.part[0], px2.part[1], px2.part[2], c) : x;
			size_t at = (size_t)c * p->plane + first + i, kept = i * 3 + (size_t)c * FINISH_PX;

			eight_use(u, x, y, k, kept, at);
			eight_use(u, _mm_srli_si128(x, 8), _mm_srli_si128(y, 8), k, kept + 8, at + 8);
		}
	}
}

/* Numbers that stay in order; n of them, a multiple of 48, the first one of channel 0. */
INLINE void flat_as(const struct use *u, const uint8_t *own, const uint8_t *other, size_t first, size_t n)
{
	const struct finish *f = u->f;

	for (size_t from = 0; from < n; from += 48)
		for (size_t i = 0; i < 48; i += 8) {
			struct eight k = { _mm256_loadu_ps(f->mean48 + i), _mm256_loadu_ps(f->std_high48 + i),
					   _mm256_loadu_ps(f->std_low48 + i) };
			__m128i x = _mm_loadl_epi64((const void *)(own + from + i)),
				y = u->other_row ? _mm_loadl_epi64((const void *)(other + from + i)) : x;

			eight_use(u, x, y, k, from + i, first + from + i);
		}
}

/* Returns how many pixels are done; the reference does the rest. */
INLINE size_t avx2_pixels(const struct use *u, const uint8_t *own, const uint8_t *other, size_t first, size_t n)
{
	size_t channels = u->f->plan.n_channels, whole;

	if (is_planar(u->f)) {
		whole = channels == 3 ? n / FINISH_PX * FINISH_PX : 0;
		planes_as(u, own, other, first, whole);
		return whole;
	}
	whole = n * channels / 48 * 48;
	flat_as(u, own, other, first * channels, whole);
	return whole / channels;
}

INLINE size_t avx2_either(struct use u, const uint8_t *own, const uint8_t *other, size_t first, size_t n)
{
	u.float32 = 1;
	if (u.f->plan.number == CONVERT_TO_FLOAT32)
		return avx2_pixels(&u, own, other, first, n);
	u.float32 = 0;
	return avx2_pixels(&u, own, other, first, n);
}

AVX2 static void avx2_plain(const struct finish *f, const uint8_t *own, size_t first, size_t n, void *image)
{
	size_t done = avx2_either((struct use){ .f = f, .image = image }, own, NULL, first, n);

	finish_c.plain(f, own + done * f->plan.n_channels, first + done, n - done, image);
}

AVX2 static void avx2_floats(const struct finish *f, const uint8_t *own, size_t n, float *to)
{
	size_t done = avx2_pixels(&(struct use){ .f = f, .float32 = 1, .tile = to }, own, NULL, 0, n),
	       at = done * f->plan.n_channels;

	finish_c.floats(f, own + at, n - done, to + at);
}

AVX2 static void avx2_blend(const struct finish *f, const struct batchd_mix_row *row, const uint8_t *own,
			    float *partner, size_t first, size_t n, void *image)
{
	struct use u = { .f = f, .tile = partner, .reads_tile = 1, .row = row, .image = image };
	size_t done = avx2_either(u, own, NULL, first, n), at = done * f->plan.n_channels;

	finish_c.blend(f, row, own + at, partner + at, first + done, n - done, image);
}

AVX2 static void avx2_pair(const struct finish *f, const struct batchd_mix_row *const rows[2],
			   const uint8_t *const px[2], size_t first, size_t n, void *const images[2])
{
	struct use u = { .f = f, .row = rows[0], .other_row = rows[1], .image = images[0], .other_image = images[1] };
	size_t done = avx2_either(u, px[0], px[1], first, n), at = done * f->plan.n_channels;
	const uint8_t *const rest[2] = { px[0] + at, px[1] + at };

	finish_c.pair(f, rows, rest, first + done, n - done, images);
}

AVX2 static void avx2_blend_numbers(const struct finish *f, const struct batchd_mix_row *row, const void *own,
				    const void *partner, size_t n, void *to)
{
	__m256 weight = _mm256_set1_ps(row->weight), other = _mm256_set1_ps(row->partner_weight);
	int float32 = f->plan.number == CONVERT_TO_FLOAT32;
	size_t bytes = float32 ? 4 : 2, i = 0;

	for (; i + 8 <= n; i += 8) {
		const char *x = (const char *)own + i * bytes, *y = (const char *)partner + i * bytes;
		__m256 a = float32 ? _mm256_loadu_ps((const void *)x)
				   : _mm256_cvtph_ps(_mm_loadu_si128((const void *)x)),
		       b = float32 ? _mm256_loadu_ps((const void *)y)
				   : _mm256_cvtph_ps(_mm_loadu_si128((const void *)y));

		eight_store(float32, to, i, _mm256_add_ps(_mm256_mul_ps(a, weight), _mm256_mul_ps(b, other)));
	}
	finish_c.blend_numbers(f, row, (const char *)own + i * bytes, (const char *)partner + i * bytes, n - i,
			       (char *)to + i * bytes);
}

const struct finish_path finish_avx2 = { "avx2",     avx2_can_run, avx2_plain,        avx2_floats,
					 avx2_blend, avx2_pair,    avx2_blend_numbers };
#endif
