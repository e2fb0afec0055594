/* Pillow's Gaussian blur (its BoxBlur.c): three box filters along each axis, in 8.24 fixed point. A box of fractional
 * radius has a weight ww for whole pixels and fw for the two at its ends; pixels outside the image are those at the
 * edge.
 *
 * Both axes are done in tiles of 48 neighbouring bytes across the axis, which one register set sums at a time: along
 * columns these are 16 pixels of a row; along rows they are 16 rows, transposed into the tile. The three passes over a
 * tile stay in the first-level cache. */
#include "image/kernels/exact.h"

#include "image/kernels/blur.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "image/kernels/box-paths.h"
#include "image/kernels/box-small.h"
#include "image/kernels/processor.h"

enum { LANES = BOX_LANES, TILE_PX = 16, N_PASSES = 3, HALF = BOX_HALF };

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

static void first_sums(const uint8_t *in, uint32_t r, uint32_t last, uint32_t sum[LANES])
{
	for (int i = 0; i < LANES; i++)
		sum[i] = in[i] * (r + 1);
	for (uint32_t j = 0; j < r && j < last; j++)
		for (int i = 0; i < LANES; i++)
			sum[i] += in[(size_t)j * LANES + i];
	if (r > last)
		for (int i = 0; i < LANES; i++)
			sum[i] += in[(size_t)last * LANES + i] * (r - last);
}

/* One pass over n steps of LANES bytes. */
static void box_pass_plain(const struct box *b, const uint32_t first[LANES], const uint8_t *in, uint8_t *out,
			   uint32_t n)
{
	uint32_t ww = b->ww, fw = b->fw, sum[LANES];

	memcpy(sum, first, sizeof(sum));
	for (uint32_t x = 0; x < n; x++, out += LANES) {
		struct edges e = edges_at(in, x, b->radius, n - 1);

		for (int i = 0; i < LANES; i++) {
			sum[i] += (uint32_t)e.enters[i] - e.leaves[i];
			out[i] = (uint8_t)((sum[i] * ww + (uint32_t)(e.leaves[i] + e.next[i]) * fw + HALF) >> 24);
		}
	}
}

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2")))
#define INLINE static inline __attribute__((target("avx2"), always_inline))

INLINE __m256i widened(const uint8_t *p)
{
	return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
}

/* Moves the sums of eight lanes to the next step; returns its results. */
INLINE __m256i step8(__m256i *sum, const struct edges *e, int at, __m256i ww, __m256i fw)
{
	__m256i leaves = widened(e->leaves + at), far = _mm256_add_epi32(leaves, widened(e->next + at)), v;

	*sum = _mm256_add_epi32(*sum, _mm256_sub_epi32(widened(e->enters + at), leaves));
	v = _mm256_add_epi32(_mm256_mullo_epi32(*sum, ww), _mm256_mullo_epi32(far, fw));
	return _mm256_srli_epi32(_mm256_add_epi32(v, _mm256_set1_epi32(HALF)), 24);
}

/* 16 results as bytes */
INLINE __m128i narrowed(__m256i first, __m256i second)
{
	__m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(first, second), 0xd8);

	return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

AVX2 static void box_pass_avx2(const struct box *b, const uint32_t first[LANES], const uint8_t *in, uint8_t *out,
			       uint32_t n)
{
	__m256i ww = _mm256_set1_epi32((int)b->ww), fw = _mm256_set1_epi32((int)b->fw), sum[LANES / 8];

	for (int i = 0; i < LANES / 8; i++)
		sum[i] = _mm256_loadu_si256((const void *)(first + 8 * i));
	for (uint32_t x = 0; x < n; x++, out += LANES) {
		struct edges e = edges_at(in, x, b->radius, n - 1);

		for (int i = 0; i < LANES / 8; i += 2)
			_mm_storeu_si128((void *)(out + 8 * i), narrowed(step8(&sum[i], &e, 8 * i, ww, fw),
									 step8(&sum[i + 1], &e, 8 * i + 8, ww, fw)));
	}
}
#endif

struct blur {
	struct image *image;
	struct box box;
	uint8_t *tile, *other; /* n steps of LANES bytes each */
	box_pass *pass;
};

static void set_box(struct blur *b, float sigma)
{
	b->box = box_of(sigma);
	b->pass = box_pass_plain;
#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX2)
		b->pass = box_pass_avx2;
	if (processor_path() >= PROCESSOR_AVX512 && b->box.radius <= BOX_AVX512_MAX_RADIUS)
		b->pass = box_pass_avx512;
#endif
}

/* Three passes over n steps in b->tile. Returns the tile with the result. */
static uint8_t *blur_tile(struct blur *b, uint32_t n)
{
	uint8_t *in = b->tile, *out = b->other;

	for (int i = 0; i < N_PASSES; i++) {
		uint8_t *made = out;
		uint32_t first[LANES];

		first_sums(in, b->box.radius, n - 1, first);
		b->pass(&b->box, first, in, out, n);
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

/* to[x * to_stride + y] = from[y * from_stride + x] for n_x times n_y bytes */
static void transpose_bytes(const uint8_t *from, size_t from_stride, uint32_t n_x, uint32_t n_y, uint8_t *to,
			    size_t to_stride)
{
	for (uint32_t y = 0; y < n_y; y++)
		for (uint32_t x = 0; x < n_x; x++)
			to[x * to_stride + y] = from[y * from_stride + x];
}

/* The same for 16 times 16 bytes: interleaving the first and the second half of the rows four times. */
static void transpose_block(const uint8_t *from, size_t from_stride, uint8_t *to, size_t to_stride)
{
#if defined(__x86_64__)
	__m128i a[16], b[16];

	for (int i = 0; i < 16; i++)
		a[i] = _mm_loadu_si128((const void *)(from + (size_t)i * from_stride));
	for (int pass = 0; pass < 4; pass++) {
		for (int i = 0; i < 8; i++) {
			b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 8]);
			b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 8]);
		}
		memcpy(a, b, sizeof(a));
	}
	for (int i = 0; i < 16; i++)
		_mm_storeu_si128((void *)(to + (size_t)i * to_stride), a[i]);
#else
	transpose_bytes(from, from_stride, 16, 16, to, to_stride);
#endif
}

/* A tile of rows: step x holds the reds of pixel x in 16 rows, then the greens, then the blues. */
static void blur_rows(struct blur *b)
{
	const struct image *i = b->image;
	uint32_t n_bytes = i->width * 3;

	for (uint32_t y = 0; y < i->height; y += TILE_PX) {
		uint8_t *rows = i->rgb + (size_t)y * i->stride_bytes;
		uint32_t n_rows = i->height - y < TILE_PX ? i->height - y : TILE_PX, x = 0;
		uint32_t n_whole = n_rows < TILE_PX ? 0 : n_bytes / TILE_PX * TILE_PX;
		const uint8_t *made;

		memset(b->tile, 0, n_rows < TILE_PX ? (size_t)i->width * LANES : 0);
		for (; x < n_whole; x += TILE_PX)
			transpose_block(rows + x, i->stride_bytes, b->tile + (size_t)x * TILE_PX, TILE_PX);
		transpose_bytes(rows + x, i->stride_bytes, n_bytes - x, n_rows, b->tile + (size_t)x * TILE_PX, TILE_PX);
		made = blur_tile(b, i->width);
		for (x = 0; x < n_whole; x += TILE_PX)
			transpose_block(made + (size_t)x * TILE_PX, TILE_PX, rows + x, i->stride_bytes);
		transpose_bytes(made + (size_t)x * TILE_PX, TILE_PX, n_rows, n_bytes - x, rows + x, i->stride_bytes);
	}
}

/* Both axes by sums of the few pixels in their boxes, if they are so small. */
static bool blur_small(struct image *i, float x_radius, float y_radius, struct scratch *room, int *rc)
{
	struct box x = { 0 }, y = { 0 };

	if (x_radius != 0)
		x = box_of(x_radius);
	if (y_radius != 0)
		y = box_of(y_radius);
	if (x.radius > BOX_SMALL_MAX_RADIUS || y.radius > BOX_SMALL_MAX_RADIUS)
		return false;
	*rc = box_small(i, x_radius != 0 ? &x : NULL, y_radius != 0 ? &y : NULL, room);
	return true;
}

int blur_pillow(struct image *i, float x_radius, float y_radius, struct scratch *room)
{
	struct blur b = { .image = i };
	int rc;
	size_t tile_bytes = (size_t)(i->width > i->height ? i->width : i->height) * LANES;

	if (blur_small(i, x_radius, y_radius, room, &rc))
		return rc;
	b.tile = scratch_reserve(room, 2 * tile_bytes);
	if (!b.tile)
		return -ENOMEM;
	b.other = b.tile + tile_bytes;
	if (x_radius != 0) {
		set_box(&b, x_radius);
		blur_rows(&b);
	}
	if (y_radius != 0) {
		set_box(&b, y_radius);
		blur_columns(&b);
	}
	return 0;
}
