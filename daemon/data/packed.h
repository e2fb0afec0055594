/* Data sets in shards, as an index of extents: what every packed format does after its headers are read. */
#ifndef BATCHD_PACKED_H
#define BATCHD_PACKED_H

#include "data/dataset-impl.h"
#include "data/members.h"

struct packed_format {
	const char *kind;   /* the spec's first word */
	const char *ending; /* of shards in a folder: ".tar" */
	bool is_archive;    /* of files in folders, stored or deflated: zip */
	/* Gives the members of the shard in m->reader to `m`, to its end. 0 or negative errno with the reader's err. */
	int (*scan)(struct members *m);
};

int packed_open(const struct packed_format *format, const struct dataset_source *source, const char *rest,
		struct dataset **out, struct dataset_error *err);

#endif
