/* libmicrohttpd from an archive (make STATIC_DEPS=1).
 *
 * Debian's archive can speak TLS and so names functions of GnuTLS, for which there are no archives. The daemon never asks
 * for TLS: of all these, libmicrohttpd calls only global_init and global_deinit. A call of any other ends the process. */
#include "watch/http-library.h"

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

#define NEVER_CALLED(name) \
	void gnutls_##name(void); \
	__attribute__((noreturn)) void gnutls_##name(void) \
	{ \
		abort(); \
	} \
	extern int gnutls_is_not_here

NEVER_CALLED(alpn_set_protocols);
NEVER_CALLED(bye);
NEVER_CALLED(certificate_allocate_credentials);
NEVER_CALLED(certificate_free_credentials);
NEVER_CALLED(certificate_server_set_request);
NEVER_CALLED(certificate_set_dh_params);
NEVER_CALLED(certificate_set_retrieve_function2);
NEVER_CALLED(certificate_set_retrieve_function3);
NEVER_CALLED(certificate_set_x509_key_mem);
NEVER_CALLED(certificate_set_x509_key_mem2);
NEVER_CALLED(certificate_set_x509_trust_mem);
NEVER_CALLED(cipher_get);
NEVER_CALLED(credentials_set);
NEVER_CALLED(deinit);
NEVER_CALLED(dh_params_deinit);
NEVER_CALLED(dh_params_import_pkcs3);
NEVER_CALLED(dh_params_init);
NEVER_CALLED(handshake);
NEVER_CALLED(init);
NEVER_CALLED(priority_deinit);
NEVER_CALLED(priority_init);
NEVER_CALLED(priority_set);
NEVER_CALLED(protocol_get_version);
NEVER_CALLED(psk_allocate_server_credentials);
NEVER_CALLED(psk_free_server_credentials);
NEVER_CALLED(psk_set_server_credentials_function);
NEVER_CALLED(record_check_pending);
NEVER_CALLED(record_get_direction);
NEVER_CALLED(record_recv);
NEVER_CALLED(record_send);
NEVER_CALLED(session_get_ptr);
NEVER_CALLED(session_set_ptr);
NEVER_CALLED(strerror);
NEVER_CALLED(transport_set_int2);

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
