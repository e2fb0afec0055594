/* Philox4x32-10 of counters (0, 0, 0, block), as random_fork's generator: one block after the other in C, which is the
 * reference, or four side by side with AVX2. */
#include "image/kernels/exact.h"

#include "image/transform/noise.h"

#include <math.h>

#include <Random123/philox.h>

#include "image/kernels/processor.h"

#if defined(__x86_64__)
#include <immintrin.h>

enum { BLOCKS_AT_ONCE = 4, ROUNDS = 10 };

#define AVX2 __attribute__((target("avx2")))

/* Numbers are the lower halves of 64-bit lanes, whose upper halves may be anything. */
AVX2 static void blocks_avx2(const uint32_t key[2], uint32_t first, uint32_t *out)
{
	const __m256i by_first = _mm256_set1_epi64x((long long)0xD2511F53),
		      by_third = _mm256_set1_epi64x((long long)0xCD9E8D57);
	const __m256i lower = _mm256_set1_epi64x(0xffffffff);
	__m256i a = _mm256_setzero_si256(), b = a, c = a, pairs[2], even, odd;
	__m256i d = _mm256_setr_epi64x((long long)first, (long long)(first + 1), (long long)(first + 2),
				       (long long)(first + 3));
	uint32_t k0 = key[0], k1 = key[1];

	for (int i = 0; i < ROUNDS; i++, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
		__m256i p = _mm256_mul_epu32(a, by_first), q = _mm256_mul_epu32(c, by_third);

		a = _mm256_xor_si256(_mm256_srli_epi64(q, 32), _mm256_xor_si256(b, _mm256_set1_epi64x((long long)k0)));
		c = _mm256_xor_si256(_mm256_srli_epi64(p, 32), _mm256_xor_si256(d, _mm256_set1_epi64x((long long)k1)));
		b = q;
		d = p;
	}
	pairs[0] = _mm256_or_si256(_mm256_and_si256(a, lower), _mm256_slli_epi64(b, 32));
	pairs[1] = _mm256_or_si256(_mm256_and_si256(c, lower), _mm256_slli_epi64(d, 32));
	even = _mm256_unpacklo_epi64(pairs[0], pairs[1]); /* blocks 0 and 2 */
	odd = _mm256_unpackhi_epi64(pairs[0], pairs[1]);
	_mm256_storeu_si256((void *)out, _mm256_permute2x128_si256(even, odd, 0x20));
	_mm256_storeu_si256((void *)(out + 8), _mm256_permute2x128_si256(even, odd, 0x31));
}

AVX2 static void numbers_avx2(const uint32_t key[2], uint32_t first, uint32_t *out)
{
	for (uint32_t i = 0; i < NOISE_NUMBERS / 4; i += BLOCKS_AT_ONCE)
		blocks_avx2(key, first + i, out + (size_t)i * 4);
}
#endif

static void numbers_plain(const uint32_t key[2], uint32_t first, uint32_t *out)
{
	for (uint32_t i = 0; i < NOISE_NUMBERS / 4; i++) {
		philox4x32_ctr_t counter = { { 0, 0, 0, first + i } };
		philox4x32_key_t k32 = { { key[0], key[1] } };
		philox4x32_ctr_t made = philox4x32(counter, k32);

		for (int k = 0; k < 4; k++)
			out[i * 4 + (uint32_t)k] = made.v[k];
	}
}

void noise_init(struct noise *n, struct random *r)
{
	struct random fork = random_fork(r);

	noise_of_key(n, fork.key[0], fork.key[1]);
}

void noise_of_key(struct noise *n, uint32_t first, uint32_t second)
{
	n->key[0] = first;
	n->key[1] = second;
	n->block = 0;
	n->n_left = 0;
}

void noise_refill(struct noise *n)
{
#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX2)
		numbers_avx2(n->key, n->block, n->numbers);
	else
#endif
		numbers_plain(n->key, n->block, n->numbers);
	n->block += NOISE_NUMBERS / 4;
	n->n_left = NOISE_NUMBERS;
}

/* As random_unit. */
static double noise_unit(struct noise *n)
{
	uint64_t low = noise_bits(n) >> 5;

	return (double)((uint64_t)(noise_bits(n) >> 6) << 27 | low) * 0x1p-53;
}

static double noise_from_tail(struct noise *n)
{
	double x, y;

	do {
		x = -log(1.0 - noise_unit(n)) / NORMAL_TAIL_FROM;
		y = -log(1.0 - noise_unit(n));
	} while (2.0 * y < x * x);
	return NORMAL_TAIL_FROM + x;
}

float noise_unusual(struct noise *n, uint32_t bits)
{
	uint32_t layer = bits % NORMAL_LAYERS;
	float x = (float)(bits >> 8) * 0x1p-24f * normal_edge[layer], sign = bits & NORMAL_LAYERS ? -1.0f : 1.0f;
	double y;

	if (layer == 0)
		return sign * (float)noise_from_tail(n);
	y = (double)normal_curve[layer] +
	    noise_unit(n) * ((double)normal_curve[layer + 1] - (double)normal_curve[layer]);
	return y < exp(-0.5 * (double)x * (double)x) ? sign * x : noise_normal(n);
}

#if defined(__x86_64__)
enum { NORMALS_AT_ONCE = 8, SIGN_SHIFT = 24 };
_Static_assert((uint32_t)NORMAL_LAYERS << SIGN_SHIFT == 0x80000000, "the bit above the layer becomes the sign");

/* Normals from the numbers that are left, up to the first that takes more than one of them. Returns how many. */
AVX2 static size_t normals_avx2(struct noise *n, float *to, size_t count)
{
	size_t done = 0;

	while (count - done >= NORMALS_AT_ONCE && n->n_left >= NORMALS_AT_ONCE) {
		const uint32_t *numbers = n->numbers + NOISE_NUMBERS - n->n_left;
		__m256i bits = _mm256_loadu_si256((const void *)numbers);
		__m256i layer = _mm256_and_si256(bits, _mm256_set1_epi32(NORMAL_LAYERS - 1));
		__m256i sign = _mm256_slli_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(NORMAL_LAYERS)), SIGN_SHIFT);
		__m256 share = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(bits, 8)), _mm256_set1_ps(0x1p-24f));
		__m256 x = _mm256_mul_ps(share, _mm256_i32gather_ps(normal_edge, layer, 4));
		__m256 edge = _mm256_i32gather_ps(normal_edge + 1, layer, 4);
		int unusual = _mm256_movemask_ps(_mm256_cmp_ps(x, edge, _CMP_GE_OQ));
		unsigned usual = unusual ? (unsigned)__builtin_ctz((unsigned)unusual) : NORMALS_AT_ONCE;

		_mm256_storeu_ps(to + done, _mm256_xor_ps(x, _mm256_castsi256_ps(sign)));
		n->n_left -= usual;
		done += usual;
		if (unusual)
			break;
	}
	return done;
}
#endif

void noise_fill(struct noise *n, float *to, size_t count)
{
	size_t done = 0;

	while (done < count) {
#if defined(__x86_64__)
		if (processor_path() >= PROCESSOR_AVX2)
			done += normals_avx2(n, to + done, count - done);
#endif
		if (done < count)
			to[done++] = noise_normal(n);
	}
}
