/* One space: a table of entries, found by index.
 *
 * 64 locks protect it: a lookup holds one of them only while it reads a pointer and counts a reference, so workers
 * rarely contend. The last reference returns the entry's memory to its space, and the last entry of a dropped space
 * returns the space to the system. So a hit may outlive the removal of its entry and the drop of its space. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "dataset/cache/impl.h"
#include "dataset/cache/parts.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { PAD_BYTES = 64, PAGE_BYTES = 4096, POPULATE_BYTES = 16 * PAGE_BYTES, MOST_TRIES = 4 };

/* ---- entries ---- */

static size_t entry_bytes(size_t n_bytes)
{
	return sizeof(struct entry) + n_bytes + PAD_BYTES;
}

static void space_finish(struct cache_space *s)
{
	struct cache_budget *budget = s->memory.budget;

	cache_memory_finish(&s->memory);
	munmap(s->table, s->table_bytes);
	atomic_fetch_sub(&budget->used_bytes, s->table_bytes);
	for (int i = 0; i < N_SHARDS; i++)
		pthread_mutex_destroy(&s->shards[i].lock);
	pthread_mutex_destroy(&s->sync_lock);
	free(s);
}

static void space_leave(struct cache_space *s)
{
	if (atomic_fetch_sub_explicit(&s->n_alive, 1, memory_order_acq_rel) == 1)
		space_finish(s);
}

void entry_unref(struct entry *e)
{
	struct cache_space *s = e->space;

	if (atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) == 1) {
		cache_memory_free(&s->memory, &e->block);
		space_leave(s);
	}
}

static bool is_made_from(const struct entry *e, const struct file_bytes *file)
{
	return e->ino == file->ino && e->mtime_ns == file->mtime_ns && e->ctime_ns == file->ctime_ns &&
	       e->n_file_bytes == file->n_bytes && (e->dev == file->dev || e->is_kept);
}

/* Takes the entry out of the table if it is still there; the caller gets its reference. Under the shard's lock. */
static void table_take(struct cache_space *s, uint64_t index)
{
	atomic_fetch_sub(&s->n_entries, 1);
	atomic_fetch_sub(&s->entry_bytes, s->table[index]->n_bytes);
	s->table[index] = NULL;
}

static void table_set(struct cache_space *s, uint64_t index, struct entry *e)
{
	atomic_fetch_add(&s->n_entries, 1);
	atomic_fetch_add(&s->entry_bytes, e->n_bytes);
	s->table[index] = e;
}

/* ---- looking up ---- */

static void fill_hit(struct entry *e, struct cache_hit *hit)
{
	*hit = (struct cache_hit){ .file = { .n_bytes = e->n_file_bytes,
					     .mtime_ns = e->mtime_ns,
					     .ctime_ns = e->ctime_ns,
					     .ino = e->ino,
					     .dev = e->dev },
				   .entry = e };
	if (e->space->tier == CACHE_DECODED) {
		hit->pixels = (struct cache_pixels){ e->data, e->n_bytes / e->height, e->width, e->height };
	} else {
		hit->index = e->data;
		hit->n_index_bytes = e->n_bytes;
	}
}

/* file: what the entry must be made from; NULL accepts any. */
static bool cache_space_look_up(struct cache_space *s, uint64_t index, const struct file_bytes *file,
				struct cache_hit *hit)
{
	struct entry *found = NULL, *stale = NULL;
	struct shard *shard;

	if (!s || index >= s->n)
		return false;
	shard = shard_of(s, index);
	pthread_mutex_lock(&shard->lock);
	found = s->table[index];
	if (found && file && !is_made_from(found, file)) {
		table_take(s, index);
		stale = found;
		found = NULL;
		shard->stale++;
	}
	if (found) {
		atomic_fetch_add_explicit(&found->refs, 1, memory_order_relaxed);
		shard->hits++;
	} else {
		shard->misses++;
	}
	pthread_mutex_unlock(&shard->lock);
	if (stale)
		entry_unref(stale);
	if (found)
		fill_hit(found, hit);
	return found;
}

bool cache_lookup(struct cache_space *s, uint64_t index, struct cache_hit *hit)
{
	return cache_space_look_up(s, index, NULL, hit);
}

bool cache_lookup_for(struct cache_space *s, uint64_t index, const struct file_bytes *file, struct cache_hit *hit)
{
	return cache_space_look_up(s, index, file, hit);
}

void cache_release(struct cache_hit *hit)
{
	if (hit->entry)
		entry_unref(hit->entry);
	*hit = (struct cache_hit){ 0 };
}

void cache_drop(struct cache_space *s, uint64_t index, struct cache_hit *hit)
{
	struct shard *shard = shard_of(s, index);
	bool taken;

	pthread_mutex_lock(&shard->lock);
	taken = s->table[index] == hit->entry;
	if (taken)
		table_take(s, index);
	/* The lookup counted a hit, but it was none. */
	shard->stale++;
	shard->hits--;
	shard->misses++;
	pthread_mutex_unlock(&shard->lock);
	if (taken)
		entry_unref(hit->entry);
	cache_release(hit);
}

/* ---- putting ---- */

/* Removes an entry that the new one would replace. Returns whether an entry stays. */
static bool is_present(struct cache_space *s, uint64_t index, const struct file_bytes *file)
{
	struct shard *shard = shard_of(s, index);
	struct entry *old;
	bool stays;

	pthread_mutex_lock(&shard->lock);
	old = s->table[index];
	stays = old && is_made_from(old, file);
	if (old && !stays) {
		table_take(s, index);
		shard->stale++;
	}
	pthread_mutex_unlock(&shard->lock);
	if (old && !stays)
		entry_unref(old);
	return stays;
}

/* An entry whose memory was retired meanwhile has no place in the table: space_shrink has looked for it already. */
static void cache_space_insert(struct cache_space *s, uint64_t index, struct entry *e)
{
	struct shard *shard = shard_of(s, index);
	struct entry *old;

	pthread_mutex_lock(&shard->lock);
	old = s->table[index];
	if (old)
		table_take(s, index);
	if (!cache_block_is_retired(&e->block)) {
		table_set(s, index, e);
		e = NULL;
	}
	pthread_mutex_unlock(&shard->lock);
	if (old)
		entry_unref(old); /* another thread has made the same entry, or the index has grown */
	if (e)
		entry_unref(e);
}

/* Has the kernel bring all pages of a large block in one call in place of a page fault for each. Huge pages were tried:
 * on a virtual machine filling took twice as long. An older kernel refuses, and brings the pages one by one. */
static void populate(void *block, size_t n_bytes)
{
	uintptr_t from = ((uintptr_t)block + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	uintptr_t to = ((uintptr_t)block + n_bytes) / PAGE_BYTES * PAGE_BYTES;
	if (to > from && to - from >= POPULATE_BYTES)
		(void)madvise((void *)from, to - from, MADV_POPULATE_WRITE);
}

static struct entry *entry_create(struct cache_space *s, uint64_t index, size_t n_bytes)
{
	struct cache_block *block;
	struct entry *e;

	for (unsigned tries = 0;
	     !(block = cache_memory_alloc(&s->memory, entry_bytes(n_bytes), index, !atomic_load(&s->is_held)));
	     tries++) {
		/* The caller may be a worker: do not wait. */
		if (tries == MOST_TRIES || !s->cache->make_room(s->cache, s, false))
			return NULL;
	}
	e = (void *)block;
	populate(e->data, n_bytes + PAD_BYTES);
	atomic_fetch_add_explicit(&s->n_alive, 1, memory_order_relaxed);
	e->space = s;
	e->n_bytes = n_bytes;
	e->width = e->height = 0;
	e->unsaved = e->is_kept = false;
	atomic_init(&e->refs, 1);
	memset(e->data + n_bytes, 0, PAD_BYTES);
	return e;
}

bool cache_has_room(struct cache_space *s, size_t n_bytes)
{
	return s && (cache_memory_has_room(&s->memory, entry_bytes(n_bytes), !atomic_load(&s->is_held)) ||
		     atomic_load(&s->cache->n_unused[s->tier]) > 0 || atomic_load(&s->may_take));
}

bool cache_has_ample_room(struct cache_space *s, size_t n_bytes)
{
	if (!s)
		return false;
	uint64_t limit = atomic_load(&s->memory.budget->limit_bytes);
	return atomic_load(&s->memory.budget->used_bytes) + entry_bytes(n_bytes) <= limit - limit / 4;
}

static struct entry *entry_of(struct cache_space *s, uint64_t index, const struct file_bytes *file, size_t n_bytes)
{
	struct entry *e = entry_create(s, index, n_bytes);

	if (e) {
		e->mtime_ns = file->mtime_ns;
		e->ctime_ns = file->ctime_ns;
		e->ino = file->ino;
		e->dev = file->dev;
		e->n_file_bytes = file->n_bytes;
	}
	return e;
}

/* Makes an entry for the caller to fill and insert; 0 or an outcome. */
static int begin_put(struct cache_space *s, uint64_t index, const struct file_bytes *file, size_t n_bytes,
		     struct entry **out)
{
	if (!s || index >= s->n)
		return CACHE_E_FULL;
	if (is_present(s, index, file) && s->tier != CACHE_CHECKPOINTS)
		return CACHE_E_PRESENT;
	*out = entry_of(s, index, file, n_bytes);
	if (!*out) {
		atomic_fetch_add(&s->refused, 1);
		return CACHE_E_FULL;
	}
	return 0;
}

int cache_put_pixels(struct cache_space *s, uint64_t index, const struct file_bytes *file,
		     const struct cache_pixels *pixels, size_t pixel_bytes)
{
	size_t row_bytes = pixels->width * pixel_bytes;
	struct entry *e;
	int r = begin_put(s, index, file, row_bytes * pixels->height, &e);

	if (r)
		return r;
	e->width = pixels->width;
	e->height = pixels->height;
	for (uint32_t y = 0; y < pixels->height; y++)
		memcpy(e->data + y * row_bytes, pixels->bytes + y * pixels->stride_bytes, row_bytes);
	cache_space_insert(s, index, e);
	return 0;
}

int cache_put_index(struct cache_space *s, uint64_t index, const struct file_bytes *file, const void *bytes,
		    size_t n_bytes)
{
	struct entry *e;
	int r = begin_put(s, index, file, n_bytes, &e);

	if (r)
		return r;
	if (n_bytes)
		memcpy(e->data, bytes, n_bytes);
	e->unsaved = n_bytes && n_bytes <= CACHE_RECORD_MAX_BYTES;
	if (e->unsaved && s->cache->dir)
		atomic_store_explicit(&s->dirty, true, memory_order_relaxed);
	cache_space_insert(s, index, e);
	return 0;
}

int space_put_kept(struct cache_space *s, uint64_t index, const struct file_bytes *file, const void *bytes,
		   size_t n_bytes)
{
	struct shard *shard = shard_of(s, index);
	struct entry *e = entry_of(s, index, file, n_bytes), *old;
	bool newer;

	if (!e)
		return CACHE_E_FULL;
	memcpy(e->data, bytes, n_bytes);
	e->is_kept = true;
	pthread_mutex_lock(&shard->lock);
	old = s->table[index];
	newer = (old && !old->is_kept) || cache_block_is_retired(&e->block);
	if (old && !newer)
		table_take(s, index);
	if (!newer)
		table_set(s, index, e);
	pthread_mutex_unlock(&shard->lock);
	if (newer)
		entry_unref(e);
	else if (old)
		entry_unref(old);
	return newer ? CACHE_E_PRESENT : 0;
}

/* ---- spaces ---- */

struct cache_space *space_create(struct cache *c, uint64_t dataset_id, uint64_t n, enum cache_tier tier,
				 uint64_t prefix, uid_t uid)
{
	struct cache_budget *budget = &c->budgets[tier];
	struct cache_space *s;

	if (n > SIZE_MAX / 16)
		return NULL;
	s = aligned_alloc(64, sizeof(*s));
	if (!s)
		return NULL;
	memset(s, 0, sizeof(*s));
	s->table_bytes = (n * sizeof(*s->table) + 4095) / 4096 * 4096;
	s->cache = c;
	s->tier = tier;
	cache_memory_init(&s->memory, budget);
	pthread_mutex_lock(&c->list_lock);
	cache_parts_use(c, s, uid);
	pthread_mutex_unlock(&c->list_lock);
	while (atomic_load(&budget->used_bytes) + s->table_bytes > atomic_load(&budget->limit_bytes) &&
	       c->make_room(c, s, true)) {
	}
	/* Untouched pages of the table are charged though not resident: this errs on the safe side. */
	if (atomic_fetch_add(&budget->used_bytes, s->table_bytes) + s->table_bytes > atomic_load(&budget->limit_bytes))
		goto refund;
	s->table = mmap(NULL, s->table_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->table == MAP_FAILED)
		goto refund;
	s->dataset_id = dataset_id;
	s->prefix = prefix;
	s->n = n;
	s->n_users = 1;
	s->file.fd = -1;
	atomic_init(&s->n_alive, 1);
	pthread_mutex_init(&s->sync_lock, NULL);
	for (int i = 0; i < N_SHARDS; i++)
		pthread_mutex_init(&s->shards[i].lock, NULL);
	return s;

refund:
	atomic_fetch_sub(&budget->used_bytes, s->table_bytes);
	pthread_mutex_lock(&c->list_lock);
	cache_parts_unuse(c, s, uid);
	pthread_mutex_unlock(&c->list_lock);
	cache_memory_finish(&s->memory);
	free(s);
	return NULL;
}

/* Empties a space that has no users and is out of the list already. */
void space_drop(struct cache_space *s)
{
	for (uint64_t i = 0; i < s->n; i++) {
		struct shard *shard = shard_of(s, i);
		struct entry *e;

		pthread_mutex_lock(&shard->lock);
		e = s->table[i];
		if (e)
			table_take(s, i);
		pthread_mutex_unlock(&shard->lock);
		if (e)
			entry_unref(e);
	}
	cache_file_close(&s->file);
	space_leave(s);
}

bool space_shrink(struct cache_space *s)
{
	uint64_t *tags;
	size_t n;

	if (!cache_memory_retire(&s->memory, &tags, &n))
		return false;
	for (size_t i = 0; i < n; i++) {
		struct shard *shard = shard_of(s, tags[i]);
		struct entry *e;

		pthread_mutex_lock(&shard->lock);
		e = s->table[tags[i]];
		if (e && cache_block_is_retired(&e->block))
			table_take(s, tags[i]);
		else
			e = NULL;
		pthread_mutex_unlock(&shard->lock);
		if (e)
			entry_unref(e);
	}
	free(tags);
	return true;
}

/* ---- statistics ---- */

void space_add_stats(struct cache_space *s, struct cache_stats *sum)
{
	for (int i = 0; i < N_SHARDS; i++) {
		pthread_mutex_lock(&s->shards[i].lock);
		sum->hits += s->shards[i].hits;
		sum->misses += s->shards[i].misses;
		sum->stale += s->shards[i].stale;
		pthread_mutex_unlock(&s->shards[i].lock);
	}
	sum->refused += atomic_load(&s->refused);
}

void space_add_live_stats(struct cache_space *s, struct cache_stats *sum)
{
	space_add_stats(s, sum);
	sum->n_entries += atomic_load(&s->n_entries);
	sum->entry_bytes += atomic_load(&s->entry_bytes);
}

void cache_space_get_stats(struct cache_space *s, struct cache_stats *out)
{
	*out = (struct cache_stats){ 0 };
	if (s) {
		space_add_live_stats(s, out);
		out->charged_bytes = s->table_bytes + cache_memory_charged(&s->memory);
	}
}
