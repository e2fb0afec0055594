/* Any bytes as a packet, for both unpackers: no crash, no memory beyond the arena, and what is accepted keeps its promises. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok)
{
	if (!ok)
		abort();
}

/* What was accepted can be packed again, within the limits that make it accepted once more. */
static void check_client(struct wire_arena *second, const Batchd__Wire__ClientMessage *m)
{
	const Batchd__Wire__ClientMessage *again;
	size_t n = protobuf_c_message_get_packed_size(&m->base);
	uint8_t *bytes = malloc(n ? n : 1);

	protobuf_c_message_pack(&m->base, bytes);
	if (n <= WIRE_MAX_BYTES)
		require(wire_unpack_client(second, bytes, n, &again, NULL) == 0 && again->body_case == m->body_case);
	if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_OPEN)
		require(strlen(m->open->job) <= WIRE_MAX_JOB && strlen(m->open->dataset) <= WIRE_MAX_DATASET);
	if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_INDICES)
		require(m->indices->n_index <= WIRE_MAX_INDICES);
	free(bytes);
}

static void check_server(const Batchd__Wire__ServerMessage *m)
{
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED)
		require(m->opened->n_shape <= WIRE_MAX_DIMS && m->opened->n_mean <= WIRE_MAX_CHANNELS);
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_CLASSES)
		for (size_t i = 0; i < m->classes->n_name; i++)
			require(strlen(m->classes->name[i]) <= WIRE_MAX_CLASS_NAME);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct wire_arena first, second;
	const Batchd__Wire__ClientMessage *c;
	const Batchd__Wire__ServerMessage *s;
	const char *why;

	wire_arena_init(&first);
	wire_arena_init(&second);
	if (wire_unpack_client(&first, data, size, &c, &why) == 0)
		check_client(&second, c);
	else
		require(c == NULL && why != NULL);
	if (wire_unpack_server(&first, data, size, &s, &why) == 0)
		check_server(s);
	else
		require(s == NULL && why != NULL);
	require(first.used <= WIRE_ARENA_BYTES);
	return 0;
}
