/* Arbitrary bytes as a zlib stream, inflated in parts: every byte is zlib's, and the end is where zlib has it. */
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "image/formats/inflate.h"

enum { MAX_OUT = 1 << 18 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	static uint8_t ours[MAX_OUT + INFLATE_SLACK], theirs[MAX_OUT + INFLATE_SLACK];
	static struct inflate s;
	z_stream z = { .next_in = (z_const Bytef *)bytes, .avail_in = (uInt)n, .next_out = theirs };
	uint8_t *out = ours, *stream = malloc(n + INFLATE_PAD_BYTES);
	size_t part = n > 0 ? 1 + bytes[n / 2] * 97u : 1;
	enum inflate_outcome r;

	if (!stream)
		return 0;
	memcpy(stream, bytes, n);
	memset(stream + n, 0, INFLATE_PAD_BYTES);
	r = inflate_begin(&s, stream, n);
	s.plain = n % 2;
	while (r == INFLATE_MORE && out < ours + MAX_OUT) {
		size_t room = (size_t)(ours + MAX_OUT - out);

		r = inflate_run(&s, &out, out + (part < room ? part : room));
	}
	z.avail_out = (uInt)(out - ours) + (r == INFLATE_END);
	if (inflateInit(&z) != Z_OK)
		abort();
	int status = z.avail_out ? inflate(&z, Z_NO_FLUSH) : Z_OK;
	size_t n_theirs = (size_t)(z.next_out - theirs);
	if (r != INFLATE_UNSURE && n_theirs != (size_t)(out - ours))
		abort();
	if (memcmp(ours, theirs, n_theirs < (size_t)(out - ours) ? n_theirs : (size_t)(out - ours)) != 0)
		abort();
	if (r == INFLATE_END && status == Z_STREAM_END && !inflate_checksum_is(&s, (uint32_t)z.adler))
		abort();
	if (r == INFLATE_END && status == Z_DATA_ERROR &&
	    inflate_checksum_is(&s, (uint32_t)adler32(1, ours, (uInt)(out - ours))))
		abort();
	inflateEnd(&z);
	free(stream);
	return 0;
}
