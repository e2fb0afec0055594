/* A file mapped read-only, never read whole: data sets larger than memory work, and the page cache is shared with other
 * processes.
 *
 * The price is that another process may truncate the file. An access to a lost page raises SIGBUS: read rows only
 * between mapped_guard and sigbus_guard_leave. A truncation within a page reads as zeros: ask mapped_is_whole after each
 * read. */
#ifndef BATCHD_MAPPED_H
#define BATCHD_MAPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "dataset/dataset.h"
#include "base/sigbus.h"

struct mapped {
	int fd;    /* owned; O_PATH once it is mapped, so that closing it never waits; -1: none */
	char *map; /* the first map_bytes of the file */
	size_t map_bytes;
	bool sealed;         /* it cannot shrink */
	uint64_t held_bytes; /* of memory that it takes, charged to the peer */
	uint64_t server;     /* as dataset_server */
	char name[200];      /* the path, for messages */
};

/* Opens the file without mapping it: the peer's descriptor `which` if the peer sent so many, else, for trusted access,
 * the path. Only regular files that the peer may read. m may be all zero; finish it in either case. 0 or negative
 * errno. */
int mapped_open(struct mapped *m, const struct dataset_source *source, unsigned which, const char *path,
		struct stat *st, struct dataset_error *err);
/* For an opened memfd of a client: it must be sealed against shrinking and growing. Its memory stays as long as it is
 * mapped, so it is charged to the peer. *st becomes its state since it is sealed. 0 or negative errno. */
int mapped_hold_sealed(struct mapped *m, const struct dataset_source *source, struct stat *st,
		       struct dataset_error *err);
/* Maps the first n_bytes, of which the file must have had as many. row_bytes: what is read at a time, in any order. Of
 * files in memory (tmpfs), a peer that is not trusted is charged what its mapping may take or keep. */
int mapped_map(struct mapped *m, const struct dataset_source *source, const struct stat *st, size_t n_bytes,
	       size_t row_bytes, struct dataset_error *err);
void mapped_finish(struct mapped *m);

/* For the error after a failed read: whether this is the file that has shrunk. True without a file. */
bool mapped_is_whole(const struct mapped *m);
int mapped_cut_short(const struct mapped *m, struct dataset_error *err); /* -EIO with err */

/* Mixes a few bytes of the file's data into a hash that other content of the same size is unlikely to share, wherever
 * the file lies. Before mapped_map. */
uint64_t mapped_probe(const struct mapped *m, uint64_t offset, uint64_t n_bytes, uint64_t hash);

static inline struct sigbus_range mapped_range(const struct mapped *m)
{
	return (struct sigbus_range){ m->map, m->map + m->map_bytes };
}

#endif
