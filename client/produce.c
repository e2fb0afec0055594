/* A producer: makes batches for whoever opens "serve:NAME".
 *
 * The daemon sends slabs, which are mapped and acknowledged at once, and Fills, which are kept in a queue and handed
 * out one by one. Packets are read before each fill is handed out, so that one which has been cancelled in the meantime
 * is answered without any work.
 *
 * A peek asks whether there is a batch that nobody wants yet, and who makes batches one after the other has to make it
 * to know. It is handed out as any other, with memory of our own in the place of a slot, and kept there until another
 * is handed out: if it is wanted next, it need not be made again. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "arrays.h"
#include "batchd.h"
#include "connect.h"
#include "process.h"

enum { MAX_SLOTS = 65536 };

struct made_slab {
	struct made_slab *next;
	uint32_t number, rank, n_slots;
	uint64_t slot_bytes;
	size_t bytes;
	char *base;
	bool replaced;             /* by a newer one of the same rank */
};

struct fill {
	struct fill *next;
	uint64_t number, epoch, step;
	uint64_t n_bytes;          /* of the slot that the batch takes; 0: not known */
	uint32_t slot;
	struct made_slab *slab;    /* NULL: a peek */
	bool cancelled;
};

/* What was made for a peek. */
struct ahead {
	char *bytes;               /* NULL: there is nothing */
	uint64_t epoch, step, n_bytes;
	uint32_t n_rows;           /* 0: it is being made */
};

struct batchd_producer {
	unsigned generation;       /* process_generation() */
	struct fault fault;        /* code: what every later call returns as well */
	uint64_t room_bytes;       /* of a slot */
	struct made_slab *slabs;
	struct fill *first, *last; /* those to come */
	struct fill *current;      /* handed out */
	struct ahead ahead;
	uint64_t epoch, n_made;    /* how many batches that epoch is known to have: as far as it was made */
	struct connection connection;
};

void batchd_produce_options_init(struct batchd_produce_options *o)
{
	*o = (struct batchd_produce_options){ .size_bytes = sizeof *o, .autostart = 1 };
}

static int check(const struct batchd_producer *p)
{
	return p->generation != process_generation() ? BATCHD_E_FORKED : p->fault.code;
}

static int misuse(struct batchd_producer *p, const char *text)
{
	fault_set(&p->fault, BATCHD_E_INVALID, "%s", text);
	p->fault.code = 0;
	return BATCHD_E_INVALID;
}

static int say(struct batchd_producer *p, Batchd__Wire__ClientMessage *m)
{
	return connection_send(&p->connection, m, NULL, 0) < 0 ? connection_lost(&p->connection, &p->fault) : 0;
}

static int send_filled(struct batchd_producer *p, const Batchd__Wire__Filled *body)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;

	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_FILLED;
	m.filled = (Batchd__Wire__Filled *)body;
	return say(p, &m);
}

/* ---- slabs ---- */

static void unmap(struct made_slab *s)
{
	munmap(s->base, s->bytes);
	free(s);
}

static bool is_in_use(const struct batchd_producer *p, const struct made_slab *s)
{
	for (const struct fill *f = p->first; f; f = f->next)
		if (f->slab == s)
			return true;
	return p->current && p->current->slab == s;
}

static void unmap_replaced(struct batchd_producer *p)
{
	for (struct made_slab **at = &p->slabs; *at; ) {
		struct made_slab *s = *at;

		if (s->replaced && !is_in_use(p, s)) {
			*at = s->next;
			unmap(s);
		} else {
			at = &s->next;
		}
	}
}

static int map(struct batchd_producer *p, const Batchd__Wire__Producing *m, int fd)
{
	struct made_slab *s = calloc(1, sizeof *s);
	struct stat st;
	size_t bytes;

	if (!s)
		return fault_set(&p->fault, BATCHD_E_NOMEM, "out of memory");
	if (!m->n_slots || m->n_slots > MAX_SLOTS || m->slot_bytes < p->room_bytes ||
	    __builtin_mul_overflow((size_t)m->slot_bytes, m->n_slots, &bytes) || fstat(fd, &st) < 0 ||
	    (uint64_t)st.st_size < bytes) {
		free(s);
		return fault_set(&p->fault, BATCHD_E_PROTOCOL,
				 "batchd at %s offers slots that are too small or too many", p->connection.address);
	}
	*s = (struct made_slab){
		.number = m->slab, .rank = m->rank, .n_slots = m->n_slots, .slot_bytes = m->slot_bytes, .bytes = bytes
	};
	s->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (s->base == MAP_FAILED) {
		free(s);
		return fault_set(&p->fault, BATCHD_E_NOMEM, "cannot map the daemon's %zu bytes: %s", bytes,
				 strerror(errno));
	}
	for (struct made_slab *old = p->slabs; old; old = old->next)
		old->replaced |= old->rank == s->rank;
	s->next = p->slabs;
	p->slabs = s;
	return 0;
}

static int on_slab(struct batchd_producer *p, const Batchd__Wire__Producing *m, int fd)
{
	Batchd__Wire__Filled mapped = BATCHD__WIRE__FILLED__INIT;
	int r = map(p, m, fd);

	close(fd);
	if (r < 0)
		return r;
	unmap_replaced(p);
	mapped.slab = p->slabs->number;
	return send_filled(p, &mapped);
}

/* ---- fills ---- */

static int on_fill(struct batchd_producer *p, const Batchd__Wire__Fill *m)
{
	struct made_slab *slab = m->peek ? NULL : p->slabs;
	struct fill *f;

	if (m->cancel) {
		for (f = p->first; f; f = f->next)
			f->cancelled |= f->number == m->fill;
		return 0;
	}
	while (slab && slab->number != m->slab)
		slab = slab->next;
	f = calloc(1, sizeof *f);
	if (!f || (!m->peek && (!slab || m->slot >= slab->n_slots))) {
		free(f);
		return fault_set(&p->fault, f ? BATCHD_E_PROTOCOL : BATCHD_E_NOMEM,
				 f ? "batchd wants a slot filled that does not exist" : "out of memory");
	}
	*f = (struct fill){ .number = m->fill, .epoch = m->epoch, .step = m->step, .slot = m->slot, .slab = slab };
	if (p->first)
		p->last->next = f;
	else
		p->first = f;
	p->last = f;
	return 0;
}

static int on_packet(struct batchd_producer *p, const Batchd__Wire__ServerMessage *m, int fd)
{
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_FILL)
		return on_fill(p, m->fill);
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_PRODUCING && fd >= 0)
		return on_slab(p, m->producing, fd);
	if (fd >= 0)
		close(fd);
	return fault_set(&p->fault, BATCHD_E_PROTOCOL, "batchd at %s sent %s to a producer", p->connection.address,
			 wire_server_name(m));
}

static int receive(struct batchd_producer *p, int flags)
{
	const Batchd__Wire__ServerMessage *m;
	int fds[CONNECTION_FDS], r = connection_recv(&p->connection, flags, &m, fds, &p->fault);

	if (r)
		return r;
	if (fds[1] >= 0) /* two come with nothing that a producer is sent */
		close(fds[1]);
	return on_packet(p, m, fds[0]);
}

/* Everything that has arrived. 0 or a code. */
static int drain(struct batchd_producer *p)
{
	int r;

	do
		r = receive(p, MSG_DONTWAIT);
	while (r == 0);
	return r == BATCHD_AGAIN ? 0 : r;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* One packet, as batchd_next waits for one. */
static int receive_within(struct batchd_producer *p, int timeout_ms)
{
	uint64_t deadline = timeout_ms > 0 ? now_ns() + (uint64_t)timeout_ms * 1000000 : 0, now;
	int r;

	if (timeout_ms < 0) {
		do
			r = receive(p, 0);
		while (r == BATCHD_AGAIN && timeout_ms != BATCHD_UNTIL_SIGNAL);
		return r;
	}
	r = receive(p, MSG_DONTWAIT);
	while (r == BATCHD_AGAIN && (now = now_ns()) < deadline) {
		struct pollfd fd = { .fd = p->connection.socket, .events = POLLIN };

		poll(&fd, 1, (int)((deadline - now + 999999) / 1000000));
		r = receive(p, MSG_DONTWAIT);
	}
	return r;
}

static struct fill *pop(struct batchd_producer *p)
{
	struct fill *f = p->first;

	if (f)
		p->first = f->next;
	return f;
}

/* body has all but the number. */
static int answer(struct batchd_producer *p, struct fill *f, Batchd__Wire__Filled *body)
{
	body->fill = f->number;
	if (p->current == f)
		p->current = NULL;
	free(f);
	return send_filled(p, body);
}

static char *slot_of(const struct batchd_producer *p, const struct fill *f)
{
	return f->slab ? f->slab->base + f->slot * f->slab->slot_bytes : p->ahead.bytes;
}

static void forget_ahead(struct batchd_producer *p)
{
	if (p->ahead.bytes)
		munmap(p->ahead.bytes, (size_t)p->room_bytes);
	p->ahead = (struct ahead){ 0 };
}

/* Its gaps are zero, so that nothing of this process gets into a slot unasked for. */
static int make_room_ahead(struct batchd_producer *p, const struct fill *f)
{
	char *bytes = mmap(NULL, (size_t)p->room_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (bytes == MAP_FAILED)
		return fault_set(&p->fault, BATCHD_E_NOMEM, "no %llu bytes to make a batch in that is wanted later: %s",
				 (unsigned long long)p->room_bytes, strerror(errno));
	p->ahead = (struct ahead){ .bytes = bytes, .epoch = f->epoch, .step = f->step };
	return 0;
}

static bool is_made_already(const struct batchd_producer *p, const struct fill *f)
{
	return p->ahead.n_rows && p->ahead.epoch == f->epoch && p->ahead.step == f->step;
}

static int answer_from_ahead(struct batchd_producer *p, struct fill *f)
{
	Batchd__Wire__Filled body = BATCHD__WIRE__FILLED__INIT;
	bool wanted = f->slab != NULL;
	int r;

	if (wanted)
		memcpy(slot_of(p, f), p->ahead.bytes,
		       p->ahead.n_bytes ? (size_t)p->ahead.n_bytes : (size_t)p->room_bytes);
	body.n_rows = p->ahead.n_rows;
	body.n_bytes = p->ahead.n_bytes;
	r = answer(p, f, &body);
	if (wanted)
		forget_ahead(p);
	return r;
}

/* Answers those that need nobody to make anything. */
static int answer_at_once(struct batchd_producer *p)
{
	Batchd__Wire__Filled skipped = BATCHD__WIRE__FILLED__INIT;
	int r = 0;

	skipped.skipped = true;
	while (r == 0 && p->first && (p->first->cancelled || is_made_already(p, p->first)))
		r = p->first->cancelled ? answer(p, pop(p), &skipped) : answer_from_ahead(p, pop(p));
	return r;
}

/* The next one is to be made. */
static int hand_out(struct batchd_producer *p)
{
	int r;

	forget_ahead(p);
	r = p->first->slab ? 0 : make_room_ahead(p, p->first);
	if (r == 0)
		p->current = pop(p);
	return r;
}

int batchd_produce_next(struct batchd_producer *p, struct batchd_fill *out, int timeout_ms)
{
	int r = check(p);

	if (r < 0)
		return r;
	if (p->current)
		return misuse(p, "batchd_produce_next: the last fill was not answered");
	r = drain(p);
	if (r == 0)
		r = answer_at_once(p);
	while (r == 0 && !p->first) {
		r = receive_within(p, timeout_ms);
		if (r == 0)
			r = answer_at_once(p);
	}
	if (r == 0)
		r = hand_out(p);
	if (r != 0)
		return r;
	out->epoch = p->current->epoch;
	out->step = p->current->step;
	out->room_bytes = p->room_bytes;
	return 0;
}

int batchd_produce_lay(struct batchd_producer *p, struct batchd_array *arrays, uint32_t n, const char *text,
		       size_t n_text)
{
	int r = check(p);

	if (r < 0)
		return r;
	if (!p->current)
		return misuse(p, "batchd_produce_lay: there is no fill to be answered");
	r = arrays_lay(slot_of(p, p->current), (size_t)p->room_bytes, arrays, n, text, n_text, &p->fault);
	p->current->n_bytes = r == 0 ? arrays_size(arrays, n, n_text) : 0;
	p->fault.code = 0; /* the producer may say so to its trainers */
	return r;
}

/* The fill that was handed out, or NULL with what is wrong in *r. */
static struct fill *current(struct batchd_producer *p, int *r)
{
	*r = check(p);
	if (*r == 0 && !p->current)
		*r = misuse(p, "there is no fill to be answered");
	return *r == 0 ? p->current : NULL;
}

int batchd_produce_filled(struct batchd_producer *p, uint32_t n_rows)
{
	Batchd__Wire__Filled body = BATCHD__WIRE__FILLED__INIT;
	int r;
	struct fill *f = current(p, &r);

	if (!f)
		return r;
	if (!n_rows)
		return misuse(p, "batchd_produce_filled: a batch has at least one row");
	if (!f->slab) {
		p->ahead.n_bytes = f->n_bytes;
		p->ahead.n_rows = n_rows;
	}
	p->epoch = f->epoch;
	p->n_made = f->step + 1;
	body.n_rows = n_rows;
	body.n_bytes = f->n_bytes;
	return answer(p, f, &body);
}

int batchd_produce_end_epoch_at(struct batchd_producer *p, uint64_t n_batches)
{
	Batchd__Wire__Filled body = BATCHD__WIRE__FILLED__INIT;
	int r;
	struct fill *f = current(p, &r);

	if (!f)
		return r;
	if (n_batches > f->step)
		return misuse(
			p,
			"batchd_produce_end_epoch_at: there are as many batches as the one that was asked for, at most");
	body.end = true;
	body.n_batches = n_batches;
	return answer(p, f, &body);
}

int batchd_produce_end_epoch(struct batchd_producer *p)
{
	bool known = p->current && p->epoch == p->current->epoch && p->n_made == p->current->step;

	return batchd_produce_end_epoch_at(p, known ? p->n_made : 0);
}

size_t batchd_produce_size(const struct batchd_array *arrays, uint32_t n, size_t n_text)
{
	return arrays_size(arrays, n, n_text);
}

/* ---- life ---- */

static int say_produce(struct batchd_producer *p, const struct batchd_produce_options *o)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__Produce body = BATCHD__WIRE__PRODUCE__INIT;
	const Batchd__Wire__ServerMessage *answer_m;
	int fds[CONNECTION_FDS] = { -1, -1 }, r;

	body.name = (char *)o->name;
	body.slot_bytes = o->slot_bytes;
	body.n_batches = o->n_batches;
	body.n_rows = o->n_rows;
	body.n_samples = o->n_samples;
	body.id = o->id;
	body.incarnation = o->incarnation;
	body.resumable = !!o->resumable;
	body.peeks = true;
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_PRODUCE;
	m.produce = &body;
	r = say(p, &m);
	while (r == 0 && (r = connection_recv(&p->connection, 0, &answer_m, fds, &p->fault)) == BATCHD_AGAIN)
		r = 0;
	if (r == 0 &&
	    (answer_m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_PRODUCING || answer_m->producing->slab))
		r = fault_set(&p->fault, BATCHD_E_PROTOCOL, "batchd at %s answers a producer with %s",
			      p->connection.address, wire_server_name(answer_m));
	if (fds[0] >= 0)
		close(fds[0]);
	return r;
}

static int check_options(const struct batchd_produce_options *o, struct fault *f)
{
	if (!o->name || !*o->name || !wire_text_ok(o->name, strlen(o->name), WIRE_MAX_PRODUCER))
		return fault_set(f, BATCHD_E_INVALID, "a producer's name has 1 to %d bytes of printable UTF-8",
				 WIRE_MAX_PRODUCER);
	if (!o->slot_bytes)
		return fault_set(f, BATCHD_E_INVALID,
				 "slot_bytes is 0: how large do batches get? (batchd_produce_size)");
	return 0;
}

static void destroy(struct batchd_producer *p)
{
	struct fill *f;

	connection_close(&p->connection);
	while ((f = pop(p)))
		free(f);
	free(p->current);
	forget_ahead(p);
	while (p->slabs) {
		struct made_slab *s = p->slabs;

		p->slabs = s->next;
		unmap(s);
	}
	free(p);
}

/* A daemon that is just being restarted is waited for, as in batchd_open. */
static int connect_patiently(struct batchd_producer *p, const struct batchd_produce_options *o)
{
	uint64_t last = now_ns() + (uint64_t)CONNECTION_RETURN_MS * 1000000;
	int r;

	for (;;) {
		r = connection_open(&p->connection, o->socket, o->autostart, o->program, &p->fault);
		if (r == 0)
			r = say_produce(p, o);
		if (r == 0 || now_ns() >= last || !connection_may_return(o->socket, r))
			return r;
		connection_close(&p->connection);
		p->fault.code = 0;
		poll(NULL, 0, CONNECTION_LOOK_MS);
	}
}

int batchd_produce_open(const struct batchd_produce_options *given, struct batchd_producer **out, char *err,
			size_t err_size)
{
	struct batchd_produce_options o;
	struct batchd_producer *p = calloc(1, sizeof *p);
	int r;

	*out = NULL;
	if (!p) {
		if (err && err_size)
			snprintf(err, err_size, "out of memory");
		return BATCHD_E_NOMEM;
	}
	batchd_produce_options_init(&o);
	memcpy(&o, given, given->size_bytes < sizeof o ? given->size_bytes : sizeof o);
	p->connection.socket = -1;
	p->generation = process_generation();
	p->room_bytes = o.slot_bytes;
	r = check_options(&o, &p->fault);
	if (r == 0)
		r = connect_patiently(p, &o);
	if (r < 0) {
		fault_give(&p->fault, err, err_size);
		destroy(p);
		return r;
	}
	*out = p;
	return 0;
}

void batchd_produce_close(struct batchd_producer *p, const char *why)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__ProducerEnd body = BATCHD__WIRE__PRODUCER_END__INIT;
	char text[WIRE_MAX_TEXT / 4 * 3 + 1];
	size_t n = why ? strlen(why) : 0;

	if (!p)
		return;
	if (p->generation == process_generation() && !p->fault.code) {
		/* The end of a traceback says most. */
		snprintf(text, sizeof text, "%s",
			 why && *why ? why + (n >= sizeof text ? n - sizeof text + 1 : 0) : "closed");
		body.text = text;
		m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_PRODUCER_END;
		m.producer_end = &body;
		connection_send(&p->connection, &m, NULL, 0);
	}
	destroy(p);
}

const char *batchd_produce_error(const struct batchd_producer *p)
{
	return p->generation != process_generation() ? "this producer belongs to the parent process" : p->fault.text;
}
