/* Colour operations. Each reproduces the roundings of the PIL function it is named after:
 *
 * - ImageEnhance blends a degenerate image (black, mean grey, grey) with the image in float32 and cuts the fraction off; only factors outside
 *   0..1 are clipped. Where the degenerate is one colour, the blend is a table of 256 values.
 * - The hue goes through PIL's 8-bit HSV, which mixes float and double; the types below are its types.
 * Must not be compiled with fused multiply-adds. */
#include "image/color.h"

#include <math.h>
#include <stdbool.h>

static uint8_t gray_of(const uint8_t *p)
{
	return (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

static uint8_t blend(uint8_t degenerate, uint8_t v, float factor)
{
	float mixed = (float)degenerate + factor * (float)(v - degenerate);

	if (mixed <= 0.0f)
		return 0;
	return mixed >= 255.0f ? 255 : (uint8_t)mixed;
}

/* Image.blend with one colour; 0 and 1 are copies there, and the formula gives the same. */
static void blend_with_constant(struct image *i, uint8_t degenerate, float factor)
{
	uint8_t table[256];

	for (int v = 0; v < 256; v++)
		table[v] = blend(degenerate, (uint8_t)v, factor);
	for (uint32_t y = 0; y < i->height; y++) {
		uint8_t *row = i->rgb + (size_t)y * i->stride_bytes;

		for (size_t x = 0; x < (size_t)i->width * 3; x++)
			row[x] = table[row[x]];
	}
}

void color_brightness(struct image *i, float factor)
{
	blend_with_constant(i, 0, factor);
}

void color_contrast(struct image *i, float factor)
{
	uint64_t sum = 0;
	double mean;

	for (uint32_t y = 0; y < i->height; y++) {
		const uint8_t *row = i->rgb + (size_t)y * i->stride_bytes;

		for (size_t x = 0; x < i->width; x++)
			sum += gray_of(row + x * 3);
	}
	mean = (double)sum / (double)((uint64_t)i->width * i->height);
	blend_with_constant(i, (uint8_t)(mean + 0.5), factor);
}

void color_saturation(struct image *i, float factor)
{
	for (uint32_t y = 0; y < i->height; y++) {
		uint8_t *p = i->rgb + (size_t)y * i->stride_bytes;

		for (uint32_t x = 0; x < i->width; x++, p += 3) {
			uint8_t gray = gray_of(p);

			for (int c = 0; c < 3; c++)
				p[c] = blend(gray, p[c], factor);
		}
	}
}

void color_grayscale(struct image *i)
{
	for (uint32_t y = 0; y < i->height; y++) {
		uint8_t *p = i->rgb + (size_t)y * i->stride_bytes;

		for (uint32_t x = 0; x < i->width; x++, p += 3)
			p[0] = p[1] = p[2] = gray_of(p);
	}
}

static uint8_t clip8(int v)
{
	return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

struct hsv {
	uint8_t h, s, v;
};

/* max and min of r, g, b differ. */
static struct hsv hsv_of(const uint8_t *p, uint8_t max, uint8_t min)
{
	float range = (float)(max - min), saturation = range / (float)max;
	float r = (float)(max - p[0]) / range, g = (float)(max - p[1]) / range, b = (float)(max - p[2]) / range;
	float hue;

	if (p[0] == max)
		hue = b - g;
	else if (p[1] == max)
		hue = (float)(2.0 + (double)r - (double)b);
	else
		hue = (float)(4.0 + (double)g - (double)r);
	hue = (float)fmod((double)hue / 6.0 + 1.0, 1.0);
	return (struct hsv){ clip8((int)((double)hue * 255.0)), clip8((int)((double)saturation * 255.0)), max };
}

static void rgb_of(struct hsv c, uint8_t *p)
{
	double sixths = (double)(float)c.h * 6.0 / 255.0, v = (double)c.v;
	int sector = (int)floor(sixths);
	float f = (float)(sixths - (double)(float)sector), s = (float)((double)c.s / 255.0), sf = s * f;
	uint8_t low = clip8((int)round(v * (1.0 - (double)s)));
	uint8_t falling = clip8((int)round(v * (1.0 - (double)sf)));
	uint8_t rising = clip8((int)round(v * (1.0 - (double)s * (1.0 - (double)f))));

	switch (sector % 6) {
	case 0: p[0] = c.v; p[1] = rising; p[2] = low; break;
	case 1: p[0] = falling; p[1] = c.v; p[2] = low; break;
	case 2: p[0] = low; p[1] = c.v; p[2] = rising; break;
	case 3: p[0] = low; p[1] = falling; p[2] = c.v; break;
	case 4: p[0] = rising; p[1] = low; p[2] = c.v; break;
	default: p[0] = c.v; p[1] = low; p[2] = falling; break;
	}
}

static void turn_pixel(uint8_t *p, uint8_t steps)
{
	uint8_t max = p[0] > p[1] ? p[0] : p[1], min = p[0] < p[1] ? p[0] : p[1];
	struct hsv c;

	max = p[2] > max ? p[2] : max;
	min = p[2] < min ? p[2] : min;
	if (max == min)
		return; /* grey has no hue */
	c = hsv_of(p, max, min);
	c.h = (uint8_t)(c.h + steps);
	if (c.s == 0)
		p[0] = p[1] = p[2] = c.v;
	else
		rgb_of(c, p);
}

uint8_t color_hue_steps(double factor)
{
	return (uint8_t)(int32_t)(factor * 255);
}

void color_hue(struct image *i, uint8_t steps)
{
	for (uint32_t y = 0; y < i->height; y++) {
		uint8_t *p = i->rgb + (size_t)y * i->stride_bytes;

		for (uint32_t x = 0; x < i->width; x++, p += 3)
			turn_pixel(p, steps);
	}
}
