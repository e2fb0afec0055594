/* Huffman tables of a JPEG scan, in the form that decodes fastest: look-ups that consume up to two symbols at once.
 *
 * Most photographs have tables of their own, so building a table must be cheap as well (a few microseconds). A
 * huff_cache belongs to one thread. */
#ifndef BATCHD_HUFFMAN_H
#define BATCHD_HUFFMAN_H

#include <stdint.h>

enum {
	HUFF_AC_BITS = 11, /* of look-ahead; 10 KiB a table; two tables fit easily into the first-level cache */
	HUFF_AC_ENTRIES = 1 << HUFF_AC_BITS,
	HUFF_AC_ROOM = HUFF_AC_ENTRIES + 16, /* building writes slightly past the end */
	HUFF_DC_BITS = 9,
	HUFF_MAX_AC_SIZE = 10, /* value bits of a coefficient in 8-bit JPEGs */
	HUFF_MAX_DC_SIZE = 11,
};

/* Any code, the slow way: limit[n] is the first 16-bit window that no code of n bits or fewer starts. */
struct huff_codes {
	int32_t limit[17];
	int32_t offset[17]; /* values[(window >> (16 - n)) + offset[n]] */
	uint8_t values[256];
};

struct huff_dc {
	uint16_t fast[1 << HUFF_DC_BITS]; /* bits of code and value | size of the value << 8; 0: a longer code */
	struct huff_codes codes;
};

/* The start of a window of HUFF_AC_BITS bits: a symbol whose value reaches beyond the window, one with its value, or
 * that and a second symbol, whose value may again reach beyond. Separate arrays of bytes are faster than taking an
 * entry apart.
 *
 * The last value (of `size` bits, 0 if there is none) belongs at `forward`; then `value` is stored at `first`, in this
 * order. Where the table has no value, `first` is a place after everything so far, and a zero there does no harm. */
struct huff_ac {
	uint8_t length[HUFF_AC_ROOM];  /* all of its code and value bits; at most HUFF_AC_LENGTH */
	uint8_t forward[HUFF_AC_ROOM]; /* from the present coefficient to the last one; HUFF_AC_END more at the end of
	                                * the block; HUFF_AC_LONG: code too long for the table */
	uint8_t first[HUFF_AC_ROOM];   /* to the coefficient with the value in the table */
	uint8_t size[HUFF_AC_ROOM];
	uint8_t value[HUFF_AC_ROOM]; /* signed */
	struct huff_codes codes;
};
enum { HUFF_AC_LENGTH = 18, HUFF_AC_LONG = 64, HUFF_AC_END = 128 };

/* bits[1..16]: number of codes of that length; values: their symbols (as in JHUFF_TBL). -EINVAL: not a valid table, or
 * one with values too large for 8-bit samples. */
int huff_dc_build(struct huff_dc *t, const uint8_t bits[17], const uint8_t values[256]);
int huff_ac_build(struct huff_ac *t, const uint8_t bits[17], const uint8_t values[256]);
int huff_codes_build(struct huff_codes *c, const uint8_t bits[17], const uint8_t values[256], unsigned max_size);

/* The tables built last, looked up by their definition. */
enum { HUFF_CACHE_TABLES = 6 };
struct huff_cache {
	struct huff_key {
		uint8_t bits[17], values[256];
		uint64_t used; /* clock of the last use; 0: empty */
	} dc_key[HUFF_CACHE_TABLES], ac_key[HUFF_CACHE_TABLES];
	struct huff_dc dc[HUFF_CACHE_TABLES];
	struct huff_ac ac[HUFF_CACHE_TABLES];
	uint64_t clock;
};

/* Valid until HUFF_CACHE_TABLES - 1 other tables of the same kind have been requested. NULL for an invalid table. */
const struct huff_dc *huff_cache_dc(struct huff_cache *c, const uint8_t bits[17], const uint8_t values[256]);
const struct huff_ac *huff_cache_ac(struct huff_cache *c, const uint8_t bits[17], const uint8_t values[256]);

#endif
