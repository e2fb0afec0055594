/* The shards that a packed data set's pattern names: "/data/train-{000000..001281}.tar", "/data/train-*.tar",
 * "/data/a.tar::/data/b.tar". */
#ifndef BATCHD_SHARD_NAMES_H
#define BATCHD_SHARD_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataset/block.h"
#include "dataset/dataset.h"

enum { SHARDS_MAX = 1 << 20, SHARDS_MAX_ROOTS = 4 };

struct shard_path {
	uint64_t name; /* offset in text: the path below the root */
	uint32_t root;
};

struct shard_names {
	struct meter *meter;         /* borrowed; NULL: nothing is counted */
	int roots[SHARDS_MAX_ROOTS]; /* owned: folders */
	unsigned n_roots;
	char root_path[SHARDS_MAX_ROOTS][1024]; /* for messages */
	struct shard_path *list;
	size_t n, capacity;
	struct text text;
	bool crosses; /* a folder lies on another mount than its root; see tree_create */
};

/* Opens the folders of source->part and lists the shards in order: patterns as they stand, braces as a shell expands
 * them, names that match a wildcard in the order of Python's sorted(). A path of a configuration has no pattern of
 * its own: its folder is the last one before any wildcard or brace, a path without either names one shard, or a
 * folder with all of them. The k-th descriptor of the source is the k-th folder. 0 or negative errno with err; the
 * caller finishes *out in either case. */
int shard_names_open(const struct dataset_source *source, struct shard_names *out, struct dataset_error *err);
/* What streaming adds to the names of shards that it writes with a compression, NULL at the end. A pattern "*.mds" that
 * matches no file matches these. The first are zstd's. */
extern const char *const shard_names_compressed[];
enum { SHARD_NAMES_N_ZSTD = 2 };

void shard_names_finish(struct shard_names *names);

static inline const char *shard_names_path(const struct shard_names *names, uint32_t i)
{
	return names->text.bytes + names->list[i].name;
}

#endif
