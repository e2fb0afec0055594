/* Where a data set's files are, before any file system is asked. */
#ifndef BATCHD_LOCATE_H
#define BATCHD_LOCATE_H

#include "dataset/dataset.h"

struct location {
	uint64_t server; /* as dataset_server; 0: local disks, as far as is known */
	char name[256];  /* "nfs4 at /mnt/data", for the status; "": no server */
};

/* The file systems of the source's descriptors, or else of its paths, by the kernel's list of mounts: never waits for a
 * server. What the list does not know (files that links deep in the data lead to, patterns) is found when the data set
 * is open. */
void locate_source(const struct dataset_source *source, struct location *out);
/* The same for an open data set. */
void locate_dataset(const struct dataset *ds, struct location *out);

#endif
