/* See headroom.h. A kept batch has one lease more than the trainer has of it, so it stays as long as it is kept,
 * whatever the trainer releases. */
#include "headroom.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "links.h"

enum { REPORTS = 16, LOOK_MS = 1000 };

bool headroom_is_allowed(const struct batchd_options *o)
{
	const char *wish = getenv("BATCHD_HEADROOM");

	return o->headroom || (wish && !strcmp(wish, "1"));
}

/* ---- keeping batches ---- */

static struct lease *lease_of(struct batchd_loader *l, const struct batchd_batch *b, struct link **link)
{
	*link = links_find(l, b->generation);
	return *link ? &(*link)->lease[b->slot] : NULL;
}

/* Under the lock. */
static void let_go_of(struct batchd_loader *l, const struct batchd_batch *b)
{
	struct link *k;
	struct lease *lease = lease_of(l, b, &k);

	if (!lease || !lease->held || !lease->n_out)
		return;
	if (lease_ends(lease))
		link_let_go(k, b->slot);
	links_end(l, k);
}

void headroom_let_go(struct batchd_loader *l)
{
	struct headroom *h = &l->headroom;

	for (uint32_t i = 0; i < h->n_kept; i++)
		let_go_of(l, &h->kept[i].batch);
	h->n_kept = 0;
}

/* Of a small window only few can be spared. */
static uint32_t most_kept(const struct batchd_loader *l)
{
	uint32_t n = l->link->info.window / 4;

	return n < 1 ? 1 : n > HEADROOM_KEPT ? HEADROOM_KEPT : n;
}

static void keep(struct batchd_loader *l, const struct batchd_batch *b, uint32_t n_rows)
{
	struct headroom *h = &l->headroom;
	struct link *k;

	pthread_mutex_lock(&l->lock);
	if (!l->closed) {
		while (h->n_kept && h->n_kept >= most_kept(l)) {
			let_go_of(l, &h->kept[0].batch);
			memmove(h->kept, h->kept + 1, --h->n_kept * sizeof *h->kept);
		}
		lease_of(l, b, &k)->n_out++;
		h->kept[h->n_kept] = (struct headroom_kept){ .n_rows = n_rows };
		memcpy(&h->kept[h->n_kept++].batch, b, b->size_bytes < sizeof *b ? b->size_bytes : sizeof *b);
	}
	pthread_mutex_unlock(&l->lock);
}

/* ---- the beginning and the end ---- */

/* How many replays the trainer makes as far as is known; beyond them it has to ask. A number that the daemon has granted
 * is known to all ranks, also if it has gone since: they hear what it said before they notice. So they make exactly
 * those if it had ended the run, all if it had granted any, and none otherwise. */
static uint32_t granted(const struct headroom *h)
{
	uint32_t upto = h->told_run == h->run ? h->upto : 0;
	bool all = h->lost && upto && !(h->told_run == h->run && h->ended);

	return all || upto > h->n_steps ? h->n_steps : upto;
}

static int report(struct batchd_loader *l, bool done)
{
	struct headroom *h = &l->headroom;
	Batchd__Wire__Stepped m = BATCHD__WIRE__STEPPED__INIT;
	struct fault unheard;

	m.replay = h->run;
	m.n_before = h->n_timed;
	m.before_ns = h->before_ns;
	m.before_wait_ns = h->before_wait_ns;
	m.n_steps = h->n_complete;
	m.ns = h->ns;
	m.done = done;
	h->n_reported = h->n_complete;
	h->said_so = true;
	return link_send(l->link, WIRE_CLIENT(STEPPED, stepped, &m), &unheard);
}

/* The trainer goes on with its next batch. */
static void finish(struct batchd_loader *l)
{
	struct headroom *h = &l->headroom;

	if (!h->lost)
		report(l, true); /* a daemon that has gone is noticed by the next wait for a batch */
	pthread_mutex_lock(&l->lock);
	headroom_let_go(l);
	*h = (struct headroom){ .told_run = h->told_run, .upto = h->upto, .ended = h->ended };
	pthread_mutex_unlock(&l->lock);
}

/* The daemon begins a run only behind the end of the one before, of which a trainer may not have heard that made no
 * replay in it. Returns whether the trainer's part in that one is over. */
static bool leave_run_before(struct batchd_loader *l, uint64_t run)
{
	struct headroom *h = &l->headroom;

	if (h->phase == HEADROOM_NONE)
		return true;
	if (h->run == run || h->n_given)
		return false;
	pthread_mutex_lock(&l->lock);
	headroom_let_go(l);
	*h = (struct headroom){ .told_run = h->told_run, .upto = h->upto, .ended = h->ended };
	pthread_mutex_unlock(&l->lock);
	return true;
}

void headroom_begin(struct batchd_loader *l, const struct ready *b)
{
	struct headroom *h = &l->headroom;

	if (!l->options.headroom || !leave_run_before(l, b->replay))
		return;
	if (h->told_run != b->replay) {
		h->told_run = b->replay;
		h->upto = 0;
		h->ended = false;
	}
	h->run = b->replay;
	h->n_before = b->replay_before;
	h->n_steps = b->replay_steps;
	h->phase = HEADROOM_BEFORE;
	if (h->ended && !h->upto)
		finish(l);
}

void headroom_hear(struct batchd_loader *l, const Batchd__Wire__Replay *m)
{
	struct headroom *h = &l->headroom;

	if (m->replay != h->told_run) {
		if (!leave_run_before(l, m->replay))
			return;
		h->upto = 0;
		h->ended = false;
	}
	h->told_run = m->replay;
	h->upto = m->upto > h->upto ? m->upto : h->upto;
	h->ended |= m->end;
}

void headroom_leave_epoch(struct batchd_loader *l)
{
	struct headroom *h = &l->headroom;

	h->given_ns = 0; /* what lies between two epochs is no step */
	if (h->phase == HEADROOM_REPLAY && h->n_given) {
		finish(l);
	} else if (h->phase != HEADROOM_NONE) {
		pthread_mutex_lock(&l->lock);
		headroom_let_go(l);
		pthread_mutex_unlock(&l->lock);
	}
}

void headroom_lose(struct batchd_loader *l)
{
	struct headroom *h = &l->headroom;

	if (h->phase == HEADROOM_NONE)
		return;
	h->lost = true;
	/* Memory of that daemon on a GPU must not be read any more. */
	if ((!h->n_given && !granted(h)) || l->link->gpu)
		finish(l);
}

/* ---- steps ---- */

void headroom_note_given(struct batchd_loader *l, const struct batchd_batch *b, uint32_t n_rows, uint64_t wait_ns)
{
	struct headroom *h = &l->headroom;
	uint64_t now = clock_now_ns();

	if (h->phase == HEADROOM_BEFORE && h->given_ns) {
		h->before_ns += now - h->given_ns;
		h->before_wait_ns += wait_ns;
		h->n_timed++;
	}
	h->given_ns = now;
	if (h->n_timed >= h->n_before)
		h->phase = HEADROOM_REPLAY;
	if (h->n_timed + HEADROOM_KEPT > h->n_before)
		keep(l, b, n_rows);
}

/* Takes what the daemon has said meanwhile. A daemon that has gone is left to the next wait for a batch, which gets the
 * daemon's reason as well: the connection keeps it. */
static void listen_now(struct batchd_loader *l)
{
	struct fault f = { 0 };
	int r = 0;

	while (!l->headroom.lost && r == 0)
		r = link_listen(l->link, MSG_DONTWAIT, &f);
	if (r < 0)
		headroom_lose(l);
}

/* Waits until one more replay is granted, or none will be. 0; BATCHD_AGAIN; BATCHD_E_CLOSED. */
static int await_grant(struct batchd_loader *l, int timeout_ms, uint64_t began_ns)
{
	struct headroom *h = &l->headroom;

	for (;;) {
		struct pollfd p = { .fd = l->link->connection.socket, .events = POLLIN };
		uint64_t spent_ms = (clock_now_ns() - began_ns) / 1000000;
		int left_ms = LOOK_MS;

		listen_now(l);
		if (l->closed)
			return BATCHD_E_CLOSED;
		if (h->phase != HEADROOM_REPLAY || h->n_given < granted(h) || h->n_given == h->n_steps || h->ended)
			return 0;
		if (timeout_ms >= 0 && spent_ms >= (uint64_t)timeout_ms)
			return BATCHD_AGAIN;
		if (timeout_ms >= 0 && (uint64_t)timeout_ms - spent_ms < LOOK_MS)
			left_ms = timeout_ms - (int)spent_ms;
		if (poll(&p, 1, left_ms) <= 0 && timeout_ms == BATCHD_UNTIL_SIGNAL)
			return BATCHD_AGAIN;
	}
}

/* The trainer's step with the batch given last is complete. */
static void note_step(struct batchd_loader *l, uint64_t now)
{
	struct headroom *h = &l->headroom;
	bool first = !h->said_so;

	if (h->n_given && h->given_ns) {
		h->ns += now - h->given_ns;
		h->n_complete++;
		h->given_ns = 0;
	}
	if (!h->lost && (first || h->n_complete - h->n_reported > h->n_steps / REPORTS))
		report(l, false);
}

/* Another thread may close the loader at any time, which takes the kept batches. */
static int give_again(struct batchd_loader *l, struct batchd_batch *out)
{
	struct headroom *h = &l->headroom;
	struct batchd_batch b, newest;
	struct link *k;

	pthread_mutex_lock(&l->lock);
	if (l->closed) {
		pthread_mutex_unlock(&l->lock);
		return BATCHD_E_CLOSED;
	}
	newest = h->kept[h->n_kept - 1].batch;
	b = h->kept[h->n_given % h->n_kept].batch;
	lease_of(l, &b, &k)->n_out++;
	l->consumer_thread = pthread_self();
	pthread_mutex_unlock(&l->lock);
	b.epoch = newest.epoch;
	b.base = newest.base;
	b.step = newest.step;
	b.n_given = newest.n_given;
	b.order = newest.order;
	b.last = 0;
	b.wait_ns = b.n_skipped = 0;
	b.replayed = 1;
	b.size_bytes = out->size_bytes;
	memcpy(out, &b, b.size_bytes < sizeof b ? b.size_bytes : sizeof b);
	h->n_given++;
	h->given_ns = clock_now_ns();
	return BATCHD_OK;
}

/* False as well once the loader is closed. */
static bool has_kept(struct batchd_loader *l)
{
	bool has;

	pthread_mutex_lock(&l->lock);
	has = l->headroom.n_kept > 0;
	pthread_mutex_unlock(&l->lock);
	return has;
}

int headroom_next(struct batchd_loader *l, struct batchd_batch *b, uint64_t began_ns, int timeout_ms)
{
	struct headroom *h = &l->headroom;
	int r;

	if (!has_kept(l)) /* an epoch's first batch: the replays come behind it */
		return HEADROOM_OVER;
	note_step(l, began_ns);
	listen_now(l);
	if (h->phase == HEADROOM_REPLAY && h->n_given >= granted(h)) {
		r = await_grant(l, timeout_ms, began_ns);
		if (r != 0)
			return r;
	}
	if (h->phase != HEADROOM_REPLAY)
		return HEADROOM_OVER;
	if (h->n_given >= granted(h)) {
		finish(l);
		return HEADROOM_OVER;
	}
	return give_again(l, b);
}

uint32_t headroom_rows(struct batchd_loader *l, const struct batchd_batch *b)
{
	const struct headroom *h = &l->headroom;
	uint32_t n_rows = b->n_rows;

	pthread_mutex_lock(&l->lock);
	for (uint32_t i = 0; i < h->n_kept; i++)
		if (h->kept[i].batch.generation == b->generation && h->kept[i].batch.slot == b->slot)
			n_rows = h->kept[i].n_rows;
	pthread_mutex_unlock(&l->lock);
	return n_rows;
}
