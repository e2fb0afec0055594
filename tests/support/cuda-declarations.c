/* See cuda-declarations.h. NVIDIA's names here are those of the driver's library, not those that programs write:
 * cuMemAlloc is the oldest version of that function. */
#include "cuda-declarations.h"

#include <stddef.h>
#include <string.h>

#if __has_include(<cuda.h>)
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "gpu/driver.h"

/* Both lists again, with NVIDIA's types in place of ours. */
#define cuda_device CUdevice
#define cuda_ptr CUdeviceptr
#define cuda_context CUctx_st
#define cuda_stream CUstream_st
#define cuda_event CUevent_st
#define cuda_module CUmod_st
#define cuda_function CUfunc_st
#define cuda_uuid CUuuid_st
#define cuda_ipc_handle CUipcMemHandle_st
#define cuda_mem_handle CUmemGenericAllocationHandle
#define cuda_mem_prop CUmemAllocationProp_st
#define cuda_mem_access CUmemAccessDesc_st
#define cuda_device_attribute CUdevice_attribute_enum
#define cuda_pointer_attribute CUpointer_attribute_enum

/* We declare an enumeration, by value or by address, as an int: it has the same size and is passed the same way. */
#define SAME(ours, theirs) __builtin_types_compatible_p(ours, theirs)
#define KNOWN(name, parameters) \
	if (!strcmp(symbol, #name)) \
		return SAME(__typeof__(name), CUresult parameters);

static bool same_but_enums(const char *symbol)
{
	KNOWN(cuGetErrorName, (CUresult error, const char **name))
	KNOWN(cuGetErrorString, (CUresult error, const char **text))
	KNOWN(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * status))
	KNOWN(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))
	KNOWN(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))
	KNOWN(cuGetProcAddress_v2,
	      (const char *symbol, void **fn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status))
	KNOWN(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device))
	KNOWN(cuPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr ptr))
	KNOWN(cuPointerGetAttributes, (unsigned n, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr))
	KNOWN(cuFuncGetAttribute, (int *value, CUfunction_attribute attribute, CUfunction function))
	KNOWN(cuCtxCreate_v4, (CUcontext * ctx, CUctxCreateParams * params, unsigned flags, CUdevice device))
	KNOWN(cuModuleLoadDataEx,
	      (CUmodule * module, const void *image, unsigned n, CUjit_option *options, void **values))
	KNOWN(cuLibraryLoadData, (CUlibrary * library, const void *code, CUjit_option *jit, void **jit_values,
				  unsigned n_jit, CUlibraryOption *options, void **values, unsigned n))
	KNOWN(cuMemGetAllocationGranularity,
	      (size_t *bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option))
	KNOWN(cuMemExportToShareableHandle,
	      (void *fd, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags))
	KNOWN(cuMemImportFromShareableHandle,
	      (CUmemGenericAllocationHandle * handle, void *fd, CUmemAllocationHandleType type))
	return false;
}

bool cuda_declarations_known(void)
{
	return true;
}

#define X(member, symbol, parameters) \
	if (!SAME(__typeof__(symbol), CUresult parameters) && !same_but_enums(#symbol)) \
		return #symbol;
const char *cuda_declarations_wrong(void)
{
	CUDA_CALLS(X)
	return NULL;
}
#undef X

#define FAKECUDA_LIST_ONLY
#include "fake/cuda/abi.h"

#define X(name, symbol, since, parameters) \
	if (!SAME(__typeof__(symbol), CUresult parameters) && !same_but_enums(#symbol)) \
		return #symbol;
const char *fakecuda_declarations_wrong(void)
{
	FAKECUDA_API(X)
	return NULL;
}
#undef X

#else
bool cuda_declarations_known(void)
{
	return false;
}

const char *cuda_declarations_wrong(void)
{
	return NULL;
}

const char *fakecuda_declarations_wrong(void)
{
	return NULL;
}
#endif
