/* A packed data set, and its opening: shared by the files that are packed_open. */
#ifndef BATCHD_PACKED_IMPL_H
#define BATCHD_PACKED_IMPL_H

#include "dataset/classes.h"
#include "dataset/shards/member-spec.h"
#include "dataset/shards/packed.h"
#include "dataset/shards/shards.h"

struct packed {
	struct dataset base;
	struct shards shards;
	struct extents index;
	int label;              /* its column; -1: none */
	unsigned first;         /* the field that is column 0: 1 after an image, else 0 */
	struct classes classes; /* of a column of names, or an archive's folders where no fields are listed */
};

struct packed_opening {
	const struct packed_format *format;
	const struct dataset_source *source;
	char *rest;       /* the patterns, as ids have them; owned */
	char shown[1024]; /* the same for messages */
	struct packed *packed;
	struct dataset_error *err;
	struct member_fields fields;
	struct extents old;                    /* the kept index; no block: none */
	uint64_t n_bytes, n_done, reported_ns; /* of all shards, for progress */
	bool racy;                             /* a shard's times cannot yet show whether it has changed since */
	uint32_t n_scanned;                    /* shards of which the headers were read */
	uint32_t n_sidecars, n_unfit;          /* shards with an index beside them: used, not used */
	char unfit[512];                       /* the first that was not used, and why not */
};

#endif
