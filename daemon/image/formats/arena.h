/* Memory of one image: taken in pieces, returned all at once.
 *
 * libjpeg, libpng and zlib make a dozen allocations per image and free them together. An arena serves them from one
 * block that stays allocated, so that after the first few images it asks the system for nothing. Belongs to one
 * thread. */
#ifndef BATCHD_ARENA_H
#define BATCHD_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct arena_block;

struct arena {
	struct arena_block *blocks; /* newest first; more than one only while an image needs more memory than all before
	                             * it */
	size_t used_bytes;          /* of the newest block */
	size_t taken_bytes;         /* since the last reset, over all blocks */
	size_t limit_bytes;         /* taken_bytes never exceeds it; 0: no limit */
};

/* 64-byte aligned, not cleared, valid until the next arena_reset. NULL when memory is short or the limit is reached. */
void *arena_take(struct arena *a, size_t size_bytes);
/* Everything taken becomes invalid. Blocks above keep_bytes are returned to the system, so that one giant image does
 * not cost memory forever. */
void arena_reset(struct arena *a, size_t keep_bytes);
void arena_finish(struct arena *a);

#endif
