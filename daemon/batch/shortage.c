/* See shortage.h. */
#include "batch/shortage.h"

#include "batch/loader-spec.h"
#include "batch/source.h"

static uint64_t bit_of(const struct stream *s, const struct consumer *c)
{
	return (uint64_t)1 << (s->n_consumers > 1 ? c->rank & 63 : 0);
}

/* No slot is free: whether another trainer keeps one. */
static bool is_kept_by_others(const struct stream *s, const struct consumer *c)
{
	for (uint32_t i = 0; i < s->slots->n_made; i++) {
		const struct slot *slot = &s->slots->slot[i];
		uint32_t own = c->slots == s->slots ? c->leases[i] : 0;
		if (slot->n_leases > own || (slot->state == SLOT_READY && (slot->pending & ~bit_of(s, c))))
			return true;
	}
	return false;
}

static enum shortage lacks_rows(const struct batch_source *source)
{
	if (!source->ops->is_asked)
		return SHORTAGE_ROWS;
	return source->ops->is_asked(source) ? SHORTAGE_PRODUCER : SHORTAGE_PEER;
}

/* The batch is here, and the trainer is about to be told: what came last. */
static enum shortage lacked(const struct stream *s, const struct consumer *c)
{
	if (c->device_slab)
		return SHORTAGE_COPY;
	return s->host->source->ops->is_asked ? SHORTAGE_PRODUCER : SHORTAGE_ROWS;
}

/* No slot has been begun for the batch. */
static enum shortage unbegun(const struct stream *s, const struct consumer *c)
{
	const struct loader_spec *spec = s->host->spec;
	if (spec->own_batches && !s->own_first)
		return SHORTAGE_ORDER;
	if (slots_find_free(s->slots) && !spec->own_batches && !spec->served && !s->group)
		return SHORTAGE_ORDER; /* its epoch's is being made */
	return is_kept_by_others(s, c) ? SHORTAGE_PEER : SHORTAGE_MEMORY;
}

enum shortage shortage_of(const struct consumer *c)
{
	const struct stream *s = c->stream;
	if (!consumer_is_placed(c))
		return SHORTAGE_NONE;
	if (c->state == CONSUMER_AWAITING || !s)
		return SHORTAGE_PEER;
	if (!s->positioned || !s->slots)
		return SHORTAGE_NONE;
	for (const struct slot *slot = s->first; slot; slot = slot->next) {
		if (position_compare(&slot->at, &c->cursor) < 0)
			continue;
		if (slot->state == SLOT_FILLING)
			return lacks_rows(s->host->source);
		if (!(slot->pending & bit_of(s, c)))
			continue;
		if (c->n_leases >= consumer_max_leases(c))
			return SHORTAGE_MEMORY;
		return lacked(s, c);
	}
	return unbegun(s, c);
}
