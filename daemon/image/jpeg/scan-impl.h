/* The scan decoder's state, and what its parts do for each other. Private to scan*.c. */
#ifndef BATCHD_SCAN_IMPL_H
#define BATCHD_SCAN_IMPL_H

#include "image/jpeg/block-pack.h"
#include "image/jpeg/blocks.h"
#include "image/jpeg/entropy.h"
#include "image/jpeg/progressive.h"
#include "image/jpeg/scan.h"

/* The part of the header that decoding needs. */
struct shape {
	uint32_t width, height;
	uint32_t n_components;
	uint32_t h, v;   /* luma samples per chroma sample: 1 or 2 */
	uint32_t n_luma; /* luma blocks per MCU: h * v */
	uint32_t mcus_per_row, mcu_rows;
	uint32_t chroma_width, chroma_height; /* real samples, not filled up to blocks */
	uint32_t restart_interval;            /* in MCUs; 0: none */
	bool is_ycc;
};

/* One component's samples of the present MCU row. */
struct strip {
	uint8_t *row0; /* first sample of the first column kept */
	size_t stride_bytes;
};

/* Where the coefficients of the present picture come from. */
enum scan_source { FROM_STREAM, FROM_PROGRESSIVE, FROM_PACK };

struct scan {
	const struct entropy_ops *entropy;
	const struct blocks_ops *blocks;
	struct huff_cache tables;
	struct scratch stream, starts, strips;
	struct progressive progressive;
	struct row_sink *sink; /* of rows; NULL: they stay in the image */
	bool sink_has_rows;
	uint32_t edge; /* samples along an edge that a block of luma becomes: 8, or of a draft 4, 2 or 1 */
	/* The present image. */
	enum scan_source source;
	const struct block_pack *pack;                 /* borrowed */
	struct block_place line[BLOCK_PACK_MAX_LINES]; /* in the present MCU row of the pack */
	struct shape shape;
	struct mcu_layout layout;
	const uint32_t *interval_starts; /* in the stream, one more than there are intervals */
	struct checkpoints *record;
	const struct checkpoints *index;
	struct entropy_state state;
	uint32_t at;                   /* the MCU that follows the state */
	uint32_t stop;                 /* next MCU at which scan_arrive() must act */
	uint32_t next_restart;         /* first MCU after the present restart interval; UINT32_MAX: none */
	uint32_t next_record;          /* MCU before which the state is recorded next; UINT32_MAX: none */
	uint32_t next_state, next_row; /* number of that state in `record`; the first MCU of the row after its row */
	const uint8_t *interval_end;
	struct strip strip[3];
	/* The rectangle: pixels; MCU columns and rows [first, end); the samples of chroma it needs [first, end). */
	struct region_px want;
	uint32_t mcu_x0, mcu_x1, mcu_y0, mcu_y1;
	uint32_t chroma_x0, chroma_x1, chroma_y0, chroma_y1;
	/* Pairs of blocks: luma [0], [1]; chroma [2]. All zero between MCUs. */
	_Alignas(64) int16_t coef[3][COEF_PAIR_STORAGE];
	_Alignas(64) uint16_t quant[2][COEF_PAIR]; /* luma, chroma */
	int exceeded;                              /* a dequantized value was too large */
};

/* ---- scan-shape.c: the header ---- */

/* False for a picture that this decoder does not handle. */
bool scan_shape(const struct jpeg_decompress_struct *c, struct shape *out);

/* ---- scan.c ---- */

int scan_load_tables(struct scan *s, const struct jpeg_decompress_struct *c);
/* Removes the stuffing of the data of all intervals. */
int scan_load_stream(struct scan *s, const uint8_t *data, size_t n);
/* The picture's blocks, down to the rectangle's last row. */
void scan_frame(const struct scan *s, uint32_t max_scans, struct progressive_frame *f);
/* The rectangle, from s->source; scan_plan has been called. */
int scan_decode_blocks(struct scan *s, struct region_px want, struct image *out);

/* ---- scan-position.c: places in the stream ---- */

/* Bits of the present interval that are after the state; negative: it has read too far. */
int64_t scan_bits_left(const struct scan *s);
void scan_stand_at(struct scan *s, uint32_t mcu, uint64_t bit, const int32_t dc[3]);
/* The state has reached s->stop: passes a restart marker, records the state, finds the next stop. */
int scan_arrive(struct scan *s);
/* Goes to `mcu`, which is not before the present position, by the shortest way. */
int scan_go_to(struct scan *s, uint32_t mcu);

/* ---- scan-rows.c: finished rows ---- */

/* Where the pixel row y goes; and what is done when it is there. */
uint8_t *scan_row_place(const struct scan *s, uint32_t y, const struct image *out);
void scan_row_done(struct scan *s, uint32_t y, const struct image *out);

/* ---- scan-region.c: from the rectangle to blocks ---- */

/* What of the picture the rectangle needs. */
void scan_plan(struct scan *s, struct region_px want);
/* Bit b is set when block b of this MCU has samples that the rectangle needs. */
uint32_t scan_blocks_wanted(const struct scan *s, uint32_t mcu_x, uint32_t mcu_y);

/* ---- scan-pixels.c: from samples to pixels ---- */

/* Memory for its strips: 0 or -ENOMEM. */
int scan_reserve_strips(struct scan *s);
/* Emits the pixel rows that MCU row mcu_y completes, and keeps the samples that the next row needs. */
void scan_emit_rows(struct scan *s, uint32_t mcu_y, const struct image *out);

/* ---- scan-draft.c: pictures at a fraction of their size ---- */

/* Whether pictures of this shape are decoded here in the present size. */
bool scan_can_draft(const struct scan *s);
/* As scan_reserve_strips. */
int scan_reserve_drafts(struct scan *s);
/* entropy_ops.decode's mask for an MCU. */
uint32_t scan_draft_wants(const struct scan *s);
/* Transforms the blocks of MCU x of the strips. */
void scan_transform_draft(struct scan *s, uint32_t x, const uint8_t *last);
/* Emits the pixels of MCU row mcu_y. */
void scan_emit_draft(struct scan *s, uint32_t mcu_y, const struct image *out);

#endif
