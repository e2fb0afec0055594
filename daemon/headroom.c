/* See headroom.h. A run is known by its number alone, which the client that asked and the trainers have in their
 * sessions. Sending may end a session, and so another one by way of its job; so what must be sent is noted in the
 * sessions first, and each message is sent from the daemon's list as it is then. */
#include "headroom.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "job.h"
#include "util/log.h"

enum { MOST_STEPS = 1000, LEAST_STEPS = 2, BLOCKS = 8, MOST_RANKS = 512 };

static bool is_part(const struct session *s, uint64_t run)
{
	return run && s->headroom.part == run;
}

static struct session *find_asker(struct engine *e, uint64_t run)
{
	struct session *s = e->sessions;
	while (s && (!run || s->headroom.run != run))
		s = s->next;
	return s;
}

/* How many replays are granted at a time. */
static uint32_t block(const struct session *asker)
{
	uint32_t n = asker->headroom.n_steps / BLOCKS;
	return n < LEAST_STEPS ? LEAST_STEPS : n;
}

/* ---- telling the trainers ---- */

static void tell(struct session *s, uint64_t run, uint32_t upto, bool end)
{
	Batchd__Wire__Replay m = BATCHD__WIRE__REPLAY__INIT;
	m.replay = run;
	m.upto = upto;
	m.end = end;
	if (s->peer)
		peer_send(s->peer, WIRE_SERVER(REPLAY, replay, &m), NULL, 0);
}

static void tell_all(struct engine *e, uint64_t run, uint32_t upto, bool end)
{
	struct session *s;
	for (s = e->sessions; s; s = s->next)
		s->headroom.must_tell = is_part(s, run) && !s->headroom.done;
	do {
		for (s = e->sessions; s && !(s->headroom.must_tell && is_part(s, run));)
			s = s->next;
		if (s) {
			s->headroom.must_tell = false;
			tell(s, run, upto, end);
		}
	} while (s);
}

/* ---- the end ---- */

static void forget_part(struct session *s)
{
	bool allowed = s->headroom.allowed;
	s->headroom = (struct headroom){ .allowed = allowed };
}

/* No more replays are granted. Trainers that need not hear of it are let go at once; the others are part of the run
 * until they say that they have gone on. */
static void end_run(struct session *asker)
{
	struct engine *e = asker->engine;
	uint64_t run = asker->headroom.run;
	uint32_t upto = asker->headroom.upto;
	if (asker->headroom.ended)
		return;
	asker->headroom.ended = true;
	for (struct session *s = e->sessions; s; s = s->next) {
		if (is_part(s, run) && !upto && !s->headroom.marked)
			s->headroom.done = true;
	}
	tell_all(e, run, upto, true);
}

static void send_result(struct session *asker)
{
	static Batchd__Wire__HeadroomRank rank[MOST_RANKS], *at[MOST_RANKS]; /* loop thread only */
	Batchd__Wire__HeadroomResult m = BATCHD__WIRE__HEADROOM_RESULT__INIT;
	uint64_t run = asker->headroom.run;
	for (struct session *s = asker->engine->sessions; s; s = s->next) {
		if (!is_part(s, run) || m.n_rank == MOST_RANKS)
			continue;
		Batchd__Wire__HeadroomRank *r = at[m.n_rank] = &rank[m.n_rank];
		m.n_rank++;
		batchd__wire__headroom_rank__init(r);
		r->rank = s->consumer.rank;
		r->n_before = s->headroom.told.n_before;
		r->before_ns = s->headroom.told.before_ns;
		r->before_wait_ns = s->headroom.told.before_wait_ns;
		r->n_steps = s->headroom.told.n_steps;
		r->ns = s->headroom.told.ns;
	}
	m.rank = at;
	peer_send(asker->peer, WIRE_SERVER(HEADROOM, headroom, &m), NULL, 0);
}

/* Ends the run once every trainer has gone on. */
static void finish_if_done(struct engine *e, uint64_t run)
{
	struct session *asker = find_asker(e, run);
	for (struct session *s = e->sessions; s; s = s->next) {
		if (is_part(s, run) && !s->headroom.done)
			return;
	}
	if (asker)
		send_result(asker);
	for (struct session *s = e->sessions; s; s = s->next) {
		if (is_part(s, run) || (run && s->headroom.run == run))
			forget_part(s);
	}
}

static void trainer_leaves(struct session *s)
{
	struct engine *e = s->engine;
	uint64_t run = s->headroom.part;
	struct session *asker = find_asker(e, run);
	uint32_t rank = s->consumer.rank;
	forget_part(s);
	if (!asker) {
		finish_if_done(e, run);
		return;
	}
	end_run(asker);
	asker = find_asker(e, run);
	struct peer *p = asker ? asker->peer : NULL;
	if (asker)
		forget_part(asker);
	finish_if_done(e, run);
	if (p)
		peer_fail(p, BATCHD__WIRE__ERROR_CODE__NOT_FOUND, "job",
			  "rank %u has left the job during the measurement", rank);
}

void headroom_leave(struct session *s)
{
	if (s->headroom.part)
		trainer_leaves(s);
	if (!s->headroom.run)
		return;
	uint64_t run = s->headroom.run;
	end_run(s);
	s->headroom.run = 0;
	finish_if_done(s->engine, run);
}

/* ---- the beginning ---- */

static struct job *find_job(const struct session *asker, const char *name, unsigned *n)
{
	struct job *found = NULL;
	*n = 0;
	for (struct job *j = asker->engine->jobs; j; j = j->next) {
		if (j->retired || strcmp(j->spec.job, name) != 0 || (asker->uid && j->spec.uid != asker->uid))
			continue;
		if (j->spec.uid == asker->uid) { /* root's own before those of others */
			*n = 1;
			return j;
		}
		found = j;
		++*n;
	}
	return found;
}

/* The trainers have to be all of the job: those on other machines would not make the extra steps. */
static int check_trainers(const struct job *j, struct refusal *why)
{
	uint32_t n = 0, world = j->spec.world_size;
	for (const struct session *s = j->sessions; s; s = s->next_in_job) {
		if (s->state != SESSION_ATTACHED || !s->consumer.positioned)
			continue;
		n++;
		if (s->headroom.part)
			return refuse(why, BATCHD__WIRE__ERROR_CODE__LIMIT, "job",
				      "rank %u still takes part in another measurement; try again in some steps",
				      s->consumer.rank);
		if (!s->headroom.allowed)
			return refuse(
				why, BATCHD__WIRE__ERROR_CODE__ACCESS, "headroom",
				"rank %u (%s, pid %d) does not allow replays, which are extra steps of its training: give its "
				"loader headroom=True, or start it with BATCHD_HEADROOM=1",
				s->consumer.rank, s->program, (int)s->pid);
	}
	if (!n)
		return refuse(why, BATCHD__WIRE__ERROR_CODE__NOT_FOUND, "job",
			      "no trainer of this job has begun to take batches");
	if (n < world && (world > 1 || !j->spec.share))
		return refuse(
			why, BATCHD__WIRE__ERROR_CODE__INVALID, "world_size",
			"%u of the job's %u trainers take batches from this daemon; replays need all of them, as ranks "
			"that wait for each other must make the same number of steps",
			n, world);
	return n > MOST_RANKS ? refuse(why, BATCHD__WIRE__ERROR_CODE__LIMIT, "job",
				       "the job has %u trainers; at most %d can be measured", n, (int)MOST_RANKS)
			      : 0;
}

static void begin_run(struct session *asker, const struct job *j, const Batchd__Wire__Headroom *m)
{
	static uint64_t last;
	struct position from = { 0 };
	uint64_t now = uv_hrtime(), run = last = now > last ? now : last + 1;
	asker->headroom.run = run;
	asker->headroom.n_steps = m->n_steps;
	for (const struct session *s = j->sessions; s; s = s->next_in_job) {
		if (s->state == SESSION_ATTACHED && position_compare(&s->consumer.cursor, &from) > 0)
			from = s->consumer.cursor;
	}
	for (struct session *s = j->sessions; s; s = s->next_in_job) {
		if (s->state != SESSION_ATTACHED || !s->consumer.positioned)
			continue;
		s->headroom = (struct headroom){
			.allowed = true, .part = run, .from = from, .n_before = m->n_before, .n_steps = m->n_steps
		};
	}
	log_record(LOG_LEVEL_INFO, "headroom", "session %llu measures job %s with %u replayed batches",
		   (unsigned long long)asker->number, j->spec.job, m->n_steps);
}

int headroom_on_request(struct session *asker, const Batchd__Wire__Headroom *m, struct refusal *why)
{
	unsigned n;
	if (m->stop) {
		uint64_t run = asker->headroom.run;
		if (run) {
			end_run(asker);
			finish_if_done(asker->engine, run);
		}
		return 0;
	}
	if (asker->state != SESSION_GREETED || asker->producer || asker->load || asker->headroom.run)
		return refuse(why, BATCHD__WIRE__ERROR_CODE__PROTOCOL, NULL,
			      "Headroom came twice, or from a trainer or producer");
	if (m->n_before < 1 || m->n_before > MOST_STEPS || m->n_steps < LEAST_STEPS || m->n_steps > MOST_STEPS)
		return refuse(why, BATCHD__WIRE__ERROR_CODE__INVALID, "n_steps",
			      "%u steps before and %u replays; "
			      "expected 1 to %d and %d to %d",
			      m->n_before, m->n_steps, (int)MOST_STEPS, (int)LEAST_STEPS, (int)MOST_STEPS);
	const struct job *j = find_job(asker, m->job, &n);
	if (n > 1)
		return refuse(why, BATCHD__WIRE__ERROR_CODE__INVALID, "job",
			      "%u users have a job of this name; ask as its user", n);
	if (!j || j->state != JOB_READY)
		return refuse(why, BATCHD__WIRE__ERROR_CODE__NOT_FOUND, "job",
			      "there is no job '%s' of yours at work; batchctl status lists the jobs", m->job);
	int r = check_trainers(j, why);
	if (r == 0)
		begin_run(asker, j, m);
	return r;
}

/* ---- meanwhile ---- */

void headroom_mark(const struct session *s, const struct slot *slot, Batchd__Wire__Batch *b)
{
	const struct headroom *h = &s->headroom;
	if (!h->part || h->marked || h->done || !b->n_rows || position_compare(&slot->at, &h->from) < 0)
		return;
	b->replay = h->part;
	b->replay_before = h->n_before;
	b->replay_steps = h->n_steps;
}

void headroom_note_marked(struct session *s, const Batchd__Wire__Batch *b)
{
	s->headroom.marked |= b->replay != 0;
}

void headroom_note_moved(struct session *s)
{
	if (s->headroom.part && !s->headroom.begun)
		s->headroom.marked = false;
}

void headroom_on_stepped(struct session *s, const Batchd__Wire__Stepped *m)
{
	struct engine *e = s->engine;
	uint64_t run = s->headroom.part;
	if (m->replay != run || s->headroom.done) {
		if (!m->done) /* a run that ended while the trainer was elsewhere: it must not wait for a grant */
			tell(s, m->replay, 0, true);
		return;
	}
	if (!run)
		return;
	s->headroom.begun = true;
	s->headroom.told = (struct headroom_figures){ .n_before = m->n_before,
						      .before_ns = m->before_ns,
						      .before_wait_ns = m->before_wait_ns,
						      .n_steps = m->n_steps,
						      .ns = m->ns };
	s->headroom.done = m->done;
	struct session *asker = find_asker(e, run);
	if (asker && !asker->headroom.ended) {
		uint32_t n = block(asker), *upto = &asker->headroom.upto;
		uint64_t wanted = (uint64_t)m->n_steps + 2 * (uint64_t)n;
		wanted = wanted < asker->headroom.n_steps ? wanted : asker->headroom.n_steps;
		if (m->done && m->n_steps < asker->headroom.n_steps) {
			end_run(asker); /* it has left its epoch */
		} else if (wanted >= *upto + n || (wanted > *upto && wanted == asker->headroom.n_steps)) {
			*upto = (uint32_t)wanted;
			tell_all(e, run, (uint32_t)wanted, false);
		}
	}
	if (m->done)
		finish_if_done(e, run);
}
