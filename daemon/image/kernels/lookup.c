/* Lookups byte by byte, or with AVX-512: a table of 256 bytes fills four registers, of which an instruction permutes
 * two at once. */
#include "image/kernels/lookup.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "image/kernels/processor.h"

#if defined(__x86_64__)
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))
#define INLINE static inline __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi"), always_inline))

enum { BYTES_AT_ONCE = 64 };

struct quarters {
	__m512i q[4];
};

INLINE struct quarters quarters_of(const uint8_t table[256])
{
	struct quarters t;

	for (int i = 0; i < 4; i++)
		t.q[i] = _mm512_loadu_si512(table + (size_t)i * BYTES_AT_ONCE);
	return t;
}

INLINE __m512i looked_up(const struct quarters *t, __m512i v)
{
	/* The upper bit, which a permutation ignores, chooses the half of the table. */
	return _mm512_mask_blend_epi8(_mm512_movepi8_mask(v), _mm512_permutex2var_epi8(t->q[0], v, t->q[1]),
				      _mm512_permutex2var_epi8(t->q[2], v, t->q[3]));
}

/* The first n of 64 bytes. */
INLINE __mmask64 first_bytes(size_t n)
{
	return n < BYTES_AT_ONCE ? ((__mmask64)1 << n) - 1 : ~(__mmask64)0;
}

AVX512 static void bytes_avx512(const uint8_t table[256], uint8_t *p, size_t n)
{
	struct quarters t = quarters_of(table);

	for (size_t at = 0; at < n; at += BYTES_AT_ONCE) {
		__mmask64 mask = first_bytes(n - at);
		__m512i v = _mm512_maskz_loadu_epi8(mask, p + at);

		_mm512_mask_storeu_epi8(p + at, mask, looked_up(&t, v));
	}
}

AVX512 static void pixels_avx512(const uint8_t table[3][256], uint8_t *rgb, size_t n_px)
{
	/* The bytes that are green, and blue, of 64 that begin with red; each of the next 64 is one channel further. */
	const __mmask64 thirds[3] = { 0x9249249249249249, 0x2492492492492492, 0x4924924924924924 };
	struct quarters t[3] = { quarters_of(table[0]), quarters_of(table[1]), quarters_of(table[2]) };
	unsigned first = 0; /* the channel of the first byte */

	for (size_t at = 0, n = n_px * 3; at < n; at += BYTES_AT_ONCE, first = (first + 1) % 3) {
		__mmask64 mask = first_bytes(n - at);
		__m512i v = _mm512_maskz_loadu_epi8(mask, rgb + at), made = looked_up(&t[0], v);

		made = _mm512_mask_mov_epi8(made, thirds[(4 - first) % 3], looked_up(&t[1], v));
		made = _mm512_mask_mov_epi8(made, thirds[(5 - first) % 3], looked_up(&t[2], v));
		_mm512_mask_storeu_epi8(rgb + at, mask, made);
	}
}
#endif

void lookup_bytes(const uint8_t table[256], uint8_t *p, size_t n)
{
#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX512) {
		bytes_avx512(table, p, n);
		return;
	}
#endif
	for (size_t i = 0; i < n; i++)
		p[i] = table[p[i]];
}

void lookup_pixels(const uint8_t table[3][256], uint8_t *rgb, size_t n_px)
{
#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX512) {
		pixels_avx512(table, rgb, n_px);
		return;
	}
#endif
	for (size_t i = 0; i < n_px; i++, rgb += 3)
		for (int c = 0; c < 3; c++)
			rgb[c] = table[c][rgb[c]];
}
