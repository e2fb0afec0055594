/* Parses the header of an IDX file (MNIST's format) from bytes into a struct. */
#ifndef BATCHD_IDX_H
#define BATCHD_IDX_H

#include <stddef.h>
#include <stdint.h>

#include "dataset/arrays/npy.h"

enum { IDX_MAX_HEADER_BYTES = 4 + 4 * 255 };

/* Reads the first n_bytes of a file, IDX_MAX_HEADER_BYTES if it has as many. As npy_parse: shape, type and place of the
 * elements, of one byte each; larger ones are stored in another byte order and refused. 0 or -EINVAL with err->text. */
int idx_parse(const void *bytes, size_t n_bytes, struct npy *out, struct npy_error *err);

#endif
