/* Samples that were read or decoded once and may be used again: by other loaders, other trainers, later epochs.
 *
 * Tiers, each with its budget: pixels after a pipeline's deterministic prefix, and indexes into files (opaque
 * here), which decoders make and extend. A space is one tier of one data set (and prefix), shared by all
 * loaders that use the same.
 *
 * Entries are added while the budget lasts, and stay. An insert evicts nothing of its user: with shuffled epochs every
 * sample is wanted exactly once an epoch, so replacing one entry by another gains nothing. Room is made by spaces that
 * no loader uses, and by users that have more than an equal share of the tier while another user lacks room:
 * dataset/cache/parts.h.
 *
 * All functions may be called by any thread. Entries are immutable; a hit keeps its entry alive. */
#ifndef BATCHD_SAMPLE_CACHE_H
#define BATCHD_SAMPLE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "dataset/dataset.h"

enum cache_tier { CACHE_DECODED, CACHE_CHECKPOINTS, CACHE_N_TIERS };

struct cache;
struct cache_space;

struct cache_config {
	uint64_t budget_bytes[CACHE_N_TIERS]; /* 0: the tier is off */
	const char *dir;          /* keeps CACHE_CHECKPOINTS over restarts; NULL: they are not kept. Must exist */
	uint64_t dir_limit_bytes; /* limit of all kept files together, see dataset/cache/dir.h; 0: none */
};

int cache_create(const struct cache_config *config, struct cache **out); /* 0, -ENOMEM */
/* Every space must be detached and every hit released. Writes as cache_sync does. NULL is allowed. */
void cache_destroy(struct cache *c);
/* A smaller budget refuses inserts; it removes no entry in use. Any thread. */
void cache_set_budget(struct cache *c, enum cache_tier tier, uint64_t bytes);

/* For a loader of this user, the space of n samples of a data set (dataset_cache_id), made if necessary. prefix: a hash of the deterministic
 * prefix for CACHE_DECODED, 0 for CACHE_CHECKPOINTS. For CACHE_CHECKPOINTS with a directory, the first caller reads the
 * kept indexes, so call it where waiting is allowed; other callers meanwhile see the indexes read so far. NULL: the
 * tier is off, its budget has no room for the table (8 bytes a sample), or memory is short; every function below
 * accepts NULL as a space that is always empty. */
struct cache_space *cache_attach(struct cache *c, uint64_t dataset_id, uint64_t n_samples, enum cache_tier tier,
				 uint64_t prefix, uid_t uid);
void cache_detach(struct cache_space *s, uid_t uid);

/* Pixels that a pipeline has made: height rows of width pixels, stride_bytes apart. The size of a pixel is the pipeline's
 * and so not kept here. */
struct cache_pixels {
	uint8_t *bytes;
	size_t stride_bytes;
	uint32_t width, height;
};

/* An entry that was found, on loan until cache_release. */
struct cache_hit {
	struct file_bytes file;     /* identity of the file it was made from: n_bytes, mtime_ns, ctime_ns, ino, dev */
	struct cache_pixels pixels; /* CACHE_DECODED: rows without gaps, then 64 readable bytes; read-only */
	const void *index;          /* CACHE_CHECKPOINTS: n_index_bytes, 64-byte aligned */
	size_t n_index_bytes;
	void *entry; /* the cache's */
};

/* Whether there is an entry. Before use the caller must check that it is current (dataset_is_current with hit->file),
 * and call cache_drop if not. */
bool cache_lookup(struct cache_space *s, uint64_t index, struct cache_hit *hit);
/* For a caller that has the file already: a hit only if the entry was made from this very file; another entry is
 * dropped. */
bool cache_lookup_for(struct cache_space *s, uint64_t index, const struct file_bytes *file, struct cache_hit *hit);
void cache_release(struct cache_hit *hit);
/* Removes a stale entry (if it is still in the table) and releases the hit. */
void cache_drop(struct cache_space *s, uint64_t index, struct cache_hit *hit);

/* Copies an entry into the cache. `file`: what it was made from. An entry made from the same file stays unchanged,
 * except that an index is replaced (it has grown); an entry made from another file is replaced. 0, or an outcome. */
enum { CACHE_E_PRESENT = 1, CACHE_E_FULL = 2 };
int cache_put_pixels(struct cache_space *s, uint64_t index, const struct file_bytes *file,
		     const struct cache_pixels *pixels, size_t pixel_bytes);
int cache_put_index(struct cache_space *s, uint64_t index, const struct file_bytes *file, const void *bytes,
		    size_t n_bytes);

/* Whether an insert of n_bytes has a chance: false once the tier is full, so that a caller need not prepare an
 * entry. */
bool cache_has_room(struct cache_space *s, size_t n_bytes);
/* Whether a quarter of the tier's budget would still be free after it: for entries that are much larger than most, and
 * must not take the room of all others. */
bool cache_has_ample_room(struct cache_space *s, size_t n_bytes);

/* Writes indexes that are new since the last call to the directory, then trims the directory to its limit. Blocking;
 * call it periodically from a thread that may wait for disks. A failure to write is logged once per data set and has no
 * other effect. */
void cache_sync(struct cache *c);

/* Gives at least so much memory back to the system, if there is as much: first spaces that no loader uses, the one unused
 * for longest first; then parts of those in use, decoded pixels first. Blocking, as cache_sync. Returns the bytes. */
uint64_t cache_give_back(struct cache *c, uint64_t bytes);
/* Drops the spaces that no loader has used for so long. Blocking, as cache_sync. */
void cache_drop_unused(struct cache *c, uint64_t age_ns);

struct cache_stats {
	uint64_t hits, misses, stale; /* lookups: found, not found, found but made from another file */
	uint64_t refused;             /* inserts for which there was no room */
	uint64_t n_entries;
	uint64_t entry_bytes;   /* of the entries themselves */
	uint64_t charged_bytes; /* of memory, tables and gaps included */
	uint64_t budget_bytes;  /* of the tier; 0 in a space's statistics */
};
/* sums over all spaces, including dropped ones */
void cache_get_stats(struct cache *c, enum cache_tier tier, struct cache_stats *out);
void cache_space_get_stats(struct cache_space *s, struct cache_stats *out);

#endif
