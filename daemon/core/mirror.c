/* See mirror.h. Nothing here waits: opening, copying and closing come back through the loop, and each holds what it
 * needs until then. */
#include "core/mirror.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/container.h"

struct mirror *mirror_find(const struct slots *s, const unsigned char uuid[GPU_UUID_BYTES], enum gpu_share share)
{
	for (unsigned i = 0; i < s->n_mirrors; i++) {
		struct mirror *m = s->mirrors[i];
		if (!m->failed && m->share == share && !memcmp(m->uuid, uuid, GPU_UUID_BYTES))
			return m;
	}
	return NULL;
}

/* ---- what the slots say ---- */

static void on_begin(struct slots *s, const struct slot *slot)
{
	for (unsigned i = 0; i < s->n_mirrors; i++) {
		assert(s->mirrors[i]->copy[slot->number].state != COPY_RUNNING);
		s->mirrors[i]->copy[slot->number].state = COPY_NONE;
	}
}

static void on_slab_closed(void *arg, bool lost)
{
	struct slots *s = arg;
	s->mirrors_lost |= lost;
	if (--s->n_mirrors > 0)
		return;
	s->mirrors_finished(s, s->mirrors_lost);
}

static void on_close(struct slots *s, void (*finished)(struct slots *s, bool lost))
{
	unsigned n = s->n_mirrors;
	s->mirrors_finished = finished;
	for (unsigned i = 0; i < n; i++) {
		struct gpu_slab *slab = s->mirrors[i]->slab;
		slab->left = s->mirrors[i]->left;
		charge_end(&s->mirrors[i]->fd);
		free(s->mirrors[i]->copy);
		free(s->mirrors[i]);
		gpu_slab_close(slab, on_slab_closed, s);
	}
}

static const struct slots_hooks hooks = { .begin = on_begin, .close = on_close };

/* ---- opening ---- */

static void remove_mirror(struct mirror *m)
{
	struct slots *s = m->slots;
	unsigned i = 0;
	while (s->mirrors[i] != m)
		i++;
	s->mirrors[i] = s->mirrors[--s->n_mirrors];
	charge_end(&m->fd);
	free(m->copy);
	free(m);
}

static void on_slab_open(void *arg, struct gpu_slab *slab, int result, const char *why)
{
	struct mirror *m = arg;
	struct slots *s = m->slots;
	void (*on_open)(void *, struct mirror *, int, const char *) = m->on_open;
	void *on_open_arg = m->arg;
	m->slab = slab;
	if (!slab) {
		remove_mirror(m);
		m = NULL;
	}
	on_open(on_open_arg, m, result, why);
	slots_unref(s);
}

static struct mirror *make_mirror(struct slots *s, const unsigned char uuid[GPU_UUID_BYTES])
{
	struct mirror *m = calloc(1, sizeof(*m));
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
		copy[i].mirror = m;
	}
	return m;
}

int mirror_open(struct slots *s, struct gpus *g, const unsigned char uuid[GPU_UUID_BYTES], enum gpu_share share,
		struct charge *fd, void (*on_open)(void *arg, struct mirror *m, int result, const char *why), void *arg,
		char *why)
{
	if (s->n_mirrors == SLOTS_MAX_MIRRORS) {
		strcpy(why, "these batches have 16 mirrors on GPUs already");
		return GPU_E_REFUSED;
	}
	struct mirror *m = make_mirror(s, uuid);
	if (!m)
		return -ENOMEM;
	m->on_open = on_open;
	m->arg = arg;
	m->share = share;
	struct gpu_slab_params params = { .share = share, .host = s->slab.base, .slot_bytes = s->layout.slot_bytes,
					  .n_slots = s->n, .on_open = on_slab_open, .arg = m };
	memcpy(params.uuid, uuid, GPU_UUID_BYTES);
	s->hooks = &hooks;
	s->mirrors[s->n_mirrors++] = m;
	int r = gpu_slab_open(g, &params, why);
	if (r) {
		remove_mirror(m);
		return r;
	}
	charge_move(&m->fd, fd);
	slots_ref(s);
	return 0;
}

/* ---- copying ---- */

static void on_copied(struct gpu_copy *copy, int result, const char *why)
{
	struct slot_copy *c = container_of(copy, struct slot_copy, copy);
	struct slot *slot = c->slot;
	struct slots *s = slot->slots;
	c->state = result ? COPY_NONE : COPY_THERE;
	c->mirror->failed |= result != 0;
	slot->n_copying--;
	c->done(slot, c->mirror, why);
	if (c->state != COPY_RUNNING)
		copy->seen_ns = 0; /* a trainer that is told of it later has waited for something else, too */
	slots_unref(s);
}

/* A producer's batch is a piece of its own making, and the mark of an epoch's end is nothing at all. */
static void set_fed_part(struct gpu_copy *copy, const struct slot *slot)
{
	copy->n_parts = slot->fed_bytes ? 1 : 0;
	copy->part[0].offset = (uint64_t)slot->number * slot->slots->layout.slot_bytes;
	copy->part[0].bytes = slot->fed_bytes;
}

/* Rows, labels and indices lie close together when the batch is full; of a short one the gap between rows and labels is
 * not worth the bus. */
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
	copy->part[0].bytes = (uint64_t)slot->n_rows * l->row_bytes;
	copy->part[1].offset = begin + l->labels_offset;
	copy->part[1].bytes = end - l->labels_offset;
}

bool mirror_copy(struct mirror *m, struct slot *slot,
		 void (*done)(struct slot *slot, struct mirror *mirror, const char *why))
{
	struct slot_copy *c = &m->copy[slot->number];
	assert(slot->slots == m->slots && slot->state == SLOT_READY);
	if (c->state != COPY_NONE || m->failed)
		return false;
	if (slot->slots->slab_number)
		set_fed_part(&c->copy, slot);
	else
		set_parts(&c->copy, slot);
	c->copy.done = on_copied;
	c->done = done;
	c->state = COPY_RUNNING;
	slot->n_copying++;
	slots_ref(slot->slots);
	gpu_copy_begin(m->slab, &c->copy);
	return true;
}

bool mirror_has(const struct mirror *m, const struct slot *slot)
{
	return !m || m->copy[slot->number].state == COPY_THERE;
}

void mirror_note_published(struct mirror *m, const struct slot *slot)
{
	uint64_t seen_ns = m ? m->copy[slot->number].copy.seen_ns : 0;
	if (seen_ns)
		latency_add(&m->handover, uv_hrtime() - seen_ns);
}
