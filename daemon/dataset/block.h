/* An index as one block of memory, in the same format as on disk: a header, then arrays, then text, without pointers. So
 * loading one is a read and a check. The kinds of indexes (manifest.c, extents.c) decide what follows the header. */
#ifndef BATCHD_BLOCK_H
#define BATCHD_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/meter.h"

/* In this machine's byte order: on a machine with another one the magic number has other bytes. */
struct block_header {
	uint64_t magic;
	uint32_t version, flags;
	uint64_t checksum; /* XXH3 of everything after this field */
	uint64_t block_bytes;
};

/* Sets the checksum of a complete block, whose header says how long it is. */
void block_seal(void *block);
/* Whether these bytes are an undamaged block of this kind. It finds damage, not malice: a reader checks every offset. */
bool block_is_sealed(const void *block, size_t block_bytes, uint64_t magic, uint32_t version);

/* Reads a file that may be such a block; *block is malloc'ed. 0, -ENOENT, -EINVAL (foreign or cut short; decided before
 * memory is allocated), -EPERM (another user's file, who could have written a block of other places and labels), the
 * meter's error, other errors of reading. The meter has counted the block's bytes if it is 0. Marks the file as used
 * (cache/dir.h). */
int block_load(const char *path, uint64_t magic, uint32_t version, struct meter *meter, void **block,
	       size_t *block_bytes);
/* Writes a file whole or not at all (temporary file, fsync, rename). 0 or negative errno. */
int block_save(const char *path, const void *block, size_t block_bytes);

/* Makes room for n elements in an array that a block is built from. `array` points to the pointer. 0, -ENOMEM,
 * -EDQUOT: no machine has the memory, or the meter's error. */
int block_grow(struct meter *meter, void *array, size_t *capacity, size_t n, size_t element_bytes);

/* NUL-terminated strings, one after the other. */
struct text {
	char *bytes;
	size_t n, capacity;
	struct meter *meter; /* borrowed; NULL: nothing is counted */
};
int text_add(struct text *t, const char *bytes, size_t n, uint64_t *offset); /* adds the NUL */

#endif
