/* See parts.h. A tier has few spaces and users, so each change measures all of them again. */
#include "dataset/cache/parts.h"

#include <stdlib.h>

#include "base/list.h"

/* ---- uses ---- */

static struct cache_tenant *find_or_make_tenant(struct cache *c, uid_t uid)
{
	struct cache_tenant *t = c->tenants;

	while (t && t->uid != uid)
		t = t->next;
	if (t || !(t = calloc(1, sizeof(*t))))
		return t;
	t->uid = uid;
	list_push(&c->tenants, t, next);
	return t;
}

static void drop_tenant(struct cache *c, struct cache_tenant *t)
{
	for (int tier = 0; tier < CACHE_N_TIERS; tier++) {
		if (t->n_uses[tier])
			return;
	}
	list_remove(&c->tenants, t, next);
	free(t);
}

static struct cache_use *find_use(const struct cache_space *s, uid_t uid)
{
	struct cache_use *use = s->uses;

	while (use && use->tenant->uid != uid)
		use = use->next;
	return use;
}

void cache_parts_use(struct cache *c, struct cache_space *s, uid_t uid)
{
	struct cache_use *use = find_use(s, uid);

	if (!use) {
		struct cache_tenant *t = find_or_make_tenant(c, uid);

		use = t ? malloc(sizeof(*use)) : NULL;
		if (!use) {
			if (t)
				drop_tenant(c, t);
			return;
		}
		*use = (struct cache_use){ .tenant = t };
		t->n_uses[s->tier]++;
		list_push(&s->uses, use, next);
	}
	use->n++;
	cache_parts_update(c, s->tier);
}

void cache_parts_unuse(struct cache *c, struct cache_space *s, uid_t uid)
{
	struct cache_use *use = find_use(s, uid);

	if (!use || --use->n)
		return;
	list_remove(&s->uses, use, next);
	use->tenant->n_uses[s->tier]--;
	drop_tenant(c, use->tenant);
	free(use);
	c->contended[s->tier] = false;
	cache_parts_update(c, s->tier);
}

/* ---- parts ---- */

struct measure {
	uint64_t share, more; /* more: what a user has at least from which a mapping may be taken */
	struct cache_tenant *most;
};

static uint64_t part_of(struct cache_space *s)
{
	uint64_t n = 0;

	for (const struct cache_use *use = s->uses; use; use = use->next)
		n++;
	return n ? (s->table_bytes + cache_memory_charged(&s->memory)) / n : 0;
}

static struct measure measure(struct cache *c, enum cache_tier tier)
{
	const struct cache_budget *budget = &c->budgets[tier];
	struct measure m = { .share = atomic_load(&budget->limit_bytes) };
	uint64_t n = 0;

	for (struct cache_tenant *t = c->tenants; t; t = t->next) {
		t->bytes = 0;
		n += t->n_uses[tier] > 0;
	}
	for (struct cache_space *s = c->spaces; s; s = s->next) {
		uint64_t part = s->tier == tier ? part_of(s) : 0;

		for (struct cache_use *use = part ? s->uses : NULL; use; use = use->next)
			use->tenant->bytes += part;
	}
	for (struct cache_tenant *t = c->tenants; t; t = t->next) {
		if (!m.most || t->bytes > m.most->bytes)
			m.most = t;
	}
	m.share /= n ? n : 1;
	m.more = m.share + cache_mapping_bytes(budget);
	return m;
}

/* Whether one of its users has less than the share. */
static bool any_has_less(const struct cache_space *s, const struct measure *m)
{
	for (const struct cache_use *use = s->uses; use; use = use->next) {
		if (use->tenant->bytes < m->share)
			return true;
	}
	return false;
}

static bool all_have_more(const struct cache_space *s, const struct measure *m)
{
	for (const struct cache_use *use = s->uses; use; use = use->next) {
		if (use->tenant->bytes <= m->share)
			return false;
	}
	return s->uses;
}

/* The user that has most has to give memory to others that lack it. */
static bool most_must_give(const struct measure *m)
{
	return m->most && m->most->bytes > m->more;
}

void cache_parts_update(struct cache *c, enum cache_tier tier)
{
	struct measure m = measure(c, tier);

	for (struct cache_space *s = c->spaces; s; s = s->next) {
		if (s->tier != tier)
			continue;
		atomic_store(&s->is_held, c->contended[tier] && all_have_more(s, &m));
		atomic_store(&s->may_take, any_has_less(s, &m) && most_must_give(&m));
	}
}

struct cache_space *cache_parts_find(struct cache *c, struct cache_space *s)
{
	struct measure m = measure(c, s->tier);
	struct cache_space *largest = NULL;

	for (struct cache_space *other = c->spaces; any_has_less(s, &m) && most_must_give(&m) && other;
	     other = other->next) {
		bool gives = other != s && other->tier == s->tier && find_use(other, m.most->uid) &&
			     cache_memory_charged(&other->memory);

		if (gives && (!largest || part_of(other) > part_of(largest)))
			largest = other;
	}
	c->contended[s->tier] |= largest != NULL;
	cache_parts_update(c, s->tier);
	if (!largest)
		atomic_store(&s->may_take, false); /* tables stay */
	return largest;
}
