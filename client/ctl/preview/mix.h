/* Mixed pictures for batchctl preview: the shown samples are one batch, mixed as a loader mixes it. */
#ifndef BATCHCTL_PREVIEW_MIX_H
#define BATCHCTL_PREVIEW_MIX_H

#include <stdbool.h>
#include <stdint.h>

#include "batchd.h"
#include "finish/mix.h"

/* Targets of a class that a row has, and has not; 1 and 0 without smoothing. */
struct preview_targets {
	float on, off;
};

/* Draws the table of the epoch's first batch of rank 0, of n rows. n_classes: of the data set; 0: it names none. 0, or
 * CTL_USAGE after saying why. */
int preview_mix_draw(const char *text, const struct mix_place *place, uint32_t n, uint32_t height, uint32_t width,
		     uint32_t n_classes, struct batchd_mix_row *rows, struct preview_targets *targets);
/* The row's targets of its own class and of its partner's, which may be the same. */
void preview_mix_targets(const struct batchd_mix_row *row, struct preview_targets t, bool same, float out[2]);
/* Makes row i of n pictures of height x width pixels, 3 bytes each. */
void preview_mix_picture(const struct batchd_mix_row *rows, uint32_t i, const uint8_t *pictures, uint32_t height,
			 uint32_t width, uint8_t *out);

#endif
