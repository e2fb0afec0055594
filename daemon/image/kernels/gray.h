/* Pillow's convert("L") of RGB pixels. */
#ifndef BATCHD_GRAY_H
#define BATCHD_GRAY_H

#include <stdint.h>

/* The grey of each of n_px pixels, three times. No overlap. */
void gray_triples(const uint8_t *rgb, uint32_t n_px, uint8_t *out);
/* Each of n_px greys three times, which makes it a pixel. No overlap. */
void gray_to_rgb(const uint8_t *gray, uint32_t n_px, uint8_t *rgb);
/* The sum of the greys of n_px pixels, at most 2^20. */
uint32_t gray_sum(const uint8_t *rgb, uint32_t n_px);

#if defined(__x86_64__)
/* For processors with PROCESSOR_AVX512. The first blends n_px pixels with their greys as blend_bytes(greys, rgb, ...)
 * does; its factor is within +-SATURATE_MOST, so that no blend exceeds 32 bits. The second is the greys alone. */
#define SATURATE_MOST 1e6f
void saturate_avx512(uint8_t *rgb, uint32_t n_px, float factor);
void grayscale_avx512(uint8_t *rgb, uint32_t n_px);
uint32_t gray_sum_avx512(const uint8_t *rgb, uint32_t n_px); /* as gray_sum, for the same processors */
#endif

#endif
