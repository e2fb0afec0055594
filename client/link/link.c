/* A link's messages, the batches that it has on loan, and its end. Taking batches is in handover.c. */
#include "link/link.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- life ---- */

struct link *link_create(const struct link_host *host)
{
	struct link *k = calloc(1, sizeof *k);

	if (!k)
		return NULL;
	k->host = *host;
	k->connection.socket = -1;
	return k;
}

/* Takes the oldest Large off the list. NULL: there is none. */
static struct large *pop_large(struct link *k)
{
	struct large *m = k->large_first;

	if (m)
		k->large_first = m->next;
	return m;
}

static void large_destroy(struct large *m)
{
	if (m)
		wire_close_fds(&m->fd, 1);
	free(m);
}

void link_leave(struct link *k)
{
	bool unmapped = !k->gpu || k->gpu->ops->close(k->gpu); /* before Close tells the daemon that it may reuse its
	                                                        * memory */

	k->gpu = NULL;
	if (k->slab && link_detach(k) && unmapped)
		link_send_close(k); /* unless it is lost */
}

void link_destroy(struct link *k)
{
	if (!k)
		return;
	link_leave(k);
	while (k->large_first)
		large_destroy(pop_large(k));
	connection_close(&k->connection);
	slab_destroy(k->slab);
	ring_unmap(&k->ring);
	free(k->lease);
	free(k->finish);
	fields_finish(&k->fields);
	free(k);
}

bool link_detach(struct link *k)
{
	bool all = true;

	if (k->detached)
		return true;
	k->detached = true;
	for (uint32_t i = 0; i < k->n_slots; i++)
		if (k->lease[i].large)
			all &= slab_detach_alone(k->lease[i].large, k->lease[i].large_bytes);
	return slab_detach(k->slab) && all;
}

/* ---- messages ---- */

int link_send(struct link *k, Batchd__Wire__ClientMessage *m, struct fault *f)
{
	int r;

	pthread_mutex_lock(k->host.lock);
	r = connection_send(&k->connection, m, NULL, 0);
	pthread_mutex_unlock(k->host.lock);
	return r < 0 ? connection_lost(&k->connection, f) : 0;
}

static bool is_about_others(const Batchd__Wire__ServerMessage *m)
{
	return m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_NOTICE;
}

/* Keeps a Large until its batch is taken; takes the descriptor. */
static int keep_large(struct link *k, const Batchd__Wire__Large *m, int fd, struct fault *f)
{
	struct large *large = malloc(sizeof *large);

	if (!large) {
		wire_close_fds(&fd, 1);
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	}
	*large = (struct large){ .fd = fd, .slot = m->slot, .generation = m->generation, .n_bytes = m->n_bytes };
	if (k->large_first)
		k->large_last->next = large;
	else
		k->large_first = large;
	k->large_last = large;
	return 0;
}

int link_recv(struct link *k, int flags, const Batchd__Wire__ServerMessage **m, struct fault *f)
{
	int fds[CONNECTION_FDS], r;

	for (;;) {
		r = connection_recv(&k->connection, flags, m, fds, f);
		if (r == BATCHD_AGAIN && k->host.is_closed(k->host.arg))
			return BATCHD_E_CLOSED;
		if (r == 0 && (*m)->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_LARGE)
			r = keep_large(k, (*m)->large, fds[0], f);
		else if (r == 0 && is_about_others(*m))
			r = k->host.on_notice(k->host.arg, (*m)->notice, f);
		else
			break;
		if (r < 0)
			return r;
		if (!(flags & MSG_DONTWAIT))
			return BATCHD_AGAIN; /* the caller's message may have come another way */
	}
	for (unsigned i = 0; r == 0 && i < CONNECTION_FDS; i++)
		if (fds[i] >= 0) /* no caller waits for a message that has one */
			close(fds[i]);
	return r;
}

/* The Large that belongs to the batch, which the daemon has sent before it. 0 or a code with f. */
static int await_large(struct link *k, const struct ready *b, struct large **out, struct fault *f)
{
	int r = 0;

	while (!k->large_first && (r == 0 || r == BATCHD_AGAIN))
		r = link_listen(k, 0, f);
	*out = pop_large(k);
	if (!*out)
		return r;
	if ((*out)->slot == b->slot && (*out)->generation == b->generation && (*out)->n_bytes == b->large_bytes)
		return 0;
	large_destroy(*out);
	return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s sent the memory of another batch than the one that is due",
			 k->connection.address);
}

int link_take_large(struct link *k, const struct ready *b, void **out, struct fault *f)
{
	struct large *m;
	int r;

	*out = NULL;
	if (!b->large_bytes)
		return 0;
	r = await_large(k, b, &m, f);
	if (r < 0)
		return r;
	r = slab_map_alone(m->fd, m->n_bytes, out, f);
	large_destroy(m);
	return r;
}

int link_drop_large(struct link *k, const struct ready *b, struct fault *f)
{
	struct large *m = NULL;
	int r = b->large_bytes ? await_large(k, b, &m, f) : 0;

	if (r == 0)
		large_destroy(m);
	return r;
}

void link_heard_wake(struct link *k)
{
	k->said_waiting = ring_is_waited_for(&k->ring); /* an old Wake does not answer a new question */
}

/* Handles a Wake, which may come at any time. False: it is another message. */
static bool take_wake(struct link *k, const Batchd__Wire__ServerMessage *m)
{
	bool is = m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_WAKE;

	if (is)
		link_heard_wake(k);
	return is;
}

int link_listen(struct link *k, int flags, struct fault *f)
{
	const Batchd__Wire__ServerMessage *m;
	int r = link_recv(k, flags, &m, f);

	if (r != 0 || take_wake(k, m))
		return r;
	return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s sent %s where nothing was asked", k->connection.address,
			 wire_server_name(m));
}

int link_call(struct link *k, Batchd__Wire__ClientMessage *request, const char *what,
	      Batchd__Wire__ServerMessage__BodyCase expected, const Batchd__Wire__ServerMessage **answer,
	      struct fault *f)
{
	int r = link_send(k, request, f);

	if (r < 0)
		return r;
	do
		r = link_recv(k, 0, answer, f);
	while (r == BATCHD_AGAIN || (r == 0 && take_wake(k, *answer)));
	if (r == 0 && (*answer)->body_case != expected)
		return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s answers %s with %s", k->connection.address, what,
				 wire_server_name(*answer));
	return r;
}

int link_wake(struct link *k)
{
	Batchd__Wire__Wake body = BATCHD__WIRE__WAKE__INIT;

	return connection_send(&k->connection, WIRE_CLIENT(WAKE, wake, &body), NULL, 0);
}

void link_send_close(struct link *k)
{
	Batchd__Wire__Close body = BATCHD__WIRE__CLOSE__INIT;

	body.ends_job = k->ends_job;
	body.comes_again = k->comes_again;
	if (k->connection.socket >= 0)
		connection_send(&k->connection, WIRE_CLIENT(CLOSE, close, &body), NULL, 0);
}

/* ---- leases ---- */

bool link_lend(struct link *k, const struct ready *b, void *large, uint64_t wait_ns)
{
	if (b->slot >= k->n_slots || b->generation >> LINK_ID_SHIFT || k->lease[b->slot].held)
		return false;
	k->lease[b->slot] = (struct lease){ .generation = b->generation,
					    .wait_ns = wait_ns,
					    .n_out = 1,
					    .held = true,
					    .large = large,
					    .large_bytes = (size_t)b->large_bytes };
	k->n_leased++;
	if (!large)
		slab_lend(k->slab, b->slot);
	return true;
}

int link_free_slot(struct link *k, uint32_t slot, uint64_t generation, uint64_t wait_ns)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__Release body = BATCHD__WIRE__RELEASE__INIT;

	body.slot = slot;
	body.generation = generation;
	body.wait_ns = wait_ns;
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_RELEASE;
	m.release = &body;
	/* Where the ring is full a packet does: releases have no order. */
	if (ring_put(&k->ring.releases, &m.base) < 0)
		return connection_send(&k->connection, &m, NULL, 0);
	return ring_wake_daemon_released(&k->ring) ? link_wake(k) : 0;
}

void link_end_lease(struct link *k, uint32_t slot)
{
	struct lease *lease = &k->lease[slot];

	/* Do all book-keeping here first: once the daemon knows, it may lend the slot again at once, to the thread in
	 * batchd_next. */
	lease->held = false;
	if (lease->large) {
		munmap(lease->large, lease->large_bytes);
		lease->large = NULL;
	} else if (k->detached)
		slab_drop(k->slab, slot);
	else
		slab_take_back(k->slab, slot);
	k->n_leased--;
	/* A connection that is cut has ended all loans; the next call that waits for a batch notices. */
	if (!k->detached)
		(void)link_free_slot(k, slot, lease->generation, lease->wait_ns);
}

void link_let_go(struct link *k, uint32_t slot)
{
	if (k->gpu)
		k->gpu->ops->release(k->gpu, slot);
	else
		link_end_lease(k, slot);
}

bool link_release(struct link *k, uint32_t slot, uint64_t generation)
{
	struct lease *lease = slot < k->n_slots ? &k->lease[slot] : NULL;

	if (!lease || !lease->held || lease->generation != generation || !lease->n_out)
		return false;
	if (k->gpu && !k->gpu->ops->may_release(k->gpu, slot))
		return false;
	if (lease_ends(lease))
		link_let_go(k, slot);
	return true;
}

bool link_drain(struct link *k)
{
	enum link_gpu_mapping m = k->gpu ? k->gpu->ops->unmap(k->gpu) : LINK_GPU_NONE;

	if (m == LINK_GPU_NONE || m == LINK_GPU_BUSY)
		return m == LINK_GPU_NONE;
	pthread_mutex_lock(k->host.lock);
	if (m == LINK_GPU_UNMAPPED)
		link_send_close(k);
	connection_close(&k->connection);
	pthread_mutex_unlock(k->host.lock);
	return true;
}
