/* The last errors that the daemon has told each user's clients: refusals, ends of jobs, trainers that stall. For the
 * status and the live page, which show them to that user; they outlive the job that they are about.
 *
 * Bounded: the newest 40 of a user, for each user that has a session and the 16 others that had one last: users that
 * come and go push out no user that stays. An error that repeats is counted. Loop thread only. */
#ifndef BATCHD_RECENT_ERRORS_H
#define BATCHD_RECENT_ERRORS_H

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <jansson.h>

#include "base/account.h"

enum { RECENT_ERRORS_EACH = 40, RECENT_ERRORS_GONE = 16 };

struct recent_error {
	time_t at;      /* of the last time */
	uint64_t count; /* how often; 0: the place is free */
	char job[64];   /* cut to fit, as is the text; "": of no job */
	char text[320];
};

struct recent_user {
	struct recent_user *next; /* its newest error is older */
	uid_t uid;
	struct recent_error error[RECENT_ERRORS_EACH];
};

/* Zeroed but for `accounts`: none. */
struct recent_errors {
	const struct accounts *accounts; /* say which users have a session */
	struct recent_user *users;
};

/* errors: NULL is allowed. job may be NULL. Without memory the error is not kept. */
void recent_errors_note(struct recent_errors *errors, uid_t uid, const char *job, const char *text);
void recent_errors_finish(struct recent_errors *errors);
/* [{"at", "uid", "job", "text", "count"}, ...], the newest first: the viewer's, or with user 0 all. (uid_t)-1, an unknown
 * viewer, sees none. */
json_t *recent_errors_json(const struct recent_errors *errors, uid_t viewer);

#endif
