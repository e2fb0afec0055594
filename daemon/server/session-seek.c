/* See session-seek.h. */
#include "server/session-seek.h"

#include <assert.h>

#include "batch/loader.h"
#include "batch/source.h"
#include "batch/stream-places.h"
#include "server/device.h"
#include "server/job.h"
#include "server/producer-job.h"
#include "base/thread-kind.h"

#define CODE(name) BATCHD__WIRE__ERROR_CODE__##name

/* What a trainer can do that asks for a batch which the others no longer need. */
static const char *behind_advice(const struct loader *l)
{
	if (!l->host.source->goes_back)
		return "a producer that does not repeat its epochs (batchd.serve(..., resumable=True), or seed=) makes a batch once: "
		       "begin with a later epoch, or join=\"next\"";
	if (l->spec.world_size > 1)
		return "they do not go back for one that was started again alone: start all of them again, from one checkpoint, "
		       "or begin with a later epoch";
	return "give all of them world_size, so that they wait for each other, or begin with a later epoch";
}

static int refuse_position(const struct session *s, int r, const struct position *to, struct refusal *why)
{
	const struct loader *l = s->job->loader;
	const struct stream *stream = s->consumer.stream;
	if (r == STREAM_E_ELSEWHERE)
		return refuse(
			why, CODE(MISMATCH), "base_sample",
			"this trainer resumes epoch %llu after sample %llu, the others of share job '%s' epoch %llu after sample %llu; resume all of "
			"them from the states of one moment, or begin with a whole epoch",
			(unsigned long long)to->epoch, (unsigned long long)to->base, l->spec.job,
			(unsigned long long)stream->next.epoch, (unsigned long long)stream->next.base);
	const struct position *at = stream_oldest(stream);
	return refuse(why, CODE(BEHIND), "epoch",
		      "the others of share job '%s' are at epoch %llu, batch %llu already; %s", l->spec.job,
		      (unsigned long long)at->epoch, (unsigned long long)at->step, behind_advice(l));
}

int session_on_seek(struct session *s, const struct message *m, struct refusal *why)
{
	assert(is_loop_thread());
	assert(s->job && s->job->loader && s->state == SESSION_ATTACHED);
	const Batchd__Wire__Seek *seek = m->body->seek;
	struct loader *l = s->job->loader;
	if (seek->seek <= s->consumer.seek)
		return refuse(why, CODE(PROTOCOL), "seek", "seek numbers must grow");
	uint64_t most =
		INT64_MAX / (l->spec.served ? LOADER_MAX_WORLD : 1); /* a producer counts the steps of all ranks */
	uint64_t end = l->spec.served ? 0 : l->spec.own_batches ? INT64_MAX : loader_epoch_rows(l);
	if (seek->base_sample > end || seek->epoch > INT64_MAX || seek->step > most)
		return refuse(why, CODE(INVALID), "epoch", "cannot begin there: beyond the end of the data set");
	device_forgo(s, seek->no_device);
	struct position to = { .epoch = seek->epoch, .base = seek->base_sample, .step = seek->step };
	job_note_moved(s->job);
	int r = loader_seek(&s->consumer, seek->seek, &to);
	return r == STREAM_E_BEHIND || r == STREAM_E_ELSEWHERE ? refuse_position(s, r, &to, why) : 0;
}

int session_on_join(struct session *s, const struct message *m, struct refusal *why)
{
	assert(is_loop_thread());
	assert(s->job && s->job->loader && s->state == SESSION_ATTACHED);
	const Batchd__Wire__Join *join = m->body->join;
	struct loader *l = s->job->loader;
	if (join->seek <= s->consumer.seek)
		return refuse(why, CODE(PROTOCOL), "seek", "seek numbers must grow");
	device_forgo(s, join->no_device);
	if (l->spec.served && l->spec.share && l->spec.world_size == 1) {
		job_note_moved(s->job);
		return producer_job_on_join(s, join, why);
	}
	if (!l->is_async || l->spec.world_size > 1)
		return refuse(why, CODE(INVALID), "join",
			      "join goes with an open share group: mode share and no world_size");
	struct position at;
	group_join(&s->consumer, join->seek, (enum group_start)join->start, &at);
	Batchd__Wire__Joined j = BATCHD__WIRE__JOINED__INIT;
	j.seek = join->seek;
	j.epoch = at.epoch;
	j.base_sample = at.base;
	j.step = at.step;
	peer_send(s->peer, WIRE_SERVER(JOINED, joined, &j), NULL, 0);
	group_pump(&l->group);
	return 0;
}

int session_on_indices(struct session *s, const struct message *m, struct refusal *why)
{
	assert(is_loop_thread());
	assert(s->job && s->job->loader && s->state == SESSION_ATTACHED);
	const Batchd__Wire__Indices *own = m->body->indices;
	struct loader *l = s->job->loader;
	uint64_t n_samples = dataset_n(l->recipe.dataset);
	if (!l->spec.own_batches)
		return refuse(why, CODE(PROTOCOL), NULL, "Indices without batch_sampler");
	for (size_t i = 0; i < own->n_index; i++) {
		if (own->index[i] >= n_samples)
			return refuse(why, CODE(INVALID), "batch_sampler",
				      "batch_sampler gave sample %llu; the data set has %llu",
				      (unsigned long long)own->index[i], (unsigned long long)n_samples);
	}
	int r = stream_push(&s->consumer, own->seek, own->step, own->index, (uint32_t)own->n_index, own->more);
	if (r == STREAM_E_INVALID)
		return refuse(why, CODE(PROTOCOL), "batch_sampler",
			      "index batches out of order, too many ahead, empty or larger than batch_size");
	if (r == STREAM_E_LIMIT)
		return refuse(why, CODE(LIMIT), "memory_per_user",
			      "no memory for more index batches: this user has all it may have "
			      "(limits.memory_per_user in the daemon's configuration)");
	return r ? refuse_memory(why) : 0;
}
