/* Converts coefficients to samples and samples to RGB: the arithmetic of a JPEG decoder, bit for bit libjpeg's
 * (JDCT_ISLOW, fancy upsampling, jdcolor's conversion). It has several paths; one is chosen at run time.
 *
 * All functions work on the caller's memory. Reads and writes may reach BLOCKS_SLACK samples beyond the ends of a row
 * of samples, but never beyond the requested pixels of an RGB row. */
#ifndef BATCHD_BLOCKS_H
#define BATCHD_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include "image/jpeg/entropy.h" /* layout of coefficients */

enum {
	BLOCKS_SLACK = 64,
	DEQUANTIZED_MAX = 8191, /* larger values in a block's first row: libjpeg's own paths disagree about them */
};

/* The chroma samples of an output row. For a component halved vertically, `near` is the row of samples that holds this
 * output row, `far` the next closest row, and `below` says whether `far` is the row underneath; else only `near` is
 * used. All point to the sample that covers the first pixel. */
struct chroma_row {
	const uint8_t *near[2], *far[2]; /* Cb, Cr */
	int below;
	int odd; /* halved horizontally: the first pixel is the right one of its sample */
};

typedef void upsample_row_fn(const uint8_t *y, const struct chroma_row *c, uint8_t *rgb, uint32_t n_px);

struct blocks_ops {
	const char *name;
	/* Two blocks, interleaved by rows as in entropy.h, 32-byte aligned: dequantizes with quant (interleaved in the
	 * same way), transforms, writes 8x8 samples to a and b, and clears the coefficients. All coefficients after
	 * `last` in zigzag order are zero. Returns 0, or nonzero when a value exceeds DEQUANTIZED_MAX. */
	int (*idct_pair)(int16_t coef[COEF_PAIR], const uint16_t quant[COEF_PAIR], unsigned last, uint8_t *a,
			 uint8_t *b, size_t stride_bytes);
	/* One block of such a pair to edge x edge samples (4, 2 or 1), as libjpeg transforms it for a picture at a half,
	 * a quarter or an eighth of its size. Clears and returns as idct_pair; more values may be too large. */
	int (*idct_small)(unsigned edge, int16_t *coef, const uint16_t *quant, unsigned last, uint8_t *out,
			  size_t stride_bytes);
	/* YCbCr to RGB with chroma halved [vertically][horizontally] or not. Halved rows need one sample before the
	 * first and one after the last. */
	upsample_row_fn *ycc[2][2];
	/* Interleaves three rows of samples to RGB without conversion. */
	void (*interleave)(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint8_t *rgb, uint32_t n_px);
};

extern const struct blocks_ops blocks_c;
#if defined(__x86_64__)
extern const struct blocks_ops blocks_avx2, blocks_avx512;
/* Of blocks_avx2, for both. */
int blocks_avx2_idct_pair(int16_t coef[COEF_PAIR], const uint16_t quant[COEF_PAIR], unsigned last, uint8_t *a,
			  uint8_t *b, size_t stride_bytes);
int blocks_avx2_idct_small(unsigned edge, int16_t *coef, const uint16_t *quant, unsigned last, uint8_t *out,
			   size_t stride_bytes);
void blocks_avx2_interleave(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint8_t *rgb, uint32_t n_px);
#endif
/* The paths that this processor can run, fastest first, NULL-terminated. */
const struct blocks_ops *const *blocks_paths(void);

/* A block whose only nonzero coefficient is the first. Same returns as idct_pair. */
static inline int idct_flat(int32_t dc, uint16_t quant, uint8_t *out, size_t stride_bytes)
{
	int32_t v = dc * quant;
	int32_t sample = ((v * 4 + 16) >> 5) + 128; /* rounded as by both passes */

	sample = sample < 0 ? 0 : sample > 255 ? 255 : sample;
	uint64_t row = (uint64_t)sample * 0x0101010101010101;
	for (unsigned i = 0; i < 8; i++)
		__builtin_memcpy(out + i * stride_bytes, &row, sizeof(row));
	return v < -DEQUANTIZED_MAX || v > DEQUANTIZED_MAX;
}

#endif
