/* An IDX header: two zero bytes, the type, the number of dimensions, and each as a big-endian uint32. */
#include "dataset/arrays/idx.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
	uint8_t code;
	const char *name;
} large[] = { { 0x0b, "int16" }, { 0x0c, "int32" }, { 0x0d, "float32" }, { 0x0e, "float64" } };

static int read_type(uint8_t code, struct npy *out, struct npy_error *err)
{
	if (code == 0x08 || code == 0x09) {
		out->dtype = code == 0x08 ? DTYPE_UINT8 : DTYPE_INT8;
		return 0;
	}
	for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
		if (code == large[i].code)
			return npy_fail(err,
					"big-endian %s is not served: convert with numpy.save(file, a.astype('%s'))",
					large[i].name, large[i].name);
	}
	return npy_fail(err, "not an IDX file (type 0x%02x)", code);
}

int idx_parse(const void *bytes, size_t n_bytes, struct npy *out, struct npy_error *err)
{
	const uint8_t *b = bytes;
	uint64_t n = 1;

	memset(out, 0, sizeof(*out));
	if (n_bytes < 4 || b[0] || b[1])
		return npy_fail(err, "not an IDX file: expected MNIST's format");
	if (read_type(b[2], out, err) < 0)
		return -EINVAL;
	if (b[3] > NPY_MAX_DIMS)
		return npy_fail(err, "more than %d dimensions", NPY_MAX_DIMS);
	out->n_dims = b[3];
	out->data_offset_bytes = 4 + 4 * (uint64_t)out->n_dims;
	if (n_bytes < out->data_offset_bytes)
		return npy_fail(err, "damaged header: the file ends in it");
	for (unsigned i = 0; i < out->n_dims; i++) {
		const uint8_t *d = b + 4 + 4 * i;

		out->shape[i] = (uint64_t)d[0] << 24 | (uint64_t)d[1] << 16 | (uint64_t)d[2] << 8 | d[3];
		if (__builtin_mul_overflow(n, out->shape[i], &n) || n > (uint64_t)INT64_MAX - IDX_MAX_HEADER_BYTES)
			return npy_fail(err, "damaged header: the shape's product is too large");
	}
	out->data_bytes = n;
	return 0;
}
