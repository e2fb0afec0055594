/* Batches and releases through the control page (proto/ring.h).
 *
 * As long as there are batches in the ring no system call is made: the daemon is told (Wake) only if it sleeps and has
 * asked for it in the page. With an empty ring we say in the page that we wait, look once more, and sleep on the
 * socket, where everything else comes as well: an Error, and the end of the connection. So a daemon that has gone is
 * noticed after the batches it left in the ring, which are whole, and before anything is waited for.
 *
 * A Wake may be missing: the daemon takes the page's mark back before it sends one, and a socket that is full of notices
 * has no room for it. So whatever ends a sleep, a notice or a second without any packet, is followed by a look at the
 * ring, and by a new mark if the old one is gone. */
#include "loader.h"

#include <errno.h>
#include <poll.h>

enum { LOOK_NS = 1000000000 }; /* the socket's own time-out, too */

/* ---- waking the daemon ---- */

static int send_wake(struct batchd_loader *l)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__Wake body = BATCHD__WIRE__WAKE__INIT;

	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_WAKE;
	m.wake = &body;
	return connection_send(&l->connection, &m, NULL, 0);
}

int handover_release(struct batchd_loader *l, uint32_t slot, uint64_t generation, uint64_t wait_ns)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__Release body = BATCHD__WIRE__RELEASE__INIT;

	body.slot = slot;
	body.generation = generation;
	body.wait_ns = wait_ns;
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_RELEASE;
	m.release = &body;
	/* A packet will always do: releases have no order. */
	if (!l->ring.page || ring_put(&l->ring.releases, &m.base) < 0)
		return connection_send(&l->connection, &m, NULL, 0);
	return ring_wake_daemon_released(&l->ring) ? send_wake(l) : 0;
}

/* ---- taking ---- */

static int nonsense(struct batchd_loader *l, const char *what)
{
	return fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s put nonsense into the ring: %s",
			 l->connection.address, what);
}

/* The next entry. 0, BATCHD_AGAIN: there is none; or a code. */
static int take_entry(struct batchd_loader *l, struct ready *out)
{
	const Batchd__Wire__ServerMessage *m;
	const char *why = NULL;
	size_t n = 0;
	int r = ring_take(&l->ring.batches, l->connection.bytes, &n);

	if (r == -EAGAIN)
		return BATCHD_AGAIN;
	if (r < 0)
		return nonsense(l, "an impossible position or length");
	if (wire_unpack_server(&l->connection.arena, l->connection.bytes, n, &m, &why) < 0)
		return nonsense(l, why);
	if (m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH)
		return nonsense(l, wire_server_name(m));
	*out = stream_ready_from(m->batch);
	if (ring_wake_daemon_taken(&l->ring)) {
		pthread_mutex_lock(&l->lock);
		r = send_wake(l);
		pthread_mutex_unlock(&l->lock);
	}
	(void)r; /* a daemon that has gone is noticed when the ring is empty: this batch is whole */
	return 0;
}

/* ---- waiting ---- */

int handover_heard_wake(struct batchd_loader *l)
{
	if (l->ring.page)
		l->said_waiting = ring_is_waited_for(&l->ring); /* an old Wake does not answer a new question */
	return BATCHD_AGAIN;
}

/* A packet, which can only be a Wake (or the end, or a notice about others, which is told in passing): 0, BATCHD_AGAIN,
 * or a code. */
static int recv_wake(struct batchd_loader *l, int flags)
{
	const Batchd__Wire__ServerMessage *m;
	int r = loader_recv(l, flags, &m);

	if (r == 0 && m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_WAKE)
		return fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s sent %s where a batch was due",
				 l->connection.address, wire_server_name(m));
	if (r == 0 || r == BATCHD_AGAIN)
		handover_heard_wake(l);
	return r;
}

static int start_waiting(struct batchd_loader *l)
{
	int r = 0;

	if (l->stale_wake)
		r = recv_wake(l, MSG_DONTWAIT);
	l->stale_wake = l->stale_wake && r == BATCHD_AGAIN;
	ring_start_waiting(&l->ring);
	l->said_waiting = true;
	return r < 0 ? r : 0;
}

static void stop_waiting(struct batchd_loader *l)
{
	if (l->said_waiting && !ring_stop_waiting(&l->ring))
		l->stale_wake = true;
	l->said_waiting = false;
}

/* Sleeps until there is a packet, in what is left until the deadline (0: none). */
static int sleep_on_socket(struct batchd_loader *l, int timeout_ms, uint64_t deadline)
{
	struct pollfd p = { .fd = l->connection.socket, .events = POLLIN };
	uint64_t now;
	int r;

	if (timeout_ms == 0)
		return recv_wake(l, MSG_DONTWAIT);
	if (timeout_ms < 0) {
		r = recv_wake(l, 0);
		return r == BATCHD_AGAIN && timeout_ms == BATCHD_FOREVER ? 0 : r;
	}
	now = loader_now_ns();
	if (now < deadline)
		poll(&p, 1, deadline - now < LOOK_NS ? (int)((deadline - now + 999999) / 1000000) : LOOK_NS / 1000000);
	r = recv_wake(l, MSG_DONTWAIT);
	return r == BATCHD_AGAIN && now < deadline ? 0 : r; /* a signal: the caller looks again */
}

int handover_poll(struct batchd_loader *l, struct ready *out)
{
	int r = take_entry(l, out);

	if (r != BATCHD_AGAIN)
		stop_waiting(l);
	return r;
}

int handover_take(struct batchd_loader *l, int timeout_ms, struct ready *out)
{
	uint64_t deadline = timeout_ms > 0 ? loader_now_ns() + (uint64_t)timeout_ms * 1000000 : 0;
	int r;

	for (;;) {
		if (l->closed)
			return BATCHD_E_CLOSED;
		r = handover_poll(l, out);
		if (r != BATCHD_AGAIN)
			return r;
		if (!l->said_waiting)
			r = start_waiting(l); /* and looks once more: it may have come meanwhile */
		else
			r = sleep_on_socket(l, timeout_ms, deadline);
		if (r != 0)
			return r;
	}
}
