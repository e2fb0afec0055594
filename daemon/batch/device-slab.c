/* See device-slab.h. Nothing here waits: opening, copying and closing complete through the loop, and each holds what it
 * needs until then. */
#include "batch/device-slab.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/thread-kind.h"

struct device_slab *device_slab_find(const struct slots *s, const unsigned char uuid[GPU_UUID_BYTES],
				     enum gpu_share share)
{
	assert(is_loop_thread());
	for (unsigned i = 0; i < s->n_device_slabs; i++) {
		struct device_slab *m = s->device_slabs[i];
		if (!m->failed && m->share == share && !memcmp(m->uuid, uuid, GPU_UUID_BYTES))
			return m;
	}
	return NULL;
}

/* ---- opening ---- */

static void remove_device_slab(struct device_slab *m)
{
	struct slots *s = m->slots;
	unsigned i = 0;
	while (i < s->n_device_slabs && s->device_slabs[i] != m)
		i++;
	assert(i < s->n_device_slabs);
	s->device_slabs[i] = s->device_slabs[--s->n_device_slabs];
	charge_release(&m->fd);
	free(m->copy);
	free(m);
}

/* The GPU has let go of a device slab that ends before its slots. */
static void on_slab_gone(void *arg, bool lost)
{
	struct device_slab *m = arg;
	struct slots *s = m->slots;
	s->device_slabs_lost |= lost;
	remove_device_slab(m);
	slots_unref(s);
}

static void on_slab_open(void *arg, struct gpu_slab *slab, int result, const char *why)
{
	struct device_slab *m = arg;
	struct slots *s = m->slots;
	void (*on_open)(void *, struct device_slab *, int, const char *) = m->on_open;
	void *on_open_arg = m->arg;
	if (result == GPU_E_LATE) {
		m->failed = true; /* it is not found any more; it and the slots stay until on_slab_gone */
		on_open(on_open_arg, NULL, GPU_E_REFUSED, why);
		return;
	}
	m->slab = slab;
	if (slab && slab->numa_node >= 0)
		slot_nodes_moved(&s->nodes, slab->numa_node);
	if (!slab) {
		remove_device_slab(m);
		m = NULL;
	}
	on_open(on_open_arg, m, result, why);
	slots_unref(s);
}

static struct device_slab *make_device_slab(struct slots *s, const unsigned char uuid[GPU_UUID_BYTES])
{
	struct device_slab *m = calloc(1, sizeof(*m));
	struct slot_copy *copy = calloc(s->n, sizeof(*copy));
	if (!m || !copy) {
		free(m);
		free(copy);
		return NULL;
	}
	m->slots = s;
	m->copy = copy;
	memcpy(m->uuid, uuid, GPU_UUID_BYTES);
	for (uint32_t i = 0; i < s->n; i++) {
		copy[i].slot = &s->slot[i];
		copy[i].device_slab = m;
	}
	return m;
}

int device_slab_open(struct slots *s, struct gpus *g, const unsigned char uuid[GPU_UUID_BYTES], enum gpu_share share,
		     struct charge *fd, void (*on_open)(void *arg, struct device_slab *m, int result, const char *why),
		     void *arg, char *why)
{
	assert(is_loop_thread());
	assert(on_open && why);
	if (s->n_device_slabs == SLOTS_MAX_MIRRORS) {
		strcpy(why, "these batches have 16 copies on GPUs already");
		return GPU_E_REFUSED;
	}
	struct device_slab *m = make_device_slab(s, uuid);
	if (!m)
		return -ENOMEM;
	m->on_open = on_open;
	m->arg = arg;
	m->share = share;
	struct gpu_slab_params params = { .share = share,
					  .host = s->slab.base,
					  .slot_bytes = s->layout.slot_bytes,
					  .n_slots = s->n,
					  .on_open = on_slab_open,
					  .on_late = on_slab_gone,
					  .arg = m };
	memcpy(params.uuid, uuid, GPU_UUID_BYTES);
	s->device_slabs[s->n_device_slabs++] = m;
	int r = gpu_slab_open(g, &params, why);
	if (r) {
		remove_device_slab(m);
		return r;
	}
	charge_move(&m->fd, fd);
	slots_ref(s);
	return 0;
}

void device_slab_drop(struct device_slab *m)
{
	assert(is_loop_thread());
	assert(m->slab);
	if (m->used || m->failed)
		return;
	struct gpu_slab *slab = m->slab;
	m->failed = true;
	m->slab = NULL;
	slots_ref(m->slots);
	gpu_slab_close(slab, on_slab_gone, m);
}

/* ---- copying ---- */

static void device_slab_on_copied(struct gpu_copy *copy, int result, const char *why)
{
	assert(is_loop_thread());
	struct slot_copy *c = container_of(copy, struct slot_copy, copy);
	struct slot *slot = c->slot;
	struct slots *s = slot->slots;
	assert(c->state == COPY_RUNNING && slot->n_copying > 0);
	c->state = result ? COPY_NONE : COPY_THERE;
	c->device_slab->failed |= result != 0;
	slot->n_copying--;
	c->done(slot, c->device_slab, why);
	if (c->state != COPY_RUNNING)
		copy->seen_ns = 0; /* a trainer that is told of it later has also waited for something else */
	slots_unref(s);
}

/* A producer's batch is one part; the mark of an epoch's end has no part. */
static void set_fed_part(struct gpu_copy *copy, const struct slot *slot)
{
	copy->n_parts = slot->payload_bytes ? 1 : 0;
	copy->part[0].offset = (uint64_t)slot->number * slot->slots->layout.slot_bytes;
	copy->part[0].bytes = slot->payload_bytes;
}

/* Dense fields and indices lie close together when the batch is full; for a short batch, copying the gap after the
 * first field, usually the largest, would waste the bus. Ragged fields stay in host memory. */
static void set_parts(struct gpu_copy *copy, const struct slot *slot)
{
	const struct slot_layout *l = &slot->slots->layout;
	uint64_t begin = (uint64_t)slot->number * l->slot_bytes;
	uint64_t end = l->indices_offset + (uint64_t)slot->n_rows * sizeof(int64_t);
	copy->n_parts = 1;
	copy->part[0].offset = begin;
	copy->part[0].bytes = end;
	if (slot->n_rows == l->batch_size)
		return;
	copy->n_parts = 2;
	copy->part[0].bytes = (uint64_t)slot->n_rows * l->first_row_bytes;
	copy->part[1].offset = begin + l->rest_offset;
	copy->part[1].bytes = end - l->rest_offset;
}

bool device_slab_copy(struct device_slab *m, struct slot *slot,
		      void (*done)(struct slot *slot, struct device_slab *device_slab, const char *why))
{
	assert(is_loop_thread());
	assert(slot->number < m->slots->n && done);
	struct slot_copy *c = &m->copy[slot->number];
	assert(slot->slots == m->slots && slot->state == SLOT_READY);
	if (c->state != COPY_NONE || m->failed || slot->large)
		return false;
	if (slot->slots->slab_number)
		set_fed_part(&c->copy, slot);
	else
		set_parts(&c->copy, slot);
	c->copy.done = device_slab_on_copied;
	c->done = done;
	c->state = COPY_RUNNING;
	m->used = true;
	slot->n_copying++;
	slots_ref(slot->slots);
	gpu_copy_begin(m->slab, &c->copy);
	return true;
}

bool device_slab_has(const struct device_slab *m, const struct slot *slot)
{
	assert(!m || m->slots == slot->slots);
	return !m || slot->large || m->copy[slot->number].state == COPY_THERE;
}

void device_slab_note_published(struct device_slab *m, const struct slot *slot)
{
	assert(is_loop_thread());
	uint64_t seen_ns = m ? m->copy[slot->number].copy.seen_ns : 0;
	if (seen_ns)
		latency_add(&m->handover, uv_hrtime() - seen_ns);
}
