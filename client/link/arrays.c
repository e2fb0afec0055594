/* See arrays.h. */
#include "link/arrays.h"

#include <stdbool.h>
#include <string.h>

enum { ALIGN = 64, MAX_ARRAYS = BATCHD_MAX_ARRAYS, MAX_DIMS = 8, MAX_TEXT = 1 << 20 };

static const char magic[8] = "batchd2";

struct head {
	char magic[8];
	uint32_t n_arrays, n_text;
};

struct entry {
	uint64_t offset, n_bytes;
	uint32_t dtype, n_dims;
	uint64_t shape[MAX_DIMS];
	uint64_t offsets, n_rows; /* ragged: where its n_rows + 1 offsets are; 0: it is not */
	uint32_t text, nothing;
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

static uint64_t arrays_aligned(uint64_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static uint64_t table_end(uint32_t n, size_t n_text)
{
	return sizeof(struct head) + n * (uint64_t)sizeof(struct entry) + n_text;
}

/* Where the offsets of a ragged array end, which begin at `at`. False: too many. */
static bool offsets_end(uint64_t at, uint64_t n_rows, uint64_t *end)
{
	return n_rows < UINT32_MAX && !__builtin_add_overflow(at, (n_rows + 1) * sizeof(int64_t), end);
}

/* The place of an array, of which `at` is the first free byte; *at becomes the first one after it. False: it is
 * invalid, or too large. */
static bool place(const struct batchd_array *a, uint64_t *at, struct entry *e)
{
	*e = (struct entry){ .dtype = (uint32_t)a->dtype, .n_dims = a->n_dims };
	if (!array_bytes(e->dtype, e->n_dims, a->shape, &e->n_bytes))
		return false;
	memcpy(e->shape, a->shape, sizeof e->shape); /* a produced array has at most MAX_DIMS */
	*at = arrays_aligned(*at);
	if (a->offsets) {
		e->offsets = *at;
		e->n_rows = a->n_rows;
		e->text = a->text != 0;
		if (!e->n_dims || !offsets_end(*at, a->n_rows, at))
			return false;
		*at = arrays_aligned(*at);
	}
	e->offset = *at;
	return !__builtin_add_overflow(*at, e->n_bytes, at) && *at <= SIZE_MAX / 2;
}

size_t arrays_size(const struct batchd_array *a, uint32_t n, size_t n_text)
{
	uint64_t at = table_end(n, n_text);
	struct entry e;

	if (n > MAX_ARRAYS || n_text > MAX_TEXT)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		if (!place(&a[i], &at, &e))
			return 0;
	return (size_t)at;
}

/* Whether these offsets rise, from whatever number, by n_values. `to` becomes a copy that begins at 0; NULL: none. Each
 * is read once: the producer could write over them. */
static bool offsets_ok(const int64_t *offsets, uint64_t n_rows, uint64_t n_values, int64_t *to)
{
	int64_t first = offsets[0], before = first;

	for (uint64_t i = 0; i <= n_rows; i++) {
		int64_t next = offsets[i];

		if (next < before)
			return false;
		if (to)
			to[i] = (int64_t)((uint64_t)next - (uint64_t)first);
		before = next;
	}
	return (uint64_t)before - (uint64_t)first == n_values;
}

int arrays_lay(void *slot, size_t room_bytes, struct batchd_array *a, uint32_t n, const char *text, size_t n_text,
	       struct fault *f)
{
	size_t needed = arrays_size(a, n, n_text);
	struct head *head = slot;
	struct entry *entry = (struct entry *)(void *)(head + 1);
	uint64_t at = table_end(n, n_text);

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
		struct entry e;

		place(&a[i], &at, &e);
		if (a[i].offsets &&
		    !offsets_ok(a[i].offsets, e.n_rows, e.shape[0], (int64_t *)(void *)((char *)slot + e.offsets)))
			return fault_set(f, BATCHD_E_INVALID,
					 "array %u: its %llu offsets have to rise by its number of values, %llu", i,
					 (unsigned long long)e.n_rows + 1, (unsigned long long)e.shape[0]);
		entry[i] = e;
		a[i].n_bytes = e.n_bytes;
		a[i].data = (char *)slot + e.offset;
	}
	if (n_text)
		memcpy(entry + n, text, n_text);
	return 0;
}

/* *from: the first byte that no array before this one has; becomes the first one after it. */
static const char *entry_fault(const struct entry *e, const char *slot, uint64_t *from, size_t room_bytes)
{
	uint64_t bytes;

	if (!array_bytes(e->dtype, e->n_dims, e->shape, &bytes) || bytes != e->n_bytes)
		return "has another size than its shape says";
	if (e->offsets) {
		if (e->offsets % ALIGN || e->offsets < *from || !e->n_dims ||
		    !offsets_end(e->offsets, e->n_rows, from) || *from > room_bytes)
			return "has offsets outside of their place in the slot";
		if (!offsets_ok((const int64_t *)(const void *)(slot + e->offsets), e->n_rows, e->shape[0], NULL))
			return "has offsets that run backwards or do not add up to its values";
	}
	if (e->offset > room_bytes || e->n_bytes > room_bytes - e->offset)
		return "lies outside of its slot";
	if (e->offset % ALIGN || e->offset < *from)
		return "overlaps what lies before it in its slot";
	*from = e->offset + e->n_bytes;
	return e->text && (e->dtype != BATCHD_UINT8 || e->n_dims != 1 || !e->offsets) ? "is a text of no bytes" : NULL;
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
		const char *fault = entry_fault(&e, slot, &from, room_bytes);

		if (fault)
			return fault_set(f, BATCHD_E_PROTOCOL, "array %u of the producer's batch %s", i, fault);
		a[i] = (struct batchd_array){ .dtype = (enum batchd_dtype)e.dtype,
					      .n_dims = e.n_dims,
					      .n_bytes = e.n_bytes,
					      .data = (char *)(uintptr_t)slot + e.offset,
					      .text = e.text != 0,
					      .n_rows = e.offsets  ? e.n_rows
							: e.n_dims ? e.shape[0]
								   : 1 };
		if (e.offsets)
			a[i].offsets = (const int64_t *)(const void *)((const char *)slot + e.offsets);
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
