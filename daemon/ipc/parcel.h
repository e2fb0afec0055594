/* A parcel: a message to clients packed once, which waits for one peer or is sent to many.
 *
 * Loop thread only. Reference counted; each packet that waits in a peer's queue holds a reference. */
#ifndef BATCHD_PARCEL_H
#define BATCHD_PARCEL_H

#include <stddef.h>
#include <stdint.h>

#include "wire.h"

struct parcel {
	unsigned n_refs;
	size_t n_bytes;
	uint8_t bytes[];
};

/* The caller has the first reference. NULL: out of memory. m must fit a packet (WIRE_MAX_BYTES). */
struct parcel *parcel_make(const Batchd__Wire__ServerMessage *m);
struct parcel *parcel_ref(struct parcel *k);
void parcel_unref(struct parcel *k); /* NULL is fine */

#endif
