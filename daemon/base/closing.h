/* Closing descriptors that clients sent. The last close of a file waits for its file system, which for FUSE and network
 * file systems is a server that may never answer; so separate threads do it. */
#ifndef BATCHD_CLOSING_H
#define BATCHD_CLOSING_H

#include <sys/types.h>

/* Closes the descriptors that are not -1: at once if that cannot block, otherwise on another thread. Any thread. */
void closing_add(uid_t user, const int *fds, unsigned n_fds);
/* How many of a user's descriptors are still being closed. */
unsigned closing_pending(uid_t user);

#endif
