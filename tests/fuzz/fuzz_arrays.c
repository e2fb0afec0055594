/* The content that a producer may leave in a slot, and its text. Any bytes are either refused with a text, or every returned array is
 * inside the slot, after the text, and has the size that its shape says; and written arrays are read back unchanged. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "link/arrays.h"
#include "link/names.h"

enum { ROOM = 1 << 14, ALIGN = 64, HEAD_BYTES = 16, SOME = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok)
{
	if (!ok)
		abort();
}

/* Reads all of it, so that the sanitizers detect reads outside. */
static uint32_t sum(const void *from, uint64_t n)
{
	const uint8_t *bytes = from;
	uint32_t total = 0;

	for (uint64_t i = 0; i < n; i++)
		total += bytes[i];
	return total;
}

static void check_array(const struct batchd_array *a, const uint8_t *slot, size_t room, const char *text_end)
{
	const uint8_t *at = a->data;
	uint64_t n = 1;

	require(a->n_dims <= 8 && at >= (const uint8_t *)text_end && at <= slot + room &&
		(size_t)(at - slot) % ALIGN == 0);
	require(a->n_bytes <= (uint64_t)(slot + room - at));
	for (uint32_t i = 0; i < a->n_dims; i++)
		require(!__builtin_mul_overflow(n, a->shape[i], &n));
	require(n ? a->n_bytes % n == 0 && a->n_bytes / n >= 1 && a->n_bytes / n <= 16 : !a->n_bytes);
	(void)sum(at, a->n_bytes);
	if (a->offsets) {
		require((const uint8_t *)a->offsets >= (const uint8_t *)text_end && a->n_dims >= 1 &&
			(const uint8_t *)(a->offsets + a->n_rows + 1) <= at);
		for (uint64_t i = 0; i < a->n_rows; i++)
			require(a->offsets[i] <= a->offsets[i + 1]);
		require((uint64_t)(a->offsets[a->n_rows] - a->offsets[0]) == a->shape[0]);
	}
}

/* The first `size` bytes are the input's, the rest of the slot is zero. */
static void read_slot(const uint8_t *data, size_t size, size_t room, uint32_t max)
{
	uint8_t *slot = aligned_alloc(ALIGN, (room + ALIGN) / ALIGN * ALIGN), *exact = slot;
	struct batchd_array *arrays = malloc((max ? max : 1) * sizeof(*arrays));
	struct fault f = { .code = 0 };
	const char *text = NULL;
	size_t n_text = 0;
	int n;

	if (room % ALIGN) { /* odd sizes come from malloc, where reading one byte more is detected */
		free(slot);
		exact = malloc(room);
	}
	memset(exact, 0, room);
	memcpy(exact, data, size < room ? size : room);
	n = arrays_read(exact, room, arrays, max, &text, &n_text, &f);
	if (n < 0) {
		require(f.text[0] && memchr(f.text, '\0', sizeof(f.text)) && f.code == n);
	} else {
		require(n <= BATCHD_MAX_ARRAYS && (const uint8_t *)text >= exact + HEAD_BYTES &&
			(const uint8_t *)text + n_text <= exact + room);
		(void)sum(text, n_text);
		for (uint32_t i = 0; i < (uint32_t)n && i < max; i++)
			check_array(&arrays[i], exact, room, text + n_text);
	}
	free(arrays);
	free(exact);
}

/* Arrays described by the input, mostly with small dimensions; written and read back. */
static uint32_t describe(const uint8_t *data, size_t size, struct batchd_array *a)
{
	static const int64_t rising[] = { 7, 8, 8, 10, 11 };
	uint32_t n = 0;

	while (size >= 10 && n < SOME) {
		a[n] = (struct batchd_array){ .dtype = (enum batchd_dtype)(data[0] % 20), .n_dims = data[1] % 10 };
		for (uint32_t i = 0; i < 8; i++)
			a[n].shape[i] = data[1] & 0x80 ? (uint64_t)data[2 + i] << (data[0] & 0x38) : data[2 + i] % 5;
		if (data[1] & 0x40 && a[n].n_dims) {
			a[n].offsets = rising;
			a[n].n_rows = 4;
			a[n].shape[0] = 4;
		}
		data += 10;
		size -= 10;
		n++;
	}
	return n;
}

static void lay_and_read(const uint8_t *data, size_t size)
{
	struct batchd_array laid[SOME], got[SOME];
	struct fault f = { .code = 0 };
	uint32_t n = describe(data, size, laid);
	size_t n_text = size % 100, room = size ? (size_t)data[size - 1] * 64 + 1 : 1,
	       needed = arrays_size(laid, n, n_text), n_got;
	char text[100] = "", *slot = aligned_alloc(ALIGN, ROOM);
	const char *got_text;
	int r = arrays_lay(slot, room < ROOM ? room : ROOM, laid, n, text, n_text, &f);

	require((r == 0) == (needed && needed <= room));
	if (r == 0) {
		for (uint32_t i = 0; i < n; i++)
			memset(laid[i].data, (int)i, laid[i].n_bytes);
		require(arrays_read(slot, room, got, SOME, &got_text, &n_got, &f) == (int)n && n_got == n_text &&
			!memcmp(got_text, text, n_text));
		for (uint32_t i = 0; i < n; i++)
			require(got[i].data == laid[i].data && got[i].n_bytes == laid[i].n_bytes &&
				got[i].dtype == laid[i].dtype && !got[i].offsets == !laid[i].offsets &&
				(!got[i].offsets || (got[i].offsets[0] == 0 && got[i].offsets[4] == 4)) &&
				!memcmp(got[i].shape, laid[i].shape, got[i].n_dims * sizeof(got[i].shape[0])));
	}
	free(slot);
}

/* A valid slot of two arrays, changed by the input in records of three bytes: position (two), and value. */
static void read_changed(const uint8_t *data, size_t size)
{
	static const int64_t offsets[] = { 0, 1, 1, 4 };
	struct batchd_array a[2] = {
		{ .dtype = BATCHD_FLOAT32, .n_dims = 2, .shape = { 4, 6 } },
		{ .dtype = BATCHD_UINT8, .n_dims = 1, .shape = { 4 }, .offsets = offsets, .n_rows = 3, .text = 1 }
	};
	uint8_t *slot = aligned_alloc(ALIGN, 1024);
	struct fault f = { .code = 0 };

	memset(slot, 0, 1024);
	require(arrays_lay(slot, 1024, a, 2, "[]", 2, &f) == 0);
	for (size_t i = 0; i + 2 < size; i += 3)
		slot[(data[i] | (size_t)data[i + 1] << 8) % 1024] ^= data[i + 2];
	read_slot(slot, 1024, 1024, BATCHD_MAX_ARRAYS);
	read_slot(slot, 1024, 1024, 1);
	free(slot);
}

/* A name is found in no text but a dictionary, and nothing is read beyond the text's end. */
static void find_name(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 6);
	int n;

	memcpy(text, "{\"d\":[", 6);
	memcpy(text + 6, data, size);
	n = names_find(text, size + 6, "x");
	require(n >= -1 && n < 1000000);
	if (size)
		require(names_find((const char *)data, size, "x") < 0 || data[0] == '{');
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	find_name(data, size);
	read_slot(data, size, size ? size : 1, BATCHD_MAX_ARRAYS);
	read_slot(data, size, ROOM, 1 + (uint32_t)size % SOME);
	read_changed(data, size);
	lay_and_read(data, size);
	return 0;
}
