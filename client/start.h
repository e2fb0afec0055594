/* A daemon for this user alone, started on demand. */
#ifndef BATCHD_CLIENT_START_H
#define BATCHD_CLIENT_START_H

#include "error.h"

/* Starts `batchd` listening at address (address_own), or finds that somebody else just did, and connects. The socket,
 * or a batchd code with f. */
int start_daemon(const char *address, struct fault *f);

#endif
