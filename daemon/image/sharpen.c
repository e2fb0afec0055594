/* Sharpness: a blend of the image with its smoothed copy, which is Pillow's SMOOTH filter: (1 1 1, 1 5 1, 1 1 1) / 13,
 * border pixels unchanged.
 *
 * Pillow sums in float32 and adds 0.5. The exact sum of 13ths is never closer than 1/26 to the next whole number, which
 * is far more than float32's error, so integers give the same result: (sum + 6) / 13. */
#include "image/exact.h"

#include "image/sharpen.h"

#include <errno.h>
#include <string.h>

#include "image/blend.h"
#include "image/processor.h"

#define BODY static inline __attribute__((always_inline))

enum { CHUNK_BYTES = 192 };

/* n inner bytes of a row: out = blend(smoothed, middle). Neighbours in the row are 3 bytes away. */
BODY void sharpen_bytes(const uint8_t *above, const uint8_t *middle, const uint8_t *below, size_t n, float factor,
			uint8_t *out)
{
	uint8_t smooth[CHUNK_BYTES];

	for (size_t at = 0; at < n; at += CHUNK_BYTES) {
		const uint8_t *a = above + at, *m = middle + at, *b = below + at;
		size_t size = n - at < CHUNK_BYTES ? n - at : CHUNK_BYTES;

		for (size_t x = 0; x < size; x++) {
			uint16_t columns = (uint16_t)(a[x - 3] + m[x - 3] + b[x - 3] + a[x] + b[x] + a[x + 3] +
						      m[x + 3] + b[x + 3]);
			uint16_t sum = (uint16_t)(columns + 5 * m[x] + 6);

			/* 5042 / 2^16 is 1/13 for all sums up to 13 * 255 + 6. */
			smooth[x] = (uint8_t)((uint32_t)sum * 5042u >> 16);
		}
		for (size_t x = 0; x < size; x++)
			out[at + x] = blend(smooth[x], m[x], factor);
	}
}

static void sharpen_plain(const uint8_t *above, const uint8_t *middle, const uint8_t *below, size_t n, float factor,
			  uint8_t *out)
{
	sharpen_bytes(above, middle, below, n, factor, out);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void sharpen_avx2(const uint8_t *above, const uint8_t *middle,
							 const uint8_t *below, size_t n, float factor, uint8_t *out)
{
	sharpen_bytes(above, middle, below, n, factor, out);
}
#endif

int sharpen(struct image *i, float factor, struct scratch *rows)
{
	void (*bytes)(const uint8_t *, const uint8_t *, const uint8_t *, size_t, float, uint8_t *) = sharpen_plain;
	size_t n = (size_t)i->width * 3;
	uint8_t *above, *middle;

	if (i->width < 3 || i->height < 3)
		return 0;
#if defined(__x86_64__)
	if (processor_path() == PROCESSOR_AVX2)
		bytes = sharpen_avx2;
#endif
	above = scratch_reserve(rows, 2 * n);
	if (!above)
		return -ENOMEM;
	middle = above + n;
	memcpy(above, i->rgb, n);
	for (uint32_t y = 1; y + 1 < i->height; y++) {
		uint8_t *row = i->rgb + (size_t)y * i->stride_bytes, *used = above;

		memcpy(middle, row, n);
		bytes(above + 3, middle + 3, row + i->stride_bytes + 3, n - 6, factor, row + 3);
		above = middle;
		middle = used;
	}
	return 0;
}
