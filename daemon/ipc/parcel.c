/* See parcel.h. */
#include "ipc/parcel.h"

#include <assert.h>
#include <stdlib.h>

struct parcel *parcel_make(const Batchd__Wire__ServerMessage *m)
{
	size_t n = protobuf_c_message_get_packed_size(&m->base);
	struct parcel *k = malloc(sizeof(*k) + n);
	assert(n <= WIRE_MAX_BYTES);
	if (!k)
		return NULL;
	*k = (struct parcel){ .n_refs = 1, .n_bytes = n };
	protobuf_c_message_pack(&m->base, k->bytes);
	return k;
}

struct parcel *parcel_ref(struct parcel *k)
{
	k->n_refs++;
	return k;
}

void parcel_unref(struct parcel *k)
{
	if (k && --k->n_refs == 0)
		free(k);
}
