/* The pool as a source of batches: its workers make each row of a slot from the data set and the pipeline, or copy rows
 * of an array. A sample that cannot be decoded is replaced and noted in `bad`.
 *
 * Loop thread only, but for what it has the pool call. */
#ifndef BATCHD_POOL_SOURCE_H
#define BATCHD_POOL_SOURCE_H

#include "core/badlist.h"
#include "core/loader-spec.h"
#include "core/pool.h"
#include "core/sample.h"
#include "core/slab.h"
#include "core/source.h"

struct slot;

struct pool_source {
	struct pool *pool;
	/* The loader's, constant: */
	const struct loader_spec *spec;
	const struct recipe *recipe;
	const struct slot_layout *layout;
	struct badlist bad; /* any thread */
	double bad_budget;  /* the part of the data set that may be in there */
	/* A submitted slot is filled, or cancelled and written to by no worker. */
	void (*filled)(struct pool_source *p, struct slot *slot);
	void *owner;                /* for filled */
	struct batch_source source; /* last: all workers write into it, and read what is constant */
};

/* 0 or -ENOMEM. */
int pool_source_init(struct pool_source *p, struct pool *pool, const struct loader_spec *spec,
		     const struct recipe *recipe, const struct slot_layout *layout, double bad_budget);
void pool_source_finish(struct pool_source *p);
/* Of a filled slot: a row could not be made at all, or one was replaced and there are too many bad samples. */
bool pool_source_is_bad(struct pool_source *p, struct slot *slot);

#endif
