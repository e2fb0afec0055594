/* Turning the hue of a row of pixels. Only color.c and its sibling include this. */
#ifndef BATCHD_HUE_PATHS_H
#define BATCHD_HUE_PATHS_H

#include <stdint.h>

/* PIL's HSV to RGB for each hue: which sixth of the circle, and how far into it. */
struct hue {
	int32_t sector[256];
	float into[256], share[256]; /* share: of 255, for saturations */
};

#if defined(__x86_64__)
/* Turns groups of pixels from the first on, and returns how many pixels that are. */
uint32_t hue_turn_avx2(const struct hue *t, uint8_t *rgb, uint32_t n_px);
#endif

#endif
