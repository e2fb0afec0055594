/* Users and groups as people name them: by number, taken as it is, or by a name that this machine knows. */
#ifndef BATCHD_USER_H
#define BATCHD_USER_H

#include <sys/types.h>

/* 0; -ENOENT when nobody has the name; another negative errno when the data base cannot be asked. May block on the
 * network where the data base is there. */
int user_parse(const char *text, uid_t *uid);
int group_parse(const char *text, gid_t *gid);

#endif
