/* Finding the driver. Every function is looked up by the name under which the library exports the ABI declared here. No
 * function is newer than driver 470 (CUDA 11.4), so a missing name means an older driver and is an ordinary outcome.
 * The library is never unloaded: the driver has threads of its own and does not expect to be unmapped under them. */
#include "gpu/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *symbol;
	size_t offset; /* in struct cuda_driver */
} calls[] = {
#define X(member, symbol, parameters) { #symbol, offsetof(struct cuda_driver, member) },
	CUDA_CALLS(X)
#undef X
};

static const struct {
	int value;
	bool sticky;
	const char *name;
} results[] = {
#define X(constant, value, name, sticky) { value, sticky, name },
	CUDA_RESULTS(X)
#undef X
};

int cuda_driver_load(struct cuda_driver *driver, char *why, size_t n_bytes)
{
	const char *name = secure_getenv("BATCHD_LIBCUDA");
	void *library;

	memset(driver, 0, sizeof *driver);
	if (!name || !*name)
		name = "libcuda.so.1";
	library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		const char *error = dlerror();

		snprintf(why, n_bytes, "no NVIDIA driver: %s", error ? error : name);
		return -ENOENT;
	}
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		void *found = dlsym(library, calls[i].symbol);

		if (!found) {
			memset(driver, 0, sizeof *driver);
			snprintf(why, n_bytes, "the NVIDIA driver is too old: %s has no %s (470 or newer is needed)",
				 name, calls[i].symbol);
			return -ENOSYS;
		}
		/* ISO C has no cast from object to function */
		memcpy((char *)driver + calls[i].offset, &found, sizeof found);
	}
	if (n_bytes)
		*why = '\0';
	return 0;
}

/* cuInit's codes say little by themselves: what each usually means, and what to do about it. */
static const struct {
	int result;
	const char *meaning, *advice;
} init_results[] = {
	{ CUDA_NO_DEVICE, "the NVIDIA driver sees no GPU",
	  "is there one, and does CUDA_VISIBLE_DEVICES or the container hide it? nvidia-smi lists them" },
	{ CUDA_NOT_INITIALIZED,
	  "this process was forked after its parent had begun to use CUDA, which such a process cannot",
	  "start it with spawn instead" },
	{ CUDA_STUB_LIBRARY, "what was found as the NVIDIA driver is only the CUDA toolkit's stub of it",
	  "take the toolkit's stubs folder out of LD_LIBRARY_PATH" },
	{ CUDA_SYSTEM_NOT_READY, "the GPUs are not ready",
	  "on a machine with NVSwitch nvidia-fabricmanager has to run" },
	{ CUDA_SYSTEM_DRIVER_MISMATCH, "the NVIDIA driver's libraries and its kernel module are of different versions",
	  "restart the machine, or make the container's driver libraries those of the host" },
	{ CUDA_COMPAT_NOT_SUPPORTED, "CUDA's compatibility libraries (cuda-compat) do not support this GPU",
	  "take them out of LD_LIBRARY_PATH, or install a newer driver" },
	{ CUDA_MPS_CONNECTION_FAILED, "there is no connection to MPS's daemon",
	  "start nvidia-cuda-mps-control, or unset CUDA_MPS_PIPE_DIRECTORY" },
	{ CUDA_UNKNOWN, "the NVIDIA driver does not start",
	  "often /dev/nvidia-uvm is missing (as root: nvidia-modprobe -u -c 0) or may not be opened; nvidia-smi and dmesg may say more" },
};

const char *cuda_init_meaning(int result, const char **advice)
{
	for (size_t i = 0; i < sizeof init_results / sizeof *init_results; i++) {
		if (init_results[i].result == result) {
			*advice = init_results[i].advice;
			return init_results[i].meaning;
		}
	}
	*advice = "nvidia-smi and dmesg may say more";
	return "the NVIDIA driver does not start";
}

const char *cuda_error_name(const struct cuda_driver *driver, int result)
{
	static _Thread_local char unknown[32];
	const char *name = NULL;

	for (size_t i = 0; i < sizeof results / sizeof *results; i++)
		if (results[i].value == result)
			return results[i].name;
	if (driver && driver->get_error_name && driver->get_error_name(result, &name) == CUDA_OK && name)
		return name;
	snprintf(unknown, sizeof unknown, "CUDA error %d", result);
	return unknown;
}

const char *cuda_error_advice(int result)
{
	if (cuda_error_sticky(result))
		return "this process can use the GPU no more: start it again";
	return result == CUDA_OUT_OF_MEMORY ? "nvidia-smi says who has its memory"
					    : "`batchctl doctor`, nvidia-smi and dmesg may say more";
}

bool cuda_error_sticky(int result)
{
	for (size_t i = 0; i < sizeof results / sizeof *results; i++)
		if (results[i].value == result)
			return results[i].sticky;
	return false;
}
