/* The slots of one slab, each in one state:
 *
 *              slot_begin            every row made               pending for no rank, held by no trainer
 *     FREE ---------------> FILLING ----------------> READY -----------------------------------------> FREE
 *                              |                                                                        ^
 *                              +--> DROPPED (no longer wanted; rows still in work) ---------------------+
 *
 * `pending` says which ranks have still to get the batch, n_leases how many holders have it, n_copying to how many GPUs it
 * is being copied (device-slab.h). Only slot_settle and slot_filled make a slot FREE. Its generation increases each
 * time it is begun, so that a message about an earlier batch cannot affect a later one.
 *
 * Loop thread only, except for members of struct slot that are marked otherwise. */
#ifndef BATCHD_SLOTS_H
#define BATCHD_SLOTS_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "batch/pool/pool.h"
#include "batch/slab.h"
#include "batch/slot-nodes.h"
#include "base/account.h"

struct batch_source;
struct large_batch;
struct plan;
struct stream;
struct device_slab;
struct slot;
struct slots;

enum { SLOTS_MAX_MIRRORS = 16 };

/* Where a batch is in a stream. Ordered by epoch, then base, then step. */
struct position {
	uint64_t epoch, base, step;
};

static inline int position_compare(const struct position *a, const struct position *b)
{
	if (a->epoch != b->epoch)
		return a->epoch < b->epoch ? -1 : 1;
	if (a->base != b->base)
		return a->base < b->base ? -1 : 1;
	return a->step < b->step ? -1 : a->step > b->step;
}

/* What their number follows from; slot-alloc.c decides, and has the words. */
enum slots_limit {
	SLOTS_LIMIT_NONE,
	SLOTS_LIMIT_ASKED,
	SLOTS_LIMIT_CONFIGURED,
	SLOTS_LIMIT_FIRST,
	SLOTS_LIMIT_LARGE,
	SLOTS_LIMIT_SMALL,
	SLOTS_LIMIT_PLENTY,
	SLOTS_LIMIT_EPOCH,
	SLOTS_LIMIT_MEMORY,
	SLOTS_LIMIT_USER_MEMORY,
	SLOTS_LIMIT_MEMORY_PART
};

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_DROPPED };

enum { SLOT_CACHE_LINE = 64 };

/* In cache lines by who writes them, because workers read and write a slot for every row: while they fill it, its loop
 * members change, and so do the slots beside it. */
struct slot {
	/* The pool, under its lock. */
	alignas(SLOT_CACHE_LINE) struct pool_job job; /* contained: a worker's way to its slot */

	/* The loop, before it submits the job; workers read them. */
	alignas(SLOT_CACHE_LINE) struct stream *stream; /* while not FREE */
	struct batch_source *source;                    /* while FILLING or DROPPED: what makes the batch */
	struct slots *slots;
	struct position at;
	uint64_t generation;
	uint32_t number;
	uint32_t n_rows;

	/* The loop, at any time. */
	alignas(SLOT_CACHE_LINE) struct slot *next; /* in the stream's order of batches, while linked */
	enum slot_state state;
	bool linked;
	bool last;           /* of its epoch */
	uint8_t fill_state;  /* while FILLING or DROPPED, of a loader with a producer: its source's own */
	bool round_complete; /* the same: the last batch of its round exists */
	uint32_t n_padding;
	uint32_t n_leases;
	uint64_t pending;          /* bit per rank (share) or bit 0 (shard) */
	uint64_t holders;          /* of a group: a bit per place whose member holds it */
	uint64_t payload_bytes;    /* of a loader with a producer: how much of the slot its batch takes */
	uint32_t n_copying;        /* device slabs that are reading it */
	struct large_batch *large; /* has the batch in place of this slot's memory; NULL: none */

	/* Workers. */
	alignas(SLOT_CACHE_LINE) atomic_uint n_replaced;
	atomic_uint n_unpacked; /* rows not made yet, of a layout with ragged fields */
	atomic_bool failed;     /* a row could not be made at all */
};

/* Reference counted. Holders of references: the stream, each consumer that mapped the slab, each slot in FILLING or
 * DROPPED, each running copy and each device slab that is being opened. */
struct slots {
	struct slab slab;
	struct slot_layout layout;
	struct slot_nodes nodes;
	struct slot *slot; /* n of them */
	uint32_t n;
	uint32_t n_made;     /* the first n_made slots have memory; fewer than n while memory is being made, or in a
	                      * share group, see group.h */
	uint32_t n_sure;     /* the first n_sure are charged, and made or being made: a trainer may rely on them */
	uint32_t first_free; /* no slot before it is FREE */
	bool may_grow;       /* the rest is made when workers rest: stream_rests */
	bool growing;        /* the rest is being made, once and for all */
	enum slots_limit limit, final_limit; /* of n_made; of n, once they are made */
	bool fixed;                          /* of a share group: no slots are added, because a GPU reads them */
	uint32_t n_holders;  /* consumers that may hold leases: attached ones, and detached ones that may still read */
	uint32_t n_attached; /* consumers that have got the slab, since the slots were made or renewed */
	unsigned n_refs;
	struct stream *stream;   /* a stream that makes batches in them (any one, if there are several); NULL:
	                                  * none does any more */
	struct charge bytes, fd; /* to the user whose trainer they were made for */
	uint32_t slab_number;    /* the number by which a producer knows it; 0: the pool fills it */
	struct device_slab *device_slabs[SLOTS_MAX_MIRRORS];
	unsigned n_device_slabs; /* at the end: those not closed yet */
	bool device_slabs_lost;  /* see gpu_slab_close */
};

/* Has memory for the first n_made slots. Any thread (it blocks while memory is made). The caller has the first
 * reference. 0 or negative errno. */
int slots_create(const struct slot_layout *layout, uint32_t n, uint32_t n_made, struct slots **out);
/* The same, spread over the machine's NUMA nodes, which outlive the slots; NULL: there is one. */
int slots_create_on(struct nodes *nodes, const struct slot_layout *layout, uint32_t n, uint32_t n_made,
		    struct slots **out);
/* Makes memory for n more slots (any thread); the loop thread then adds n to n_made. 0 or negative errno. */
int slots_extend(struct slots *s, uint32_t n);
/* No more slots follow: there are as many as have memory. */
void slots_end(struct slots *s);
/* Like slots_create with memory for all slots, in a slab that a producer will map. Call slab_seal before any trainer
 * has the slab. */
int slots_create_open(const struct slot_layout *layout, uint32_t n, struct slots **out);
/* Whether nothing is made, read or copied in them: the only reference is the caller's. */
bool slots_are_unused(const struct slots *s);
/* Makes unused slots ready for another stream, whose slots have the same size. */
void slots_renew(struct slots *s, const struct slot_layout *layout);
struct slots *slots_ref(struct slots *s);
void slots_unref(struct slots *s);

uint8_t *slot_data(const struct slot *s); /* its beginning, where the first dense field lies */
int64_t *slot_indices(const struct slot *s);
/* As struct pool_job has it. */
unsigned slot_node(const struct slot *s);

/* A free slot, or NULL. */
struct slot *slots_find_free(struct slots *s);
/* FREE -> FILLING. */
void slot_begin(struct slot *s, struct stream *stream);
/* FILLING -> READY, or DROPPED -> FREE. */
void slot_filled(struct slot *s);
/* FILLING -> DROPPED; the caller cancels the job. */
void slot_drop(struct slot *s);
/* Ready, pending for no rank, held by no trainer and read by no GPU. */
static inline bool slot_is_unneeded(const struct slot *s)
{
	return s->state == SLOT_READY && !s->pending && !s->n_leases && !s->n_copying;
}
/* The slot has its batch in that memory, which it takes; NULL: in its own. Frees what it had before. */
void slot_set_large(struct slot *s, struct large_batch *b);
/* READY -> FREE, of an unneeded slot that its stream has taken out of its list. */
void slot_settle(struct slot *s);

#endif
