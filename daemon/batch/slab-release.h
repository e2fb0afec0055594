/* Giving slabs back: a thread of its own frees their pages, because that takes the kernel a millisecond for a few MiB, and
 * the loop serves all users. Pages are made only when those that were given back before are free. The processor time
 * that it takes is charged to the user for which the slab was made. Any thread. */
#ifndef BATCHD_SLAB_RELEASE_H
#define BATCHD_SLAB_RELEASE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Unmaps the memory (NULL: there is none) and closes the descriptors that are not -1: soon, or at once where memory for a
 * note of it is short. payer: the user. */
void slab_release(void *base, size_t bytes, const int fds[2], uid_t payer);
/* From now on fn is called, by any thread, with the processor time that a user's slab took. NULL: it is not, and no
 * call of it is going on. */
void slab_release_charge(void (*fn)(void *arg, uid_t payer, uint64_t ns), void *arg);
/* Returns when what was given back before this call is free. */
void slab_release_wait(void);
/* Waits for the thread to end; no slab may be given back any more. Frees nothing if none was. */
void slab_release_end(void);

#endif
