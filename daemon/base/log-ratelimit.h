/* Decides which events are logged at once and which are only counted: a user that breaks a rule ten thousand times
 * causes one record, and one more per minute while it lasts.
 *
 * An event is identified by the user and two names. The first `at_once` events since the kind was last quiet are
 * logged; later ones are counted, until log_ratelimit_tick, once a period, reports the count. A kind that was quiet for a
 * whole period is forgotten. Memory and the number of records are bounded in any case: when the table is full, further
 * kinds of event are counted together. One thread. */
#ifndef BATCHD_LOG_RATELIMIT_H
#define BATCHD_LOG_RATELIMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { LOG_RATELIMIT_KINDS = 128, LOG_RATELIMIT_NAME = 32 };

struct repeat {
	uid_t uid;
	char name[LOG_RATELIMIT_NAME], detail[LOG_RATELIMIT_NAME]; /* cut to fit */
	unsigned n_told;
	uint64_t n_more; /* counted since the last tick */
};

/* Zeroed: empty. */
struct log_ratelimit {
	struct repeat kinds[LOG_RATELIMIT_KINDS];
	unsigned n_kinds;
	uint64_t n_others; /* of kinds for which the table had no room, since the last tick */
};

/* Whether to log this event: it is one of the first `at_once`. */
bool log_ratelimit_note(struct log_ratelimit *r, uid_t uid, const char *name, const char *detail, unsigned at_once);
/* The end of a period: calls say for each kind that was counted, and with NULL for events for which the table had no
 * room. False: the table is empty now. */
bool log_ratelimit_tick(struct log_ratelimit *r, void (*say)(const struct repeat *kind, uint64_t n_more));

#endif
