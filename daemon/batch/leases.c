/* See leases.h. */
#include "batch/leases.h"

#include <assert.h>

#include "batch/stream-impl.h"
#include "batch/stream-list.h"
#include "base/thread-kind.h"

void lease_begin(struct consumer *c, struct slot *slot)
{
	assert(is_loop_thread());
	assert(slot->number < c->slots->n);
	if (c->group) {
		c->stream->n_held += !(slot->holders & c->stream->members);
		slot->holders |= stream_bit(c->rank);
	}
	assert(slot->state == SLOT_READY && slot->slots == c->slots);
	c->leases[slot->number]++;
	c->n_leases++;
	c->stream->n_unheld -= slot->n_leases++ == 0;
	slot->pending &= ~stream_bit(c->stream->n_consumers > 1 ? c->rank : 0);
}

void lease_end(struct consumer *c, struct slot *slot)
{
	assert(is_loop_thread());
	assert(slot->slots == c->slots);
	assert(c->leases[slot->number] > 0 && c->n_leases > 0 && slot->n_leases > 0 && slot->state == SLOT_READY);
	if (--c->leases[slot->number] == 0 && c->group) {
		uint64_t others = c->stream ? c->stream->members & ~stream_bit(c->rank) : 0;
		slot->holders &= ~stream_bit(c->rank);
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
	assert(is_loop_thread());
	assert(c->slots && c->leases);
	if (number >= c->slots->n || !c->leases[number] || c->slots->slot[number].generation != generation)
		return STREAM_E_INVALID;
	lease_end(c, &c->slots->slot[number]);
	return 0;
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
