/* Sharpness, byte for byte as PIL's ImageEnhance does it. */
#ifndef BATCHD_SHARPEN_H
#define BATCHD_SHARPEN_H

#include "image/kernels/image.h"

/* ImageEnhance.Sharpness(i).enhance(factor) in place: 0 smooths, 1 changes nothing, more sharpens. rows: room for
 * copies. 0 or -ENOMEM. */
int sharpen(struct image *i, float factor, struct scratch *rows);

#endif
