/* Decodes a rectangle of a baseline JPEG, faster than libjpeg does it and to the very same pixels.
 *
 * For the plain files that data sets are made of: one scan, Huffman codes, 8 bits, grey or three components, chroma
 * halved or not. libjpeg still parses the headers, and whatever is unusual or damaged is left to it altogether: see
 * SCAN_E_UNSURE. Only the blocks that the rectangle needs are transformed; the bits before them must be passed over
 * unless restart markers or an index tell where to start. */
#ifndef BATCHD_SCAN_H
#define BATCHD_SCAN_H

#include <stdbool.h>
#include <stdio.h>

#include <jpeglib.h>

#include "image/image.h"
#include "jpeg/checkpoints.h"

enum {
	SCAN_E_UNSURE = 1, /* something about the data is not as it should be: ask libjpeg, and take what it says */
};

struct scan; /* a decoder; belongs to one thread, grows its memory to what the largest image needs and then allocates
              * no more */

struct scan *scan_create(void); /* NULL when memory is short */
void scan_destroy(struct scan *s);

/* Whether scan_region decodes images of this kind. c is as jpeg_read_header left it when it returned JPEG_HEADER_OK. */
bool scan_supported(const struct jpeg_decompress_struct *c);

/* What entropy decoding depends on, as one number: data[0..n) as below, the Huffman tables, the sampling and the restart
 * interval. Reads all of the data: 10 us per 100 KB. */
uint64_t scan_id(const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n);

/* Decodes the rectangle `want` (not empty, inside the image) into out->rgb, which has room for it at out->stride_bytes;
 * sets out's width and height. data[0..n) is what follows the header (the source's next_input_byte) up to the end of
 * the file; nothing else is read. The pixels are those of jpeg_read_scanlines with JDCT_ISLOW, fancy upsampling and
 * JCS_RGB.
 *
 * in: an index of the same data to start from, or NULL. record: an index to complete by what this call passes, or NULL;
 * may be the same as `in`, if no one else reads it meanwhile. id: this image's scan_id, where there is one of them; an
 * index with another is not used.
 *
 * Returns 0; SCAN_E_UNSURE, `out` holding anything; -ENOMEM. The data's end is looked at in every call: a file cut
 * short is unsure whatever part of it is wanted. Damage inside is noticed only where it is decoded. */
int scan_region(struct scan *s, const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n, uint64_t id,
		const struct checkpoints *in, struct checkpoints *record, struct region_px want, struct image *out);

/* Size of an index for this image, whose entropy-coded data and what follows is n bytes, and an empty one of the data
 * with this scan_id in that many bytes, 8-byte aligned. */
size_t checkpoints_size(const struct jpeg_decompress_struct *c, size_t n);
void checkpoints_init(struct checkpoints *x, const struct jpeg_decompress_struct *c, size_t n, uint64_t id);

/* Names of the paths this processor can run, fastest first, NULL-terminated; and the choice of one. For tests and
 * benchmarks. -ENOENT if it cannot run here. */
const char *const *scan_paths(void);
int scan_set_path(struct scan *s, const char *name);

#endif
