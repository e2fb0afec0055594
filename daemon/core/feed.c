/* See feed.h. Everything is found by looking at the streams' lists of slots, which are short; the only memory of its own is the list of fills on their way.
 * Streams call submit and cancel from deep inside, so these only take notes; the work is done in on_kick and feed_answered, where nothing of a stream is on the
 * stack. There the loader is held, as a batch that goes out may be what makes the last trainer leave. */
#include "core/feed.h"

#include <errno.h>
#include <stdlib.h>

#include "core/loader.h"

/* What a submitted slot is in for; struct slot's `fed`. */
enum { WANTED = 1, ASKED, MADE };

#define feed_of(source_ptr) ((struct feed *)(void *)((char *)(source_ptr)-offsetof(struct feed, source)))

static void kick(struct feed *f);

static uint64_t world(const struct feed *f)
{
	return f->loader->n_streams;
}

static bool earlier(const struct position *a, uint32_t rank_a, const struct position *b, uint32_t rank_b)
{
	int order = position_compare(a, b);
	return order ? order < 0 : rank_a < rank_b;
}

/* ---- fills on their way ---- */

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
	f->first = fill->next;
	free(fill);
}

/* What is on its way to that slot is no longer meant for it. */
static void supersede(struct feed *f, const struct slot *slot)
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

/* ---- what streams say ---- */

static void on_submit(struct batch_source *source, struct slot *slot)
{
	slot->fed = WANTED;
	kick(feed_of(source));
}

static void on_cancel(struct batch_source *source, struct slot *slot)
{
	struct feed *f = feed_of(source);
	if (slot->fed == ASKED) { /* somebody may be writing into it: done when the answer is there */
		for (struct feed_fill *fill = f->first; fill; fill = fill->next) {
			if (fill->slot == slot)
				f->ops->cancel(f, fill->number);
		}
		return;
	}
	slot->next = f->dropped;
	f->dropped = slot;
	kick(f);
}

/* It may have been its turn, with every slot in its trainer's hands. */
static void on_left(struct batch_source *source)
{
	kick(feed_of(source));
}

static void finish_dropped(struct feed *f)
{
	while (f->dropped) {
		struct slot *slot = f->dropped;
		f->dropped = slot->next;
		slot->next = NULL;
		loader_source_done(f->loader, slot);
	}
}

static void on_close(struct batch_source *source)
{
	struct feed *f = feed_of(source);
	f->stopped = true;
	finish_dropped(f);
	/* The producer may still write into these. Nobody else will ever use that memory, so there is nothing to wait for. */
	for (struct feed_fill *fill = f->first; fill; fill = fill->next) {
		struct slot *slot = fill->slot;
		fill->slot = NULL;
		if (slot)
			loader_source_done(f->loader, slot);
	}
}

static const struct batch_source_ops source_ops = { .submit = on_submit, .cancel = on_cancel, .left = on_left, .close = on_close };

/* ---- the end of an epoch ---- */

bool feed_is_over(const struct feed *f, const struct position *at)
{
	for (unsigned i = 0; i < FEED_ENDS; i++) {
		if (f->ends[i].known && f->ends[i].epoch == at->epoch)
			return at->step >= f->ends[i].step;
	}
	return false;
}

static void forget_end(struct feed *f, uint64_t epoch)
{
	for (unsigned i = 0; i < FEED_ENDS; i++) {
		if (f->ends[i].epoch == epoch)
			f->ends[i].known = false;
	}
}

static void note_end(struct feed *f, uint64_t epoch, uint64_t step)
{
	unsigned i = f->n_ends++ % FEED_ENDS;
	forget_end(f, epoch);
	f->ends[i].epoch = epoch;
	f->ends[i].step = step;
	f->ends[i].known = true;
}

/* The slot holds the mark; those behind it are for the next epoch. */
static void mark_end(struct feed *f, struct stream *s, struct slot *slot)
{
	for (struct slot *behind = slot; behind; behind = behind->next) {
		supersede(f, behind);
		behind->fed = WANTED;
		behind->last = false; /* it may have held a mark: of an epoch gone through once more, which ends earlier this time */
	}
	slot->fed = MADE;
	slot->n_rows = 0;
	slot->fed_bytes = 0;
	slot->last = true;
	stream_end_epoch(s, slot);
}

static void end_epoch(struct feed *f, const struct position *at)
{
	note_end(f, at->epoch, at->step);
	for (uint32_t r = 0; r < world(f); r++) {
		struct stream *s = &f->loader->streams[r];
		for (struct slot *slot = s->first; slot; slot = slot->next) {
			if (slot->state == SLOT_FILLING && !slot->last && slot->at.epoch == at->epoch && slot->at.step >= at->step) {
				mark_end(f, s, slot);
				break;
			}
		}
	}
}

/* ---- the rest of an epoch ---- */

/* Whether a rank is not there to be asked for its batch of this round: it has left, or stands behind it, or has been told that the epoch is over before. */
static bool somebody_is_elsewhere(const struct feed *f, const struct position *at)
{
	for (uint32_t r = 0; r < world(f); r++) {
		const struct stream *s = &f->loader->streams[r];
		const struct slot *slot = s->first;
		while (slot && position_compare(&slot->at, at))
			slot = slot->next;
		if (slot && slot->state == SLOT_READY && !slot->last)
			return false; /* the round has gone out */
		if (!s->positioned || (slot ? slot->last : position_compare(&s->next, at) > 0))
			return true;
	}
	return false;
}

/* The round is the rest of an epoch, too few batches for all ranks, which goes to nobody. Among ranks that are all there it shows by itself. */
static bool is_rest(const struct feed *f, const struct position *at)
{
	return f->n_batches && at->step >= f->n_batches / world(f) && somebody_is_elsewhere(f, at);
}

/* ---- batches that go out ---- */

/* The earliest step that some rank has still to get from the producer. False: no rank is active. */
static bool find_floor(const struct feed *f, struct position *floor)
{
	bool any = false;
	for (uint32_t r = 0; r < world(f); r++) {
		const struct stream *s = &f->loader->streams[r];
		const struct slot *slot = s->first;
		if (!s->positioned)
			continue;
		while (slot && (slot->state != SLOT_FILLING || slot->fed == MADE))
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
	for (uint32_t r = 0; r < world(f); r++) {
		for (struct slot *slot = f->loader->streams[r].first; slot; slot = slot->next) {
			if (slot->state == SLOT_FILLING && slot->fed == MADE && position_compare(&slot->at, floor) < 0)
				return slot;
		}
	}
	return NULL;
}

static void publish_complete(struct feed *f)
{
	struct position floor = { 0 };
	struct slot *slot;
	/* Each may change everything. */
	while (!f->loader->closing && find_floor(f, &floor) && (slot = find_complete(f, &floor))) {
		if (!slot->last && is_rest(f, &slot->at))
			mark_end(f, slot->stream, slot); /* made while all were there */
		loader_source_done(f->loader, slot);
	}
}

/* ---- whose turn it is ---- */

struct turn {
	uint32_t rank;
	const struct position *at;
	struct slot *slot;          /* NULL: it has none free */
};

static bool find_turn(struct feed *f, struct turn *t)
{
	*t = (struct turn){ 0 };
	for (uint32_t r = 0; r < world(f); r++) {
		struct stream *s = &f->loader->streams[r];
		struct slot *slot = s->first;
		if (!s->positioned) {
			if (!f->seen[r])
				return false; /* it is still to come, and what it wants may be the first */
			continue;
		}
		f->seen[r] = true;
		while (slot && (slot->state != SLOT_FILLING || slot->fed != WANTED))
			slot = slot->next;
		const struct position *at = slot ? &slot->at : &s->next;
		if (!t->at || earlier(at, r, t->at, t->rank))
			*t = (struct turn){ .rank = r, .at = at, .slot = slot };
	}
	return t->at && t->slot;
}

/* Whether the producer comes there by going on: to a later batch of the epoch it is in, or to the first round of any; of that the first ranks may have left. */
static bool goes_on(const struct feed *f, const struct position *to)
{
	return to->step < world(f) || (f->made_any && to->epoch == f->at.epoch && to->step >= f->at.step);
}

static bool ask(struct feed *f, const struct turn *t)
{
	struct position to = { .epoch = t->at->epoch, .step = t->at->step * world(f) + t->rank };
	struct feed_fill *fill;
	if (!f->resumable && to.step && !goes_on(f, &to)) {
		f->ops->cannot(f, to.epoch, to.step);
		return false;
	}
	fill = malloc(sizeof(*fill));
	if (!fill) {
		loader_fail(f->loader, "out of memory");
		return false;
	}
	if (!f->made_any || to.epoch != f->at.epoch || to.step < f->at.step)
		forget_end(f, to.epoch); /* it is gone through once more */
	*fill = (struct feed_fill){ .number = f->next_number++, .rank = t->rank, .at = to, .slot = t->slot };
	push_fill(f, fill);
	t->slot->fed = ASKED;
	f->made_any = true;
	f->at = (struct position){ .epoch = to.epoch, .step = to.step + 1 };
	f->ops->fill(f, fill->number, t->rank, t->slot, to.epoch, to.step);
	return true;
}

static void ask_all(struct feed *f)
{
	struct turn t = { 0 };
	while (!f->stopped && !f->loader->closing && !f->loader->failed && feed_n_asked(f) < FEED_MAX_ASKED && find_turn(f, &t)) {
		if ((feed_is_over(f, t.at) && f->made_any && t.at->epoch == f->at.epoch) || is_rest(f, t.at)) {
			mark_end(f, &f->loader->streams[t.rank], t.slot);
			publish_complete(f);
		} else if (!ask(f, &t)) {
			return;
		}
	}
}

static void on_kick(uv_timer_t *timer)
{
	struct feed *f = timer->data;
	loader_hold(f->loader);
	finish_dropped(f);
	publish_complete(f);
	ask_all(f);
	loader_let_go(f->loader);
}

static void kick(struct feed *f)
{
	if (!uv_is_closing((uv_handle_t *)&f->kick) && !uv_is_active((uv_handle_t *)&f->kick))
		uv_timer_start(&f->kick, on_kick, 0, 0);
}

/* ---- what the producer says ---- */

static void take(struct feed *f, struct slot *slot, enum feed_answer answer, uint32_t n_rows, uint64_t n_bytes)
{
	if (slot->state == SLOT_DROPPED) {
		loader_source_done(f->loader, slot);
	} else if (answer == FEED_MADE) {
		slot->fed = MADE;
		slot->n_rows = n_rows;
		slot->fed_bytes = n_bytes;
	} else if (answer == FEED_END) {
		struct position at = slot->at;
		end_epoch(f, &at);
	} else {
		slot->fed = WANTED; /* skipped, although it was not cancelled: it is asked for once more */
	}
}

int feed_answered(struct feed *f, uint64_t number, enum feed_answer answer, uint32_t n_rows, uint64_t n_bytes)
{
	if (!f->first || f->first->number != number || f->stopped)
		return -EPROTO;
	struct slot *slot = f->first->slot;
	free_first(f);
	if (!slot)
		return 0;
	loader_hold(f->loader);
	take(f, slot, answer, n_rows, n_bytes);
	publish_complete(f);
	ask_all(f);
	loader_let_go(f->loader);
	return 0;
}

/* ---- life ---- */

int feed_create(uv_loop_t *loop, struct loader *loader, const struct feed_ops *ops, void *owner, bool resumable, uint64_t n_batches,
		uint64_t first_number, struct feed **out)
{
	struct feed *f = calloc(1, sizeof(*f));
	bool *seen = calloc(loader->n_streams, sizeof(*seen));
	if (!f || !seen) {
		free(f);
		free(seen);
		return -ENOMEM;
	}
	f->source.ops = &source_ops;
	f->source.goes_back = resumable;
	f->ops = ops;
	f->owner = owner;
	f->loader = loader;
	f->resumable = resumable;
	f->n_batches = n_batches;
	f->next_number = first_number;
	f->seen = seen;
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
	free(f->seen);
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
	/* Nobody answers any more; who cancels these slots finds nobody writing. */
	for (struct feed_fill *fill = f->first; fill; fill = fill->next) {
		struct slot *slot = fill->slot;
		fill->slot = NULL;
		if (slot && slot->state == SLOT_DROPPED) {
			slot->next = f->dropped;
			f->dropped = slot;
		} else if (slot) {
			slot->fed = WANTED;
		}
	}
	kick(f);
}
