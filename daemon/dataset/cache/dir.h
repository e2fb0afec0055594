/* The folders that keep indexes over restarts. Their size is limited; the least recently used files are removed
 * first. */
#ifndef BATCHD_CACHE_DIR_H
#define BATCHD_CACHE_DIR_H

#include <stdint.h>

enum { CACHE_DIR_MOST_FILES = 4096 };

/* Removes kept indexes (imagefolder-*.index, packed-*.index, index-*.cache) until the rest takes at most limit_bytes of the disk and is
 * at most CACHE_DIR_MOST_FILES files; also removes unfinished ones that a crash has left. A write or a read counts as a
 * use. A file that a daemon has open for writing stays, and files of other names are ignored. Blocking; any thread. 0
 * or negative errno. */
int cache_dir_trim(const char *dir, uint64_t limit_bytes);

#endif
