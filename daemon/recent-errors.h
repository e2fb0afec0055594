/* The last errors that the daemon has told each user's clients: refusals, ends of jobs, trainers that stall. For the
 * status and the live page, which show them to that user; they outlive the job that they are about.
 *
 * Bounded: the newest 40 of a user, for the 16 users that had one last. An error that repeats is counted. Loop thread
 * only. */
#ifndef BATCHD_RECENT_ERRORS_H
#define BATCHD_RECENT_ERRORS_H

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <jansson.h>

enum { RECENT_ERRORS_EACH = 40, RECENT_ERRORS_USERS = 16 };

struct recent_error {
	time_t at;      /* of the last time */
	uint64_t count; /* how often; 0: the place is free */
	char job[64];   /* cut to fit, as is the text; "": of no job */
	char text[320];
};

struct recent_user {
	uid_t uid;
	uint64_t noted; /* when, counted in errors */
	struct recent_error error[RECENT_ERRORS_EACH];
};

/* Zeroed: none. */
struct recent_errors {
	struct recent_user *user[RECENT_ERRORS_USERS]; /* made with a user's first error */
	uint64_t n_noted;
};

/* errors: NULL is allowed. job may be NULL. Without memory the error is not kept. */
void recent_errors_note(struct recent_errors *errors, uid_t uid, const char *job, const char *text);
void recent_errors_finish(struct recent_errors *errors);
/* [{"at", "uid", "job", "text", "count"}, ...], the newest first: the viewer's, or with user 0 all. (uid_t)-1, an unknown
 * viewer, sees none. */
json_t *recent_errors_json(const struct recent_errors *errors, uid_t viewer);

#endif
