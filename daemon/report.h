/* The report: the daemon's status in the packets that a user who asks is sent.
 *
 * Making one takes as long as a hundred other messages. So that no user can keep the loop busy by asking, it is made
 * anew only as long as that takes a twentieth of the time; a user who asks faster than that gets the last one, which is
 * then no older than twenty times what making it took. Users see what is theirs, so each has its own report; those who
 * may see everything have one together. Loop thread only. */
#ifndef BATCHD_REPORT_H
#define BATCHD_REPORT_H

#include <stdint.h>
#include <sys/types.h>

struct engine;
struct parcel;

enum { REPORT_USERS = 16 }; /* whose last reports are remembered */

/* Zeroed: there is none yet. */
struct report {
	uid_t viewer;   /* 0: one who may see everything */
	uint64_t asked; /* when, counted in questions; 0: never */
	struct parcel **parcels;
	unsigned n;
	uint64_t spent_ns;  /* of processor time on making reports, less what has been earned since */
	uint64_t earned_ns; /* the clock when it was last earned */
};

struct reports {
	struct report of[REPORT_USERS];
	uint64_t n_asked;
};

/* What a user may see of the daemon's state (b->reports), valid until the next call. NULL: out of memory. */
const struct report *report_get(struct engine *e, uid_t viewer);
void reports_finish(struct reports *r);

#endif
