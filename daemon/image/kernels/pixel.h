/* What a pixel is: three bytes of colour, or one number, as Pillow's modes RGB, I;16, I and F have it. */
#ifndef BATCHD_PIXEL_H
#define BATCHD_PIXEL_H

#include <stddef.h>

enum pixel { PIXEL_RGB, PIXEL_UINT16, PIXEL_INT32, PIXEL_FLOAT32 };

static inline size_t pixel_bytes(enum pixel p)
{
	return p == PIXEL_RGB ? 3 : p == PIXEL_UINT16 ? 2 : 4;
}

/* Pillow's name for images of such pixels. */
static inline const char *pixel_mode(enum pixel p)
{
	static const char *const modes[] = { "RGB", "I;16", "I", "F" };

	return modes[p];
}

#endif
