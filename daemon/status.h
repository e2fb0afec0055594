/* The daemon's state as JSON. */
#ifndef BATCHD_STATUS_H
#define BATCHD_STATUS_H

#include <sys/types.h>

struct engine;

/* The state as JSON text; free() it. viewer: a user who sees what is its own, and of others that they are
 * there; 0 sees everything. NULL: out of memory. */
char *status_json(struct engine *e, uid_t viewer);

#endif
