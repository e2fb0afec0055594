/* The finishing pass on the CPU: uint8 NHWC pixels as the daemon wrote them become floats in either layout, with
 * ToTensor, Normalize and a mix of rows. The arithmetic is the GPU's (finish/convert-plan.h), and so are the results,
 * bit for bit.
 *
 * Where a slot has floats already (a pipeline that erases writes numbers that no pixel has), the pass only mixes. */
#ifndef BATCHD_CLIENT_FINISH_H
#define BATCHD_CLIENT_FINISH_H

#include "batchd.h"
#include "finish/convert-plan.h"

struct finish;

enum { FINISH_CHAIN = 4 };

/* Rows of which each is the next one's partner. A path makes them side by side, so that it converts each row once. */
struct finish_chain {
	unsigned n; /* rows; 1 to FINISH_CHAIN */
	const struct batchd_mix_row *row[FINISH_CHAIN];
	const void *from[FINISH_CHAIN + 1]; /* the partner of row 0, then each row's own image */
	void *to[FINISH_CHAIN];
};

/* One way to make numbers of pixels. */
struct finish_path {
	const char *name;
	int (*can_run)(const struct finish *f);
	/* n pixels of an image. first: number of the first pixel, at which own begins; image: where the image's numbers
	 * begin. */
	void (*plain)(const struct finish *f, const uint8_t *own, size_t first, size_t n, void *image);
	/* A line of an image with the partner's pixels in the row's columns; scratch: room for a line. */
	void (*box)(const struct finish *f, const struct batchd_mix_row *row, const uint8_t *own,
		    const uint8_t *partner, size_t first, uint8_t *scratch, void *image);
	/* Pixels `first` and after of all rows of a chain. */
	void (*chain)(const struct finish *f, const struct finish_chain *rows, size_t first);
	/* The same for two rows that are each other's partners: rows->from has two images. */
	void (*pair)(const struct finish *f, const struct finish_chain *rows, size_t first);
	/* A chain of floats of the slot: numbers first..n - 1. */
	void (*chain_numbers)(const struct finish *f, const struct finish_chain *rows, size_t first, size_t n);
};

/* Constants of one loader; read-only once made. */
struct finish {
	struct convert_plan plan;
	uint32_t height, width;
	int has_numbers; /* the slot has finished floats */
	const struct finish_path *path;
	float float32[CONVERT_MAX_CHANNELS][256];
	uint16_t sixteen[CONVERT_MAX_CHANNELS][256];
	/* Of number i of NHWC pixels, for vectors of 16 that begin in the first 48, a multiple of every number of channels. */
	float mean64[64], std_high64[64], std_low64[64];
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
extern const struct finish_path finish_avx512, finish_avx2, finish_c;
/* A path's `box` that copies the line together in scratch and calls its `plain`. */
void finish_box_by_copy(const struct finish_path *path, const struct finish *f, const struct batchd_mix_row *row,
			const uint8_t *own, const uint8_t *partner, size_t first, uint8_t *scratch, void *image);

#endif
