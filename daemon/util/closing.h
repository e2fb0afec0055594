/* Closing what clients sent. The last close of a file waits for its file system, which on FUSE and the like is a server
 * that may never answer; so it is done by a thread that exists for nothing else. */
#ifndef BATCHD_CLOSING_H
#define BATCHD_CLOSING_H

#include <sys/types.h>

/* Closes the descriptors that are not -1, at once where that cannot wait, else on another thread. Any thread. */
void closing_add(uid_t user, const int *fds, unsigned n_fds);
/* How many of a user's descriptors are still being closed. */
unsigned closing_pending(uid_t user);

#endif
