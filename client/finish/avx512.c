/* The AVX-512 path of the finishing pass (with VBMI): 16 numbers at a time.
 *
 * One permutation of bytes makes 16 numbers of one channel of 16 pixels. Masks end every line, so there is no rest.
 * Rows that follow from each other are made side by side, at the same place of their images: each is converted once,
 * while its bytes are in a register. */
#if defined(__x86_64__)
#include "../daemon/image/kernels/exact.h"

#include "finish/finish.h"

#include <immintrin.h>

#define TARGET "avx512f,avx512bw,avx512vl,avx512vbmi,fma,f16c"
#define AVX512 __attribute__((target(TARGET)))
#define INLINE static inline __attribute__((target(TARGET), always_inline))

enum { LANES = 16 };

/* What is made of sources: numbers of the first; numbers of two of which one has a box in the other; blends of each and
 * the one before; blends of two with each other. */
enum mode { PLAIN, BOX, CHAIN, PAIR };

/* Everything of one call, by value: stores to images cannot change it, so the compiler keeps it in registers. */
struct job {
	const struct finish *f;
	const char *from[FINISH_CHAIN + 1];
	char *to[FINISH_CHAIN];
	__m512 weight[FINISH_CHAIN], partner_weight[FINISH_CHAIN];
	int64_t box_from, box_end; /* in bytes of a line */
	__m512 scale_high, scale_low;
};

struct norm {
	__m512 mean, high, low;
};

static int avx512_can_run(const struct finish *f)
{
	return f->plan.number != CONVERT_TO_BFLOAT16 && !f->plan.divides && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
	       __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("fma");
}

/* The first n of 64 bits. */
INLINE uint64_t bits_below(int64_t n)
{
	return n >= 64 ? ~0ull : n <= 0 ? 0 : (1ull << n) - 1;
}

/* The bits of those of 64 bytes from `at` on that are in the box. */
INLINE uint64_t box_bits(const struct job *j, size_t at)
{
	return bits_below(j->box_end - (int64_t)at) & ~bits_below(j->box_from - (int64_t)at);
}

/* How many numbers from `at` on end where the next full store is aligned: a store that crosses a cache line costs two. */
INLINE size_t head_of(const struct job *j, int float32, size_t at)
{
	size_t number = float32 ? sizeof(float) : sizeof(uint16_t), vector = LANES * number;
	size_t over = ((uintptr_t)j->to[0] + at * number) % vector;

	return over ? (vector - over) / number : LANES;
}

INLINE size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* ((v / 255) - mean) / std of 16 pixel values. */
INLINE __m512 numbers_of(const struct job *j, __m512i values, struct norm k)
{
	__m512 v = _mm512_cvtepi32_ps(values);
	__m512 centred = _mm512_sub_ps(_mm512_fmadd_ps(v, j->scale_high, _mm512_mul_ps(v, j->scale_low)), k.mean);

	return _mm512_fmadd_ps(centred, k.high, _mm512_mul_ps(centred, k.low));
}

INLINE void store(int float32, char *to, size_t at, __mmask16 mask, __m512 v)
{
	if (float32)
		_mm512_mask_storeu_ps((float *)(void *)to + at, mask, v);
	else
		_mm256_mask_storeu_epi16((uint16_t *)(void *)to + at, mask,
					 _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

/* Each product is rounded, then their sum. */
INLINE __m512 blend(const struct job *j, unsigned row, __m512 own, __m512 partner)
{
	return _mm512_add_ps(_mm512_mul_ps(own, j->weight[row]), _mm512_mul_ps(partner, j->partner_weight[row]));
}

/* v: of each source. */
INLINE void use(const struct job *j, enum mode mode, unsigned n_rows, int float32, const __m512 *v, size_t at,
		__mmask16 mask)
{
	if (mode == PLAIN || mode == BOX) {
		store(float32, j->to[0], at, mask, v[0]);
		return;
	}
	for (unsigned r = 0; r < n_rows; r++)
		store(float32, j->to[r], at, mask, blend(j, r, v[mode == PAIR && r == 1 ? 0 : r + 1], v[r]));
}

INLINE unsigned sources_of(enum mode mode, unsigned n_rows)
{
	return mode == PLAIN || mode == BOX ? 1 : mode == PAIR ? 2 : n_rows + 1;
}

INLINE __m512i load_bytes(const struct job *j, enum mode mode, unsigned source, size_t at, uint64_t mask)
{
	uint64_t box = mode == BOX ? box_bits(j, at) & mask : 0;
	__m512i px = _mm512_maskz_loadu_epi8(mask & ~box, j->from[source] + at);

	return mode == BOX ? _mm512_mask_loadu_epi8(px, box, j->from[1] + at) : px;
}

/* Pixels first .. first + n - 1 of planes. */
INLINE void planes(const struct job *j, enum mode mode, unsigned n_rows, uint32_t channels, int float32, size_t first,
		   size_t n)
{
	const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	const struct convert_plan *p = &j->f->plan;
	__m512i place = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)channels));
	struct norm norm[CONVERT_MAX_CHANNELS];
	size_t plane = p->plane;

	for (uint32_t c = 0; c < channels; c++)
		norm[c] = (struct norm){ _mm512_set1_ps(p->mean[c]), _mm512_set1_ps(p->std_high[c]),
					 _mm512_set1_ps(p->std_low[c]) };
	for (size_t i = 0, step = head_of(j, float32, first); i < n; i += step, step = LANES) {
		int64_t left = (int64_t)smaller(n - i, step);
		__mmask16 mask = (__mmask16)bits_below(left);
		__m512i px[FINISH_CHAIN + 1];

		for (unsigned s = 0; s < sources_of(mode, n_rows); s++)
			px[s] = load_bytes(j, mode, s, i * channels, bits_below(left * channels));
		for (uint32_t c = 0; c < channels; c++) {
			__m512i places = _mm512_add_epi32(place, _mm512_set1_epi32((int)c));
			__m512 v[FINISH_CHAIN + 1];

			for (unsigned s = 0; s < sources_of(mode, n_rows); s++)
				v[s] = numbers_of(j, _mm512_maskz_permutexvar_epi8(0x1111111111111111, places, px[s]),
						  norm[c]);
			use(j, mode, n_rows, float32, v, c * plane + first + i, mask);
		}
	}
}

/* Numbers that stay in order: n of them, the first one of channel 0. */
INLINE void flat(const struct job *j, enum mode mode, unsigned n_rows, int float32, size_t first, size_t n)
{
	const struct finish *f = j->f;

	for (size_t i = 0, step = head_of(j, float32, first); i < n; i += step, step = LANES) {
		__mmask16 mask = (__mmask16)bits_below((int64_t)smaller(n - i, step));
		size_t k = i % 48;
		struct norm norm = { _mm512_loadu_ps(f->mean64 + k), _mm512_loadu_ps(f->std_high64 + k),
				     _mm512_loadu_ps(f->std_low64 + k) };
		__m512 v[FINISH_CHAIN + 1];

		for (unsigned s = 0; s < sources_of(mode, n_rows); s++) {
			__m512i px = load_bytes(j, mode, s, i, mask);

			v[s] = numbers_of(j, _mm512_cvtepu8_epi32(_mm512_castsi512_si128(px)), norm);
		}
		use(j, mode, n_rows, float32, v, first + i, mask);
	}
}

/* Numbers first..n - 1 of the slot. */
INLINE void floats(const struct job *j, enum mode mode, unsigned n_rows, int float32, size_t first, size_t n)
{
	for (size_t i = first, step = head_of(j, float32, first); i < n; i += step, step = LANES) {
		__mmask16 mask = (__mmask16)bits_below((int64_t)smaller(n - i, step));
		__m512 v[FINISH_CHAIN + 1];

		for (unsigned s = 0; s < sources_of(mode, n_rows); s++)
			v[s] = float32 ? _mm512_maskz_loadu_ps(mask, (const float *)(const void *)j->from[s] + i)
				       : _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(
						 mask, (const uint16_t *)(const void *)j->from[s] + i));
		use(j, mode, n_rows, float32, v, i, mask);
	}
}

/* Each with constants, so that every loop over rows and channels is unrolled. */
INLINE void pixels_as(const struct job *j, enum mode mode, unsigned n_rows, int float32, size_t first, size_t n)
{
	uint32_t channels = j->f->plan.n_channels;

	if (!j->f->plan.planar || channels == 1)
		flat(j, mode, n_rows, float32, first * channels, n * channels);
	else if (channels == 3)
		planes(j, mode, n_rows, 3, float32, first, n);
	else
		planes(j, mode, n_rows, channels, float32, first, n);
}

INLINE void pixels(const struct job *j, enum mode mode, unsigned n_rows, size_t first, size_t n)
{
	if (j->f->plan.number == CONVERT_TO_FLOAT32)
		pixels_as(j, mode, n_rows, 1, first, n);
	else
		pixels_as(j, mode, n_rows, 0, first, n);
}

INLINE struct job job_of(const struct finish *f)
{
	return (struct job){ .f = f,
			     .scale_high = _mm512_set1_ps(f->plan.scale_high),
			     .scale_low = _mm512_set1_ps(f->plan.scale_low) };
}

INLINE struct job job_of_rows(const struct finish *f, const struct finish_chain *rows, unsigned n_rows,
			      unsigned n_sources)
{
	struct job j = job_of(f);

	for (unsigned s = 0; s < n_sources; s++)
		j.from[s] = rows->from[s];
	for (unsigned r = 0; r < n_rows; r++) {
		j.to[r] = rows->to[r];
		j.weight[r] = _mm512_set1_ps(rows->row[r]->weight);
		j.partner_weight[r] = _mm512_set1_ps(rows->row[r]->partner_weight);
	}
	return j;
}

AVX512 static void avx512_plain(const struct finish *f, const uint8_t *own, size_t first, size_t n, void *image)
{
	struct job j = job_of(f);

	j.from[0] = (const void *)own;
	j.to[0] = image;
	pixels(&j, PLAIN, 1, first, n);
}

AVX512 static void avx512_box(const struct finish *f, const struct batchd_mix_row *row, const uint8_t *own,
			      const uint8_t *partner, size_t first, uint8_t *line, void *image)
{
	struct job j = job_of(f);

	(void)line;
	j.from[0] = (const void *)own;
	j.from[1] = (const void *)partner;
	j.to[0] = image;
	j.box_from = (int64_t)row->left * f->plan.n_channels;
	j.box_end = (int64_t)row->right * f->plan.n_channels;
	pixels(&j, BOX, 1, first, f->width);
}

/* Of the plane's pixels from `first` on. */
INLINE void pixels_of_rows(const struct finish *f, const struct finish_chain *rows, enum mode mode, unsigned n_rows,
			   size_t first)
{
	unsigned n_sources = sources_of(mode, n_rows);
	struct job j = job_of_rows(f, rows, n_rows, n_sources);

	for (unsigned s = 0; s < n_sources; s++)
		j.from[s] += first * f->plan.n_channels;
	pixels(&j, mode, n_rows, first, f->plan.plane - first);
}

AVX512 static void avx512_chain(const struct finish *f, const struct finish_chain *rows, size_t first)
{
	if (rows->n == 4)
		pixels_of_rows(f, rows, CHAIN, 4, first);
	else if (rows->n == 3)
		pixels_of_rows(f, rows, CHAIN, 3, first);
	else if (rows->n == 2)
		pixels_of_rows(f, rows, CHAIN, 2, first);
	else
		pixels_of_rows(f, rows, CHAIN, 1, first);
}

AVX512 static void avx512_pair(const struct finish *f, const struct finish_chain *rows, size_t first)
{
	pixels_of_rows(f, rows, PAIR, 2, first);
}

INLINE void floats_of_rows(const struct finish *f, const struct finish_chain *rows, unsigned n_rows, size_t first,
			   size_t n)
{
	struct job j = job_of_rows(f, rows, n_rows, n_rows + 1);

	if (f->plan.number == CONVERT_TO_FLOAT32)
		floats(&j, CHAIN, n_rows, 1, first, n);
	else
		floats(&j, CHAIN, n_rows, 0, first, n);
}

AVX512 static void avx512_chain_numbers(const struct finish *f, const struct finish_chain *rows, size_t first, size_t n)
{
	if (rows->n == 4)
		floats_of_rows(f, rows, 4, first, n);
	else if (rows->n == 3)
		floats_of_rows(f, rows, 3, first, n);
	else if (rows->n == 2)
		floats_of_rows(f, rows, 2, first, n);
	else
		floats_of_rows(f, rows, 1, first, n);
}

const struct finish_path finish_avx512 = { "avx512",     avx512_can_run, avx512_plain,        avx512_box,
					   avx512_chain, avx512_pair,    avx512_chain_numbers };
#endif
