/* The plain C path of conversion: one table look-up per number. */
#include "image/kernels/convert-paths.h"

#include <string.h>

static bool convert_c_can_run(void)
{
	return true;
}

void convert_c_planar(const struct convert *f, const uint8_t *rgb, void *const planes[3], uint32_t from)
{
	for (uint32_t c = 0; c < f->n_channels; c++) {
		const uint8_t *in = rgb + c;

		switch (f->type) {
		case CONVERT_UINT8:
			for (uint32_t x = from; x < f->width; x++)
				((uint8_t *)planes[c])[x] = in[(size_t)x * 3];
			break;
		case CONVERT_FLOAT16:
			for (uint32_t x = from; x < f->width; x++)
				((uint16_t *)planes[c])[x] = f->float16[c][in[(size_t)x * 3]];
			break;
		case CONVERT_FLOAT32:
			for (uint32_t x = from; x < f->width; x++)
				((float *)planes[c])[x] = f->float32[c][in[(size_t)x * 3]];
			break;
		}
	}
}

void convert_c_interleaved(const struct convert *f, const uint8_t *rgb, void *row, uint32_t from)
{
	for (uint32_t x = from; x < f->width; x++) {
		for (uint32_t c = 0; c < 3; c++) {
			size_t i = (size_t)x * 3 + c;

			if (f->type == CONVERT_FLOAT32)
				((float *)row)[i] = f->float32[c][rgb[i]];
			else
				((uint16_t *)row)[i] = f->float16[c][rgb[i]];
		}
	}
}

void convert_c_gray(const struct convert *f, const uint8_t *gray, void *row, uint32_t from)
{
	switch (f->type) {
	case CONVERT_UINT8:
		memcpy((uint8_t *)row + from, gray + from, f->width - from);
		break;
	case CONVERT_FLOAT16:
		for (uint32_t x = from; x < f->width; x++)
			((uint16_t *)row)[x] = f->float16[0][gray[x]];
		break;
	case CONVERT_FLOAT32:
		for (uint32_t x = from; x < f->width; x++)
			((float *)row)[x] = f->float32[0][gray[x]];
		break;
	}
}

static void convert_c_planar_whole(const struct convert *f, const uint8_t *rgb, void *const planes[3])
{
	convert_c_planar(f, rgb, planes, 0);
}

static void convert_c_interleaved_whole(const struct convert *f, const uint8_t *rgb, void *row)
{
	convert_c_interleaved(f, rgb, row, 0);
}

static void convert_c_gray_whole(const struct convert *f, const uint8_t *gray, void *row)
{
	convert_c_gray(f, gray, row, 0);
}

const struct convert_path convert_c = {
	.name = "c",
	.can_run = convert_c_can_run,
	.planar = convert_c_planar_whole,
	.interleaved = convert_c_interleaved_whole,
	.gray = convert_c_gray_whole,
};
