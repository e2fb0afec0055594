/* Compare: finds the changes in a data set since a token was made. Loop thread only. */
#ifndef BATCHD_COMPARE_H
#define BATCHD_COMPARE_H

#include "refusal.h"

struct session;

/* Has an I/O thread compare; then the session is sent the answer. 0 or REFUSED. */
int session_compare(struct session *s, const Batchd__Wire__Compare *m, struct refusal *why);

#endif
