/* Bytes that a table maps to others, in place. */
#ifndef BATCHD_LOOKUP_H
#define BATCHD_LOOKUP_H

#include <stddef.h>
#include <stdint.h>

/* p[i] = table[p[i]] for n bytes. */
void lookup_bytes(const uint8_t table[256], uint8_t *p, size_t n);
/* The same for n_px pixels, with a table for each channel. */
void lookup_pixels(const uint8_t table[3][256], uint8_t *rgb, size_t n_px);

#endif
