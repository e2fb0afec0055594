/* Parses the header of a .npy file from bytes into a struct. */
#ifndef BATCHD_NPY_H
#define BATCHD_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

enum { NPY_MAX_DIMS = 9, NPY_MAX_HEADER_BYTES = 64 << 10 };

struct npy {
	enum dtype dtype;
	unsigned n_dims; /* 0 for a scalar */
	uint64_t shape[NPY_MAX_DIMS];
	uint64_t data_offset_bytes; /* where the elements begin */
	uint64_t data_bytes;        /* size of the elements; with the offset it fits an int64 */
};

struct npy_error {
	char text[320]; /* without the file's name */
};

/* Reads the first n_bytes of a file; NPY_MAX_HEADER_BYTES are enough. Versions 1 to 3, C order, little-endian elements
 * of a type that enum dtype has. 0 or -EINVAL with err->text, which says how to convert with numpy where that helps. */
int npy_parse(const void *bytes, size_t n_bytes, struct npy *out, struct npy_error *err);
/* Writes err->text, for all formats that say what is wrong so. Returns -EINVAL. */
int npy_fail(struct npy_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
