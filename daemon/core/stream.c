/* See stream.h. The awkward corner is a seek while batches are pending: batches made ahead are dropped (rows in work
 * finish into a slot that is not wanted), published batches stay leased until the trainer returns them unread, and the
 * new batches carry the new seek number. */
#include "core/stream.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "core/device-slab.h"
#include "core/loader-spec.h"
#include "core/plan.h"
#include "core/pool.h"
#include "core/shortage.h"
#include "core/source.h"
#include "core/stream-impl.h"
#include "util/container.h"

enum {
	MORE_OWN_BATCHES = 2, /* unanswered ones beyond the window, as proto/README.md allows */
	MOST_ROUNDS = 16,     /* of stream_step, before other streams have their turn */
};

static uint64_t core_stream_bit(uint32_t rank)
{
	return (uint64_t)1 << (rank & 63);
}

/* ---- the list of batches ---- */

static void list_append(struct stream *s, struct slot *slot)
{
	assert(!slot->linked && slot->stream == s);
	slot->next = NULL;
	slot->linked = true;
	s->n_unheld += slot->n_leases == 0;
	if (s->first)
		s->last->next = slot;
	else
		s->first = slot;
	s->last = slot;
}

static void list_remove(struct stream *s, struct slot *slot)
{
	if (!slot->linked)
		return;
	struct slot **at = &s->first, *before = NULL;
	for (; *at != slot; at = &(*at)->next)
		before = *at;
	*at = slot->next;
	if (s->last == slot)
		s->last = before;
	slot->next = NULL;
	slot->linked = false;
	s->n_unheld -= slot->n_leases == 0;
}

void stream_try_free(struct stream *s, struct slot *slot)
{
	if (!slot_is_unneeded(slot))
		return;
	list_remove(s, slot);
	slot_settle(slot);
}

void stream_look(struct stream *s)
{
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		struct consumer *c = s->consumers[i];
		if (c && c->ops->look)
			c->ops->look(c);
	}
}

/* A consumer whose trainer works on its last batch, or has none: the trainer will ask next. */
static bool is_starving(const struct consumer *c)
{
	return c->positioned && !c->waits_for_epoch && (c->ops->look ? c->n_unread == 0 : c->n_leases <= 1);
}

/* Before the loop may sleep: each consumer says whether its trainer wakes the loop, and for what. True if there is
 * something to do after all.
 *
 * While every trainer has unread batches, releases may gather until they are worth a wake-up. For a starving trainer a
 * batch is in work, or a job that it waits for will wake the loop; only when hardly anything is in work does every
 * release count. */
static bool core_stream_arm(struct stream *s)
{
	uint32_t n_making = 0;
	bool starving = false, again = false;
	for (struct slot *slot = s->first; slot; slot = slot->next)
		n_making += slot->state == SLOT_FILLING;
	for (uint32_t i = 0; i < s->n_consumers; i++)
		starving |= s->consumers[i] && is_starving(s->consumers[i]);
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		struct consumer *c = s->consumers[i];
		if (!c || !c->ops->arm)
			continue;
		uint32_t window = c->quota ? c->quota : s->slots->n_made;
		again |= c->ops->arm(c, starving && n_making < 2 ? 1 : (window + 1) / 2);
	}
	return again;
}

static void update_urgency(struct stream *s)
{
	int n_ready = 0;
	bool waiting = false, soon = false;
	for (struct slot *slot = s->first; slot; slot = slot->next)
		n_ready += slot->state == SLOT_READY;
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		const struct consumer *c = s->consumers[i];
		if (c && c->waits_for_epoch)
			continue; /* it waits for the other trainers to get there, not for the workers */
		waiting |= c && c->waiting;
		/* A trainer with unread batches wakes us itself. Batches for a GPU must still be copied, so wake early
		 * for those. */
		soon |= c && (is_starving(c) || (c->positioned && c->device_slab));
	}
	pool_queue_set_urgency(s->host->pool, &s->queue, waiting ? 0 : n_ready + 1, waiting || soon);
}

/* ---- beginning batches ---- */

static bool has_positioned_consumer(const struct stream *s)
{
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		if (s->consumers[i] && s->consumers[i]->positioned)
			return true;
	}
	return false;
}

/* The members of a group of known size begin together. A trainer that comes to an open group begins where the others
 * are, at any time; before that the others do not wait for it. */
static bool is_counted_on(const struct stream *s, const struct consumer *c)
{
	return c->positioned || !s->host->spec->share || s->host->spec->world_size > 1;
}

static uint64_t pending_at(const struct stream *s, const struct position *at)
{
	uint64_t pending = s->expected;
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		const struct consumer *c = s->consumers[i];
		if (c && is_counted_on(s, c) && (!c->positioned || position_compare(&c->cursor, at) <= 0))
			pending |= core_stream_bit(i);
	}
	return pending;
}

uint64_t stream_count_batches(const struct stream *s, uint64_t base)
{
	return s->host->ops->n_batches(s->host, base);
}

void stream_set_next(struct stream *s, const struct position *to)
{
	s->next = *to;
	s->n_batches = stream_count_batches(s, to->base);
}

static void fill_from_plan(struct stream *s, struct slot *slot, struct plan *plan)
{
	uint32_t batch_size = s->host->spec->batch_size;
	uint64_t begin = s->next.step * batch_size;
	uint64_t left = plan_n_per_rank(plan) - begin;
	slot->n_rows = left < batch_size ? (uint32_t)left : batch_size;
	slot->n_padding = 0;
	int64_t *indices = slot_indices(slot);
	for (uint32_t i = 0; i < slot->n_rows; i++) {
		indices[i] = (int64_t)plan_at(plan, s->plan_rank, begin + i);
		slot->n_padding += plan_is_padding(plan, s->plan_rank, begin + i);
	}
	slot->last = s->next.step + 1 == s->n_batches;
}

/* Batches that a trainer sends ahead are charged to its user, like the batches made from them. 0 or STREAM_E_LIMIT. */
static int own_charge(struct stream *s, uint64_t bytes)
{
	int r = s->bytes.account ? charge_grow(&s->bytes, bytes) : 0;
	if (r == 0 && s->charged_bytes)
		*s->charged_bytes += bytes;
	return r ? STREAM_E_LIMIT : 0;
}

static void own_refund(struct stream *s, uint64_t bytes)
{
	if (s->bytes.account)
		charge_shrink(&s->bytes, bytes);
	assert(!s->charged_bytes || *s->charged_bytes >= bytes);
	if (s->charged_bytes)
		*s->charged_bytes -= bytes;
}

static void own_free(struct stream *s, struct own_batch *b)
{
	if (b)
		own_refund(s, sizeof(*b) + b->n * sizeof(b->index[0]));
	free(b);
}

static void fill_from_own(struct stream *s, struct slot *slot)
{
	struct own_batch *b = s->own_first;
	assert(s->n_own > 0 && b->n > 0 && b->n <= s->host->spec->batch_size);
	s->own_first = b->next;
	s->n_own--;
	slot->n_rows = b->n;
	slot->n_padding = 0;
	slot->last = false;
	int64_t *indices = slot_indices(slot);
	for (uint32_t i = 0; i < b->n; i++)
		indices[i] = (int64_t)b->index[i];
	own_free(s, b);
}

static void leave_to_source(struct slot *slot)
{
	slot->n_rows = slot->n_padding = 0;
	slot->last = false;
}

static void core_stream_advance(struct stream *s)
{
	s->next.step++;
	if (s->host->spec->own_batches || s->next.step < s->n_batches)
		return;
	stream_set_next(s, &(struct position){ .epoch = s->next.epoch + 1 });
}

static struct plan *current_plan(struct stream *s)
{
	if (!s->plan || s->plan_epoch != s->next.epoch || s->plan_base != s->next.base) {
		plan_unref(s->plan); /* first: there may be memory for only one plan at a time */
		s->plan = NULL;
		struct plan *plan = s->host->ops->order(s->host, s->next.epoch, s->next.base);
		if (!plan)
			return NULL;
		s->plan = plan_ref(plan);
		s->plan_epoch = s->next.epoch;
		s->plan_base = s->next.base;
	}
	return s->plan;
}

static bool begin_one(struct stream *s)
{
	struct stream_host *h = s->host;
	if (h->spec->own_batches ? !s->own_first : s->next.step >= s->n_batches)
		return false;
	bool planned = !h->spec->own_batches && !h->spec->served;
	struct plan *plan = planned ? current_plan(s) : NULL;
	if (!plan && planned)
		return false; /* being made; stream_pump is called again when it is ready */
	struct slot *slot = s->claim(s);
	if (!slot)
		return false;
	slot_begin(slot, s);
	if (plan)
		fill_from_plan(s, slot, plan);
	else if (h->spec->served)
		leave_to_source(slot);
	else
		fill_from_own(s, slot);
	assert(slot->n_rows <= h->spec->batch_size && slot->n_padding <= slot->n_rows);
	slot->at = s->next;
	slot->pending = pending_at(s, &slot->at);
	list_append(s, slot);
	core_stream_advance(s);
	slot->source = h->source;
	h->n_in_flight++;
	h->source->ops->submit(h->source, slot);
	return true;
}

/* If every consumer is past the next batch to make (for example all called set_epoch), no consumer would want that
 * batch. */
static void skip_ahead(struct stream *s)
{
	const struct position *least = NULL;
	if (s->expected)
		return;
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		const struct consumer *c = s->consumers[i];
		if (!c || !is_counted_on(s, c))
			continue;
		if (!c->positioned)
			return;
		if (!least || position_compare(&c->cursor, least) < 0)
			least = &c->cursor;
	}
	if (!least || position_compare(least, &s->next) <= 0)
		return;
	/* A consumer that has had the last batch of an epoch is still in that epoch; a stream left there would make no
	 * further batches. */
	bool over = !s->host->spec->own_batches && least->step >= stream_count_batches(s, least->base);
	struct position to = over ? (struct position){ .epoch = least->epoch + 1 } : *least;
	stream_set_next(s, &to);
}

/* ---- copying to GPUs ---- */

static void core_stream_on_copied(struct slot *slot, struct device_slab *device_slab, const char *why)
{
	struct stream *s = slot->stream;
	struct stream_host *h = s->host; /* kept by n_in_flight */
	if (*why)
		h->ops->device_slab_failed(h, device_slab, why);
	stream_try_free(s, slot);
	stream_pump(s);
	assert(h->n_in_flight > 0);
	h->n_in_flight--;
	h->ops->came_back(h);
}

/* A ready batch is copied to every GPU on which it is pending for a consumer, once to each. */
static void start_copies(struct stream *s, struct slot *slot)
{
	for (uint32_t i = 0; slot->state == SLOT_READY && i < s->n_consumers; i++) {
		const struct consumer *c = s->consumers[i];
		if (c && c->device_slab && c->slots == slot->slots && (slot->pending & core_stream_bit(i)) &&
		    device_slab_copy(c->device_slab, slot, core_stream_on_copied))
			s->host->n_in_flight++;
	}
}

/* ---- publishing ---- */

static void core_stream_lease(struct consumer *c, struct slot *slot)
{
	if (c->group) {
		c->stream->n_held += !(slot->holders & c->stream->members);
		slot->holders |= core_stream_bit(c->rank);
	}
	assert(slot->state == SLOT_READY && slot->slots == c->slots);
	c->leases[slot->number]++;
	c->n_leases++;
	c->stream->n_unheld -= slot->n_leases++ == 0;
	slot->pending &= ~core_stream_bit(c->stream->n_consumers > 1 ? c->rank : 0);
}

static void publish_to(struct stream *s, struct consumer *c, uint32_t place)
{
	if (c->n_leases >= consumer_max_leases(c))
		return; /* checked before walking the long list of a large group */
	for (struct slot *slot = s->first; slot && !c->waits_for_epoch; slot = slot->next) {
		if (position_compare(&slot->at, &c->cursor) < 0)
			continue;
		if (slot->state != SLOT_READY)
			return; /* only in order */
		if (!(slot->pending & core_stream_bit(place)))
			continue;
		if (c->n_leases >= consumer_max_leases(c))
			return;
		if (!device_slab_has(c->device_slab, slot)) {
			start_copies(s, slot); /* the consumer came late to this batch */
			return;
		}
		if (s->group)
			c->n_missed += stream_distance(s, &c->cursor, &slot->at);
		int r = c->ops->publish(c, slot);
		if (r)
			return;
		c->n_missed = 0;
		device_slab_note_published(c->device_slab, slot);
		core_stream_lease(c, slot);
		c->n_published++;
		c->n_unread++;
		s->host->ops->published(s->host, slot, c->waiting);
		c->waiting = false;
		c->cursor = slot->at;
		c->cursor.step++;
		if (slot->last && s->host->spec->served) /* else the number of batches tells */
			c->cursor = (struct position){ .epoch = slot->at.epoch + 1 };
	}
}

static void core_stream_publish(struct stream *s)
{
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		struct consumer *c = s->consumers[i];
		if (c && c->positioned)
			publish_to(s, c, i);
	}
}

static void on_next_turn(struct pool_task *t)
{
	struct stream *s = container_of(t, struct stream, next_turn);
	struct stream_host *h = s->host; /* kept by n_in_flight */
	s->has_next_turn = false;
	stream_pump(s);
	h->n_in_flight--;
	h->ops->came_back(h);
}

/* Continues in the loop's next iteration. */
static void go_on_later(struct stream *s)
{
	if (s->has_next_turn)
		return;
	s->has_next_turn = true;
	s->next_turn.done = on_next_turn;
	s->host->n_in_flight++;
	pool_call(s->host->pool, &s->next_turn);
}

void stream_step(struct stream *s)
{
	if (!s->slots || s->host->stopped)
		return;
	unsigned rounds = 0;
	bool again;
	do {
		stream_look(s);
		shortage_account_stream(s);
		core_stream_publish(s);
		update_urgency(s);
		if (s->positioned && has_positioned_consumer(s)) {
			skip_ahead(s);
			while (begin_one(s))
				;
		}
		again = core_stream_arm(s);
	} while (again && ++rounds < MOST_ROUNDS);
	shortage_note(s);
	/* Each further round ends a lease or has found a ring emptied, so there are few rounds; but trainers determine
	 * when that happens. */
	if (again)
		go_on_later(s);
}

void stream_end_epoch(struct stream *s, struct slot *slot)
{
	struct position to = { .epoch = slot->at.epoch + 1 };
	for (struct slot *behind = slot->next; behind; behind = behind->next) {
		behind->at = to;
		behind->pending = pending_at(s, &to);
		to.step++;
	}
	stream_set_next(s, &to);
}

void stream_pump(struct stream *s)
{
	s->pump(s);
}

void stream_on_filled(struct stream *s, struct slot *slot)
{
	assert(slot->stream == s && (slot->state == SLOT_FILLING || slot->state == SLOT_DROPPED));
	struct slots *slots = slots_ref(slot->slots); /* a dropped slot may hold the last reference */
	slot_filled(slot);
	if (slot->state == SLOT_READY) {
		start_copies(s, slot);
		stream_try_free(s, slot);
	}
	slots_unref(slots);
	stream_pump(s);
}

/* ---- dropping ---- */

/* These batches are not wanted any more: those in work are cancelled, the ready ones are freed when their holders
 * release them. */
void stream_drop_from(struct stream *s, struct slot *slot)
{
	while (slot) {
		struct slot *next = slot->next;
		list_remove(s, slot);
		slot->pending = 0;
		if (slot->state == SLOT_FILLING) {
			slot_drop(slot);
			slot->source->ops->cancel(slot->source, slot);
		} else {
			stream_try_free(s, slot);
		}
		slot = next;
	}
}

static void drop_own(struct stream *s)
{
	while (s->own_first) {
		struct own_batch *b = s->own_first;
		s->own_first = b->next;
		own_free(s, b);
	}
	own_free(s, s->own_partial);
	s->own_partial = NULL;
	s->n_own = 0;
}

void stream_stop(struct stream *s)
{
	stream_drop_from(s, s->first);
	s->positioned = false;
}

/* ---- life ---- */

static struct slot *claim_free(struct stream *s)
{
	return slots_find_free(s->slots);
}

int stream_init(struct stream *s, struct stream_host *host, uint32_t number, uint32_t n_consumers)
{
	*s = (struct stream){ .host = host, .number = number, .n_consumers = n_consumers };
	s->claim = claim_free;
	s->pump = stream_step;
	s->plan_rank = host->spec->share ? 0 : number;
	s->consumers = calloc(n_consumers, sizeof(*s->consumers));
	if (!s->consumers)
		return -ENOMEM;
	int r = pool_queue_add(host->pool, &s->queue, host->spec->num_workers, host->spec->uid);
	if (r) {
		free(s->consumers);
		s->consumers = NULL;
		return r;
	}
	if (host->server)
		pool_queue_set_origin(host->pool, &s->queue, host->server);
	return 0;
}

void stream_finish(struct stream *s)
{
	if (!s->consumers)
		return;
	for (uint32_t i = 0; i < s->n_consumers; i++)
		assert(!s->consumers[i]);
	stream_drop_from(s, s->first);
	drop_own(s);
	assert(!s->first && !s->n_unheld);
	if (s->slots)
		s->slots->stream = NULL;
	slots_unref(s->slots);
	s->slots = NULL;
	plan_unref(s->plan);
	s->plan = NULL;
	free(s->consumers);
	s->consumers = NULL;
	if (s->charged_bytes)
		*s->charged_bytes -= s->bytes.amount;
	charge_release(&s->bytes);
}

void stream_set_slots(struct stream *s, struct slots *slots)
{
	stream_drop_from(s, s->first);
	drop_own(s);
	s->positioned = false;
	if (s->slots)
		s->slots->stream = NULL;
	slots_unref(s->slots);
	s->slots = slots;
	slots->stream = s;
}

bool stream_has_strangers(const struct stream *s)
{
	if (!s->slots)
		return false;
	uint32_t known = 0, all = 0;
	for (uint32_t i = 0; i < s->slots->n; i++)
		all += s->slots->slot[i].n_leases;
	for (uint32_t i = 0; i < s->n_consumers; i++)
		known += s->consumers[i] ? s->consumers[i]->n_leases : 0;
	return all > known;
}

int stream_attach(struct stream *s, struct consumer *c, uint32_t rank)
{
	uint32_t place = s->n_consumers > 1 ? rank : 0;
	assert(place < s->n_consumers && s->slots && !c->home && !c->slots);
	if (s->consumers[place])
		return STREAM_E_TAKEN;
	c->leases = calloc(s->slots->n, sizeof(*c->leases));
	if (!c->leases)
		return -ENOMEM;
	c->slots = slots_ref(s->slots);
	c->device_slab = NULL;
	c->slots->n_holders++;
	c->stream = c->home = s;
	c->rank = rank;
	c->positioned = false;
	shortage_begin(c);
	s->consumers[place] = c;
	return 0;
}

void stream_remove(struct stream *s, uint32_t place)
{
	assert(s->consumers[place] && s->consumers[place]->stream == s);
	s->consumers[place]->stream = NULL;
	s->consumers[place] = NULL;
	stream_clear_pending(s, place);
}

void stream_clear_pending(struct stream *s, uint32_t place)
{
	s->expected &= ~core_stream_bit(place);
	if (s->consumers[place])
		return;
	for (struct slot *slot = s->first, *next; slot; slot = next) {
		next = slot->next;
		slot->pending &= ~core_stream_bit(place);
		stream_try_free(s, slot);
	}
}

void stream_detach(struct consumer *c)
{
	struct stream *s = c->stream;
	if (!s)
		return;
	shortage_account(c);
	c->home = NULL;
	stream_remove(s, s->n_consumers > 1 ? c->rank : 0);
	s->host->n_returned += c->reconnected;
	c->reconnected = false;
	c->positioned = false;
	c->waiting = false;
	if (!has_positioned_consumer(s)) {
		/* No consumer reads: batches made ahead would not be where the next consumer begins. */
		if (!s->expected) {
			stream_drop_from(s, s->first);
			s->positioned = false;
		}
		drop_own(s);
	}
	s->host->source->ops->moved(s->host->source);
	stream_pump(s);
}

/* ---- seeking ---- */

/* Whether no other consumer depends on the stream's position. */
static bool is_alone(const struct stream *s, const struct consumer *c)
{
	if (s->expected & ~core_stream_bit(c->rank))
		return false;
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		if (s->consumers[i] && s->consumers[i] != c && s->consumers[i]->positioned)
			return false;
	}
	return true;
}

void stream_mark_pending(struct stream *s, struct consumer *c, uint32_t place, const struct position *to)
{
	for (struct slot *slot = s->first, *next; slot; slot = next) {
		next = slot->next;
		if (position_compare(&slot->at, to) < 0)
			slot->pending &= ~core_stream_bit(place);
		else
			slot->pending |= core_stream_bit(place);
		start_copies(s, slot);
		stream_try_free(s, slot);
	}
	c->cursor = *to;
}

static bool core_stream_follows(const struct slot *slot, const struct position *at)
{
	struct position next = { .epoch = slot->at.epoch, .base = slot->at.base, .step = slot->at.step + 1 };
	if (slot->last)
		next = (struct position){ .epoch = slot->at.epoch + 1 };
	return position_compare(&next, at) == 0;
}

/* Batches that all consumers had and returned leave gaps between those that are still held. */
const struct position *stream_oldest(const struct stream *s)
{
	const struct position *oldest = &s->next;
	for (const struct slot *slot = s->first; slot; slot = slot->next) {
		if (oldest == &s->next)
			oldest = &slot->at;
		if (!core_stream_follows(slot, slot->next ? &slot->next->at : &s->next))
			oldest = &s->next;
	}
	return oldest;
}

/* Whether the stream has, or will have, batches of that epoch counted from that base sample. An epoch that is resumed
 * in its middle is the exception. */
static bool comes_by(const struct stream *s, const struct position *to)
{
	const struct slot *slot = s->first;
	if (to->epoch >= s->next.epoch)
		return to->base == (to->epoch == s->next.epoch ? s->next.base : 0);
	while (slot && slot->at.epoch != to->epoch)
		slot = slot->next;
	return slot && slot->at.base == to->base;
}

/* Whether all other consumers still reach their positions if the stream goes back to `to`. A consumer that has had the
 * last batch of an epoch may stand after it. */
static bool others_come_by(const struct stream *s, const struct position *to)
{
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		const struct consumer *c = s->consumers[i];
		if (!c || !c->positioned)
			continue;
		bool over = c->cursor.step >= stream_count_batches(s, c->cursor.base);
		uint64_t epoch = c->cursor.epoch + over, base = over ? 0 : c->cursor.base;
		if (base != (epoch == to->epoch ? to->base : 0))
			return false;
	}
	return true;
}

/* The group still waits for this consumer: the others have had at most one window of batches. The order in which they
 * come must not matter, for example when they reconnect to another daemon from positions within a window; so the stream
 * goes back and makes for this consumer the batches that others have had. The same holds for a consumer that lost its
 * connection and was slower in returning than consumers that it had kept waiting. Not every producer can go back. */
static bool core_stream_waits_for(const struct stream *s, const struct consumer *c, uint32_t place)
{
	return ((s->expected & core_stream_bit(place)) || c->reconnected) && s->host->source->goes_back;
}

int stream_seek(struct consumer *c, uint64_t seek, const struct position *to)
{
	struct stream *s = c->stream;
	uint32_t place = s->n_consumers > 1 ? c->rank : 0;
	assert(s->consumers[place] == c);
	shortage_account(c);
	c->clock.shortage = SHORTAGE_NONE;
	if (!s->positioned || is_alone(s, c)) {
		stream_drop_from(s, s->first);
		drop_own(s);
		stream_set_next(s, to);
		s->positioned = true;
	} else if (position_compare(to, stream_oldest(s)) < 0) {
		if (!core_stream_waits_for(s, c, place))
			return STREAM_E_BEHIND;
		if (!others_come_by(s, to))
			return STREAM_E_ELSEWHERE;
		stream_drop_from(s, s->first);
		stream_set_next(s, to);
	} else if (!comes_by(s, to)) {
		return STREAM_E_ELSEWHERE;
	}
	s->expected &= ~core_stream_bit(place);
	s->host->n_returned += c->reconnected;
	c->seek = seek;
	c->positioned = true;
	c->reconnected = false;
	c->waiting = true;
	stream_mark_pending(s, c, place, to);
	s->host->source->ops->moved(s->host->source);
	stream_pump(s);
	return 0;
}

void stream_wait(struct consumer *c)
{
	shortage_account(c);
	c->waiting = true;
	if (!c->stream)
		return;
	update_urgency(c->stream); /* first: a job that is done from here on wakes the loop, and a job that was done
	                            * before is found now */
	stream_wake(c);
}

void stream_wake(struct consumer *c)
{
	struct stream *s = c->home;
	pool_drain(s->host->pool); /* batches for which the loop was not woken */
	stream_pump(s);
}

/* ---- own batches ---- */

static struct own_batch *own_append(struct own_batch *b, uint64_t step, const uint64_t *indices, uint32_t n)
{
	uint32_t have = b ? b->n : 0;
	struct own_batch *grown = realloc(b, sizeof(*b) + ((size_t)have + n) * sizeof(*indices));
	if (!grown)
		return NULL;
	grown->next = NULL;
	grown->step = step;
	for (uint32_t i = 0; i < n; i++)
		grown->index[have + i] = indices[i];
	grown->n = have + n;
	return grown;
}

int stream_push(struct consumer *c, uint64_t seek, uint64_t step, const uint64_t *indices, uint32_t n, bool more)
{
	struct stream *s = c->stream;
	if (!c->positioned || seek != c->seek)
		return seek < c->seek ? 0 : STREAM_E_INVALID; /* older: sent before the trainer's own seek */
	uint64_t expected = s->next.step + s->n_own;
	uint32_t have = s->own_partial ? s->own_partial->n : 0;
	if (step != expected || s->n_own >= s->slots->n + MORE_OWN_BATCHES || n > s->host->spec->batch_size - have ||
	    have + n == 0)
		return STREAM_E_INVALID;
	uint64_t bytes = (s->own_partial ? 0 : sizeof(struct own_batch)) + n * sizeof(*indices);
	if (own_charge(s, bytes))
		return STREAM_E_LIMIT;
	struct own_batch *b = own_append(s->own_partial, step, indices, n);
	if (!b) {
		own_refund(s, bytes);
		return -ENOMEM;
	}
	s->own_partial = more ? b : NULL;
	if (more)
		return 0;
	if (s->own_first)
		s->own_last->next = b;
	else
		s->own_first = b;
	s->own_last = b;
	s->n_own++;
	stream_pump(s);
	return 0;
}

/* ---- giving back ---- */

static void core_stream_unlease(struct consumer *c, struct slot *slot)
{
	assert(c->leases[slot->number] > 0 && c->n_leases > 0 && slot->n_leases > 0 && slot->state == SLOT_READY);
	if (--c->leases[slot->number] == 0 && c->group) {
		uint64_t others = c->stream ? c->stream->members & ~core_stream_bit(c->rank) : 0;
		slot->holders &= ~core_stream_bit(c->rank);
		if (c->stream && !(slot->holders & others))
			c->stream->n_held--;
	}
	c->n_leases--;
	if (--slot->n_leases == 0 && slot->linked)
		slot->stream->n_unheld++;
	/* The stream may have moved on to another slab or be gone; then it has unlinked the slot and is not
	 * accessed. */
	stream_try_free(slot->stream, slot);
}

int stream_take_back(struct consumer *c, uint32_t number, uint64_t generation)
{
	if (number >= c->slots->n || !c->leases[number] || c->slots->slot[number].generation != generation)
		return STREAM_E_INVALID;
	core_stream_unlease(c, &c->slots->slot[number]);
	return 0;
}

int stream_release(struct consumer *c, uint32_t number, uint64_t generation)
{
	int r = stream_take_back(c, number, generation);
	if (r == 0 && c->home)
		stream_wake(c);
	return r;
}

void consumer_finish(struct consumer *c)
{
	assert(!c->home);
	for (uint32_t i = 0; c->slots && i < c->slots->n; i++) {
		while (c->leases[i])
			core_stream_unlease(c, &c->slots->slot[i]);
	}
	assert(c->n_leases == 0);
	assert(!c->slots || c->slots->n_holders > 0);
	if (c->slots)
		c->slots->n_holders--;
	if (c->slots && c->slots->stream)
		stream_pump(c->slots->stream); /* a trainer may have waited for just these slots */
	slots_unref(c->slots);
	free(c->leases);
	c->slots = NULL;
	c->device_slab = NULL;
	c->leases = NULL;
}

void stream_count(const struct stream *s, struct stream_counts *out)
{
	*out = (struct stream_counts){ 0 };
	if (!s->slots)
		return;
	out->window = s->slots->n_made;
	out->full = slots_find_free(s->slots) == NULL;
	for (uint32_t i = 0; i < s->slots->n_made; i++) {
		const struct slot *slot = &s->slots->slot[i];
		if (s->group && slot->stream != s)
			continue;
		/* Made; but no trainer has run short yet, so the loop has not been woken for it. */
		bool made = slot->state == SLOT_FILLING && pool_is_finished(s->host->pool, &slot->job);
		out->making += slot->state == SLOT_FILLING && !made;
		out->held += slot->n_leases > 0;
		out->ready += made || (slot->state == SLOT_READY && slot->pending);
	}
	out->waits_for = s->first && s->first->state == SLOT_READY ? s->first->pending : 0;
}

bool stream_has_more(const struct consumer *c)
{
	const struct slot *slot = c->stream && c->positioned ? c->stream->first : NULL;
	uint64_t mine = core_stream_bit(c->stream && c->stream->n_consumers > 1 ? c->rank : 0);
	while (slot &&
	       (position_compare(&slot->at, &c->cursor) < 0 || (slot->state == SLOT_READY && !(slot->pending & mine))))
		slot = slot->next;
	return slot && slot->state == SLOT_READY;
}

static struct position core_stream_after(const struct stream *s, struct position at)
{
	if (++at.step >= stream_count_batches(s, at.base) && !s->host->spec->own_batches)
		at = (struct position){ .epoch = at.epoch + 1 };
	return at;
}

bool stream_covers(const struct stream *s, const struct position *at)
{
	struct position want = *at;
	if (!s->positioned || position_compare(&want, &s->next) > 0)
		return false; /* and a large group's list need not be walked */
	/* A trainer that releases a newer batch before an older one leaves a gap in the list. */
	for (const struct slot *slot = s->first; slot; slot = slot->next) {
		int c = position_compare(&slot->at, &want);
		if (c > 0)
			return false;
		if (c == 0)
			want = core_stream_after(s, want);
	}
	return position_compare(&want, &s->next) == 0;
}

uint64_t stream_distance(const struct stream *s, const struct position *a, const struct position *b)
{
	if (position_compare(a, b) >= 0)
		return 0;
	if (a->epoch == b->epoch)
		return b->step > a->step ? b->step - a->step : 0;
	uint64_t all = stream_count_batches(s, 0), first = stream_count_batches(s, a->base);
	return (first > a->step ? first - a->step : 0) + (b->epoch - a->epoch - 1) * all + b->step;
}
