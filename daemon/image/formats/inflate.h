/* Inflates a zlib stream, or one of deflate alone, in parts, faster than zlib and stopping wherever the caller has enough.
 *
 * It is strict: a stream that zlib refuses is refused, and so are a few that zlib accepts (see INFLATE_UNSURE). Belongs
 * to one thread; allocates nothing. */
#ifndef BATCHD_INFLATE_H
#define BATCHD_INFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	INFLATE_WINDOW = 1 << 15, /* of bytes before the next one: the caller keeps them in place */
	INFLATE_SLACK = 258 + 40, /* writable bytes after the caller's limit */
	INFLATE_PAD_BYTES = 64,   /* readable bytes after the stream */
	INFLATE_LITERAL_BITS = 11,
	INFLATE_DISTANCE_BITS = 8,
	/* The most that a complete code of 288 symbols and 15 bits needs with such a first table; of 32 symbols. */
	INFLATE_LITERAL_ENTRIES = 2342,
	INFLATE_DISTANCE_ENTRIES = 402,
};

enum inflate_outcome {
	INFLATE_MORE = 0, /* the limit is reached */
	INFLATE_END,      /* the stream is over */
	INFLATE_UNSURE,   /* damaged, cut short, or coded in an unusual way: ask zlib */
};

struct inflate {
	const uint8_t *next, *end; /* of the stream */
	uint64_t bits;             /* upcoming, first one lowest */
	unsigned n_bits;
	enum { INFLATE_AT_BLOCK, INFLATE_IN_STORED, INFLATE_IN_CODES, INFLATE_AT_END } state;
	bool last;       /* the present block is the last one */
	uint32_t stored; /* bytes left of a stored block */
	uint64_t n_out;  /* bytes so far: how far back a distance may reach */
	uint64_t n_blocks;
	bool plain; /* use what runs on every processor; false after inflate_begin */
	uint32_t literal[INFLATE_LITERAL_ENTRIES];
	uint32_t distance[INFLATE_DISTANCE_ENTRIES];
};

/* stream[0..n), followed by INFLATE_PAD_BYTES readable bytes, is borrowed. INFLATE_UNSURE: not a zlib header. */
enum inflate_outcome inflate_begin(struct inflate *s, const uint8_t *stream, size_t n);
/* Appends at *out, up to `limit` and, in the slack, as far beyond it as the symbol in progress goes. The bytes before
 * *out, at most INFLATE_WINDOW and all so far, must be those that came before. */
enum inflate_outcome inflate_run(struct inflate *s, uint8_t **out, uint8_t *limit);
/* After INFLATE_END: whether the checksum that follows is this one. */
bool inflate_checksum_is(const struct inflate *s, uint32_t adler);

#endif
