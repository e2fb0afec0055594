/* What the parts of the cache know of each other: sample-cache.c the spaces, cache-space.c what is in one, cache-keep.c
 * what is kept over restarts. */
#ifndef BATCHD_CACHE_IMPL_H
#define BATCHD_CACHE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "data/cache-file.h"
#include "data/cache-memory.h"
#include "data/sample-cache.h"

enum { N_SHARDS = 64 };

struct entry {
	struct cache_space *space;
	uint64_t mtime_ns, ino, dev, n_file_bytes; /* of the file it was made from */
	size_t n_bytes;                            /* of data */
	size_t block_bytes;                        /* of memory */
	uint32_t width, height;                    /* CACHE_DECODED */
	atomic_uint refs;                          /* one of the table, one per hit */
	bool unsaved; /* CACHE_CHECKPOINTS: not in the directory yet; under the shard's lock */
	bool is_kept; /* CACHE_CHECKPOINTS: from the directory, hence without a device: its number may have
	                             * changed with a restart */
	uint8_t data[] __attribute__((aligned(64))); /* n_bytes and 64 zeros */
};

struct shard {
	pthread_mutex_t lock;
	uint64_t hits, misses, stale;
} __attribute__((aligned(64)));

struct cache_space {
	struct cache *cache;
	struct cache_space *next; /* in cache.spaces */
	uint64_t dataset_id, prefix, n;
	enum cache_tier tier;
	unsigned n_users;     /* under list_lock */
	struct entry **table; /* n of them; table[i] under shards[i % N_SHARDS] */
	size_t table_bytes;   /* mapped and charged */
	struct cache_memory memory;
	atomic_uint_fast64_t n_alive; /* entries with references, and one while the space is in the list */
	atomic_uint_fast64_t n_entries, entry_bytes, refused;
	atomic_bool dirty;         /* has had an unsaved entry since it was last written */
	pthread_mutex_t sync_lock; /* guards the file; held while it is read or written */
	struct cache_file file;    /* fd -1: not kept */
	bool complained;
	struct shard shards[N_SHARDS];
};

struct cache {
	struct cache_budget budgets[CACHE_N_TIERS];
	char *dir;
	uint64_t dir_limit_bytes; /* 0: none */
	uint64_t file_most_bytes; /* a kept file that is larger is none of ours */
	/* Drops the space that has been unused for longest; false if all are in use, or have yet to be written and
	 * the caller may not wait for that. Takes list_lock. For a space that finds no room. */
	bool (*make_room)(struct cache *c, enum cache_tier tier, bool may_wait);
	pthread_mutex_t list_lock;
	struct cache_space *spaces;             /* the most recently detached last */
	struct cache_stats gone[CACHE_N_TIERS]; /* sums of spaces that were dropped; under list_lock */
	atomic_uint n_unused[CACHE_N_TIERS];    /* spaces in the list without users; written under list_lock */
};

static inline struct shard *shard_of(struct cache_space *s, uint64_t index)
{
	return &s->shards[index % N_SHARDS];
}

void entry_unref(struct entry *e);

/* ---- a space ---- */

/* An empty one with one user, in no list yet. NULL: no room, no memory. */
struct cache_space *space_create(struct cache *c, uint64_t dataset_id, uint64_t n, enum cache_tier tier,
				 uint64_t prefix);
/* Empties a space that nobody uses and that is out of the list already; it is gone with its last hit. */
void space_drop(struct cache_space *s);
/* As cache_put_index, of an index from the directory: what has been made since then stays. index < s->n. */
int space_put_kept(struct cache_space *s, uint64_t index, const struct file_bytes *file, const void *bytes,
		   size_t n_bytes);
/* Adds what happened in it; the second also what is in it. */
void space_add_stats(struct cache_space *s, struct cache_stats *sum);
void space_add_live_stats(struct cache_space *s, struct cache_stats *sum);

/* ---- what is kept ---- */

/* For a new space of CACHE_CHECKPOINTS, with its sync_lock held. What cannot be read is logged and made again. */
void space_load_kept(struct cache_space *s);
/* Appends what is unsaved to the space's file, if it has one; nothing while another thread reads or writes it. 0 or
 * negative errno, which is logged. */
int space_write_unsaved(struct cache_space *s);

#endif
