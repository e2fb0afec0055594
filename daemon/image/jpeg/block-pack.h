/* The coefficients of a JPEG's blocks in a form that is read faster than Huffman codes and takes about as many bytes.
 *
 * It is made from a progressive picture, whose scans are decoded once, and holds its rows of MCUs from the top to the
 * last one that was decoded. It is flat memory without pointers, in the machine's byte order. Any caller may copy,
 * cache and store it (with a checksum: a forged one leads to wrong pixels or to SCAN_E_UNSURE, though never out of
 * bounds). It names the bytes that it was made from (scan_id), and is used for no others. No locking: one writer, or
 * many readers. */
#ifndef BATCHD_BLOCK_PACK_H
#define BATCHD_BLOCK_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/kernels/image.h"
#include "image/jpeg/progressive.h"

enum {
	BLOCK_PACK_MAGIC = 0x31505842, /* version and byte order */
	BLOCK_PACK_MAX_LINES = 4,      /* of blocks in a row of MCUs: two of luma, one of each chroma component */
	BLOCK_PACK_PAD_BYTES = 160,    /* more than a block's, readable after the last one */
};

struct block_pack {
	uint32_t magic;
	uint32_t mcus_per_row, mcu_rows; /* of the picture */
	uint32_t n_rows;                 /* of MCUs that it holds */
	uint32_t n_lines;                /* of blocks in a row of MCUs */
	uint32_t n_bytes;                /* of all of it */
	uint64_t scan_id;                /* of the data it was made from, see scan.h */
	uint32_t starts[]; /* byte at which each line of blocks begins, and the end of the last; then the blocks */
};

/* Packs the rows that `p` has, into `to`. Returns the size in bytes; 0 if that would be more than limit_bytes, or when
 * memory is short. */
size_t block_pack_make(struct scratch *to, const struct progressive *p, uint64_t scan_id, size_t limit_bytes);
/* Whether these bytes are a complete pack: header, sizes, order of lines. For bytes from a file. They must be 8-byte
 * aligned. */
bool block_pack_valid(const struct block_pack *x, size_t size_bytes);

/* The next block of a line. */
struct block_place {
	const uint8_t *next, *end;
};

/* The first block of a line of MCU row `row`, which the pack holds. */
struct block_place block_pack_line(const struct block_pack *x, uint32_t row, uint32_t line);
/* Skips n blocks; -1 where the line ends before. */
int block_pack_skip(struct block_place *b, uint32_t n);
/* Stores the block's coefficients as entropy.h has them: coef must be zero before. Returns a position in zigzag order
 * after which all are zero, or -1. */
int block_pack_take(struct block_place *b, int16_t *coef);

#endif
