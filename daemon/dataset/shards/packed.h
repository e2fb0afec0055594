/* Data sets in shards, as an index of extents: what every packed format does after its headers are read. */
#ifndef BATCHD_PACKED_H
#define BATCHD_PACKED_H

#include "dataset/impl.h"
#include "dataset/shards/members.h"

struct packed_format {
	const char *kind;   /* the spec's first word */
	const char *ending; /* of shards in a folder: ".tar" */
	const char *group;  /* what may be a sample, for messages */
	const char *part;   /* what a field is made of in a list of fields, for messages: "EXTENSION" */
	bool is_archive;    /* of files in folders, stored or deflated: zip */
	/* Gives the members of the shard in m->reader to `m`, to its end. 0 or negative errno with the reader's err. */
	int (*scan)(struct members *m);
	bool may_be_compressed; /* as a whole, by zstd: a shard is then kept in memory as it is unpacked */
	/* An index in a file beside the shard, from which the same members come; NULL: the format has none. `fits` compares it
	 * with the shard in `r`; false: `why` says what is wrong with it. */
	const char *index_ending;
	bool (*index_fits)(struct shard_reader *r, const char *text, size_t n, char *why);
	int (*index_scan)(struct members *m, const char *text, size_t n);
};

int packed_open(const struct packed_format *format, const struct dataset_source *source, const char *rest,
		struct dataset **out, struct dataset_error *err);

#endif
