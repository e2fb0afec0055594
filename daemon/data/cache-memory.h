/* Memory of a cache: blocks out of large mappings. A mapping is charged to a budget as a whole, so the resident memory
 * never exceeds the charge. */
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

/* A block of at least n bytes, CACHE_MEMORY_ALIGN aligned, or NULL when the budget or the system has no more.
 * *block_bytes: its size. */
void *cache_memory_alloc(struct cache_memory *m, size_t n, size_t *block_bytes);
/* Whether cache_memory_alloc of n would succeed without the bins. */
bool cache_memory_has_room(struct cache_memory *m, size_t n);
void cache_memory_free(struct cache_memory *m, void *block, size_t block_bytes);

#endif
