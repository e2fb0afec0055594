/* The transforms. Coordinates, weights and sums are doubles in Pillow's order of operations. Nearest neighbour of an
 * affine transform has paths of its own in Pillow, whose rounding errors are part of the result:
 *
 * - scaling without rotation adds the step in double from pixel to pixel;
 * - others use 16.16 fixed point, if all corners are inside +-32768;
 * - else the steps are added in double.
 *
 * Places past the last pixel's middle have the last pixel as their neighbour, which is what Pillow's case distinctions
 * amount to. */
#include "image/kernels/exact.h"

#include "image/kernels/warp.h"

#include <math.h>
#include <string.h>

#include "image/kernels/processor.h"
#include "image/kernels/warp-paths.h"


static void fill_row(uint8_t *row, uint32_t n_px, const uint8_t fill[3])
{
	for (uint32_t x = 0; x < n_px; x++)
		memcpy(row + (size_t)x * 3, fill, 3);
}

/* Whole pixels; -1 for all values outside 0..2^31 - 1, which no image has. */
static int32_t warp_whole(double v)
{
	return v >= 0.0 && v < 0x1p31 ? (int32_t)v : -1;
}

static bool warp_inside(int32_t at, uint32_t size)
{
	return at >= 0 && (uint32_t)at < size;
}

static uint8_t *dst_row(const struct image *dst, uint32_t y)
{
	return dst->rgb + (size_t)y * dst->stride_bytes;
}

static const uint8_t *src_px(const struct image *src, int32_t x, int32_t y)
{
	return src->rgb + (size_t)y * src->stride_bytes + (size_t)x * 3;
}

static void scale_nearest(const struct warp *w, const struct image *src, struct image *dst)
{
	double from_y = w->m[5] + w->m[4] * 0.5;

	for (uint32_t y = 0; y < dst->height; y++, from_y += w->m[4]) {
		double from_x = w->m[2] + w->m[0] * 0.5;
		int32_t at_y = warp_whole(from_y);
		uint8_t *to = dst_row(dst, y);

		if (!warp_inside(at_y, src->height)) {
			fill_row(to, dst->width, w->fill);
			continue;
		}
		for (uint32_t x = 0; x < dst->width; x++, to += 3, from_x += w->m[0]) {
			int32_t at_x = warp_whole(from_x);

			memcpy(to, warp_inside(at_x, src->width) ? src_px(src, at_x, at_y) : w->fill, 3);
		}
	}
}

static bool fits_fixed(const struct warp *w, uint32_t x, uint32_t y)
{
	return fabs(x * w->m[0] + y * w->m[1] + w->m[2]) < 32768.0 &&
	       fabs(x * w->m[3] + y * w->m[4] + w->m[5]) < 32768.0;
}

/* To 16.16, modulo 2^32: sums of steps stay in range wherever a pixel is read. */
static uint32_t warp_fixed(double v)
{
	double scaled = floor(v * 65536.0 + 0.5);

	return fabs(scaled) < 0x1p62 ? (uint32_t)(int64_t)scaled : 0;
}

static void fixed_nearest(const struct warp *w, const struct image *src, struct image *dst)
{
	const double *m = w->m;
	uint32_t step_x = warp_fixed(m[0]), step_y = warp_fixed(m[3]), down_x = warp_fixed(m[1]),
		 down_y = warp_fixed(m[4]);
	uint32_t row_x = warp_fixed(m[2] + m[0] * 0.5 + m[1] * 0.5), row_y = warp_fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);

	for (uint32_t y = 0; y < dst->height; y++, row_x += down_x, row_y += down_y) {
		uint32_t from_x = row_x, from_y = row_y;
		uint8_t *to = dst_row(dst, y);

		for (uint32_t x = 0; x < dst->width; x++, to += 3, from_x += step_x, from_y += step_y) {
			int32_t at_x = (int32_t)from_x >> 16, at_y = (int32_t)from_y >> 16;
			bool is_inside = warp_inside(at_x, src->width) && warp_inside(at_y, src->height);

			memcpy(to, is_inside ? src_px(src, at_x, at_y) : w->fill, 3);
		}
	}
}

static void far_nearest(const struct warp *w, const struct image *src, struct image *dst)
{
	const double *m = w->m;
	double row_x = m[2] + m[1] * 0.5 + m[0] * 0.5, row_y = m[5] + m[4] * 0.5 + m[3] * 0.5;

	for (uint32_t y = 0; y < dst->height; y++, row_x += m[1], row_y += m[4]) {
		double from_x = row_x, from_y = row_y;
		uint8_t *to = dst_row(dst, y);

		for (uint32_t x = 0; x < dst->width; x++, to += 3, from_x += m[0], from_y += m[3]) {
			int32_t at_x = warp_whole(from_x), at_y = warp_whole(from_y);
			bool is_inside = warp_inside(at_x, src->width) && warp_inside(at_y, src->height);

			memcpy(to, is_inside ? src_px(src, at_x, at_y) : w->fill, 3);
		}
	}
}

static void affine_nearest(const struct warp *w, const struct image *src, struct image *dst)
{
	uint32_t width = dst->width, height = dst->height;

	if (w->m[1] == 0 && w->m[3] == 0)
		scale_nearest(w, src, dst);
	else if (fits_fixed(w, 0, 0) && fits_fixed(w, width, height) && fits_fixed(w, 0, height) &&
		 fits_fixed(w, width, 0))
		fixed_nearest(w, src, dst);
	else
		far_nearest(w, src, dst);
}

struct place {
	double x, y;
};

static struct place warp_place_of(const struct warp *w, uint32_t x, uint32_t y)
{
	const double *m = w->m;
	double u = x + 0.5, v = y + 0.5;
	struct place p = { m[0] * u + m[1] * v + m[2], m[3] * u + m[4] * v + m[5] };

	if (w->perspective) {
		double depth = m[6] * u + m[7] * v + 1;

		p.x /= depth;
		p.y /= depth;
	}
	return p;
}

static int32_t warp_clamp(int32_t at, uint32_t size)
{
	return at < 0 ? 0 : (uint32_t)at < size ? at : (int32_t)size - 1;
}

static void nearest_px(const struct image *src, struct place p, uint8_t *to)
{
	memcpy(to, src_px(src, (int32_t)p.x, (int32_t)p.y), 3);
}

static double warp_between(double a, double b, double share)
{
	return a + (b - a) * share;
}

static void bilinear_px(const struct image *src, struct place p, uint8_t *to)
{
	double left = floor(p.x - 0.5), top = floor(p.y - 0.5), dx = p.x - 0.5 - left, dy = p.y - 0.5 - top;
	int32_t x = (int32_t)left, y = (int32_t)top;
	const uint8_t *above = src_px(src, 0, warp_clamp(y, src->height)),
		      *below = src_px(src, 0, warp_clamp(y + 1, src->height));
	int32_t x0 = warp_clamp(x, src->width) * 3, x1 = warp_clamp(x + 1, src->width) * 3;

	for (int c = 0; c < 3; c++)
		to[c] = (uint8_t)warp_between(warp_between(above[x0 + c], above[x1 + c], dx),
					      warp_between(below[x0 + c], below[x1 + c], dx), dy);
}

static double warp_cubic(double a, double b, double c, double d, double share)
{
	double p1 = b, p2 = -a + c, p3 = 2 * (a - b) + c - d, p4 = -a + b - c + d;

	return p1 + share * (p2 + share * (p3 + share * p4));
}

static uint8_t warp_clipped(double v)
{
	return v <= 0.0 ? 0 : v >= 255.0 ? 255 : (uint8_t)v;
}

static void bicubic_px(const struct image *src, struct place p, uint8_t *to)
{
	double left = floor(p.x - 0.5), top = floor(p.y - 0.5), dx = p.x - 0.5 - left, dy = p.y - 0.5 - top;
	const uint8_t *rows[4];
	int32_t at[4];

	for (int i = 0; i < 4; i++) {
		rows[i] = src_px(src, 0, warp_clamp((int32_t)top - 1 + i, src->height));
		at[i] = warp_clamp((int32_t)left - 1 + i, src->width) * 3;
	}
	for (int c = 0; c < 3; c++) {
		double v[4];

		for (int i = 0; i < 4; i++)
			v[i] = warp_cubic(rows[i][at[0] + c], rows[i][at[1] + c], rows[i][at[2] + c],
					  rows[i][at[3] + c], dx);
		to[c] = warp_clipped(warp_cubic(v[0], v[1], v[2], v[3], dy));
	}
}

/* A place that is not a number (0 / 0 in a perspective) is black in Pillow, except with nearest neighbour. */
static const uint8_t *outside(const struct warp *w, const struct image *src, struct place p)
{
	static const uint8_t black[3];
	bool out = p.x < 0.0 || p.x >= src->width || p.y < 0.0 || p.y >= src->height;

	return out || w->filter == FILTER_NEAREST ? w->fill : black;
}

enum { ALONE_PX = 4 }; /* made one by one before the path is asked again */

static warp_run *path_of(enum filter f)
{
#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX512 && f == FILTER_BICUBIC)
		return warp_bicubic_avx512;
	if (processor_path() >= PROCESSOR_AVX2)
		return f == FILTER_BILINEAR ? warp_bilinear_avx2 : warp_bicubic_avx2;
#endif
	(void)f;
	return NULL;
}

/* run: the path for pixels inside, or NULL. */
static inline __attribute__((always_inline)) void general(
	const struct warp *w, const struct image *src, struct image *dst,
	void (*make)(const struct image *src, struct place p, uint8_t *to), warp_run *run)
{
	for (uint32_t y = 0; y < dst->height; y++) {
		uint8_t *to = dst_row(dst, y);
		uint32_t end = 0; /* of the pixels that are made one by one */

		for (uint32_t x = 0; x < dst->width; x++, to += 3) {
			struct place p;

			if (run && x >= end) {
				uint32_t n = run(w, src, x, y, dst->width - x, to);

				x += n;
				to += (size_t)n * 3;
				end = x + ALONE_PX;
				if (x == dst->width)
					break;
			}
			p = warp_place_of(w, x, y);
			if (p.x >= 0.0 && p.x < src->width && p.y >= 0.0 && p.y < src->height)
				make(src, p, to);
			else
				memcpy(to, outside(w, src, p), 3);
		}
	}
}

/* Whether the transform only moves pixels, by whole numbers. */
static bool is_shift(const struct warp *w)
{
	const double *m = w->m;

	return !w->perspective && m[0] == 1 && m[1] == 0 && m[3] == 0 && m[4] == 1 && fabs(m[2]) < 0x1p30 &&
	       fabs(m[5]) < 0x1p30 && m[2] == floor(m[2]) && m[5] == floor(m[5]);
}

static uint32_t clip_to(int64_t at, uint32_t size)
{
	return at < 0 ? 0 : at < size ? (uint32_t)at : size;
}

/* All filters give the pixel itself. */
static void warp_shift(const struct warp *w, const struct image *src, struct image *dst)
{
	int64_t left = (int64_t)w->m[2], top = (int64_t)w->m[5];
	/* Columns begin .. end - 1 of the result are inside the source. */
	uint32_t begin = clip_to(-left, dst->width), end = clip_to(src->width - left, dst->width);

	for (uint32_t y = 0; y < dst->height; y++) {
		uint8_t *to = dst_row(dst, y);
		int64_t from_y = y + top;

		if (from_y < 0 || from_y >= src->height || end <= begin) {
			fill_row(to, dst->width, w->fill);
			continue;
		}
		fill_row(to, begin, w->fill);
		memcpy(to + (size_t)begin * 3, src_px(src, (int32_t)(begin + left), (int32_t)from_y),
		       (size_t)(end - begin) * 3);
		fill_row(to + (size_t)end * 3, dst->width - end, w->fill);
	}
}

void warp(const struct warp *w, const struct image *src, struct image *dst)
{
	if (is_shift(w))
		warp_shift(w, src, dst);
	else if (w->filter == FILTER_NEAREST && !w->perspective)
		affine_nearest(w, src, dst);
	else if (w->filter == FILTER_NEAREST)
		general(w, src, dst, nearest_px, NULL);
	else if (w->filter == FILTER_BILINEAR)
		general(w, src, dst, bilinear_px, path_of(w->filter));
	else
		general(w, src, dst, bicubic_px, path_of(w->filter));
}

void warp_turn(enum matrix_turn turn, const struct image *src, struct image *dst)
{
	for (uint32_t y = 0; y < dst->height; y++) {
		uint8_t *to = dst_row(dst, y);

		for (uint32_t x = 0; x < dst->width; x++, to += 3) {
			uint32_t from_x = x, from_y = y;

			if (turn == TURN_90 || turn == TURN_270) {
				from_x = turn == TURN_90 ? src->width - 1 - y : y;
				from_y = turn == TURN_90 ? x : src->height - 1 - x;
			} else if (turn == TURN_180) {
				from_x = src->width - 1 - x;
				from_y = src->height - 1 - y;
			}
			memcpy(to, src_px(src, (int32_t)from_x, (int32_t)from_y), 3);
		}
	}
}
