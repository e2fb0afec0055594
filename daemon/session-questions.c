/* See session-questions.h. */
#include "session-questions.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/loader.h"
#include "job.h"
#include "report.h"
#include "session-fail.h"
#include "util/thread-kind.h"
#include "util/trace.h"

#define CODE(name) BATCHD__WIRE__ERROR_CODE__##name

void session_on_classes(struct session *s, uint32_t first)
{
	assert(is_loop_thread());
	assert(s->job && s->job->loader);
	struct dataset *ds = s->job->loader->recipe.dataset;
	uint32_t total = dataset_n_classes(ds), n = 0;
	static char *names[WIRE_MAX_CLASSES]; /* loop thread only */
	size_t bytes = 64;
	for (uint32_t i = first; i < total && n < WIRE_MAX_CLASSES; i++) {
		bytes += strlen(dataset_class(ds, i)) + 4;
		if (bytes > WIRE_MAX_BYTES)
			break;
		names[n++] = (char *)dataset_class(ds, i);
	}
	Batchd__Wire__Classes c = BATCHD__WIRE__CLASSES__INIT;
	c.first = first;
	c.total = total;
	c.n_name = n;
	c.name = names;
	peer_send(s->peer, WIRE_SERVER(CLASSES, classes, &c), NULL, 0);
}

void session_on_status(struct session *s)
{
	assert(is_loop_thread());
	assert(s->peer);
	if (s->peer->eof)
		return;
	if (s->peer->n_out) { /* or its unread answers would fill the daemon's memory */
		session_fail(s, CODE(LIMIT), NULL, "asked for the status again before it had read the last");
		return;
	}
	const struct report *r = report_get(s->engine, s->uid);
	if (!r)
		session_fail(s, CODE(INTERNAL), NULL, "out of memory");
	for (unsigned i = 0; r && i < r->n; i++)
		peer_send_packed(s->peer, r->messages[i]);
}

/* What other users' trainers do is in a recording as well. It lasts until the client hangs up. */
void session_on_trace(struct session *s)
{
	assert(is_loop_thread());
	assert(s->peer);
	Batchd__Wire__Traced traced = BATCHD__WIRE__TRACED__INIT;
	int fd, r;
	if (s->uid != 0 && s->uid != geteuid()) {
		session_fail(s, CODE(ACCESS), NULL, "only root and the daemon's own user may record what it does");
		return;
	}
	if (s->state != SESSION_GREETED) {
		session_fail(s, CODE(PROTOCOL), NULL, "Trace behind Open");
		return;
	}
	r = trace_start(&fd);
	if (r < 0) {
		session_fail(s, r == -EBUSY ? CODE(LIMIT) : CODE(INTERNAL), NULL,
			     r == -EBUSY ? "another recording is under way" : "no memory for a recording");
		return;
	}
	s->records = true;
	peer_send(s->peer, WIRE_SERVER(TRACED, traced, &traced), &fd, 1);
}
