/* Pillow's Gaussian blur (its BoxBlur.c): three box filters along each axis, in 8.24 fixed point. A box of fractional
 * radius has a weight ww for whole pixels and fw for the two at its ends; pixels outside the image are those at the
 * edge.
 *
 * Both axes are done in tiles of 48 neighbouring bytes across the axis, which one register set sums at a time: along
 * columns these are 16 pixels of a row; along rows they are 16 rows, transposed into the tile. The three passes over a
 * tile stay in the first-level cache. */
#include "image/exact.h"

#include "image/blur.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "image/processor.h"

#define BODY static inline __attribute__((always_inline))

enum { LANES = 48, TILE_PX = 16, N_PASSES = 3, HALF = 1 << 23 };

struct box {
	uint32_t radius; /* whole pixels */
	uint32_t ww, fw;
};

/* Types and casts are Pillow's: they decide the rounding. */
static struct box box_of(float sigma)
{
	float variance = sigma * sigma / N_PASSES;
	float length = (float)sqrt(12.0 * (double)variance + 1.0);
	float l = (float)floor(((double)length - 1.0) / 2.0);
	float a = (2 * l + 1) * (l * (l + 1) - 3 * variance), radius;
	struct box b;

	a /= 6 * (variance - (l + 1) * (l + 1));
	radius = l + a;
	b.radius = (uint32_t)radius;
	b.ww = (uint32_t)((float)(1u << 24) / (radius * 2 + 1));
	b.fw = ((1u << 24) - (b.radius * 2 + 1) * b.ww) / 2;
	return b;
}

/* One pass over n steps of LANES bytes. */
BODY void box_pass(const struct box *b, const uint8_t *in, uint8_t *out, uint32_t n)
{
	uint32_t last = n - 1, r = b->radius, ww = b->ww, fw = b->fw;
	uint32_t sum[LANES];

	/* The box around the position before the first. */
	for (int i = 0; i < LANES; i++)
		sum[i] = in[i] * (r + 1);
	for (uint32_t j = 0; j < r && j < last; j++)
		for (int i = 0; i < LANES; i++)
			sum[i] += in[(size_t)j * LANES + i];
	if (r > last)
		for (int i = 0; i < LANES; i++)
			sum[i] += in[(size_t)last * LANES + i] * (r - last);
	for (uint32_t x = 0; x < n; x++) {
		const uint8_t *leaves = in + (size_t)(x > r ? x - r - 1 : 0) * LANES;
		const uint8_t *enters = in + (size_t)(x + r < last ? x + r : last) * LANES;
		const uint8_t *next = in + (size_t)(x + r + 1 < last ? x + r + 1 : last) * LANES;
		uint8_t *to = out + (size_t)x * LANES;

		for (int i = 0; i < LANES; i++) {
			sum[i] += (uint32_t)enters[i] - leaves[i];
			to[i] = (uint8_t)((sum[i] * ww + (uint32_t)(leaves[i] + next[i]) * fw + HALF) >> 24);
		}
	}
}

static void box_pass_plain(const struct box *b, const uint8_t *in, uint8_t *out, uint32_t n)
{
	box_pass(b, in, out, n);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void box_pass_avx2(const struct box *b, const uint8_t *in, uint8_t *out,
							  uint32_t n)
{
	box_pass(b, in, out, n);
}
#endif

struct blur {
	struct image *image;
	struct box box;
	uint8_t *tile, *other; /* n steps of LANES bytes each */
	void (*pass)(const struct box *b, const uint8_t *in, uint8_t *out, uint32_t n);
};

/* Three passes over n steps in b->tile. Returns the tile with the result. */
static uint8_t *blur_tile(struct blur *b, uint32_t n)
{
	uint8_t *in = b->tile, *out = b->other;

	for (int i = 0; i < N_PASSES; i++) {
		uint8_t *made = out;

		b->pass(&b->box, in, out, n);
		out = in;
		in = made;
	}
	return in;
}

static void blur_columns(struct blur *b)
{
	const struct image *i = b->image;
	size_t n_bytes = (size_t)i->width * 3;

	for (size_t at = 0; at < n_bytes; at += LANES) {
		size_t size = n_bytes - at < LANES ? n_bytes - at : LANES;
		const uint8_t *made;

		for (uint32_t y = 0; y < i->height; y++) {
			memcpy(b->tile + (size_t)y * LANES, i->rgb + y * i->stride_bytes + at, size);
			memset(b->tile + (size_t)y * LANES + size, 0, LANES - size);
		}
		made = blur_tile(b, i->height);
		for (uint32_t y = 0; y < i->height; y++)
			memcpy(i->rgb + y * i->stride_bytes + at, made + (size_t)y * LANES, size);
	}
}

/* A tile of rows: step x holds the reds of pixel x in 16 rows, then the greens, then the blues. */
static void blur_rows(struct blur *b)
{
	const struct image *i = b->image;
	size_t n_bytes = (size_t)i->width * 3;

	for (uint32_t y = 0; y < i->height; y += TILE_PX) {
		uint32_t n_rows = i->height - y < TILE_PX ? i->height - y : TILE_PX;
		const uint8_t *made;

		memset(b->tile, 0, n_rows < TILE_PX ? (size_t)i->width * LANES : 0);
		for (uint32_t row = 0; row < n_rows; row++) {
			const uint8_t *from = i->rgb + (size_t)(y + row) * i->stride_bytes;

			for (size_t x = 0; x < n_bytes; x++)
				b->tile[x * TILE_PX + row] = from[x];
		}
		made = blur_tile(b, i->width);
		for (uint32_t row = 0; row < n_rows; row++) {
			uint8_t *to = i->rgb + (size_t)(y + row) * i->stride_bytes;

			for (size_t x = 0; x < n_bytes; x++)
				to[x] = made[x * TILE_PX + row];
		}
	}
}

int blur_pillow(struct image *i, float x_radius, float y_radius, struct scratch *room)
{
	struct blur b = { .image = i, .pass = box_pass_plain };
	size_t tile_bytes = (size_t)(i->width > i->height ? i->width : i->height) * LANES;

#if defined(__x86_64__)
	if (processor_path() == PROCESSOR_AVX2)
		b.pass = box_pass_avx2;
#endif
	b.tile = scratch_reserve(room, 2 * tile_bytes);
	if (!b.tile)
		return -ENOMEM;
	b.other = b.tile + tile_bytes;
	if (x_radius != 0) {
		b.box = box_of(x_radius);
		blur_rows(&b);
	}
	if (y_radius != 0) {
		b.box = box_of(y_radius);
		blur_columns(&b);
	}
	return 0;
}
