/* See group.h. The awkward corner is that cohorts share slots. Three rules keep it simple: a consumer is in at most one
 * cohort; a slot is counted where it is used, as held by a member or as made ahead; and a cohort that exceeds its due
 * (because a member has left it) gives back batches made ahead, newest first, because they can be made again at any
 * time. */
#include "batch/group.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "batch/stream-impl.h"
#include "batch/stream-list.h"
#include "batch/stream-places.h"
#include "batch/stream-waking.h"
#include "base/thread-kind.h"

enum {
	AHEAD = 3
}; /* batches that a trainer has in hand or ready for it, including the one in use, before slower trainers may keep
    * slots from it */

static uint64_t group_bit(uint32_t place)
{
	return (uint64_t)1 << place;
}

/* ---- life ---- */

static struct slot *group_claim(struct stream *s);

static void group_pump_for_stream(struct stream *s)
{
	group_pump(s->group);
}

/* A stream without trainers. NULL: out of memory. */
static struct stream *add_cohort(struct group *g)
{
	struct streams *all = g->streams;
	struct stream *s = all->n < GROUP_MAX_COHORTS(g->n_places) ? streams_add(all, all->n) : NULL;
	if (!s)
		return NULL;
	s->group = g;
	s->claim = group_claim;
	s->pump = group_pump_for_stream;
	s->slots = g->slots ? slots_ref(g->slots) : NULL;
	return s;
}

int group_init(struct group *g, struct streams *streams, enum group_policy policy, uint32_t size)
{
	assert(is_loop_thread());
	assert(size > 0 && size <= GROUP_MAX_PLACES);
	*g = (struct group){ .streams = streams, .policy = policy, .n_places = size == 1 ? GROUP_MAX_PLACES : size };
	if (size > 1)
		g->expected = size == 64 ? UINT64_MAX : group_bit(size) - 1;
	streams->n_consumers = g->n_places;
	return add_cohort(g) ? 0 : -ENOMEM;
}

void group_finish(struct group *g)
{
	assert(is_loop_thread());
	slots_unref(g->slots);
	g->slots = NULL;
}

uint32_t group_slot_quota(uint32_t window, uint32_t n_slots)
{
	uint32_t share = window / 4 > GROUP_SHARE ? window / 4 : GROUP_SHARE;
	return n_slots || share > window ? window : share;
}

void group_set_slots(struct group *g, struct slots *slots, uint32_t window, uint32_t slot_quota)
{
	assert(is_loop_thread());
	assert(!g->slots && window <= slots->n && slot_quota > 0);
	g->slots = slots;
	g->window = window;
	g->slot_quota = slot_quota;
	slots->stream = g->streams->list[0];
	for (uint32_t i = 0; i < g->streams->n; i++)
		g->streams->list[i]->slots = slots_ref(slots);
}

uint32_t group_n_missing(const struct group *g)
{
	assert(g->slots && g->slot_quota > 0);
	uint32_t needed = g->window + g->slot_quota * g->slots->n_holders;
	return needed > g->slots->n_made ? needed - g->slots->n_made : 0;
}

int32_t group_free_place(const struct group *g)
{
	int32_t any = -1;
	uint64_t expected = g->expected;
	for (uint32_t i = 0; i < g->streams->n; i++)
		expected |= g->streams->list[i]->expected;
	for (uint32_t i = 0; i < g->n_places; i++) {
		if (g->member[i])
			continue;
		if (expected & group_bit(i))
			return (int32_t)i;
		if (any < 0)
			any = (int32_t)i;
	}
	return any;
}

bool group_is_full(const struct group *g)
{
	return g->slots && g->slots->n_holders >= g->n_places + GROUP_ORPHANS;
}

int group_attach(struct group *g, struct consumer *c, uint32_t place)
{
	assert(is_loop_thread());
	assert(place < g->n_places && g->slots && !c->home && !c->slots);
	if (g->member[place])
		return STREAM_E_TAKEN;
	c->leases = calloc(g->slots->n, sizeof(*c->leases));
	if (!c->leases)
		return -ENOMEM;
	c->slots = slots_ref(g->slots);
	c->slots->n_holders++;
	c->device_slab = NULL;
	c->group = g;
	c->home = g->streams->list[0];
	c->stream = NULL;
	c->rank = place;
	c->quota = g->slot_quota;
	consumer_move(c, CONSUMER_NEW);
	g->member[place] = c;
	return 0;
}

/* ---- cohorts ---- */

static bool is_in_stream(const struct stream *s, const struct consumer *c)
{
	return c && c->state == CONSUMER_PLACED && position_compare(&c->cursor, &s->next) <= 0;
}

/* The member with the most advanced cursor; members that wait for the cohort to reach their epoch do not count. NULL:
 * none. */
static struct consumer *first_of(const struct stream *s)
{
	struct consumer *first = NULL;
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		struct consumer *c = s->consumers[i];
		if (is_in_stream(s, c) && (!first || position_compare(&c->cursor, &first->cursor) > 0))
			first = c;
	}
	return first;
}

/* After the last batch of an epoch comes the next epoch's first batch. */
static struct position group_normal(const struct group *g, const struct position *at)
{
	if (at->step < stream_count_batches(g->streams->list[0], at->base))
		return *at;
	return (struct position){ .epoch = at->epoch + 1 };
}

/* Whether `at` is too far ahead of the cohort's foremost member. A trainer too far ahead would soon wait for slots and
 * take slots from the others. */
static bool is_far_ahead(const struct group *g, const struct stream *s, const struct position *at)
{
	const struct consumer *first = first_of(s);
	return first && stream_distance(s, &first->cursor, at) >= g->slot_quota;
}

static struct stream *find_cover(const struct group *g, const struct position *at, const struct stream *but)
{
	struct stream *best = NULL;
	for (uint32_t i = 0; i < g->streams->n; i++) {
		struct stream *s = g->streams->list[i];
		if (s != but && stream_covers(s, at) && !is_far_ahead(g, s, at) &&
		    (!best || s->n_members > best->n_members || (s->n_members == best->n_members && s == g->main)))
			best = s;
	}
	return best;
}

static struct stream *find_empty(struct group *g)
{
	for (uint32_t i = 0; i < g->streams->n; i++) {
		struct stream *s = g->streams->list[i];
		if (!s->n_members && !s->expected)
			return s;
	}
	return add_cohort(g);
}

/* Recounts after a change of members. */
static void count_held(struct stream *s)
{
	s->n_held = 0;
	for (uint32_t i = 0; i < s->slots->n_made; i++)
		s->n_held += (s->slots->slot[i].holders & s->members) != 0;
}

static void group_enter(struct stream *s, struct consumer *c)
{
	assert(!s->consumers[c->rank] && !(s->members & group_bit(c->rank)) && !c->stream);
	s->consumers[c->rank] = c;
	s->n_members++;
	s->members |= group_bit(c->rank);
	count_held(s);
	c->stream = s;
}

static void group_leave_cohort(struct consumer *c)
{
	struct stream *s = c->stream;
	if (!s)
		return;
	assert(s->n_members > 0 && (s->members & group_bit(c->rank)));
	s->n_members--;
	s->members &= ~group_bit(c->rank);
	count_held(s);
	stream_remove(s, c->rank);
	if (!s->n_members && !s->expected)
		stream_stop(s);
}

static void begin_at(struct stream *s, const struct position *at)
{
	stream_stop(s);
	stream_set_next(s, at);
	s->positioned = true;
}

/* Puts the trainer into cohort s, or into a new cohort of its own if s is NULL. */
static void group_settle(struct group *g, struct consumer *c, struct stream *s, const struct position *at)
{
	bool alone = c->stream && c->stream->n_members == 1 && !c->stream->expected;
	if (!s && !alone)
		group_leave_cohort(c);
	if (!s) {
		s = alone ? c->stream : find_empty(g);
		if (!s) {
			struct stream_host *h = g->streams->host;
			h->ops->failed(h, "out of memory for another trainer of the group");
			return;
		}
		begin_at(s, at);
		s->expected |= g->expected;
		g->expected = 0;
	}
	if (c->stream != s) {
		group_leave_cohort(c);
		group_enter(s, c);
	}
	stream_mark_pending(s, c, c->rank, at);
}

static void group_elect(struct group *g)
{
	for (uint32_t i = 0; i < g->streams->n; i++) {
		struct stream *s = g->streams->list[i];
		if (s->n_members && (!g->main || s->n_members > g->main->n_members))
			g->main = s;
	}
	if (g->main && !g->main->n_members)
		g->main = NULL;
}

static uint32_t count_used(const struct stream *s);
static uint32_t count_due(const struct group *g, const struct stream *s);

/* Whether the cohort has room for a consumer and the slots it holds, so that it gets its next batch there. Otherwise
 * the consumer would deprive the slow members of their batches, be left alone with its own, and meet them at the same
 * position again, without a batch ever being made for it. */
static bool has_room(const struct group *g, const struct stream *s, const struct consumer *c)
{
	return count_used(s) + c->n_leases < count_due(g, s) + g->slot_quota;
}

/* A trainer that has caught up with a larger cohort, or is caught up by one, goes on there. It must be close to that
 * cohort's foremost member, or it would soon be too far behind again. */
static struct stream *find_better(const struct group *g, const struct consumer *c)
{
	struct position at = group_normal(g, &c->cursor);
	for (uint32_t i = 0; i < g->streams->n; i++) {
		struct stream *s = g->streams->list[i];
		bool larger = s->n_members > c->stream->n_members ||
			      (s->n_members == c->stream->n_members && s->number < c->stream->number);
		if (s == c->stream || !s->n_members || !larger || !stream_covers(s, &at) || !has_room(g, s, c))
			continue;
		const struct consumer *first = first_of(s);
		if (!first || (stream_distance(s, &at, &first->cursor) < g->slot_quota && !is_far_ahead(g, s, &at)))
			return s;
	}
	return NULL;
}

static void group_merge(struct group *g)
{
	if (g->streams->n == 1)
		return;
	for (uint32_t i = 0; i < g->n_places; i++) {
		struct consumer *c = g->member[i];
		if (!c || !c->stream || !is_in_stream(c->stream, c))
			continue;
		struct stream *better = find_better(g, c);
		if (better) {
			struct position at = group_normal(g, &c->cursor);
			group_settle(g, c, better, &at);
		}
	}
}

/* ---- shares ---- */

/* Slots that the cohort keeps from others: made ahead, or held by its members. */
static uint32_t count_used(const struct stream *s)
{
	return s->n_held + s->n_unheld;
}

static uint32_t count_due(const struct group *g, const struct stream *s)
{
	if (!s->n_members)
		return 0;
	return s->n_members * g->slot_quota + (s == g->main ? g->window - g->slot_quota : 0);
}

/* Whether the trainer has at least `enough` batches: those it was told of, including the one in use, and those made
 * ahead of it. */
static bool has_ahead(const struct stream *s, const struct consumer *c, uint32_t enough)
{
	uint32_t n = c->n_leases;
	for (const struct slot *slot = s->first; slot && n < enough; slot = slot->next)
		n += position_compare(&slot->at, &c->cursor) >= 0;
	return n >= enough;
}

/* The consumer has fewer batches than a trainer needs, and may have more. This also holds after `group_trim` rewound the
 * cohort: until it catches up, new batches serve only slower members, and a stopped member would pin them all. */
static bool is_hungry(const struct stream *s, const struct consumer *c)
{
	uint32_t enough = c->quota < AHEAD ? c->quota : AHEAD;
	return c->state == CONSUMER_PLACED && !has_ahead(s, c, enough);
}

/* The foremost of the members that have too few batches ahead of them. NULL: none. */
static const struct consumer *find_hungry(const struct stream *s)
{
	const struct consumer *hungry = NULL;
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		const struct consumer *c = s->consumers[i];
		if (c && is_hungry(s, c) && (!hungry || position_compare(&c->cursor, &hungry->cursor) > 0))
			hungry = c;
	}
	return hungry;
}

/* ---- the policy ---- */

static void group_skip(struct group *g, struct stream *s, struct slot *slot)
{
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		struct consumer *c = s->consumers[i];
		if (!c || !(slot->pending & group_bit(i)))
			continue;
		c->n_skipped++;
		g->n_skipped++;
		if (position_compare(&c->cursor, &slot->at))
			continue; /* an older one is still to come, which others hold */
		c->n_missed++;
		c->cursor = slot->at;
		c->cursor.step++;
		c->cursor = group_normal(g, &c->cursor);
	}
	slot->pending = 0;
	stream_try_free(s, slot);
}

static void group_detach(struct group *g, struct stream *s, struct slot *slot)
{
	uint64_t pending = slot->pending;
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		struct consumer *c = s->consumers[i];
		if (!c || !(pending & group_bit(i)))
			continue;
		struct position at = group_normal(g, &c->cursor);
		group_settle(g, c, find_cover(g, &at, s), &at);
		g->n_detached++;
	}
}

/* Takes the oldest batch that is kept for slow members away from them, if another member is about to wait for its slot.
 * Returns whether it did. */
static bool group_relieve(struct group *g, struct stream *s)
{
	const struct consumer *hungry = g->policy == GROUP_WAIT ? NULL : find_hungry(s);
	if (!hungry)
		return false;
	for (struct slot *slot = s->first; slot; slot = slot->next) {
		if (position_compare(&slot->at, &hungry->cursor) >= 0 || slot->pending & s->expected)
			return false; /* the hungry member itself waits for it; or an expected trainer has not come
			               * yet */
		if (slot->state != SLOT_READY || slot->n_leases)
			continue;
		if (!slot->pending)
			return false; /* no trainer wants it: it becomes free when its copy to a GPU is done */
		if (g->policy == GROUP_SKIP)
			group_skip(g, s, slot);
		else
			group_detach(g, s, slot);
		g->again = true;
		return true;
	}
	return false;
}

/* Gives back batches until the cohort no longer exceeds its due. */
static void group_trim(struct group *g, struct stream *s)
{
	while (count_used(s) > count_due(g, s)) {
		struct slot *newest = NULL;
		if (group_relieve(g, s))
			continue;
		for (struct slot *slot = s->first; slot; slot = slot->next) {
			if (!slot->n_leases)
				newest = slot;
		}
		if (!newest)
			return;
		struct position at = newest->at;
		stream_drop_from(s, newest);
		stream_set_next(s, &at);
	}
}

/* A free slot within the cohort's due; may apply the policy. */
static struct slot *group_claim(struct stream *s)
{
	struct group *g = s->group;
	while (count_used(s) >= count_due(g, s)) {
		if (!group_relieve(g, s))
			return NULL;
	}
	return slots_find_free(g->slots);
}

/* ---- going on ---- */

static bool gets_on(const struct stream *s)
{
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		if (is_in_stream(s, s->consumers[i]) && !s->consumers[i]->stalled)
			return true;
	}
	return false;
}

/* A trainer that waits for the group to reach an epoch begins when another trainer has begun that epoch, or when no
 * other trainer is left. Except with policy wait, it does not wait for trainers that are stuck either: it begins apart
 * from them. */
static void let_follow(struct group *g, struct stream *s)
{
	const struct consumer *first = first_of(s);
	bool apart = g->policy != GROUP_WAIT && !gets_on(s);
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		struct consumer *c = s->consumers[i];
		bool begun = !first || (c && position_compare(&first->cursor, &c->cursor) > 0);
		if (!c || c->state != CONSUMER_AWAITING || (!begun && !apart))
			continue;
		struct position at = c->cursor;
		consumer_move(c, CONSUMER_PLACED);
		if (!begun)
			group_settle(g, c, find_cover(g, &at, s), &at);
		g->again = true;
	}
}

void group_pump(struct group *g)
{
	assert(is_loop_thread());
	const struct streams *all = g->streams;
	do {
		g->again = false;
		if (!g->slots || all->host->stopped)
			break;
		for (uint32_t i = 0; i < all->n; i++)
			stream_look(all->list[i]);
		group_elect(g);
		group_merge(g);
		group_elect(g);
		for (uint32_t i = 0; i < all->n; i++)
			group_trim(g, all->list[i]);
		for (uint32_t i = 0; i < all->n; i++) {
			stream_step(all->list[i]);
			let_follow(g, all->list[i]);
		}
	} while (g->again);
}

/* ---- coming, moving, going ---- */

/* The expected trainer is here, or will not come. Batches that a cohort has made for it are not kept, unless the
 * trainer begins exactly there. */
static void expect_no_more(struct group *g, uint32_t place)
{
	g->expected &= ~group_bit(place);
	for (uint32_t i = 0; i < g->streams->n; i++) {
		struct stream *s = g->streams->list[i];
		if (s->expected & group_bit(place))
			stream_clear_pending(s, place);
		if (s->positioned && !s->n_members && !s->expected)
			stream_stop(s);
	}
}

static void take_position(struct consumer *c, uint64_t seek)
{
	assert(c->home);
	c->seek = seek;
	consumer_move(c, CONSUMER_PLACED);
	c->n_missed = 0;
	c->waiting = true;
}

void group_seek(struct consumer *c, uint64_t seek, const struct position *to)
{
	assert(is_loop_thread());
	struct group *g = c->group;
	assert(g->member[c->rank] == c);
	struct position at = group_normal(g, to);
	take_position(c, seek);
	group_settle(g, c, find_cover(g, &at, NULL), &at);
	expect_no_more(g, c->rank);
	group_pump(g);
}

/* Where the group is: the next batch that no trainer of its main cohort has had. */
static struct position head_of(const struct group *g)
{
	const struct consumer *first = g->main ? first_of(g->main) : NULL;
	if (first)
		return group_normal(g, &first->cursor);
	return g->main ? g->main->next : (struct position){ 0 };
}

void group_join(struct consumer *c, uint64_t seek, enum group_start how, struct position *out)
{
	assert(is_loop_thread());
	assert(c->group && c->group->member[c->rank] == c);
	struct group *g = c->group;
	group_elect(g);
	struct position at = head_of(g);
	bool begun = at.step > 0 || at.base > 0; /* if the epoch was resumed in its middle, no trainer here has had its
	                                          * first batch */
	bool waits = how == GROUP_AT_EPOCH && begun;
	if (waits)
		at = (struct position){ .epoch = at.epoch + 1 };
	if (how == GROUP_AT_START)
		at.base = at.step = 0;
	take_position(c, seek);
	if (waits)
		consumer_move(c, CONSUMER_AWAITING);
	group_settle(g, c, waits ? g->main : find_cover(g, &at, NULL), &at);
	expect_no_more(g, c->rank);
	*out = at;
}

void group_leave(struct consumer *c)
{
	assert(is_loop_thread());
	struct group *g = c->group;
	assert(g->member[c->rank] == c);
	group_leave_cohort(c);
	for (uint32_t i = 0; c->n_leases && i < g->slots->n_made; i++)
		g->slots->slot[i].holders &=
			~group_bit(c->rank); /* from here on the consumer holds its slots for itself */
	if (!c->comes_again || consumer_is_placed(c))
		expect_no_more(g, c->rank);
	g->member[c->rank] = NULL;
	c->group = NULL;
	c->home = NULL;
	consumer_move(c, CONSUMER_NEW);
	c->waiting = false;
	group_pump(g);
}

uint64_t group_n_behind(const struct consumer *c)
{
	assert(is_loop_thread());
	const struct consumer *first = c->group && c->stream && is_in_stream(c->stream, c) ? first_of(c->stream) : NULL;
	return first ? stream_distance(c->stream, &c->cursor, &first->cursor) : 0;
}
