/* See stream-places.h. */
#include "batch/stream-places.h"

#include "batch/loader-spec.h"
#include "batch/stream.h"

uint64_t stream_count_batches(const struct stream *s, uint64_t base)
{
	return s->host->ops->n_batches(s->host, base);
}

static bool is_next(const struct slot *slot, const struct position *at)
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
		if (!is_next(slot, slot->next ? &slot->next->at : &s->next))
			oldest = &s->next;
	}
	return oldest;
}

bool stream_comes_by(const struct stream *s, const struct position *to)
{
	const struct slot *slot = s->first;
	if (to->epoch >= s->next.epoch)
		return to->base == (to->epoch == s->next.epoch ? s->next.base : 0);
	while (slot && slot->at.epoch != to->epoch)
		slot = slot->next;
	return slot && slot->at.base == to->base;
}

bool stream_others_come_by(const struct stream *s, const struct position *to)
{
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		const struct consumer *c = s->consumers[i];
		if (!c || !consumer_is_placed(c))
			continue;
		bool over = c->cursor.step >= stream_count_batches(s, c->cursor.base);
		uint64_t epoch = c->cursor.epoch + over, base = over ? 0 : c->cursor.base;
		if (base != (epoch == to->epoch ? to->base : 0))
			return false;
	}
	return true;
}

static struct position position_after(const struct stream *s, struct position at)
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
			want = position_after(s, want);
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
