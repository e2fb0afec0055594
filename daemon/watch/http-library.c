/* libmicrohttpd as the machine has it. */
#include "watch/http-library.h"

#include <dlfcn.h>
#include <string.h>

bool http_library_load(struct http_library *l)
{
	static const char *const names[] = { "MHD_start_daemon",
					     "MHD_stop_daemon",
					     "MHD_run_wait",
					     "MHD_create_response_from_buffer",
					     "MHD_add_response_header",
					     "MHD_queue_response",
					     "MHD_destroy_response",
					     "MHD_get_connection_info",
					     "MHD_lookup_connection_value" };
	void *functions[sizeof names / sizeof *names];
	void *library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);

	_Static_assert(sizeof functions == sizeof *l, "a name for each function");
	for (size_t i = 0; library && i < sizeof names / sizeof *names; i++)
		if (!(functions[i] = dlsym(library, names[i])))
			return false;
	if (library)
		memcpy(l, functions, sizeof functions);
	return library != NULL;
}
