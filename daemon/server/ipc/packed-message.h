/* A packed message: a message to clients packed once, which waits for one peer or is sent to many.
 *
 * Loop thread only. Reference counted; each packet that waits in a peer's queue holds a reference. */
#ifndef BATCHD_PACKED_MESSAGE_H
#define BATCHD_PACKED_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "wire.h"

struct packed_message {
	unsigned n_refs;
	size_t n_bytes;
	uint8_t bytes[];
};

/* The caller has the first reference. NULL: out of memory. m must fit a packet (WIRE_MAX_BYTES). */
struct packed_message *packed_message_make(const Batchd__Wire__ServerMessage *m);
struct packed_message *packed_message_ref(struct packed_message *k);
void packed_message_unref(struct packed_message *k); /* NULL is fine */

#endif
