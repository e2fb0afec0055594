/* Huffman tables, see huffman.h.
 *
 * The decoder's speed is the length of one chain: window, load, shift. A table entry that covers two symbols halves the number of links, and
 * because the entry never says "it depends", the loop has no branch but its end: a single symbol is a pair whose
 * first half is overwritten by its second, the end of the block is a jump beyond coefficient 63, and so is the confession that the code is
 * longer than the window. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "image/huffman.h"

enum { MAX_FIRST_SIZE = 7 }; /* so that the first value of a pair fits into 8 bits */

/* Canonical codes from counts. Like libjpeg, refuses counts that do not fit and a code of all ones. */
static int codes_build(struct huff_codes *c, const uint8_t bits[17], const uint8_t values[256], unsigned max_size)
{
	uint32_t code = 0;
	int32_t n = 0;

	for (unsigned length = 1; length <= 16; length++) {
		c->offset[length] = n - (int32_t)code;
		code += bits[length];
		n += bits[length];
		if (n > 256 || (bits[length] && code >= 1u << length))
			return -EINVAL;
		c->limit[length] = code << (16 - length);
		code <<= 1;
	}
	c->limit[17] = UINT32_MAX;
	for (int32_t i = 0; i < n; i++)
		if ((values[i] & 15) > max_size || (max_size == HUFF_MAX_DC_SIZE && values[i] > max_size))
			return -EINVAL;
	memcpy(c->values, values, sizeof(c->values));
	return 0;
}

int huff_dc_build(struct huff_dc *t, const uint8_t bits[17], const uint8_t values[256])
{
	int r = codes_build(&t->codes, bits, values, HUFF_MAX_DC_SIZE);
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

static uint32_t entry(unsigned length, unsigned first, unsigned last, unsigned size, int value)
{
	return length | first << 6 | size << 12 | last << 16 | (uint32_t)value << 24;
}

/* What one symbol does: bits, coefficients forward, size of its value. */
struct symbol {
	uint8_t length, size, forward;
};

static struct symbol symbol_of(unsigned length, uint8_t value)
{
	unsigned run = value >> 4, size = value & 15;

	if (size == 0 && run != 15)
		return (struct symbol){(uint8_t)length, 0, HUFF_AC_END};
	return (struct symbol){(uint8_t)length, (uint8_t)size, (uint8_t)(run + 1)};
}

static uint32_t entry_single(struct symbol s)
{
	if (s.forward == HUFF_AC_END)
		return entry(s.length, 1, HUFF_AC_END, 0, 0);
	return entry((unsigned)s.length + s.size, s.forward, s.forward, s.size, 0);
}

/* Fills the entries from `at` on whose windows start with symbol s. `singles` knows every window's first symbol. */
static void fill_symbol(uint32_t *pair, const struct symbol *singles, unsigned at, struct symbol s)
{
	unsigned span = 1u << (HUFF_AC_BITS - s.length);
	unsigned used = (unsigned)s.length + s.size;
	uint32_t alone = entry_single(s);

	if (s.forward == HUFF_AC_END || s.size > MAX_FIRST_SIZE || used >= HUFF_AC_BITS) {
		for (unsigned i = 0; i < span; i++)
			pair[at + i] = alone;
		return;
	}
	unsigned rest = HUFF_AC_BITS - used; /* bits of the window behind the first symbol and its value */
	for (unsigned v = 0; v < 1u << s.size; v++) {
		int value = s.size && !(v >> (s.size - 1)) ? (int)v + 1 - (1 << s.size) : (int)v;
		uint32_t *out = pair + at + (v << rest);

		for (unsigned i = 0; i < 1u << rest;) {
			struct symbol second = singles[i << used];
			unsigned same = 1;
			uint32_t e = alone;

			if (second.length && second.length <= rest) {
				same = 1u << (rest - second.length);
				e = entry(used + second.length + second.size, s.forward,
					  (unsigned)s.forward + second.forward, second.size, value);
			}
			for (unsigned end = i + same; i < end; i++)
				out[i] = e;
		}
	}
}

int huff_ac_build(struct huff_ac *t, const uint8_t bits[17], const uint8_t values[256])
{
	struct symbol singles[1 << HUFF_AC_BITS]; /* length 0: a code longer than the window, or none */
	int r = codes_build(&t->codes, bits, values, HUFF_MAX_AC_SIZE);
	unsigned at = 0, n = 0;

	if (r)
		return r;
	for (unsigned length = 1; length <= HUFF_AC_BITS; length++)
		for (unsigned i = 0; i < bits[length]; i++) {
			struct symbol s = symbol_of(length, values[n++]);

			for (unsigned end = at + (1u << (HUFF_AC_BITS - length)); at < end; at++)
				singles[at] = s;
		}
	memset(singles + at, 0, (sizeof(singles) / sizeof(singles[0]) - at) * sizeof(singles[0]));
	for (unsigned i = at; i < 1 << HUFF_AC_BITS; i++)
		t->pair[i] = entry(0, 1, HUFF_AC_LONG, 0, 0);
	for (unsigned i = 0; i < at; i += 1u << (HUFF_AC_BITS - singles[i].length))
		fill_symbol(t->pair, singles, i, singles[i]);
	return 0;
}

/* The key that holds this definition, or else the one used longest ago, made to hold it. */
static unsigned key_find(struct huff_key *keys, uint64_t clock, const uint8_t bits[17], const uint8_t values[256], bool *found)
{
	unsigned oldest = 0, n = 0;

	for (unsigned length = 1; length <= 16; length++)
		n += bits[length];
	n = n > 256 ? 256 : n;
	for (unsigned i = 0; i < HUFF_CACHE_TABLES; i++) {
		if (keys[i].used && memcmp(keys[i].bits + 1, bits + 1, 16) == 0 && memcmp(keys[i].values, values, n) == 0) {
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
