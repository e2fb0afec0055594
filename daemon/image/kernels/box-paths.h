/* One pass of Pillow's box filter over a tile. Only blur-pillow.c and its sibling include this. */
#ifndef BATCHD_BOX_PATHS_H
#define BATCHD_BOX_PATHS_H

#include <stddef.h>
#include <stdint.h>

enum { BOX_LANES = 48, BOX_HALF = 1 << 23 };

struct box {
	uint32_t radius; /* whole pixels */
	uint32_t ww, fw;
};

/* The steps that leave the box, enter it, and lie after it when it moves to step x. */
struct edges {
	const uint8_t *leaves, *enters, *next;
};

static inline struct edges edges_at(const uint8_t *in, uint32_t x, uint32_t r, uint32_t last)
{
	return (struct edges){
		.leaves = in + (size_t)(x > r ? x - r - 1 : 0) * BOX_LANES,
		.enters = in + (size_t)(x + r < last ? x + r : last) * BOX_LANES,
		.next = in + (size_t)(x + r + 1 < last ? x + r + 1 : last) * BOX_LANES,
	};
}

/* One pass over n steps of BOX_LANES bytes. first: the sums of the box around the position before the first. */
typedef void box_pass(const struct box *b, const uint32_t first[BOX_LANES], const uint8_t *in, uint8_t *out,
		      uint32_t n);

#if defined(__x86_64__)
enum { BOX_AVX512_MAX_RADIUS = 63 }; /* sums are signed numbers of 16 bits */
extern box_pass box_pass_avx512;
#endif

#endif
