/* The folder for indexes of large data sets, when the configuration names none. */
#ifndef BATCHD_CACHEDIR_H
#define BATCHD_CACHEDIR_H

#include <stddef.h>

/* systemd's CacheDirectory= if it gave us one, else the user's cache folder. 0; -ENOENT when there is neither (then
 * no index is kept); -ENAMETOOLONG. */
int cachedir_default(char *buf, size_t size);

/* Makes the folder and, if only that is missing too, its parent, for this user alone. 0 if it is there now, else
 * negative errno. */
int cachedir_make(const char *path);

#endif
