/* DLPack's structs, as dlpack.h (version 1.0) has them: how array libraries exchange memory. */
#ifndef BATCHD_CLIENT_DLPACK_H
#define BATCHD_CLIENT_DLPACK_H

#include <stdint.h>

enum { DL_CPU = 1, DL_CUDA = 2 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_COMPLEX = 5, DL_BOOL = 6 };
enum { DL_FLOAT8_E4M3FN = 10, DL_FLOAT8_E5M2 = 12 }; /* of version 1.1 */
enum { DL_FLAG_READ_ONLY = 1 };

struct dl_tensor {
	void *data;
	int32_t device_type, device_id;
	int32_t n_dims;
	uint8_t type_code, type_bits;
	uint16_t type_lanes;
	int64_t *shape, *strides;
	uint64_t byte_offset;
};

/* DLManagedTensor: the content of a capsule named "dltensor". */
struct dl_managed {
	struct dl_tensor tensor;
	void *context;
	void (*deleter)(struct dl_managed *self);
};

/* DLManagedTensorVersioned: "dltensor_versioned". */
struct dl_managed_versioned {
	uint32_t major, minor;
	void *context;
	void (*deleter)(struct dl_managed_versioned *self);
	uint64_t flags;
	struct dl_tensor tensor;
};

#endif
