/* See stream-waking.h. */
#include "batch/stream-waking.h"

#include <assert.h>

#include "batch/pool/pool.h"
#include "batch/stream.h"
#include "base/thread-kind.h"

void stream_look(struct stream *s)
{
	assert(is_loop_thread());
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		struct consumer *c = s->consumers[i];
		if (c)
			c->ops->look(c);
	}
}

/* A consumer whose trainer works on its last batch, or has none: the trainer will ask next. */
static bool is_starving(const struct consumer *c)
{
	return c->state == CONSUMER_PLACED && c->n_unread == 0;
}

bool stream_arm(struct stream *s)
{
	assert(is_loop_thread());
	assert(s->slots);
	uint32_t n_making = 0;
	bool starving = false, again = false, large = false;
	for (struct slot *slot = s->first; slot; slot = slot->next) {
		n_making += slot->state == SLOT_FILLING;
		large |= slot->large != NULL;
	}
	for (uint32_t i = 0; i < s->n_consumers; i++)
		starving |= s->consumers[i] && is_starving(s->consumers[i]);
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		struct consumer *c = s->consumers[i];
		if (!c)
			continue;
		uint32_t window = c->quota ? c->quota : s->slots->n_made;
		again |= c->ops->arm(c, large || (starving && n_making < 2) ? 1 : (window + 1) / 2);
	}
	return again;
}

void stream_update_urgency(struct stream *s)
{
	assert(is_loop_thread());
	int n_ready = 0;
	bool waiting = false, soon = false;
	for (struct slot *slot = s->first; slot; slot = slot->next)
		n_ready += slot->state == SLOT_READY;
	for (uint32_t i = 0; i < s->n_consumers; i++) {
		const struct consumer *c = s->consumers[i];
		if (c && c->state == CONSUMER_AWAITING)
			continue; /* it waits for the other trainers to get there, not for the workers */
		waiting |= c && c->waiting;
		/* A trainer with unread batches wakes us itself. Batches for a GPU must still be copied, so wake early
		 * for those. */
		soon |= c && (is_starving(c) || (consumer_is_placed(c) && c->device_slab));
	}
	pool_queue_set_urgency(s->host->pool, &s->queue, waiting ? 0 : n_ready + 1, waiting || soon);
}
