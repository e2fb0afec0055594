/* Pillow's Image.blend of two channel values, in float32. Files that include this include exact.h first. */
#ifndef BATCHD_BLEND_H
#define BATCHD_BLEND_H

#include <stdint.h>

/* from at factor 0, to at factor 1; truncated, and clipped where factors outside 0..1 leave the range. */
static inline uint8_t blend(uint8_t from, uint8_t to, float factor)
{
	float mixed = (float)from + factor * (float)(to - from);

	mixed = mixed < 0.0f ? 0.0f : mixed;
	mixed = mixed > 255.0f ? 255.0f : mixed;
	return (uint8_t)(int32_t)mixed;
}

#endif
