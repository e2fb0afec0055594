/* Classes of samples that have paths: the folders below the deepest one that has all samples, numbered in the order of
 * their names, as ImageFolder numbers the folders of its root. */
#ifndef BATCHD_CLASS_FOLDERS_H
#define BATCHD_CLASS_FOLDERS_H

#include <stddef.h>
#include <stdint.h>

#include "data/block.h"

struct class_folders {
	uint32_t *labels; /* owned, of each sample; NULL: all samples lie in one folder */
	struct text text;
	uint64_t *names; /* owned: offsets in text, sorted */
	size_t n, n_samples, capacity;
};

typedef const char *class_folders_path_fn(const void *arg, uint64_t i);

/* 0, or -ENOMEM, -EFBIG, the meter's error, or -EINVAL: *odd is a sample that lies in no class folder, where others do.
 * The caller finishes *out in either case; it stays charged to the meter. */
int class_folders_make(class_folders_path_fn *path, const void *arg, uint64_t n, struct meter *meter,
		       struct class_folders *out, uint64_t *odd);
uint64_t class_folders_memory_bytes(const struct class_folders *c);
void class_folders_finish(struct class_folders *c);

static inline const char *class_folders_name(const struct class_folders *c, size_t i)
{
	return c->text.bytes + c->names[i];
}

#endif
