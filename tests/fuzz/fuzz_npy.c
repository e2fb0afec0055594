/* Headers of .npy files: any bytes are refused with text, or describe an array whose sizes add up. */
#include <stdlib.h>
#include <string.h>

#include "dataset/arrays/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct npy_error err = { "" };
	struct npy npy;
	uint64_t n;

	if (npy_parse(data, size, &npy, &err) < 0) {
		if (!err.text[0] || !memchr(err.text, '\0', sizeof(err.text))) {
			abort();
		}
		return 0;
	}
	n = dtype_bytes(npy.dtype);
	for (unsigned i = 0; i < npy.n_dims; i++) {
		n *= npy.shape[i];
	}
	if (npy.n_dims > NPY_MAX_DIMS || npy.data_offset_bytes > size || n != npy.data_bytes ||
	    npy.data_offset_bytes + npy.data_bytes > (uint64_t)INT64_MAX) {
		abort();
	}
	return 0;
}
