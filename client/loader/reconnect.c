/* A daemon that went away and came back, or another in its place.
 *
 * A batch is a function of (data set, options, epoch, base, step), so the daemon has to remember nothing: the loader
 * opens another link with the options of the first and asks for the step that is due. Batches on loan lie in the old
 * link's memory and are given back by slot number, possibly by another thread at this moment. So the loader gets the
 * new link under its lock, and the old link is retired until its last batch is released. As the daemon must not wait
 * for that, the old link's batches first become copies of this process's own, as in batchd_close. */
#include "loader/reconnect.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "link/clock.h"
#include "loader/links.h"
#include "loader/open.h"
#include "loader/position.h"
#include "loader/slices.h"
#include "link/token.h"

enum {
	PART_MS = 2000,
	PART_LOOK_MS = 1
}; /* PART_MS: how long the GPU may still read old memory before a new daemon is tried; less than a daemon waits */

static void wait_before_next_try(struct outage *a, uint64_t now)
{
	a->next_try_ns = now + (uint64_t)backoff_next_ms(&a->backoff) * 1000000;
}

/* A daemon that stops waits a little until its memory on the GPU is no longer open here; the connection stays open to
 * tell it. */
static bool waits_for_us(struct batchd_loader *l, int r)
{
	return l->link->gpu && !link_drain(l->link) && r == BATCHD_E_SHUTDOWN;
}

/* A daemon that is there still listens until Close: it need not keep the old slots as long as this process lives. Under
 * the lock. */
static void give_up_leases(struct batchd_loader *l)
{
	slices_stop(l);
	if (link_detach(l->link))
		link_send_close(l->link);
}

/* The first try is now, but not again for a daemon that came back and delivered nothing. */
static void begin_outage(struct batchd_loader *l, uint64_t now)
{
	struct outage *a = &l->outage, earlier = *a;

	*a = (struct outage){ .lost = true,
			      .why = l->fault,
			      .since_ns = now,
			      .next_try_ns = now,
			      .backoff = { CONNECTION_LOOK_MS, CONNECTION_LOOK_MOST_MS, 0 } };
	if (!earlier.no_progress)
		return;
	a->earlier_ns = earlier.earlier_ns;
	a->backoff = earlier.backoff;
	wait_before_next_try(a, now);
}

/* Whether r, the result of a call to the daemon, means that the daemon went away and the loader waits for it. Then the
 * connection is closed. */
static bool is_lost(struct batchd_loader *l, int r)
{
	struct outage *a = &l->outage;

	/* BATCHD_E_GPU: a GPU failed in the daemon, which restarts. Failures on this process's side do not get here. */
	bool gone = r == BATCHD_E_LOST || r == BATCHD_E_SHUTDOWN || (r == BATCHD_E_GPU && l->link->gpu);

	if (!gone || !l->options.reconnect_ms || loader_is_closed(l))
		return false;
	if (!a->lost) {
		uint64_t now = clock_now_ns();

		/* A daemon that restarts but never delivers a batch does not reset the back-off or the deadline. */
		if (a->no_progress && a->earlier_ns >= (uint64_t)l->options.reconnect_ms * 1000000)
			return false;
		begin_outage(l, now);
		if (!waits_for_us(l, r)) {
			pthread_mutex_lock(&l->lock);
			if (!l->link->gpu)
				give_up_leases(l);
			connection_close(&l->link->connection);
			pthread_mutex_unlock(&l->lock);
		}
		loader_event(l, BATCHD_EVENT_LOST, a->why.text);
	}
	l->fault.code = 0;
	return true;
}

/* Makes fresh the loader's link; the one before it is retired until its last batch is back. False: the loader was
 * closed meanwhile, and fresh is destroyed. */
static bool switch_link(struct batchd_loader *l, struct link *fresh)
{
	struct link *over = fresh;

	pthread_mutex_lock(&l->lock);
	if (!loader_is_closed(l)) {
		slices_stop(l); /* the rest of the batch comes again */
		fresh->id = (l->link->id + 1) & (UINT64_MAX >> LINK_ID_SHIFT);
		over = links_retire(l, l->link);
		open_switch(l, fresh);
	}
	pthread_mutex_unlock(&l->lock);
	link_destroy(over);
	return over != fresh;
}

static int check_same(const struct batchd_loader *l, struct link *fresh, struct fault *f)
{
	const struct link *old = l->link;
	struct token t = { .n_samples = old->info.n_samples };
	char change[1024];

	if (fresh->info.dataset_id == old->info.dataset_id && fresh->info.loader_id == old->info.loader_id &&
	    fresh->info.served == old->info.served)
		return 0;
	if (fresh->content_id == old->content_id)
		return fault_set(f, BATCHD_E_INVALID,
				 "batchd came back, but %s is no longer the same: it is delivered in another way",
				 l->options.dataset);
	snprintf(t.source, sizeof t.source, "%s", l->options.dataset);
	token_explain(&t, l->options.dataset, fresh->info.n_samples, change, sizeof change);
	return fault_set(f, BATCHD_E_INVALID,
			 "batchd came back, but %s is no longer the same: %s. Put the files back, or make a new loader",
			 l->options.dataset, change);
}

/* Called while another connection is opened: whether to give up. */
static int reconnect_on_progress(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	const struct batchd_loader *l = arg;
	const struct batchd_options *o = &l->options;

	return loader_is_closed(l) || (o->on_progress && o->on_progress(o->progress_arg, phase, done, total));
}

/* Opens another connection, which replaces the lost one. 0 or a code with f. */
static int try_once(struct batchd_loader *l, uint64_t waited_ms, struct fault *f)
{
	struct batchd_options o = l->options;
	struct link *fresh;
	char address[ADDRESS_MAX_BYTES] = "";
	bool same = waited_ms < l->options.reconnect_ms / CONNECTION_SAME_SHARE;
	int r;

	o.on_progress = reconnect_on_progress;
	o.progress_arg = l;
	if (same)
		strcpy(address, l->link->connection.address);
	r = open_link(l, &o, true, address, &fresh, f);
	if (r < 0)
		return r;
	r = check_same(l, fresh, f);
	if (r < 0) {
		link_destroy(fresh);
		return r;
	}
	if (!switch_link(l, fresh))
		return fault_set(f, BATCHD_E_CLOSED, "this loader is closed");
	r = position_ask_again(l);
	if (r < 0)
		*f = l->fault;
	return r;
}

/* Memory may be short only for a moment, which need not end the training; and a daemon whose GPU fails makes room for
 * another daemon. */
static bool is_worth_another_try(const struct fault *f)
{
	return f->code == BATCHD_E_CONNECT || f->code == BATCHD_E_LOST || f->code == BATCHD_E_SHUTDOWN ||
	       f->code == BATCHD_E_NOMEM || (f->code == BATCHD_E_GPU && f->told);
}

static void say_back(struct batchd_loader *l, uint64_t waited_ms)
{
	struct fault text;

	fault_set(&text, 0, "%.2000s; it is back after %.1f s, and this loader goes on where it was",
		  l->outage.why.text, (double)waited_ms / 1000);
	l->outage.lost = false;
	l->outage.no_progress = true;
	l->outage.earlier_ns += waited_ms * 1000000;
	l->fault.code = 0;
	loader_event(l, BATCHD_EVENT_BACK, text.text);
}

/* One try, now. 0, BATCHD_AGAIN, or a code with l->fault. */
static int try_now(struct batchd_loader *l)
{
	struct outage *a = &l->outage;
	struct fault f;
	uint64_t now = clock_now_ns(), waited_ms = (now - a->since_ns + a->earlier_ns) / 1000000;
	int r = try_once(l, waited_ms, &f);

	l->fault.code = 0;
	if (r == 0) {
		say_back(l, (clock_now_ns() - a->since_ns) / 1000000);
		return 0;
	}
	if (r == BATCHD_E_CANCELLED) {
		fault_set(&l->fault, 0, "%s", f.text);
		return r;
	}
	if (is_worth_another_try(&f) && waited_ms < l->options.reconnect_ms) {
		wait_before_next_try(a, clock_now_ns());
		return BATCHD_AGAIN;
	}
	if (is_worth_another_try(&f))
		return fault_set(&l->fault, BATCHD_E_LOST, "%.2000s; it did not come back within %.1f s: %.2000s",
				 a->why.text, (double)waited_ms / 1000, f.text);
	return fault_set(&l->fault, r, "%s", f.text);
}

/* Sleeps until the next try is due; false if the caller's timeout ends before that, or a signal came and the caller
 * waits with BATCHD_UNTIL_SIGNAL. */
static bool sleep_until_due(const struct batchd_loader *l, int timeout_ms, uint64_t began)
{
	uint64_t due = l->outage.next_try_ns;
	int most_ms = timeout_ms == BATCHD_UNTIL_SIGNAL ? 1000 : timeout_ms;

	for (uint64_t now = clock_now_ns(); now < due; now = clock_now_ns()) {
		uint64_t left_ms = (due - now + 999999) / 1000000, spent_ms = (now - began) / 1000000;

		if (most_ms >= 0 && spent_ms >= (uint64_t)most_ms)
			return false;
		if (most_ms >= 0 && left_ms > (uint64_t)most_ms - spent_ms)
			left_ms = (uint64_t)most_ms - spent_ms;
		if (poll(NULL, 0, (int)left_ms) < 0 && errno == EINTR && timeout_ms == BATCHD_UNTIL_SIGNAL)
			return false;
	}
	return true;
}

/* Whether memory of the stopping daemon is still open here, so that it must be checked again soon. */
static bool is_parting(struct batchd_loader *l)
{
	uint64_t now = clock_now_ns();

	if (l->link->connection.socket < 0 || link_drain(l->link))
		return false;
	if (now - l->outage.since_ns < (uint64_t)PART_MS * 1000000) {
		l->outage.next_try_ns = now + (uint64_t)PART_LOOK_MS * 1000000;
		return true;
	}
	pthread_mutex_lock(&l->lock);
	connection_close(&l->link->connection);
	pthread_mutex_unlock(&l->lock);
	return false;
}

/* While lost: tries to get a connection and to continue where the loader stands. 0; BATCHD_AGAIN: not yet, timeout_ms
 * has passed; or a code with l->fault. */
static int reconnect(struct batchd_loader *l, int timeout_ms)
{
	uint64_t began = clock_now_ns();
	int r;

	do {
		if (loader_is_closed(l))
			return BATCHD_E_CLOSED;
		if (!sleep_until_due(l, timeout_ms, began))
			return BATCHD_AGAIN;
		r = is_parting(l) ? BATCHD_AGAIN : try_now(l);
	} while (r == BATCHD_AGAIN);
	return r;
}

/* ---- calls ---- */

/* What is left of the caller's timeout; negative timeouts have other meanings. */
static int time_left(uint64_t began, int timeout_ms)
{
	uint64_t spent_ms = timeout_ms > 0 ? (clock_now_ns() - began) / 1000000 : 0;

	return timeout_ms <= 0 ? timeout_ms : spent_ms >= (uint64_t)timeout_ms ? 0 : timeout_ms - (int)spent_ms;
}

int with_link(struct batchd_loader *l, int timeout_ms, link_attempt attempt, void *arg)
{
	uint64_t began = timeout_ms > 0 ? clock_now_ns() : 0;
	int r;

	do {
		r = l->outage.lost ? reconnect(l, time_left(began, timeout_ms)) : 0;
		if (r != 0)
			return r;
		r = attempt(l, arg, time_left(began, timeout_ms));
	} while (is_lost(l, r));
	return r;
}

int with_link_now(struct batchd_loader *l, link_attempt attempt, void *arg)
{
	int r = l->outage.lost ? 0 : attempt(l, arg, 0);

	return is_lost(l, r) ? 0 : r;
}

void reconnect_part(struct batchd_loader *l)
{
	if (l->outage.lost)
		link_drain(l->link);
}
