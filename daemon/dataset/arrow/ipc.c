/* See ipc.h. A stream is a row of messages, each its metadata (a flatbuffer) and a body with the buffers; a
 * file is the same between two marks, with a footer that says where the messages are. A message's metadata is small,
 * and only that is read here. */
#include "dataset/arrow/ipc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/arrow/schema.h"
#include "dataset/arrow/flat.h"

enum { CONTINUATION = -1, VERSION_4 = 3, MESSAGE_SCHEMA = 1, MESSAGE_DICTIONARY, MESSAGE_BATCH };
enum { MAGIC_BYTES = 6, FIRST_MESSAGE = 8, BLOCK_BYTES = 24, NODE_BYTES = 16 };

static const char magic[] = "ARROW1";

struct scan {
	struct shard_reader *reader;
	const struct arrow_visitor *visitor;
	struct arrow_schema schema;
	bool has_schema;
	struct arrow_node *nodes;
	struct arrow_buffer *buffers;
};

struct message {
	uint64_t at, body_at, end;
	uint64_t n_body; /* bytes */
	struct flat flat;
	struct flat_table table, header;
	int64_t type;
};

static int arrow_refuse_place(struct scan *s, uint64_t at)
{
	return shard_reader_refuse(s->reader, at, "its metadata has a place outside of itself: damaged?");
}

/* Reads the metadata of the message there. 1: it is the mark of the end. */
static int read_message(struct scan *s, uint64_t at, struct message *m)
{
	struct shard_reader *r = s->reader;
	int64_t n_metadata, version, n_body;
	const uint8_t *piece;
	int result;

	if (at + 8 > r->n_bytes)
		return shard_reader_refuse(r, at, "it ends without the mark of the end: cut short?");
	result = shard_reader_get(r, at, 8, &piece);
	if (result < 0)
		return result;
	if (flat_number(piece, 4) != CONTINUATION)
		return shard_reader_refuse(r, at, "expected a message of an Arrow IPC stream (version 0.15 or later)");
	n_metadata = flat_number(piece + 4, 4);
	if (n_metadata == 0)
		return 1;
	if (n_metadata < 0 || n_metadata > SHARD_READER_MAX_BYTES)
		return shard_reader_refuse(r, at, "a message with %lld bytes of metadata: expected at most %d",
					   (long long)n_metadata, SHARD_READER_MAX_BYTES);
	result = shard_reader_get(r, at + 8, (size_t)n_metadata, &piece);
	if (result < 0)
		return result;
	*m = (struct message){ .at = at,
			       .body_at = at + 8 + (uint64_t)n_metadata,
			       .flat = { .bytes = piece, .n_bytes = (uint32_t)n_metadata } };
	m->table = flat_root(&m->flat);
	version = flat_int(&m->table, 0, 2, 0);
	m->type = flat_int(&m->table, 1, 1, 0);
	m->header = flat_child(&m->table, 2);
	n_body = flat_int(&m->table, 3, 8, 0);
	if (m->flat.broken)
		return arrow_refuse_place(s, at);
	if (version < VERSION_4)
		return shard_reader_refuse(r, at, "a message of an old version: write the file with a later Arrow");
	if (n_body < 0 || (uint64_t)n_body > r->n_bytes - m->body_at)
		return shard_reader_refuse(r, at, "a message of %lld bytes, of which the file has %llu: cut short?",
					   (long long)n_body, (unsigned long long)(r->n_bytes - m->body_at));
	m->n_body = (uint64_t)n_body;
	m->end = m->body_at + m->n_body;
	return 0;
}

/* ---- record batches ---- */

static int take_nodes(struct scan *s, const struct message *m)
{
	struct flat_vector v = flat_vector(&m->header, 1, NODE_BYTES);

	if (v.n != s->schema.n)
		return shard_reader_refuse(s->reader, m->at, "a batch of %u columns and their children, not %u", v.n,
					   s->schema.n);
	for (uint32_t i = 0; i < v.n; i++) {
		int64_t n = flat_number(v.items + NODE_BYTES * (size_t)i, 8);
		int64_t n_null = flat_number(v.items + NODE_BYTES * (size_t)i + 8, 8);

		if (n < 0 || n_null < 0 || n_null > n)
			return shard_reader_refuse(s->reader, m->at, "column %s: %lld values, of them %lld nulls",
						   s->schema.fields[i].name, (long long)n, (long long)n_null);
		s->nodes[i] = (struct arrow_node){ (uint64_t)n, (uint64_t)n_null };
	}
	return 0;
}

/* Buffers lie one after the other, as all writers put them. */
static int take_buffers(struct scan *s, const struct message *m)
{
	struct flat_vector v = flat_vector(&m->header, 2, NODE_BYTES);
	uint64_t last = 0;

	if (v.n != s->schema.n_buffers)
		return shard_reader_refuse(s->reader, m->at, "a batch of %u buffers: its columns have %u", v.n,
					   s->schema.n_buffers);
	for (uint32_t i = 0; i < v.n; i++) {
		uint64_t at = (uint64_t)flat_number(v.items + NODE_BYTES * (size_t)i, 8);
		uint64_t n = (uint64_t)flat_number(v.items + NODE_BYTES * (size_t)i + 8, 8);

		if (at > m->n_body || n > m->n_body - at)
			return shard_reader_refuse(s->reader, m->at, "buffer %u does not lie inside its message", i);
		if (n && at < last)
			return shard_reader_refuse(s->reader, m->at, "buffer %u overlaps the one before", i);
		last = n ? at + n : last;
		s->buffers[i] = (struct arrow_buffer){ m->body_at + at, n };
	}
	return 0;
}

static int arrow_take_batch(struct scan *s, const struct message *m)
{
	struct arrow_batch batch = { .nodes = s->nodes, .buffers = s->buffers };
	int64_t n_rows = flat_int(&m->header, 0, 8, 0);
	int r;

	if (flat_has(&m->header, 3)) {
		struct flat_table compression = flat_child(&m->header, 3);

		return shard_reader_refuse(s->reader, m->at, "its buffers are compressed (%s): write them plain",
					   flat_int(&compression, 0, 1, 0) == 1 ? "zstd" : "lz4");
	}
	r = take_nodes(s, m);
	r = r < 0 ? r : take_buffers(s, m);
	if (r < 0)
		return r;
	if (m->flat.broken)
		return arrow_refuse_place(s, m->at);
	for (unsigned i = 0; i < s->schema.n; i = s->schema.fields[i].next) {
		if (n_rows < 0 || s->nodes[i].n != (uint64_t)n_rows)
			return shard_reader_refuse(s->reader, m->at, "a batch of %lld rows, column %s of %llu",
						   (long long)n_rows, s->schema.fields[i].name,
						   (unsigned long long)s->nodes[i].n);
	}
	batch.n_rows = (uint64_t)n_rows;
	return s->visitor->on_batch(s->visitor->arg, &s->schema, &batch);
}

/* ---- messages ---- */

static int arrow_take_schema(struct scan *s, uint64_t at, const struct flat_table *table)
{
	int r;

	if (s->has_schema)
		return shard_reader_refuse(s->reader, at, "a second schema");
	s->has_schema = true;
	r = arrow_schema_parse(table, &s->schema, s->reader, at);
	if (r < 0)
		return r;
	s->nodes = calloc(s->schema.n + 1, sizeof(*s->nodes));
	s->buffers = calloc(s->schema.n_buffers + 1, sizeof(*s->buffers));
	if (!s->nodes || !s->buffers)
		return dataset_fail_errno(s->reader->err, ENOMEM, s->reader->name);
	return s->visitor->on_schema(s->visitor->arg, &s->schema);
}

/* Dictionaries are left out: a column that needs one is refused where it is chosen. */
static int take_message(struct scan *s, const struct message *m)
{
	if (m->type == MESSAGE_SCHEMA)
		return arrow_take_schema(s, m->at, &m->header);
	if (!s->has_schema)
		return shard_reader_refuse(s->reader, m->at, "expected the schema first");
	return m->type == MESSAGE_BATCH        ? arrow_take_batch(s, m)
	       : m->type == MESSAGE_DICTIONARY ? 0
					       : shard_reader_refuse(s->reader, m->at, "a message that is no table");
}

static int arrow_scan_stream(struct scan *s)
{
	uint64_t at = 0;
	struct message m;
	int r;

	while ((r = read_message(s, at, &m)) == 0) {
		r = take_message(s, &m);
		if (r < 0)
			return r;
		at = m.end;
	}
	return r < 0 ? r : s->has_schema ? 0 : shard_reader_refuse(s->reader, at, "no schema: an empty stream");
}

/* The blocks ascend, so no batch comes twice. */
static int scan_blocks(struct scan *s, const struct flat_vector *blocks, uint64_t n_bytes)
{
	uint64_t last = FIRST_MESSAGE;
	struct message m;
	int r = 0;

	for (uint32_t i = 0; !r && i < blocks->n; i++) {
		uint64_t at = (uint64_t)flat_number(blocks->items + BLOCK_BYTES * (size_t)i, 8);

		if (at < last || at > n_bytes)
			return shard_reader_refuse(
				s->reader, n_bytes,
				"the footer names batch %u at a place that is not after the one before", i);
		r = read_message(s, at, &m);
		if (r > 0 || (!r && m.type != MESSAGE_BATCH))
			return shard_reader_refuse(s->reader, at, "the footer names a batch here, which there is not");
		r = r ? r : take_message(s, &m);
		last = r ? last : m.end;
	}
	return r;
}

static int arrow_scan_footer(struct scan *s, uint8_t *copy, uint32_t n_footer, uint64_t at)
{
	struct flat footer = { .bytes = copy, .n_bytes = n_footer };
	struct flat_table table = flat_root(&footer), schema = flat_child(&table, 1);
	struct flat_vector blocks = flat_vector(&table, 3, BLOCK_BYTES);
	int r;

	if (footer.broken || !schema.in)
		return arrow_refuse_place(s, at);
	r = arrow_take_schema(s, at, &schema);
	return r < 0 ? r : scan_blocks(s, &blocks, at);
}

static int arrow_scan_file(struct scan *s)
{
	struct shard_reader *r = s->reader;
	uint64_t tail = r->n_bytes - MAGIC_BYTES - 4;
	const uint8_t *piece;
	int64_t n_footer;
	uint8_t *copy;
	int result = r->n_bytes < FIRST_MESSAGE + MAGIC_BYTES + 4
			     ? shard_reader_refuse(r, r->n_bytes, "it ends without a footer: cut short?")
			     : shard_reader_get(r, tail, MAGIC_BYTES + 4, &piece);

	if (result < 0)
		return result;
	n_footer = flat_number(piece, 4);
	if (memcmp(piece + 4, magic, MAGIC_BYTES))
		return shard_reader_refuse(r, tail, "it ends without a footer: cut short?");
	if (n_footer < 4 || n_footer > SHARD_READER_MAX_BYTES || (uint64_t)n_footer > tail - FIRST_MESSAGE)
		return shard_reader_refuse(r, tail, "a footer of %lld bytes: expected at most %d", (long long)n_footer,
					   SHARD_READER_MAX_BYTES);
	result = shard_reader_get(r, tail - (uint64_t)n_footer, (size_t)n_footer, &piece);
	if (result < 0)
		return result;
	copy = malloc((size_t)n_footer); /* the reader's next piece takes the place of this one */
	if (!copy)
		return dataset_fail_errno(r->err, ENOMEM, r->name);
	memcpy(copy, piece, (size_t)n_footer);
	result = arrow_scan_footer(s, copy, (uint32_t)n_footer, tail - (uint64_t)n_footer);
	free(copy);
	return result;
}

int arrow_scan(struct shard_reader *r, const struct arrow_visitor *visitor)
{
	struct scan s = { .reader = r, .visitor = visitor };
	const uint8_t *head;
	int result = shard_reader_get(r, 0, FIRST_MESSAGE, &head);

	if (result == 0)
		result = memcmp(head, magic, MAGIC_BYTES) ? arrow_scan_stream(&s) : arrow_scan_file(&s);
	arrow_schema_finish(&s.schema);
	free(s.nodes);
	free(s.buffers);
	return result;
}
