/* The views of an image as one picture: in their order beside each other, and where small ones of one size follow each other,
 * as many below each other as the tallest view leaves room for. */
#ifndef BATCHD_PREVIEW_VIEWS_H
#define BATCHD_PREVIEW_VIEWS_H

#include "image/transform/views.h"

void preview_views_measure(const struct pipeline *p, uint32_t *width, uint32_t *height);
/* rows: of each view. one: room for the pixels of any one view. rgb: the picture. */
void preview_views_draw(const struct pipeline *p, void *const *rows, uint8_t *one, uint32_t width, uint32_t height,
			uint8_t *rgb);

#endif
