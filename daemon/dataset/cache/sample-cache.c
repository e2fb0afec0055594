/* The spaces of a cache, their users, and which spaces make room for new ones. space.c has the contents of a
 * space, kept-indexes.c what is kept of it over restarts.
 *
 * Locks, outermost first: a space's sync_lock, which allows its file one reader or writer; list_lock for the list of
 * spaces and their users; a shard's; a memory's. The holder of a sync_lock waits for disks, so other threads never wait
 * for one: they try it, and skip the work if it is taken. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/cache/dir.h"
#include "dataset/cache/impl.h"
#include "dataset/cache/parts.h"
#include "base/clock.h"

enum { FILE_SPARE_BYTES = 4 << 20 }; /* of a kept file, beyond the old records that a crash leaves in it */

/* ---- cache ---- */

static void trim_dir(const struct cache *c)
{
	if (c->dir && c->dir_limit_bytes)
		cache_dir_trim(c->dir, c->dir_limit_bytes);
}

static bool make_room(struct cache *c, struct cache_space *s, bool may_wait);

int cache_create(const struct cache_config *config, struct cache **out)
{
	struct cache *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	if (config->dir) {
		c->dir = strdup(config->dir);
		if (!c->dir) {
			free(c);
			return -ENOMEM;
		}
	}
	pthread_mutex_init(&c->list_lock, NULL);
	for (int t = 0; t < CACHE_N_TIERS; t++)
		atomic_init(&c->budgets[t].limit_bytes, config->budget_bytes[t]);
	c->make_room = make_room;
	c->dir_limit_bytes = config->dir_limit_bytes;
	c->file_most_bytes = 4 * config->budget_bytes[CACHE_CHECKPOINTS] + FILE_SPARE_BYTES;
	*out = c;
	return 0;
}

void cache_set_budget(struct cache *c, enum cache_tier tier, uint64_t bytes)
{
	uint64_t before = atomic_exchange(&c->budgets[tier].limit_bytes, bytes);

	if (before == bytes)
		return;
	pthread_mutex_lock(&c->list_lock);
	c->contended[tier] &= bytes < before;
	cache_parts_update(c, tier);
	pthread_mutex_unlock(&c->list_lock);
}

void cache_destroy(struct cache *c)
{
	if (!c)
		return;
	for (struct cache_space *s = c->spaces, *next; s; s = next) {
		next = s->next;
		space_write_unsaved(s);
		space_drop(s);
	}
	trim_dir(c);
	pthread_mutex_destroy(&c->list_lock);
	free(c->dir);
	free(c);
}

/* ---- users ---- */

/* Under list_lock. */
static void sample_cache_use(struct cache_space *s)
{
	if (s->n_users++ == 0)
		atomic_fetch_sub(&s->cache->n_unused[s->tier], 1);
}

static void sample_cache_unuse(struct cache_space *s)
{
	if (--s->n_users == 0)
		atomic_fetch_add(&s->cache->n_unused[s->tier], 1);
}

/* Under list_lock. */
static struct cache_space *sample_cache_find(struct cache *c, uint64_t dataset_id, uint64_t n, enum cache_tier tier,
					     uint64_t prefix, uid_t uid)
{
	struct cache_space *s;

	for (s = c->spaces; s; s = s->next) {
		if (s->dataset_id == dataset_id && s->n == n && s->tier == tier && s->prefix == prefix) {
			sample_cache_use(s);
			cache_parts_use(c, s, uid);
			break;
		}
	}
	return s;
}

static struct cache_space *find_locked(struct cache *c, uint64_t dataset_id, uint64_t n, enum cache_tier tier,
				       uint64_t prefix, uid_t uid)
{
	struct cache_space *s;

	pthread_mutex_lock(&c->list_lock);
	s = sample_cache_find(c, dataset_id, n, tier, prefix, uid);
	pthread_mutex_unlock(&c->list_lock);
	return s;
}

/* Under list_lock. */
static void sample_cache_append(struct cache *c, struct cache_space *s)
{
	struct cache_space **link = &c->spaces;

	while (*link)
		link = &(*link)->next;
	s->next = NULL;
	*link = s;
}

/* Puts a new space into the list. If another thread was faster, that thread's space is used and the new one freed. */
static struct cache_space *sample_cache_enlist(struct cache *c, struct cache_space *s, uid_t uid)
{
	struct cache_space *other;

	pthread_mutex_lock(&c->list_lock);
	other = sample_cache_find(c, s->dataset_id, s->n, s->tier, s->prefix, uid);
	if (!other)
		sample_cache_append(c, s);
	else
		cache_parts_unuse(c, s, uid);
	cache_parts_update(c, s->tier);
	pthread_mutex_unlock(&c->list_lock);
	return other ? other : s;
}

/* Other threads may use it while it is still being loaded. Its sync_lock is taken before they can see it, so that no
 * thread writes to the file before it is loaded. */
static struct cache_space *make_space(struct cache *c, uint64_t dataset_id, uint64_t n, enum cache_tier tier,
				      uint64_t prefix, uid_t uid)
{
	struct cache_space *made = space_create(c, dataset_id, n, tier, prefix, uid), *s;

	if (!made)
		return find_locked(c, dataset_id, n, tier, prefix, uid);
	pthread_mutex_lock(&made->sync_lock);
	s = sample_cache_enlist(c, made, uid);
	if (s == made && tier == CACHE_CHECKPOINTS && c->dir)
		space_load_kept(s);
	pthread_mutex_unlock(&made->sync_lock);
	if (s != made)
		space_drop(made);
	return s;
}

struct cache_space *cache_attach(struct cache *c, uint64_t dataset_id, uint64_t n_samples, enum cache_tier tier,
				 uint64_t prefix, uid_t uid)
{
	struct cache_space *s;

	if (!c || !n_samples || !atomic_load(&c->budgets[tier].limit_bytes))
		return NULL;
	s = find_locked(c, dataset_id, n_samples, tier, prefix, uid);
	return s ? s : make_space(c, dataset_id, n_samples, tier, prefix, uid);
}

void cache_detach(struct cache_space *s, uid_t uid)
{
	struct cache *c = s ? s->cache : NULL;
	struct cache_space **link;

	if (!s)
		return;
	pthread_mutex_lock(&c->list_lock);
	cache_parts_unuse(c, s, uid);
	sample_cache_unuse(s);
	s->unused_since_ns = clock_now_ns();
	if (!s->n_users) {
		for (link = &c->spaces; *link != s; link = &(*link)->next) {
		}
		*link = s->next;
		sample_cache_append(c, s);
	}
	pthread_mutex_unlock(&c->list_lock);
}

/* ---- making room ---- */

static bool can_go(struct cache_space *s, enum cache_tier tier, bool may_wait)
{
	return s->tier == tier && !s->n_users && (may_wait || !atomic_load(&s->dirty));
}

/* Removes the space that has been unused for longest from the list; NULL if there is none that is unused since before
 * then. */
static struct cache_space *take_unused(struct cache *c, enum cache_tier tier, bool may_wait, uint64_t before_ns)
{
	struct cache_space **link, *s = NULL;

	pthread_mutex_lock(&c->list_lock);
	for (link = &c->spaces; *link && (!can_go(*link, tier, may_wait) || (*link)->unused_since_ns > before_ns);
	     link = &(*link)->next) {
	}
	s = *link;
	if (s) {
		*link = s->next;
		atomic_fetch_sub(&c->n_unused[tier], 1);
		space_add_stats(s, &c->gone[tier]);
	}
	pthread_mutex_unlock(&c->list_lock);
	return s;
}

static void let_go(struct cache *c, struct cache_space *s)
{
	pthread_mutex_lock(&c->list_lock);
	sample_cache_unuse(s);
	pthread_mutex_unlock(&c->list_lock);
}

/* From a user that has more than its share. */
static bool take_part(struct cache *c, struct cache_space *s)
{
	struct cache_space *from;
	bool took;

	pthread_mutex_lock(&c->list_lock);
	from = cache_parts_find(c, s);
	if (from)
		sample_cache_use(from);
	pthread_mutex_unlock(&c->list_lock);
	if (!from)
		return false;
	took = space_shrink(from);
	let_go(c, from);
	return took;
}

static bool make_room(struct cache *c, struct cache_space *s, bool may_wait)
{
	struct cache_space *unused = take_unused(c, s->tier, may_wait, UINT64_MAX);

	if (!unused)
		return take_part(c, s);
	space_write_unsaved(unused);
	space_drop(unused);
	return true;
}

/* ---- giving memory back ---- */

static uint64_t drop_unused(struct cache *c, enum cache_tier tier, uint64_t bytes, uint64_t before_ns)
{
	struct cache_space *s;
	uint64_t given = 0;

	while (given < bytes && (s = take_unused(c, tier, true, before_ns))) {
		given += s->table_bytes + cache_memory_charged(&s->memory);
		space_write_unsaved(s);
		space_drop(s);
	}
	return given;
}

/* The space with most memory, held; NULL: none has more than its table. */
static struct cache_space *hold_largest(struct cache *c, enum cache_tier tier, uint64_t *bytes)
{
	struct cache_space *largest = NULL;

	*bytes = 0;
	pthread_mutex_lock(&c->list_lock);
	for (struct cache_space *s = c->spaces; s; s = s->next) {
		uint64_t n = s->tier == tier ? cache_memory_charged(&s->memory) : 0;

		if (n > *bytes) {
			*bytes = n;
			largest = s;
		}
	}
	if (largest)
		sample_cache_use(largest);
	pthread_mutex_unlock(&c->list_lock);
	return largest;
}

/* A mapping whose entries are on loan goes with the last of them, so it counts as given. */
static uint64_t shrink(struct cache *c, enum cache_tier tier, uint64_t bytes)
{
	const uint64_t mapping_bytes = cache_mapping_bytes(&c->budgets[tier]);
	uint64_t given = 0, before;
	struct cache_space *s;
	bool any = true;

	while (given < bytes && any && (s = hold_largest(c, tier, &before))) {
		any = space_shrink(s);
		uint64_t after = cache_memory_charged(&s->memory);
		given += before > after ? before - after : mapping_bytes;
		let_go(c, s);
	}
	return given;
}

uint64_t cache_give_back(struct cache *c, uint64_t bytes)
{
	uint64_t given = 0;

	for (int tier = 0; tier < CACHE_N_TIERS && given < bytes; tier++)
		given += drop_unused(c, (enum cache_tier)tier, bytes - given, UINT64_MAX);
	for (int tier = 0; tier < CACHE_N_TIERS && given < bytes; tier++)
		given += shrink(c, (enum cache_tier)tier, bytes - given);
	return given;
}

void cache_drop_unused(struct cache *c, uint64_t age_ns)
{
	uint64_t now = clock_now_ns();

	for (int tier = 0; age_ns < now && tier < CACHE_N_TIERS; tier++)
		(void)drop_unused(c, (enum cache_tier)tier, UINT64_MAX, now - age_ns);
}

/* ---- writing ---- */

/* The k-th space of the list with one more user, so that it stays; NULL after the last. */
static struct cache_space *sample_cache_hold(struct cache *c, unsigned k)
{
	struct cache_space *s;

	pthread_mutex_lock(&c->list_lock);
	for (s = c->spaces; s && k; s = s->next)
		k--;
	if (s)
		sample_cache_use(s);
	pthread_mutex_unlock(&c->list_lock);
	return s;
}

void cache_sync(struct cache *c)
{
	struct cache_space *s;

	/* If the list changes meanwhile, a space may be missed until the next call. */
	for (unsigned k = 0; c->dir && (s = sample_cache_hold(c, k)); k++) {
		space_write_unsaved(s);
		let_go(c, s);
	}
	trim_dir(c);
}

/* ---- statistics ---- */

void cache_get_stats(struct cache *c, enum cache_tier tier, struct cache_stats *out)
{
	pthread_mutex_lock(&c->list_lock);
	*out = c->gone[tier];
	for (struct cache_space *s = c->spaces; s; s = s->next) {
		if (s->tier == tier)
			space_add_live_stats(s, out);
	}
	pthread_mutex_unlock(&c->list_lock);
	out->charged_bytes = atomic_load(&c->budgets[tier].used_bytes);
	out->budget_bytes = atomic_load(&c->budgets[tier].limit_bytes);
}
