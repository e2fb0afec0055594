/* See block-pack.h.
 *
 * A block: its size in bytes; how many bytes its mask has, and whether its values have two bytes; the first
 * coefficient, two bytes; the mask, whose bit k - 1 says that coefficient k in zigzag order is not zero; these
 * coefficients' values, a byte each unless one of them needs two. */
#include "image/jpeg/block-pack.h"

#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include "image/jpeg/zigzag.h"

enum {
	HEAD_BYTES = 4, /* before the mask */
	MAX_MASK_BYTES = 8,
	MAX_BLOCK_BYTES = HEAD_BYTES + MAX_MASK_BYTES + 2 * (DCTSIZE2 - 1),
	IS_WIDE = 16,    /* in a block's second byte, above the size of its mask */
	MAX_MCUS = 8192, /* in a row: 65535 pixels */
};

/* ---- packing ---- */

/* Returns the end. */
static uint8_t *pack_block(uint8_t *to, const int16_t values[DCTSIZE2], uint64_t with_values)
{
	uint64_t mask = with_values >> 1;
	size_t n_mask = mask ? (size_t)(71 - __builtin_clzll(mask)) / 8 : 0;
	uint8_t *at = to + HEAD_BYTES + n_mask;
	unsigned beyond = 0;

	memcpy(to + 2, &values[0], sizeof(values[0]));
	memcpy(to + HEAD_BYTES, &mask, sizeof(mask));
	for (uint64_t left = mask; left; left &= left - 1) {
		int16_t v = values[__builtin_ctzll(left) + 1];

		beyond |= (unsigned)(v + 128) & ~255u;
		*at++ = (uint8_t)v;
	}
	if (beyond) {
		at = to + HEAD_BYTES + n_mask;
		for (uint64_t left = mask; left; left &= left - 1, at += sizeof(int16_t))
			memcpy(at, &values[__builtin_ctzll(left) + 1], sizeof(int16_t));
	}
	to[0] = (uint8_t)(at - to);
	to[1] = (uint8_t)(n_mask | (beyond ? IS_WIDE : 0));
	return at;
}

/* Packs a line of n blocks. Returns the end; NULL if it has no room before `limit`. */
static uint8_t *pack_line(uint8_t *to, const uint8_t *limit, const struct progressive *p, size_t block, uint32_t n)
{
	const int16_t *values = (const int16_t *)(const void *)p->values.data;
	const uint64_t *masks = (const uint64_t *)(const void *)p->masks.data;

	for (; n > 0; n--, block++) {
		if (limit - to < MAX_BLOCK_BYTES)
			return NULL;
		to = pack_block(to, values + block * DCTSIZE2, masks[block]);
	}
	return to;
}

/* More than the blocks of the decoded rows can take. */
static size_t most_block_bytes(const struct progressive_frame *f)
{
	size_t n = 1;

	for (uint32_t i = 0; i < f->n_components; i++)
		n += (size_t)f->n_rows * f->component[i].v * f->component[i].stride;
	return n * MAX_BLOCK_BYTES;
}

static uint32_t lines_of(const struct progressive_frame *f)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->n_components; i++)
		n += f->component[i].v;
	return n;
}

size_t block_pack_make(struct scratch *to, const struct progressive *p, uint64_t scan_id, size_t limit_bytes)
{
	const struct progressive_frame *f = &p->frame;
	const uint32_t n_lines = lines_of(f);
	const size_t head = sizeof(struct block_pack) + ((size_t)f->n_rows * n_lines + 1) * sizeof(uint32_t);

	const size_t most = head + most_block_bytes(f) + BLOCK_PACK_PAD_BYTES;

	/* Data may have anything after the picture, for which no memory is taken. */
	if (limit_bytes > most)
		limit_bytes = most;
	if (limit_bytes > INT32_MAX || head + BLOCK_PACK_PAD_BYTES > limit_bytes || n_lines > BLOCK_PACK_MAX_LINES)
		return 0;
	uint8_t *start = scratch_reserve(to, limit_bytes);
	if (!start)
		return 0;
	const uint8_t *limit = start + limit_bytes - BLOCK_PACK_PAD_BYTES;
	struct block_pack *x = (struct block_pack *)(void *)start;
	uint8_t *at = start + head;
	uint32_t *next = x->starts;
	for (uint32_t row = 0; row < f->n_rows; row++)
		for (uint32_t i = 0; i < f->n_components; i++) {
			const struct progressive_component *c = &f->component[i];

			for (uint32_t line = 0; line < c->v; line++) {
				*next++ = (uint32_t)(at - start);
				at = pack_line(at, limit, p, c->first_block + ((size_t)row * c->v + line) * c->stride,
					       c->stride);
				if (!at)
					return 0;
			}
		}
	*next = (uint32_t)(at - start);
	memset(at, 0, BLOCK_PACK_PAD_BYTES);
	*x = (struct block_pack){ .magic = BLOCK_PACK_MAGIC,
				  .mcus_per_row = f->mcus_per_row,
				  .mcu_rows = f->mcu_rows,
				  .n_rows = f->n_rows,
				  .n_lines = n_lines,
				  .n_bytes = (uint32_t)(at - start) + BLOCK_PACK_PAD_BYTES,
				  .scan_id = scan_id };
	return x->n_bytes;
}

/* ---- reading ---- */

bool block_pack_valid(const struct block_pack *x, size_t size_bytes)
{
	if (size_bytes < sizeof(*x) || x->magic != BLOCK_PACK_MAGIC || x->n_bytes != size_bytes || !x->mcus_per_row ||
	    x->mcus_per_row > MAX_MCUS || x->mcu_rows > MAX_MCUS || !x->n_rows || x->n_rows > x->mcu_rows ||
	    !x->n_lines || x->n_lines > BLOCK_PACK_MAX_LINES)
		return false;
	size_t n = (size_t)x->n_rows * x->n_lines, at = sizeof(*x) + (n + 1) * sizeof(uint32_t);
	if (size_bytes < at + BLOCK_PACK_PAD_BYTES)
		return false;
	for (size_t i = 0; i <= n; at = x->starts[i++])
		if (x->starts[i] < at || x->starts[i] > size_bytes - BLOCK_PACK_PAD_BYTES)
			return false;
	return true;
}

struct block_place block_pack_line(const struct block_pack *x, uint32_t row, uint32_t line)
{
	const uint32_t *start = x->starts + (size_t)row * x->n_lines + line;
	const uint8_t *bytes = (const uint8_t *)x;

	return (struct block_place){ bytes + start[0], bytes + start[1] };
}

int block_pack_skip(struct block_place *b, uint32_t n)
{
	const uint8_t *next = b->next;

	/* The pad keeps each size byte readable; a size of 0 cannot go backwards. */
	for (; n > 0 && next < b->end; n--)
		next += *next;
	b->next = next;
	return n == 0 && next <= b->end ? 0 : -1;
}

int block_pack_take(struct block_place *b, int16_t *coef)
{
	const uint8_t *p = b->next;
	uint64_t mask;

	if (p >= b->end)
		return -1;
	const size_t n_mask = p[1] & (IS_WIDE - 1);
	if (p[0] > b->end - p || n_mask > MAX_MASK_BYTES)
		return -1;
	b->next += p[0];
	memcpy(&coef[0], p + 2, sizeof(coef[0]));
	if (n_mask == 0)
		return 0;
	memcpy(&mask, p + HEAD_BYTES, sizeof(mask));
	mask &= ~UINT64_C(0) >> (64 - 8 * n_mask);
	mask &= ~UINT64_C(0) >> 1;
	const unsigned last = mask ? 64 - (unsigned)__builtin_clzll(mask) : 0;
	const uint8_t *value = p + HEAD_BYTES + n_mask;
	if (p[1] & IS_WIDE)
		for (; mask; mask &= mask - 1, value += sizeof(int16_t))
			memcpy(&coef[zigzag[__builtin_ctzll(mask) + 1]], value, sizeof(int16_t));
	for (; mask; mask &= mask - 1)
		coef[zigzag[__builtin_ctzll(mask) + 1]] = (int8_t)*value++;
	return (int)last;
}
