/* Numbers for the file systems that servers provide (dataset_server): a device number, 1 for one without, and for sets
 * that reach several file systems a number of their own. 0: local disks. */
#ifndef BATCHD_SERVERS_H
#define BATCHD_SERVERS_H

#include <stdint.h>
#include <sys/stat.h>

#define SERVERS_SEVERAL (1ull << 63) /* in the number of several file systems */

/* Of a file that is not on a local disk. */
static inline uint64_t servers_number(const struct stat *st)
{
	return st->st_dev ? st->st_dev : 1;
}

/* Of a set with files of both. Sets of the same two have the same number. */
uint64_t servers_both(uint64_t a, uint64_t b);

#endif
