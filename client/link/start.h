/* A daemon for this user alone, started on demand. */
#ifndef BATCHD_CLIENT_START_H
#define BATCHD_CLIENT_START_H

#include "address.h"
#include "link/error.h"

/* Connects to an address. A socket, or a negative errno. */
typedef int (*start_dial)(const char *address);

/* Starts `batchd` listening at address (address_own), or finds that another process just did, and connects with dial.
 * Returns the socket, or a batchd code with f. */
int start_daemon(const char *address, start_dial dial, struct fault *f);

/* The log of a daemon started this way: daemon.log beside its socket. "": the address names no directory. */
enum { START_LOG_BYTES = ADDRESS_MAX_BYTES + 16 };
void start_log_path(const char *address, char log[START_LOG_BYTES]);
/* The log's last line without its end and its time; "" if it has none. */
void start_last_line(const char *log, char *out, size_t size);

#endif
