/* Reads the headers of a tar archive: ustar, GNU (long names, sizes beyond octal digits) and pax (path, size). */
#ifndef BATCHD_TAR_H
#define BATCHD_TAR_H

#include "dataset/shards/members.h"

/* Gives every regular file to `m`, in order. Directories, links, devices and files of WebDataset's own ("__name__") are
 * skipped. Sparse files, damaged headers, sizes beyond the archive's end, and names with control characters are refused:
 * negative errno with the reader's err. */
int tar_scan(struct members *m);

enum { TAR_BLOCK = 512 };

/* A member of an archive, with what extended headers say of it. */
struct tar_entry {
	uint64_t next_at; /* where the header after this member is; set it to begin there */
	uint64_t header_at, data_at, n_bytes;
	char type;
	/* From extended headers, for the next member. */
	bool has_name, has_size, is_sparse;
	unsigned n_extended;
	size_t n_name;
	char name[MEMBER_NAME_BYTES]; /* NUL-terminated */
};

/* Reads the member at e->next_at. 1; 0 at the archive's end; negative errno with the reader's err. */
int tar_next(struct shard_reader *r, struct tar_entry *e);
/* A regular file that is not WebDataset's own. */
bool tar_is_sample(const struct tar_entry *e);
/* As tar_scan does with each member. */
int tar_take(struct members *m, const struct tar_entry *e);

#endif
