/* The directory of an .npz file, which is a zip archive of .npy files: bytes in, places of members out. */
#ifndef BATCHD_NPZ_H
#define BATCHD_NPZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataset/arrays/npy.h"

enum { NPZ_MAX_DIRECTORY_BYTES = 1 << 20, NPZ_NAME_BYTES = 64, NPZ_MAX_MEMBERS = 64 };

struct npz_member {
	char name[NPZ_NAME_BYTES]; /* without ".npy" */
	bool deflated;
	uint32_t crc;
	uint64_t n_bytes, n_stored; /* of the .npy file, and of what stands for it in the archive */
	uint64_t offset;            /* where that begins; it lies within the archive */
};

/* Reads n bytes from `at` on: 0 or negative errno. */
typedef int npz_read_fn(void *arg, uint64_t at, void *to, size_t n);

/* Members in the order of the directory. 0, the error of `read`, -EINVAL with err->text, -ENOMEM. */
int npz_read(npz_read_fn *read, void *arg, uint64_t archive_bytes, struct npz_member members[NPZ_MAX_MEMBERS],
	     unsigned *n, struct npy_error *err);

#endif
