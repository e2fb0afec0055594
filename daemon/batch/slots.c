/* See slots.h. Every change of state goes through slot_move, which knows the allowed moves: any other move is a bug of
 * the daemon, which a peer cannot cause, hence the assert. */
#include "batch/slots.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "batch/large-batch.h"
#include "batch/slot-copies.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/thread-kind.h"
#include "base/trace.h"

/* Each group of members that struct slot names has lines of its own, one each. */
_Static_assert(sizeof(struct pool_job) <= SLOT_CACHE_LINE && offsetof(struct slot, stream) == SLOT_CACHE_LINE &&
		       offsetof(struct slot, next) == 2 * SLOT_CACHE_LINE &&
		       offsetof(struct slot, n_replaced) == 3 * SLOT_CACHE_LINE &&
		       sizeof(struct slot) == 4 * SLOT_CACHE_LINE,
	       "what one thread writes is in no line of what another one polls");

static const bool allowed[4][4] = {
	[SLOT_FREE] = { [SLOT_FILLING] = true },
	[SLOT_FILLING] = { [SLOT_READY] = true, [SLOT_DROPPED] = true },
	[SLOT_READY] = { [SLOT_FREE] = true },
	[SLOT_DROPPED] = { [SLOT_FREE] = true },
};

void slot_set_large(struct slot *s, struct large_batch *b)
{
	large_batch_destroy(s->large);
	s->large = b;
}

static void slot_move(struct slot *s, enum slot_state to)
{
	static const char *const names[] = { "free", "filling", "ready", "dropped" };
	assert(allowed[s->state][to]);
	log_record(LOG_LEVEL_DEBUG, "slot", "slab %d, slot %u, generation %llu: %s -> %s", s->slots->slab.fd, s->number,
		   (unsigned long long)s->generation, names[s->state], names[to]);
	s->state = to;
	if (to != SLOT_FREE)
		return;
	slot_set_large(s, NULL);
	if (s->number < s->slots->first_free)
		s->slots->first_free = s->number;
}

int slots_extend(struct slots *s, uint32_t n)
{
	assert(n <= s->n - s->n_made);
	return slab_extend(&s->slab, (size_t)s->n_made * s->layout.slot_bytes, (size_t)n * s->layout.slot_bytes);
}

/* Without its seal a slab cannot grow either: no descriptor for writing is left. */
void slots_end(struct slots *s)
{
	s->n = s->n_made;
	if (s->slab.writable_fd < 0)
		return;
	(void)slab_seal(&s->slab);
	if (s->fd.account)
		charge_shrink(&s->fd, 1);
}

static void place(void *arg, uint8_t *base, size_t bytes)
{
	slot_nodes_place(arg, base, bytes);
}

/* A producer that maps the slab writes it from wherever it runs, so an open one is left to the kernel. */
static int make_slab(struct slots *s, struct nodes *nodes, size_t bytes, size_t present_bytes, bool open)
{
	if (open)
		return slab_init_open(&s->slab, bytes);
	if (!nodes)
		return slab_init(&s->slab, bytes, present_bytes);
	slot_nodes_init(&s->nodes, nodes, s->layout.slot_bytes, s->n);
	return slab_init_placed(&s->slab, bytes, present_bytes, &(struct slab_placing){ place, &s->nodes });
}

/* calloc gives no whole cache lines. */
static struct slot *make_array(uint32_t n)
{
	size_t bytes;
	if (__builtin_mul_overflow(sizeof(struct slot), (size_t)n, &bytes))
		return NULL;
	struct slot *slot = aligned_alloc(alignof(struct slot), bytes);
	if (slot)
		memset(slot, 0, bytes);
	return slot;
}

static int slots_create_in(struct nodes *nodes, const struct slot_layout *layout, uint32_t n, uint32_t n_made,
			   bool open, struct slots **out)
{
	struct slots *s = calloc(1, sizeof(*s));
	struct slot *slot = make_array(n);
	size_t bytes;
	int r = -ENOMEM;
	if (!s || !slot)
		goto fail;
	r = -EOVERFLOW;
	if (__builtin_mul_overflow(layout->slot_bytes, (size_t)n, &bytes))
		goto fail;
	s->layout = *layout;
	s->n = n;
	r = make_slab(s, nodes, bytes, (size_t)n_made * layout->slot_bytes, open);
	if (r)
		goto fail;
	s->slot = slot;
	s->n_made = s->n_sure = n_made;
	s->n_refs = 1;
	for (uint32_t i = 0; i < n; i++) {
		slot[i].number = i;
		slot[i].slots = s;
	}
	*out = s;
	return 0;
fail:
	free(slot);
	free(s);
	return r;
}

int slots_create(const struct slot_layout *layout, uint32_t n, uint32_t n_made, struct slots **out)
{
	return slots_create_in(NULL, layout, n, n_made, false, out);
}

int slots_create_on(struct nodes *nodes, const struct slot_layout *layout, uint32_t n, uint32_t n_made,
		    struct slots **out)
{
	return slots_create_in(nodes, layout, n, n_made, false, out);
}

int slots_create_open(const struct slot_layout *layout, uint32_t n, struct slots **out)
{
	return slots_create_in(NULL, layout, n, n, true, out);
}

bool slots_are_unused(const struct slots *s)
{
	assert(is_loop_thread());
	return s->n_refs == 1 && !s->n_holders && !s->n_device_slabs && !s->growing;
}

void slots_renew(struct slots *s, const struct slot_layout *layout)
{
	assert(slots_are_unused(s) && !s->stream && !s->slab_number && s->layout.slot_bytes == layout->slot_bytes);
	for (uint32_t i = 0; i < s->n; i++)
		assert(s->slot[i].state == SLOT_FREE && !s->slot[i].linked && !s->slot[i].large);
	s->layout = *layout;
	s->n_sure = s->n_made;
	s->may_grow = s->n_made < s->n;
	s->n_attached = 0;
}

struct slots *slots_ref(struct slots *s)
{
	assert(is_loop_thread());
	assert(s->n_refs > 0);
	s->n_refs++;
	return s;
}

/* When a GPU is lost it is not known what it still reads: the pages stay until the process ends, which is soon. */
static void slots_destroy(struct slots *s, bool keep_memory)
{
	assert(!s->n_refs && !s->n_holders && !s->n_device_slabs);
	for (uint32_t i = 0; i < s->n; i++)
		assert(s->slot[i].n_leases == 0 && s->slot[i].n_copying == 0 && s->slot[i].state != SLOT_FILLING &&
		       !s->slot[i].large);
	charge_release(&s->bytes);
	charge_release(&s->fd);
	if (!keep_memory)
		slab_finish(&s->slab);
	free(s->slot);
	free(s);
}

static void on_copies_closed(void *arg, bool lost)
{
	struct slots *s = arg;
	assert(s->n_device_slabs > 0);
	s->device_slabs_lost |= lost;
	if (--s->n_device_slabs == 0)
		slots_destroy(s, s->device_slabs_lost);
}

void slots_unref(struct slots *s)
{
	assert(is_loop_thread());
	assert(!s || s->n_refs > 0);
	if (!s || --s->n_refs > 0)
		return;
	unsigned n = s->n_device_slabs;
	if (!n) {
		slots_destroy(s, s->device_slabs_lost);
		return;
	}
	for (unsigned i = 0; i < n; i++)
		slot_copies_close(s->device_slabs[i], on_copies_closed, s);
}

uint8_t *slot_data(const struct slot *s)
{
	return s->slots->slab.base + (size_t)s->number * s->slots->layout.slot_bytes;
}

int64_t *slot_indices(const struct slot *s)
{
	return (int64_t *)(void *)(slot_data(s) + s->slots->layout.indices_offset);
}

unsigned slot_node(const struct slot *s)
{
	return slot_nodes_of(&s->slots->nodes, s->number);
}

struct slot *slots_find_free(struct slots *s)
{
	assert(is_loop_thread());
	assert(s->n_made <= s->n);
	/* The slot freed longest ago would be fairest to the trainers' caches. There are usually only a few slots, so
	 * the first one will do. A large group has thousands, hence first_free. */
	while (s->first_free < s->n_made && s->slot[s->first_free].state != SLOT_FREE)
		s->first_free++;
	return s->first_free < s->n_made ? &s->slot[s->first_free] : NULL;
}

void slot_begin(struct slot *s, struct stream *stream)
{
	assert(is_loop_thread());
	assert(s->number < s->slots->n_made);
	s->generation++;
	slot_move(s, SLOT_FILLING);
	PROBE(slot_begin, s->slots->slab.fd, s->number, s->generation);
	if (trace_is_on())
		trace_add(TRACE_BEGIN, 0, 0, (uintptr_t)&s->job, s->generation, 0);
	s->stream = stream;
	s->pending = 0;
	assert(s->n_leases == 0 && s->n_copying == 0 && !s->holders && !s->linked);
	for (unsigned i = 0; i < s->slots->n_device_slabs; i++)
		slot_copies_begin(s->slots->device_slabs[i], s->number);
	atomic_store_explicit(&s->n_replaced, 0, memory_order_relaxed);
	atomic_store_explicit(&s->failed, false, memory_order_relaxed);
	slots_ref(s->slots);
}

void slot_filled(struct slot *s)
{
	assert(is_loop_thread());
	slot_move(s, s->state == SLOT_DROPPED ? SLOT_FREE : SLOT_READY);
	PROBE(slot_ready, s->slots->slab.fd, s->number, s->generation);
	if (trace_is_on() && s->state == SLOT_READY)
		trace_add(TRACE_READY, 0, 0, (uintptr_t)&s->job, s->generation, 0);
	slots_unref(s->slots);
}

void slot_drop(struct slot *s)
{
	assert(is_loop_thread());
	assert(s->state == SLOT_FILLING);
	slot_move(s, SLOT_DROPPED);
}

void slot_settle(struct slot *s)
{
	assert(is_loop_thread());
	assert(slot_is_unneeded(s) && !s->linked);
	slot_move(s, SLOT_FREE);
}
