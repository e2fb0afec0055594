/* The finishing step's constants, and the step itself in C for machines without a GPU. */
#include "finish/convert-plan.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* 1 / x to about 48 bits, computed as in the daemon's finisher. */
static void convert_plan_reciprocal(float x, float *high, float *low)
{
	*high = 1.0f / x;
	*low = (float)((1.0 - (double)x * (double)*high) / (double)x);
}

static bool convert_plan_is_exact(const struct convert_plan *p, uint32_t channel)
{
	for (uint32_t v = 0; v < 256; v++) {
		float wanted = convert_by_division((float)v, p->mean[channel], p->std[channel]);
		float is = convert_by_reciprocal((float)v, p->scale_high, p->scale_low, p->mean[channel],
						 p->std_high[channel], p->std_low[channel]);

		if (memcmp(&wanted, &is, sizeof is) != 0)
			return false;
	}
	return true;
}

/* Of 32 bits; with it convert_image_of is exact for 31. Hacker's Delight, 10-9. */
static void set_plane(struct convert_plan *p, uint32_t plane)
{
	p->plane = plane;
	p->plane_shift = 31;
	while (plane > 1ull << (p->plane_shift - 31))
		p->plane_shift++;
	p->plane_inverse = (uint32_t)(((1ull << p->plane_shift) + plane - 1) / plane);
}

void convert_plan_init(struct convert_plan *p, enum convert_number number, int planar, uint32_t n_channels,
		       uint32_t plane, const float *mean, const float *std)
{
	*p = (struct convert_plan){ .n_channels = n_channels, .number = (uint32_t)number, .planar = !!planar };
	set_plane(p, plane);
	convert_plan_reciprocal(255.0f, &p->scale_high, &p->scale_low);
	for (uint32_t c = 0; c < n_channels; c++) {
		p->mean[c] = mean ? mean[c] : 0.0f;
		p->std[c] = std ? std[c] : 1.0f;
		convert_plan_reciprocal(p->std[c], &p->std_high[c], &p->std_low[c]);
		p->divides |= !convert_plan_is_exact(p, c);
	}
}

uint16_t convert_to_float16(float value)
{
	union {
		float f;
		uint32_t u;
	} v = { .f = value }, half = { .f = 0.5f }; /* its last bit is the smallest half */
	uint32_t sign = v.u >> 16 & 0x8000, bits = v.u & 0x7fffffff;

	if (bits > 0x7f800000)
		return 0x7fff; /* not a number: the result of the GPU's conversion */
	if (bits >= 0x47800000)
		return (uint16_t)(sign | 0x7c00);
	if (bits < 0x38800000) { /* subnormal: the addition does the rounding */
		v.u = bits;
		v.f += half.f;
		return (uint16_t)(sign | (v.u - half.u));
	}
	return (uint16_t)(sign | (bits + ((uint32_t)(15 - 127) << 23) + 0xfff + (bits >> 13 & 1)) >> 13);
}

float convert_from_float16(uint16_t half)
{
	uint32_t exponent = half >> 10 & 31, fraction = half & 1023;
	union {
		uint32_t u;
		float f;
	} v = { .u = exponent == 31 ? 0x7f800000 | fraction << 13 : (exponent + 112) << 23 | fraction << 13 };

	if (!exponent)
		v.f = (float)fraction * 0x1p-24f;
	v.u |= (uint32_t)(half & 0x8000) << 16;
	return v.f;
}

uint16_t convert_to_bfloat16(float value)
{
	union {
		float f;
		uint32_t u;
	} v = { .f = value };

	if ((v.u & 0x7fffffff) > 0x7f800000)
		return 0x7fff;
	return (uint16_t)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}

size_t convert_number_bytes(enum convert_number number)
{
	static const size_t bytes[] = { 1, 2, 2, 4 };

	return bytes[number];
}

/* There are only 256 results for each channel; the loop looks them up. */
union results {
	uint8_t uint8[CONVERT_MAX_CHANNELS][256];
	uint16_t sixteen[CONVERT_MAX_CHANNELS][256];
	float float32[CONVERT_MAX_CHANNELS][256];
};

static void make_results(const struct convert_plan *p, union results *r)
{
	for (uint32_t c = 0; c < p->n_channels; c++)
		for (uint32_t v = 0; v < 256; v++) {
			switch ((enum convert_number)p->number) {
			case CONVERT_TO_UINT8:
				r->uint8[c][v] = (uint8_t)v;
				break;
			case CONVERT_TO_FLOAT16:
				r->sixteen[c][v] = convert_to_float16(convert_value(p, c, v));
				break;
			case CONVERT_TO_BFLOAT16:
				r->sixteen[c][v] = convert_to_bfloat16(convert_value(p, c, v));
				break;
			case CONVERT_TO_FLOAT32:
				r->float32[c][v] = convert_value(p, c, v);
				break;
			}
		}
}

void convert_plan_run(const struct convert_plan *p, const uint8_t *in, void *out)
{
	size_t bytes = convert_number_bytes((enum convert_number)p->number);
	union results r;

	make_results(p, &r);
	for (uint32_t px = 0; px < p->n_px; px++) {
		size_t image = convert_image_of(p, px), at = px - image * p->plane;

		for (uint32_t c = 0; c < p->n_channels; c++) {
			size_t interleaved = (size_t)px * p->n_channels + c;
			size_t to = p->planar ? (image * p->n_channels + c) * p->plane + at : interleaved;

			memcpy((char *)out + to * bytes, (char *)&r + (c * 256 + in[interleaved]) * bytes, bytes);
		}
	}
}

/* One channel is the same in both layouts. */
static bool is_flat(const struct convert_plan *p)
{
	return !p->planar || p->n_channels == 1;
}

void convert_plan_kernel(const struct convert_plan *p, char name[32])
{
	static const char *const numbers[] = { "uint8", "float16", "bfloat16", "float32" };

	snprintf(name, 32, "convert_%s_%s_%u", is_flat(p) ? "flat" : "planar", numbers[p->number], p->n_channels);
}

uint32_t convert_plan_blocks(const struct convert_plan *p)
{
	/* numbers in the 16 bytes that a thread writes at once */
	uint32_t group = 16 / (uint32_t)convert_number_bytes((enum convert_number)p->number);
	uint32_t block = CONVERT_THREADS * group * (is_flat(p) ? CONVERT_GROUPS : 1),
		 n = is_flat(p) ? p->n_px * p->n_channels : p->n_px;

	return n / block + !!(n % block);
}
