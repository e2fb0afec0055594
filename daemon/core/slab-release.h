/* Giving slabs back: a thread of its own frees their pages, because that takes the kernel a millisecond for a few MiB, and
 * the loop serves all users. Pages are made only when those that were given back before are free.
 * Any thread. */
#ifndef BATCHD_SLAB_RELEASE_H
#define BATCHD_SLAB_RELEASE_H

#include <stddef.h>

/* Unmaps the memory and closes the descriptors that are not -1: soon, or at once where memory for a note of it is short. */
void slab_release(void *base, size_t bytes, const int fds[2]);
/* Returns when what was given back before this call is free. */
void slab_release_wait(void);
/* Waits for the thread to end; no slab may be given back any more. Frees nothing if none was. */
void slab_release_end(void);

#endif
