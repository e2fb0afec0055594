/* The stream of batches. The loader's thread. */
#ifndef BATCHD_CLIENT_STREAM_H
#define BATCHD_CLIENT_STREAM_H

#include "loader/loader.h"

/* batchd_next itself; began_ns: when the caller began to wait (clock_now_ns). */
int stream_next(struct batchd_loader *l, struct batchd_batch *b, int timeout_ms, uint64_t began_ns);
/* The batch that the next stream_next will return, if it has arrived; it stays where it is. NULL: it has not arrived,
 * or something else has, which the next call reports. */
const struct ready *stream_peek(struct batchd_loader *l);

#endif
