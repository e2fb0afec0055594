/* How a session's trainer hears of its batches. Loop thread only. */
#ifndef BATCHD_SESSION_BATCHES_H
#define BATCHD_SESSION_BATCHES_H

#include "server/session-state.h"

extern const struct consumer_ops session_consumer_ops;

#endif
