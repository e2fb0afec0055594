/* The folder for indexes of large data sets, when the configuration names none. */
#ifndef BATCHD_CACHEDIR_H
#define BATCHD_CACHEDIR_H

#include <stddef.h>

/* systemd's CacheDirectory= if it is set, else the user's cache folder. 0; -ENOENT: there is neither (then no index is
 * kept); -ENAMETOOLONG. */
int cachedir_default(char *buf, size_t size);

/* Makes the folder, for this user alone, and its parent if only that is missing too. 0 if it exists afterwards, else
 * negative errno. */
int cachedir_make(const char *path);

#endif
