/* Colour operations in place, byte for byte as PIL's ImageEnhance, convert("L") and convert("HSV") do them. */
#ifndef BATCHD_COLOR_H
#define BATCHD_COLOR_H

#include "image/kernels/image.h"

/* ImageEnhance.Brightness(i).enhance(factor) and so on; factor 1 changes nothing, factor 0 removes the property. */
void color_brightness(struct image *i, float factor);
void color_contrast(struct image *i, float factor);
void color_saturation(struct image *i, float factor);
/* torchvision's adjust_hue on a PIL image: adds steps (256 are a full turn) to the hue of convert("HSV"). */
void color_hue(struct image *i, uint8_t steps);
/* steps for a hue_factor in -0.5..0.5, as adjust_hue rounds it. */
uint8_t color_hue_steps(double factor);
/* Sets red, green and blue to convert("L"). */
void color_grayscale(struct image *i);

#endif
