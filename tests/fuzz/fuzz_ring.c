/* Any bytes as a ring, changing between two reads: both ends stay inside the page and their buffers, and their counters
 * stay valid. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ring.h"
#include "wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok)
{
	if (!ok)
		abort();
}

/* Writes a few bytes of the input over the page: two of offset (the lanes and the first entries matter), one of length,
 * the bytes. */
static size_t scribble(struct ring_page *page, const uint8_t *data, size_t size)
{
	if (size < 4)
		return size;
	size_t at = (size_t)(data[0] | data[1] << 8) % sizeof(*page), n = data[2] % 16 + 1;
	if (data[1] & 0x80)
		at = at % 384; /* the lanes and flags */
	n = n > size - 3 ? size - 3 : n;
	n = n > sizeof(*page) - at ? sizeof(*page) - at : n;
	memcpy((unsigned char *)page + at, data + 3, n);
	return 3 + n;
}

static void look(struct ring *r, struct wire_arena *arena)
{
	/* Exactly the room that is documented to be enough, on the heap, where the sanitizers detect one byte more. */
	unsigned char *bytes = malloc(RING_MAX_MESSAGE);
	const Batchd__Wire__ClientMessage *m;
	uint32_t before = r->releases.at;
	size_t n = 0;
	int result = ring_take(&r->releases, bytes, &n);

	require(result == 0 || result == -EAGAIN || result == -EPROTO);
	require(r->releases.at == before + (result == 0));
	if (result == 0) {
		require(n >= 1 && n <= RING_RELEASE_BYTES - 4);
		(void)wire_unpack_client(arena, bytes, n, &m, NULL);
	}
	free(bytes);
	require(ring_untaken(&r->batches) <= RING_ENTRIES && ring_waiting_entries(&r->releases) <= RING_ENTRIES);
	ring_arm(r, ring_untaken(&r->batches));
	(void)ring_wake_client(r);
	(void)ring_wake_daemon_taken(r);
	(void)ring_wake_daemon_released(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct wire_arena arena;
	static struct ring_page page; /* a section of its own, so that an overrun is detected */
	Batchd__Wire__Wake small = BATCHD__WIRE__WAKE__INIT;
	struct ring r = { .page = &page };

	memset(&page, 0, sizeof(page));
	wire_arena_init(&arena);
	r.batches = (struct ring_end){ &page.batches, page.batch[0], RING_BATCH_BYTES, 0, 0, false };
	r.releases = (struct ring_end){ &page.releases, page.release[0], RING_RELEASE_BYTES, 0, 0, false };
	while (size > 0) {
		size_t n = scribble(&page, data, size);
		int result = ring_put(&r.batches, &small.base);

		require(result == 0 || result == -EAGAIN || result == -EPROTO);
		look(&r, &arena);
		data += n;
		size -= n;
	}
	return 0;
}
