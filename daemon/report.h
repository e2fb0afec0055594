/* The report: the daemon's status in the packets that everybody who asks is sent.
 *
 * Making one takes as long as a hundred other messages. So that nobody can keep the loop busy by asking, it is made
 * anew only as long as that takes a twentieth of the time; who asks faster than that gets the last one, which is then
 * no older than twenty times what making it took. Loop thread only. */
#ifndef BATCHD_REPORT_H
#define BATCHD_REPORT_H

#include <stdint.h>

struct batchd;
struct parcel;

/* Zeroed: there is none yet. */
struct report {
	struct parcel **parcels;
	unsigned n;
	uint64_t spent_ns;       /* of processor time on making reports, less what has been earned since */
	uint64_t earned_ns;      /* the clock when it was last earned */
};

/* The daemon's (b->report), valid until the next call. NULL: out of memory. */
const struct report *report_get(struct batchd *b);
void report_finish(struct report *r);

#endif
