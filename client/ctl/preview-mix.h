/* Mixed pictures for batchctl preview: the shown samples are one batch, mixed as a loader mixes it. */
#ifndef BATCHCTL_PREVIEW_MIX_H
#define BATCHCTL_PREVIEW_MIX_H

#include <stdint.h>

#include "batchd.h"

/* Draws the table of the epoch's first batch of rank 0, of n rows. 0, or CTL_USAGE after saying why. */
int preview_mix_draw(const char *text, uint64_t seed, uint64_t epoch, uint32_t n, uint32_t height, uint32_t width,
		     struct batchd_mix_row *rows);
/* Makes row i of n pictures of height x width pixels, 3 bytes each. */
void preview_mix_picture(const struct batchd_mix_row *rows, uint32_t i, const uint8_t *pictures, uint32_t height,
			 uint32_t width, uint8_t *out);

#endif
