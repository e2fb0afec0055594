/* Memory of a cache: blocks out of large mappings. A mapping is charged to a budget as a whole, so the resident memory
 * never exceeds the charge. It goes back to the system as a whole, too: when all memory is finished with, or when the
 * mapping is retired and the last of its blocks is freed. */
#ifndef BATCHD_CACHE_MEMORY_H
#define BATCHD_CACHE_MEMORY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that several cache_memory share. Any thread. */
struct cache_budget {
	atomic_uint_fast64_t limit_bytes, used_bytes;
};

struct cache_mapping;

/* At the beginning of a block in use; the rest is the caller's. */
struct cache_block {
	struct cache_mapping *mapping;
	struct cache_block *next, *previous; /* of the mapping; under the memory's lock */
	size_t n_bytes;                      /* of the block, this included */
	uint64_t tag;                        /* the caller's */
};

enum { CACHE_MEMORY_ALIGN = 64, CACHE_MEMORY_N_BINS = 4 * 40 };

struct cache_memory {
	struct cache_budget *budget;                  /* borrowed */
	pthread_mutex_t lock;                         /* guards the rest */
	struct cache_mapping *mappings;               /* all of them, newest first */
	char *at, *end;                               /* the rest of the newest */
	struct free_block *bins[CACHE_MEMORY_N_BINS]; /* freed blocks, by size, four bins to a power of two */
	uint64_t charged_bytes;
};

void cache_memory_init(struct cache_memory *m, struct cache_budget *budget);
/* Returns all memory to the system and the budget; no block may be in use. */
void cache_memory_finish(struct cache_memory *m);

/* A block of at least n bytes (the head included), CACHE_MEMORY_ALIGN aligned, or NULL when the budget or the system has
 * no more, or when there is no room in what is mapped and the memory may not grow. */
struct cache_block *cache_memory_alloc(struct cache_memory *m, size_t n, uint64_t tag, bool may_grow);
/* Whether cache_memory_alloc of n would succeed without the bins. */
bool cache_memory_has_room(struct cache_memory *m, size_t n, bool may_grow);
void cache_memory_free(struct cache_memory *m, struct cache_block *block);
uint64_t cache_memory_charged(struct cache_memory *m);

/* Retires the oldest mapping that is not retired yet: no block is taken from it any more. *tags: those of its n blocks,
 * which the caller frees as far as it can find them, and then the array. False: there is none, or memory is short. */
bool cache_memory_retire(struct cache_memory *m, uint64_t **tags, size_t *n);
/* A block's mapping is retired. */
bool cache_block_is_retired(const struct cache_block *block);
/* Of how many bytes most mappings are. */
size_t cache_mapping_bytes(const struct cache_budget *budget);

#endif
