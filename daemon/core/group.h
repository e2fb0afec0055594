/* A share group whose trainers do not have to keep step: they come and go, begin where they like, and are as slow as
 * they are.
 *
 * Its trainers are spread over *cohorts*. A cohort is a stream (core/stream.h) with those who are at about the same
 * place; each batch is made once for all of them. Usually there is one. Who begins somewhere else, or has fallen too
 * far behind, gets a cohort of its own, which makes batches at its own pace out of the same loader and caches, and
 * joins another as soon as the two meet. As a batch depends on nothing but its position, nobody can tell from the
 * bytes.
 *
 * All cohorts make their batches in one slab, which everybody has mapped, so that moving a trainer costs nothing and no
 * trainer knows of it. What keeps them from starving each other is a quota: every trainer may hold at most `share`
 * slots, and a cohort uses at most `slot_quota` slots for each of its trainers, made ahead and held together (the main
 * cohort some more: those of the `window` that a trainer alone would have). So a trainer that is stopped with all it
 * may hold costs the others nothing. The slab has address space for as many slots as `n_places` trainers need; memory
 * comes as they come.
 *
 * What happens to a trainer that is so far behind that its cohort has no slot left for the others is the policy: the
 * others wait for it, it misses the oldest batch, or it goes on in another cohort.
 *
 * A group of known size with policy wait needs none of this: it is one plain stream, in lockstep within its window.
 *
 * Loop thread only. */
#ifndef BATCHD_GROUP_H
#define BATCHD_GROUP_H

#include "core/loader-spec.h"
#include "core/streams.h"

/* GHOSTS: how many that are gone and still hold batches (stopped, or forked and hung up) may be charged to the group
 * besides. */
enum { GROUP_MAX_PLACES = 64, GROUP_SHARE = 3, GROUP_GHOSTS = 16 };
/* Memory that a GPU reads cannot come later: with its first trainer on one, a group gets slots for that many, or for
 * those that are there, and no more after it. */
enum { GROUP_GPU_PLACES = 8 };

/* A cohort has at least one trainer, or those that are still expected. */
#define GROUP_MAX_COHORTS(n_places) ((n_places) + 1)

/* Where a trainer without a position of its own begins. Numbers as in proto/batchd.proto. */
enum group_start {
	GROUP_AT_NEXT,  /* with the next batch that nobody has had */
	GROUP_AT_EPOCH, /* with the next epoch's first batch, when the group gets there, or those who should bring
	                  * it there are stuck */
	GROUP_AT_START, /* with the current epoch's first batch, in a cohort of its own until it has caught up */
};

struct group {
	struct streams *streams; /* its cohorts */
	enum group_policy policy;
	uint32_t n_places;
	struct consumer *member[GROUP_MAX_PLACES]; /* by place; NULL: free */
	uint64_t expected;   /* places of a group of known size that nobody has had yet and no cohort waits
	                             * for so far */
	struct slots *slots; /* a reference; NULL before the first trainer */
	uint32_t window, slot_quota;
	struct stream *main; /* the cohort with most trainers; NULL: nobody is anywhere */
	uint64_t n_skipped, n_detached;
	bool pumping, again;
};

/* A group of known size waits for all of it to come, then the policy holds. size 1: trainers may come at any time.
 * Makes the first cohort. 0 or -ENOMEM. */
int group_init(struct group *g, struct streams *streams, enum group_policy policy, uint32_t size);
/* No consumer may be attached. */
void group_finish(struct group *g);

/* Slots that n trainers need; window: what one alone would have, n_slots: what its users asked for (0: nothing). */
uint32_t group_slot_quota(uint32_t window, uint32_t n_slots);
/* Takes the reference. Once. */
void group_set_slots(struct group *g, struct slots *slots, uint32_t window, uint32_t slot_quota);
/* How many slots more have to be made before another trainer can attach. */
uint32_t group_n_missing(const struct group *g);
/* The place for a trainer that has not asked for one: first one that is waited for, then any that is free. -1: none. */
int32_t group_free_place(const struct group *g);

/* Whether one more trainer may hold slots. */
bool group_is_full(const struct group *g);
/* What stream_attach, stream_detach and stream_seek are for a stream that stands alone. 0, STREAM_E_TAKEN, -ENOMEM */
int group_attach(struct group *g, struct consumer *c, uint32_t place);
void group_leave(struct consumer *c);
void group_seek(struct consumer *c, uint64_t seek, const struct position *to);
/* Begins where `how` says and tells where that is; group_pump then brings the batches. */
void group_join(struct consumer *c, uint64_t seek, enum group_start how, struct position *out);
void group_pump(struct group *g);

/* Made apart from the main cohort. */
static inline bool group_is_apart(const struct consumer *c)
{
	return c->group && c->stream && c->stream != c->group->main;
}
/* How many batches the trainer is behind the first of its cohort. */
uint64_t group_n_behind(const struct consumer *c);

#endif
