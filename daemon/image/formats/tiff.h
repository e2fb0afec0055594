/* The first picture of a TIFF. */
#ifndef BATCHD_TIFF_H
#define BATCHD_TIFF_H

#include "image/formats/raw-rows.h"
#include "image/formats/tiff-codecs.h"
#include "image/formats/tiff-jpeg.h"
#include "image/formats/tiff-tags.h"
#include "base/cpu-budget.h"

struct tiff {
	struct tiff_tags tags; /* refer to the file, borrowed */
	struct raw_layout layout;
	uint32_t width, height;
	int orientation;
	enum tiff_compression compression;
	uint32_t bits, n_samples;           /* of a sample; of a pixel in the file */
	uint32_t n_planes;                  /* strips or tiles beside each other that hold one sample each; or 1 */
	uint32_t chunk_width, chunk_height; /* of a strip or tile */
	uint64_t n_across, n_down;          /* strips or tiles of a plane */
	enum tiff_tag offsets, byte_counts;
	unsigned predictor;
	bool reversed;         /* the bits of bytes */
	bool is_ycbcr;         /* in JPEG */
	unsigned across, down; /* then: pixels to a sample of chroma */
};

struct tiff_memory {
	struct scratch chunk, plane, input, tables;
	struct arena arena;
	const struct decode_limits *limits; /* borrowed */
	struct tiff_jpeg *jpeg;             /* NULL until it is needed */
};

/* Returns 0 or an IMAGE_E_ outcome. */
int tiff_read(const uint8_t *bytes, size_t n_bytes, struct tiff *t, struct image_error *err);
/* Of an image within the limits: whether all its strips or tiles lie in the file. Returns 0 or an IMAGE_E_ outcome. */
int tiff_check_chunks(const struct tiff *t, size_t n_bytes, uint64_t max_px, struct image_error *err);
/* Whether its pixels are grey of 2 to 8 bits, without transparency. */
bool tiff_is_grey(const struct tiff *t);
/* Unpacks what `want` needs, to RGB, or with layout.deep to numbers. Returns 0, an IMAGE_E_ outcome or -ENOMEM. */
int tiff_region(const struct tiff *t, const uint8_t *bytes, struct region_px want, struct tiff_memory *m,
		struct scratch *pixels, struct image *out, struct cpu_budget *budget, struct image_error *err);
void tiff_memory_trim(struct tiff_memory *m, size_t keep_bytes);

#endif
