/* A share group whose trainers do not have to keep step: they come and go, begin at any position, and each runs at its
 * own speed.
 *
 * Its trainers are spread over *cohorts*. A cohort is a stream (batch/stream.h) with the trainers that are at about the
 * same position; each batch is made once for all of them. Usually there is one cohort. A trainer that begins at another
 * position, or has fallen too far behind, gets a cohort of its own, which makes batches at its own pace from the same
 * loader and caches, and joins another cohort as soon as the two meet. A batch depends only on its position, so a
 * trainer cannot tell from the bytes which cohort made it.
 *
 * All cohorts make their batches in one slab, which every trainer has mapped, so moving a trainer costs nothing and the
 * trainer does not notice. A quota keeps the cohorts from starving each other: each trainer may hold at most
 * `slot_quota` slots, and a cohort uses at most that many for each of its trainers, made ahead and held together (the
 * main cohort gets more: the slots of the `window` that a single trainer would have). So a stopped trainer that holds
 * its full quota costs the others nothing. The slab has address space for as many slots as `n_places` trainers need;
 * memory is added as trainers arrive.
 *
 * The policy decides what happens to a trainer that is so far behind that its cohort has no slot left for the others:
 * the others wait for it, it misses the oldest batch, or it goes on in another cohort.
 *
 * A group of known size with policy wait needs none of this: it is one plain stream, in lockstep within its window.
 *
 * Loop thread only. */
#ifndef BATCHD_GROUP_H
#define BATCHD_GROUP_H

#include "batch/loader-spec.h"
#include "batch/streams.h"

/* GROUP_ORPHANS: how many trainers that are gone and still hold batches (stopped, or forked and hung up) may be charged to the
 * group in addition. */
enum { GROUP_MAX_PLACES = 64, GROUP_SHARE = 3, GROUP_ORPHANS = 16 };
/* Memory that a GPU reads cannot be added later: when its first trainer on a GPU arrives, a group gets slots for this
 * many trainers, or for those present if there are more, and none afterwards. */
enum { GROUP_GPU_PLACES = 8 };

/* A cohort has at least one trainer, or waits for expected trainers. */
#define GROUP_MAX_COHORTS(n_places) ((n_places) + 1)

/* Where a trainer without a position of its own begins. Numbers as in proto/batchd.proto. */
enum group_start {
	GROUP_AT_NEXT,  /* with the next batch that no trainer has had */
	GROUP_AT_EPOCH, /* with the next epoch's first batch, when the group gets there, or when the trainers that
	                 * should take it there are stuck */
	GROUP_AT_START, /* with the current epoch's first batch, in a cohort of its own until it has caught up */
};

struct group {
	struct streams *streams; /* its cohorts */
	enum group_policy policy;
	uint32_t n_places;
	struct consumer *member[GROUP_MAX_PLACES]; /* by place; NULL: free */
	uint64_t expected;   /* places of a group of known size that no trainer has had yet and no cohort waits for so
	                      * far */
	struct slots *slots; /* a reference; NULL before the first trainer */
	uint32_t window, slot_quota;
	struct stream *main; /* the cohort with most trainers; NULL: no cohort has a trainer */
	uint64_t n_skipped, n_detached;
	bool again; /* group_pump needs another round */
};

/* A group of known size waits until it is complete; then the policy applies. size 1: trainers may come at any time.
 * Makes the first cohort. 0 or -ENOMEM. */
int group_init(struct group *g, struct streams *streams, enum group_policy policy, uint32_t size);
/* No consumer may be attached. */
void group_finish(struct group *g);

/* The slot_quota: slots for each trainer. window: slots that a single trainer would have; n_slots: what its users asked
 * for (0: nothing). */
uint32_t group_slot_quota(uint32_t window, uint32_t n_slots);
/* Takes the reference. Once. */
void group_set_slots(struct group *g, struct slots *slots, uint32_t window, uint32_t slot_quota);
/* How many more slots have to be made before another trainer can attach. */
uint32_t group_n_missing(const struct group *g);
/* The place for a trainer that has not asked for one: preferably a place that is waited for, then any free one. -1:
 * none. */
int32_t group_free_place(const struct group *g);

/* Whether one more trainer may hold slots. */
bool group_is_full(const struct group *g);
/* The counterparts of stream_attach, stream_detach and stream_seek for a group. 0, STREAM_E_TAKEN, -ENOMEM */
int group_attach(struct group *g, struct consumer *c, uint32_t place);
void group_leave(struct consumer *c);
void group_seek(struct consumer *c, uint64_t seek, const struct position *to);
/* Begins where `how` says and returns that position in *out; group_pump then delivers the batches. */
void group_join(struct consumer *c, uint64_t seek, enum group_start how, struct position *out);
void group_pump(struct group *g);

/* Whether the consumer is in a cohort other than the main one. */
static inline bool group_is_apart(const struct consumer *c)
{
	return c->group && c->stream && c->stream != c->group->main;
}
/* How many batches the trainer is behind the foremost trainer of its cohort. */
uint64_t group_n_behind(const struct consumer *c);

#endif
