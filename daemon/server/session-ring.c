/* See session-ring.h. */
#include "server/session-ring.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "batch/leases.h"
#include "server/job.h"
#include "base/container.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/thread-kind.h"

static struct session *session_of(struct consumer *c)
{
	return container_of(c, struct session, consumer);
}

static bool is_usable(const struct session *s)
{
	return s->ring.page && s->state == SESSION_ATTACHED;
}

static void break_off(struct session *s, const char *why)
{
	peer_fail(s->peer, BATCHD__WIRE__ERROR_CODE__PROTOCOL, "ring", "the ring is broken: %s", why);
}

int session_ring_put(struct session *s, const Batchd__Wire__ServerMessage *m)
{
	assert(is_loop_thread());
	if (!is_usable(s))
		return -EPIPE;
	int r = ring_put(&s->ring.batches, &m->base);
	if (r == -EAGAIN)
		return r;
	if (r) {
		break_off(s, "an impossible position");
		return -EPIPE;
	}
	s->consumer.waiting = ring_wake_client(&s->ring);
	if (s->consumer.waiting)
		peer_wake(s->peer);
	return 0;
}

bool session_ring_is_full(struct session *s)
{
	return ring_untaken(&s->ring.batches) == RING_ENTRIES;
}

void control_note_release(struct session *s, const Batchd__Wire__Release *r)
{
	assert(is_loop_thread());
	s->n_released++;
	s->wait_ns += r->wait_ns;
	latency_add(&s->waits, r->wait_ns);
	if (s->job)
		histogram_add(&s->job->waits, r->wait_ns);
	log_record(LOG_LEVEL_DEBUG, "release", "session %llu gives back slot %u, generation %llu",
		   (unsigned long long)s->number, r->slot, (unsigned long long)r->generation);
	PROBE(slot_release, s->number, r->slot, r->generation);
}

/* Takes one entry. 0; -EAGAIN: there is none; -EPROTO with *why. */
static int collect_one(struct session *s, const char **why)
{
	static struct wire_arena arena; /* a separate arena: a caller may still look at a packet */
	unsigned char bytes[RING_MAX_MESSAGE];
	const Batchd__Wire__ClientMessage *m;
	size_t n = 0;
	int r = ring_take(&s->ring.releases, bytes, &n);
	*why = "an impossible position or length";
	if (r)
		return r;
	if (!arena.allocator.alloc)
		wire_arena_init(&arena);
	if (wire_unpack_client(&arena, bytes, n, &m, why))
		return -EPROTO;
	*why = "something else than Release";
	if (m->body_case != BATCHD__WIRE__CLIENT_MESSAGE__BODY_RELEASE)
		return -EPROTO;
	*why = "released a slot it does not hold";
	control_note_release(s, m->release);
	if (stream_take_back(&s->consumer, m->release->slot, m->release->generation))
		return -EPROTO;
	return 0;
}

void session_ring_collect(struct session *s)
{
	assert(is_loop_thread());
	const char *why;
	int r;
	if (!s->ring.page)
		return;
	do
		r = collect_one(s, &why);
	while (r == 0); /* terminates: each entry ends a lease */
	if (r != -EAGAIN)
		break_off(s, why);
}

void session_ring_look(struct consumer *c)
{
	assert(is_loop_thread());
	struct session *s = session_of(c);
	session_ring_collect(s);
	if (!is_usable(s))
		return;
	c->n_unread = ring_untaken(&s->ring.batches);
	if (s->ring.batches.broken) {
		break_off(s, "an impossible position");
		return;
	}
	c->waiting = ring_is_waited_for(&s->ring);
}

bool session_ring_arm(struct consumer *c, uint32_t wake_at)
{
	assert(is_loop_thread());
	assert(wake_at > 0);
	struct session *s = session_of(c);
	if (!is_usable(s))
		return false;
	ring_arm(&s->ring, wake_at);
	uint32_t n_releases = ring_waiting_entries(&s->ring.releases), n_untaken = ring_untaken(&s->ring.batches);
	if (s->ring.releases.broken || s->ring.batches.broken) {
		break_off(s, "an impossible position");
		return false;
	}
	return n_releases >= wake_at || (c->n_unread > 0 && n_untaken == 0);
}

int session_ring_charge(struct session *s, struct refusal *why)
{
	assert(is_loop_thread());
	struct budget *b = &s->engine->budget;
	char text[WIRE_MAX_TEXT];
	int r;
	assert(!s->ring_bytes.account);
	do
		r = charge_begin(&s->ring_bytes, &b->accounts, s->uid, ACCOUNT_SLOT_BYTES, RING_PAGE_BYTES);
	while (r > 0 && job_close_lingering(s->engine, s->uid, r == ACCOUNT_E_ALL));
	if (r <= 0)
		return r ? refuse_memory(why) : 0;
	budget_explain(b, s->uid, r, "the ring through which this trainer gets its batches", RING_PAGE_BYTES,
		       "close other loaders, or raise the limit", text, sizeof(text));
	return refuse(why, BATCHD__WIRE__ERROR_CODE__LIMIT, r == ACCOUNT_E_USER ? "memory_per_user" : "memory", "%s",
		      text);
}

int session_ring_open(struct session *s, int *fd, struct refusal *why)
{
	assert(is_loop_thread());
	assert(s->state == SESSION_OPENING);
	assert(!s->ring.page && s->ring_bytes.account);
	int r = ring_create(&s->ring, fd);
	if (r == 0)
		return 0;
	return refuse(why, BATCHD__WIRE__ERROR_CODE__LIMIT, r == -EMFILE || r == -ENFILE ? "fds" : "memory",
		      "cannot make the ring through which this trainer gets its batches: %s%s", strerror(-r),
		      r == -EMFILE  ? ": raise LimitNOFILE= or ulimit -n where the daemon starts"
		      : r == -EFBIG ? ": raise ulimit -f, which holds for memory, too, where the daemon starts"
				    : "");
}

struct ring_taken session_ring_taken(const struct session *s)
{
	const struct consumer *c = &s->consumer;
	if (!s->ring.page)
		return s->taken;
	struct ring_taken said = ring_read_taken(&s->ring);
	return (struct ring_taken){ said.n_batches < c->n_published ? said.n_batches : c->n_published,
				    said.n_rows < c->n_rows_published ? said.n_rows : c->n_rows_published };
}

void session_ring_close(struct session *s)
{
	assert(is_loop_thread());
	s->taken = session_ring_taken(s);
	charge_release(&s->ring_bytes);
	ring_unmap(&s->ring);
}
