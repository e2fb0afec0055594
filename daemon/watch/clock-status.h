/* The state clock of a trainer, for the status. Loop thread only. */
#ifndef BATCHD_CLOCK_STATUS_H
#define BATCHD_CLOCK_STATUS_H

#include <jansson.h>

struct latency;
struct session;

/* What it says, as an object; client/man/batchctl.1 has the names. */
json_t *clock_status_json(const struct session *s);
/* Recent times: how many, their median and their 99th percentile. */
json_t *latency_status_json(const struct latency *l);

#endif
