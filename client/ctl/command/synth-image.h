/* One synthetic photograph: a coloured shape before a gradient, under noise with a photograph's spectrum.
 *
 * The same key gives the same pixels on every machine: only integers and rounded constants are used. One thread per
 * painter. */
#ifndef BATCHCTL_SYNTH_IMAGE_H
#define BATCHCTL_SYNTH_IMAGE_H

#include <stdint.h>

enum { SYNTH_IMAGE_MAX_CLASSES = 32, SYNTH_IMAGE_MAX_SIDE_PX = 8192 };

struct synth_image {
	uint32_t width, height; /* px */
	int quality;            /* JPEG quality for this picture */
	uint8_t *rgb;           /* 3 * width * height; the painter's, until the next synth_image_paint */
};

struct painter;

struct painter *painter_create(void); /* NULL when memory is short */
void painter_destroy(struct painter *p);

/* Class c < SYNTH_IMAGE_MAX_CLASSES by name: "disc", "square", ..., "disc-striped", ... */
void synth_image_class_name(unsigned c, char *buf, unsigned long size);

/* Paints picture i of class c; sides vary around width x height, and some pictures are upright. 0 or -ENOMEM. */
int synth_image_paint(struct painter *p, uint64_t seed, unsigned c, uint64_t i, uint32_t width, uint32_t height,
		      struct synth_image *out);

#endif
