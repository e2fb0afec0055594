/* Why a user may not use a daemon's socket, and what would change that. */
#ifndef BATCHD_CLIENT_REFUSAL_H
#define BATCHD_CLIENT_REFUSAL_H

#include <stddef.h>

/* One line without an end, for a socket to which connecting gave EACCES. */
void refusal_describe(const char *address, char *out, size_t size);

#endif
