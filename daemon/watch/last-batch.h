/* Thumbnails of the last batch of a job, for the live page (metrics.h).
 *
 * They are made only when asked for, of a batch that is in the daemon's memory anyway, on the loop thread: a millisecond
 * or two. So that no reader can keep the loop busy, making them for one user takes at most a two hundredth of the time. */
#ifndef BATCHD_LAST_BATCH_H
#define BATCHD_LAST_BATCH_H

#include <stdint.h>
#include <sys/types.h>

struct engine;

enum { LAST_BATCH_PICTURES = 8, LAST_BATCH_VIEWERS = 16 };

/* Zeroed: no user has asked. */
struct last_batch_turns {
	struct last_batch_turn {
		uid_t viewer;
		uint64_t asked, next_ns; /* asked: when, counted in questions; 0: never. next_ns: not before */
	} of[LAST_BATCH_VIEWERS];
	uint64_t n_asked;
};

/* 200: *text is JSON: {"job", "rank", "epoch", "step", "rows", "pictures": [{"row", "index", "name", "label", "view",
 * "width", "height", "rgb": base64}, ...]}. Otherwise a status of HTTP, and *text says why: 403: the job is another
 * user's; 404: no such job; 409: it has no batch now, or no pictures; 503: asked too often. The caller frees *text; NULL:
 * out of memory. number: of the job. viewer: (uid_t)-1: not known; only the job's own user sees pictures, and root is
 * another user. Loop thread. */
unsigned last_batch_answer(struct engine *e, struct last_batch_turns *turns, uint64_t number, uid_t viewer,
			   char **text);

#endif
