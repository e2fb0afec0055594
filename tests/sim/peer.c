/* Sockets: packets wait in both directions until their turn comes. The real wire.c packs and checks them; the rules for
 * closing are those of server/ipc/peer.c. See sim.h. */
#include "support/any-message.h"
#include "server/session-message.h"
#include "sim.h"

enum { MAX_WAITING = 200 };
static const unsigned SOCKET_ROOM = 5; /* packets */

static struct wire_arena arena;
static uint64_t n_connected;

static struct sim_socket *socket_of(const struct peer *p)
{
	return sim_fd_thing(p->fd);
}

/* ---- queues ---- */

static struct sim_packet *push_room(struct sim_queue *q, size_t n, int64_t lease)
{
	SIM_CHECK(n <= WIRE_MAX_BYTES, "a message of %zu bytes", n);
	struct sim_packet *k = malloc(sizeof(*k) + n);
	*k = (struct sim_packet){ .lease = lease, .n_bytes = n };
	*(q->first ? q->end : &q->first) = k;
	q->end = &k->next;
	q->n++;
	return k;
}

static struct sim_packet *push(struct sim_queue *q, const ProtobufCMessage *m, int64_t lease)
{
	struct sim_packet *k = push_room(q, protobuf_c_message_get_packed_size(m), lease);
	protobuf_c_message_pack(m, k->bytes);
	return k;
}

struct sim_packet *sim_queue_pop(struct sim_queue *q)
{
	struct sim_packet *k = q->first;
	if (k) {
		q->first = k->next;
		q->n--;
	}
	return k;
}

void sim_packet_free(struct sim_packet *p)
{
	if (p) {
		sim_slab_unref(p->slab);
		sim_page_unref(p->page);
		sim_gpu_close_handle(p->gpu);
	}
	free(p);
}

static void clear(struct sim_queue *q)
{
	while (q->first)
		sim_packet_free(sim_queue_pop(q));
}

/* ---- what the daemon calls ---- */

void server_stop(struct server *s)
{
	SIM_CHECK(!s->closing, "a server is stopped twice");
	s->closing = true;
}

/* What the client has read meanwhile has left its socket. */
static void note_unread(struct peer *p)
{
	const struct sim_socket *s = socket_of(p);
	p->n_out = s->to_client.n > SOCKET_ROOM ? s->to_client.n - SOCKET_ROOM : 0;
}

void peer_send(struct peer *p, const Batchd__Wire__ServerMessage *m, const int *fds, unsigned n_fds)
{
	if (p->ending || p->half_closed)
		return;
	struct sim_socket *s = socket_of(p);
	SIM_CHECK(wire_server_fds_ok(m, n_fds), "%s with %u descriptors", wire_server_name(m), n_fds);
	SIM_CHECK(m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH, "a batch is sent as a packet");
	if (s->hung_up || s->dead || s->lost)
		return;
	struct sim_packet *k = push(&s->to_client, &m->base, -1);
	if (n_fds) {
		k->slab = sim_fd_thing(fds[0]);
		k->slab->n_refs++;
	}
	bool opened = m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED;
	if (opened) {
		k->page = sim_fd_thing(fds[1]);
		k->page->n_refs++;
	}
	if (opened && m->opened->device_kind == BATCHD__WIRE__SLAB_KIND__CUDA_VMM_FD)
		k->gpu = sim_gpu_send(fds[n_fds - 1]);
	note_unread(p);
	if (p->n_out > MAX_WAITING)
		peer_fail(p, BATCHD__WIRE__ERROR_CODE__PROTOCOL, NULL, "the client does not read what it asked for");
}

void peer_close(struct peer *p)
{
	if (p->ending)
		return;
	p->ending = true; /* sim_peer_ends takes it apart */
	if (p->server->ops->ending(p))
		return;
	charge_release(&p->connection);
	charge_release(&p->fds);
}

static void say_why(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, va_list ap)
{
	char text[WIRE_MAX_TEXT];
	vsnprintf(text, sizeof(text), fmt, ap);
	sim_trace("  refused: session %u: %s %s: %s", (unsigned)p->number, wire_code_name(code), field ? field : "",
		  text);
	SIM_CHECK(code != BATCHD__WIRE__ERROR_CODE__INTERNAL, "INTERNAL: %s", text);
	Batchd__Wire__Error error = BATCHD__WIRE__ERROR__INIT;
	error.code = code;
	error.text = text;
	error.field = (char *)(field ? field : "");
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR;
	m.error = &error;
	struct sim_socket *s = socket_of(p);
	struct sim_trainer *t = sim_trainer_of(s);
	if (t && t->job)
		t->job->unbalanced = true; /* at once: the trainer may read the packet at any time */
	if (!s->hung_up && !s->dead && !s->lost)
		push(&s->to_client, &m.base, -1);
}

/* Sends the reason, unless the peer was told before. */
static void part(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, va_list ap)
{
	if (!p->ending && !p->half_closed)
		say_why(p, code, field, fmt, ap);
}

void peer_fail(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	part(p, code, field, fmt, ap);
	va_end(ap);
	peer_close(p);
}

/* The peer may still send Close. */
void peer_half_close(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	part(p, code, field, fmt, ap);
	va_end(ap);
	p->half_closed = true;
}

int peer_identify(struct peer *p)
{
	SIM_CHECK(p->pidfd >= 0, "a process without a pidfd");
	return 0;
}

bool peer_shares_mounts(const struct peer *p)
{
	(void)p;
	return true;
}

void peer_send_packed(struct peer *p, struct packed_message *message)
{
	struct sim_socket *s = socket_of(p);
	if (!p->ending && !p->half_closed && !s->hung_up && !s->dead && !s->lost)
		memcpy(push_room(&s->to_client, message->n_bytes, -1)->bytes, message->bytes, message->n_bytes);
}

void peer_wake(struct peer *p)
{
	Batchd__Wire__Wake w = BATCHD__WIRE__WAKE__INIT;
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_WAKE;
	m.wake = &w;
	peer_send(p, &m, NULL, 0);
}

/* ---- what happens to a socket ---- */

struct sim_socket *sim_connect(pid_t pid, uid_t uid)
{
	struct peer *p = calloc(1, sizeof(*p));
	struct sim_socket *s = calloc(1, sizeof(*s));
	struct server *server = &sim_server;
	wire_arena_init(&arena);
	s->peer = p;
	s->pid = pid;
	sim_note_socket(s);
	p->fd = sim_fd_open(s);
	p->pidfd = sim_fd_open(s);
	p->server = server;
	p->pid = pid;
	p->uid = uid;
	p->number = ++n_connected;
	p->n_gids = 1;
	int r = charge_begin(&p->connection, &sim_engine.budget.accounts, uid, ACCOUNT_SESSIONS, 1);
	SIM_CHECK(r == 0 && charge_begin(&p->fds, &sim_engine.budget.accounts, uid, ACCOUNT_FDS, 2) == 0,
		  "a connection is refused");
	p->next = server->peers;
	server->peers = p;
	server->n_peers++;
	return s;
}

void sim_socket_free(struct sim_socket *s)
{
	clear(&s->to_daemon);
	clear(&s->to_client);
	free(s);
}

void sim_send(struct sim_socket *s, const Batchd__Wire__ClientMessage *m, int64_t lease)
{
	if (s->peer)
		push(&s->to_daemon, &m->base, lease);
}

void sim_send_stray(struct sim_socket *s, unsigned states)
{
	const struct message_rule *rule;
	struct any_message m;
	do {
		any_message_make(&m, sim_below((uint32_t)any_message_kinds()));
		rule = session_rule(&sim_engine, m.message.body_case);
	} while (!rule->take || rule->states & states);
	sim_trace("  it sends %s", wire_client_name(&m.message));
	sim_send(s, &m.message, -1);
}

void sim_send_slab(struct sim_socket *s, const Batchd__Wire__ClientMessage *m, struct sim_slab *slab)
{
	if (s->peer)
		push(&s->to_daemon, &m->base, -1)->slab = slab;
	else
		sim_slab_unref(slab);
}

bool sim_daemon_receives(struct sim_socket *s)
{
	struct peer *p = s->peer;
	struct sim_packet *k = p && !p->ending ? sim_queue_pop(&s->to_daemon) : NULL;
	const Batchd__Wire__ClientMessage *m;
	const char *why = "";
	if (!k)
		return false;
	SIM_CHECK(wire_unpack_client(&arena, k->bytes, k->n_bytes, &m, &why) == 0, "wire.c refuses it: %s", why);
	note_unread(p);
	if (!p->greeted) {
		p->greeted = true;
		snprintf(p->program, sizeof(p->program), "%s", m->hello->program);
		Batchd__Wire__Welcome w = BATCHD__WIRE__WELCOME__INIT;
		Batchd__Wire__ServerMessage answer = BATCHD__WIRE__SERVER_MESSAGE__INIT;
		w.version = WIRE_VERSION;
		w.daemon = (char *)"simulated";
		answer.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_WELCOME;
		answer.welcome = &w;
		peer_send(p, &answer, NULL, 0);
	} else {
		const struct session *session = p->session;
		const struct consumer *c = session ? &session->consumer : NULL;
		if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_SEEK && c && c->stream)
			s->was_expected = c->state == CONSUMER_RETURNED ||
					  (c->rank < 64 && c->stream->expected & (uint64_t)1 << c->rank);
		int fd = k->slab ? sim_fd_open(k->slab) : -1;
		p->server->ops->message(p, m, &fd, k->slab ? 1 : 0);
		if (fd >= 0)
			wire_close_fds(&fd, 1);
		else
			k->slab = NULL; /* taken, if there was one */
	}
	sim_packet_free(k);
	return true;
}

bool sim_daemon_sees_hangup(struct sim_socket *s)
{
	if (!s->peer || s->peer->ending || !s->hung_up || s->to_daemon.n)
		return false;
	peer_close(s->peer);
	return true;
}

bool sim_daemon_sees_exit(struct sim_socket *s)
{
	if (!s->peer || s->peer->ending || !s->dead)
		return false;
	while (sim_daemon_receives(s))
		;
	peer_close(s->peer);
	return true;
}

bool sim_peer_ends(void)
{
	struct peer **at = &sim_server.peers;
	while (*at && !(*at)->ending)
		at = &(*at)->next;
	struct peer *p = *at;
	if (!p)
		return false;
	*at = p->next;
	sim_server.n_peers--;
	socket_of(p)->peer = NULL;
	p->server->ops->closed(p);
	charge_release(&p->connection);
	charge_release(&p->fds);
	wire_close_fds(&p->fd, 1);
	if (p->pidfd >= 0)
		wire_close_fds(&p->pidfd, 1);
	free(p);
	return true;
}
