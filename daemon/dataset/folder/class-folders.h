/* Classes of samples that have paths: the folders below the deepest one that has all samples, numbered in the order of
 * their names, as ImageFolder numbers the folders of its root. */
#ifndef BATCHD_CLASS_FOLDERS_H
#define BATCHD_CLASS_FOLDERS_H

#include "dataset/classes.h"

typedef const char *class_folders_path_fn(const void *arg, uint64_t i);

/* 0, or -ENOMEM, -EFBIG, the meter's error, or -EINVAL: *odd is a sample that lies in no class folder, where others do.
 * The caller finishes *out in either case; it stays charged to the meter. */
int class_folders_make(class_folders_path_fn *path, const void *arg, uint64_t n, struct meter *meter,
		       struct classes *out, uint64_t *odd);
#endif
