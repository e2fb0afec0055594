/* Conversion: the table of results, the choice of path, and the place of a row.
 *
 * The division by 255 and by std must be true divisions: multiplying by the reciprocal is off by one unit in the last
 * place for many pixel values. The AVX paths multiply by a reciprocal of twice the precision, x * high + x * low with
 * one rounding at the end. That is the rounded quotient unless it lies extremely close to the middle of two floats.
 * convert_init tests all 256 values per channel for that. */
#include "image/kernels/convert.h"

#include <errno.h>
#include <string.h>

#include "image/kernels/convert-paths.h"

static const struct convert_path *const all_paths[] = {
#if defined(__x86_64__)
	&convert_avx512,
	&convert_avx2,
#endif
	&convert_c,
};
enum { N_PATHS = sizeof(all_paths) / sizeof(all_paths[0]) };

uint16_t float_to_half(float value)
{
	uint32_t bits, sign, rest;
	union {
		float f;
		uint32_t u;
	} magic = { .f = 0.5f }; /* its last bit is the smallest half */
	union {
		float f;
		uint32_t u;
	} v = { .f = value };

	sign = v.u >> 16 & 0x8000;
	bits = v.u & 0x7fffffff;
	if (bits >= 0x47800000) /* too large for a half, infinite or not a number */
		return (uint16_t)(sign | (bits > 0x7f800000 ? 0x7e00 : 0x7c00));
	if (bits < 0x38800000) { /* subnormal: the addition rounds, to nearest even */
		v.u = bits;
		v.f += magic.f;
		return (uint16_t)(sign | (v.u - magic.u));
	}
	rest = bits + ((uint32_t)(15 - 127) << 23) + 0xfff + (bits >> 13 & 1);
	return (uint16_t)(sign | rest >> 13);
}

float float_of_half(uint16_t half)
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

static void convert_make_tables(struct convert *f)
{
	for (int c = 0; c < 3; c++) {
		for (int v = 0; v < 256; v++) {
			float scaled = (float)v / 255.0f;
			float centred = scaled - f->mean[c];

			f->float32[c][v] = centred / f->std[c];
			f->float16[c][v] = float_to_half(f->float32[c][v]);
		}
	}
}

/* 1 / x to about 48 bits. (Not as (float)(1.0 / x - (double)(float)(1.0 / x)): gcc 12 drops the two conversions when it
 * vectorizes them.) */
static void convert_reciprocal(float x, float *high, float *low)
{
	*high = 1.0f / x;
	*low = (float)((1.0 - (double)x * (double)*high) / (double)x);
}

static void make_reciprocals(struct convert *f)
{
	convert_reciprocal(255.0f, &f->scale_high, &f->scale_low);
	for (int c = 0; c < 3; c++)
		convert_reciprocal(f->std[c], &f->std_high[c], &f->std_low[c]);
	for (int i = 0; i < 48; i++) {
		f->mean16[i] = f->mean[i % 3];
		f->std_high16[i] = f->std_high[i % 3];
		f->std_low16[i] = f->std_low[i % 3];
	}
}

/* Runs every pixel value of every channel through the path and compares with the table. */
static bool convert_is_exact(const struct convert *f, const struct convert_path *path)
{
	struct convert trial = *f;
	uint8_t rgb[256 * 3], all[256];
	float planes[3][256], row[256][3], first[256];
	void *const out[3] = { planes[0], planes[1], planes[2] };
	bool exact;

	if (f->type == CONVERT_UINT8)
		return true;
	for (int v = 0; v < 256; v++) {
		memset(rgb + (size_t)v * 3, v, 3);
		all[v] = (uint8_t)v;
	}
	trial.type = CONVERT_FLOAT32;
	trial.n_channels = 3;
	trial.width = 256;
	path->planar(&trial, rgb, out);
	path->interleaved(&trial, rgb, row);
	path->gray(&trial, all, first);
	exact = memcmp(planes, f->float32, sizeof(planes)) == 0 && memcmp(first, f->float32[0], sizeof(first)) == 0;
	for (int v = 0; v < 256 && exact; v++)
		for (int c = 0; c < 3; c++)
			exact = exact && memcmp(&row[v][c], &f->float32[c][v], sizeof(float)) == 0;
	return exact;
}

void convert_init(struct convert *f, enum convert_type type, bool planar, uint32_t n_channels, uint32_t width,
		  uint32_t height, const float mean[3], const float std[3])
{
	f->type = type;
	f->pixel = PIXEL_RGB;
	f->stored = false;
	f->planar = planar;
	f->n_channels = n_channels;
	f->width = width;
	f->height = height;
	memcpy(f->mean, mean, sizeof(f->mean));
	memcpy(f->std, std, sizeof(f->std));
	convert_make_tables(f);
	make_reciprocals(f);
	f->path = &convert_c;
	for (size_t i = 0; i < N_PATHS; i++) {
		if (all_paths[i]->can_run() && convert_is_exact(f, all_paths[i])) {
			f->path = all_paths[i];
			break;
		}
	}
}

const char *const *convert_paths(void)
{
	static _Thread_local const char *names[N_PATHS + 1]; /* per thread, so that filling it needs no lock */
	size_t n = 0;

	for (size_t i = 0; i < N_PATHS; i++)
		if (all_paths[i]->can_run())
			names[n++] = all_paths[i]->name;
	names[n] = NULL;
	return names;
}

int convert_set_path(struct convert *f, const char *name)
{
	for (size_t i = 0; i < N_PATHS; i++) {
		if (strcmp(all_paths[i]->name, name) == 0 && all_paths[i]->can_run() &&
		    convert_is_exact(f, all_paths[i])) {
			f->path = all_paths[i];
			return 0;
		}
	}
	return -ENOENT;
}

static size_t number_bytes(const struct convert *f)
{
	return f->stored ? pixel_bytes(f->pixel) : f->type == CONVERT_FLOAT32 ? 4 : f->type == CONVERT_FLOAT16 ? 2 : 1;
}

size_t convert_bytes(const struct convert *f)
{
	return (size_t)f->width * f->height * f->n_channels * number_bytes(f);
}

void convert_row(const struct convert *f, const uint8_t *rgb, uint32_t y, void *out)
{
	size_t row_bytes = f->width * number_bytes(f), plane_bytes = row_bytes * f->height;
	uint8_t *at = (uint8_t *)out + y * row_bytes;

	void *const planes[3] = { at, at + plane_bytes, at + 2 * plane_bytes };

	if (f->n_channels == 1) /* one plane is the same in both layouts */
		convert_c_planar(f, rgb, planes, 0);
	else if (f->planar)
		f->path->planar(f, rgb, planes);
	else if (f->type == CONVERT_UINT8)
		memcpy((uint8_t *)out + y * row_bytes * 3, rgb, row_bytes * 3);
	else
		f->path->interleaved(f, rgb, (uint8_t *)out + y * row_bytes * 3);
}

void convert_gray_row(const struct convert *f, const uint8_t *gray, uint32_t y, void *out)
{
	f->path->gray(f, gray, (uint8_t *)out + y * f->width * number_bytes(f));
}
