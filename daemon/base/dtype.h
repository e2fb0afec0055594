/* What a number in memory is: of pixels, arrays and columns. Values as in proto/batchd.proto. */
#ifndef BATCHD_DTYPE_H
#define BATCHD_DTYPE_H

#include <stddef.h>

enum dtype {
	DTYPE_UINT8,
	DTYPE_FLOAT16,
	DTYPE_FLOAT32,
	DTYPE_INT32,
	DTYPE_INT64,
	DTYPE_FLOAT64,
	DTYPE_INT16,
	DTYPE_BOOL8,
	/* of arrays only, but for uint16 */
	DTYPE_INT8 = 9,
	DTYPE_UINT16,
	DTYPE_UINT32,
	DTYPE_UINT64,
	DTYPE_COMPLEX64,
	DTYPE_COMPLEX128
};

size_t dtype_bytes(enum dtype t);
const char *dtype_name(enum dtype t); /* numpy's; NULL: there is no such number */

#endif
