/* See session-questions.h. */
#include "watch/session-questions.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "batch/loader.h"
#include "server/job.h"
#include "watch/status-cache.h"
#include "base/thread-kind.h"
#include "base/trace.h"

#define CODE(name) BATCHD__WIRE__ERROR_CODE__##name

static int on_classes(struct session *s, const struct message *m, struct refusal *why)
{
	(void)why;
	assert(is_loop_thread());
	assert(s->job && s->job->loader);
	struct dataset *ds = s->job->loader->recipe.dataset;
	uint32_t first = m->body->classes->first, total = dataset_n_classes(ds), n = 0;
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
	return 0;
}

static int on_status(struct session *s, const struct message *m, struct refusal *why)
{
	(void)m;
	assert(is_loop_thread());
	assert(s->peer);
	if (s->peer->eof)
		return 0;
	if (s->peer->n_out) /* or its unread answers would fill the daemon's memory */
		return refuse(why, CODE(LIMIT), NULL, "asked for the status again before it had read the last");
	const struct status_report *r = status_cache_get(s->engine, s->uid);
	if (!r)
		return refuse_memory(why);
	for (unsigned i = 0; i < r->n; i++)
		peer_send_packed(s->peer, r->messages[i]);
	return 0;
}

/* What other users' trainers do is in a recording as well. It lasts until the client hangs up. */
static int on_trace(struct session *s, const struct message *m, struct refusal *why)
{
	(void)m;
	assert(is_loop_thread());
	assert(s->peer);
	Batchd__Wire__Traced traced = BATCHD__WIRE__TRACED__INIT;
	int fd;
	if (s->uid != 0 && s->uid != geteuid())
		return refuse(why, CODE(ACCESS), NULL, "only root and the daemon's own user may record what it does");
	int r = trace_start(&fd);
	if (r < 0)
		return refuse(why, r == -EBUSY ? CODE(LIMIT) : CODE(INTERNAL), NULL,
			      r == -EBUSY ? "another recording is under way" : "no memory for a recording");
	s->records = true;
	peer_send(s->peer, WIRE_SERVER(TRACED, traced, &traced), &fd, 1);
	return 0;
}

const struct message_rule session_questions[] = {
	{ CLIENT_MESSAGE(CLASSES), SESSION_IN(ATTACHED), on_classes, .otherwise = "before Opened" },
	{ CLIENT_MESSAGE(STATUS), SESSION_IN_ANY, .take = on_status },
	{ CLIENT_MESSAGE(TRACE), SESSION_IN(GREETED) | SESSION_IN(PRODUCING) | SESSION_IN(LOADING), on_trace,
	  .otherwise = "after Open" },
	{ .take = NULL },
};
