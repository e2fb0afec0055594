/* Images of one number for each pixel, made wider without loss, as Pillow's convert does it. */
#ifndef BATCHD_NUMBERS_H
#define BATCHD_NUMBERS_H

#include <stdbool.h>

#include "image/formats/decode.h"

/* Whether pixels of this kind hold all numbers of the file (floats: all that Pillow puts into them). */
bool numbers_fit(enum image_numbers from, enum pixel to);
/* Whether the file's numbers are such pixels already. */
bool numbers_are(enum image_numbers from, enum pixel to);
/* Converts an image that fits into `memory`. 8 bits come as RGB of three equal bytes. Returns 0 or -ENOMEM. */
int numbers_widen(enum image_numbers from, const struct image *in, enum pixel to, struct scratch *memory,
		  struct image *out);

#endif
