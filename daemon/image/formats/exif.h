/* The orientation of a picture, from the EXIF tag or its equivalent in XMP. Parses bytes to a number. */
#ifndef BATCHD_EXIF_H
#define BATCHD_EXIF_H

#include <stddef.h>
#include <stdint.h>

/* A TIFF directory, with or without "Exif\0\0" before it. Returns 1..8, or 0 when it holds no readable orientation. */
int exif_orientation(const uint8_t *exif, size_t n_bytes);
/* The first tiff:Orientation of an XMP packet. Same returns. */
int xmp_orientation(const uint8_t *xmp, size_t n_bytes);

#endif
