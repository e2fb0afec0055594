/* A bump allocator whose blocks merge: when an image needed several blocks, the next reset replaces them by one of
 * their total size, so that the next similar image finds all its memory in one block. */
#include "image/formats/arena.h"

#include <stdbool.h>

#include "base/workspace.h"

enum { ARENA_ALIGN = 64, BLOCK_MIN = 64 * 1024 };

struct arena_block {
	struct arena_block *next;
	size_t size_bytes; /* of data */
	struct workspace *payer;
	_Alignas(ARENA_ALIGN) uint8_t data[];
};

static bool add_block(struct arena *a, size_t at_least)
{
	size_t size = at_least > BLOCK_MIN ? at_least : BLOCK_MIN;
	struct workspace *payer;
	struct arena_block *b = work_alloc(sizeof(*b) + size, &payer);

	if (!b)
		return false;
	b->payer = payer;
	b->next = a->blocks;
	b->size_bytes = size;
	a->blocks = b;
	a->used_bytes = 0;
	return true;
}

static void free_blocks(struct arena *a)
{
	while (a->blocks) {
		struct arena_block *b = a->blocks;

		a->blocks = b->next;
		work_free(b, sizeof(*b) + b->size_bytes, b->payer);
	}
}

void *arena_take(struct arena *a, size_t size_bytes)
{
	if (size_bytes > SIZE_MAX / 4)
		return NULL;
	size_t size = (size_bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;

	if (a->limit_bytes && size > a->limit_bytes - a->taken_bytes)
		return NULL;
	if ((!a->blocks || size > a->blocks->size_bytes - a->used_bytes) && !add_block(a, size))
		return NULL;

	void *p = a->blocks->data + a->used_bytes;
	a->used_bytes += size;
	a->taken_bytes += size;
	return p;
}

void arena_reset(struct arena *a, size_t keep_bytes)
{
	size_t whole = 0;

	for (struct arena_block *b = a->blocks; b; b = b->next)
		whole += b->size_bytes;
	if (whole > keep_bytes) {
		free_blocks(a);
	} else if (a->blocks && a->blocks->next) {
		free_blocks(a);
		(void)add_block(a, whole); /* on failure no block remains: the next image makes its own */
	}
	a->used_bytes = 0;
	a->taken_bytes = 0;
}

void arena_finish(struct arena *a)
{
	free_blocks(a);
	*a = (struct arena){ 0 };
}
