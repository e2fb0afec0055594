/* The blocks in plain C: the reference for the other paths.
 *
 * The inverse DCT is the accurate integer one after Loeffler, Ligtenberg and Moschytz that libjpeg calls ISLOW, as in
 * its SIMD versions: 16-bit inputs, 32-bit products, and saturation between the passes. For every block that an encoder
 * makes, the result equals that of libjpeg's C code. For a damaged block it equals the usual result, because common
 * builds of libjpeg-turbo use SIMD. */
#include <stdbool.h>
#include <string.h>

#include "image/jpeg/blocks.h"
#include "image/jpeg/idct-small.h"

enum { CONST_BITS = 13, PASS1_BITS = 2 };

static int16_t blocks_c_wrap16(int32_t v)
{
	return (int16_t)(uint16_t)(uint32_t)v;
}

static int32_t blocks_c_clamp(int32_t v, int32_t low, int32_t high)
{
	return v < low ? low : v > high ? high : v;
}

/* a * ka + b * kb, wrapping. */
static uint32_t blocks_c_products(int16_t a, int32_t ka, int16_t b, int32_t kb)
{
	return (uint32_t)(a * ka) + (uint32_t)(b * kb);
}

static int16_t blocks_c_descale(uint32_t v, unsigned shift)
{
	return (int16_t)blocks_c_clamp((int32_t)(v + (1u << (shift - 1))) >> shift, INT16_MIN, INT16_MAX);
}

/* One dimension: eight values `step` apart, in place. The constants are cosines in units of 1 / 8192. */
static void idct_1d(int16_t *v, size_t step, unsigned shift)
{
	const int16_t v0 = v[0], v1 = v[step], v2 = v[2 * step], v3 = v[3 * step];
	const int16_t v4 = v[4 * step], v5 = v[5 * step], v6 = v[6 * step], v7 = v[7 * step];

	uint32_t sum = (uint32_t)(blocks_c_wrap16(v0 + v4) * (1 << CONST_BITS));
	uint32_t difference = (uint32_t)(blocks_c_wrap16(v0 - v4) * (1 << CONST_BITS));
	uint32_t rotated2 = blocks_c_products(v2, 4433, v6, 4433 - 15137);
	uint32_t rotated3 = blocks_c_products(v2, 4433 + 6270, v6, 4433);
	const uint32_t even[4] = { sum + rotated3, difference + rotated2, difference - rotated2, sum - rotated3 };

	int16_t z3 = blocks_c_wrap16(v7 + v3), z4 = blocks_c_wrap16(v5 + v1);
	uint32_t p3 = blocks_c_products(z3, 9633 - 16069, z4, 9633);
	uint32_t p4 = blocks_c_products(z3, 9633, z4, 9633 - 3196);
	const uint32_t odd[4] = {
		blocks_c_products(v7, -7373, v1, 12299 - 7373) + p4,
		blocks_c_products(v5, -20995, v3, 25172 - 20995) + p3,
		blocks_c_products(v5, 16819 - 20995, v3, -20995) + p4,
		blocks_c_products(v7, 2446 - 7373, v1, -7373) + p3,
	};
	for (unsigned i = 0; i < 4; i++) {
		v[i * step] = blocks_c_descale(even[i] + odd[i], shift);
		v[(7 - i) * step] = blocks_c_descale(even[i] - odd[i], shift);
	}
}

static int idct_one(int16_t *coef, const uint16_t *quant, uint8_t *out, size_t stride_bytes)
{
	int16_t v[64];
	int bad = 0;

	for (unsigned row = 0; row < 8; row++)
		for (unsigned column = 0; column < 8; column++)
			v[row * 8 + column] = blocks_c_wrap16(coef[row * COEF_ROW + column] *
							      (int16_t)quant[row * COEF_ROW + column]);
	for (unsigned column = 0; column < 8; column++)
		bad |= v[column] < -DEQUANTIZED_MAX - 1 || v[column] > DEQUANTIZED_MAX;
	for (unsigned column = 0; column < 8; column++)
		idct_1d(v + column, 8, CONST_BITS - PASS1_BITS);
	for (unsigned row = 0; row < 8; row++) {
		idct_1d(v + row * 8, 1, CONST_BITS + PASS1_BITS + 3);
		for (unsigned column = 0; column < 8; column++)
			out[row * stride_bytes + column] =
				(uint8_t)(blocks_c_clamp(v[row * 8 + column], -128, 127) + 128);
	}
	return bad;
}

static int idct_pair(int16_t coef[COEF_PAIR], const uint16_t quant[COEF_PAIR], unsigned last, uint8_t *a, uint8_t *b,
		     size_t stride_bytes)
{
	int bad = idct_one(coef, quant, a, stride_bytes) | idct_one(coef + 8, quant + 8, b, stride_bytes);

	(void)last; /* the reference does not use it */
	memset(coef, 0, COEF_PAIR * sizeof(*coef));
	return bad;
}

static int idct_small(unsigned edge, int16_t *coef, const uint16_t *quant, unsigned last, uint8_t *out,
		      size_t stride_bytes)
{
	return idct_small_block(edge, coef, quant, last, out, stride_bytes);
}

/* ---- colour; constants in units of 1 / 65536, rounded to nearest ---- */

static void blocks_c_pixel(uint8_t y, uint8_t blue, uint8_t red, uint8_t *rgb)
{
	int32_t cb = blue - 128, cr = red - 128;

	rgb[0] = (uint8_t)blocks_c_clamp(y + ((91881 * cr + 32768) >> 16), 0, 255);
	rgb[1] = (uint8_t)blocks_c_clamp(y + ((-22554 * cb - 46802 * cr + 32768) >> 16), 0, 255);
	rgb[2] = (uint8_t)blocks_c_clamp(y + ((116130 * cb + 32768) >> 16), 0, 255);
}

static void blocks_c_ycc(const uint8_t *y, const struct chroma_row *c, uint8_t *rgb, uint32_t n_px)
{
	for (uint32_t i = 0; i < n_px; i++)
		blocks_c_pixel(y[i], c->near[0][i], c->near[1][i], rgb + 3 * i);
}

/* Halved horizontally: three quarters of the pixel's own sample, a quarter of the neighbour's; rounding alternates. */
static void ycc_h2(const uint8_t *y, const struct chroma_row *c, uint8_t *rgb, uint32_t n_px)
{
	for (uint32_t i = 0; i < n_px; i++) {
		uint32_t odd = (i + (uint32_t)c->odd) & 1, at = (i + (uint32_t)c->odd) / 2;
		uint8_t up[2];

		for (unsigned k = 0; k < 2; k++) {
			const uint8_t *s = c->near[k] + at;

			up[k] = (uint8_t)(odd ? (3 * s[0] + s[1] + 2) >> 2 : (3 * s[0] + s[-1] + 1) >> 2);
		}
		blocks_c_pixel(y[i], up[0], up[1], rgb + 3 * i);
	}
}

static void ycc_v2(const uint8_t *y, const struct chroma_row *c, uint8_t *rgb, uint32_t n_px)
{
	for (uint32_t i = 0; i < n_px; i++) {
		uint8_t up[2];

		for (unsigned k = 0; k < 2; k++)
			up[k] = (uint8_t)((3 * c->near[k][i] + c->far[k][i] + (c->below ? 2 : 1)) >> 2);
		blocks_c_pixel(y[i], up[0], up[1], rgb + 3 * i);
	}
}

/* Both: sixteenths, rounded once. */
static void ycc_h2v2(const uint8_t *y, const struct chroma_row *c, uint8_t *rgb, uint32_t n_px)
{
	for (uint32_t i = 0; i < n_px; i++) {
		uint32_t odd = (i + (uint32_t)c->odd) & 1, at = (i + (uint32_t)c->odd) / 2;
		uint8_t up[2];

		for (unsigned k = 0; k < 2; k++) {
			const uint8_t *near = c->near[k] + at, *far = c->far[k] + at;
			int own = 3 * near[0] + far[0];

			up[k] = (uint8_t)(odd ? (3 * own + 3 * near[1] + far[1] + 7) >> 4
					      : (3 * own + 3 * near[-1] + far[-1] + 8) >> 4);
		}
		blocks_c_pixel(y[i], up[0], up[1], rgb + 3 * i);
	}
}

static void blocks_c_interleave(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint8_t *rgb, uint32_t n_px)
{
	for (uint32_t i = 0; i < n_px; i++) {
		rgb[3 * i] = r[i];
		rgb[3 * i + 1] = g[i];
		rgb[3 * i + 2] = b[i];
	}
}

const struct blocks_ops blocks_c = {
	"c", idct_pair, idct_small, { { blocks_c_ycc, ycc_h2 }, { ycc_v2, ycc_h2v2 } }, blocks_c_interleave
};
