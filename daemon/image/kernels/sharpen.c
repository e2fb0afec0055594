/* Sharpness: a blend of the image with its smoothed copy, which is Pillow's SMOOTH filter: (1 1 1, 1 5 1, 1 1 1) / 13,
 * border pixels unchanged.
 *
 * Pillow sums in float32 and adds 0.5. The exact sum of 13ths is never closer than 1/26 to the next whole number, which
 * is far more than float32's error, so integers give the same result: (sum + 6) / 13. */
#include "image/kernels/exact.h"

#include "image/kernels/sharpen.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "image/kernels/blend.h"
#include "image/kernels/processor.h"

#define BODY static inline __attribute__((always_inline))

/* n inner bytes of a row: out = smoothed. Neighbours in the row are 3 bytes away, those of the first bytes before the
 * pointers: hence a signed index. */
BODY void smooth_bytes(const uint8_t *a, const uint8_t *m, const uint8_t *b, size_t n, uint8_t *restrict out)
{
	for (ptrdiff_t x = 0; x < (ptrdiff_t)n; x++) {
		uint16_t columns =
			(uint16_t)(a[x - 3] + m[x - 3] + b[x - 3] + a[x] + b[x] + a[x + 3] + m[x + 3] + b[x + 3]);
		uint16_t sum = (uint16_t)(columns + 5 * m[x] + 6);

		/* 5042 / 2^16 is 1/13 for all sums up to 13 * 255 + 6. */
		out[x] = (uint8_t)((uint32_t)sum * 5042u >> 16);
	}
}

static void smooth_plain(const uint8_t *a, const uint8_t *m, const uint8_t *b, size_t n, uint8_t *out)
{
	smooth_bytes(a, m, b, n, out);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void smooth_avx2(const uint8_t *a, const uint8_t *m, const uint8_t *b, size_t n,
							uint8_t *out)
{
	smooth_bytes(a, m, b, n, out);
}
#endif

int sharpen(struct image *i, float factor, struct scratch *rows)
{
	void (*smooth)(const uint8_t *, const uint8_t *, const uint8_t *, size_t, uint8_t *) = smooth_plain;
	size_t n = (size_t)i->width * 3;
	uint8_t *above, *middle, *smoothed;

	if (i->width < 3 || i->height < 3)
		return 0;
#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX2)
		smooth = smooth_avx2;
#endif
	above = scratch_reserve(rows, 3 * n);
	if (!above)
		return -ENOMEM;
	middle = above + n;
	smoothed = middle + n;
	memcpy(above, i->rgb, n);
	for (uint32_t y = 1; y + 1 < i->height; y++) {
		uint8_t *row = i->rgb + (size_t)y * i->stride_bytes, *used = above;

		memcpy(middle, row, n);
		smooth(above + 3, middle + 3, row + i->stride_bytes + 3, n - 6, smoothed);
		blend_bytes(smoothed, row + 3, n - 6, factor);
		above = middle;
		middle = used;
	}
	return 0;
}
