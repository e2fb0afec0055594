/* Taking batches from a link. The loader's thread. */
#ifndef BATCHD_CLIENT_HANDOVER_H
#define BATCHD_CLIENT_HANDOVER_H

#include "link/link.h"

/* The next batch, of any start, within timeout_ms as in batchd_next. 0, BATCHD_AGAIN, or a code with f. */
int handover_take(struct link *k, int timeout_ms, struct ready *out, struct fault *f);
/* The batch that the next handover_take will return, if it has arrived; it stays where it is. NULL: it has not arrived,
 * or something else has, which the next call reports. Does not tell the daemon that the trainer waits. */
const struct ready *handover_peek(struct link *k, struct fault *f);
/* Puts the batch that handover_take has just returned back: the next one returns it again. */
void handover_put_back(struct link *k, const struct ready *b);

#endif
