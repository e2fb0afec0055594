/* The answer to Compare, in words. It takes as long as looking at every name, so an I/O thread does it; the session may
 * be gone by then. */
#include <stdlib.h>
#include <string.h>

#include "core/loader.h"
#include "state.h"

struct compare_task {
	struct pool_task task;
	struct session *session; /* NULL: it is gone */
	struct job *job;
	struct dataset *dataset; /* a reference */
	uint64_t old_n;
	size_t n_bytes;
	uint8_t print[WIRE_PRINT_BYTES];
	char text[1024];
};

static void run(struct pool_task *t)
{
	struct compare_task *task = (struct compare_task *)t;
	dataset_compare(task->dataset, task->print, task->n_bytes, task->old_n, task->text, sizeof(task->text));
}

static void done(struct pool_task *t)
{
	struct compare_task *task = (struct compare_task *)t;
	struct session *s = task->session;
	struct job *j = task->job;
	Batchd__Wire__Notice n = BATCHD__WIRE__NOTICE__INIT;
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	n.kind = BATCHD__WIRE__NOTICE_KIND__DIFFERENCE;
	n.text = task->text;
	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_NOTICE;
	m.notice = &n;
	if (s) {
		s->compare_task = NULL;
		peer_send(s->peer, &m, NULL, 0);
	}
	dataset_unref(task->dataset);
	free(task);
	j->n_tasks--;
	if (!j->sessions && !uv_is_active((uv_handle_t *)&j->linger))
		job_close(j);
}

int session_compare(struct session *s, const Batchd__Wire__Compare *m, struct refusal *why)
{
	if (s->compare_task)
		return refuse(why, BATCHD__WIRE__ERROR_CODE__PROTOCOL, NULL,
			      "Compare came before the last was answered");
	struct compare_task *task = calloc(1, sizeof(*task));
	if (!task)
		return refuse_memory(why);
	*task = (struct compare_task){ .task = { .run = run, .done = done },
				       .session = s,
				       .job = s->job,
				       .dataset = dataset_ref(s->job->loader->recipe.dataset),
				       .old_n = m->n_samples,
				       .n_bytes = m->print.len };
	if (m->print.len) /* 0 or WIRE_PRINT_BYTES: wire.c has seen to it */
		memcpy(task->print, m->print.data, m->print.len);
	s->compare_task = task;
	s->job->n_tasks++;
	pool_run_task(s->daemon->pool, &task->task);
	return 0;
}

void session_forget_compare(struct session *s)
{
	if (s->compare_task)
		s->compare_task->session = NULL;
	s->compare_task = NULL;
}
