/* Users and groups as people write them: by number, which is taken as it is, or by a name that this machine knows. */
#ifndef BATCHD_USER_H
#define BATCHD_USER_H

#include <sys/types.h>

/* 0; -ENOENT when no user or group has the name; another negative errno when the database cannot be queried. May block
 * on the network if the database is remote. */
int user_parse(const char *text, uid_t *uid);
int group_parse(const char *text, gid_t *gid);

#endif
