/* See dtype.h. */
#include "base/dtype.h"

static const struct {
	const char *name;
	size_t bytes;
} dtypes[] = {
	[DTYPE_UINT8] = { "uint8", 1 },         [DTYPE_FLOAT16] = { "float16", 2 },
	[DTYPE_FLOAT32] = { "float32", 4 },     [DTYPE_INT32] = { "int32", 4 },
	[DTYPE_INT64] = { "int64", 8 },         [DTYPE_FLOAT64] = { "float64", 8 },
	[DTYPE_INT16] = { "int16", 2 },         [DTYPE_BOOL8] = { "bool", 1 },
	[DTYPE_INT8] = { "int8", 1 },           [DTYPE_UINT16] = { "uint16", 2 },
	[DTYPE_UINT32] = { "uint32", 4 },       [DTYPE_UINT64] = { "uint64", 8 },
	[DTYPE_COMPLEX64] = { "complex64", 8 }, [DTYPE_COMPLEX128] = { "complex128", 16 },
};

size_t dtype_bytes(enum dtype t)
{
	return dtypes[t].bytes;
}

const char *dtype_name(enum dtype t)
{
	return (unsigned)t < sizeof(dtypes) / sizeof(dtypes[0]) ? dtypes[t].name : NULL;
}
