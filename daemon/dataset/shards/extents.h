/* The index of a packed data set: which bytes of which shard a sample is, its name, and its small values in columns. One
 * block of memory, in the same format as on disk (block.h).
 *
 * A sample costs 24 bytes (36 in zip archives), its name and its values. */
#ifndef BATCHD_EXTENTS_H
#define BATCHD_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "dataset/block.h"
#include "dataset/columns.h"

/* What a shard was when it was indexed. */
struct shard_stamp {
	uint64_t dev, ino, n_bytes, mtime_ns, ctime_ns;
};
struct shard_stamp shard_stamp_of(const struct stat *st);

struct extents_shard {
	uint64_t name; /* offset in text: the path below the root */
	struct shard_stamp stamp;
	uint64_t first, n;       /* its samples */
	uint64_t n_left_out;     /* groups that are no samples */
	uint64_t first_left_out; /* offset in text of the first one's name, or 0 */
	uint64_t reason;         /* offset in text of what is wrong with it, or 0 */
	uint64_t extensions;     /* offset in text of "jpg;json", the first ones of its members; or 0 */
	uint64_t lacks_end;      /* 0 or 1; as in shard_reader */
};

/* A sample that its shard has in another form, as zip does: what its bytes are once they are unpacked. */
struct extent_content {
	uint32_t n_bytes, crc;
	uint32_t deflated; /* 0: stored as it is */
};

struct extents {
	void *block; /* owned; everything below points into it */
	size_t block_bytes;
	uint64_t n;
	uint32_t n_shards;
	const struct extents_shard *shards;   /* their samples follow each other */
	const uint64_t *at;                   /* of each sample, offset in its shard */
	const uint64_t *name;                 /* of each sample, offset in text */
	const uint32_t *n_bytes;              /* of each sample, in its shard */
	const uint32_t *shard;                /* of each sample */
	const struct extent_content *content; /* of each sample; NULL: shards have samples as they are */
	struct columns columns;
	const char *text;     /* NUL-terminated strings */
	bool has_turned_real; /* a column of real numbers has whole ones, too: in an index of other shards it may differ */
};

void extents_finish(struct extents *ix);

/* The length of a sample's bytes once they are read. */
static inline uint32_t extents_content_bytes(const struct extents *ix, uint64_t i)
{
	return ix->content ? ix->content[i].n_bytes : ix->n_bytes[i];
}

static inline const char *extents_shard_name(const struct extents *ix, uint32_t shard)
{
	return ix->text + ix->shards[shard].name;
}
/* "train-000003.tar: 00012345.jpg", truncated to size. */
void extents_name(const struct extents *ix, uint64_t i, char *buf, size_t size);
/* Equal for the same samples at the same places of shards with the same names. */
uint64_t extents_hash(const struct extents *ix, uint64_t seed);

/* Builds an index. All functions return 0, -ENOMEM, -EFBIG or the meter's error. The builder starts zeroed, except for
 * the meters. Samples belong to the shard that was added last; their values are put into `columns` at the same time. */
struct extents_builder {
	struct meter *meter;
	struct columns_builder columns;
	struct extents_shard *shards;
	size_t n_shards, shards_capacity;
	uint64_t *at, *name;
	uint32_t *n_bytes, *shard;
	bool has_content; /* set by the caller: each sample has an extent_content */
	struct extent_content *content;
	bool has_turned_real;
	size_t n, at_capacity, name_capacity, bytes_capacity, shard_capacity, content_capacity;
	struct text text;
};
int extents_add_shard(struct extents_builder *b, const char *name, const struct shard_stamp *stamp);
/* content: NULL unless the builder has_content. */
int extents_add(struct extents_builder *b, uint64_t at, uint32_t n_bytes, const struct extent_content *content,
		const char *name, size_t n_name);
/* Counts a group of members that is no sample. reason: what is wrong with it. */
int extents_leave_out(struct extents_builder *b, const char *name, size_t n_name, const char *reason);
/* Adds the samples of a shard of another index, which has the same columns, to the shard that was added last. */
int extents_copy_shard(struct extents_builder *b, const struct extents *from, uint32_t shard);
int extents_build(struct extents_builder *b, struct extents *out); /* the builder is empty afterwards, also on error */
void extents_builder_finish(struct extents_builder *b);

/* As manifest_parse, manifest_load and manifest_save. Every extent of a parsed index lies inside its shard's bytes. */
int extents_parse(void *block, size_t block_bytes, struct extents *out);
int extents_load(const char *path, struct meter *meter, struct extents *out);
int extents_save(const char *path, const struct extents *ix);

#endif
