/* Takes the rows of a picture while they are decoded, so that the next stage finds them in the processor's caches. */
#ifndef BATCHD_ROW_SINK_H
#define BATCHD_ROW_SINK_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "image/kernels/image.h"

enum {
	ROW_SINK_BAND = 4,         /* rows in a band, except the last one; what the resampler shrinks at once */
	ROW_SINK_SLACK_BYTES = 64, /* readable after each row of a band */
};

struct row_sink {
	/* The next n rows of interleaved RGB, stride_bytes apart; they are gone when this returns. */
	void (*take)(struct row_sink *sink, const uint8_t *rows, size_t stride_bytes, unsigned n);
};

/* Rows that come one at a time, gathered to bands. */
struct row_bands {
	struct row_sink *sink;
	uint8_t *rows;
	size_t stride_bytes;
	unsigned n; /* gathered */
};

/* Of rows of `width` pixels, in `memory`. 0 or -ENOMEM. */
static inline int row_bands_begin(struct row_bands *b, struct row_sink *sink, uint32_t width, struct scratch *memory)
{
	b->sink = sink;
	b->n = 0;
	b->stride_bytes = ((size_t)width * 3 + ROW_SINK_SLACK_BYTES + 63) / 64 * 64;
	b->rows = scratch_reserve(memory, b->stride_bytes * ROW_SINK_BAND);
	return b->rows ? 0 : -ENOMEM;
}

/* Where the next row goes, which row_bands_put then counts. */
static inline uint8_t *row_bands_next(const struct row_bands *b)
{
	return b->rows + b->n * b->stride_bytes;
}

/* Hands on what is there, if anything. */
static inline void row_bands_flush(struct row_bands *b)
{
	if (b->n)
		b->sink->take(b->sink, b->rows, b->stride_bytes, b->n);
	b->n = 0;
}

static inline void row_bands_put(struct row_bands *b)
{
	if (++b->n == ROW_SINK_BAND)
		row_bands_flush(b);
}

#endif
