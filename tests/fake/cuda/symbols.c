/* Finds functions by name and version; the names of errors; traps behind names that stand for an interface of 32-bit
 * times. */
#include <string.h>

#include "fake.h"

static const struct {
	const char *name;
	void *fn;
	int since;
} table[] = {
#define ROW(name, symbol, since, params) { #name, (void *)symbol, since },
	FAKECUDA_API(ROW)
#undef ROW
};

/* The newest version that is at most the requested one. *status: 0 found, 1 no such name, 2 only in a newer version. */
static CUresult look_up(const char *symbol, void **fn, int version, int *status)
{
	int best = 0;

	*fn = NULL;
	*status = 1;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		if (strcmp(table[i].name, symbol) || table[i].since > settings.version)
			continue;
		if (*status == 1)
			*status = 2;
		if (table[i].since <= version && table[i].since > best) {
			best = table[i].since;
			*fn = table[i].fn;
			*status = 0;
		}
	}
	return *status ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **fn, int version, uint64_t flags)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuGetProcAddress, NEED_NOTHING);
	int status;

	(void)flags;
	if (!r)
		r = look_up(symbol, fn, version, &status);
	return call_end(&c, r);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **fn, int version, uint64_t flags, int *statusp)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuGetProcAddress_v2, NEED_NOTHING);
	int status;

	(void)flags;
	if (!r)
		r = look_up(symbol, fn, version, statusp ? statusp : &status);
	if (r == CUDA_ERROR_NOT_FOUND && statusp) /* the status reports it */
		r = CUDA_SUCCESS;
	return call_end(&c, r);
}

static const struct {
	CUresult value;
	const char *name, *text;
} errors[] = {
	{ 0, "CUDA_SUCCESS", "no error" },
	{ 1, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
	{ 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
	{ 3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
	{ 4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down" },
	{ 46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable" },
	{ 100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
	{ 101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
	{ 200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid" },
	{ 201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
	{ 205, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed" },
	{ 208, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped" },
	{ 209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device" },
	{ 211, "CUDA_ERROR_NOT_MAPPED", "resource not mapped" },
	{ 214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered" },
	{ 304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS" },
	{ 400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
	{ 401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state" },
	{ 500, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
	{ 600, "CUDA_ERROR_NOT_READY", "device not ready" },
	{ 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered" },
	{ 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch" },
	{ 702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated" },
	{ 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed" },
	{ 712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
	  "part or all of the requested memory range is already mapped" },
	{ 713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region" },
	{ 714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error" },
	{ 719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure" },
	{ 800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted" },
	{ 801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
	{ 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination" },
	{ 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing" },
	{ 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture" },
	{ 902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences" },
	{ 905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream" },
	{ 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
	  "operation would make the legacy stream depend on a capturing blocking stream" },
	{ 907, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream" },
	{ 908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
	  "attempt to terminate a thread-local capture sequence from another thread" },
	{ 999, "CUDA_ERROR_UNKNOWN", "unknown error" },
};

CUresult cuGetErrorName(CUresult error, const char **name)
{
	*name = NULL;
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].value == error)
			*name = errors[i].name;
	return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
	*text = NULL;
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].value == error)
			*text = errors[i].text;
	return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#define TRAP(name) \
	CUresult name(void); \
	CUresult name(void) \
	{ \
		violation("%s: this name means an old interface; the versioned one is wanted", #name); \
		return CUDA_ERROR_INVALID_VALUE; \
	}
FAKECUDA_OLD(TRAP)
