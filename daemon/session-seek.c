/* See session-seek.h. */
#include "session-seek.h"

#include <assert.h>
#include <stdio.h>

#include "core/loader.h"
#include "core/source.h"
#include "core/stream-places.h"
#include "device.h"
#include "job.h"
#include "served-job.h"
#include "session-fail.h"
#include "util/thread-kind.h"

#define CODE(name) BATCHD__WIRE__ERROR_CODE__##name

void session_on_seek(struct session *s, const Batchd__Wire__Seek *m)
{
	assert(is_loop_thread());
	assert(s->job && s->job->loader && s->state == SESSION_ATTACHED);
	struct loader *l = s->job->loader;
	if (m->seek <= s->consumer.seek) {
		session_fail(s, CODE(PROTOCOL), "seek", "seek numbers must grow");
		return;
	}
	uint64_t most =
		INT64_MAX / (l->spec.served ? LOADER_MAX_WORLD : 1); /* a producer counts the steps of all ranks */
	uint64_t end = l->spec.served ? 0 : l->spec.own_batches ? INT64_MAX : loader_epoch_rows(l);
	if (m->base_sample > end || m->epoch > INT64_MAX || m->step > most) {
		session_fail(s, CODE(INVALID), "epoch", "cannot begin there: beyond the end of the data set");
		return;
	}
	device_forgo(s, m->no_device);
	struct position to = { .epoch = m->epoch, .base = m->base_sample, .step = m->step };
	job_note_moved(s->job);
	int r = loader_seek(&s->consumer, m->seek, &to);
	char text[400];
	const struct stream *stream = s->consumer.stream;
	if (r == STREAM_E_BEHIND) {
		const struct position *at = stream_oldest(stream);
		bool once = !l->host.source->goes_back;
		snprintf(
			text, sizeof(text), "the others of share job '%s' are at epoch %llu, batch %llu already; %s",
			l->spec.job, (unsigned long long)at->epoch, (unsigned long long)at->step,
			once ? "a producer that does not repeat its epochs (batchd.serve(..., resumable=True), or seed=) makes a batch once: "
			       "begin with a later epoch, or join=\"next\""
			     : "give all of them world_size, so that they wait for each other, or begin with a later epoch");
		session_fail(s, CODE(BEHIND), "epoch", text);
	} else if (r == STREAM_E_ELSEWHERE) {
		snprintf(
			text, sizeof(text),
			"this trainer resumes epoch %llu after sample %llu, the others of share job '%s' epoch %llu after sample %llu; resume all of "
			"them from the states of one moment, or begin with a whole epoch",
			(unsigned long long)to.epoch, (unsigned long long)to.base, l->spec.job,
			(unsigned long long)stream->next.epoch, (unsigned long long)stream->next.base);
		session_fail(s, CODE(MISMATCH), "base_sample", text);
	}
}

void session_on_join(struct session *s, const Batchd__Wire__Join *m)
{
	assert(is_loop_thread());
	assert(s->job && s->job->loader && s->state == SESSION_ATTACHED);
	struct loader *l = s->job->loader;
	if (m->seek <= s->consumer.seek) {
		session_fail(s, CODE(PROTOCOL), "seek", "seek numbers must grow");
		return;
	}
	device_forgo(s, m->no_device);
	if (l->spec.served && l->spec.share && l->spec.world_size == 1) {
		job_note_moved(s->job);
		struct refusal why;
		session_note(s, served_job_on_join(s, m, &why), &why);
		return;
	}
	if (!l->is_async || l->spec.world_size > 1) {
		session_fail(s, CODE(INVALID), "join",
			     "join goes with an open share group: mode share and no world_size");
		return;
	}
	struct position at;
	group_join(&s->consumer, m->seek, (enum group_start)m->start, &at);
	Batchd__Wire__Joined j = BATCHD__WIRE__JOINED__INIT;
	j.seek = m->seek;
	j.epoch = at.epoch;
	j.base_sample = at.base;
	j.step = at.step;
	peer_send(s->peer, WIRE_SERVER(JOINED, joined, &j), NULL, 0);
	group_pump(&l->group);
}

void session_on_indices(struct session *s, const Batchd__Wire__Indices *m)
{
	assert(is_loop_thread());
	assert(s->job && s->job->loader && s->state == SESSION_ATTACHED);
	struct loader *l = s->job->loader;
	if (!l->spec.own_batches) {
		session_fail(s, CODE(PROTOCOL), NULL, "Indices without batch_sampler");
		return;
	}
	for (size_t i = 0; i < m->n_index; i++) {
		if (m->index[i] < dataset_n(l->recipe.dataset))
			continue;
		char text[160];
		snprintf(text, sizeof(text), "batch_sampler gave sample %llu; the data set has %llu",
			 (unsigned long long)m->index[i], (unsigned long long)dataset_n(l->recipe.dataset));
		session_fail(s, CODE(INVALID), "batch_sampler", text);
		return;
	}
	int r = stream_push(&s->consumer, m->seek, m->step, m->index, (uint32_t)m->n_index, m->more);
	if (r == STREAM_E_INVALID)
		session_fail(s, CODE(PROTOCOL), "batch_sampler",
			     "index batches out of order, too many ahead, empty or larger than batch_size");
	else if (r == STREAM_E_LIMIT)
		session_fail(s, CODE(LIMIT), "memory_per_user",
			     "no memory for more index batches: this user has all it may have "
			     "(limits.memory_per_user in the daemon's configuration)");
	else if (r)
		session_fail(s, CODE(INTERNAL), "", "out of memory");
}
