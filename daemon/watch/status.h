/* The daemon's state as JSON. */
#ifndef BATCHD_STATUS_H
#define BATCHD_STATUS_H

#include <sys/types.h>

struct engine;

/* JSON text; free() it. viewer: this user sees its own data, and of other users only that they exist; user 0 sees
 * everything; (uid_t)-1, an unknown one, sees no paths. NULL: out of memory. */
char *status_json(struct engine *e, uid_t viewer);

#endif
