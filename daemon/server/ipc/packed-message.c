/* See packed-message.h. */
#include "server/ipc/packed-message.h"

#include <assert.h>
#include <stdlib.h>

#include "base/thread-kind.h"

struct packed_message *packed_message_make(const Batchd__Wire__ServerMessage *m)
{
	assert(is_loop_thread());
	size_t n = protobuf_c_message_get_packed_size(&m->base);
	struct packed_message *k = malloc(sizeof(*k) + n);
	assert(n <= WIRE_MAX_BYTES);
	if (!k)
		return NULL;
	*k = (struct packed_message){ .n_refs = 1, .n_bytes = n };
	protobuf_c_message_pack(&m->base, k->bytes);
	return k;
}

struct packed_message *packed_message_ref(struct packed_message *k)
{
	assert(is_loop_thread());
	k->n_refs++;
	return k;
}

void packed_message_unref(struct packed_message *k)
{
	assert(is_loop_thread());
	if (k && --k->n_refs == 0)
		free(k);
}
