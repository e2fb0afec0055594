/* Which pixels a TIFF holds, by its tags. */
#ifndef BATCHD_TIFF_LAYOUT_H
#define BATCHD_TIFF_LAYOUT_H

#include "image/formats/tiff.h"

/* Sets layout, bits, n_samples, n_planes and reversed of a TIFF whose compression is known. Returns 0 or IMAGE_E_FORMAT. */
int tiff_layout(struct tiff *t, struct image_error *err);

#endif
