/* The report: the daemon's status as packets for a user that asks.
 *
 * Making a report takes as long as a hundred other messages. So that no user can keep the loop busy by asking, making
 * reports takes at most a twentieth of the time. A user that asks faster gets the last report, which is then at most
 * twenty times as old as the time it took to make. Each user sees its own data, so each has its own report; users that
 * may see everything share one. Loop thread only. */
#ifndef BATCHD_STATUS_CACHE_H
#define BATCHD_STATUS_CACHE_H

#include <stdint.h>
#include <sys/types.h>

struct engine;
struct packed_message;

enum { STATUS_CACHE_USERS = 16 }; /* users with a remembered report */

/* Zeroed: there is no report yet. */
struct status_report {
	uid_t viewer;   /* 0: users that may see everything */
	uint64_t asked; /* when, counted in questions; 0: never */
	struct packed_message **messages;
	unsigned n;
	uint64_t spent_ns;  /* processor time spent on making reports, less what has been earned since */
	uint64_t earned_ns; /* the clock when it was last earned */
};

struct status_cache {
	struct status_report of[STATUS_CACHE_USERS];
	uint64_t n_asked;
};

/* The part of the daemon's state that a user may see (e->status_cache), valid until the next call. NULL: out of
 * memory. */
const struct status_report *status_cache_get(struct engine *e, uid_t viewer);
void status_cache_finish(struct status_cache *r);

#endif
