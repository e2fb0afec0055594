/* See session-batches.h. */
#include "server/session-batches.h"

#include <errno.h>
#include <stdio.h>

#include "batch/group.h"
#include "batch/large-batch.h"
#include "server/job.h"
#include "server/sampler.h"
#include "server/session-fail.h"
#include "server/session-ring.h"
#include "base/container.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/trace.h"

#define CODE(name) BATCHD__WIRE__ERROR_CODE__##name

/* One log record per session: the group has left this trainer behind, or no longer waits for it. */
static void note_apart(struct session *s, bool apart)
{
	struct group *g = s->consumer.group;
	if (!g || g->policy != GROUP_DETACH || !apart || s->told_apart || !s->was_together) {
		s->was_together |= !apart;
		return;
	}
	s->told_apart = true;
	log_record(LOG_LEVEL_INFO, "trainer-detached",
		   "session %llu: %s (pid %d) is too slow for the others of share job %s and goes on by itself",
		   (unsigned long long)s->number, s->program, (int)s->pid, s->job->spec.job);
}

/* Before the Batch: the ring and the socket have no order between them, and the trainer waits for this one when it
 * takes the batch. */
static void send_large(struct session *s, const struct slot *slot)
{
	Batchd__Wire__Large m = BATCHD__WIRE__LARGE__INIT;
	m.slot = slot->number;
	m.generation = slot->generation;
	m.n_bytes = slot->large->n_bytes;
	peer_send(s->peer, WIRE_SERVER(LARGE, large, &m), &slot->large->fd, 1);
}

static int session_publish(struct consumer *c, const struct slot *slot)
{
	struct session *s = container_of(c, struct session, consumer);
	if (s->state != SESSION_ATTACHED)
		return -EPIPE;
	if (slot->large && session_ring_is_full(s))
		return -EAGAIN;
	if (c->waiting)
		sampler_before_handover(s->engine);
	if (slot->large)
		send_large(s, slot);
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;
	b.seek = c->seek;
	b.slot = slot->number;
	b.generation = slot->generation;
	b.epoch = slot->at.epoch;
	b.step = slot->at.step;
	b.n_rows = slot->n_rows;
	b.n_padding = slot->n_padding;
	b.n_replaced = atomic_load_explicit(&slot->n_replaced, memory_order_relaxed);
	b.last = slot->last;
	b.n_skipped = c->n_missed;
	b.apart = group_is_apart(c);
	b.large_bytes = slot->large ? slot->large->n_bytes : 0;
	note_apart(s, b.apart);
	log_record(LOG_LEVEL_DEBUG, "batch", "session %llu gets epoch %llu, step %llu in slot %u, generation %llu",
		   (unsigned long long)s->number, (unsigned long long)b.epoch, (unsigned long long)b.step, b.slot,
		   (unsigned long long)b.generation);
	PROBE(slot_publish, s->number, b.slot, b.generation);
	if (trace_is_on())
		trace_add(TRACE_PUBLISH, 0, 0, (uintptr_t)&slot->job, b.generation, s->number);
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH;
	m.batch = &b;
	return session_ring_put(s, &m);
}

static void session_on_device_slab_failed(struct consumer *c, const char *why)
{
	struct session *s = container_of(c, struct session, consumer);
	char text[GPU_REASON_BYTES + 64];
	snprintf(text, sizeof(text), "a batch could not be copied to the GPU: %s; open again", why);
	session_fail(s, CODE(GPU_LOST), "", text);
}

const struct consumer_ops session_consumer_ops = { .publish = session_publish,
						   .device_slab_failed = session_on_device_slab_failed,
						   .look = session_ring_look,
						   .arm = session_ring_arm };
