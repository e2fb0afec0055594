/* See png-filters.h.
 *
 * Three of the filters need the pixel to the left, so a row is one chain from pixel to pixel. Only the channels of one
 * pixel are computed side by side, in vectors of eight words. Each function is compiled for every size of a pixel, so
 * that loads and stores are single instructions; they may touch up to seven bytes after a pixel, which the next pixel
 * writes again. */
#include "image/formats/png-filters.h"

#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

typedef int16_t words __attribute__((vector_size(16)));
typedef uint8_t bytes8 __attribute__((vector_size(8)));

/* ---- a pixel ---- */

INLINE words load_pixel(const uint8_t *p, unsigned pixel_bytes)
{
	bytes8 b = { 0 };

	if (pixel_bytes <= 4)
		memcpy(&b, p, 4);
	else
		memcpy(&b, p, 8);
	return __builtin_convertvector(b, words);
}

INLINE void store_pixel(uint8_t *p, words v, unsigned pixel_bytes)
{
	bytes8 b = __builtin_convertvector(v, bytes8);

	if (pixel_bytes <= 4)
		memcpy(p, &b, 4);
	else
		memcpy(p, &b, 8);
}

INLINE words low_bytes(words v)
{
	return v & 0xff;
}

INLINE words choose(words mask, words yes, words no)
{
	return (mask & yes) | (~mask & no);
}

INLINE words absolute(words v)
{
	return choose(v < 0, -v, v);
}

/* ---- rows ---- */

INLINE void undo_sub(const uint8_t *in, uint8_t *row, size_t n, unsigned pixel_bytes)
{
	words left = { 0 };

	for (size_t i = 0; i < n; i += pixel_bytes) {
		left = low_bytes(left + load_pixel(in + i, pixel_bytes));
		store_pixel(row + i, left, pixel_bytes);
	}
}

static void undo_up(const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n)
{
	for (size_t i = 0; i < n; i++)
		row[i] = (uint8_t)(in[i] + above[i]);
}

INLINE void undo_average(const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n, unsigned pixel_bytes)
{
	words left = { 0 };

	for (size_t i = 0; i < n; i += pixel_bytes) {
		words half = (left + load_pixel(above + i, pixel_bytes)) >> 1;

		left = low_bytes(half + load_pixel(in + i, pixel_bytes));
		store_pixel(row + i, left, pixel_bytes);
	}
}

/* The neighbour that is closest to left + up - corner; of equally close ones left, then up. */
INLINE void undo_paeth(const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n, unsigned pixel_bytes)
{
	words left = { 0 }, corner = { 0 };

	for (size_t i = 0; i < n; i += pixel_bytes) {
		words up = load_pixel(above + i, pixel_bytes), rise = up - corner;
		words to_left = absolute(rise), to_up = absolute(left - corner),
		      to_corner = absolute(left + (rise - corner));
		words not_left = (to_left > to_up) | (to_left > to_corner);
		words best = choose(not_left, choose(to_up > to_corner, corner, up), left);

		left = low_bytes(best + load_pixel(in + i, pixel_bytes));
		store_pixel(row + i, left, pixel_bytes);
		corner = up;
	}
}

/* The same in fewer steps from one pixel to the next, which is what the time goes into. */
#if defined(__x86_64__)
#define SSE41 __attribute__((target("sse4.1")))

SSE41 INLINE __m128i load_words(const uint8_t *p, unsigned pixel_bytes)
{
	uint64_t eight = 0;
	uint32_t four;

	if (pixel_bytes > 4) {
		memcpy(&eight, p, sizeof(eight));
		return _mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)eight));
	}
	memcpy(&four, p, sizeof(four));
	return _mm_cvtepu8_epi16(_mm_cvtsi32_si128((int)four));
}

SSE41 INLINE void undo_paeth_sse41(const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n,
				   unsigned pixel_bytes)
{
	const __m128i byte = _mm_set1_epi16(255);
	__m128i left = _mm_setzero_si128(), corner = left;

	for (size_t i = 0; i < n; i += pixel_bytes) {
		__m128i up = load_words(above + i, pixel_bytes), rise = _mm_sub_epi16(up, corner);
		__m128i to_left = _mm_abs_epi16(rise), to_up = _mm_abs_epi16(_mm_sub_epi16(left, corner));
		__m128i to_corner = _mm_abs_epi16(_mm_add_epi16(left, _mm_sub_epi16(rise, corner)));
		__m128i least = _mm_min_epi16(_mm_min_epi16(to_left, to_up), to_corner);
		__m128i best = _mm_blendv_epi8(corner, up, _mm_cmpeq_epi16(least, to_up));

		best = _mm_blendv_epi8(best, left, _mm_cmpeq_epi16(least, to_left));
		left = _mm_and_si128(_mm_add_epi16(best, load_words(in + i, pixel_bytes)), byte);
		__m128i packed = _mm_packus_epi16(left, left);
		if (pixel_bytes <= 4)
			_mm_storeu_si32(row + i, packed);
		else
			_mm_storel_epi64((__m128i *)(void *)(row + i), packed);
		corner = up;
	}
}

SSE41 static void paeth_sse41(const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n, unsigned pixel_bytes)
{
	switch (pixel_bytes) {
	case 3:
		undo_paeth_sse41(in, above, row, n, 3);
		break;
	case 4:
		undo_paeth_sse41(in, above, row, n, 4);
		break;
	default:
		undo_paeth_sse41(in, above, row, n, pixel_bytes);
	}
}

static bool has_sse41(void)
{
	return __builtin_cpu_supports("sse4.1");
}
#else
static bool has_sse41(void)
{
	return false;
}

static void paeth_sse41(const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n, unsigned pixel_bytes)
{
	undo_paeth(in, above, row, n, pixel_bytes);
}
#endif

INLINE void undo(unsigned filter, const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n, unsigned pixel_bytes)
{
	switch (filter) {
	case 1:
		undo_sub(in, row, n, pixel_bytes);
		break;
	case 2:
		undo_up(in, above, row, n);
		break;
	case 3:
		undo_average(in, above, row, n, pixel_bytes);
		break;
	case 4:
		undo_paeth(in, above, row, n, pixel_bytes);
		break;
	default:
		memcpy(row, in, n);
	}
}

void png_unfilter_plain(unsigned filter, const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n,
			unsigned pixel_bytes)
{
	switch (pixel_bytes) {
	case 1:
		undo(filter, in, above, row, n, 1);
		break;
	case 2:
		undo(filter, in, above, row, n, 2);
		break;
	case 3:
		undo(filter, in, above, row, n, 3);
		break;
	case 4:
		undo(filter, in, above, row, n, 4);
		break;
	case 6:
		undo(filter, in, above, row, n, 6);
		break;
	default:
		undo(filter, in, above, row, n, 8);
	}
}

void png_unfilter(unsigned filter, const uint8_t *in, const uint8_t *above, uint8_t *row, size_t n,
		  unsigned pixel_bytes)
{
	if (filter == 4 && has_sse41())
		paeth_sse41(in, above, row, n, pixel_bytes);
	else
		png_unfilter_plain(filter, in, above, row, n, pixel_bytes);
}
