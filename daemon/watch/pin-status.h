/* What of the batches' memory is pinned for GPUs, for the status: what was asked, what is allowed, what was done, and why.
 * Loop thread only. */
#ifndef BATCHD_PIN_STATUS_H
#define BATCHD_PIN_STATUS_H

#include <jansson.h>

struct engine;

json_t *pin_status_json(const struct engine *e);

#endif
