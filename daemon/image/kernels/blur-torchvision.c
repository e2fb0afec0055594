/* torchvision's Gaussian blur: a convolution in float32 with reflected borders, rounded to even at the end.
 *
 * torchvision convolves with the product of the two kernels; here rows and columns are convolved one after the other,
 * which differs in the last bits of the float before it is rounded. Additions have one order on every processor, so
 * bytes are the same everywhere. */
#include "image/kernels/exact.h"

#include "image/kernels/blur.h"

#include <errno.h>

#include "image/kernels/convolution.h"

struct convolution {
	struct kernel x, y;
	size_t n;      /* floats of a row: width * 3 */
	float *padded; /* one row with its reflected borders */
	float *ring;   /* y.size rows, convolved along the row */
	float *made;
};

static void convolve_row(struct convolution *c, const uint8_t *row, uint32_t width, float *out)
{
	const float *taps[BLUR_MAX_KERNEL];
	int64_t border = c->x.size / 2;

	for (int64_t x = -border; x < width + border; x++) {
		const uint8_t *from = row + (size_t)convolution_reflected(x, width) * 3;
		float *to = c->padded + (x + border) * 3;

		to[0] = from[0];
		to[1] = from[1];
		to[2] = from[2];
	}
	for (uint32_t j = 0; j < c->x.size; j++)
		taps[j] = c->padded + (size_t)j * 3;
	kernel_convolve(&c->x, taps, c->n, out);
}

static void write_row(const float *from, size_t n, uint8_t *to)
{
	/* Adding and subtracting 1.5 * 2^23 rounds to even, as round() of torch does; no sum of weighted bytes is below
	 * 0 or above 255.5. */
	for (size_t x = 0; x < n; x++) {
		float rounded = from[x] + 0x1.8p23f - 0x1.8p23f;

		to[x] = (uint8_t)(int32_t)(rounded > 255.0f ? 255.0f : rounded);
	}
}

static float *blur_torchvision_ring_row(const struct convolution *c, uint32_t y)
{
	return c->ring + (size_t)(y % c->y.size) * c->n;
}

/* Row y is written after rows up to y + size / 2 are convolved. Reflected rows at the end are among the last size rows,
 * which the ring still has. */
static void blur_torchvision_run(struct convolution *c, struct image *i)
{
	const float *rows[BLUR_MAX_KERNEL];
	int64_t border = c->y.size / 2;
	uint32_t n_convolved = 0;

	for (uint32_t y = 0; y < i->height; y++) {
		uint32_t end = y + border + 1 < i->height ? (uint32_t)(y + border + 1) : i->height;

		for (; n_convolved < end; n_convolved++)
			convolve_row(c, i->rgb + n_convolved * i->stride_bytes, i->width,
				     blur_torchvision_ring_row(c, n_convolved));
		for (int64_t j = 0; j < c->y.size; j++)
			rows[j] = blur_torchvision_ring_row(c, convolution_reflected(y - border + j, i->height));
		kernel_convolve(&c->y, rows, c->n, c->made);
		write_row(c->made, c->n, i->rgb + y * i->stride_bytes);
	}
}

int blur_torchvision(struct image *i, const uint32_t size[2], const double sigma[2], struct scratch *room)
{
	struct convolution c = { .n = (size_t)i->width * 3 };
	size_t padded = c.n + (size_t)size[0] * 3;

	kernel_init(&c.x, size[0], sigma[0]);
	kernel_init(&c.y, size[1], sigma[1]);
	c.padded = (float *)(void *)scratch_reserve(room, (padded + (size[1] + 1) * c.n) * sizeof(float));
	if (!c.padded)
		return -ENOMEM;
	c.ring = c.padded + padded;
	c.made = c.ring + size[1] * c.n;
	blur_torchvision_run(&c, i);
	return 0;
}
