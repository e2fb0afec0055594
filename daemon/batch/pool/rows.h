/* The pool as a source of batches: its workers make each row of a slot from the data set and the pipeline, or copy rows
 * of an array. A sample that cannot be decoded, or has a value of a ragged field that is too long, is replaced and noted
 * in `bad`. Ragged fields are packed when all rows of a batch are made, by the worker that makes the last.
 *
 * Loop thread only, except for the callbacks that the pool runs. */
#ifndef BATCHD_POOL_ROWS_H
#define BATCHD_POOL_ROWS_H

#include "batch/badlist.h"
#include "batch/loader-spec.h"
#include "batch/pool/pool.h"
#include "batch/sample.h"
#include "batch/slab.h"
#include "batch/source.h"

struct slot;

struct pool_rows {
	struct pool *pool;
	/* The loader's, constant: */
	const struct loader_spec *spec;
	const struct recipe *recipe;
	const struct slot_layout *layout;
	const struct field *fields; /* layout->n_fields of them */
	bool checks_values;         /* a value of a ragged field may be longer than recipe->value_bytes */
	struct badlist bad;         /* any thread */
	double bad_budget;          /* the fraction of the data set that may be bad */
	/* A submitted slot is filled, or it is cancelled and no worker writes to it. */
	void (*filled)(struct pool_rows *p, struct slot *slot);
	void *owner;                /* for filled */
	struct batch_source source; /* last: all workers write to it, while the members above are constant */
};

/* 0 or -ENOMEM. */
int pool_rows_init(struct pool_rows *p, struct pool *pool, const struct loader_spec *spec, const struct recipe *recipe,
		   const struct slot_layout *layout, const struct field *fields, double bad_budget);
void pool_rows_finish(struct pool_rows *p);
/* For a filled slot: a row could not be made at all, or a row was replaced and there are too many bad samples. */
bool pool_rows_is_bad(struct pool_rows *p, struct slot *slot);

#endif
