/* Gaussian blur, in place: Pillow's and torchvision's, which are different things. */
#ifndef BATCHD_BLUR_H
#define BATCHD_BLUR_H

#include "image/kernels/image.h"

enum { BLUR_MAX_RADIUS = 1000, BLUR_MAX_KERNEL = 255 };

/* ImageFilter.GaussianBlur((x_radius, y_radius)), byte for byte; radii from 0 to BLUR_MAX_RADIUS. room: for pixels.
 * 0 or -ENOMEM. */
int blur_pillow(struct image *i, float x_radius, float y_radius, struct scratch *room);

/* torchvision's gaussian_blur with kernel [x_size, y_size] (odd, at most BLUR_MAX_KERNEL) and sigma [x_sigma, y_sigma],
 * each value within 1 of torchvision's: the order of its float additions is up to its libraries. The image must be
 * wider than x_size / 2 and higher than y_size / 2. 0 or -ENOMEM. */
int blur_torchvision(struct image *i, const uint32_t size[2], const double sigma[2], struct scratch *room);

#endif
