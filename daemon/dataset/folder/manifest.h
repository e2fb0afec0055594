/* The index of an image data set: folders, files, labels and classes in one block of memory, in the same format as on
 * disk.
 *
 * A file costs 8 bytes and its name (folders are stored once), plus 8 if labels are not those of the folders: a million
 * files take about 30 MB. The block has no pointers, so loading it is a read and a check. */
#ifndef BATCHD_MANIFEST_H
#define BATCHD_MANIFEST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "dataset/block.h"

#define MANIFEST_NO_CLASS UINT32_MAX

struct manifest_dir {
	uint64_t path;                         /* offset in text; relative to the root, "." for the root itself */
	uint64_t dev, ino, mtime_ns, ctime_ns; /* when its entries were read; if unchanged, the index is still valid */
	uint32_t class_id;                     /* MANIFEST_NO_CLASS for the root and for lists */
	uint32_t reserved;                     /* zero */
};

struct manifest {
	void *block; /* owned; everything below points into it */
	size_t block_bytes;
	uint64_t n_files;
	uint32_t n_dirs, n_classes;
	const struct manifest_dir *dirs; /* [0] is the root */
	const int64_t *labels;           /* of each file; NULL: the class of its folder */
	const uint32_t *file_dir;        /* of each file */
	const uint32_t *file_name;       /* of each file, offset in text */
	const uint32_t *class_name;      /* of each class, offset in text */
	const char *text;                /* NUL-terminated strings: classes, folders, file names */
};

void manifest_finish(struct manifest *ix);

static inline const char *manifest_dir_path(const struct manifest *ix, uint32_t dir)
{
	return ix->text + ix->dirs[dir].path;
}
static inline const char *manifest_file_name(const struct manifest *ix, uint64_t i)
{
	return ix->text + ix->file_name[i];
}
int64_t manifest_label(const struct manifest *ix, uint64_t i);
/* "dir/file" as below the root, truncated to size. */
void manifest_name(const struct manifest *ix, uint64_t i, char *buf, size_t size);
/* Equal for the same samples in the same order with the same labels and class names. */
uint64_t manifest_hash(const struct manifest *ix, uint64_t seed);

/* Builds an index. All functions return 0, -ENOMEM, -EFBIG (4 GiB of names, 2^32 - 2 folders) or the meter's error. The
 * builder starts zeroed, except for its meter. */
struct manifest_builder {
	struct meter *meter; /* as in struct text */
	struct text classes, paths, names;
	struct manifest_dir *dirs;
	size_t n_dirs, dirs_capacity;
	uint32_t *class_name;
	size_t n_classes, classes_capacity;
	uint32_t *file_dir, *file_name;
	int64_t *labels;
	size_t n_files, files_capacity, labels_capacity;
};
int manifest_add_class(struct manifest_builder *b, const char *name);
int manifest_add_dir(struct manifest_builder *b, const char *path, size_t n_path, const struct manifest_dir *like);
int manifest_add_file(struct manifest_builder *b, uint32_t dir, const char *name, size_t n_name);
int manifest_add_labelled_file(struct manifest_builder *b, uint32_t dir, const char *name, size_t n_name,
			       int64_t label);
int manifest_build(struct manifest_builder *b,
		   struct manifest *out); /* the builder is empty afterwards, also on error */
void manifest_builder_finish(struct manifest_builder *b);

/* Parses bytes into an index. Takes the block (malloc'ed) when it returns 0; -EINVAL for a damaged or foreign block, or
 * one of another version. */
int manifest_parse(void *block, size_t block_bytes, struct manifest *out);
/* Load from a file (also -ENOENT and other errors of block_load), and save to a file, whole or not at all (temporary file,
 * fsync, rename). */
int manifest_load(const char *path, struct meter *meter, struct manifest *out);
int manifest_save(const char *path, const struct manifest *ix);

#endif
