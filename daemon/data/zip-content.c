/* See zip-content.h. A deflated member is read into the buffer of its sample, moved to the buffer's end, and inflated to
 * its beginning. */
#include "data/zip-content.h"

#include <string.h>
#include <zlib.h>

#include "decode/inflate.h"

enum { PAD_BYTES = 64 }; /* of zeros behind a sample's bytes */

static size_t inflated_room(const struct extent_content *c)
{
	return c->n_bytes + (size_t)1 + INFLATE_SLACK + PAD_BYTES;
}

int zip_content_reserve(struct file_bytes *b, size_t n_stored, const struct extent_content *c)
{
	return file_bytes_reserve(b, c->deflated ? inflated_room(c) + n_stored + INFLATE_PAD_BYTES : n_stored);
}

/* For streams of which our inflater is not sure. */
static bool inflate_by_zlib(uint8_t *to, size_t n_bytes, const uint8_t *from, size_t n_stored)
{
	z_stream z = { .next_in = (z_const Bytef *)from,
		       .avail_in = (uInt)n_stored,
		       .next_out = to,
		       .avail_out = (uInt)n_bytes + 1 };
	int r;

	if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
		return false;
	r = inflate(&z, Z_FINISH);
	inflateEnd(&z);
	return r == Z_STREAM_END && z.total_out == n_bytes;
}

static bool inflate_all(uint8_t *to, size_t n_bytes, const uint8_t *from, size_t n_stored)
{
	struct inflate s;
	uint8_t *out = to;
	enum inflate_outcome r;

	inflate_begin_raw(&s, from, n_stored);
	r = inflate_run(&s, &out, to + n_bytes + 1);
	if (r == INFLATE_UNSURE)
		return inflate_by_zlib(to, n_bytes, from, n_stored);
	return r == INFLATE_END && out == to + n_bytes;
}

const char *zip_content_unpack(struct file_bytes *b, size_t n_stored, const struct extent_content *c)
{
	uint8_t *from = b->data + inflated_room(c);

	if (c->deflated) {
		memmove(from, b->data, n_stored);
		memset(from + n_stored, 0, INFLATE_PAD_BYTES);
		if (!inflate_all(b->data, c->n_bytes, from, n_stored))
			return "its compressed data is damaged, or has another size than the archive says";
	}
	b->n_bytes = c->n_bytes;
	memset(b->data + b->n_bytes, 0, PAD_BYTES);
	return crc32(0, b->data, (uInt)b->n_bytes) == c->crc ? NULL : "its checksum is wrong: the archive is damaged";
}
