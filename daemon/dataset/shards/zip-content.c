/* See zip-content.h. A deflated member is read into the buffer of its sample, moved after the room for its content, and
 * inflated to the buffer's beginning. zlib's state is in the same buffer, so it is charged with it. */
#include "dataset/shards/zip-content.h"

#include <stdalign.h>
#include <string.h>
#include <zlib.h>

enum {
	PAD_BYTES = 64,        /* of zeros after a sample's bytes */
	ZLIB_BYTES = 64 << 10, /* zlib's state and window: 40 KiB in its manual */
};

/* Memory that is given out once. */
struct arena {
	uint8_t *at;
	size_t left_bytes;
};

static void *arena_alloc(void *opaque, unsigned n, unsigned size)
{
	struct arena *a = opaque;
	size_t bytes = ((size_t)n * size + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
	void *at = a->at;

	if (bytes > a->left_bytes)
		return NULL;
	a->at += bytes;
	a->left_bytes -= bytes;
	return at;
}

static void arena_free(void *opaque, void *memory)
{
	(void)opaque, (void)memory;
}

/* What is in front of the stored bytes: the content, one byte more that shows that there is more, and the arena. */
static size_t inflated_room(const struct extent_content *c)
{
	size_t n = c->n_bytes + (size_t)1 + PAD_BYTES;

	return (n + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t) + ZLIB_BYTES;
}

int zip_content_reserve(struct file_bytes *b, size_t n_stored, const struct extent_content *c)
{
	return file_bytes_reserve(b, c->deflated ? inflated_room(c) + n_stored : n_stored);
}

static bool inflate_all(uint8_t *to, size_t n_bytes, const uint8_t *from, size_t n_stored, struct arena *arena)
{
	z_stream z = { .next_in = (z_const Bytef *)from,
		       .avail_in = (uInt)n_stored,
		       .next_out = to,
		       .avail_out = (uInt)n_bytes + 1,
		       .zalloc = arena_alloc,
		       .zfree = arena_free,
		       .opaque = arena };

	if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
		return false;
	return inflate(&z, Z_FINISH) == Z_STREAM_END && z.total_out == n_bytes;
}

const char *zip_content_unpack(struct file_bytes *b, size_t n_stored, const struct extent_content *c)
{
	uint8_t *from = b->data + inflated_room(c);
	struct arena arena = { .at = from - ZLIB_BYTES, .left_bytes = ZLIB_BYTES };

	if (c->deflated) {
		memmove(from, b->data, n_stored);
		if (!inflate_all(b->data, c->n_bytes, from, n_stored, &arena))
			return "its compressed data is damaged, or has another size than the archive says";
	}
	b->n_bytes = c->n_bytes;
	memset(b->data + b->n_bytes, 0, PAD_BYTES);
	return crc32(0, b->data, (uInt)b->n_bytes) == c->crc ? NULL : "its checksum is wrong: the archive is damaged";
}
