/* Going on after a daemon went away. The loader's thread. */
#ifndef BATCHD_CLIENT_RECONNECT_H
#define BATCHD_CLIENT_RECONNECT_H

#include "loader.h"

/* r is what a call to the daemon gave: whether that means that the daemon went away and will be waited for. Then the
 * connection is closed. */
bool loader_is_lost(struct batchd_loader *l, int r);
/* While lost: tries to get a connection and to go on where the loader stands. 0; BATCHD_AGAIN: not yet, timeout_ms (as
 * for batchd_next) has passed; or a code with l->fault: it has stayed away for too long, or refuses us. */
int loader_reconnect(struct batchd_loader *l, int timeout_ms);

#endif
