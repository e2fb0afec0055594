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

static void put(struct huff_ac *t, unsigned at, unsigned n, unsigned length, unsigned first, unsigned last, unsigned size, int value)
{
	memset(t->length + at, (int)length, n);
	memset(t->forward + at, (int)last, n);
	memset(t->first + at, (int)first, n);
	memset(t->size + at, (int)size, n);
	memset(t->value + at, value, n);
}

static void put_long(struct huff_ac *t, unsigned at, unsigned n)
{
	put(t, at, n, 0, 1, HUFF_AC_LONG, 0, 0);
}

static void put_single(struct huff_ac *t, unsigned at, unsigned n, struct symbol s)
{
	unsigned length = (unsigned)s.length + s.size;

	if (length > HUFF_AC_LENGTH)
		put_long(t, at, n);
	else
		put(t, at, n, length, s.forward == HUFF_AC_END ? 1 : s.forward, s.forward, s.size, 0);
}

/* Fills the entries from `at` on whose windows start with symbol s. `singles` knows every window's first symbol. */
static void fill_symbol(struct huff_ac *t, const struct symbol *singles, unsigned at, struct symbol s)
{
	unsigned used = (unsigned)s.length + s.size;

	if (s.forward == HUFF_AC_END || s.size > MAX_FIRST_SIZE || used >= HUFF_AC_BITS) {
		put_single(t, at, 1u << (HUFF_AC_BITS - s.length), s);
		return;
	}
	unsigned rest = HUFF_AC_BITS - used; /* bits of the window behind the first symbol and its value */
	for (unsigned v = 0; v < 1u << s.size; v++) {
		int value = s.size && !(v >> (s.size - 1)) ? (int)v + 1 - (1 << s.size) : (int)v;

		for (unsigned end = at + (1u << rest), i = 0; at < end;) {
			struct symbol second = singles[i << used];
			unsigned length = used + second.length + second.size, same = 1;

			if (second.length && second.length <= rest && length <= HUFF_AC_LENGTH) {
				same = 1u << (rest - second.length);
				put(t, at, same, length, s.forward, (unsigned)s.forward + second.forward, second.size, value);
			} else {
				put_single(t, at, same, s);
			}
			at += same;
			i += same;
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
	put_long(t, at, (1u << HUFF_AC_BITS) - at);
	for (unsigned i = 0; i < at; i += 1u << (HUFF_AC_BITS - singles[i].length))
		fill_symbol(t, singles, i, singles[i]);
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
