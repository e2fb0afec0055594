/* Any bytes as a packet, for both unpackers: no crash, no memory beyond the arena, and accepted messages are within
 * their limits. */
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

/* Packing reads everything that unpacking made, so that the sanitizers check it. */
static void read_all(const ProtobufCMessage *m)
{
	size_t n = protobuf_c_message_get_packed_size(m);
	uint8_t *bytes = malloc(n ? n : 1);

	require(protobuf_c_message_pack(m, bytes) == n);
	free(bytes);
}

static void check_client(const Batchd__Wire__ClientMessage *m)
{
	if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_OPEN)
		require(strlen(m->open->job) <= WIRE_MAX_JOB);
	if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_INDICES)
		require(m->indices->n_index <= WIRE_MAX_INDICES);
	read_all(&m->base);
}

static void check_server(const Batchd__Wire__ServerMessage *m)
{
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED) {
		require(m->opened->n_field <= WIRE_MAX_FIELDS);
		for (size_t i = 0; i < m->opened->n_field; i++)
			require(m->opened->field[i]->n_shape <= WIRE_MAX_DIMS &&
				m->opened->field[i]->n_mean <= WIRE_MAX_CHANNELS);
	}
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_CLASSES)
		for (size_t i = 0; i < m->classes->n_name; i++)
			require(strlen(m->classes->name[i]) <= WIRE_MAX_CLASS_NAME);
	read_all(&m->base);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct wire_arena arena;
	const Batchd__Wire__ClientMessage *c;
	const Batchd__Wire__ServerMessage *s;
	const char *why;

	wire_arena_init(&arena);
	if (wire_unpack_client(&arena, data, size, &c, &why) == 0)
		check_client(c);
	else
		require(c == NULL && why != NULL);
	if (wire_unpack_server(&arena, data, size, &s, &why) == 0)
		check_server(s);
	else
		require(s == NULL && why != NULL);
	require(arena.used <= WIRE_ARENA_BYTES);
	return 0;
}
