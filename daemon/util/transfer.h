/* Transfers that continue after an early stop by the kernel: interrupted, or done in part, as the manual allows (and
 * network file systems do). Any thread. */
#ifndef BATCHD_TRANSFER_H
#define BATCHD_TRANSFER_H

#include <sys/types.h>

/* Reads n bytes from `at` on, fewer only at the file's end. Returns their number, or negative errno. */
ssize_t transfer_read(int fd, void *buf, size_t n, off_t at);
/* fsync. 0 or negative errno. */
int transfer_sync(int fd);

#endif
