/* The report: the daemon's status as packets for a user that asks.
 *
 * Making a report takes as long as a hundred other messages. So that no user can keep the loop busy by asking, making
 * reports takes at most a twentieth of the time. A user that asks faster gets the last report, which is then at most
 * twenty times as old as the time it took to make. Each user sees its own data, so each has its own report; users that
 * may see everything share one. Loop thread only. */
#ifndef BATCHD_REPORT_H
#define BATCHD_REPORT_H

#include <stdint.h>
#include <sys/types.h>

struct engine;
struct packed_message;

enum { REPORT_USERS = 16 }; /* users with a remembered report */

/* Zeroed: there is no report yet. */
struct report {
	uid_t viewer;   /* 0: users that may see everything */
	uint64_t asked; /* when, counted in questions; 0: never */
	struct packed_message **messages;
	unsigned n;
	uint64_t spent_ns;  /* processor time spent on making reports, less what has been earned since */
	uint64_t earned_ns; /* the clock when it was last earned */
};

struct reports {
	struct report of[REPORT_USERS];
	uint64_t n_asked;
};

/* The part of the daemon's state that a user may see (e->reports), valid until the next call. NULL: out of memory. */
const struct report *report_get(struct engine *e, uid_t viewer);
void reports_finish(struct reports *r);

#endif
