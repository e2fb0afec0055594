/* Which events are told at once and which are only counted: a user who breaks a rule ten thousand times is one record,
 * and one more a minute while it lasts.
 *
 * An event is known by the user and two names. The first so many since it was last quiet are told; those after them are
 * counted, until repeats_tick, once a period, gives the count. Who was quiet for a whole period is forgotten. Bounded
 * in memory and in records, whatever comes: with the table full, further kinds of event are counted together. One
 * thread. */
#ifndef BATCHD_REPEATS_H
#define BATCHD_REPEATS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { REPEATS_KINDS = 128, REPEATS_NAME = 32 };

struct repeat {
	uid_t uid;
	char name[REPEATS_NAME], detail[REPEATS_NAME]; /* cut to fit */
	unsigned n_told;
	uint64_t n_more; /* counted since the last tick */
};

/* Zeroed: empty. */
struct repeats {
	struct repeat kinds[REPEATS_KINDS];
	unsigned n_kinds;
	uint64_t n_others; /* of kinds that the table had no room for, since the last tick */
};

/* Whether this one is to be told: it is one of the first `at_once`. */
bool repeats_note(struct repeats *r, uid_t uid, const char *name, const char *detail, unsigned at_once);
/* The end of a period: calls say for each kind that was only counted, and with NULL for what the table had no room for.
 * False: the table is empty now. */
bool repeats_tick(struct repeats *r, void (*say)(const struct repeat *kind, uint64_t n_more));

#endif
