/* Turning the hue of a row of pixels. Only color.c and its siblings include this. */
#ifndef BATCHD_HUE_PATHS_H
#define BATCHD_HUE_PATHS_H

#include <stdint.h>

#if defined(__x86_64__)
/* Adds steps to the hue of each pixel. */
void hue_turn_avx2(uint8_t steps, uint8_t *rgb, uint32_t n_px);
void hue_turn_avx512(uint8_t steps, uint8_t *rgb, uint32_t n_px);
#endif

#endif
