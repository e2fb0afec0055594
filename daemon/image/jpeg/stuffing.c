/* Un-stuffing, see stuffing.h.
 *
 * One pass at the speed of copying has three advantages: the entropy decoder refills without looking at bytes, the
 * starts of restart intervals become known, and a file cut short is noticed for every rectangle. 0xFF occurs about
 * every two hundred bytes; in between, 32 bytes are copied at a time. */
#include <errno.h>
#include <string.h>

#include "image/jpeg/stuffing.h"

enum { STEP = 32, EOI = 0xD9, RST0 = 0xD0 };

#if defined(__x86_64__)
#include <emmintrin.h>

/* Copies STEP bytes; returns one bit for each that is 0xFF. */
static inline uint32_t copy_step(uint8_t *out, const uint8_t *in)
{
	const __m128i ones = _mm_set1_epi8(-1);
	__m128i a = _mm_loadu_si128((const __m128i *)in), b = _mm_loadu_si128((const __m128i *)(in + 16));

	_mm_storeu_si128((__m128i *)out, a);
	_mm_storeu_si128((__m128i *)(out + 16), b);
	return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(a, ones)) |
	       (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(b, ones)) << 16;
}
#else
static inline uint32_t copy_step(uint8_t *out, const uint8_t *in)
{
	uint32_t mask = 0;

	for (unsigned i = 0; i < STEP; i += 8) {
		uint64_t v, ones;

		memcpy(&v, in + i, sizeof(v));
		memcpy(out + i, &v, sizeof(v));
		ones = ((~v & 0x7f7f7f7f7f7f7f7f) + 0x7f7f7f7f7f7f7f7f) | ~v; /* top bit clear in bytes that are 0xFF */
		if ((ones & 0x8080808080808080) == 0x8080808080808080)
			continue;
		for (unsigned k = 0; k < 8; k++)
			mask |= (uint32_t)(in[i + k] == 0xFF) << (i + k);
	}
	return mask;
}
#endif

/* Copies up to and including the next 0xFF. Returns its place in the input, or n. */
static size_t copy_to_ff(const uint8_t *data, size_t at, size_t n, uint8_t **out)
{
	for (; n - at >= STEP; at += STEP, *out += STEP) {
		uint32_t mask = copy_step(*out, data + at);

		if (mask) {
			uint32_t k = (uint32_t)__builtin_ctz(mask);

			*out += k + 1;
			return at + k;
		}
	}
	for (; at < n; at++) {
		*(*out)++ = data[at];
		if (data[at] == 0xFF)
			return at;
	}
	return n;
}

int unstuff_scan(const uint8_t *data, size_t n, uint8_t *out, uint32_t *starts, uint32_t n_starts, size_t *n_used)
{
	uint8_t *const base = out;
	uint32_t i = 0;
	size_t at = 0;

	starts[0] = 0;
	for (;;) {
		at = copy_to_ff(data, at, n, &out) + 1;
		if (at >= n)
			return -EINVAL;
		if (data[at] == 0) {
			at++;
			continue;
		}
		while (data[at] == 0xFF) /* fill bytes */
			if (++at == n)
				return -EINVAL;
		uint8_t marker = data[at++];

		if (marker == 0)
			return -EINVAL;
		starts[++i] = (uint32_t)(--out - base);
		if (marker < RST0 || marker >= RST0 + 8) {
			*n_used = at;
			return i == n_starts ? marker : -EINVAL;
		}
		if (marker != RST0 + (i - 1) % 8 || i == n_starts)
			return -EINVAL;
	}
}

int unstuff(const uint8_t *data, size_t n, uint8_t *out, uint32_t *starts, uint32_t n_starts)
{
	size_t n_used;

	return unstuff_scan(data, n, out, starts, n_starts, &n_used) == EOI ? 0 : -EINVAL;
}
