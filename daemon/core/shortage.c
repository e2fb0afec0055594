/* See shortage.h. */
#include "core/shortage.h"

#include <uv.h>

#include "core/device-slab.h"
#include "core/loader-spec.h"
#include "core/source.h"
#include "util/clock.h"

static uint64_t bit_of(const struct stream *s, const struct consumer *c)
{
	return (uint64_t)1 << (s->n_consumers > 1 ? c->rank & 63 : 0);
}

/* The trainer has nothing left to take, as far as is known. */
static bool may_wait(const struct consumer *c)
{
	return c->positioned && (c->waiting || c->n_unread == 0);
}

void shortage_begin(struct consumer *c)
{
	trainer_clock_begin(&c->clock, uv_hrtime());
}

static void account(struct consumer *c, uint64_t now_ns, const struct pool_usage *usage)
{
	const struct stream *s = c->stream ? c->stream : c->home;
	if (now_ns > c->clock.states.at_ns)
		trainer_clock_add(&c->clock, now_ns, usage, s ? s->host->source : NULL);
}

static void get_usage(const struct stream *s, struct pool_usage *usage)
{
	*usage = (struct pool_usage){ 0 };
	if (s)
		pool_get_usage(s->host->pool, &s->queue, usage);
}

void shortage_account(struct consumer *c)
{
	struct pool_usage usage;
	const struct stream *s = c->stream ? c->stream : c->home;
	if (!s)
		c->clock.shortage = SHORTAGE_NONE;
	get_usage(s, &usage);
	account(c, uv_hrtime(), &usage);
	if (c->clock.shortage == SHORTAGE_ROWS)
		c->clock.usage = usage;
	if (c->clock.shortage == SHORTAGE_PRODUCER)
		c->clock.unasked_ns = s->host->source->ops->unasked_ns(s->host->source, c->clock.states.at_ns);
}

void shortage_account_stream(struct stream *s)
{
	struct pool_usage usage = { 0 };
	uint64_t now_ns = 0;
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		struct consumer *c = s->consumers[i];
		if (!c || (c->clock.shortage == SHORTAGE_NONE && !may_wait(c)))
			continue;
		if (!now_ns)
			now_ns = clock_now_ns();
		if (!trainer_clock_defer(&c->clock, now_ns)) {
			if (!usage.at_ns)
				get_usage(s, &usage);
			account(c, usage.at_ns, &usage);
			c->clock.usage = usage;
		}
		c->clock.shortage = SHORTAGE_NONE;
	}
}

/* ---- reasons ---- */

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

static enum shortage shortage_of(const struct stream *s, const struct consumer *c)
{
	if (c->waits_for_epoch)
		return SHORTAGE_PEER;
	if (!s->positioned || !s->slots)
		return SHORTAGE_NONE;
	for (const struct slot *slot = s->first; slot; slot = slot->next) {
		if (position_compare(&slot->at, &c->cursor) < 0)
			continue;
		if (slot->state == SLOT_FILLING)
			return s->host->source->ops->unasked_ns ? SHORTAGE_PRODUCER : SHORTAGE_ROWS;
		if (!(slot->pending & bit_of(s, c)))
			continue;
		if (c->n_leases >= consumer_max_leases(c))
			return SHORTAGE_MEMORY;
		return device_slab_has(c->device_slab, slot) ? SHORTAGE_NONE : SHORTAGE_COPY;
	}
	return unbegun(s, c);
}

/* What the workers did is counted from the moment up to which the trainer's time is accounted, which usually was the
 * beginning of this step. usage: fetched once for the stream. */
static void begin_shortage_of_rows(const struct stream *s, struct consumer *c, struct pool_usage *usage)
{
	if (c->clock.usage.at_ns >= c->clock.states.at_ns)
		return;
	if (!usage->at_ns)
		get_usage(s, usage);
	c->clock.usage = *usage;
}

void shortage_note(struct stream *s)
{
	struct pool_usage usage = { 0 };
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		struct consumer *c = s->consumers[i];
		if (!c || !may_wait(c))
			continue;
		enum shortage shortage = shortage_of(s, c);
		if (shortage == SHORTAGE_ROWS)
			begin_shortage_of_rows(s, c, &usage);
		if (shortage == SHORTAGE_PRODUCER)
			c->clock.unasked_ns = s->host->source->ops->unasked_ns(s->host->source, uv_hrtime());
		c->clock.shortage = shortage;
	}
}
