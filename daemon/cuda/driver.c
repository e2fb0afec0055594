/* Finding the driver. Everything is looked up by the name under which the library exports the ABI we declare; none of it is younger than
 * driver 470 (CUDA 11.4), so one missing name means an older driver and is an answer, not a fault. The library stays loaded for good: the driver has
 * threads of its own and does not expect to be unmapped under them. */
#include "driver.h"

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
			snprintf(why, n_bytes, "the NVIDIA driver is too old: %s has no %s (470 or newer is needed)", name, calls[i].symbol);
			return -ENOSYS;
		}
		memcpy((char *)driver + calls[i].offset, &found, sizeof found); /* ISO C has no cast from object to function */
	}
	if (n_bytes)
		*why = '\0';
	return 0;
}

const char *cuda_error_name(const struct cuda_driver *driver, int result)
{
	const char *name = NULL;

	for (size_t i = 0; i < sizeof results / sizeof *results; i++)
		if (results[i].value == result)
			return results[i].name;
	if (driver && driver->get_error_name && driver->get_error_name(result, &name) == CUDA_OK && name)
		return name;
	return "an unknown CUDA error";
}

bool cuda_error_sticky(int result)
{
	for (size_t i = 0; i < sizeof results / sizeof *results; i++)
		if (results[i].value == result)
			return results[i].sticky;
	return false;
}
