/* The folders in which indexes are kept over restarts: what is in one is bounded, and what has been unused for longest
 * goes first. */
#ifndef BATCHD_CACHE_DIR_H
#define BATCHD_CACHE_DIR_H

#include <stdint.h>

enum { CACHE_DIR_MOST_FILES = 4096 };

/* Removes kept indexes (imagefolder-*.index, index-*.cache) until those left take at most limit_bytes of the disk and
 * are at most CACHE_DIR_MOST_FILES, and what crashes have left of unfinished ones. A file counts as used when it is
 * written or read; one that a daemon has open for writing stays, and files of other names are not looked at. Blocking;
 * any thread. 0 or negative errno. */
int cache_dir_trim(const char *dir, uint64_t limit_bytes);

#endif
