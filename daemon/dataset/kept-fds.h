/* How many descriptors of shards and folders data sets keep open, so that a sample costs no walk of its path. The limit of
 * open files is the process's, so this is one count for all data sets; a user may have as many as are left for others.
 * Any thread. */
#ifndef BATCHD_KEPT_FDS_H
#define BATCHD_KEPT_FDS_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether the user may keep another one, which is counted then, until kept_fds_give. */
bool kept_fds_take(uid_t uid);
void kept_fds_give(uid_t uid);

#endif
