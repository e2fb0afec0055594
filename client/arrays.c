/* See arrays.h. */
#include "arrays.h"

#include <stdbool.h>
#include <string.h>

enum { ALIGN = 64, MAX_ARRAYS = BATCHD_MAX_ARRAYS, MAX_DIMS = 8, MAX_TEXT = 1 << 20 };

static const char magic[8] = "batchd1";

struct head {
	char magic[8];
	uint32_t n_arrays, n_text;
};

struct entry {
	uint64_t offset, n_bytes;
	uint32_t dtype, n_dims;
	uint64_t shape[MAX_DIMS];
};

static size_t dtype_size(unsigned dtype)
{
	static const uint8_t sizes[] = {
		[BATCHD_UINT8] = 1,       [BATCHD_FLOAT16] = 2,   [BATCHD_FLOAT32] = 4,     [BATCHD_INT32] = 4,
		[BATCHD_INT64] = 8,       [BATCHD_FLOAT64] = 8,   [BATCHD_INT16] = 2,       [BATCHD_BOOL] = 1,
		[BATCHD_BFLOAT16] = 2,    [BATCHD_INT8] = 1,      [BATCHD_UINT16] = 2,      [BATCHD_UINT32] = 4,
		[BATCHD_UINT64] = 8,      [BATCHD_COMPLEX64] = 8, [BATCHD_COMPLEX128] = 16, [BATCHD_FLOAT8_E4M3] = 1,
		[BATCHD_FLOAT8_E5M2] = 1,
	};

	return dtype < sizeof sizes ? sizes[dtype] : 0;
}

/* False: too large. */
static bool array_bytes(uint32_t dtype, uint32_t n_dims, const uint64_t *shape, uint64_t *bytes)
{
	*bytes = dtype_size(dtype);
	if (!*bytes || n_dims > MAX_DIMS)
		return false;
	for (uint32_t i = 0; i < n_dims; i++)
		if (__builtin_mul_overflow(*bytes, shape[i], bytes))
			return false;
	return *bytes <= SIZE_MAX / 4;
}

static uint64_t client_arrays_aligned(uint64_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static uint64_t table_end(uint32_t n, size_t n_text)
{
	return sizeof(struct head) + n * (uint64_t)sizeof(struct entry) + n_text;
}

size_t arrays_size(const struct batchd_array *a, uint32_t n, size_t n_text)
{
	uint64_t at = table_end(n, n_text), bytes;

	if (n > MAX_ARRAYS || n_text > MAX_TEXT)
		return 0;
	for (uint32_t i = 0; i < n; i++) {
		if (!array_bytes((uint32_t)a[i].dtype, a[i].n_dims, a[i].shape, &bytes) ||
		    __builtin_add_overflow(client_arrays_aligned(at), bytes, &at))
			return 0;
	}
	return at <= SIZE_MAX / 2 ? (size_t)at : 0;
}

int arrays_lay(void *slot, size_t room_bytes, struct batchd_array *a, uint32_t n, const char *text, size_t n_text,
	       struct fault *f)
{
	size_t needed = arrays_size(a, n, n_text);
	struct head *head = slot;
	struct entry *entry = (struct entry *)(void *)(head + 1);
	uint64_t at = table_end(n, n_text), bytes = 0;

	if (!needed)
		return fault_set(f, BATCHD_E_INVALID,
				 "a batch has at most %d arrays of at most %d dimensions and %d bytes of text",
				 MAX_ARRAYS, MAX_DIMS, MAX_TEXT);
	if (needed > room_bytes)
		return fault_set(f, BATCHD_E_LIMIT,
				 "the batch takes %zu bytes and a slot has %zu; ask for larger ones (slot_bytes=%zu)",
				 needed, room_bytes, needed);
	memcpy(head->magic, magic, sizeof magic);
	head->n_arrays = n;
	head->n_text = (uint32_t)n_text;
	for (uint32_t i = 0; i < n; i++) {
		at = client_arrays_aligned(at);
		array_bytes((uint32_t)a[i].dtype, a[i].n_dims, a[i].shape, &bytes);
		entry[i] = (struct entry){
			.offset = at, .n_bytes = bytes, .dtype = (uint32_t)a[i].dtype, .n_dims = a[i].n_dims
		};
		memcpy(entry[i].shape, a[i].shape, sizeof entry[i].shape); /* a produced array has at most MAX_DIMS */
		a[i].n_bytes = bytes;
		a[i].data = (char *)slot + at;
		at += bytes;
	}
	if (n_text)
		memcpy(entry + n, text, n_text);
	return 0;
}

static bool entry_ok(const struct entry *e, uint64_t from, size_t room_bytes)
{
	uint64_t bytes;

	return array_bytes(e->dtype, e->n_dims, e->shape, &bytes) && bytes == e->n_bytes && e->offset % ALIGN == 0 &&
	       e->offset >= from && e->offset <= room_bytes && e->n_bytes <= room_bytes - e->offset;
}

int arrays_read(const void *slot, size_t room_bytes, struct batchd_array *a, uint32_t max, const char **text,
		size_t *n_text, struct fault *f)
{
	const struct head *head = slot;
	const struct entry *entry = (const struct entry *)(const void *)(head + 1);
	/* Read once: the producer could write over them. */
	uint32_t n = room_bytes >= sizeof *head ? head->n_arrays : UINT32_MAX,
		 text_bytes = n != UINT32_MAX ? head->n_text : 0;
	uint64_t from = table_end(n, text_bytes);

	if (n > MAX_ARRAYS || text_bytes > MAX_TEXT || from > room_bytes || memcmp(head->magic, magic, sizeof magic))
		return fault_set(f, BATCHD_E_PROTOCOL, "the producer's batch has no table of arrays");
	for (uint32_t i = 0; i < n && i < max; i++) {
		struct entry e = entry[i];

		if (!entry_ok(&e, from, room_bytes))
			return fault_set(f, BATCHD_E_PROTOCOL,
					 "array %u of the producer's batch lies outside of its slot", i);
		a[i] = (struct batchd_array){ .dtype = (enum batchd_dtype)e.dtype,
					      .n_dims = e.n_dims,
					      .n_bytes = e.n_bytes,
					      .data = (char *)(uintptr_t)slot + e.offset };
		memcpy(a[i].shape, e.shape, sizeof e.shape);
	}
	*text = (const char *)(entry + n);
	*n_text = text_bytes;
	return (int)n;
}

size_t arrays_extent(const void *slot, size_t room_bytes)
{
	struct batchd_array arrays[MAX_ARRAYS];
	struct fault f = { 0 };
	const char *text;
	size_t n_text, end;
	int n = arrays_read(slot, room_bytes, arrays, MAX_ARRAYS, &text, &n_text, &f);

	if (n < 0)
		return room_bytes;
	end = (size_t)(text + n_text - (const char *)slot);
	for (int i = 0; i < n; i++) {
		size_t at = (size_t)((char *)arrays[i].data - (const char *)slot) + (size_t)arrays[i].n_bytes;

		end = at > end ? at : end;
	}
	return end;
}
