/* The plain C path: the reference for tests of every SIMD path, and the path for processors without SIMD. */
#include "image/kernels/resample/paths.h"

static bool resample_c_can_run(void)
{
	return true;
}

static void resample_c_horizontal_row(const struct taps *t, const uint8_t *src, uint8_t *dst)
{
	for (uint32_t x = 0; x < t->made.n; x++, dst += 3) {
		const uint8_t *in = src + (size_t)t->first[x] * 3;
		const int32_t *k = t->k + (size_t)x * t->width;
		int32_t r = 1 << (TAPS_PRECISION_BITS - 1), g = r, b = r;

		for (uint32_t j = 0; j < t->count[x]; j++, in += 3) {
			r += in[0] * k[j];
			g += in[1] * k[j];
			b += in[2] * k[j];
		}
		dst[0] = resample_clip(r);
		dst[1] = resample_clip(g);
		dst[2] = resample_clip(b);
	}
}

static void resample_c_horizontal(const struct taps *t, const void *table, const uint8_t *src, size_t src_stride,
				  uint8_t *dst, size_t dst_stride, unsigned n_rows)
{
	(void)table;
	for (unsigned y = 0; y < n_rows; y++)
		resample_c_horizontal_row(t, src + y * src_stride, dst + y * dst_stride);
}

static void resample_c_vertical(const int32_t *k, uint32_t n_rows, const uint8_t *const *rows, uint8_t *dst,
				size_t n_bytes)
{
	for (size_t i = 0; i < n_bytes; i++) {
		int32_t sum = 1 << (TAPS_PRECISION_BITS - 1);

		for (uint32_t j = 0; j < n_rows; j++)
			sum += rows[j][i] * k[j];
		dst[i] = resample_clip(sum);
	}
}

const struct resample_path resample_c = {
	.name = "c",
	.can_run = resample_c_can_run,
	.horizontal = resample_c_horizontal,
	.vertical = resample_c_vertical,
};
