/* The last step of every sample: RGB rows become numbers in their place in the batch (ToTensor, Normalize, dtype,
 * layout).
 *
 * float32 equals torchvision's result bit for bit: each pixel value v of channel c becomes ((v / 255) - mean[c]) /
 * std[c] in float32 with every operation rounded. There are only 256 such values per channel, so a table holds them. A
 * SIMD path that calculates instead is used only if it reproduces the whole table. float16 is the float32 value rounded
 * to nearest even. uint8 is the pixel. */
#ifndef BATCHD_CONVERT_H
#define BATCHD_CONVERT_H

#include <stdbool.h>

#include "image/kernels/image.h"
#include "image/kernels/pixel.h"

enum convert_type { CONVERT_UINT8, CONVERT_FLOAT16, CONVERT_FLOAT32 };

struct convert_path;

struct convert {
	enum convert_type type;
	enum pixel pixel;    /* what rows consist of */
	bool stored;         /* other pixels than RGB come as they are, and `type` does not count */
	bool unscaled;       /* floats of other pixels are as large as these */
	bool planar;         /* NCHW; otherwise NHWC */
	uint32_t n_channels; /* 3, or 1: the first of three equal ones */
	uint32_t width, height;
	float mean[3], std[3]; /* 0 and 1 without Normalize */
	float float32[3][256]; /* the result for each pixel value */
	uint16_t float16[3][256];
	/* For paths that calculate: 1/255 and 1/std as sums of two floats, and per-channel values for 16 interleaved
	 * pixels. */
	float scale_high, scale_low, std_high[3], std_low[3];
	float mean16[48], std_high16[48], std_low16[48];
	const struct convert_path *path;
};

/* Fills f and chooses the fastest path that gives exactly the table. */
void convert_init(struct convert *f, enum convert_type type, bool planar, uint32_t n_channels, uint32_t width,
		  uint32_t height, const float mean[3], const float std[3]);

/* The same for rows of one number a pixel: floats are ToDtype and Normalize. convert_numbers_row writes such
 * rows, and the functions about paths are not for them. */
void convert_init_numbers(struct convert *f, enum pixel pixel, uint32_t width, uint32_t height);
/* Then, if they are not to come as they are: */
void convert_numbers_to(struct convert *f, enum convert_type type, bool scaled, float mean, float std);
void convert_numbers_row(const struct convert *f, const uint8_t *row, uint32_t y, void *out);

/* Names of the paths that this processor can run, fastest first, NULL-terminated. */
const char *const *convert_paths(void);
/* For tests and benchmarks. -ENOENT if the path cannot run here or would not be exact for this mean and std. */
int convert_set_path(struct convert *f, const char *name);

size_t convert_bytes(const struct convert *f); /* of one image */
/* Writes image row y (0..height-1): width RGB pixels from rgb. out: the whole image's place, aligned for the type. */
void convert_row(const struct convert *f, const uint8_t *rgb, uint32_t y, void *out);
/* The same for n_channels 1, from one byte a pixel. */
void convert_gray_row(const struct convert *f, const uint8_t *gray, uint32_t y, void *out);

/* IEEE half nearest to a float, ties to even. */
uint16_t float_to_half(float value);
float float_of_half(uint16_t half);

#endif
