/* The finishing pass on the CPU: uint8 NHWC pixels as the daemon wrote them become floats in either layout, with
 * ToTensor, Normalize and a mix of rows. The arithmetic is the GPU's (cuda/convert-plan.h), and so are the results, bit
 * for bit.
 *
 * Where a slot has floats already (a pipeline that erases writes numbers that no pixel has), the pass only mixes. */
#ifndef BATCHD_CLIENT_FINISH_H
#define BATCHD_CLIENT_FINISH_H

#include "batchd.h"
#include "cuda/convert-plan.h"

struct finish;

/* One way to make numbers of n pixels of an image. */
struct finish_path {
	const char *name;
	int (*can_run)(const struct finish *f);
	/* first: number of the first pixel, at which own begins; image: where the image's numbers begin. */
	void (*plain)(const struct finish *f, const uint8_t *own, size_t first, size_t n, void *image);
	/* n_channels floats of each pixel, whatever the plan's number is, in an order that only the path knows. */
	void (*floats)(const struct finish *f, const uint8_t *own, size_t n, float *to);
	/* Blends pixels with the floats that `floats` has made of the partner's, and leaves own's floats in their place. */
	void (*blend)(const struct finish *f, const struct batchd_mix_row *row, const uint8_t *own, float *partner,
		      size_t first, size_t n, void *image);
	/* Two rows that are each other's partners. */
	void (*pair)(const struct finish *f, const struct batchd_mix_row *const rows[2], const uint8_t *const px[2],
		     size_t first, size_t n, void *const images[2]);
	/* n floats of the slot. */
	void (*blend_numbers)(const struct finish *f, const struct batchd_mix_row *row, const void *own,
			      const void *partner, size_t n, void *to);
};

/* Constants of one loader; read-only once made. */
struct finish {
	struct convert_plan plan;
	uint32_t height, width;
	int has_numbers; /* the slot has finished floats */
	const struct finish_path *path;
	float float32[CONVERT_MAX_CHANNELS][256];
	uint16_t sixteen[CONVERT_MAX_CHANNELS][256];
	/* Of number i of NHWC pixels; 48 is a multiple of every number of channels. */
	float mean48[48], std_high48[48], std_low48[48];
};

/* plan: made by convert_plan_init for images of height x width, with a float number. has_numbers: the slot has such
 * floats, in the plan's layout; the plan's mean and std play no part. */
void finish_init(struct finish *f, const struct convert_plan *plan, uint32_t height, uint32_t width, int has_numbers);
/* For tests and benchmarks: takes the path of that name. False: there is none, or it cannot run here. */
int finish_set_path(struct finish *f, const char *name);
/* A number of 16 bits: the plan's float16 or bfloat16. */
uint16_t finish_sixteen(const struct finish *f, float v);
size_t finish_image_bytes(const struct finish *f);
/* in: n_rows images of the slot; rows: how each is mixed; NULL: none is. to: n_rows finished images. scratch: width * channels
 * bytes. */
void finish_rows(const struct finish *f, const void *in, const struct batchd_mix_row *rows, uint32_t n_rows,
		 uint8_t *scratch, void *to);

/* The paths, the best first. */
extern const struct finish_path finish_avx2, finish_c;

#endif
