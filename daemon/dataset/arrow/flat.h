/* Reads flatbuffers, the encoding of Arrow's metadata: tables of numbered slots, each at a place that the table
 * tells. Every place is checked against the buffer's end. The first wrong one marks the buffer as broken, and from
 * then on each slot reads as absent: a reader takes all that it needs and asks `broken` once. */
#ifndef BATCHD_FLAT_H
#define BATCHD_FLAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flat {
	const uint8_t *bytes;
	uint32_t n_bytes;
	bool broken;
};

struct flat_table {
	struct flat *in; /* NULL: there is no such table, and each of its slots is absent */
	uint32_t at, slots, n_slots;
};

struct flat_vector {
	const uint8_t *items; /* NULL without items */
	uint32_t at, n;
};

struct flat_table flat_root(struct flat *f);
bool flat_has(const struct flat_table *t, unsigned slot);
/* A number of 1, 2, 4 or 8 bytes; `absent` where the slot is not there. */
int64_t flat_int(const struct flat_table *t, unsigned slot, unsigned n_bytes, int64_t absent);
struct flat_table flat_child(const struct flat_table *t, unsigned slot);
/* Items of item_bytes each; of tables and strings they are 4 bytes. */
struct flat_vector flat_vector(const struct flat_table *t, unsigned slot, unsigned item_bytes);
struct flat_table flat_item(const struct flat_table *t, const struct flat_vector *v, uint32_t i);
/* The bytes of a string; no terminator is promised. */
struct flat_vector flat_string(const struct flat_table *t, unsigned slot);

/* Little-endian numbers at any place. */
int64_t flat_number(const uint8_t *bytes, unsigned n_bytes);

#endif
