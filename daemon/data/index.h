/* The index of an image data set: folders, files, labels and classes in one block of memory, which is also its form on
 * disk.
 *
 * A file costs 8 bytes and its name (folders are stored once), plus 8 where labels are not those of its folder: a
 * million files are about 30 MB. Nothing in it is a pointer, so reading one back is a read and a check. */
#ifndef BATCHD_INDEX_H
#define BATCHD_INDEX_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/meter.h"

#define INDEX_NO_CLASS UINT32_MAX

struct index_dir {
	uint64_t path;                     /* offset in text; relative to the root, "." for the root itself */
	uint64_t dev, ino, mtime_ns, ctime_ns; /* when its entries were read: unchanged means that the index still
	                                        * holds */
	uint32_t class_id;                 /* INDEX_NO_CLASS for the root and for lists */
	uint32_t reserved;                 /* zero */
};

struct index {
	void *block;                       /* owned; everything below points into it */
	size_t block_bytes;
	uint64_t n_files;
	uint32_t n_dirs, n_classes;
	const struct index_dir *dirs;      /* [0] is the root */
	const int64_t *labels;             /* of each file; NULL: the class of its folder */
	const uint32_t *file_dir;          /* of each file */
	const uint32_t *file_name;         /* of each file, offset in text */
	const uint32_t *class_name;        /* of each class, offset in text */
	const char *text;                  /* NUL-terminated strings: classes, folders, file names */
};

void index_finish(struct index *ix);

static inline const char *index_dir_path(const struct index *ix, uint32_t dir)
{
	return ix->text + ix->dirs[dir].path;
}
static inline const char *index_file_name(const struct index *ix, uint64_t i)
{
	return ix->text + ix->file_name[i];
}
int64_t index_label(const struct index *ix, uint64_t i);
/* "dir/file" as below the root, cut to size. */
void index_name(const struct index *ix, uint64_t i, char *buf, size_t size);
/* Same samples in the same order with the same labels and class names: same hash. */
uint64_t index_hash(const struct index *ix, uint64_t seed);

/* Putting one together. All functions return 0, -ENOMEM, -EFBIG (4 GiB of names, 2^32 - 2 folders) or what the meter
 * says. The builder is zeroed to begin with, but for its meter. */
struct text {
	char *bytes;
	size_t n, capacity;
	struct meter *meter; /* borrowed; NULL: nothing is counted */
};
int text_add(struct text *t, const char *bytes, size_t n, uint64_t *offset); /* adds the NUL */

struct index_builder {
	struct meter *meter;               /* as in struct text */
	struct text classes, paths, names;
	struct index_dir *dirs;
	size_t n_dirs, dirs_capacity;
	uint32_t *class_name;
	size_t n_classes, classes_capacity;
	uint32_t *file_dir, *file_name;
	int64_t *labels;
	size_t n_files, files_capacity, labels_capacity;
};
int index_add_class(struct index_builder *b, const char *name);
int index_add_dir(struct index_builder *b, const char *path, size_t n_path, const struct index_dir *like);
int index_add_file(struct index_builder *b, uint32_t dir, const char *name, size_t n_name);
int index_add_labelled_file(struct index_builder *b, uint32_t dir, const char *name, size_t n_name, int64_t label);
int index_build(struct index_builder *b, struct index *out); /* the builder is empty afterwards, also on error */
void index_builder_finish(struct index_builder *b);

/* Bytes in, index out. Takes the block (malloc'ed) when it returns 0; -EINVAL for anything damaged, foreign or of
 * another version. */
int index_parse(void *block, size_t block_bytes, struct index *out);
/* From a file, -ENOENT and the like included; and into one, whole or not at all (temporary file, fsync, rename). */
int index_load(const char *path, struct index *out);
int index_save(const char *path, const struct index *ix);

#endif
