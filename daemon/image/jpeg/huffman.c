/* Huffman tables, see huffman.h.
 *
 * The decoder's speed is the length of one dependency chain: window, load, shift. An entry that covers two symbols
 * halves the number of links. Every entry is unconditional, so the loop's only branch is its end: a single symbol is a
 * pair whose other half does nothing; the end of the block is a jump beyond coefficient 63, and so is the mark for a
 * code longer than the window.
 *
 * Building is fast because the contribution of a second symbol depends only on the number of bits that are left for it
 * in the window. There is one template for each number of bits, each half as large as the one before. The entries for a
 * first symbol with a value are a template plus constants. Runs are written 16 bytes at a time in ascending order, so
 * that the next run overwrites the excess of the previous one. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "image/jpeg/huffman.h"

enum { MAX_FIRST_SIZE = 7 }; /* so that the first value of a pair fits into 8 bits */

/* Canonical codes from counts. Like libjpeg, refuses counts that do not fit and a code of all ones. */
int huff_codes_build(struct huff_codes *c, const uint8_t bits[17], const uint8_t values[256], unsigned max_size)
{
	uint32_t code = 0;
	int32_t n = 0;

	for (unsigned length = 1; length <= 16; length++) {
		c->offset[length] = n - (int32_t)code;
		code += bits[length];
		n += bits[length];
		if (n > 256 || (bits[length] && code >= 1u << length))
			return -EINVAL;
		c->limit[length] = (int32_t)(code << (16 - length));
		code <<= 1;
	}
	for (int32_t i = 0; i < n; i++)
		if ((values[i] & 15) > max_size || (max_size == HUFF_MAX_DC_SIZE && values[i] > max_size))
			return -EINVAL;
	memcpy(c->values, values, sizeof(c->values));
	return 0;
}

int huff_dc_build(struct huff_dc *t, const uint8_t bits[17], const uint8_t values[256])
{
	int r = huff_codes_build(&t->codes, bits, values, HUFF_MAX_DC_SIZE);
	unsigned at = 0, n = 0;

	if (r)
		return r;
	memset(t->fast, 0, sizeof(t->fast));
	for (unsigned length = 1; length <= HUFF_DC_BITS; length++)
		for (unsigned i = 0; i < bits[length]; i++) {
			unsigned size = values[n++];
			unsigned span = 1u << (HUFF_DC_BITS - length);

			for (unsigned end = at + span; at < end; at++)
				t->fast[at] = (uint16_t)((length + size) | size << 8);
		}
	return 0;
}

typedef uint8_t bytes16 __attribute__((vector_size(16), aligned(1), may_alias));

/* Writes n bytes of b, and up to 15 more. */
static inline void huffman_fill(uint8_t *to, unsigned n, unsigned b)
{
	const bytes16 all = (bytes16){ 0 } + (uint8_t)b;

	for (unsigned i = 0; i < n; i += 16)
		*(bytes16 *)(to + i) = all;
}

/* Writes n bytes of `from`, each plus b, and up to 15 more. */
static inline void fill_plus(uint8_t *to, const uint8_t *from, unsigned n, unsigned b)
{
	const bytes16 all = (bytes16){ 0 } + (uint8_t)b;

	for (unsigned i = 0; i < n; i += 16)
		*(bytes16 *)(to + i) = *(const bytes16 *)(from + i) + all;
}

/* The contribution of the symbol at the start of a given number of bits to an entry; all 0 when these bits do not
 * determine it. */
struct template {
	uint8_t code[HUFF_AC_ROOM];   /* length of its code */
	uint8_t length[HUFF_AC_ROOM]; /* and of its value */
	uint8_t forward[HUFF_AC_ROOM];
	uint8_t size[HUFF_AC_ROOM];
};

static void template_of_codes(struct template *t, const uint8_t bits[17], const uint8_t values[256])
{
	unsigned at = 0, n = 0;

	for (unsigned length = 1; length <= HUFF_AC_BITS; length++)
		for (unsigned i = 0; i < bits[length]; i++, n++) {
			unsigned run = values[n] >> 4, size = values[n] & 15, span = 1u << (HUFF_AC_BITS - length);

			huffman_fill(t->code + at, span, length);
			huffman_fill(t->length + at, span, length + size);
			huffman_fill(t->forward + at, span, size == 0 && run != 15 ? HUFF_AC_END : run + 1);
			huffman_fill(t->size + at, span, size);
			at += span;
		}
	huffman_fill(t->code + at, HUFF_AC_ENTRIES - at, 0);
	huffman_fill(t->length + at, HUFF_AC_ENTRIES - at, 0);
	huffman_fill(t->forward + at, HUFF_AC_ENTRIES - at, 0);
	huffman_fill(t->size + at, HUFF_AC_ENTRIES - at, 0);
}

/* Makes the template for `rest` bits from the one for one more bit. */
static void template_halve(struct template *restrict to, const struct template *restrict from, unsigned rest)
{
	const unsigned most = HUFF_AC_LENGTH - (HUFF_AC_BITS - rest);

	for (unsigned i = 0; i < 1u << rest; i++) {
		uint8_t keep = from->code[2 * i] <= rest && from->length[2 * i] <= most ? 0xFF : 0;

		to->code[i] = from->code[2 * i] & keep;
		to->length[i] = from->length[2 * i] & keep;
		to->forward[i] = from->forward[2 * i] & keep;
		to->size[i] = from->size[2 * i] & keep;
	}
}

/* Makes entries for a symbol of which only the code is in the window; size 0: end of block. */
static void put_single(struct huff_ac *t, unsigned at, unsigned n, unsigned length, unsigned forward, unsigned size)
{
	if (length > HUFF_AC_LENGTH) {
		length = size = 0;
		forward = HUFF_AC_LONG;
	}
	huffman_fill(t->length + at, n, length);
	huffman_fill(t->forward + at, n, forward);
	huffman_fill(t->first + at, n, forward < HUFF_AC_LONG ? forward + 1 : 1);
	huffman_fill(t->size + at, n, size);
	huffman_fill(t->value + at, n, 0);
}

/* Makes entries for a symbol with each of its values, `length` bits in all, combined with each second symbol in the
 * rest of the window. */
static void put_pairs(struct huff_ac *t, unsigned at, const struct template *next, unsigned length, unsigned forward,
		      unsigned size)
{
	unsigned n = 1u << (HUFF_AC_BITS - length);

	for (unsigned v = 0; v < 1u << size; v++, at += n) {
		int value = size && !(v >> (size - 1)) ? (int)v + 1 - (1 << size) : (int)v;

		fill_plus(t->length + at, next->length, n, length);
		fill_plus(t->forward + at, next->forward, n, forward);
		huffman_fill(t->first + at, n, forward);
		fill_plus(t->size + at, next->size, n, 0);
		huffman_fill(t->value + at, n, (unsigned)value);
	}
}

int huff_ac_build(struct huff_ac *t, const uint8_t bits[17], const uint8_t values[256])
{
	struct template templates[HUFF_AC_BITS + 1]; /* by bits that are left; 1 to HUFF_AC_BITS */
	unsigned at = 0, n = 0;
	int r = huff_codes_build(&t->codes, bits, values, HUFF_MAX_AC_SIZE);

	if (r)
		return r;
	template_of_codes(&templates[HUFF_AC_BITS], bits, values);
	for (unsigned rest = HUFF_AC_BITS - 1; rest; rest--)
		template_halve(&templates[rest], &templates[rest + 1], rest);
	for (unsigned length = 1; length <= HUFF_AC_BITS; length++)
		for (unsigned i = 0; i < bits[length]; i++, n++) {
			unsigned run = values[n] >> 4, size = values[n] & 15, all = length + size;

			if (size == 0 && run != 15)
				put_single(t, at, 1u << (HUFF_AC_BITS - length), length, HUFF_AC_END, 0);
			else if (size > MAX_FIRST_SIZE || all >= HUFF_AC_BITS)
				put_single(t, at, 1u << (HUFF_AC_BITS - length), all, run + 1, size);
			else
				put_pairs(t, at, &templates[HUFF_AC_BITS - all], all, run + 1, size);
			at += 1u << (HUFF_AC_BITS - length);
		}
	put_single(t, at, HUFF_AC_ENTRIES - at, UINT8_MAX, 0, 0); /* no codes, or longer ones */
	return 0;
}

/* The key that holds this definition; if there is none, the least recently used key, which then holds it. */
static unsigned key_find(struct huff_key *keys, uint64_t clock, const uint8_t bits[17], const uint8_t values[256],
			 bool *found)
{
	unsigned oldest = 0, n = 0;

	for (unsigned length = 1; length <= 16; length++)
		n += bits[length];
	n = n > 256 ? 256 : n;
	for (unsigned i = 0; i < HUFF_CACHE_TABLES; i++) {
		if (keys[i].used && memcmp(keys[i].bits + 1, bits + 1, 16) == 0 &&
		    memcmp(keys[i].values, values, n) == 0) {
			keys[i].used = clock;
			*found = true;
			return i;
		}
		if (keys[i].used < keys[oldest].used)
			oldest = i;
	}
	memcpy(keys[oldest].bits, bits, 17);
	memcpy(keys[oldest].values, values, 256);
	keys[oldest].used = clock;
	*found = false;
	return oldest;
}

const struct huff_dc *huff_cache_dc(struct huff_cache *c, const uint8_t bits[17], const uint8_t values[256])
{
	bool found;
	unsigned i = key_find(c->dc_key, ++c->clock, bits, values, &found);

	if (!found && huff_dc_build(&c->dc[i], bits, values) < 0) {
		c->dc_key[i].used = 0;
		return NULL;
	}
	return &c->dc[i];
}

const struct huff_ac *huff_cache_ac(struct huff_cache *c, const uint8_t bits[17], const uint8_t values[256])
{
	bool found;
	unsigned i = key_find(c->ac_key, ++c->clock, bits, values, &found);

	if (!found && huff_ac_build(&c->ac[i], bits, values) < 0) {
		c->ac_key[i].used = 0;
		return NULL;
	}
	return &c->ac[i];
}
