/* The AVX2 path of the finishing pass (with FMA and F16C): 16 pixels at a time for planes of three channels, eight
 * numbers for everything that keeps its order. */
#if defined(__x86_64__)
#include "../daemon/image/kernels/exact.h"

#include "finish/finish.h"

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

/* What becomes of eight pixel values: numbers of the one source, or blends of each source with the one before. What
 * is constant when compiling makes loops of a known length. */
struct use {
	const struct finish *f;
	int float32; /* the numbers' type */
	int mixes;
	int is_pair; /* the second row's own image is the first source */
	unsigned n_rows, n_sources;
	const uint8_t *from[FINISH_CHAIN + 1];
	void *to[FINISH_CHAIN];
	const struct batchd_mix_row *row[FINISH_CHAIN];
};

INLINE __m256 eight_mixed(const struct batchd_mix_row *row, __m256 own, __m256 partner)
{
	return _mm256_add_ps(_mm256_mul_ps(own, _mm256_set1_ps(row->weight)),
			     _mm256_mul_ps(partner, _mm256_set1_ps(row->partner_weight)));
}

/* bytes: of each source. */
INLINE void eight_use(const struct use *u, const __m128i *bytes, struct eight k, size_t at)
{
	__m256 before = eight_numbers(u->f, bytes[0], k), first = before;

	if (!u->mixes)
		eight_store(u->float32, u->to[0], at, before);
	for (unsigned r = 0; r < u->n_rows && u->mixes; r++) {
		__m256 own = u->is_pair && r == 1 ? first : eight_numbers(u->f, bytes[r + 1], k);

		eight_store(u->float32, u->to[r], at, eight_mixed(u->row[r], own, before));
		before = own;
	}
}

INLINE void planes_as(const struct use *u, size_t first, size_t n)
{
	const struct convert_plan *p = &u->f->plan;

	for (size_t i = 0; i < n; i += FINISH_PX) {
		struct rgb px[FINISH_CHAIN + 1];

		for (unsigned s = 0; s < u->n_sources; s++)
			px[s] = load_rgb(u->from[s] + i * 3);
		for (int c = 0; c < 3; c++) {
			struct eight k = { _mm256_set1_ps(p->mean[c]), _mm256_set1_ps(p->std_high[c]),
					   _mm256_set1_ps(p->std_low[c]) };
			size_t at = (size_t)c * p->plane + first + i;
			__m128i x[FINISH_CHAIN + 1], high[FINISH_CHAIN + 1];

			for (unsigned s = 0; s < u->n_sources; s++) {
				x[s] = one_channel(px[s].part[0], px[s].part[1], px[s].part[2], c);
				high[s] = _mm_srli_si128(x[s], 8);
			}
			eight_use(u, x, k, at);
			eight_use(u, high, k, at + 8);
		}
	}
}

/* Numbers that stay in order; n of them, a multiple of 48, the first one of channel 0. */
INLINE void flat_as(const struct use *u, size_t first, size_t n)
{
	const struct finish *f = u->f;

	for (size_t from = 0; from < n; from += 48)
		for (size_t i = 0; i < 48; i += 8) {
			struct eight k = { _mm256_loadu_ps(f->mean64 + i), _mm256_loadu_ps(f->std_high64 + i),
					   _mm256_loadu_ps(f->std_low64 + i) };
			__m128i x[FINISH_CHAIN + 1];

			for (unsigned s = 0; s < u->n_sources; s++)
				x[s] = _mm_loadl_epi64((const void *)(u->from[s] + from + i));
			eight_use(u, x, k, first + from + i);
		}
}

/* Returns how many pixels are done; the reference does the rest. */
INLINE size_t avx2_pixels(const struct use *u, size_t first, size_t n)
{
	size_t channels = u->f->plan.n_channels, whole;

	if (is_planar(u->f)) {
		whole = channels == 3 ? n / FINISH_PX * FINISH_PX : 0;
		planes_as(u, first, whole);
		return whole;
	}
	whole = n * channels / 48 * 48;
	flat_as(u, first * channels, whole);
	return whole / channels;
}

INLINE size_t avx2_either(struct use u, size_t first, size_t n)
{
	u.float32 = 1;
	if (u.f->plan.number == CONVERT_TO_FLOAT32)
		return avx2_pixels(&u, first, n);
	u.float32 = 0;
	return avx2_pixels(&u, first, n);
}

/* Of the plane's pixels from `first` on. */
INLINE size_t avx2_rows(const struct finish *f, const struct finish_chain *rows, unsigned n_rows, int is_pair,
			size_t first)
{
	struct use u = { .f = f, .mixes = 1, .is_pair = is_pair, .n_rows = n_rows };

	u.n_sources = is_pair ? 2 : n_rows + 1;
	for (unsigned s = 0; s < u.n_sources; s++)
		u.from[s] = (const uint8_t *)rows->from[s] + first * f->plan.n_channels;
	for (unsigned r = 0; r < n_rows; r++) {
		u.to[r] = rows->to[r];
		u.row[r] = rows->row[r];
	}
	return first + avx2_either(u, first, f->plan.plane - first);
}

AVX2 static void avx2_plain(const struct finish *f, const uint8_t *own, size_t first, size_t n, void *image)
{
	struct use u = { .f = f, .n_rows = 1, .n_sources = 1, .from = { own }, .to = { image } };
	size_t done = avx2_either(u, first, n);

	finish_c.plain(f, own + done * f->plan.n_channels, first + done, n - done, image);
}

static void avx2_box(const struct finish *f, const struct batchd_mix_row *row, const uint8_t *own,
		     const uint8_t *partner, size_t first, uint8_t *scratch, void *image)
{
	finish_box_by_copy(&finish_avx2, f, row, own, partner, first, scratch, image);
}

AVX2 static void avx2_chain(const struct finish *f, const struct finish_chain *rows, size_t first)
{
	size_t done;

	if (rows->n == 4)
		done = avx2_rows(f, rows, 4, 0, first);
	else if (rows->n == 3)
		done = avx2_rows(f, rows, 3, 0, first);
	else if (rows->n == 2)
		done = avx2_rows(f, rows, 2, 0, first);
	else
		done = avx2_rows(f, rows, 1, 0, first);
	finish_c.chain(f, rows, done);
}

AVX2 static void avx2_pair(const struct finish *f, const struct finish_chain *rows, size_t first)
{
	finish_c.pair(f, rows, avx2_rows(f, rows, 2, 1, first));
}

INLINE __m256 eight_load(int float32, const void *numbers, size_t i)
{
	return float32 ? _mm256_loadu_ps((const float *)numbers + i)
		       : _mm256_cvtph_ps(_mm_loadu_si128((const void *)((const uint16_t *)numbers + i)));
}

AVX2 static void avx2_chain_numbers(const struct finish *f, const struct finish_chain *rows, size_t first, size_t n)
{
	int float32 = f->plan.number == CONVERT_TO_FLOAT32;
	size_t i = first;

	for (; i + 8 <= n; i += 8) {
		__m256 before = eight_load(float32, rows->from[0], i);

		for (unsigned r = 0; r < rows->n; r++) {
			__m256 own = eight_load(float32, rows->from[r + 1], i);

			eight_store(float32, rows->to[r], i, eight_mixed(rows->row[r], own, before));
			before = own;
		}
	}
	finish_c.chain_numbers(f, rows, i, n);
}

const struct finish_path finish_avx2 = { "avx2",     avx2_can_run, avx2_plain,        avx2_box,
					 avx2_chain, avx2_pair,    avx2_chain_numbers };
#endif
