/* libmicrohttpd from an archive (make STATIC_DEPS=1).
 *
 * Debian's archive can speak TLS and so names functions of GnuTLS, for which there are no archives. The daemon never asks
 * for TLS: of all these, libmicrohttpd calls only global_init and global_deinit. A call of any other ends the process. */
#include "http-library.h"

#include <stdlib.h>

bool http_library_load(struct http_library *l)
{
	*l = (struct http_library){
		.start = MHD_start_daemon,
		.stop = MHD_stop_daemon,
		.run_wait = MHD_run_wait,
		.respond = MHD_create_response_from_buffer,
		.add_header = MHD_add_response_header,
		.queue = MHD_queue_response,
		.forget = MHD_destroy_response,
		.info = MHD_get_connection_info,
		.value = MHD_lookup_connection_value,
	};
	return true;
}

/* clang-format off: a list, not a call */
#define NEVER_CALLED(X) \
	X(alpn_set_protocols) \
	X(bye) \
	X(certificate_allocate_credentials) \
	X(certificate_free_credentials) X(certificate_server_set_request) X(certificate_set_dh_params) X( \
		certificate_set_retrieve_function2) X(certificate_set_retrieve_function3) \
		X(certificate_set_x509_key_mem) X(certificate_set_x509_key_mem2) X(certificate_set_x509_trust_mem) \
			X(cipher_get) X(credentials_set) X(deinit) X(dh_params_deinit) X(dh_params_import_pkcs3) \
				X(dh_params_init) X(handshake) X(init) X(priority_deinit) X(priority_init) \
					X(priority_set) X(protocol_get_version) X(psk_allocate_server_credentials) \
						X(psk_free_server_credentials) X(psk_set_server_credentials_function) \
							X(record_check_pending) X(record_get_direction) X(record_recv) \
								X(record_send) X(session_get_ptr) X(session_set_ptr) \
									X(strerror) X(transport_set_int2)
/* clang-format on */
#define NAME(name) \
	void gnutls_##name(void); \
	__attribute__((noreturn)) void gnutls_##name(void) \
	{ \
		abort(); \
	}

NEVER_CALLED(NAME)

int gnutls_global_init(void);
int gnutls_global_init(void)
{
	return 0;
}

void gnutls_global_deinit(void);
void gnutls_global_deinit(void)
{
}

extern void *(*gnutls_malloc)(size_t n);
void *(*gnutls_malloc)(size_t n) = malloc;
