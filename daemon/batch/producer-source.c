/* See producer-source.h. Everything is found by looking at the streams' lists of slots, which are short; the feed's only
 * memory of its own is the list of pending fills. Streams call submit and cancel from deep inside, so these only take
 * notes; the work is done in on_kick and feed_answered, where no stream is on the stack. */
#include "batch/producer-source.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "batch/large-batch.h"
#include "batch/loader.h"
#include "base/container.h"

/* State of a submitted slot; struct slot's `fill_state`. */
enum { WANTED = 1, ASKED, MADE };


static void feed_kick(struct feed *f);

static struct feed *feed_of(struct batch_source *source)
{
	return container_of(source, struct feed, source);
}

static uint64_t feed_world(const struct feed *f)
{
	return loader_n_ranks(f->loader);
}

/* ---- pending fills ---- */

static void push_fill(struct feed *f, struct feed_fill *fill)
{
	fill->next = NULL;
	if (f->first)
		f->last->next = fill;
	else
		f->first = fill;
	f->last = fill;
}

static void free_first(struct feed *f)
{
	struct feed_fill *fill = f->first;
	assert(fill);
	f->first = fill->next;
	free(fill);
}

/* The fills pending for that slot are no longer meant for it. */
static void feed_supersede(struct feed *f, const struct slot *slot)
{
	for (struct feed_fill *fill = f->first; fill; fill = fill->next) {
		if (fill->slot != slot)
			continue;
		fill->slot = NULL;
		if (!f->stopped)
			f->ops->cancel(f, fill->number);
	}
}

unsigned feed_n_asked(const struct feed *f)
{
	unsigned n = 0;
	for (const struct feed_fill *fill = f->first; fill; fill = fill->next)
		n++;
	return n;
}

/* ---- calls from streams ---- */

static void feed_on_submit(struct batch_source *source, struct slot *slot)
{
	assert(slot->state == SLOT_FILLING && slot->source == source);
	slot->fill_state = WANTED;
	slot->round_complete = false;
	feed_kick(feed_of(source));
}

static void feed_on_cancel(struct batch_source *source, struct slot *slot)
{
	struct feed *f = feed_of(source);
	if (slot->fill_state == ASKED) { /* the producer may be writing into it: done when the answer arrives */
		for (struct feed_fill *fill = f->first; fill; fill = fill->next) {
			if (fill->slot == slot)
				f->ops->cancel(f, fill->number);
		}
		feed_kick(f); /* the answer may be here already, and wait for memory */
		return;
	}
	slot->next = f->dropped;
	f->dropped = slot;
	feed_kick(f);
}

/* It may have been the stream's turn while its trainer held every slot. */
static void on_moved(struct batch_source *source)
{
	feed_kick(feed_of(source));
}

static void finish_dropped(struct feed *f)
{
	while (f->dropped) {
		struct slot *slot = f->dropped;
		assert(slot->state == SLOT_DROPPED && !slot->linked);
		f->dropped = slot->next;
		slot->next = NULL;
		loader_source_done(f->loader, slot);
	}
}

static void feed_on_close(struct batch_source *source)
{
	struct feed *f = feed_of(source);
	f->stopped = true;
	finish_dropped(f);
	/* The producer may still write into these slots. Their memory is never used again, so there is nothing to wait
	 * for. */
	for (struct feed_fill *fill = f->first; fill; fill = fill->next) {
		struct slot *slot = fill->slot;
		fill->slot = NULL;
		if (slot)
			loader_source_done(f->loader, slot);
	}
}

static bool feed_is_asked(const struct batch_source *source)
{
	return container_of(source, const struct feed, source)->first != NULL;
}

static const struct batch_source_ops source_ops = { .submit = feed_on_submit,
						    .cancel = feed_on_cancel,
						    .moved = on_moved,
						    .close = feed_on_close,
						    .is_asked = feed_is_asked };

/* ---- the end of an epoch ---- */

/* Where that epoch is known to end; FEED_ENDS: it is not. */
static unsigned find_end(const struct feed *f, uint64_t epoch)
{
	unsigned i = 0;
	while (i < FEED_ENDS && !(f->ends[i].known && f->ends[i].epoch == epoch))
		i++;
	return i;
}

bool feed_is_over(const struct feed *f, const struct position *at)
{
	unsigned i = find_end(f, at->epoch);
	return i < FEED_ENDS && at->step >= f->ends[i].step;
}

static void forget_end(struct feed *f, uint64_t epoch)
{
	for (unsigned i = 0; i < FEED_ENDS; i++) {
		if (f->ends[i].epoch == epoch)
			f->ends[i].known = false;
	}
}

static void note_end(struct feed *f, uint64_t epoch, uint64_t step, bool certain)
{
	unsigned i = f->n_ends++ % FEED_ENDS;
	forget_end(f, epoch);
	f->ends[i].epoch = epoch;
	f->ends[i].step = step;
	f->ends[i].known = true;
	f->ends[i].certain = certain;
}

/* The slot must be asked for again, whatever it holds or is waiting for. */
static void want_again(struct feed *f, struct slot *slot)
{
	feed_supersede(f, slot);
	slot_set_large(slot, NULL);
	slot->fill_state = WANTED;
	slot->round_complete = false;
}

/* The slot holds the mark; the slots after it are for the next epoch. */
static void mark_end(struct feed *f, struct stream *s, struct slot *slot)
{
	for (struct slot *behind = slot; behind; behind = behind->next) {
		want_again(f, behind);
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
static void note_whole(struct feed *f, uint64_t epoch, uint64_t n)
{
	for (uint32_t i = 0; i < f->loader->streams.n; i++) {
		for (struct slot *slot = f->loader->streams.list[i]->first; slot; slot = slot->next) {
			if (slot->state == SLOT_FILLING && slot->fill_state == MADE && slot->at.epoch == epoch &&
			    slot->at.step < n / feed_world(f))
				slot->round_complete = true;
		}
	}
}

/* Whether the round of a batch that has just been made, perhaps once more, is known to be whole. */
static bool is_whole(const struct feed *f, const struct position *at)
{
	unsigned end = find_end(f, at->epoch);
	bool whole = end < FEED_ENDS && f->ends[end].certain && at->step < f->ends[end].step;
	for (uint32_t i = 0; i < f->loader->streams.n && !whole; i++) {
		for (const struct slot *slot = f->loader->streams.list[i]->first; slot && !whole; slot = slot->next)
			whole = slot->state == SLOT_FILLING && slot->round_complete && slot->at.epoch == at->epoch &&
				slot->at.step >= at->step;
	}
	return whole;
}

/* Whether a rank has its batch, or is about to get it, while it is not yet known whether the round is whole. */
static bool is_held_back(const struct feed *f, const struct slot *slot)
{
	return feed_world(f) > 1 && slot->state == SLOT_FILLING &&
	       (slot->fill_state == ASKED || slot->fill_state == MADE) && !slot->round_complete && !slot->last;
}

/* For an epoch of unknown length that has no batch k: any round still held back may be incomplete. Returns the first
 * such step. A producer that can go back makes the round's last batch when its rank asks for it. */
static uint64_t first_round_not_whole(const struct feed *f, uint64_t epoch, uint64_t k)
{
	uint64_t step = k / feed_world(f);
	for (uint32_t i = 0; i < f->loader->streams.n && !f->caps.resumable; i++) {
		for (const struct slot *slot = f->loader->streams.list[i]->first; slot; slot = slot->next) {
			if (is_held_back(f, slot) && slot->fill_state == MADE && slot->at.epoch == epoch &&
			    slot->at.step < step)
				step = slot->at.step;
		}
	}
	return step;
}

/* There is no batch k. n_batches: the length of the epoch, 0: not known. */
static void end_epoch(struct feed *f, uint64_t epoch, uint64_t k, uint64_t n_batches)
{
	uint64_t step = n_batches ? n_batches / feed_world(f) : first_round_not_whole(f, epoch, k);
	note_whole(f, epoch, n_batches);
	note_end(f, epoch, step, n_batches || !f->caps.resumable);
	for (uint32_t i = 0; i < f->loader->streams.n; i++) {
		struct stream *s = f->loader->streams.list[i];
		for (struct slot *slot = s->first; slot; slot = slot->next) {
			if (slot->state == SLOT_FILLING && !slot->last && slot->at.epoch == epoch &&
			    slot->at.step >= step) {
				mark_end(f, s, slot);
				break;
			}
		}
	}
}

/* ---- batches that go out ---- */

/* The earliest step that a rank has still to get from the producer, or that may not be published yet. False: no rank is
 * active. */
static bool find_floor(const struct feed *f, struct position *floor)
{
	bool any = false;
	for (uint32_t i = 0; i < f->loader->streams.n; i++) {
		const struct stream *s = f->loader->streams.list[i];
		const struct slot *slot = s->first;
		if (!s->positioned)
			continue;
		while (slot && (slot->state != SLOT_FILLING || (slot->fill_state == MADE && !is_held_back(f, slot))))
			slot = slot->next;
		const struct position *at = slot ? &slot->at : &s->next;
		if (!any || position_compare(at, floor) < 0)
			*floor = *at;
		any = true;
	}
	return any;
}

static struct slot *find_complete(struct feed *f, const struct position *floor)
{
	for (uint32_t i = 0; i < f->loader->streams.n; i++) {
		for (struct slot *slot = f->loader->streams.list[i]->first; slot; slot = slot->next) {
			if (slot->state == SLOT_FILLING && slot->fill_state == MADE &&
			    position_compare(&slot->at, floor) < 0)
				return slot;
		}
	}
	return NULL;
}

static void publish_complete(struct feed *f)
{
	struct position floor = { 0 };
	struct slot *slot;
	/* Each batch may change everything. */
	while (find_floor(f, &floor) && (slot = find_complete(f, &floor)))
		loader_source_done(f->loader, slot);
}

/* ---- whose turn it is ---- */

struct turn {
	struct stream *stream;
	const struct position *at; /* NULL: no rank is active */
	struct slot *slot;         /* NULL: the stream has no free slot */
};

/* False: a rank has not come yet. */
static bool find_turn(struct feed *f, struct turn *t)
{
	*t = (struct turn){ 0 };
	for (uint32_t i = 0; i < f->loader->streams.n; i++) {
		struct stream *s = f->loader->streams.list[i];
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
	return f->loader->streams.n == feed_world(f);
}

/* Whether `to` is a later batch of the epoch that the producer is in. */
static bool goes_on(const struct feed *f, const struct position *to)
{
	return f->made_any && to->epoch == f->at.epoch && to->step >= f->at.step;
}

/* Any producer can begin an epoch, at a step of its first round, whose first ranks may have left. */
static bool is_reachable(const struct feed *f, const struct position *to)
{
	return f->caps.resumable || to->step < feed_world(f) || goes_on(f, to);
}

/* Whether a pending answer is needed first: it may show that the producer skipped the cancelled batches. */
static bool has_to_wait(const struct feed *f, const struct position *to)
{
	return f->first && to->step && !f->caps.resumable && !goes_on(f, to);
}

/* The epoch is begun, possibly again. If it may differ from the last time, no rank gets further batches of the earlier
 * run, and the feed does not take this run's length from it. */
static void begin_epoch(struct feed *f, uint64_t epoch)
{
	forget_end(f, epoch);
	for (uint32_t i = 0; i < f->loader->streams.n && !f->caps.resumable; i++) {
		for (struct slot *slot = f->loader->streams.list[i]->first; slot; slot = slot->next) {
			if (slot->state == SLOT_FILLING && slot->at.epoch == epoch && !slot->last)
				want_again(f, slot);
		}
	}
}

/* Appends the next pending fill. NULL: not now, or never. */
static struct feed_fill *add_fill(struct feed *f, const struct position *to)
{
	if (has_to_wait(f, to))
		return NULL;
	if (!is_reachable(f, to)) {
		f->ops->cannot(f, to->epoch, to->step);
		return NULL;
	}
	struct feed_fill *fill = malloc(sizeof(*fill));
	if (!fill) {
		loader_fail(f->loader, "out of memory");
		return NULL;
	}
	if (!f->made_any || to->epoch != f->at.epoch || to->step < f->at.step)
		begin_epoch(f, to->epoch);
	*fill = (struct feed_fill){ .number = f->next_number++, .at = *to };
	push_fill(f, fill);
	f->made_any = true;
	f->at = *to;
	return fill;
}

static struct position batch_of(const struct feed *f, const struct turn *t)
{
	return (struct position){ .epoch = t->at->epoch, .step = t->at->step * feed_world(f) + t->stream->number };
}

static bool feed_ask(struct feed *f, const struct turn *t)
{
	struct position to = batch_of(f, t);
	struct feed_fill *fill = add_fill(f, &to);
	if (!fill)
		return false;
	fill->slot = t->slot;
	t->slot->fill_state = ASKED;
	f->at.step++;
	f->ops->fill(f, fill->number, t->stream->number, t->slot, to.epoch, to.step);
	return true;
}

/* ---- going on ---- */

/* Whether the epoch is known to have no such batch. A rank at the beginning of the epoch may be repeating it, and then
 * the length may differ. */
static bool feed_turn_is_over(const struct feed *f, const struct turn *t)
{
	return feed_is_over(f, t->at) && (t->at->step > 0 || (f->made_any && t->at->epoch == f->at.epoch));
}

/* False: nothing more can be asked for. */
static bool ask_next(struct feed *f)
{
	struct turn t;
	if (!find_turn(f, &t))
		return false;
	if (!t.slot)
		return false;
	if (!feed_turn_is_over(f, &t))
		return feed_ask(f, &t);
	mark_end(f, t.stream, t.slot);
	publish_complete(f);
	return true;
}

static void ask_all(struct feed *f)
{
	while (!f->stopped && !f->loader->failed && feed_n_asked(f) < FEED_MAX_ASKED && ask_next(f))
		;
}

static void on_kick(uv_timer_t *timer)
{
	struct feed *f = timer->data;
	finish_dropped(f);
	publish_complete(f);
	f->ops->look(f);
	ask_all(f);
}

static void feed_kick(struct feed *f)
{
	if (!uv_is_closing((uv_handle_t *)&f->kick))
		uv_timer_start(&f->kick, on_kick, 0, 0);
}

/* ---- the producer's answers ---- */

static void feed_note_progress(struct feed *f, const struct feed_fill *fill, const struct feed_answer *a)
{
	uint64_t k = fill->at.step;
	if (a->outcome != FEED_SKIPPED) {
		f->reached = fill->at;
		f->reached.step += a->outcome == FEED_MADE;
		f->reached_any = true;
	}
	if (!f->first) {
		f->at = f->reached;
		f->made_any = f->reached_any;
	}
	uint64_t n = a->n_batches ? a->n_batches : k;
	if ((a->outcome == FEED_MADE && k >= f->caps.n_batches) || (a->outcome == FEED_END && n < f->caps.n_batches))
		f->caps.n_batches = 0;
}

bool feed_is_wanted(const struct feed *f)
{
	return f->first && f->first->slot && f->first->slot->state == SLOT_FILLING;
}

static void feed_take(struct feed *f, const struct feed_fill *fill, const struct feed_answer *a)
{
	struct slot *slot = fill->slot;
	if (!slot || slot->state == SLOT_DROPPED)
		large_batch_destroy(a->large);
	if (slot && slot->state == SLOT_DROPPED) {
		loader_source_done(f->loader, slot);
	} else if (slot && a->outcome == FEED_MADE) {
		slot->fill_state = MADE;
		slot->n_rows = a->n_rows;
		slot->payload_bytes = a->n_bytes;
		slot->round_complete = is_whole(f, &slot->at);
		slot_set_large(slot, a->large);
	} else if (slot && a->outcome == FEED_SKIPPED) {
		slot->fill_state = WANTED; /* skipped although not cancelled: asked for again */
	} else if (slot && a->outcome == FEED_END) {
		end_epoch(f, fill->at.epoch, fill->at.step, a->n_batches);
	}
	if (a->outcome == FEED_MADE) /* whether it is still wanted or not */
		note_whole(f, fill->at.epoch, fill->at.step + 1);
}

int feed_answered(struct feed *f, uint64_t number, const struct feed_answer *answer)
{
	if (!f->first || f->first->number != number || f->stopped) {
		large_batch_destroy(answer->large);
		return -EPROTO;
	}
	struct feed_fill fill = *f->first;
	free_first(f);
	feed_note_progress(f, &fill, answer);
	feed_take(f, &fill, answer);
	publish_complete(f);
	ask_all(f);
	return 0;
}

/* ---- life ---- */

int feed_create(uv_loop_t *loop, struct loader *loader, const struct feed_ops *ops, void *owner,
		const struct producer_caps *caps, uint64_t first_number, struct feed **out)
{
	struct feed *f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->source.ops = &source_ops;
	f->source.goes_back = caps->resumable;
	f->ops = ops;
	f->owner = owner;
	f->loader = loader;
	f->caps = *caps;
	f->next_number = first_number;
	uv_timer_init(loop, &f->kick);
	f->kick.data = f;
	*out = f;
	return 0;
}

static void on_timer_closed(uv_handle_t *h)
{
	struct feed *f = h->data;
	while (f->first)
		free_first(f);
	free(f);
}

void feed_close(struct feed *f)
{
	f->stopped = true;
	uv_close((uv_handle_t *)&f->kick, on_timer_closed);
}

void feed_stop(struct feed *f)
{
	f->stopped = true;
	/* No answer will come, and the producer no longer writes: cancelling these slots need not wait. */
	for (struct feed_fill *fill = f->first; fill; fill = fill->next) {
		struct slot *slot = fill->slot;
		fill->slot = NULL;
		if (slot && slot->state == SLOT_DROPPED) {
			slot->next = f->dropped;
			f->dropped = slot;
		} else if (slot) {
			slot->fill_state = WANTED;
		}
	}
	feed_kick(f);
}
