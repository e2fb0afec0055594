/* The box filter's pass with AVX-512 and VNNI: sums are kept in 16 bits, where a step adds to 32 at once.
 *
 * The weights have 24 bits, in two parts of 15: a result is (sum, far) times the upper parts, shifted, plus the same
 * times the lower ones, and vpdpwssd multiplies such a pair and adds. */
#if defined(__x86_64__)
#include "image/kernels/box-paths.h"

#include <immintrin.h>

#define TARGET "avx512f,avx512bw,avx512vl,avx512vnni"
#define AVX512 __attribute__((target(TARGET)))
#define INLINE static inline __attribute__((target(TARGET), always_inline))

enum { PART_BITS = 15, RESULT_BITS = 24, ROUND = BOX_HALF >> PART_BITS };

struct weights {
	int upper, lower; /* of the sum in the lower half, of what lies at the ends in the upper one */
};

static struct weights weights_of(const struct box *b)
{
	const uint32_t mask = (1u << PART_BITS) - 1;

	return (struct weights){ (int)(b->fw >> PART_BITS << 16 | b->ww >> PART_BITS),
				 (int)((b->fw & mask) << 16 | (b->ww & mask)) };
}

INLINE __m512i results32(__m512i pairs, struct weights w)
{
	__m512i v = _mm512_dpwssd_epi32(_mm512_set1_epi32(ROUND), pairs, _mm512_set1_epi32(w.upper));

	v = _mm512_dpwssd_epi32(_mm512_slli_epi32(v, PART_BITS), pairs, _mm512_set1_epi32(w.lower));
	return _mm512_srli_epi32(v, RESULT_BITS);
}

INLINE __m512i words32(const uint8_t *p)
{
	return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)p));
}

/* 32 lanes move one step. */
INLINE void step32(__m512i *sum, const struct edges *e, int at, struct weights w, uint8_t *out)
{
	__m512i leaves = words32(e->leaves + at), far = _mm512_add_epi16(leaves, words32(e->next + at)), low, high;

	*sum = _mm512_add_epi16(*sum, _mm512_sub_epi16(words32(e->enters + at), leaves));
	low = results32(_mm512_unpacklo_epi16(*sum, far), w);
	high = results32(_mm512_unpackhi_epi16(*sum, far), w);
	_mm256_storeu_si256((void *)(out + at), _mm512_cvtepi16_epi8(_mm512_packus_epi32(low, high)));
}

INLINE __m256i results16(__m256i pairs, struct weights w)
{
	__m256i v = _mm256_dpwssd_epi32(_mm256_set1_epi32(ROUND), pairs, _mm256_set1_epi32(w.upper));

	v = _mm256_dpwssd_epi32(_mm256_slli_epi32(v, PART_BITS), pairs, _mm256_set1_epi32(w.lower));
	return _mm256_srli_epi32(v, RESULT_BITS);
}

INLINE __m256i words16(const uint8_t *p)
{
	return _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p));
}

INLINE void step16(__m256i *sum, const struct edges *e, int at, struct weights w, uint8_t *out)
{
	__m256i leaves = words16(e->leaves + at), far = _mm256_add_epi16(leaves, words16(e->next + at)), low, high;

	*sum = _mm256_add_epi16(*sum, _mm256_sub_epi16(words16(e->enters + at), leaves));
	low = results16(_mm256_unpacklo_epi16(*sum, far), w);
	high = results16(_mm256_unpackhi_epi16(*sum, far), w);
	_mm_storeu_si128((void *)(out + at), _mm256_cvtepi16_epi8(_mm256_packus_epi32(low, high)));
}

AVX512 void box_pass_avx512(const struct box *b, const uint32_t first[BOX_LANES], const uint8_t *in, uint8_t *out,
			    uint32_t n)
{
	struct weights w = weights_of(b);
	uint16_t words[BOX_LANES];
	__m512i wide;
	__m256i narrow;

	for (int i = 0; i < BOX_LANES; i++)
		words[i] = (uint16_t)first[i];
	wide = _mm512_loadu_si512(words);
	narrow = _mm256_loadu_si256((const void *)(words + 32));
	for (uint32_t x = 0; x < n; x++, out += BOX_LANES) {
		struct edges e = edges_at(in, x, b->radius, n - 1);

		step32(&wide, &e, 0, w, out);
		step16(&narrow, &e, 32, w, out);
	}
}
#endif
