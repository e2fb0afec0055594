/* The open shards of a packed data set. A shard's descriptor is judged by the peer's rights when it is opened, and then
 * kept: a sample costs no open. Beyond a limit of descriptors, shards are opened for each read. */
#ifndef BATCHD_SHARDS_H
#define BATCHD_SHARDS_H

#include <stdatomic.h>

#include "dataset/dataset.h"
#include "dataset/shards/extents.h"
#include "dataset/shards/names.h"

struct shards {
	struct data_access access;
	struct shard_names names;
	atomic_int *fds; /* of each shard: packed, or 0 while there is none */
	unsigned root_traits[SHARDS_MAX_ROOTS];
	unsigned any_mount; /* DIR_ANY_MOUNT, as in a tree */
	uint64_t server;    /* as dataset_server; see shards_note */
	/* Of each shard that is compressed as a whole, or that is no file: its content, in memory. NULL: there are none. */
	struct shard_content {
		const uint8_t *bytes;
		size_t n_bytes;
		bool is_lent;
	} *contents;
};

/* Takes the names. 0 or -ENOMEM or the meter's error; the caller finishes *s in either case. */
int shards_init(struct shards *s, struct shard_names *names, const struct data_access *access);
/* Closes what may wait for a server on a thread of its own. */
void shards_finish(struct shards *s);
uint64_t shards_memory_bytes(const struct shards *s);

/* The shard's path, for messages. */
void shards_path(const struct shards *s, uint32_t i, char *buf, size_t size);

/* Its size, without opening it; 0: there is none that the peer may read. May wait. */
uint64_t shards_size(const struct shards *s, uint32_t i);

/* Opens the file that has the shard's name with another ending, by the same rights. The caller closes it. May wait.
 * Negative errno. */
int shards_open_beside(const struct shards *s, uint32_t i, const char *ending, struct stat *st);

/* A descriptor of the shard for reading, and its state. is_kept: it stays the shard's; otherwise the caller closes it.
 * May wait. Negative errno with err, which names the shard. */
int shards_open(struct shards *s, uint32_t i, struct stat *st, bool *is_kept, struct dataset_error *err);

/* While the data set is opened: from now on the shard is read from these bytes, which are malloc'ed and become the
 * shards'. 0 or -ENOMEM or the meter's error; the bytes stay the caller's then. */
int shards_hold(struct shards *s, uint32_t i, uint8_t *bytes, size_t n_bytes);

/* As shards_hold, for bytes that stay the caller's, and last longer than the shards. */
int shards_lend(struct shards *s, uint32_t i, const uint8_t *bytes, size_t n_bytes);

/* The bytes of a shard that is held or lent so; NULL: it is a file. */
const struct shard_content *shards_content(const struct shards *s, uint32_t i);

/* While the data set is opened, for each shard: notes whether a server answers for it. */
void shards_note(struct shards *s, int fd, const struct stat *st);

/* Reads an extent of a shard that was `stamp` when it was indexed. As dataset_read; -ESTALE when the shard has changed
 * since. */
int shards_read(struct shards *s, uint32_t i, const struct shard_stamp *stamp, enum read_how how, uint64_t at, size_t n,
		struct file_bytes *out, struct dataset_error *err);
/* As dataset_is_current. */
int shards_is_current(struct shards *s, uint32_t i, const struct shard_stamp *stamp, enum read_how how,
		      const struct file_bytes *b);

#endif
