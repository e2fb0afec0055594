/* Operations that map each channel value to another one, byte for byte as Pillow's ImageOps does them, in place.
 *
 * On a grey image (three equal channels) the result is that of Pillow on mode L. */
#ifndef BATCHD_LEVELS_H
#define BATCHD_LEVELS_H

#include "image/kernels/image.h"

void levels_invert(struct image *i);
/* Keeps the upper bits, 0..8. Pillow up to 12 accepts 0, which makes the image black. */
void levels_posterize(struct image *i, unsigned bits);
/* Inverts values from threshold on. */
void levels_solarize(struct image *i, double threshold);
/* timm's: adds to values below threshold, clipped. */
void levels_solarize_add(struct image *i, int add, int threshold);
/* Stretches each channel to 0..255; a channel of one value stays. */
void levels_autocontrast(struct image *i);
/* Spreads each channel's histogram evenly. */
void levels_equalize(struct image *i);

#endif
