/* The coefficients of a progressive JPEG: all of its scans are decoded, down to the last row that is needed.
 *
 * Handles files whose scans are complete and follow each other as the standard wants it; libjpeg decodes all others. */
#ifndef BATCHD_PROGRESSIVE_H
#define BATCHD_PROGRESSIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include "image/kernels/image.h"
#include "image/jpeg/huffman.h"
#include "base/cpu-budget.h"

enum { PROGRESSIVE_MAX_COMPONENTS = 3 };

/* The picture, as far as decoding needs it. */
struct progressive_frame {
	uint32_t n_components, mcus_per_row, mcu_rows;
	uint32_t n_rows; /* of MCUs: those that are needed */
	uint32_t max_scans;
	bool plain; /* use what runs on every processor */
	struct progressive_component {
		uint32_t h, v;          /* blocks per MCU */
		uint32_t columns, rows; /* of blocks with real samples: what a scan of this component alone has */
		uint32_t stride;        /* blocks in a row of whole MCUs */
		size_t first_block;     /* of the component; set by progressive_read */
	} component[PROGRESSIVE_MAX_COMPONENTS];
};

struct progressive {
	struct progressive_frame frame;
	struct scratch values; /* int16_t [block][64] in zigzag order; valid where the mask has a bit, and the first */
	struct scratch masks;  /* uint64_t [block]: which coefficients but the first are not zero */
	struct scratch stream, starts; /* of the present scan, see stuffing.h */
	struct scratch tables;
};

/* data[0..n): the file after the header of its first scan, which c has read; see scan.h. `dc` holds tables between
 * calls. Returns 0, SCAN_E_UNSURE or -ENOMEM. */
int progressive_read(struct progressive *p, const struct progressive_frame *frame,
		     const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n, struct huff_cache *dc,
		     struct cpu_budget *budget);
/* Stores the block's coefficients as entropy.h has them: coef must be zero before. Returns a position in zigzag order
 * after which all are zero. */
unsigned progressive_block(const struct progressive *p, uint32_t component, uint32_t x, uint32_t y, int16_t *coef);
/* For a caller that fills in the blocks itself: their memory, with empty masks. 0 or -ENOMEM. */
int progressive_reserve(struct progressive *p, const struct progressive_frame *frame);
void progressive_finish(struct progressive *p);

#endif
