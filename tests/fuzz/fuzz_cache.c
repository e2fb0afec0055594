/* Kept caches: any bytes give valid records or none, and reading takes linear time. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "dataset/cache/file.h"

static unsigned sum;

static void use(const struct cache_record *r)
{
	const unsigned char *bytes = r->payload;

	for (size_t i = 0; bytes && i < r->n_payload; i++) {
		sum += bytes[i]; /* the sanitizer checks that they exist */
	}
}

static void read_all(const unsigned char *bytes, size_t n)
{
	size_t at = 0;

	while (n - at >= CACHE_RECORD_HEADER_BYTES) {
		struct cache_record r;
		ssize_t used = cache_record_parse(bytes + at, n - at, &r);

		if (used > (ssize_t)(n - at)) {
			abort();
		}
		if (used > 0) {
			use(&r);
		}
		at += used > 0 ? (size_t)used : 8;
	}
}

/* A header with a correct checksum over fuzzed content is trusted no more than any other. */
static void read_forged(const uint8_t *data, size_t size)
{
	size_t n = CACHE_RECORD_HEADER_BYTES + (size + 7) / 8 * 8;
	unsigned char *bytes = calloc(1, n);
	uint32_t magic = 0x44524342u;
	uint64_t checksum;

	if (size) {
		memcpy(bytes, data, size < n ? size : n);
	}
	memcpy(bytes, &magic, 4);
	checksum = XXH3_64bits(bytes, CACHE_RECORD_HEADER_BYTES - 8);
	memcpy(bytes + CACHE_RECORD_HEADER_BYTES - 8, &checksum, 8);
	read_all(bytes, n);
	free(bytes);
}

static void round_trip(const uint8_t *data, size_t size)
{
	struct cache_record in = { .index = size,
				   .mtime_ns = 1,
				   .ctime_ns = 4,
				   .ino = 2,
				   .n_file_bytes = 3,
				   .payload = data,
				   .n_payload = size },
			    out;
	unsigned char *bytes;

	if (!size || size > CACHE_RECORD_MAX_BYTES) {
		return;
	}
	bytes = malloc(cache_record_bytes(size));
	cache_record_make(bytes, &in);
	if (cache_record_parse(bytes, cache_record_bytes(size), &out) != (ssize_t)cache_record_bytes(size) ||
	    !out.payload || out.n_payload != size || memcmp(out.payload, data, size)) {
		abort();
	}
	bytes[size * 7 % cache_record_bytes(size)] ^= 1;
	if (cache_record_parse(bytes, cache_record_bytes(size), &out) > 0 && out.payload &&
	    memcmp(out.payload, data, size)) {
		abort(); /* a damaged record was returned */
	}
	free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	(void)cache_file_check_header(data, size, 0);
	read_all(data, size);
	read_forged(data, size);
	round_trip(data, size);
	return 0;
}
