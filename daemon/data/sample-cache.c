/* Spaces of entries, found by index.
 *
 * A space has an array of pointers, one per sample, and 64 locks over it: a lookup takes one of them for the time of reading a pointer and counting a
 * reference, so workers hardly ever meet. The last reference gives the entry's memory back to its space, and the last entry of a space that was
 * dropped gives the space back to the system; a hit may therefore outlive both.
 *
 * Locks, outermost first: attach_lock; a space's sync_lock, which keeps its file to one writer; list_lock for the list of spaces and who uses them; a
 * shard's; a memory's. */
#include "data/sample-cache.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "data/cache-file.h"
#include "data/cache-memory.h"
#include "util/log.h"

enum { N_SHARDS = 64, PAD_BYTES = 64, SYNC_BUFFER_BYTES = 1 << 20 };

struct entry {
	struct cache_space *space;
	uint64_t mtime_ns, ino, dev, n_file_bytes; /* of the file it was made from */
	size_t n_bytes;             /* of data */
	size_t block_bytes;         /* of memory */
	uint32_t width, height;     /* CACHE_DECODED */
	atomic_uint refs;           /* one of the table, one per hit */
	bool unsaved;               /* CACHE_INDEX: not in the directory yet; under the shard's lock */
	uint8_t data[] __attribute__((aligned(64))); /* n_bytes and PAD_BYTES zeros */
};

struct shard {
	pthread_mutex_t lock;
	uint64_t hits, misses, stale;
} __attribute__((aligned(64)));

struct cache_space {
	struct cache *cache;
	struct cache_space *next;   /* in cache.spaces */
	uint64_t dataset_id, prefix, n;
	enum cache_tier tier;
	unsigned n_users;           /* under list_lock */
	struct entry **table;       /* n of them; table[i] under shards[i % N_SHARDS] */
	size_t table_bytes;         /* mapped and charged */
	struct cache_memory memory;
	atomic_uint_fast64_t n_alive; /* entries with references, and one while the space is in the list */
	atomic_uint_fast64_t n_entries, entry_bytes, refused;
	pthread_mutex_t sync_lock;  /* guards the rest */
	struct cache_file file;     /* fd -1: not kept */
	bool complained;
	struct shard shards[N_SHARDS];
};

struct cache {
	struct cache_budget budgets[CACHE_N_TIERS];
	char *dir;
	pthread_mutex_t list_lock;
	struct cache_space *spaces; /* the most recently detached last */
	struct cache_stats gone[CACHE_N_TIERS]; /* sums of spaces that were dropped; under list_lock */
	atomic_uint n_unused[CACHE_N_TIERS]; /* spaces in the list without users; written under list_lock */
	pthread_mutex_t attach_lock; /* one space at a time is made and loaded */
};

/* ---- cache ---- */

int cache_create(const struct cache_config *config, struct cache **out)
{
	struct cache *c = calloc(1, sizeof(*c));

	if (!c) {
		return -ENOMEM;
	}
	if (config->dir) {
		c->dir = strdup(config->dir);
		if (!c->dir) {
			free(c);
			return -ENOMEM;
		}
	}
	pthread_mutex_init(&c->list_lock, NULL);
	pthread_mutex_init(&c->attach_lock, NULL);
	for (int t = 0; t < CACHE_N_TIERS; t++) {
		atomic_init(&c->budgets[t].limit_bytes, config->budget_bytes[t]);
	}
	*out = c;
	return 0;
}

void cache_set_budget(struct cache *c, enum cache_tier tier, uint64_t bytes)
{
	atomic_store(&c->budgets[tier].limit_bytes, bytes);
}

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
	for (int i = 0; i < N_SHARDS; i++) {
		pthread_mutex_destroy(&s->shards[i].lock);
	}
	pthread_mutex_destroy(&s->sync_lock);
	free(s);
}

static void space_leave(struct cache_space *s)
{
	if (atomic_fetch_sub_explicit(&s->n_alive, 1, memory_order_acq_rel) == 1) {
		space_finish(s);
	}
}

static void entry_unref(struct entry *e)
{
	struct cache_space *s = e->space;

	if (atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) == 1) {
		cache_memory_free(&s->memory, e, e->block_bytes);
		space_leave(s);
	}
}

static bool is_made_from(const struct entry *e, const struct file_bytes *file)
{
	/* Indexes may come from before a restart, which may have changed the device's number. */
	return e->ino == file->ino && e->mtime_ns == file->mtime_ns && e->n_file_bytes == file->n_bytes &&
	       (e->dev == file->dev || e->space->tier == CACHE_INDEX);
}

static struct shard *shard_of(struct cache_space *s, uint64_t index)
{
	return &s->shards[index % N_SHARDS];
}

/* Takes the entry out of the table if it is still there; its reference is the caller's then. Under the shard's lock. */
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

static void fill_hit(struct entry *e, struct cache_hit *hit)
{
	*hit = (struct cache_hit){ .file = { .n_bytes = e->n_file_bytes, .mtime_ns = e->mtime_ns, .ino = e->ino, .dev = e->dev }, .entry = e };
	if (e->space->tier == CACHE_FILE) {
		hit->file.data = e->data;
	} else if (e->space->tier == CACHE_DECODED) {
		hit->image = (struct image){ e->data, (size_t)e->width * 3, e->width, e->height };
	} else {
		hit->index = e->data;
		hit->n_index_bytes = e->n_bytes;
	}
}

/* file: what the entry must be made from, or NULL for whatever it is. */
static bool look_up(struct cache_space *s, uint64_t index, const struct file_bytes *file, struct cache_hit *hit)
{
	struct entry *found = NULL, *stale = NULL;
	struct shard *shard;

	if (!s || index >= s->n) {
		return false;
	}
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
	if (stale) {
		entry_unref(stale);
	}
	if (found) {
		fill_hit(found, hit);
	}
	return found;
}

bool cache_lookup(struct cache_space *s, uint64_t index, struct cache_hit *hit)
{
	return look_up(s, index, NULL, hit);
}

bool cache_lookup_for(struct cache_space *s, uint64_t index, const struct file_bytes *file, struct cache_hit *hit)
{
	return look_up(s, index, file, hit);
}

void cache_release(struct cache_hit *hit)
{
	if (hit->entry) {
		entry_unref(hit->entry);
	}
	*hit = (struct cache_hit){ 0 };
}

void cache_drop(struct cache_space *s, uint64_t index, struct cache_hit *hit)
{
	struct shard *shard = shard_of(s, index);
	bool taken;

	pthread_mutex_lock(&shard->lock);
	taken = s->table[index] == hit->entry;
	if (taken) {
		table_take(s, index);
	}
	/* The lookup counted a hit, which it was not. */
	shard->stale++;
	shard->hits--;
	shard->misses++;
	pthread_mutex_unlock(&shard->lock);
	if (taken) {
		entry_unref(hit->entry);
	}
	cache_release(hit);
}

/* ---- making room ---- */

static void add_stats(struct cache_space *s, struct cache_stats *sum)
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

/* Empties a space that nobody uses and that is out of the list already. */
static void space_drop(struct cache_space *s)
{
	for (uint64_t i = 0; i < s->n; i++) {
		struct shard *shard = shard_of(s, i);
		struct entry *e;

		pthread_mutex_lock(&shard->lock);
		e = s->table[i];
		if (e) {
			table_take(s, i);
		}
		pthread_mutex_unlock(&shard->lock);
		if (e) {
			entry_unref(e);
		}
	}
	cache_file_close(&s->file);
	space_leave(s);
}

/* Takes the space that has been unused for longest out of the list; NULL if all are in use. */
static struct cache_space *take_unused(struct cache *c, enum cache_tier tier)
{
	struct cache_space **link, *s = NULL;

	pthread_mutex_lock(&c->list_lock);
	for (link = &c->spaces; *link && ((*link)->tier != tier || (*link)->n_users); link = &(*link)->next) {
	}
	s = *link;
	if (s) {
		*link = s->next;
		atomic_fetch_sub(&c->n_unused[tier], 1);
		add_stats(s, &c->gone[tier]);
	}
	pthread_mutex_unlock(&c->list_lock);
	return s;
}

static int write_unsaved(struct cache_space *s);

static bool make_room(struct cache *c, enum cache_tier tier)
{
	struct cache_space *s = take_unused(c, tier);

	if (!s) {
		return false;
	}
	write_unsaved(s);
	space_drop(s);
	return true;
}

static struct entry *entry_create(struct cache_space *s, size_t n_bytes)
{
	size_t block_bytes = 0;
	struct entry *e;

	while (!(e = cache_memory_alloc(&s->memory, entry_bytes(n_bytes), &block_bytes))) {
		if (!make_room(s->cache, s->tier)) {
			return NULL;
		}
	}
	atomic_fetch_add_explicit(&s->n_alive, 1, memory_order_relaxed);
	e->space = s;
	e->n_bytes = n_bytes;
	e->block_bytes = block_bytes;
	e->width = e->height = 0;
	e->unsaved = false;
	atomic_init(&e->refs, 1);
	memset(e->data + n_bytes, 0, PAD_BYTES);
	return e;
}

bool cache_has_room(struct cache_space *s, size_t n_bytes)
{
	return s && (cache_memory_has_room(&s->memory, entry_bytes(n_bytes)) || atomic_load(&s->cache->n_unused[s->tier]) > 0);
}

/* ---- putting ---- */

/* Takes out what the new entry would replace. Whether there is one that stays. */
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
	if (old && !stays) {
		entry_unref(old);
	}
	return stays;
}

static void insert(struct cache_space *s, uint64_t index, struct entry *e)
{
	struct shard *shard = shard_of(s, index);
	struct entry *old;

	pthread_mutex_lock(&shard->lock);
	old = s->table[index];
	if (old) {
		table_take(s, index);
	}
	table_set(s, index, e);
	pthread_mutex_unlock(&shard->lock);
	if (old) {
		entry_unref(old); /* another thread made the same, or this one has grown */
	}
}

/* An entry for the caller to fill and insert; 0 or an outcome. */
static int begin_put(struct cache_space *s, uint64_t index, const struct file_bytes *file, size_t n_bytes, struct entry **out)
{
	if (!s || index >= s->n) {
		return CACHE_E_FULL;
	}
	if (is_present(s, index, file) && s->tier != CACHE_INDEX) {
		return CACHE_E_PRESENT;
	}
	*out = entry_create(s, n_bytes);
	if (!*out) {
		atomic_fetch_add(&s->refused, 1);
		return CACHE_E_FULL;
	}
	(*out)->mtime_ns = file->mtime_ns;
	(*out)->ino = file->ino;
	(*out)->dev = file->dev;
	(*out)->n_file_bytes = file->n_bytes;
	return 0;
}

int cache_put_file(struct cache_space *s, uint64_t index, const struct file_bytes *file)
{
	struct entry *e;
	int r = begin_put(s, index, file, file->n_bytes, &e);

	if (r) {
		return r;
	}
	if (file->n_bytes) {
		memcpy(e->data, file->data, file->n_bytes);
	}
	insert(s, index, e);
	return 0;
}

int cache_put_image(struct cache_space *s, uint64_t index, const struct file_bytes *file, const struct image *image)
{
	size_t row_bytes = (size_t)image->width * 3;
	struct entry *e;
	int r = begin_put(s, index, file, row_bytes * image->height, &e);

	if (r) {
		return r;
	}
	e->width = image->width;
	e->height = image->height;
	for (uint32_t y = 0; y < image->height; y++) {
		memcpy(e->data + y * row_bytes, image->rgb + y * image->stride_bytes, row_bytes);
	}
	insert(s, index, e);
	return 0;
}

static int put_index(struct cache_space *s, uint64_t index, const struct file_bytes *file, const void *bytes, size_t n_bytes, bool unsaved)
{
	struct entry *e;
	int r = begin_put(s, index, file, n_bytes, &e);

	if (r) {
		return r;
	}
	if (n_bytes) {
		memcpy(e->data, bytes, n_bytes);
	}
	e->unsaved = unsaved;
	insert(s, index, e);
	return 0;
}

int cache_put_index(struct cache_space *s, uint64_t index, const struct file_bytes *file, const void *bytes, size_t n_bytes)
{
	return put_index(s, index, file, bytes, n_bytes, n_bytes && n_bytes <= CACHE_RECORD_MAX_BYTES);
}

/* ---- keeping indexes ---- */

static void complain(struct cache_space *s, const char *what, int error)
{
	if (!s->complained) {
		s->complained = true;
		log_record(LOG_LEVEL_WARNING, "cache-not-kept", "%s: %s: %s; indexes will be made again after a restart", s->file.path, what, strerrordesc_np(-error));
	}
}

static int load_record(void *arg, const struct cache_record *r)
{
	struct cache_space *s = arg;
	struct file_bytes file = { .n_bytes = r->n_file_bytes, .mtime_ns = r->mtime_ns, .ino = r->ino };

	return r->index < s->n && put_index(s, r->index, &file, r->payload, r->n_payload, false) == CACHE_E_FULL;
}

static void load_kept(struct cache_space *s)
{
	int r = cache_file_open(&s->file, s->cache->dir, s->dataset_id);

	r = r < 0 ? r : cache_file_read(&s->file, load_record, s);
	if (r < 0) {
		complain(s, "cannot read", r);
	}
	/* What happened while loading is no event of a lookup or an insert. */
	atomic_store(&s->refused, 0);
	for (int i = 0; i < N_SHARDS; i++) {
		s->shards[i].stale = 0;
	}
}

/* An entry that is to be written, with a reference; NULL if there is none at this index. all: written before or not. */
static struct entry *entry_to_write(struct cache_space *s, uint64_t index, bool all)
{
	struct shard *shard = shard_of(s, index);
	struct entry *e;

	pthread_mutex_lock(&shard->lock);
	e = s->table[index];
	if (e && (all || e->unsaved) && e->n_bytes && e->n_bytes <= CACHE_RECORD_MAX_BYTES) {
		e->unsaved = false;
		atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
	} else {
		e = NULL;
	}
	pthread_mutex_unlock(&shard->lock);
	return e;
}

struct writer {
	struct cache_file *file;
	unsigned char *buffer;
	size_t n, capacity;
};

static int flush(struct writer *w)
{
	int r = w->n ? cache_file_append(w->file, w->buffer, w->n) : 0;

	w->n = 0;
	return r;
}

static int write_entry(struct writer *w, uint64_t index, const struct entry *e)
{
	struct cache_record record = { index, e->mtime_ns, e->ino, e->n_file_bytes, e->data, e->n_bytes };
	size_t n = cache_record_bytes(e->n_bytes);
	int r = w->n + n > SYNC_BUFFER_BYTES ? flush(w) : 0;

	if (r < 0) {
		return r;
	}
	if (w->n + n > w->capacity) {
		unsigned char *larger = realloc(w->buffer, w->n + n > SYNC_BUFFER_BYTES ? w->n + n : SYNC_BUFFER_BYTES);

		if (!larger) {
			return -ENOMEM;
		}
		w->buffer = larger;
		w->capacity = w->n + n > SYNC_BUFFER_BYTES ? w->n + n : SYNC_BUFFER_BYTES;
	}
	cache_record_make(w->buffer + w->n, &record);
	w->n += n;
	return 0;
}

static int write_entries(struct cache_space *s, struct cache_file *file, bool all)
{
	struct writer w = { .file = file };
	int r = 0;

	for (uint64_t i = 0; !r && i < s->n; i++) {
		struct entry *e = entry_to_write(s, i, all);

		if (e) {
			r = write_entry(&w, i, e);
			entry_unref(e);
		}
	}
	r = r < 0 ? r : flush(&w);
	free(w.buffer);
	return r;
}

/* Records of replaced indexes pile up; when they are more than what is alive the file is written anew. So it stays below about twice the budget. */
static int compact(struct cache_space *s)
{
	struct cache_file fresh;
	int r = cache_file_begin_new(&s->file, &fresh);

	if (r < 0) {
		return r;
	}
	r = write_entries(s, &fresh, true);
	if (r < 0) {
		cache_file_close(&fresh);
		return r;
	}
	return cache_file_replace(&s->file, &fresh);
}

static int write_unsaved(struct cache_space *s)
{
	uint64_t live;
	int r = 0;

	pthread_mutex_lock(&s->sync_lock);
	if (s->file.fd >= 0 && s->file.writable) {
		r = write_entries(s, &s->file, false);
		live = atomic_load(&s->entry_bytes) + atomic_load(&s->n_entries) * (CACHE_RECORD_HEADER_BYTES + 8);
		if (!r && s->file.size_bytes > 2 * live + SYNC_BUFFER_BYTES) {
			r = compact(s);
		}
		if (r < 0) {
			complain(s, "cannot write", r);
		}
	}
	pthread_mutex_unlock(&s->sync_lock);
	return r;
}

/* Under list_lock. */
static void use(struct cache_space *s)
{
	if (s->n_users++ == 0) {
		atomic_fetch_sub(&s->cache->n_unused[s->tier], 1);
	}
}

static void unuse(struct cache_space *s)
{
	if (--s->n_users == 0) {
		atomic_fetch_add(&s->cache->n_unused[s->tier], 1);
	}
}

/* The k-th space of the list with one more user, so that it stays; NULL behind the last. */
static struct cache_space *hold(struct cache *c, unsigned k)
{
	struct cache_space *s;

	pthread_mutex_lock(&c->list_lock);
	for (s = c->spaces; s && k; s = s->next) {
		k--;
	}
	if (s) {
		use(s);
	}
	pthread_mutex_unlock(&c->list_lock);
	return s;
}

static void let_go(struct cache *c, struct cache_space *s)
{
	pthread_mutex_lock(&c->list_lock);
	unuse(s);
	pthread_mutex_unlock(&c->list_lock);
}

void cache_sync(struct cache *c)
{
	struct cache_space *s;

	/* Should the list change meanwhile, a space may be missed until the next time. */
	for (unsigned k = 0; c->dir && (s = hold(c, k)); k++) {
		write_unsaved(s);
		let_go(c, s);
	}
}

/* ---- spaces ---- */

static struct cache_space *space_create(struct cache *c, uint64_t dataset_id, uint64_t n, enum cache_tier tier, uint64_t prefix)
{
	struct cache_budget *budget = &c->budgets[tier];
	struct cache_space *s;

	if (n > SIZE_MAX / 16) {
		return NULL;
	}
	s = aligned_alloc(64, sizeof(*s));
	if (!s) {
		return NULL;
	}
	memset(s, 0, sizeof(*s));
	s->table_bytes = (n * sizeof(*s->table) + 4095) / 4096 * 4096;
	while (atomic_load(&budget->used_bytes) + s->table_bytes > atomic_load(&budget->limit_bytes) && make_room(c, tier)) {
	}
	/* Pages of the table that no entry touches are not resident, but charged: that errs on the safe side. */
	if (atomic_fetch_add(&budget->used_bytes, s->table_bytes) + s->table_bytes > atomic_load(&budget->limit_bytes)) {
		goto refund;
	}
	s->table = mmap(NULL, s->table_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->table == MAP_FAILED) {
		goto refund;
	}
	s->cache = c;
	s->dataset_id = dataset_id;
	s->prefix = prefix;
	s->n = n;
	s->tier = tier;
	s->n_users = 1;
	s->file.fd = -1;
	atomic_init(&s->n_alive, 1);
	cache_memory_init(&s->memory, budget);
	pthread_mutex_init(&s->sync_lock, NULL);
	for (int i = 0; i < N_SHARDS; i++) {
		pthread_mutex_init(&s->shards[i].lock, NULL);
	}
	return s;

refund:
	atomic_fetch_sub(&budget->used_bytes, s->table_bytes);
	free(s);
	return NULL;
}

static struct cache_space *find(struct cache *c, uint64_t dataset_id, uint64_t n, enum cache_tier tier, uint64_t prefix)
{
	struct cache_space *s;

	pthread_mutex_lock(&c->list_lock);
	for (s = c->spaces; s; s = s->next) {
		if (s->dataset_id == dataset_id && s->n == n && s->tier == tier && s->prefix == prefix) {
			use(s);
			break;
		}
	}
	pthread_mutex_unlock(&c->list_lock);
	return s;
}

/* Under list_lock. */
static void append(struct cache *c, struct cache_space *s)
{
	struct cache_space **link = &c->spaces;

	while (*link) {
		link = &(*link)->next;
	}
	s->next = NULL;
	*link = s;
}

static struct cache_space *make_space(struct cache *c, uint64_t dataset_id, uint64_t n, enum cache_tier tier, uint64_t prefix)
{
	struct cache_space *s = space_create(c, dataset_id, n, tier, prefix);

	if (!s) {
		return NULL;
	}
	if (tier == CACHE_INDEX && c->dir) {
		load_kept(s);
	}
	pthread_mutex_lock(&c->list_lock);
	append(c, s);
	pthread_mutex_unlock(&c->list_lock);
	return s;
}

struct cache_space *cache_attach(struct cache *c, uint64_t dataset_id, uint64_t n_samples, enum cache_tier tier, uint64_t prefix)
{
	struct cache_space *s;

	if (!c || !n_samples || !atomic_load(&c->budgets[tier].limit_bytes)) {
		return NULL;
	}
	pthread_mutex_lock(&c->attach_lock);
	s = find(c, dataset_id, n_samples, tier, prefix);
	if (!s) {
		s = make_space(c, dataset_id, n_samples, tier, prefix);
	}
	pthread_mutex_unlock(&c->attach_lock);
	return s;
}

void cache_detach(struct cache_space *s)
{
	struct cache *c = s ? s->cache : NULL;
	struct cache_space **link;

	if (!s) {
		return;
	}
	pthread_mutex_lock(&c->list_lock);
	unuse(s);
	if (!s->n_users) {
		for (link = &c->spaces; *link != s; link = &(*link)->next) {
		}
		*link = s->next;
		append(c, s);
	}
	pthread_mutex_unlock(&c->list_lock);
}

void cache_destroy(struct cache *c)
{
	if (!c) {
		return;
	}
	for (struct cache_space *s = c->spaces, *next; s; s = next) {
		next = s->next;
		write_unsaved(s);
		space_drop(s);
	}
	pthread_mutex_destroy(&c->list_lock);
	pthread_mutex_destroy(&c->attach_lock);
	free(c->dir);
	free(c);
}

/* ---- statistics ---- */

static void add_live_stats(struct cache_space *s, struct cache_stats *sum)
{
	add_stats(s, sum);
	sum->n_entries += atomic_load(&s->n_entries);
	sum->entry_bytes += atomic_load(&s->entry_bytes);
}

void cache_space_get_stats(struct cache_space *s, struct cache_stats *out)
{
	*out = (struct cache_stats){ 0 };
	if (s) {
		add_live_stats(s, out);
		pthread_mutex_lock(&s->memory.lock);
		out->charged_bytes = s->table_bytes + s->memory.charged_bytes;
		pthread_mutex_unlock(&s->memory.lock);
	}
}

void cache_get_stats(struct cache *c, enum cache_tier tier, struct cache_stats *out)
{
	pthread_mutex_lock(&c->list_lock);
	*out = c->gone[tier];
	for (struct cache_space *s = c->spaces; s; s = s->next) {
		if (s->tier == tier) {
			add_live_stats(s, out);
		}
	}
	pthread_mutex_unlock(&c->list_lock);
	out->charged_bytes = atomic_load(&c->budgets[tier].used_bytes);
	out->budget_bytes = atomic_load(&c->budgets[tier].limit_bytes);
}
