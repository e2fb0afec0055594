/* What the daemon uses of libmicrohttpd. It is loaded at run time (http-library.c), so that a daemon without metrics needs
 * no such library, or linked from an archive (http-library-linked.c), so that a wheel needs none on the machine. */
#ifndef BATCHD_HTTP_LIBRARY_H
#define BATCHD_HTTP_LIBRARY_H

#include <stdbool.h>

#include <microhttpd.h>

struct http_library {
	__typeof__(&MHD_start_daemon) start;
	__typeof__(&MHD_stop_daemon) stop;
	__typeof__(&MHD_run_wait) run_wait;
	__typeof__(&MHD_create_response_from_buffer) respond;
	__typeof__(&MHD_add_response_header) add_header;
	__typeof__(&MHD_queue_response) queue;
	__typeof__(&MHD_destroy_response) forget;
	__typeof__(&MHD_get_connection_info) info;
	__typeof__(&MHD_lookup_connection_value) value;
};

/* false: this machine has no such library. */
bool http_library_load(struct http_library *l);

#endif
