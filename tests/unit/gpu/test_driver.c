/* The table of driver calls. A machine without a driver, with another library under its name or with an old driver gets
 * a clear answer. Where NVIDIA's header is installed, our declarations match it; where its driver is ($REAL_LIBCUDA,
 * else libcuda.so.1), so do our names. */
#include "support/cuda-declarations.h"
#include "gpu/driver.h"
#include "support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<cuda.h>)
#include <cuda.h>
#define HAVE_CUDA_H 1
#endif

/* ---- helpers ---- */

static bool is_empty(const struct cuda_driver *d)
{
	static const struct cuda_driver empty;

	return memcmp(d, &empty, sizeof empty) == 0;
}

/* ---- cases ---- */

START_TEST(test_missing_driver_is_an_answer)
{
	/* What every machine without a GPU gets: no table, and a reason that names the library. */
	struct cuda_driver d;
	char why[256];

	setenv("BATCHD_LIBCUDA", "/nowhere/libcuda.so.1", 1);
	memset(&d, 0xff, sizeof d);
	ck_assert_int_eq(cuda_driver_load(&d, why, sizeof why), -ENOENT);
	ck_assert(is_empty(&d));
	ck_assert_msg(strstr(why, "no NVIDIA driver") && strstr(why, "/nowhere/libcuda.so.1"), "%s", why);
	ck_assert_int_eq(cuda_driver_load(&d, why, 8), -ENOENT);
	ck_assert_uint_eq(strlen(why), 7);
	ck_assert_int_eq(cuda_driver_load(&d, NULL, 0), -ENOENT);
}
END_TEST

START_TEST(test_empty_variable_means_the_systems_driver)
{
	/* An empty variable counts as not set: the answer is that for libcuda.so.1, whichever this machine has. */
	struct cuda_driver d;
	char unset[256], empty[256];
	int r;

	unsetenv("BATCHD_LIBCUDA");
	r = cuda_driver_load(&d, unset, sizeof unset);
	setenv("BATCHD_LIBCUDA", "", 1);
	ck_assert_int_eq(cuda_driver_load(&d, empty, sizeof empty), r);
	ck_assert_str_eq(empty, unset);
	ck_assert(is_empty(&d) == (r != 0));
	if (r == -ENOENT)
		ck_assert_msg(strstr(unset, "libcuda.so.1") != NULL, "%s", unset);
}
END_TEST

START_TEST(test_library_without_our_calls_is_too_old)
{
	/* A library that is not NVIDIA's, or an older one: the first missing call is named. */
	struct cuda_driver d;
	char why[256];

	setenv("BATCHD_LIBCUDA", "libm.so.6", 1);
	ck_assert_int_eq(cuda_driver_load(&d, why, sizeof why), -ENOSYS);
	ck_assert(is_empty(&d));
	ck_assert_msg(strstr(why, "too old") && strstr(why, "libm.so.6") && strstr(why, "cuInit"), "%s", why);
}
END_TEST

START_TEST(test_what_cuinit_says_is_explained)
{
	/* Every result has a meaning and an advice; the common ones have their own. */
	const char *advice, *unknown = cuda_init_meaning(123456, &advice);

	ck_assert_msg(strstr(unknown, "does not start") && *advice, "%s: %s", unknown, advice);
	ck_assert(strstr(cuda_init_meaning(CUDA_NO_DEVICE, &advice), "sees no GPU") &&
		  strstr(advice, "CUDA_VISIBLE_DEVICES"));
	ck_assert(strstr(cuda_init_meaning(CUDA_NOT_INITIALIZED, &advice), "forked") && strstr(advice, "spawn"));
	ck_assert(strstr(cuda_init_meaning(CUDA_SYSTEM_NOT_READY, &advice), "not ready") &&
		  strstr(advice, "fabricmanager"));
}
END_TEST

START_TEST(test_a_real_driver_has_what_we_call)
{
	/* NVIDIA's own library, where it is installed; a GPU is not needed: every name is found, and its names of
	 * results are ours. */
	static const int ours[] = {
#define X(constant, value, name, sticky) value,
		CUDA_RESULTS(X)
#undef X
	};
	const char *real = getenv("REAL_LIBCUDA"), *name, *advice;
	struct cuda_driver d;
	char why[256];
	int version = 0, r;

	setenv("BATCHD_LIBCUDA", real ? real : "", 1);
	r = cuda_driver_load(&d, why, sizeof why);
	if (r == -ENOENT && !real) {
		fprintf(stderr, "test_driver: no NVIDIA driver here to compare names with\n");
		return;
	}
	ck_assert_msg(r == 0, "%s", why);
	ck_assert_int_eq(d.driver_get_version(&version), CUDA_OK);
	ck_assert_int_ge(version, CUDA_LEAST_DRIVER);
	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
		if (d.get_error_name(ours[i], &name) == CUDA_OK) /* the driver has no name for a result that is younger
		                                                  * than itself */
			ck_assert_str_eq(name, cuda_error_name(NULL, ours[i]));
	r = d.init(0);
	ck_assert_msg(r == CUDA_OK || *cuda_init_meaning(r, &advice), "%d", r);
	fprintf(stderr, "test_driver: the driver of CUDA %d.%d here has all names; cuInit says %s\n", version / 1000,
		version % 1000 / 10, cuda_error_name(&d, r));
}
END_TEST

START_TEST(test_errors_have_names_and_the_fatal_ones_are_known)
{
	/* Names need no driver; a full GPU is no reason to restart, an illegal address is. */
	ck_assert_str_eq(cuda_error_name(NULL, 2), "CUDA_ERROR_OUT_OF_MEMORY");
	ck_assert_str_eq(cuda_error_name(NULL, 0), "CUDA_SUCCESS");
	ck_assert_str_eq(cuda_error_name(NULL, 123456), "CUDA error 123456");
	ck_assert(cuda_error_sticky(CUDA_ILLEGAL_ADDRESS) && cuda_error_sticky(CUDA_LAUNCH_FAILED) &&
		  cuda_error_sticky(CUDA_ECC_UNCORRECTABLE));
	ck_assert(!cuda_error_sticky(CUDA_OK) && !cuda_error_sticky(CUDA_OUT_OF_MEMORY) &&
		  !cuda_error_sticky(CUDA_NOT_READY) && !cuda_error_sticky(123456));
}
END_TEST

START_TEST(test_functions_are_declared_as_nvidia_does)
{
	/* Every call that we use and every call that the fake driver has: as many parameters, of the same types. Without a
	 * toolkit there is nothing to compare with. */
	const char *ours = cuda_declarations_wrong(), *doubles = fakecuda_declarations_wrong();

	ck_assert_msg(!ours, "daemon/gpu/driver.h declares %s in another way than cuda.h", ours);
	ck_assert_msg(!doubles, "tests/fake/cuda/abi.h declares %s in another way than cuda.h", doubles);
	if (!cuda_declarations_known())
		fprintf(stderr, "test_driver: no cuda.h here to compare declarations with\n");
}
END_TEST

#ifdef HAVE_CUDA_H
/* Each result by its own name. */
static const struct {
	int ours, theirs;
	const char *name;
} results[] = {
#define RESULT(constant, name) { constant, name, #name }
	RESULT(CUDA_OK, CUDA_SUCCESS),
	RESULT(CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE),
	RESULT(CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY),
	RESULT(CUDA_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED),
	RESULT(CUDA_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED),
	RESULT(CUDA_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY),
	RESULT(CUDA_DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE),
	RESULT(CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE),
	RESULT(CUDA_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE),
	RESULT(CUDA_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE),
	RESULT(CUDA_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT),
	RESULT(CUDA_MAP_FAILED, CUDA_ERROR_MAP_FAILED),
	RESULT(CUDA_ALREADY_MAPPED, CUDA_ERROR_ALREADY_MAPPED),
	RESULT(CUDA_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU),
	RESULT(CUDA_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE),
	RESULT(CUDA_INVALID_PTX, CUDA_ERROR_INVALID_PTX),
	RESULT(CUDA_NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE),
	RESULT(CUDA_JIT_COMPILER_NOT_FOUND, CUDA_ERROR_JIT_COMPILER_NOT_FOUND),
	RESULT(CUDA_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
	RESULT(CUDA_JIT_COMPILATION_DISABLED, CUDA_ERROR_JIT_COMPILATION_DISABLED),
	RESULT(CUDA_CONTAINED, CUDA_ERROR_CONTAINED),
	RESULT(CUDA_OPERATING_SYSTEM, CUDA_ERROR_OPERATING_SYSTEM),
	RESULT(CUDA_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE),
	RESULT(CUDA_NOT_FOUND, CUDA_ERROR_NOT_FOUND),
	RESULT(CUDA_NOT_READY, CUDA_ERROR_NOT_READY),
	RESULT(CUDA_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS),
	RESULT(CUDA_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
	RESULT(CUDA_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT),
	RESULT(CUDA_PRIMARY_CONTEXT_ACTIVE, CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE),
	RESULT(CUDA_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED),
	RESULT(CUDA_ASSERT, CUDA_ERROR_ASSERT),
	RESULT(CUDA_HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
	RESULT(CUDA_HOST_MEMORY_NOT_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
	RESULT(CUDA_HARDWARE_STACK_ERROR, CUDA_ERROR_HARDWARE_STACK_ERROR),
	RESULT(CUDA_ILLEGAL_INSTRUCTION, CUDA_ERROR_ILLEGAL_INSTRUCTION),
	RESULT(CUDA_MISALIGNED_ADDRESS, CUDA_ERROR_MISALIGNED_ADDRESS),
	RESULT(CUDA_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_ADDRESS_SPACE),
	RESULT(CUDA_INVALID_PC, CUDA_ERROR_INVALID_PC),
	RESULT(CUDA_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED),
	RESULT(CUDA_TENSOR_MEMORY_LEAK, CUDA_ERROR_TENSOR_MEMORY_LEAK),
	RESULT(CUDA_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED),
	RESULT(CUDA_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED),
	RESULT(CUDA_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY),
	RESULT(CUDA_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH),
	RESULT(CUDA_COMPAT_NOT_SUPPORTED, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE),
	RESULT(CUDA_MPS_CONNECTION_FAILED, CUDA_ERROR_MPS_CONNECTION_FAILED),
	RESULT(CUDA_MPS_CLIENT_TERMINATED, CUDA_ERROR_MPS_CLIENT_TERMINATED),
	RESULT(CUDA_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
	RESULT(CUDA_STREAM_CAPTURE_ISOLATION, CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
	RESULT(CUDA_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
	RESULT(CUDA_EXTERNAL_DEVICE, CUDA_ERROR_EXTERNAL_DEVICE),
	RESULT(CUDA_UNKNOWN, CUDA_ERROR_UNKNOWN),
#undef RESULT
};

START_TEST(test_declarations_are_nvidias)
{
	/* Values and sizes of everything that is passed between batchd and the driver. */
#define same(ours, theirs) ck_assert_int_eq((int)(ours), (int)(theirs))
	for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
		ck_assert_msg(results[i].ours == results[i].theirs, "%s", results[i].name);
		ck_assert_str_eq(cuda_error_name(NULL, results[i].ours), results[i].name);
	}
	same(CUDA_DEVICE_INTEGRATED, CU_DEVICE_ATTRIBUTE_INTEGRATED);
	same(CUDA_DEVICE_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
	same(CUDA_DEVICE_ASYNC_ENGINE_COUNT, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
	same(CUDA_DEVICE_UNIFIED_ADDRESSING, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
	same(CUDA_DEVICE_COMPUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
	same(CUDA_DEVICE_COMPUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	same(CUDA_DEVICE_CAN_USE_HOST_POINTER, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
	same(CUDA_DEVICE_HOST_REGISTER_SUPPORTED, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
	same(CUDA_DEVICE_VMM_SUPPORTED, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
	same(CUDA_DEVICE_POSIX_FD_SUPPORTED, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
	same(CUDA_DEVICE_READ_ONLY_HOST_REGISTER_SUPPORTED, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
	same(CUDA_DEVICE_IPC_EVENT_SUPPORTED, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
	same(CUDA_DEVICE_MPS_ENABLED, CU_DEVICE_ATTRIBUTE_MPS_ENABLED);
	same(CUDA_DEVICE_HOST_NUMA_ID, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
	same(CUDA_COMPUTE_DEFAULT, CU_COMPUTEMODE_DEFAULT);
	same(CUDA_COMPUTE_PROHIBITED, CU_COMPUTEMODE_PROHIBITED);
	same(CUDA_COMPUTE_EXCLUSIVE_PROCESS, CU_COMPUTEMODE_EXCLUSIVE_PROCESS);
	same(CUDA_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT);
	same(CUDA_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
	same(CUDA_POINTER_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
	same(CUDA_POINTER_HOST_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER);
	same(CUDA_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
	same(CUDA_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
	same(CUDA_POINTER_IS_LEGACY_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
	same(CUDA_POINTER_RANGE_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
	same(CUDA_POINTER_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
	same(CUDA_CTX_SCHED_BLOCKING_SYNC, CU_CTX_SCHED_BLOCKING_SYNC);
	same(CUDA_CTX_SCHED_MASK, CU_CTX_SCHED_MASK);
	same(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
	same(CUDA_EVENT_BLOCKING_SYNC, CU_EVENT_BLOCKING_SYNC);
	same(CUDA_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
	same(CUDA_EVENT_INTERPROCESS, CU_EVENT_INTERPROCESS);
	same(CUDA_HOST_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
	same(CUDA_HOST_REGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP);
	same(CUDA_HOST_REGISTER_READ_ONLY, CU_MEMHOSTREGISTER_READ_ONLY);
	same(CUDA_IPC_LAZY_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	same(CUDA_MEM_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
	same(CUDA_MEM_ON_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
	same(CUDA_MEM_POSIX_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	same(CUDA_MEM_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	same(CUDA_MEM_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	same(CUDA_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
	same(CUDA_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
	ck_assert_ptr_eq(CUDA_STREAM_LEGACY, CU_STREAM_LEGACY);
	ck_assert_ptr_eq(CUDA_STREAM_PER_THREAD, CU_STREAM_PER_THREAD);
	same(sizeof(cuda_device), sizeof(CUdevice));
	same(sizeof(cuda_ptr), sizeof(CUdeviceptr));
	same(sizeof(struct cuda_uuid), sizeof(CUuuid));
	same(sizeof(struct cuda_ipc_handle), sizeof(CUipcMemHandle));
	same(sizeof(cuda_mem_handle), sizeof(CUmemGenericAllocationHandle));
	same(sizeof(struct cuda_mem_prop), sizeof(CUmemAllocationProp));
	same(offsetof(struct cuda_mem_prop, handle_types), offsetof(CUmemAllocationProp, requestedHandleTypes));
	same(offsetof(struct cuda_mem_prop, location), offsetof(CUmemAllocationProp, location));
	same(offsetof(struct cuda_mem_location, id), offsetof(CUmemLocation, id));
	same(sizeof(struct cuda_mem_access), sizeof(CUmemAccessDesc));
	same(offsetof(struct cuda_mem_access, flags), offsetof(CUmemAccessDesc, flags));
	same(sizeof(enum cuda_device_attribute), sizeof(CUdevice_attribute));
	same(sizeof(enum cuda_pointer_attribute), sizeof(CUpointer_attribute));
	same(sizeof(int), sizeof(CUresult));
#undef same
}
END_TEST
#endif

SUITE(driver)
{
	Suite *s = suite_create("driver");
	TCase *cases = tcase_create("driver");

	tcase_add_test(cases, test_missing_driver_is_an_answer);
	tcase_add_test(cases, test_empty_variable_means_the_systems_driver);
	tcase_add_test(cases, test_library_without_our_calls_is_too_old);
	tcase_add_test(cases, test_what_cuinit_says_is_explained);
	tcase_add_test(cases, test_a_real_driver_has_what_we_call);
	tcase_add_test(cases, test_errors_have_names_and_the_fatal_ones_are_known);
	tcase_add_test(cases, test_functions_are_declared_as_nvidia_does);
#ifdef HAVE_CUDA_H
	tcase_add_test(cases, test_declarations_are_nvidias);
#endif
	suite_add_tcase(s, cases);
	return s;
}
