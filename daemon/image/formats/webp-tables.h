/* The size of libwebp's Huffman tables for a lossless picture, read from the picture's own header.
 *
 * A lossless stream may have up to 65536 groups of Huffman codes, and libwebp allocates room for the largest possible
 * tables of every group: 12 to 20 kB. The number of groups follows from a small picture in the header, the entropy
 * image. It must be decoded to know it: neither the pixels nor the bytes of a file give a useful bound. */
#ifndef BATCHD_WEBP_TABLES_H
#define BATCHD_WEBP_TABLES_H

#include <stdbool.h>

#include "image/kernels/image.h"

/* bytes[0..n): a lossless stream: the contents of a "VP8L" chunk, or with `bare` what follows the first byte of an
 * "ALPH" chunk, which has no size of its own. width, height: of the picture. work: two buffers, which may be kept for
 * the next picture. Sets *table_bytes to the most that libwebp takes for the tables. Returns 0, IMAGE_E_CORRUPT
 * (libwebp refuses such a stream, too) or -ENOMEM. */
int webp_tables_measure(const uint8_t *bytes, size_t n, bool bare, uint32_t width, uint32_t height,
			struct scratch work[2], uint64_t *table_bytes);

#endif
