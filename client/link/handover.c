/* Taking batches: one that was taken early first, then those in the ring (proto/ring.h).
 *
 * While there are batches in the ring no system call is made: the daemon gets a Wake only if it sleeps and has asked
 * for it in the page. The page also says when a notice about other trainers lies on the socket. When the ring is empty
 * the trainer sets its mark in the page, checks the ring once more, and sleeps on the socket, where all other messages
 * arrive: an Error, the memory of a large batch, and the end of the connection. So the trainer notices that a daemon
 * has gone after the batches it left in the ring, which are whole, and before it waits for anything.
 *
 * A Wake may be missing: the daemon clears the mark before it sends one, and a socket that is full of notices has no
 * room for it. So after every sleep, whether a notice or a second without any packet ended it, the trainer checks the
 * ring, and sets a new mark if the old one is gone. */
#include "link/handover.h"

#include <errno.h>
#include <poll.h>

#include "link/clock.h"

enum { LOOK_NS = 1000000000 }; /* also the socket's receive time-out */

static int handover_nonsense(struct link *k, const char *what, struct fault *f)
{
	return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s put nonsense into the ring: %s", k->connection.address,
			 what);
}

static struct ready ready_from(const Batchd__Wire__Batch *b)
{
	return (struct ready){ .seek = b->seek,
			       .generation = b->generation,
			       .epoch = b->epoch,
			       .step = b->step,
			       .slot = b->slot,
			       .n_rows = b->n_rows,
			       .n_padding = b->n_padding,
			       .n_replaced = b->n_replaced,
			       .n_skipped = b->n_skipped,
			       .large_bytes = b->large_bytes,
			       .last = b->last,
			       .apart = b->apart };
}

/* The next entry. 0; BATCHD_AGAIN: the ring is empty; or a code. */
static int take_entry(struct link *k, struct ready *out, struct fault *f)
{
	const Batchd__Wire__ServerMessage *m;
	const char *why = NULL;
	size_t n = 0;
	int r = ring_take(&k->ring.batches, k->connection.bytes, &n);

	if (r == -EAGAIN)
		return BATCHD_AGAIN;
	if (r < 0)
		return handover_nonsense(k, "an impossible position or length", f);
	if (wire_unpack_server(&k->connection.arena, k->connection.bytes, n, &m, &why) < 0)
		return handover_nonsense(k, why, f);
	if (m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH)
		return handover_nonsense(k, wire_server_name(m), f);
	*out = ready_from(m->batch);
	if (ring_wake_daemon_taken(&k->ring)) {
		pthread_mutex_lock(k->host.lock);
		r = link_wake(k);
		pthread_mutex_unlock(k->host.lock);
	}
	(void)r; /* an empty ring reveals that the daemon has gone; this batch is whole */
	return 0;
}

/* Receives a packet, which can only be a Wake (or the end, or a notice about other trainers, which goes to the host):
 * 0, BATCHD_AGAIN, or a code. */
static int recv_wake(struct link *k, int flags, struct fault *f)
{
	const Batchd__Wire__ServerMessage *m;
	int r = link_recv(k, flags, &m, f);

	if (r == 0 && m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_WAKE)
		return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s sent %s where only a Wake or a Notice may come",
				 k->connection.address, wire_server_name(m));
	if (r == 0 || r == BATCHD_AGAIN)
		link_heard_wake(k);
	return r;
}

static int start_waiting(struct link *k, struct fault *f)
{
	int r = 0;

	if (k->stale_wake)
		r = recv_wake(k, MSG_DONTWAIT, f);
	k->stale_wake = k->stale_wake && r == BATCHD_AGAIN;
	ring_set_state(&k->ring, RING_WAITS);
	ring_start_waiting(&k->ring);
	k->said_waiting = true;
	return r < 0 ? r : 0;
}

static void stop_waiting(struct link *k)
{
	if (k->said_waiting && !ring_stop_waiting(&k->ring))
		k->stale_wake = true;
	k->said_waiting = false;
}

/* Sleeps until there is a packet, at most until the deadline (0: none). */
static int sleep_on_socket(struct link *k, int timeout_ms, uint64_t deadline, struct fault *f)
{
	struct pollfd p = { .fd = k->connection.socket, .events = POLLIN };
	uint64_t now;
	int r;

	if (timeout_ms == 0)
		return recv_wake(k, MSG_DONTWAIT, f);
	if (timeout_ms < 0) {
		r = recv_wake(k, 0, f);
		return r == BATCHD_AGAIN && timeout_ms == BATCHD_FOREVER ? 0 : r;
	}
	now = clock_now_ns();
	if (now < deadline)
		poll(&p, 1, deadline - now < LOOK_NS ? (int)((deadline - now + 999999) / 1000000) : LOOK_NS / 1000000);
	r = recv_wake(k, MSG_DONTWAIT, f);
	return r == BATCHD_AGAIN && now < deadline ? 0 : r; /* a signal: the caller looks again */
}

/* The next batch if there is one now. */
static int poll_ring(struct link *k, struct ready *out, struct fault *f)
{
	int r = take_entry(k, out, f);

	if (r != BATCHD_AGAIN)
		stop_waiting(k);
	return r;
}

/* Reads the notices that the page announces, before a batch is taken: a notice may be an error of this call. */
static int hear_notices(struct link *k, struct fault *f)
{
	int r;

	if (!ring_take_notice(&k->ring))
		return 0;
	do
		r = recv_wake(k, MSG_DONTWAIT, f);
	while (r == 0);
	if (r == BATCHD_AGAIN)
		return 0;
	ring_note_notice(&k->ring); /* more may lie after it */
	return r;
}

static int take_from_ring(struct link *k, int timeout_ms, struct ready *out, struct fault *f)
{
	uint64_t deadline = timeout_ms > 0 ? clock_now_ns() + (uint64_t)timeout_ms * 1000000 : 0;
	int r;

	for (;;) {
		if (k->host.is_closed(k->host.arg))
			return BATCHD_E_CLOSED;
		r = hear_notices(k, f);
		if (r < 0)
			return r;
		r = poll_ring(k, out, f);
		if (r != BATCHD_AGAIN)
			return r;
		if (!k->said_waiting)
			r = start_waiting(k, f); /* and checks once more: a batch may have come meanwhile */
		else
			r = sleep_on_socket(k, timeout_ms, deadline, f);
		if (r != 0)
			return r;
	}
}

int handover_take(struct link *k, int timeout_ms, struct ready *out, struct fault *f)
{
	if (!k->has_early)
		return take_from_ring(k, timeout_ms, out, f);
	*out = k->early;
	k->has_early = false;
	return 0;
}

const struct ready *handover_peek(struct link *k, struct fault *f)
{
	if (!k->has_early)
		k->has_early = !f->code && poll_ring(k, &k->early, f) == 0;
	return k->has_early ? &k->early : NULL;
}

void handover_put_back(struct link *k, const struct ready *b)
{
	k->early = *b;
	k->has_early = true;
}
