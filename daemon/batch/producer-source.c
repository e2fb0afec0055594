/* See producer-source.h. Everything is found by looking at the streams' lists of slots, which are short; the source's
 * only memory of its own is the list of pending fills. Streams call submit and cancel from deep inside, so these only
 * take notes; the work is done in on_kick and producer_source_answered, where no stream is on the stack. */
#include "batch/producer-source.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "batch/large-batch.h"
#include "batch/loader.h"
#include "base/container.h"

/* State of a submitted slot; struct slot's `fill_state`. */
enum { WANTED = 1, ASKED, MADE };


static void kick(struct producer_source *p);

static struct producer_source *producer_source_of(struct batch_source *source)
{
	return container_of(source, struct producer_source, source);
}

static uint64_t world_of(const struct producer_source *p)
{
	return loader_n_ranks(p->loader);
}

/* ---- pending fills ---- */

static void push_fill(struct producer_source *p, struct source_fill *fill)
{
	fill->next = NULL;
	if (p->first)
		p->last->next = fill;
	else
		p->first = fill;
	p->last = fill;
}

static void free_first(struct producer_source *p)
{
	struct source_fill *fill = p->first;
	assert(fill);
	p->first = fill->next;
	free(fill);
}

/* The fills pending for that slot are no longer meant for it. */
static void supersede(struct producer_source *p, const struct slot *slot)
{
	for (struct source_fill *fill = p->first; fill; fill = fill->next) {
		if (fill->slot != slot)
			continue;
		fill->slot = NULL;
		if (!p->stopped)
			p->ops->cancel(p, fill->number);
	}
}

unsigned producer_source_n_asked(const struct producer_source *p)
{
	unsigned n = 0;
	for (const struct source_fill *fill = p->first; fill; fill = fill->next)
		n++;
	return n;
}

/* ---- calls from streams ---- */

static void on_submit(struct batch_source *source, struct slot *slot)
{
	assert(slot->state == SLOT_FILLING && slot->source == source);
	slot->fill_state = WANTED;
	slot->round_complete = false;
	kick(producer_source_of(source));
}

static void on_cancel(struct batch_source *source, struct slot *slot)
{
	struct producer_source *p = producer_source_of(source);
	if (slot->fill_state == ASKED) { /* the producer may be writing into it: done when the answer arrives */
		for (struct source_fill *fill = p->first; fill; fill = fill->next) {
			if (fill->slot == slot)
				p->ops->cancel(p, fill->number);
		}
		kick(p); /* the answer may be here already, and wait for memory */
		return;
	}
	slot->next = p->dropped;
	p->dropped = slot;
	kick(p);
}

/* It may have been the stream's turn while its trainer held every slot. */
static void on_moved(struct batch_source *source)
{
	kick(producer_source_of(source));
}

static void finish_dropped(struct producer_source *p)
{
	while (p->dropped) {
		struct slot *slot = p->dropped;
		assert(slot->state == SLOT_DROPPED && !slot->linked);
		p->dropped = slot->next;
		slot->next = NULL;
		loader_source_done(p->loader, slot);
	}
}

static void on_close(struct batch_source *source)
{
	struct producer_source *p = producer_source_of(source);
	p->stopped = true;
	finish_dropped(p);
	/* The producer may still write into these slots. Their memory is never used again, so there is nothing to wait
	 * for. */
	for (struct source_fill *fill = p->first; fill; fill = fill->next) {
		struct slot *slot = fill->slot;
		fill->slot = NULL;
		if (slot)
			loader_source_done(p->loader, slot);
	}
}

static bool is_asked(const struct batch_source *source)
{
	return container_of(source, const struct producer_source, source)->first != NULL;
}

static const struct batch_source_ops source_ops = {
	.submit = on_submit, .cancel = on_cancel, .moved = on_moved, .close = on_close, .is_asked = is_asked
};

/* ---- the end of an epoch ---- */

/* Where that epoch is known to end; SOURCE_ENDS: it is not. */
static unsigned find_end(const struct producer_source *p, uint64_t epoch)
{
	unsigned i = 0;
	while (i < SOURCE_ENDS && !(p->ends[i].known && p->ends[i].epoch == epoch))
		i++;
	return i;
}

bool producer_source_is_over(const struct producer_source *p, const struct position *at)
{
	unsigned i = find_end(p, at->epoch);
	return i < SOURCE_ENDS && at->step >= p->ends[i].step;
}

static void forget_end(struct producer_source *p, uint64_t epoch)
{
	for (unsigned i = 0; i < SOURCE_ENDS; i++) {
		if (p->ends[i].epoch == epoch)
			p->ends[i].known = false;
	}
}

static void note_end(struct producer_source *p, uint64_t epoch, uint64_t step, bool certain)
{
	unsigned i = p->n_ends++ % SOURCE_ENDS;
	forget_end(p, epoch);
	p->ends[i].epoch = epoch;
	p->ends[i].step = step;
	p->ends[i].known = true;
	p->ends[i].certain = certain;
}

/* The slot must be asked for again, whatever it holds or is waiting for. */
static void want_again(struct producer_source *p, struct slot *slot)
{
	supersede(p, slot);
	slot_set_large(slot, NULL);
	slot->fill_state = WANTED;
	slot->round_complete = false;
}

/* The slot holds the mark; the slots after it are for the next epoch. */
static void mark_end(struct producer_source *p, struct stream *s, struct slot *slot)
{
	for (struct slot *behind = slot; behind; behind = behind->next) {
		want_again(p, behind);
		behind->last = false; /* it may have held a mark: of an epoch that is repeated and ends earlier this
		                       * time */
	}
	slot->fill_state = MADE;
	slot->n_rows = 0;
	slot->payload_bytes = 0;
	slot->last = true;
	stream_end_epoch(s, slot);
}

/* The first `n` batches of the epoch, over all ranks, exist: the rounds within them are whole. Slots that are still
 * unanswered belong to ranks that repeat the epoch, and ask for themselves. */
static void note_whole(struct producer_source *p, uint64_t epoch, uint64_t n)
{
	for (uint32_t i = 0; i < p->loader->streams.n; i++) {
		for (struct slot *slot = p->loader->streams.list[i]->first; slot; slot = slot->next) {
			if (slot->state == SLOT_FILLING && slot->fill_state == MADE && slot->at.epoch == epoch &&
			    slot->at.step < n / world_of(p))
				slot->round_complete = true;
		}
	}
}

/* Whether the round of a batch that has just been made, perhaps once more, is known to be whole. */
static bool is_whole(const struct producer_source *p, const struct position *at)
{
	unsigned end = find_end(p, at->epoch);
	bool whole = end < SOURCE_ENDS && p->ends[end].certain && at->step < p->ends[end].step;
	for (uint32_t i = 0; i < p->loader->streams.n && !whole; i++) {
		for (const struct slot *slot = p->loader->streams.list[i]->first; slot && !whole; slot = slot->next)
			whole = slot->state == SLOT_FILLING && slot->round_complete && slot->at.epoch == at->epoch &&
				slot->at.step >= at->step;
	}
	return whole;
}

/* Whether a rank has its batch, or is about to get it, while it is not yet known whether the round is whole. */
static bool is_held_back(const struct producer_source *p, const struct slot *slot)
{
	return world_of(p) > 1 && slot->state == SLOT_FILLING &&
	       (slot->fill_state == ASKED || slot->fill_state == MADE) && !slot->round_complete && !slot->last;
}

/* For an epoch of unknown length that has no batch k: any round still held back may be incomplete. Returns the first
 * such step. A producer that can go back makes the round's last batch when its rank asks for it. */
static uint64_t first_round_not_whole(const struct producer_source *p, uint64_t epoch, uint64_t k)
{
	uint64_t step = k / world_of(p);
	for (uint32_t i = 0; i < p->loader->streams.n && !p->caps.resumable; i++) {
		for (const struct slot *slot = p->loader->streams.list[i]->first; slot; slot = slot->next) {
			if (is_held_back(p, slot) && slot->fill_state == MADE && slot->at.epoch == epoch &&
			    slot->at.step < step)
				step = slot->at.step;
		}
	}
	return step;
}

/* There is no batch k. n_batches: the length of the epoch, 0: not known. */
static void end_epoch(struct producer_source *p, uint64_t epoch, uint64_t k, uint64_t n_batches)
{
	uint64_t step = n_batches ? n_batches / world_of(p) : first_round_not_whole(p, epoch, k);
	note_whole(p, epoch, n_batches);
	note_end(p, epoch, step, n_batches || !p->caps.resumable);
	for (uint32_t i = 0; i < p->loader->streams.n; i++) {
		struct stream *s = p->loader->streams.list[i];
		for (struct slot *slot = s->first; slot; slot = slot->next) {
			if (slot->state == SLOT_FILLING && !slot->last && slot->at.epoch == epoch &&
			    slot->at.step >= step) {
				mark_end(p, s, slot);
				break;
			}
		}
	}
}

/* ---- batches that go out ---- */

/* The earliest step that a rank has still to get from the producer, or that may not be published yet. False: no rank is
 * active. */
static bool find_floor(const struct producer_source *p, struct position *floor)
{
	bool any = false;
	for (uint32_t i = 0; i < p->loader->streams.n; i++) {
		const struct stream *s = p->loader->streams.list[i];
		const struct slot *slot = s->first;
		if (!s->positioned)
			continue;
		while (slot && (slot->state != SLOT_FILLING || (slot->fill_state == MADE && !is_held_back(p, slot))))
			slot = slot->next;
		const struct position *at = slot ? &slot->at : &s->next;
		if (!any || position_compare(at, floor) < 0)
			*floor = *at;
		any = true;
	}
	return any;
}

static struct slot *find_complete(struct producer_source *p, const struct position *floor)
{
	for (uint32_t i = 0; i < p->loader->streams.n; i++) {
		for (struct slot *slot = p->loader->streams.list[i]->first; slot; slot = slot->next) {
			if (slot->state == SLOT_FILLING && slot->fill_state == MADE &&
			    position_compare(&slot->at, floor) < 0)
				return slot;
		}
	}
	return NULL;
}

static void publish_complete(struct producer_source *p)
{
	struct position floor = { 0 };
	struct slot *slot;
	/* Each batch may change everything. */
	while (find_floor(p, &floor) && (slot = find_complete(p, &floor)))
		loader_source_done(p->loader, slot);
}

/* ---- whose turn it is ---- */

struct turn {
	struct stream *stream;
	const struct position *at; /* NULL: no rank is active */
	struct slot *slot;         /* NULL: the stream has no free slot */
};

/* False: a rank has not come yet. */
static bool find_turn(struct producer_source *p, struct turn *t)
{
	*t = (struct turn){ 0 };
	for (uint32_t i = 0; i < p->loader->streams.n; i++) {
		struct stream *s = p->loader->streams.list[i];
		struct slot *slot = s->first;
		if (s->number != i || s->expected || (!s->positioned && !s->fed))
			return false; /* a rank has not come yet, and the batch that it wants may be the first */
		if (!s->positioned)
			continue;
		s->fed = true;
		while (slot && (slot->state != SLOT_FILLING || slot->fill_state != WANTED))
			slot = slot->next;
		const struct position *at = slot ? &slot->at : &s->next;
		if (!t->at || position_compare(at, t->at) < 0) /* lowest rank first among equals */
			*t = (struct turn){ .stream = s, .at = at, .slot = slot };
	}
	return p->loader->streams.n == world_of(p);
}

/* Whether `to` is a later batch of the epoch that the producer is in. */
static bool goes_on(const struct producer_source *p, const struct position *to)
{
	return p->made_any && to->epoch == p->at.epoch && to->step >= p->at.step;
}

/* Any producer can begin an epoch, at a step of its first round, whose first ranks may have left. */
static bool is_reachable(const struct producer_source *p, const struct position *to)
{
	return p->caps.resumable || to->step < world_of(p) || goes_on(p, to);
}

/* Whether a pending answer is needed first: it may show that the producer skipped the cancelled batches. */
static bool has_to_wait(const struct producer_source *p, const struct position *to)
{
	return p->first && to->step && !p->caps.resumable && !goes_on(p, to);
}

/* The epoch is begun, possibly again. If it may differ from the last time, no rank gets further batches of the earlier
 * run, and the source does not take this run's length from it. */
static void begin_epoch(struct producer_source *p, uint64_t epoch)
{
	forget_end(p, epoch);
	for (uint32_t i = 0; i < p->loader->streams.n && !p->caps.resumable; i++) {
		for (struct slot *slot = p->loader->streams.list[i]->first; slot; slot = slot->next) {
			if (slot->state == SLOT_FILLING && slot->at.epoch == epoch && !slot->last)
				want_again(p, slot);
		}
	}
}

/* Appends the next pending fill. NULL: not now, or never. */
static struct source_fill *add_fill(struct producer_source *p, const struct position *to)
{
	if (has_to_wait(p, to))
		return NULL;
	if (!is_reachable(p, to)) {
		p->ops->cannot(p, to->epoch, to->step);
		return NULL;
	}
	struct source_fill *fill = malloc(sizeof(*fill));
	if (!fill) {
		loader_fail(p->loader, "out of memory");
		return NULL;
	}
	if (!p->made_any || to->epoch != p->at.epoch || to->step < p->at.step)
		begin_epoch(p, to->epoch);
	*fill = (struct source_fill){ .number = p->next_number++, .at = *to };
	push_fill(p, fill);
	p->made_any = true;
	p->at = *to;
	return fill;
}

static struct position batch_of(const struct producer_source *p, const struct turn *t)
{
	return (struct position){ .epoch = t->at->epoch, .step = t->at->step * world_of(p) + t->stream->number };
}

static bool ask(struct producer_source *p, const struct turn *t)
{
	struct position to = batch_of(p, t);
	struct source_fill *fill = add_fill(p, &to);
	if (!fill)
		return false;
	fill->slot = t->slot;
	t->slot->fill_state = ASKED;
	p->at.step++;
	p->ops->fill(p, fill->number, t->stream->number, t->slot, to.epoch, to.step);
	return true;
}

/* ---- going on ---- */

/* Whether the epoch is known to have no such batch. A rank at the beginning of the epoch may be repeating it, and then
 * the length may differ. */
static bool turn_is_over(const struct producer_source *p, const struct turn *t)
{
	return producer_source_is_over(p, t->at) && (t->at->step > 0 || (p->made_any && t->at->epoch == p->at.epoch));
}

/* False: nothing more can be asked for. */
static bool ask_next(struct producer_source *p)
{
	struct turn t;
	if (!find_turn(p, &t))
		return false;
	if (!t.slot)
		return false;
	if (!turn_is_over(p, &t))
		return ask(p, &t);
	mark_end(p, t.stream, t.slot);
	publish_complete(p);
	return true;
}

static void ask_all(struct producer_source *p)
{
	while (!p->stopped && !p->loader->failed && producer_source_n_asked(p) < SOURCE_MAX_ASKED && ask_next(p))
		;
}

static void on_kick(uv_timer_t *timer)
{
	struct producer_source *p = timer->data;
	finish_dropped(p);
	publish_complete(p);
	p->ops->look(p);
	ask_all(p);
}

static void kick(struct producer_source *p)
{
	if (!uv_is_closing((uv_handle_t *)&p->kick))
		uv_timer_start(&p->kick, on_kick, 0, 0);
}

/* ---- the producer's answers ---- */

static void note_progress(struct producer_source *p, const struct source_fill *fill, const struct source_answer *a)
{
	uint64_t k = fill->at.step;
	if (a->outcome != SOURCE_SKIPPED) {
		p->reached = fill->at;
		p->reached.step += a->outcome == SOURCE_MADE;
		p->reached_any = true;
	}
	if (!p->first) {
		p->at = p->reached;
		p->made_any = p->reached_any;
	}
	uint64_t n = a->n_batches ? a->n_batches : k;
	if ((a->outcome == SOURCE_MADE && k >= p->caps.n_batches) ||
	    (a->outcome == SOURCE_END && n < p->caps.n_batches))
		p->caps.n_batches = 0;
}

bool producer_source_is_wanted(const struct producer_source *p)
{
	return p->first && p->first->slot && p->first->slot->state == SLOT_FILLING;
}

static void take(struct producer_source *p, const struct source_fill *fill, const struct source_answer *a)
{
	struct slot *slot = fill->slot;
	if (!slot || slot->state == SLOT_DROPPED)
		large_batch_destroy(a->large);
	if (slot && slot->state == SLOT_DROPPED) {
		loader_source_done(p->loader, slot);
	} else if (slot && a->outcome == SOURCE_MADE) {
		slot->fill_state = MADE;
		slot->n_rows = a->n_rows;
		slot->payload_bytes = a->n_bytes;
		slot->round_complete = is_whole(p, &slot->at);
		slot_set_large(slot, a->large);
	} else if (slot && a->outcome == SOURCE_SKIPPED) {
		slot->fill_state = WANTED; /* skipped although not cancelled: asked for again */
	} else if (slot && a->outcome == SOURCE_END) {
		end_epoch(p, fill->at.epoch, fill->at.step, a->n_batches);
	}
	if (a->outcome == SOURCE_MADE) /* whether it is still wanted or not */
		note_whole(p, fill->at.epoch, fill->at.step + 1);
}

int producer_source_answered(struct producer_source *p, uint64_t number, const struct source_answer *answer)
{
	if (!p->first || p->first->number != number || p->stopped) {
		large_batch_destroy(answer->large);
		return -EPROTO;
	}
	struct source_fill fill = *p->first;
	free_first(p);
	note_progress(p, &fill, answer);
	take(p, &fill, answer);
	publish_complete(p);
	ask_all(p);
	return 0;
}

/* ---- life ---- */

int producer_source_create(uv_loop_t *loop, struct loader *loader, const struct producer_source_ops *ops, void *owner,
			   const struct producer_caps *caps, uint64_t first_number, struct producer_source **out)
{
	struct producer_source *p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->source.ops = &source_ops;
	p->source.goes_back = caps->resumable;
	p->ops = ops;
	p->owner = owner;
	p->loader = loader;
	p->caps = *caps;
	p->next_number = first_number;
	uv_timer_init(loop, &p->kick);
	p->kick.data = p;
	*out = p;
	return 0;
}

static void on_timer_closed(uv_handle_t *h)
{
	struct producer_source *p = h->data;
	while (p->first)
		free_first(p);
	free(p);
}

void producer_source_close(struct producer_source *p)
{
	p->stopped = true;
	uv_close((uv_handle_t *)&p->kick, on_timer_closed);
}

void producer_source_stop(struct producer_source *p)
{
	p->stopped = true;
	/* No answer will come, and the producer no longer writes: cancelling these slots need not wait. */
	for (struct source_fill *fill = p->first; fill; fill = fill->next) {
		struct slot *slot = fill->slot;
		fill->slot = NULL;
		if (slot && slot->state == SLOT_DROPPED) {
			slot->next = p->dropped;
			p->dropped = slot;
		} else if (slot) {
			slot->fill_state = WANTED;
		}
	}
	kick(p);
}
