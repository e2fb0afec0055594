/* The NEON path of 64-bit ARM, which multiplies and adds 32-bit lanes directly: a pixel value times a weight of 23 bits
 * fits. Horizontally a register is one pixel (red, green, blue and the next pixel's red, whose sum is dropped);
 * vertically lanes are bytes of the row. */
#if defined(__aarch64__)
#include "image/kernels/resample/paths.h"

#include <arm_neon.h>
#include <string.h>

enum { ROUND = 1 << (TAPS_PRECISION_BITS - 1) };

static bool resample_neon_can_run(void)
{
	return true; /* every 64-bit ARM has it */
}

/* Four bytes at any address as four 32-bit lanes. */
static inline int32x4_t resample_neon_widen4(const uint8_t *from)
{
	uint32_t bytes;

	memcpy(&bytes, from, sizeof(bytes));
	return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes)))));
}

static void resample_neon_horizontal_row(const struct taps *t, const uint8_t *src, uint8_t *dst)
{
	for (uint32_t x = 0; x < t->made.n; x++, dst += 3) {
		const uint8_t *in = src + (size_t)t->first[x] * 3;
		const int32_t *k = t->k + (size_t)x * t->width;
		int32x4_t sum = vdupq_n_s32(ROUND);
		uint16x4_t words;
		uint32_t px;

		for (uint32_t j = 0; j < t->count[x]; j++, in += 3)
			sum = vmlaq_n_s32(sum, resample_neon_widen4(in), k[j]);
		words = vqmovun_s32(vshrq_n_s32(sum, TAPS_PRECISION_BITS));
		px = vget_lane_u32(vreinterpret_u32_u8(vqmovn_u16(vcombine_u16(words, words))), 0);
		memcpy(dst, &px, 4); /* one byte too many, which the next pixel or the slack absorbs */
	}
}

static void resample_neon_horizontal(const struct taps *t, const void *table, const uint8_t *src, size_t src_stride,
				     uint8_t *dst, size_t dst_stride, unsigned n_rows)
{
	(void)table;
	for (unsigned y = 0; y < n_rows; y++)
		resample_neon_horizontal_row(t, src + y * src_stride, dst + y * dst_stride);
}

static inline uint16x4_t to_words(int32x4_t sum)
{
	return vqmovun_s32(vshrq_n_s32(sum, TAPS_PRECISION_BITS));
}

static inline uint8x16_t sum_columns(const int32_t *k, uint32_t n_rows, const uint8_t *const *rows, size_t i)
{
	int32x4_t s[4] = { vdupq_n_s32(ROUND), vdupq_n_s32(ROUND), vdupq_n_s32(ROUND), vdupq_n_s32(ROUND) };

	for (uint32_t j = 0; j < n_rows; j++) {
		uint8x16_t bytes = vld1q_u8(rows[j] + i);
		uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));

		s[0] = vmlaq_n_s32(s[0], vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))), k[j]);
		s[1] = vmlaq_n_s32(s[1], vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))), k[j]);
		s[2] = vmlaq_n_s32(s[2], vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))), k[j]);
		s[3] = vmlaq_n_s32(s[3], vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high))), k[j]);
	}
	return vcombine_u8(vqmovn_u16(vcombine_u16(to_words(s[0]), to_words(s[1]))),
			   vqmovn_u16(vcombine_u16(to_words(s[2]), to_words(s[3]))));
}

static void resample_neon_vertical(const int32_t *k, uint32_t n_rows, const uint8_t *const *rows, uint8_t *dst,
				   size_t n_bytes)
{
	size_t i = 0;

	if (n_bytes < 16) {
		resample_c.vertical(k, n_rows, rows, dst, n_bytes);
		return;
	}
	for (; i + 16 <= n_bytes; i += 16)
		vst1q_u8(dst + i, sum_columns(k, n_rows, rows, i));
	if (i < n_bytes) /* the last 16 bytes overlap those before */
		vst1q_u8(dst + n_bytes - 16, sum_columns(k, n_rows, rows, n_bytes - 16));
}

const struct resample_path resample_neon = {
	.name = "neon",
	.can_run = resample_neon_can_run,
	.horizontal = resample_neon_horizontal,
	.vertical = resample_neon_vertical,
};
#endif
