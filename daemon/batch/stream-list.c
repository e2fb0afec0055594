/* See stream-list.h. */
#include "batch/stream-list.h"

#include <assert.h>

#include "batch/source.h"
#include "batch/stream.h"
#include "base/thread-kind.h"

void stream_append(struct stream *s, struct slot *slot)
{
	assert(is_loop_thread());
	assert(slot->state == SLOT_FILLING);
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
	assert(slot->stream == s);
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
	assert(is_loop_thread());
	if (!slot_is_unneeded(slot))
		return;
	list_remove(s, slot);
	slot_settle(slot);
}

void stream_drop_from(struct stream *s, struct slot *slot)
{
	assert(!slot || slot->stream == s);
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
