/* See lanes.h.
 *
 * A lane of a server's file system lives as long as jobs that read from it, so when it ends its threads are idle, or
 * about to be. The loop wakes them; the last one out tells the loop, which joins threads that have nothing more to do.
 * The loop makes one thread of a lane, and that thread makes the others: a lane that cannot have all of them works with
 * those that it has. */
#include "batch/pool/lanes.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch/pool/io.h"
#include "batch/pool/queues.h"
#include "batch/pool/threads.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/thread-kind.h"

/* ---- life ---- */

static int make_tickets(struct pool *p, struct pool_lane *lane)
{
	lane->tickets = calloc(lane->n_tickets ? lane->n_tickets : 1, sizeof(*lane->tickets));
	for (unsigned i = 0; lane->tickets && i < lane->n_tickets; i++) {
		struct pool_ticket *t = &lane->tickets[i];
		t->input = p->params.input_create(p->params.arg);
		if (!t->input)
			return -ENOMEM;
		list_push(&lane->free_tickets, t, next);
		lane->n_free_tickets++;
	}
	return lane->tickets ? 0 : -ENOMEM;
}

int pool_lane_init(struct pool *p, struct pool_lane *lane, unsigned n_io, unsigned n_tickets)
{
	assert(!lane->pool && n_io > 0);
	lane->pool = p;
	lane->n_threads = n_io;
	lane->n_tickets = n_tickets;
	pthread_cond_init(&lane->io, NULL);
	lane->threads = calloc(n_io, sizeof(*lane->threads));
	for (unsigned i = 0; lane->threads && i < n_io; i++)
		lane->threads[i] = (struct pool_thread){ .pool = p, .lane = lane, .number = i };
	return lane->threads ? make_tickets(p, lane) : -ENOMEM;
}

void pool_lane_finish(struct pool_lane *lane)
{
	if (!lane->pool)
		return;
	for (unsigned i = 0; lane->tickets && i < lane->n_tickets; i++) {
		if (lane->tickets[i].input)
			lane->pool->params.input_destroy(lane->tickets[i].input);
	}
	pthread_cond_destroy(&lane->io);
	free(lane->tickets);
	free(lane->threads);
}

static void free_lane(struct pool_lane *lane)
{
	if (!lane)
		return;
	assert(!lane->users && !lane->n_io && !lane->tasks && !lane->tasks_running && !lane->starved);
	pool_threads_join(lane->threads, lane->n_threads);
	pool_lane_finish(lane);
	free(lane);
}

/* Without those that end. */
static unsigned n_lanes(const struct pool *p)
{
	unsigned n = 0;
	for (const struct pool_lane *lane = p->lanes; lane; lane = lane->next)
		n += !lane->ending;
	return n;
}

static int make_lane(struct pool *p, uint64_t filesystem, struct pool_lane **out)
{
	const struct pool_params *params = &p->params;
	if (params->max_lanes && n_lanes(p) >= params->max_lanes)
		return ACCOUNT_E_ALL;
	struct pool_lane *lane = calloc(1, sizeof(*lane));
	if (!lane)
		return -ENOMEM;
	lane->filesystem = filesystem;
	int r = pool_lane_init(p, lane, params->n_lane_io ? params->n_lane_io : params->n_io,
			       params->n_lane_tickets ? params->n_lane_tickets : params->n_tickets);
	if (r == 0)
		r = pool_io_start(lane, 0, 1);
	if (r) {
		free_lane(lane);
		return r;
	}
	pthread_mutex_lock(&p->lock);
	list_push(&p->lanes, lane, next);
	pthread_mutex_unlock(&p->lock);
	*out = lane;
	return 0;
}

/* No user is left. */
static void end_lane(struct pool *p, struct pool_lane *lane)
{
	assert(!lane->ending && lane->filesystem);
	pthread_mutex_lock(&p->lock);
	assert(!lane->users && lane->n_free_tickets == lane->n_tickets);
	lane->ending = true;
	pthread_cond_broadcast(&lane->io);
	pthread_mutex_unlock(&p->lock);
}

static struct pool_lane *take_ended(struct pool *p)
{
	pthread_mutex_lock(&p->lock);
	struct pool_lane *lane = p->lanes;
	while (lane && lane->n_io > 0)
		lane = lane->next;
	if (lane)
		list_remove(&p->lanes, lane, next);
	pthread_mutex_unlock(&p->lock);
	return lane;
}

void pool_lanes_reap(struct pool *p)
{
	assert(is_loop_thread());
	for (struct pool_lane *lane; p->lanes && (lane = take_ended(p));)
		free_lane(lane);
}

void pool_lanes_stop(struct pool *p)
{
	assert(is_loop_thread());
	assert(p->stopping);
	for (struct pool_lane *lane = p->lanes; lane; lane = lane->next) {
		assert(lane->ending);
		pool_threads_join(lane->threads, 1); /* it makes the others */
		pool_threads_join(lane->threads + 1, lane->n_threads - 1);
		for (unsigned i = 0; i < lane->n_threads; i++)
			lane->threads[i].started = false;
	}
	pool_lanes_reap(p);
	assert(!p->lanes);
}

/* ---- users ---- */

static struct pool_lane *find_lane(const struct pool *p, uint64_t filesystem)
{
	struct pool_lane *lane = p->lanes;
	while (lane && (lane->ending || lane->filesystem != filesystem))
		lane = lane->next;
	return lane;
}

static struct pool_lane_user *find_user(const struct pool_lane *lane, uid_t uid)
{
	struct pool_lane_user *u = lane->users;
	while (u && u->uid != uid)
		u = u->next;
	return u;
}

static int make_user(struct pool *p, struct pool_lane *lane, uid_t uid, struct pool_lane_user **out)
{
	struct pool_lane_user *u = calloc(1, sizeof(*u));
	struct charge charge = { 0 };
	int r = u ? 0 : -ENOMEM;
	if (r == 0 && p->params.accounts)
		r = charge_begin(&charge, p->params.accounts, uid, ACCOUNT_FILE_SYSTEMS, 1);
	if (r) {
		free(u);
		return r;
	}
	pool_add_lane_user(p, lane, u, uid);
	charge_move(&u->charge, &charge);
	*out = u;
	return 0;
}

int pool_lane_join(struct pool *p, uint64_t filesystem, uid_t owner, struct pool_lane_user **out)
{
	assert(is_loop_thread());
	assert(filesystem && !p->stopping);
	struct pool_lane *lane = find_lane(p, filesystem);
	int r = lane ? 0 : make_lane(p, filesystem, &lane);
	if (r)
		return r;
	struct pool_lane_user *u = find_user(lane, owner);
	if (!u)
		r = make_user(p, lane, owner, &u);
	if (r == 0)
		u->n_joined++;
	else if (!lane->users)
		end_lane(p, lane);
	*out = u;
	return r;
}

void pool_lane_set_name(struct pool_lane_user *u, const char *name)
{
	assert(is_loop_thread());
	if (!u->lane->name[0])
		snprintf(u->lane->name, sizeof(u->lane->name), "%s", name);
}

void pool_lane_leave(struct pool *p, struct pool_lane_user *u)
{
	assert(is_loop_thread());
	if (!u)
		return;
	struct pool_lane *lane = u->lane;
	assert(u->n_joined > 0 && !lane->ending);
	if (--u->n_joined > 0)
		return;
	pool_remove_lane_user(p, u);
	charge_release(&u->charge);
	free(u);
	if (!lane->users)
		end_lane(p, lane);
}

/* ---- what there is to see ---- */

static uint64_t oldest_of(const struct pool_lane *lane, uint64_t now)
{
	uint64_t oldest = 0;
	for (unsigned i = 0; i < lane->n_threads; i++) {
		uint64_t since = lane->threads[i].busy_since_ns;
		if (since && now > since && now - since > oldest)
			oldest = now - since;
	}
	return oldest;
}

uint64_t pool_io_oldest_ns(struct pool *p)
{
	struct pool_lane_stats s;
	uint64_t oldest = 0;
	for (unsigned i = 0; pool_get_lane_stats(p, i, 0, &s); i++)
		oldest = s.oldest_ns > oldest ? s.oldest_ns : oldest;
	return oldest;
}

static unsigned n_waiting_of(const struct pool_lane *lane)
{
	unsigned n = 0;
	for (const struct pool_lane_user *u = lane->users; u; u = u->next) {
		for (const struct pool_ticket *t = u->to_fetch; t; t = t->next)
			n += t->n;
	}
	for (const struct pool_task *t = lane->tasks; t; t = t->next)
		n++;
	return n;
}

bool pool_get_lane_stats(struct pool *p, unsigned i, uid_t user, struct pool_lane_stats *out)
{
	assert(is_loop_thread());
	const struct pool_lane *lane = i ? p->lanes : &p->local;
	for (; lane && i > 1; i--)
		lane = lane->next;
	if (!lane)
		return false;
	pthread_mutex_lock(&p->lock);
	*out = (struct pool_lane_stats){ .n_io = lane->n_io,
					 .io_busy = lane->n_io_busy,
					 .n_waiting = n_waiting_of(lane),
					 .oldest_ns = oldest_of(lane, clock_now_ns()),
					 .is_users = find_user(lane, user) };
	pthread_mutex_unlock(&p->lock);
	memcpy(out->name, lane->name, sizeof(out->name));
	return true;
}
