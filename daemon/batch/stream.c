/* See stream.h. The awkward corner is a seek while batches are pending: batches made ahead are dropped (rows in work
 * finish into a slot that is not wanted), published batches stay leased until the trainer returns them unread, and the
 * new batches carry the new seek number. */
#include "batch/stream.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "batch/device-slab.h"
#include "batch/leases.h"
#include "batch/loader-spec.h"
#include "batch/own-batches.h"
#include "batch/plan/plan.h"
#include "batch/pool/pool.h"
#include "batch/source.h"
#include "batch/stream-impl.h"
#include "batch/stream-list.h"
#include "batch/stream-places.h"
#include "batch/stream-waking.h"
#include "base/container.h"
#include "base/thread-kind.h"

enum { MOST_ROUNDS = 16 }; /* of stream_step, before other streams have their turn */

/* ---- a consumer's state ---- */

void consumer_move(struct consumer *c, enum consumer_state to)
{
	static const uint8_t moves[] = {
		[CONSUMER_NEW] = 1 << CONSUMER_NEW | 1 << CONSUMER_RETURNED | 1 << CONSUMER_PLACED,
		[CONSUMER_RETURNED] = 1 << CONSUMER_NEW | 1 << CONSUMER_PLACED,
		[CONSUMER_PLACED] = 1 << CONSUMER_NEW | 1 << CONSUMER_PLACED | 1 << CONSUMER_AWAITING,
		[CONSUMER_AWAITING] = 1 << CONSUMER_NEW | 1 << CONSUMER_PLACED,
	};
	assert(is_loop_thread());
	assert(moves[c->state] >> to & 1);
	c->state = to;
}

/* ---- beginning batches ---- */

static bool has_positioned_consumer(const struct stream *s)
{
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		if (s->consumers[i] && consumer_is_placed(s->consumers[i]))
			return true;
	}
	return false;
}

/* The members of a group of known size begin together. A trainer that comes to an open group begins where the others
 * are, at any time; before that the others do not wait for it. */
static bool is_counted_on(const struct stream *s, const struct consumer *c)
{
	return consumer_is_placed(c) || !s->host->spec->share || s->host->spec->world_size > 1;
}

static uint64_t pending_at(const struct stream *s, const struct position *at)
{
	uint64_t pending = s->expected;
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		const struct consumer *c = s->consumers[i];
		if (c && is_counted_on(s, c) && (!consumer_is_placed(c) || position_compare(&c->cursor, at) <= 0))
			pending |= stream_bit(i);
	}
	return pending;
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

static void leave_to_source(struct slot *slot)
{
	slot->n_rows = slot->n_padding = 0;
	slot->last = false;
}

static void stream_advance(struct stream *s)
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
		own_batches_take(s, slot);
	assert(slot->n_rows <= h->spec->batch_size && slot->n_padding <= slot->n_rows);
	slot->at = s->next;
	slot->pending = pending_at(s, &slot->at);
	stream_append(s, slot);
	stream_advance(s);
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
		if (!consumer_is_placed(c))
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

static void stream_on_copied(struct slot *slot, struct device_slab *device_slab, const char *why)
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
		if (c && c->device_slab && c->slots == slot->slots && (slot->pending & stream_bit(i)) &&
		    device_slab_copy(c->device_slab, slot, stream_on_copied))
			s->host->n_in_flight++;
	}
}

/* ---- publishing ---- */

static void publish_to(struct stream *s, struct consumer *c, uint32_t place)
{
	if (c->n_leases >= consumer_max_leases(c))
		return; /* checked before walking the long list of a large group */
	for (struct slot *slot = s->first; slot && c->state != CONSUMER_AWAITING; slot = slot->next) {
		if (position_compare(&slot->at, &c->cursor) < 0)
			continue;
		if (slot->state != SLOT_READY)
			return; /* only in order */
		if (!(slot->pending & stream_bit(place)))
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
		lease_begin(c, slot);
		c->n_published++;
		c->n_rows_published += slot->n_rows;
		c->n_unread++;
		s->host->ops->published(s->host, c->waiting);
		c->waiting = false;
		c->cursor = slot->at;
		c->cursor.step++;
		if (slot->last && s->host->spec->served) /* else the number of batches tells */
			c->cursor = (struct position){ .epoch = slot->at.epoch + 1 };
	}
}

static void stream_publish(struct stream *s)
{
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		struct consumer *c = s->consumers[i];
		if (c && consumer_is_placed(c))
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
	assert(is_loop_thread());
	if (!s->slots || s->host->stopped)
		return;
	unsigned rounds = 0;
	bool again;
	do {
		stream_look(s);
		stream_publish(s);
		stream_update_urgency(s);
		if (s->positioned && has_positioned_consumer(s)) {
			skip_ahead(s);
			while (begin_one(s))
				;
		}
		again = stream_arm(s);
	} while (again && ++rounds < MOST_ROUNDS);
	/* Each further round ends a lease or has found a ring emptied, so there are few rounds; but trainers determine
	 * when that happens. */
	if (again)
		go_on_later(s);
}

void stream_end_epoch(struct stream *s, struct slot *slot)
{
	assert(is_loop_thread());
	assert(slot->stream == s && slot->linked && slot->state == SLOT_FILLING);
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
	assert(is_loop_thread());
	s->pump(s);
}

void stream_on_filled(struct stream *s, struct slot *slot)
{
	assert(is_loop_thread());
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

void stream_stop(struct stream *s)
{
	assert(is_loop_thread());
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
	assert(is_loop_thread());
	assert(n_consumers > 0);
	*s = (struct stream){ .host = host, .number = number, .n_consumers = n_consumers };
	s->claim = claim_free;
	s->pump = stream_step;
	s->plan_rank = host->spec->share ? 0 : number;
	s->consumers = calloc(n_consumers, sizeof(*s->consumers));
	if (!s->consumers)
		return -ENOMEM;
	int r = pool_queue_add(host->pool, &s->queue, host->spec->num_workers, host->spec->uid, host);
	if (r) {
		free(s->consumers);
		s->consumers = NULL;
		return r;
	}
	if (host->lane)
		pool_queue_set_lane(host->pool, &s->queue, host->lane);
	return 0;
}

void stream_finish(struct stream *s)
{
	assert(is_loop_thread());
	if (!s->consumers)
		return;
	for (uint32_t i = 0; i < s->n_consumers; i++)
		assert(!s->consumers[i]);
	stream_drop_from(s, s->first);
	own_batches_drop(s);
	assert(!s->first && !s->n_unheld);
	if (s->slots)
		s->slots->stream = NULL;
	slots_unref(s->slots);
	s->slots = NULL;
	plan_unref(s->plan);
	s->plan = NULL;
	free(s->consumers);
	s->consumers = NULL;
	charge_release(&s->bytes);
}

void stream_set_slots(struct stream *s, struct slots *slots)
{
	assert(is_loop_thread());
	assert(slots && !slots->stream && s->consumers);
	stream_drop_from(s, s->first);
	own_batches_drop(s);
	s->positioned = false;
	if (s->slots)
		s->slots->stream = NULL;
	slots_unref(s->slots);
	s->slots = slots;
	slots->stream = s;
}

int stream_attach(struct stream *s, struct consumer *c, uint32_t rank)
{
	assert(is_loop_thread());
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
	c->slots->n_attached++;
	c->stream = c->home = s;
	c->rank = rank;
	consumer_move(c, CONSUMER_NEW);
	s->consumers[place] = c;
	return 0;
}

void stream_remove(struct stream *s, uint32_t place)
{
	assert(is_loop_thread());
	assert(place < s->n_consumers);
	struct consumer *c = s->consumers[place];
	assert(c && c->stream == s);
	c->stream = NULL;
	s->consumers[place] = NULL;
	if (!c->comes_again || consumer_is_placed(c) || !(s->expected & stream_bit(place)))
		stream_clear_pending(s, place);
}

void stream_clear_pending(struct stream *s, uint32_t place)
{
	assert(place < s->n_consumers);
	s->expected &= ~stream_bit(place);
	if (s->consumers[place])
		return;
	for (struct slot *slot = s->first, *next; slot; slot = next) {
		next = slot->next;
		slot->pending &= ~stream_bit(place);
		stream_try_free(s, slot);
	}
}

void stream_detach(struct consumer *c)
{
	assert(is_loop_thread());
	struct stream *s = c->stream;
	if (!s)
		return;
	c->home = NULL;
	stream_remove(s, s->n_consumers > 1 ? c->rank : 0);
	consumer_move(c, CONSUMER_NEW);
	c->waiting = false;
	if (!has_positioned_consumer(s)) {
		/* No consumer reads: batches made ahead would not be where the next consumer begins. */
		if (!s->expected) {
			stream_drop_from(s, s->first);
			s->positioned = false;
		}
		own_batches_drop(s);
	}
	s->host->source->ops->moved(s->host->source);
	stream_pump(s);
}

/* ---- seeking ---- */

/* Whether no other consumer depends on the stream's position. */
static bool is_alone(const struct stream *s, const struct consumer *c)
{
	if (s->expected & ~stream_bit(c->rank))
		return false;
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		if (s->consumers[i] && s->consumers[i] != c && consumer_is_placed(s->consumers[i]))
			return false;
	}
	return true;
}

void stream_mark_pending(struct stream *s, struct consumer *c, uint32_t place, const struct position *to)
{
	assert(place < s->n_consumers);
	for (struct slot *slot = s->first, *next; slot; slot = next) {
		next = slot->next;
		if (position_compare(&slot->at, to) < 0)
			slot->pending &= ~stream_bit(place);
		else
			slot->pending |= stream_bit(place);
		start_copies(s, slot);
		stream_try_free(s, slot);
	}
	c->cursor = *to;
}

/* The group still waits for this consumer: the others have had at most one window of batches. The order in which they
 * come must not matter, for example when they reconnect to another daemon from positions within a window; so the stream
 * goes back and makes for this consumer the batches that others have had. The same holds for a consumer that lost its
 * connection and was slower in returning than consumers that it had kept waiting. Not every producer can go back. */
static bool stream_waits_for(const struct stream *s, const struct consumer *c, uint32_t place)
{
	return ((s->expected & stream_bit(place)) || c->state == CONSUMER_RETURNED) && s->host->source->goes_back;
}

int stream_seek(struct consumer *c, uint64_t seek, const struct position *to)
{
	assert(is_loop_thread());
	assert(c->slots && c->stream);
	struct stream *s = c->stream;
	uint32_t place = s->n_consumers > 1 ? c->rank : 0;
	assert(s->consumers[place] == c);
	if (!s->positioned || is_alone(s, c)) {
		stream_drop_from(s, s->first);
		own_batches_drop(s);
		stream_set_next(s, to);
		s->positioned = true;
	} else if (position_compare(to, stream_oldest(s)) < 0) {
		if (!stream_waits_for(s, c, place))
			return STREAM_E_BEHIND;
		if (!stream_others_come_by(s, to))
			return STREAM_E_ELSEWHERE;
		stream_drop_from(s, s->first);
		stream_set_next(s, to);
	} else if (!stream_comes_by(s, to)) {
		return STREAM_E_ELSEWHERE;
	}
	s->expected &= ~stream_bit(place);
	c->seek = seek;
	consumer_move(c, CONSUMER_PLACED);
	c->waiting = true;
	stream_mark_pending(s, c, place, to);
	s->host->source->ops->moved(s->host->source);
	stream_pump(s);
	return 0;
}

void stream_wake(struct consumer *c)
{
	assert(is_loop_thread());
	assert(c->home);
	struct stream *s = c->home;
	pool_drain(s->host->pool); /* batches for which the loop was not woken */
	stream_pump(s);
}

bool stream_rests(const struct stream *s)
{
	return s->slots && s->slots->may_grow && !slots_find_free(s->slots) &&
	       !pool_queue_has_rows(s->host->pool, &s->queue);
}

/* ---- own batches ---- */

int stream_push(struct consumer *c, uint64_t seek, uint64_t step, const uint64_t *indices, uint32_t n, bool more)
{
	assert(is_loop_thread());
	assert(!consumer_is_placed(c) || c->stream);
	if (!consumer_is_placed(c) || seek != c->seek)
		return seek < c->seek ? 0 : STREAM_E_INVALID; /* older: sent before the trainer's own seek */
	int r = own_batches_add(c->stream, step, indices, n, more);
	if (r == 0 && !more)
		stream_pump(c->stream);
	return r;
}

/* ---- giving back ---- */

int stream_release(struct consumer *c, uint32_t number, uint64_t generation)
{
	assert(is_loop_thread());
	assert(c->slots);
	int r = stream_take_back(c, number, generation);
	if (r == 0 && c->home)
		stream_wake(c);
	return r;
}

void consumer_finish(struct consumer *c)
{
	assert(is_loop_thread());
	assert(!c->home);
	for (uint32_t i = 0; c->slots && i < c->slots->n; i++) {
		while (c->leases[i])
			lease_end(c, &c->slots->slot[i]);
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
	assert(is_loop_thread());
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
	const struct slot *slot = c->stream && consumer_is_placed(c) ? c->stream->first : NULL;
	uint64_t mine = stream_bit(c->stream && c->stream->n_consumers > 1 ? c->rank : 0);
	while (slot &&
	       (position_compare(&slot->at, &c->cursor) < 0 || (slot->state == SLOT_READY && !(slot->pending & mine))))
		slot = slot->next;
	return slot && slot->state == SLOT_READY;
}
