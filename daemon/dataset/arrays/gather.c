/* Rows at random places: the cost is waiting for memory, so the cache lines of later rows are prefetched while this one
 * is copied.
 *
 * Rows of a register's size have a loop of their own, in which the copy is one load and one store. Larger rows are
 * copied by memcpy, which uses the machine's widest registers; the hardware prefetches within a row, so only its first
 * lines are requested. Non-temporal stores were measured and are slower: a batch is read again soon. */
#include "dataset/arrays/gather.h"

#include <string.h>

enum {
	LINE_BYTES = 64,
	AHEAD_BYTES = 4096, /* of rows prefetched before they are copied */
	AHEAD_MAX_ROWS = 16,
	AHEAD_MAX_LINES = 8, /* per row */
};

#define SMALL_ROWS(size) \
	static void gather_##size(char *restrict to, const char *restrict from, const uint64_t *indices, size_t n) \
	{ \
		for (size_t i = 0; i < n; i++) { \
			if (i + AHEAD_MAX_ROWS < n) { \
				__builtin_prefetch(from + indices[i + AHEAD_MAX_ROWS] * (size)); \
			} \
			memcpy(to + i * (size), from + indices[i] * (size), (size)); \
		} \
	}
SMALL_ROWS(1)
SMALL_ROWS(2)
SMALL_ROWS(4)
SMALL_ROWS(8)
SMALL_ROWS(16)
SMALL_ROWS(32)
SMALL_ROWS(64)

static void prefetch_row(const char *row, size_t row_bytes)
{
	size_t n = row_bytes < AHEAD_MAX_LINES * LINE_BYTES ? row_bytes : AHEAD_MAX_LINES * LINE_BYTES;

	for (size_t at = 0; at < n; at += LINE_BYTES)
		__builtin_prefetch(row + at);
}

static void gather_large(char *restrict to, const char *restrict from, size_t row_bytes, const uint64_t *indices,
			 size_t n)
{
	size_t ahead = AHEAD_BYTES / row_bytes;

	ahead = ahead < 1 ? 1 : ahead > AHEAD_MAX_ROWS ? AHEAD_MAX_ROWS : ahead;
	for (size_t i = 0; i < ahead && i < n; i++)
		prefetch_row(from + indices[i] * row_bytes, row_bytes);
	for (size_t i = 0; i < n; i++) {
		if (i + ahead < n)
			prefetch_row(from + indices[i + ahead] * row_bytes, row_bytes);
		memcpy(to + i * row_bytes, from + indices[i] * row_bytes, row_bytes);
	}
}

void gather_rows(void *to, const void *from, size_t row_bytes, const uint64_t *indices, size_t n)
{
	switch (row_bytes) {
	case 0:
		return;
	case 1:
		gather_1(to, from, indices, n);
		return;
	case 2:
		gather_2(to, from, indices, n);
		return;
	case 4:
		gather_4(to, from, indices, n);
		return;
	case 8:
		gather_8(to, from, indices, n);
		return;
	case 16:
		gather_16(to, from, indices, n);
		return;
	case 32:
		gather_32(to, from, indices, n);
		return;
	case 64:
		gather_64(to, from, indices, n);
		return;
	default:
		gather_large(to, from, row_bytes, indices, n);
	}
}

#define WIDENED(type) \
	for (size_t i = 0; i < n; i++) { \
		type value; \
		if (i + AHEAD_MAX_ROWS < n) { \
			__builtin_prefetch(bytes + indices[i + AHEAD_MAX_ROWS] * sizeof(value)); \
		} \
		memcpy(&value, bytes + indices[i] * sizeof(value), sizeof(value)); \
		to[i] = value; \
	}

void gather_int64(int64_t *to, const void *from, enum dtype dtype, const uint64_t *indices, size_t n)
{
	const char *bytes = from;

	switch (dtype) {
	case DTYPE_UINT8:
		WIDENED(uint8_t)
		return;
	case DTYPE_INT8:
		WIDENED(int8_t)
		return;
	case DTYPE_INT16:
		WIDENED(int16_t)
		return;
	case DTYPE_UINT16:
		WIDENED(uint16_t)
		return;
	case DTYPE_UINT32:
		WIDENED(uint32_t)
		return;
	case DTYPE_INT32:
		WIDENED(int32_t)
		return;
	default:
		WIDENED(int64_t)
	}
}

/* Compilers make vector code of these loops. */
#define WIDEN(type) \
	static void widen_##type(int64_t *restrict to, const char *restrict from, size_t n) \
	{ \
		for (size_t i = 0; i < n; i++) { \
			type value; \
			memcpy(&value, from + i * sizeof(value), sizeof(value)); \
			to[i] = value; \
		} \
	}
WIDEN(uint8_t)
WIDEN(int8_t)
WIDEN(uint16_t)
WIDEN(int16_t)
WIDEN(uint32_t)
WIDEN(int32_t)

void widen_int64(int64_t *to, const void *from, enum dtype dtype, size_t n)
{
	switch (dtype) {
	case DTYPE_UINT8:
		widen_uint8_t(to, from, n);
		return;
	case DTYPE_INT8:
		widen_int8_t(to, from, n);
		return;
	case DTYPE_UINT16:
		widen_uint16_t(to, from, n);
		return;
	case DTYPE_INT16:
		widen_int16_t(to, from, n);
		return;
	case DTYPE_UINT32:
		widen_uint32_t(to, from, n);
		return;
	case DTYPE_INT32:
		widen_int32_t(to, from, n);
		return;
	default:
		memcpy(to, from, n * sizeof(*to));
	}
}
