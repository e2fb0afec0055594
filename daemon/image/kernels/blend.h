/* Pillow's Image.blend, in float32: from at factor 0, to at factor 1; truncated, and clipped where factors outside 0..1
 * leave the range. */
#ifndef BATCHD_BLEND_H
#define BATCHD_BLEND_H

#include <stddef.h>
#include <stdint.h>

/* to[i] = blend(from[i], to[i]) */
void blend_bytes(const uint8_t *from, uint8_t *to, size_t n, float factor);
/* to[i] = blend(from, to[i]) */
void blend_constant(uint8_t from, uint8_t *to, size_t n, float factor);

#endif
