/* Plain pixels and their errors. This layer knows no files, sockets or threads. */
#ifndef BATCHD_IMAGE_H
#define BATCHD_IMAGE_H

#include <stddef.h>
#include <stdint.h>

struct workspace;

enum {
	/* Outcomes of reading an image: the file is at fault, not the daemon. Text is in struct image_error. */
	IMAGE_E_FORMAT = 1,  /* not a supported format */
	IMAGE_E_CORRUPT = 2, /* damaged or cut short */
	IMAGE_E_LIMIT = 3,   /* a bomb: too many pixels, scans or chunks; refused before memory is spent */
	IMAGE_E_TIME = 4,    /* a bomb that only decoding reveals: it has used up its processor time */
};

struct image_error {
	char text[192]; /* one line, no file name: the caller knows it */
};

/* Writes err->text and returns outcome, so that a caller can `return image_fail(...)`. */
int image_fail(struct image_error *err, int outcome, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* A rectangle in pixels; (x, y) is its upper left corner. */
struct region_px {
	uint32_t x, y, width, height;
};

/* Interleaved RGB, uint8, height rows of width pixels, stride_bytes apart. Does not own its memory. */
struct image {
	uint8_t *rgb;
	size_t stride_bytes;
	uint32_t width, height;
};

/* A buffer that only grows. It lives as long as its worker, so that after the first samples no allocations happen. */
struct scratch {
	uint8_t *data;
	size_t size_bytes;
	size_t whole_bytes;      /* allocated */
	struct workspace *payer; /* base/workspace.h; NULL: memory is not counted */
};

/* Makes room for size_bytes, 64-byte aligned, followed by 64 readable and writable bytes for SIMD tails. Contents are
 * lost when it grows. Returns NULL when memory is short. */
uint8_t *scratch_reserve(struct scratch *s, size_t size_bytes);
void scratch_finish(struct scratch *s);

#endif
