/* Decodes a rectangle of a baseline JPEG, faster than libjpeg and to exactly the same pixels.
 *
 * It handles the plain files that data sets consist of: one scan, Huffman codes, 8 bits, grey or three components,
 * chroma halved or not. libjpeg still parses the headers, and decodes every unusual or damaged file: see SCAN_E_UNSURE.
 * Only the blocks that the rectangle needs are transformed. The bits before them must be decoded and skipped unless
 * restart markers or an index give a place to start. */
#ifndef BATCHD_SCAN_H
#define BATCHD_SCAN_H

#include <stdbool.h>
#include <stdio.h>

#include <jpeglib.h>

#include "image/kernels/image.h"
#include "image/kernels/row-sink.h"
#include "image/jpeg/block-pack.h"
#include "image/jpeg/checkpoints.h"
#include "base/cpu-budget.h"

enum {
	SCAN_E_UNSURE = 1, /* something in the data is unusual: use libjpeg and its result */
};

struct scan; /* a decoder; belongs to one thread, grows its memory to the needs of the largest image and then allocates
              * no more */

struct scan *scan_create(void); /* NULL when memory is short */
void scan_destroy(struct scan *s);

/* Whether scan_region decodes images of this kind. c is in the state in which jpeg_read_header returned
 * JPEG_HEADER_OK. */
bool scan_supported(const struct jpeg_decompress_struct *c);

/* A hash of the input of entropy decoding: data[0..n) as below, the Huffman tables, the sampling and the restart
 * interval. Reads all of the data: 10 us per 100 KB. */
uint64_t scan_id(const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n);
uint64_t scan_progressive_id(const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n);

/* From here on pictures are decoded at 1 / times of their size (1, 2, 4 or 8; 1 at first), rounded up, with libjpeg's
 * pixels for that scale_denom: rectangles are in the smaller picture. Chroma halved in one direction only is unsure. */
void scan_shrink(struct scan *s, uint32_t times);

/* From here on a rectangle's rows go to the sink, in bands, and `out` below has room for ROW_SINK_BAND rows and the
 * slack only; NULL (at first): they go into `out`. Of a picture that turns out to be unsure the sink may have got some.
 */
void scan_set_sink(struct scan *s, struct row_sink *sink);
/* Whether the sink has got rows since: then nothing else may be decoded into it. */
bool scan_sink_has_rows(const struct scan *s);

/* Decodes the rectangle `want` (not empty, inside the image) into out->rgb, which has room for it at out->stride_bytes;
 * sets out's width and height. data[0..n) is the file after the header (the source's next_input_byte) up to its end;
 * nothing else is read. The pixels are those of jpeg_read_scanlines with JDCT_ISLOW, fancy upsampling and JCS_RGB.
 *
 * in: an index of the same data to start from, or NULL. record: an index to complete with the places that this call
 * passes, or NULL; may be the same as `in`, if no other thread reads it meanwhile. id: this image's scan_id, if there
 * is an index; an index with another id is not used.
 *
 * Returns 0; SCAN_E_UNSURE, then `out` holds arbitrary pixels; -ENOMEM. Every call checks the end of the data: a file
 * cut short is unsure for any rectangle. Damage inside is noticed only where it is decoded. */
int scan_region(struct scan *s, const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n, uint64_t id,
		const struct checkpoints *in, struct checkpoints *record, struct region_px want, struct image *out);

/* The same for progressive files. max_scans: more are unsure; so is a picture that takes more than the budget. Bits of
 * all scans are decoded down to the last row that the rectangle needs, or to the last one (all_rows). */
bool scan_supported_progressive(const struct jpeg_decompress_struct *c);
int scan_progressive_region(struct scan *s, const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n,
			    uint32_t max_scans, struct cpu_budget *budget, bool all_rows, struct region_px want,
			    struct image *out);
/* As scan_region, by decoding the bits of the whole picture, so that scan_pack can pack all of it. A picture whose
 * damage the rectangle does not meet is unsure here. Takes 2 bytes of memory a sample. */
int scan_whole_region(struct scan *s, const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n,
		      struct region_px want, struct image *out);
/* After scan_progressive_region or scan_whole_region has returned 0: packs the rows that it decoded (block-pack.h), so
 * that they need not be decoded again. Returns as block_pack_make. */
size_t scan_pack(struct scan *s, uint64_t id, size_t limit_bytes, struct scratch *to);
/* As these two, from a valid pack of the same data. SCAN_E_UNSURE as well when the pack does not reach to
 * the rectangle's end. */
int scan_packed_region(struct scan *s, const struct jpeg_decompress_struct *c, const struct block_pack *pack,
		       struct region_px want, struct image *out);

/* The size of an index for this image, where n is the size of the entropy-coded data and all that follows it; and
 * initialization of that many bytes, 8-byte aligned, to an empty index of the data with this scan_id. */
size_t checkpoints_size(const struct jpeg_decompress_struct *c, size_t n);
void checkpoints_init(struct checkpoints *x, const struct jpeg_decompress_struct *c, size_t n, uint64_t id);

/* Names of the paths that this processor can run, fastest first, NULL-terminated; and the choice of one. For tests and
 * benchmarks. -ENOENT if it cannot run here. */
const char *const *scan_paths(void);
int scan_set_path(struct scan *s, const char *name);

#endif
