/* A producer: makes batches for the trainers that open "serve:NAME".
 *
 * The daemon sends slabs, which are mapped and acknowledged at once, and Fills, which are queued and handed out one by
 * one. Packets are read before each fill is handed out, so that a fill that was cancelled meanwhile is answered without
 * any work.
 *
 * A batch that does not fit its slot is made in a memfd, which is sealed when the batch is complete and goes to the
 * daemon with the answer. The next fill is handed out when the daemon has memory for that batch. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "link/arrays.h"
#include "batchd.h"
#include "link/clock.h"
#include "link/connect.h"
#include "link/process.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

enum { MAX_SLOTS = 65536, STEP_BYTES = 1 << 20 };

struct made_slab {
	struct made_slab *next;
	uint32_t number, rank, n_slots;
	uint64_t slot_bytes, room_bytes;
	size_t bytes;
	char *base;
	bool replaced; /* by a newer slab of the same rank */
};

struct fill {
	struct fill *next;
	uint64_t number, epoch, step;
	uint64_t n_bytes; /* that the batch takes; 0: not known */
	uint32_t slot;
	struct made_slab *slab;
	bool cancelled;
};

/* The memory of the batch that is being made, as it does not fit its slot. */
struct large_memory {
	int fd;     /* -1: there is none */
	char *base; /* n_bytes of it, while it is not sealed; else NULL */
	size_t n_bytes;
};

struct batchd_producer {
	unsigned generation; /* process_generation() */
	struct fault fault;  /* code: every later call returns it as well */
	struct made_slab *slabs;
	struct fill *first, *last; /* not handed out yet */
	struct fill *current;      /* handed out */
	struct large_memory large; /* of the current one */
	bool is_waiting;           /* the last answer is a large batch, for which the daemon has no memory yet */
	uint64_t epoch, n_made;    /* batches of that epoch made so far: it has at least these */
	struct connection connection;
};

void batchd_produce_options_init(struct batchd_produce_options *o)
{
	*o = (struct batchd_produce_options){ .size_bytes = sizeof *o, .autostart = 1 };
}

static int produce_check(const struct batchd_producer *p)
{
	return p->generation != process_generation() ? BATCHD_E_FORKED : p->fault.code;
}

static int produce_misuse(struct batchd_producer *p, const char *text)
{
	fault_set(&p->fault, BATCHD_E_INVALID, "%s", text);
	p->fault.code = 0;
	return BATCHD_E_INVALID;
}

static int produce_say(struct batchd_producer *p, Batchd__Wire__ClientMessage *m)
{
	return connection_send(&p->connection, m, NULL, 0) < 0 ? connection_lost(&p->connection, &p->fault) : 0;
}

static int send_filled(struct batchd_producer *p, const Batchd__Wire__Filled *body)
{
	return produce_say(p, WIRE_CLIENT(FILLED, filled, (Batchd__Wire__Filled *)body));
}

/* ---- slabs ---- */

static void produce_unmap(struct made_slab *s)
{
	munmap(s->base, s->bytes);
	free(s);
}

static bool produce_is_in_use(const struct batchd_producer *p, const struct made_slab *s)
{
	for (const struct fill *f = p->first; f; f = f->next)
		if (f->slab == s)
			return true;
	return p->current && p->current->slab == s;
}

static void unmap_replaced(struct batchd_producer *p)
{
	for (struct made_slab **at = &p->slabs; *at;) {
		struct made_slab *s = *at;

		if (s->replaced && !produce_is_in_use(p, s)) {
			*at = s->next;
			produce_unmap(s);
		} else {
			at = &s->next;
		}
	}
}

/* Memory that the daemon could make shorter would end this process. */
static bool produce_is_sealed(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && seals & F_SEAL_SHRINK;
}

static int produce_map(struct batchd_producer *p, const Batchd__Wire__Producing *m, int fd)
{
	struct made_slab *s = calloc(1, sizeof *s);
	struct stat st;
	size_t bytes;

	if (!s)
		return fault_set(&p->fault, BATCHD_E_NOMEM, "out of memory");
	if (!m->n_slots || m->n_slots > MAX_SLOTS || !m->room_bytes || m->slot_bytes < m->room_bytes ||
	    __builtin_mul_overflow((size_t)m->slot_bytes, m->n_slots, &bytes) || fstat(fd, &st) < 0 ||
	    (uint64_t)st.st_size < bytes) {
		free(s);
		return fault_set(&p->fault, BATCHD_E_PROTOCOL,
				 "batchd at %s offers slots that are too small or too many", p->connection.address);
	}
	if (!produce_is_sealed(fd)) {
		free(s);
		return fault_set(&p->fault, BATCHD_E_PROTOCOL, "batchd at %s offers memory that it could take away",
				 p->connection.address);
	}
	*s = (struct made_slab){ .number = m->slab,
				 .rank = m->rank,
				 .n_slots = m->n_slots,
				 .slot_bytes = m->slot_bytes,
				 .room_bytes = m->room_bytes,
				 .bytes = bytes };
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
	int r = produce_map(p, m, fd);

	close(fd);
	if (r < 0)
		return r;
	unmap_replaced(p);
	mapped.slab = p->slabs->number;
	return send_filled(p, &mapped);
}

/* ---- fills ---- */

static int produce_on_fill(struct batchd_producer *p, const Batchd__Wire__Fill *m)
{
	struct made_slab *slab = p->slabs;
	struct fill *f;

	if (m->cancel) {
		for (f = p->first; f; f = f->next)
			f->cancelled |= f->number == m->fill;
		return 0;
	}
	if (m->taken) {
		p->is_waiting = false;
		return 0;
	}
	while (slab && slab->number != m->slab)
		slab = slab->next;
	f = calloc(1, sizeof *f);
	if (!f || !slab || m->slot >= slab->n_slots) {
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
		return produce_on_fill(p, m->fill);
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_PRODUCING && fd >= 0)
		return on_slab(p, m->producing, fd);
	if (fd >= 0)
		close(fd);
	return fault_set(&p->fault, BATCHD_E_PROTOCOL, "batchd at %s sent %s to a producer", p->connection.address,
			 wire_server_name(m));
}

static int produce_receive(struct batchd_producer *p, int flags)
{
	const Batchd__Wire__ServerMessage *m;
	int fds[CONNECTION_FDS], r = connection_recv(&p->connection, flags, &m, fds, &p->fault);

	if (r)
		return r;
	for (unsigned i = 1; i < CONNECTION_FDS; i++)
		if (fds[i] >= 0) /* more than one never come with a message to a producer */
			close(fds[i]);
	return on_packet(p, m, fds[0]);
}

/* Reads everything that has arrived. 0 or a code. */
static int produce_drain(struct batchd_producer *p)
{
	int r;

	do
		r = produce_receive(p, MSG_DONTWAIT);
	while (r == 0);
	return r == BATCHD_AGAIN ? 0 : r;
}

/* Receives one packet; waits as batchd_next does. */
static int receive_within(struct batchd_producer *p, int timeout_ms)
{
	uint64_t deadline = timeout_ms > 0 ? clock_now_ns() + (uint64_t)timeout_ms * 1000000 : 0, now;
	int r;

	if (timeout_ms < 0) {
		do
			r = produce_receive(p, 0);
		while (r == BATCHD_AGAIN && timeout_ms != BATCHD_UNTIL_SIGNAL);
		return r;
	}
	r = produce_receive(p, MSG_DONTWAIT);
	while (r == BATCHD_AGAIN && (now = clock_now_ns()) < deadline) {
		struct pollfd fd = { .fd = p->connection.socket, .events = POLLIN };

		poll(&fd, 1, (int)((deadline - now + 999999) / 1000000));
		r = produce_receive(p, MSG_DONTWAIT);
	}
	return r;
}

static struct fill *produce_pop(struct batchd_producer *p)
{
	struct fill *f = p->first;

	if (f)
		p->first = f->next;
	return f;
}

/* body has everything except the number. */
static int answer_with(struct batchd_producer *p, struct fill *f, Batchd__Wire__Filled *body, const int *fd)
{
	body->fill = f->number;
	if (p->current == f)
		p->current = NULL;
	free(f);
	if (connection_send(&p->connection, WIRE_CLIENT(FILLED, filled, body), fd, fd ? 1 : 0) < 0)
		return connection_lost(&p->connection, &p->fault);
	return 0;
}

static int produce_answer(struct batchd_producer *p, struct fill *f, Batchd__Wire__Filled *body)
{
	return answer_with(p, f, body, NULL);
}

/* Answers the fills for which nothing has to be made. */
static int answer_at_once(struct batchd_producer *p)
{
	Batchd__Wire__Filled skipped = BATCHD__WIRE__FILLED__INIT;
	int r = 0;

	skipped.skipped = true;
	while (r == 0 && !p->is_waiting && p->first && p->first->cancelled)
		r = produce_answer(p, produce_pop(p), &skipped);
	return r;
}

/* ---- batches that do not fit ---- */

static void forget_large(struct batchd_producer *p)
{
	if (p->large.base)
		munmap(p->large.base, p->large.n_bytes);
	if (p->large.fd >= 0)
		close(p->large.fd);
	p->large = (struct large_memory){ .fd = -1 };
}

static int large_fault(struct batchd_producer *p, size_t n_bytes, int error)
{
	forget_large(p);
	return fault_set(&p->fault, BATCHD_E_NOMEM,
			 "no memory for a batch of %zu bytes, which does not fit its slot: %s%s", n_bytes,
			 strerror(error), error == EFBIG ? ": raise ulimit -f, which holds for memory, too" : "");
}

/* Where memory is short this fails; without it the first write would raise a signal. In steps, because in older kernels
 * a signal undoes the present one: of a DataLoader's worker that has ended, or of a profiler. 0 or an errno. */
static int make_pages(int fd, size_t n_bytes)
{
	for (size_t at = 0, step; at < n_bytes; at += step) {
		step = n_bytes - at < STEP_BYTES ? n_bytes - at : STEP_BYTES;
		while (fallocate(fd, 0, (off_t)at, (off_t)step) < 0)
			if (errno != EINTR)
				return errno;
	}
	return 0;
}

/* A child that is forked meanwhile must not map it: it could not be sealed then. */
static int make_large(struct batchd_producer *p, size_t n_bytes)
{
	struct large_memory *m = &p->large;
	int r;

	forget_large(p);
	m->fd = memfd_create("batchd-batch", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (m->fd < 0 && errno == EINVAL) /* Linux before 6.3 */
		m->fd = memfd_create("batchd-batch", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (m->fd < 0 || n_bytes > PTRDIFF_MAX)
		return large_fault(p, n_bytes, m->fd < 0 ? errno : EOVERFLOW);
	r = make_pages(m->fd, n_bytes);
	if (r)
		return large_fault(p, n_bytes, r);
	m->base = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	if (m->base == MAP_FAILED) {
		m->base = NULL;
		return large_fault(p, n_bytes, errno);
	}
	m->n_bytes = n_bytes;
	(void)madvise(m->base, n_bytes, MADV_DONTFORK);
	return 0;
}

/* Sends the batch, which no process can change from now on. */
static int answer_large(struct batchd_producer *p, struct fill *f, Batchd__Wire__Filled *body)
{
	struct large_memory *m = &p->large;
	int r;

	munmap(m->base, m->n_bytes);
	m->base = NULL;
	if (fcntl(m->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0) {
		r = errno;
		forget_large(p);
		return fault_set(&p->fault, BATCHD_E_INVALID,
				 "cannot seal a batch of %llu bytes, which does not fit its slot: %s%s",
				 (unsigned long long)body->n_bytes, strerror(r),
				 r == EBUSY ? ": another process has it mapped" : "");
	}
	p->is_waiting = true;
	r = answer_with(p, f, body, &m->fd);
	forget_large(p);
	return r;
}

/* ---- making ---- */

/* Hands out the next fill. */
static void hand_out(struct batchd_producer *p)
{
	p->current = produce_pop(p);
	unmap_replaced(p);
}

int batchd_produce_next(struct batchd_producer *p, struct batchd_fill *out, int timeout_ms)
{
	int r = produce_check(p);

	if (r < 0)
		return r;
	if (p->current)
		return produce_misuse(p, "batchd_produce_next: the last fill was not answered");
	r = produce_drain(p);
	if (r == 0)
		r = answer_at_once(p);
	while (r == 0 && (p->is_waiting || !p->first)) {
		r = receive_within(p, timeout_ms);
		if (r == 0)
			r = answer_at_once(p);
	}
	if (r != 0)
		return r;
	hand_out(p);
	out->epoch = p->current->epoch;
	out->step = p->current->step;
	out->room_bytes = p->current->slab->room_bytes;
	return 0;
}

int batchd_produce_lay(struct batchd_producer *p, struct batchd_array *arrays, uint32_t n, const char *text,
		       size_t n_text)
{
	struct fill *f;
	size_t size;
	int r = produce_check(p);

	if (r < 0)
		return r;
	if (!p->current)
		return produce_misuse(p, "batchd_produce_lay: there is no fill to be answered");
	f = p->current;
	size = arrays_size(arrays, n, n_text);
	f->n_bytes = 0;
	forget_large(p);
	if (size > f->slab->room_bytes)
		r = make_large(p, size);
	if (r == 0)
		r = arrays_lay(p->large.base ? p->large.base : f->slab->base + f->slot * f->slab->slot_bytes,
			       p->large.base ? size : (size_t)f->slab->room_bytes, arrays, n, text, n_text, &p->fault);
	f->n_bytes = r == 0 ? size : 0;
	p->fault.code = 0; /* the producer may tell its trainers */
	return r;
}

/* The fill that was handed out, or NULL with an error code in *r. */
static struct fill *produce_current(struct batchd_producer *p, int *r)
{
	*r = produce_check(p);
	if (*r == 0 && !p->current)
		*r = produce_misuse(p, "there is no fill to be answered");
	return *r == 0 ? p->current : NULL;
}

int batchd_produce_filled(struct batchd_producer *p, uint32_t n_rows)
{
	Batchd__Wire__Filled body = BATCHD__WIRE__FILLED__INIT;
	int r;
	struct fill *f = produce_current(p, &r);

	if (!f)
		return r;
	if (!n_rows)
		return produce_misuse(p, "batchd_produce_filled: a batch has at least one row");
	p->epoch = f->epoch;
	p->n_made = f->step + 1;
	body.n_rows = n_rows;
	body.n_bytes = f->n_bytes;
	return p->large.base ? answer_large(p, f, &body) : produce_answer(p, f, &body);
}

int batchd_produce_end_epoch_at(struct batchd_producer *p, uint64_t n_batches)
{
	Batchd__Wire__Filled body = BATCHD__WIRE__FILLED__INIT;
	int r;
	struct fill *f = produce_current(p, &r);

	if (!f)
		return r;
	if (n_batches > f->step)
		return produce_misuse(
			p,
			"batchd_produce_end_epoch_at: there are as many batches as the one that was asked for, at most");
	forget_large(p);
	body.end = true;
	body.n_batches = n_batches;
	return produce_answer(p, f, &body);
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
	Batchd__Wire__Produce body = BATCHD__WIRE__PRODUCE__INIT;
	const Batchd__Wire__ServerMessage *answer_m;
	int fds[CONNECTION_FDS] = { -1, -1, -1 }, r;

	body.name = (char *)o->name;
	body.slot_bytes = o->slot_bytes;
	body.n_batches = o->n_batches;
	body.n_rows = o->n_rows;
	body.n_samples = o->n_samples;
	body.id = o->id;
	body.incarnation = o->incarnation;
	body.resumable = !!o->resumable;
	r = produce_say(p, WIRE_CLIENT(PRODUCE, produce, &body));
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

static int produce_check_options(const struct batchd_produce_options *o, struct fault *f)
{
	if (!o->name || !*o->name || !wire_text_ok(o->name, strlen(o->name), WIRE_MAX_PRODUCER))
		return fault_set(f, BATCHD_E_INVALID, "a producer's name has 1 to %d bytes of printable UTF-8",
				 WIRE_MAX_PRODUCER);
	if (!o->slot_bytes)
		return fault_set(f, BATCHD_E_INVALID,
				 "slot_bytes is 0: how large do batches get? (batchd_produce_size)");
	return 0;
}

static void produce_destroy(struct batchd_producer *p)
{
	struct fill *f;

	connection_close(&p->connection);
	while ((f = produce_pop(p)))
		free(f);
	free(p->current);
	forget_large(p);
	while (p->slabs) {
		struct made_slab *s = p->slabs;

		p->slabs = s->next;
		produce_unmap(s);
	}
	free(p);
}

/* While a daemon is being restarted, waits for it, as batchd_open does. */
static int connect_patiently(struct batchd_producer *p, const struct batchd_produce_options *o)
{
	uint64_t last = clock_now_ns() + (uint64_t)CONNECTION_RETURN_MS * 1000000;
	int r;

	for (;;) {
		r = connection_open(&p->connection, o->socket, o->autostart, o->program, &p->fault);
		if (r == 0)
			r = say_produce(p, o);
		if (r == 0 || clock_now_ns() >= last || !connection_may_return(o->socket, r))
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
	p->large.fd = -1;
	p->generation = process_generation();
	r = produce_check_options(&o, &p->fault);
	if (r == 0)
		r = connect_patiently(p, &o);
	if (r < 0) {
		fault_give(&p->fault, err, err_size);
		produce_destroy(p);
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
		/* The end of a traceback is the most useful part. */
		snprintf(text, sizeof text, "%s",
			 why && *why ? why + (n >= sizeof text ? n - sizeof text + 1 : 0) : "closed");
		body.text = text;
		m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_PRODUCER_END;
		m.producer_end = &body;
		connection_send(&p->connection, &m, NULL, 0);
	}
	produce_destroy(p);
}

const char *batchd_produce_error(const struct batchd_producer *p)
{
	return p->generation != process_generation() ? "this producer belongs to the parent process" : p->fault.text;
}
