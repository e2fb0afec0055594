/* Transfers that continue after an early stop by the kernel: interrupted, or done in part, as the manual allows (and
 * network file systems do). Any thread. */
#ifndef BATCHD_IO_FULL_H
#define BATCHD_IO_FULL_H

#include <sys/types.h>

/* Reads n bytes from `at` on, fewer only at the file's end. Returns their number, or negative errno. */
ssize_t io_full_read(int fd, void *buf, size_t n, off_t at);
/* fsync. 0 or negative errno. */
int io_full_sync(int fd);

#endif
