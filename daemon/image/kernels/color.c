/* Colour operations. Each reproduces the rounding of the PIL function with its name:
 *
 * - ImageEnhance blends a degenerate image (black, mean grey, grey) with the image in float32 and truncates the result;
 *   only factors outside 0..1 are clipped.
 * - The hue is computed through PIL's 8-bit HSV, which mixes float and double; the types below are its types. The code
 *   avoids branches on pixel values, because processors mispredict them half of the time. */
#include "image/kernels/exact.h"

#include "image/kernels/color.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "image/kernels/blend.h"
#include "image/kernels/gray.h"
#include "image/kernels/hue-paths.h"
#include "image/kernels/lookup.h"
#include "image/kernels/processor.h"

static void blend_with_constant(struct image *i, uint8_t degenerate, float factor)
{
	size_t n = (size_t)i->width * 3;
	uint8_t table[256];

	if (processor_path() == PROCESSOR_AVX2) { /* has no fast lookup */
		for (uint32_t y = 0; y < i->height; y++)
			blend_constant(degenerate, i->rgb + (size_t)y * i->stride_bytes, n, factor);
		return;
	}
	for (int v = 0; v < 256; v++)
		table[v] = (uint8_t)v;
	blend_constant(degenerate, table, sizeof(table), factor);
	for (uint32_t y = 0; y < i->height; y++)
		lookup_bytes(table, i->rgb + (size_t)y * i->stride_bytes, n);
}

void color_brightness(struct image *i, float factor)
{
	blend_with_constant(i, 0, factor);
}

void color_contrast(struct image *i, float factor)
{
	uint64_t sum = 0;
	double mean;

	for (uint32_t y = 0; y < i->height; y++)
		sum += gray_sum(i->rgb + (size_t)y * i->stride_bytes, i->width);
	mean = (double)sum / (double)((uint64_t)i->width * i->height);
	blend_with_constant(i, (uint8_t)(mean + 0.5), factor);
}

enum { CHUNK_PX = 256 }; /* pixels whose greys are kept at a time */

/* Blends the greys with the image; factor 0 is the greys alone. */
static void blend_with_gray(struct image *i, float factor)
{
	uint8_t gray[CHUNK_PX * 3];

	for (uint32_t y = 0; y < i->height; y++) {
		uint8_t *p = i->rgb + (size_t)y * i->stride_bytes;

		for (uint32_t left = i->width, n; left > 0; left -= n, p += (size_t)n * 3) {
			n = left < CHUNK_PX ? left : CHUNK_PX;
			gray_triples(p, n, gray);
			if (factor == 0.0f)
				memcpy(p, gray, (size_t)n * 3);
			else
				blend_bytes(gray, p, (size_t)n * 3, factor);
		}
	}
}

void color_saturation(struct image *i, float factor)
{
#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX512 && fabsf(factor) <= SATURATE_MOST) {
		for (uint32_t y = 0; y < i->height; y++)
			saturate_avx512(i->rgb + (size_t)y * i->stride_bytes, i->width, factor);
		return;
	}
#endif
	blend_with_gray(i, factor);
}

void color_grayscale(struct image *i)
{
#if defined(__x86_64__)
	if (processor_path() >= PROCESSOR_AVX512) {
		for (uint32_t y = 0; y < i->height; y++)
			grayscale_avx512(i->rgb + (size_t)y * i->stride_bytes, i->width);
		return;
	}
#endif
	blend_with_gray(i, 0.0f);
}

/* PIL's HSV to RGB for each hue: which sixth of the circle, and how far into it. */
struct hue {
	int32_t sector[256];
	float into[256], share[256]; /* share: of 255, for saturations */
};

static void hue_init(struct hue *t, uint8_t steps)
{
	for (int h = 0; h < 256; h++) {
		double sixths = (double)(uint8_t)(h + steps) * 6.0 / 255.0;
		int sector = (int)sixths;

		t->sector[h] = sector % 6;
		t->into[h] = (float)(sixths - (double)sector);
		t->share[h] = (float)((double)h / 255.0);
	}
}

struct hsv {
	uint8_t h, s, v;
};

/* max and min of the pixel differ. */
static struct hsv hsv_of(const uint8_t *p, uint8_t max, uint8_t min)
{
	float range = (float)(max - min), saturation = range / (float)max;
	bool red = p[0] == max, green = !red && p[1] == max;
	/* Red is the largest: (max - b) - (max - g); green: 2 + (max - r) - (max - b); blue: 4 + (max - g) - (max -
	 * r). */
	uint8_t plus = red ? p[2] : green ? p[0] : p[1], minus = red ? p[1] : green ? p[2] : p[0];
	double offset = red ? 0.0 : green ? 2.0 : 4.0;
	float hue = (float)(offset + (double)((float)(max - plus) / range) - (double)((float)(max - minus) / range));
	double turns = (double)hue / 6.0 + 1.0;

	turns = turns >= 1.0 ? turns - 1.0 : turns; /* fmod(turns, 1), which is below 2 */
	hue = (float)turns;
	return (struct hsv){ (uint8_t)(int)((double)hue * 255.0), (uint8_t)(int)((double)saturation * 255.0), max };
}

/* round() of a non-negative number; no value here is so close below a half that the addition would round up (a test
 * tries all). */
static uint8_t color_rounded(double x)
{
	return (uint8_t)(int)(x + 0.5);
}

static void rgb_of(const struct hue *t, struct hsv c, uint8_t *p)
{
	enum { FULL, RISING, LOW, FALLING };
	static const uint8_t parts[6][3] = {
		{ FULL, RISING, LOW },  { FALLING, FULL, LOW }, { LOW, FULL, RISING },
		{ LOW, FALLING, FULL }, { RISING, LOW, FULL },  { FULL, LOW, FALLING },
	};
	const uint8_t *part = parts[t->sector[c.h]];
	float f = t->into[c.h], s = t->share[c.s], sf = s * f;
	double v = (double)c.v;
	uint8_t level[4] = {
		[FULL] = c.v,
		[RISING] = color_rounded(v * (1.0 - (double)s * (1.0 - (double)f))),
		[LOW] = color_rounded(v * (1.0 - (double)s)),
		[FALLING] = color_rounded(v * (1.0 - (double)sf)),
	};

	for (int i = 0; i < 3; i++)
		p[i] = level[part[i]];
}

static void turn_pixel(const struct hue *t, uint8_t *p)
{
	uint8_t max = p[0] > p[1] ? p[0] : p[1], min = p[0] < p[1] ? p[0] : p[1];

	max = p[2] > max ? p[2] : max;
	min = p[2] < min ? p[2] : min;
	if (max != min) /* grey has no hue */
		rgb_of(t, hsv_of(p, max, min), p);
}

uint8_t color_hue_steps(double factor)
{
	return (uint8_t)(int32_t)(factor * 255);
}

static void turn_plain(struct image *i, uint8_t steps)
{
	struct hue t;

	hue_init(&t, steps);
	for (uint32_t y = 0; y < i->height; y++)
		for (uint32_t x = 0; x < i->width; x++)
			turn_pixel(&t, i->rgb + (size_t)y * i->stride_bytes + (size_t)x * 3);
}

void color_hue(struct image *i, uint8_t steps)
{
#if defined(__x86_64__)
	enum processor_path path = processor_path();

	for (uint32_t y = 0; y < i->height && path >= PROCESSOR_AVX2; y++)
		(path >= PROCESSOR_AVX512 ? hue_turn_avx512
					  : hue_turn_avx2)(steps, i->rgb + (size_t)y * i->stride_bytes, i->width);
	if (path >= PROCESSOR_AVX2)
		return;
#endif
	turn_plain(i, steps);
}
