/* Arbitrary bytes as a lossless WebP stream: libwebp refuses what webp_tables_measure refuses, and never has more
 * memory at a time than the daemon counts for it. */
#include <stdlib.h>
#include <string.h>

#include <sanitizer/allocator_interface.h>
#include <webp/decode.h>

#include "image/formats/webp-tables.h"

enum { MAX_PX = 1 << 16, MAX_BYTES = 1 << 16, HEADER = 20, BYTES_PER_PIXEL = 6, OTHER_BYTES = 128 << 10 };

static uint64_t held, most;

static void on_malloc(const volatile void *p, size_t n)
{
	(void)p;
	held += n;
	most = held > most ? held : most;
}

static void on_free(const volatile void *p)
{
	uint64_t n = p ? __sanitizer_get_allocated_size(p) : 0;

	held -= n < held ? n : held;
}

/* The size in the stream's header. */
static uint32_t size_at(const uint8_t *stream, unsigned bit)
{
	uint32_t v = stream[1] | (uint32_t)stream[2] << 8 | (uint32_t)stream[3] << 16 | (uint32_t)stream[4] << 24;

	return (v >> bit & 0x3fff) + 1;
}

static void put32(uint8_t *to, size_t v)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(v >> 8 * i);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	static struct scratch work[2];
	static uint8_t file[HEADER + MAX_BYTES + 1];
	static uint8_t rgb[MAX_PX * 3];
	static int hooked;
	uint64_t table_bytes = 0;

	if (!hooked++)
		__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
	if (n < 5 || n > MAX_BYTES)
		return 0;
	uint32_t width = size_at(bytes, 0), height = size_at(bytes, 14);
	if (width * height > MAX_PX)
		return 0;
	memcpy(file, "RIFF", 4);
	put32(file + 4, 12 + n + (n & 1));
	memcpy(file + 8, "WEBPVP8L", 8);
	put32(file + 16, n);
	memcpy(file + HEADER, bytes, n);
	file[HEADER + n] = 0;
	int outcome = webp_tables_measure(bytes, n, false, width, height, work, &table_bytes);
	held = most = 0;
	bool read = WebPDecodeRGBInto(file, HEADER + n + (n & 1), rgb, sizeof(rgb), (int)width * 3) != NULL;
	if (outcome && read)
		abort();
	if (outcome)
		return 0; /* the daemon does not hand such a stream to libwebp */
	if (most > (uint64_t)width * height * BYTES_PER_PIXEL + (uint64_t)width * 80 + table_bytes + OTHER_BYTES)
		abort();
	return 0;
}
