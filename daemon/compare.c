/* The answer to Compare, in words. It reads every name, so an I/O thread does it; the session may have ended by
 * then. */
#include "compare.h"

#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "session-state.h"
#include "util/container.h"

struct comparison {
	struct job_task task;
	struct dataset *dataset; /* a reference */
	uint64_t old_n;
	size_t n_bytes;
	uint8_t fingerprint[WIRE_FINGERPRINT_BYTES];
	char text[1024];
};

static void compare_run(struct job_task *t)
{
	struct comparison *c = container_of(t, struct comparison, task);
	dataset_compare(c->dataset, c->fingerprint, c->n_bytes, c->old_n, c->text, sizeof(c->text));
}

static void compare_done(struct job_task *t)
{
	struct comparison *c = container_of(t, struct comparison, task);
	Batchd__Wire__Notice n = BATCHD__WIRE__NOTICE__INIT;
	n.kind = BATCHD__WIRE__NOTICE_KIND__DIFFERENCE;
	n.text = c->text;
	if (t->session)
		peer_send(t->session->peer, WIRE_SERVER(NOTICE, notice, &n), NULL, 0);
	dataset_unref(c->dataset);
	free(c);
}

int session_compare(struct session *s, const Batchd__Wire__Compare *m, struct refusal *why)
{
	if (s->comparison)
		return refuse(why, BATCHD__WIRE__ERROR_CODE__PROTOCOL, NULL,
			      "Compare came before the last was answered");
	struct comparison *c = calloc(1, sizeof(*c));
	if (!c)
		return refuse_memory(why);
	*c = (struct comparison){ .task = { .run = compare_run, .done = compare_done },
				  .dataset = dataset_ref(s->job->loader->recipe.dataset),
				  .old_n = m->n_samples,
				  .n_bytes = m->fingerprint.len };
	if (m->fingerprint.len) /* 0 or WIRE_FINGERPRINT_BYTES: wire.c has checked it */
		memcpy(c->fingerprint, m->fingerprint.data, m->fingerprint.len);
	job_task_begin(&c->task, s->job);
	job_task_await(&c->task, s, &s->comparison);
	job_task_run(&c->task);
	return 0;
}
