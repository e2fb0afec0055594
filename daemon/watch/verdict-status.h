/* Verdicts for the status: from a trainer's clock, its loader, the workers and the machine. Loop thread only. */
#ifndef BATCHD_VERDICT_STATUS_H
#define BATCHD_VERDICT_STATUS_H

#include <jansson.h>
#include <stdbool.h>

struct engine;
struct session;

/* An attached trainer's, into its part of the status: "verdict" of the last minute, "verdict_last_5s" and
 * "verdict_since_start". */
void verdict_status_add(json_t *o, const struct session *s);
/* Of the trainers that may be shown, that of the one that has lost most time in the last minute, with its job; NULL:
 * there is none. */
json_t *verdict_status_worst(const struct engine *e, bool (*is_shown)(void *arg, const struct session *s), void *arg);

#endif
