/* An order for data that is read best in sequence: shards in a random order, and each next sample at random from a window
 * that moves over them, as webdataset shuffles with a buffer. A sample comes at most a window before its turn. */
#ifndef BATCHD_PLAN_WINDOW_H
#define BATCHD_PLAN_WINDOW_H

#include "batch/plan/plan.h"

/* Writes the order into order32 or order64, whichever is there. spec->shuffle is the window. 0 or -ENOMEM. */
int plan_window(const struct plan_spec *spec, uint32_t *order32, uint64_t *order64);
/* Memory that plan_window takes while it works. */
uint64_t plan_window_bytes(const struct plan_spec *spec);

#endif
