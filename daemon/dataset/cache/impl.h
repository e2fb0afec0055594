/* The parts of the cache, as they see each other: sample-cache.c has the spaces, space.c the contents of a space,
 * kept-indexes.c the files that keep indexes over restarts. */
#ifndef BATCHD_CACHE_IMPL_H
#define BATCHD_CACHE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "dataset/cache/file.h"
#include "dataset/cache/memory.h"
#include "dataset/cache/sample-cache.h"

enum { N_SHARDS = 64 };

struct entry {
	struct cache_block block; /* its tag: the index */
	struct cache_space *space;
	uint64_t mtime_ns, ctime_ns, ino, dev, n_file_bytes; /* of the file it was made from */
	size_t n_bytes;                                      /* of data */
	uint32_t width, height;                              /* CACHE_DECODED */
	atomic_uint refs;                                    /* the table has one, and each hit one */
	bool unsaved; /* CACHE_CHECKPOINTS: not in the directory yet; under the shard's lock */
	bool is_kept; /* CACHE_CHECKPOINTS: read from the directory, so without a device: its number may change with a
	               * restart */
	uint8_t data[] __attribute__((aligned(64))); /* n_bytes and 64 zeros */
};

struct shard {
	pthread_mutex_t lock;
	uint64_t hits, misses, stale;
} __attribute__((aligned(64)));

/* A user that has spaces. */
struct cache_tenant {
	struct cache_tenant *next;
	uid_t uid;
	unsigned n_uses[CACHE_N_TIERS]; /* spaces of each tier; freed when all are 0 */
	uint64_t bytes;                 /* of the tier that was measured last: its parts of spaces */
};

/* A user of a space. */
struct cache_use {
	struct cache_use *next;
	struct cache_tenant *tenant;
	unsigned n; /* of its loaders */
};

struct cache_space {
	struct cache *cache;
	struct cache_space *next; /* in cache.spaces */
	uint64_t dataset_id, prefix, n;
	enum cache_tier tier;
	unsigned n_users;         /* under list_lock, as the next: loaders, and threads that hold it for a while */
	uint64_t unused_since_ns; /* while no loader uses it */
	struct cache_use *uses;
	atomic_bool is_held;  /* all its users have more than their share while others lack room: it does not grow */
	atomic_bool may_take; /* one of its users has less than its share, and another user more: parts.h */
	struct entry **table; /* n of them; table[i] under shards[i % N_SHARDS] */
	size_t table_bytes;   /* mapped and charged */
	struct cache_memory memory;
	atomic_uint_fast64_t n_alive; /* entries with references, and one while the space is in the list */
	atomic_uint_fast64_t n_entries, entry_bytes, refused;
	atomic_bool dirty;         /* has had an unsaved entry since the last write */
	pthread_mutex_t sync_lock; /* guards the file; held while it is read or written */
	struct cache_file file;    /* fd -1: not kept */
	bool complained;
	struct shard shards[N_SHARDS];
};

struct cache {
	struct cache_budget budgets[CACHE_N_TIERS];
	char *dir;
	uint64_t dir_limit_bytes; /* 0: none */
	uint64_t file_most_bytes; /* a larger kept file is treated as foreign */
	/* Makes room for a space: drops the space that has been unused for longest, or else takes a mapping from a user
	 * that has more than its share. False if there is neither, or if they have unsaved entries and the caller may not
	 * wait for a write. Takes list_lock. */
	bool (*make_room)(struct cache *c, struct cache_space *s, bool may_wait);
	pthread_mutex_t list_lock;
	struct cache_space *spaces;             /* the most recently detached last */
	struct cache_stats gone[CACHE_N_TIERS]; /* sums of spaces that were dropped; under list_lock */
	atomic_uint n_unused[CACHE_N_TIERS];    /* spaces in the list without users; written under list_lock */
	struct cache_tenant *tenants;           /* under list_lock, as the next */
	bool contended[CACHE_N_TIERS];          /* room was taken from a user, and none has left since */
};

static inline struct shard *shard_of(struct cache_space *s, uint64_t index)
{
	return &s->shards[index % N_SHARDS];
}

void entry_unref(struct entry *e);

/* ---- a space ---- */

/* Creates an empty space with one user, in no list yet. NULL: no room, no memory. Takes list_lock. */
struct cache_space *space_create(struct cache *c, uint64_t dataset_id, uint64_t n, enum cache_tier tier,
				 uint64_t prefix, uid_t uid);
/* Gives back a mapping: its entries leave the table, and the memory goes when the last hit has gone. The space has
 * users. False: it has no mapping. */
bool space_shrink(struct cache_space *s);
/* Empties a space that has no users and is out of the list already; it is freed with its last hit. */
void space_drop(struct cache_space *s);
/* As cache_put_index, for an index from the directory: an entry made since then stays. index < s->n. */
int space_put_kept(struct cache_space *s, uint64_t index, const struct file_bytes *file, const void *bytes,
		   size_t n_bytes);
/* Adds the space's counters to the sum; the second also adds its present contents. */
void space_add_stats(struct cache_space *s, struct cache_stats *sum);
void space_add_live_stats(struct cache_space *s, struct cache_stats *sum);

/* ---- files over restarts ---- */

/* For a new space of CACHE_CHECKPOINTS, with its sync_lock held. Unreadable data is logged and made again. */
void space_load_kept(struct cache_space *s);
/* Appends unsaved entries to the space's file, if it has one; does nothing while another thread reads or writes it. 0
 * or negative errno, which is logged. */
int space_write_unsaved(struct cache_space *s);

#endif
