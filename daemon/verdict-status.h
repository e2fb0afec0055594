/* Verdicts for the status: from a trainer's clock, its loader, the workers and the machine. Loop thread only. */
#ifndef BATCHD_VERDICT_STATUS_H
#define BATCHD_VERDICT_STATUS_H

#include <jansson.h>
#include <stdbool.h>

#include "refusal.h"

struct engine;
struct session;

/* An attached trainer's: of its last minute, or (whole) of all its time. */
json_t *verdict_status_of(const struct session *s, bool whole);
/* Answers a client of the trainer's own user with Verdict. 0, or REFUSED: there is no such trainer. */
int verdict_status_answer(struct session *asker, const Batchd__Wire__VerdictRequest *m, struct refusal *why);
/* Of the trainers that may be shown, that of the one that has lost most time in the last minute, with its job; NULL:
 * there is none. */
json_t *verdict_status_worst(const struct engine *e, bool (*is_shown)(void *arg, const struct session *s), void *arg);

#endif
