/* Opening a loader: checking what is asked for, asking, checking what is answered. */
#include "loader.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/delivery.h"
#include "process.h"
#include "source.h"

enum { MAX_SLOTS = 65536, MAX_BATCH = 1 << 24 };

void batchd_options_init(struct batchd_options *o)
{
	*o = (struct batchd_options){
		.size_bytes = sizeof *o,
		.dtype = BATCHD_FLOAT32,
		.batch_size = 64,
		.rank = -1,
		.world_size = 1,
		.autostart = 1,
		.reconnect_ms = 30000,
	};
}

/* ---- what is asked for ---- */

/* The sizes that a batch can be taken in, for a person. */
static void list_divisors(uint32_t n, char *text, size_t size)
{
	size_t at = 0;

	for (uint32_t i = 1; i <= n && at < size; i++)
		if (n % i == 0)
			at += (size_t)snprintf(text + at, size - at, "%s%u", at ? ", " : "", i);
}

static int check_share(const struct batchd_options *o, struct fault *f)
{
	char sizes[512];

	if ((unsigned)o->policy > BATCHD_DETACH)
		return fault_set(f, BATCHD_E_INVALID, "policy is none of batchd.h's");
	if (o->mode != BATCHD_SHARE && (o->policy || o->group_batch_size))
		return fault_set(f, BATCHD_E_INVALID, "%s goes with share mode",
				 o->policy ? "policy" : "group_batch_size");
	if (!o->group_batch_size || o->group_batch_size == o->batch_size)
		return 0;
	if (!strncmp(o->dataset, "serve:", strlen("serve:")))
		return fault_set(f, BATCHD_E_INVALID,
				 "group_batch_size: a producer's batches are as large as it makes them");
	if (o->group_batch_size > MAX_BATCH)
		return fault_set(f, BATCHD_E_INVALID, "group_batch_size must be 1 to %d, not %u", MAX_BATCH,
				 o->group_batch_size);
	if (o->group_batch_size % o->batch_size == 0)
		return 0;
	list_divisors(o->group_batch_size, sizes, sizeof sizes);
	return fault_set(f, BATCHD_E_INVALID,
			 "batch_size: the group's batches of %u rows cannot be cut into %u; sizes that fit: %s",
			 o->group_batch_size, o->batch_size, sizes);
}

static int check_options(const struct batchd_options *o, struct fault *f)
{
	int r;

	if (o->batch_size < 1 || o->batch_size > MAX_BATCH)
		return fault_set(f, BATCHD_E_INVALID, "batch_size must be 1 to %d, not %u", MAX_BATCH, o->batch_size);
	if (o->world_size < 1)
		return fault_set(f, BATCHD_E_INVALID, "world_size must be at least 1");
	if (o->rank >= 0 && (uint32_t)o->rank >= o->world_size)
		return fault_set(f, BATCHD_E_INVALID, "rank must be below world_size: %d of %u", o->rank,
				 o->world_size);
	if (o->rank < 0 && o->mode == BATCHD_SHARD && o->world_size > 1)
		return fault_set(f, BATCHD_E_INVALID, "rank must be given: which of the %u trainers is this one?",
				 o->world_size);
	if (o->node_world_size > o->world_size || (o->node_world_size && o->node_rank >= o->node_world_size))
		return fault_set(f, BATCHD_E_INVALID, "node_rank must be below node_world_size, and that at most world_size: "
				 "%u of %u of %u", o->node_rank, o->node_world_size, o->world_size);
	r = check_share(o, f);
	if (r < 0)
		return r;
	if (o->own_batches && o->mode == BATCHD_SHARE)
		return fault_set(f, BATCHD_E_INVALID,
				 "share mode has one order for all: own batches do not go with it");
	if (o->dtype == BATCHD_BFLOAT16 && (!o->device || !*o->device || strcmp(o->device, "cpu") == 0))
		return fault_set(f, BATCHD_E_INVALID, "dtype: bfloat16 is made on a GPU only (option device)");
	if ((unsigned)o->dtype > BATCHD_BFLOAT16)
		return fault_set(f, BATCHD_E_INVALID, "dtype: images are made as uint8, float16, float32 or, on a GPU, bfloat16; "
				 "arrays come as they are stored, whatever dtype says");
	if ((unsigned)o->layout > BATCHD_AS_STORED ||
	    (unsigned)o->mode > BATCHD_SHARE)
		return fault_set(f, BATCHD_E_INVALID, "layout or mode is none of batchd.h's");
	if (o->job && !wire_text_ok(o->job, strlen(o->job), WIRE_MAX_JOB))
		return fault_set(f, BATCHD_E_INVALID, "job: the name has more than %d bytes, or is not printable UTF-8",
				 WIRE_MAX_JOB);
	if (o->transform && strlen(o->transform) > WIRE_MAX_TRANSFORM)
		return fault_set(f, BATCHD_E_INVALID, "transform: more than %d bytes", WIRE_MAX_TRANSFORM);
	return 0;
}

static int send_open(struct batchd_loader *l, const struct batchd_options *o, const struct source *s, bool again)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__Open open = BATCHD__WIRE__OPEN__INIT;

	open.dataset = s->dataset;
	open.transform = (char *)(o->transform ? o->transform : "");
	open.dtype = (Batchd__Wire__Dtype)o->dtype;
	open.layout = (Batchd__Wire__Layout)o->layout;
	open.batch_size = l->group_rows;
	open.own_batch_size = o->mode == BATCHD_SHARE ? o->batch_size : 0;
	open.policy = (Batchd__Wire__Policy)o->policy;
	open.shuffle = !!o->shuffle;
	open.seed = o->seed;
	open.drop_last = o->drop_last && o->mode != BATCHD_SHARE; /* see slices.c */
	open.rank = o->rank < 0 && o->mode == BATCHD_SHARD ? 0 : o->rank;
	open.world_size = o->world_size;
	open.job = l->job.name;
	open.mode = (Batchd__Wire__Mode)o->mode;
	open.num_workers = o->num_workers;
	open.apply_exif = !!o->apply_exif;
	open.own_batches = !!o->own_batches;
	open.n_slots = o->n_slots;
	open.incarnation = o->incarnation;
	if (l->delivery)
		delivery_ask(l->delivery, &open);
	open.born_ns = l->born_ns;
	open.again = again;
	open.ring = RING_LAYOUT;
	open.producer_wait_ms = o->producer_timeout_ms;
	open.node_rank = o->node_rank;
	open.node_world_size = o->node_world_size;
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_OPEN;
	m.open = &open;
	return connection_send(&l->connection, &m, s->fds, s->n_fds) < 0 ? connection_lost(&l->connection, &l->fault)
									 : 0;
}

/* ---- what is answered ---- */

/* Waits for Opened, telling the caller what happens meanwhile. */
static int await_opened(struct batchd_loader *l, const struct batchd_options *o, const Batchd__Wire__Opened **opened,
			int *fds)
{
	char phase[WIRE_MAX_PHASE + 1] = "";
	uint64_t done = 0, total = 0;

	for (;;) {
		const Batchd__Wire__ServerMessage *m;
		int r = connection_recv(&l->connection, 0, &m, fds, &l->fault);

		if (r < 0)
			return r;
		if (r == 0 && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED) {
			*opened = m->opened;
			return 0;
		}
		if (r == 0 && m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_PROGRESS)
			return fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s answers an open with %s",
					 l->connection.address, wire_server_name(m));
		if (r == 0) {
			snprintf(phase, sizeof phase, "%s", m->progress->phase);
			done = m->progress->done;
			total = m->progress->total;
		}
		if (o->on_progress && o->on_progress(o->progress_arg, phase, done, total))
			return fault_set(&l->fault, BATCHD_E_CANCELLED, "opening %s was cancelled", o->dataset);
	}
}

/* By enum batchd_dtype; connection_recv lets no other number through. */
static const size_t dtype_bytes[] = { 1, 2, 4, 4, 8, 8, 2, 1, 2, 1, 2, 4, 8, 8, 16 };

static bool shape_bytes(const uint32_t *shape, size_t n, unsigned dtype, uint64_t *bytes)
{
	*bytes = dtype_bytes[dtype];
	for (size_t i = 0; i < n; i++)
		if (__builtin_mul_overflow(*bytes, shape[i], bytes))
			return false;
	return true;
}

/* Whether `count` items of `size` fit between offset and the slot's end. */
static bool fits(uint64_t offset, uint64_t count, uint64_t size, uint64_t slot_bytes)
{
	uint64_t n;

	return !__builtin_mul_overflow(count, size, &n) && offset <= slot_bytes && n <= slot_bytes - offset;
}

/* Checks everything that will be used as an offset, a size or an index. */
static int check_opened(struct batchd_loader *l, const Batchd__Wire__Opened *m, uint32_t batch_size)
{
	const char *what = NULL;

	if (m->slab_kind != BATCHD__WIRE__SLAB_KIND__MEMFD)
		what = "a kind of memory that this library cannot map";
	else if (m->n_slots < 1 || m->n_slots > MAX_SLOTS || m->window < 1 || m->window > m->n_slots)
		what = "an impossible number of slots";
	else if (!shape_bytes(m->shape, m->n_shape, m->dtype, &l->row_bytes) || l->row_bytes != m->row_bytes ||
		 !shape_bytes(m->label_shape, m->n_label_shape, m->label_dtype, &l->label_bytes))
		what = "a shape that does not fit its rows";
	else if (!fits(0, m->n_slots, m->slot_bytes, m->slab_bytes) ||
		 !fits(0, batch_size, l->row_bytes, m->slot_bytes) ||
		 !fits(m->labels_offset, batch_size, l->label_bytes, m->slot_bytes) ||
		 !fits(m->indices_offset, batch_size, sizeof(int64_t), m->slot_bytes) || m->indices_offset % 8)
		what = "slots that are too small for a batch";
	else if (m->world_size < 1 || m->n_samples > INT64_MAX)
		what = "impossible numbers";
	return what ? fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s offers %s", l->connection.address, what)
		    : 0;
}

static void fill_info(struct batchd_loader *l, const Batchd__Wire__Opened *m, uint32_t batch_size)
{
	struct batchd_info *i = &l->info;

	*i = (struct batchd_info){
		.size_bytes = sizeof *i,
		.dataset_id = m->dataset_id,
		.loader_id = m->loader_id,
		.n_samples = m->n_samples,
		.n_classes = m->n_classes,
		.rank = m->rank,
		.world_size = m->world_size,
		.batch_size = batch_size,
		.window = m->window,
		.n_dims = (uint32_t)m->n_shape,
		.n_label_dims = (uint32_t)m->n_label_shape,
		.dtype = (enum batchd_dtype)m->dtype,
		.label_dtype = (enum batchd_dtype)m->label_dtype,
		.layout = (enum batchd_layout)m->layout,
		.has_normalize = m->n_mean > 0,
		.socket = l->connection.address,
		.job = l->job.name,
		.daemon_version = l->connection.daemon_version,
		.group_batch_size = l->group_rows,
		.policy = (enum batchd_policy)m->policy,
	};
	if (m->n_shape)
		memcpy(i->shape, m->shape, m->n_shape * sizeof *m->shape);
	if (m->n_label_shape)
		memcpy(i->label_shape, m->label_shape, m->n_label_shape * sizeof *m->label_shape);
	if (m->n_mean) {
		memcpy(i->mean, m->mean, m->n_mean * sizeof *m->mean);
		memcpy(i->std, m->std, m->n_mean * sizeof *m->std);
	}
	l->content_id = m->content_id;
	l->pipeline_id = m->pipeline_id;
	l->n_print_bytes = m->print.len;
	if (m->print.len) /* as many as there is room for: wire.c has seen to it */
		memcpy(l->print, m->print.data, m->print.len);
	l->n_slots = m->n_slots;
	l->labels_offset = (size_t)m->labels_offset;
	l->indices_offset = (size_t)m->indices_offset;
	i->stored_dtype = i->dtype;
	i->stored_layout = i->layout;
	memcpy(i->stored_shape, i->shape, sizeof i->stored_shape);
	i->device = "cpu";
	i->device_reason = "";
	i->can_finish = 1;
	i->finish_reason = "";
	i->served = m->served;
	i->n_samples_rank = l->own_batches ? 0 : stream_n_rows(l, 0);
	i->n_batches = l->own_batches ? 0 : m->served ? m->n_batches : stream_n_batches(l, 0);
}

static int take_opened(struct batchd_loader *l, const struct batchd_options *o, const Batchd__Wire__Opened *m,
		       const int *fds)
{
	int r = check_opened(l, m, m->served ? 1 : l->group_rows);

	if (r < 0)
		return r;
	r = !m->ring ? 0 : m->ring == RING_LAYOUT ? ring_map(&l->ring, fds[1]) : -EPROTO;
	if (r == -EPROTO)
		return fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s offers a control page that cannot be used",
				 l->connection.address);
	if (r < 0)
		return fault_set(&l->fault, BATCHD_E_NOMEM, "cannot map the control page of batchd at %s: %s",
				 l->connection.address, strerror(-r));
	l->served = m->served;
	if (m->served && o->group_batch_size && o->group_batch_size != o->batch_size)
		return fault_set(&l->fault, BATCHD_E_INVALID,
				 "group_batch_size: a producer's batches are as large as it makes them");
	fill_info(l, m, m->served ? m->n_rows : o->batch_size);
	l->lease = calloc(l->n_slots, sizeof *l->lease);
	l->early = calloc(l->n_slots, sizeof *l->early);
	if (!l->lease || !l->early)
		return fault_set(&l->fault, BATCHD_E_NOMEM, "out of memory");
	r = slab_map(fds[0], m->n_slots, m->slot_bytes, o->writable, &l->slab, &l->fault);
	return r < 0 || !l->delivery ? r : delivery_attach(l, m, fds[0], m->ring ? fds[2] : fds[1]);
}

/* ---- open ---- */

static char *copy_text(const char *text, bool *failed)
{
	char *copy = text ? strdup(text) : NULL;

	*failed |= text && !copy;
	return copy;
}

/* What a reconnect needs: absolute paths, as the working directory may be another one then. */
static int keep_options(struct batchd_loader *l, const struct batchd_options *o, const char *dataset)
{
	bool failed = false;

	l->options = *o;
	l->options.job = NULL; /* it is in l->job */
	l->options.device = copy_text(l->delivery ? l->delivery->gpu.name : NULL, &failed);
	l->options.socket = copy_text(o->socket, &failed);
	l->options.dataset = copy_text(dataset, &failed);
	l->options.transform = copy_text(o->transform, &failed);
	l->options.program = copy_text(o->program, &failed);
	return failed ? fault_set(&l->fault, BATCHD_E_NOMEM, "out of memory") : 0;
}

static int open_stream(struct batchd_loader *l, const struct batchd_options *o, bool again, const char *address)
{
	const Batchd__Wire__Opened *opened = NULL;
	struct source source;
	int fds[CONNECTION_FDS] = { -1, -1, -1 }, r = source_open(&source, o->dataset, &l->fault);

	if (r == 0)
		r = connection_open(&l->connection, *address ? address : o->socket, o->autostart && !*address, o->program,
				    &l->fault);
	if (r == 0) {
		job_init(&l->job, o, &source);
		r = keep_options(l, o, source.dataset);
		if (r == 0 && *l->connection.notice)
			loader_event(l, BATCHD_EVENT_OWN, l->connection.notice);
	}
	if (r == 0)
		r = send_open(l, o, &source, again);
	source_finish(&source);
	if (r == 0)
		r = await_opened(l, o, &opened, fds);
	if (r == 0)
		r = take_opened(l, o, opened, fds);
	for (unsigned i = 0; i < CONNECTION_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return r;
}

/* Until the daemon has closed the connection, and so has taken back what it lent: for a moment, if it hangs. */
static void await_end(struct connection *c)
{
	const Batchd__Wire__ServerMessage *m;
	struct fault f;
	int r;

	do
		r = connection_recv(c, 0, &m, NULL, &f);
	while (r == 0);
}

static int open_once(const struct batchd_options *wanted, uint64_t born_ns, bool again, char *address,
		     struct batchd_loader **out, struct fault *f)
{
	struct batchd_options o = *wanted;
	struct batchd_loader *l = calloc(1, sizeof *l);
	pthread_mutexattr_t recursive;
	bool unmapped;
	int r;

	*out = NULL;
	if (!l)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	pthread_mutex_init(&l->lock, NULL);
	pthread_mutexattr_init(&recursive);
	pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&l->turn, &recursive);
	pthread_mutexattr_destroy(&recursive);
	l->taker = pthread_self();
	l->connection.socket = -1;
	l->generation = process_generation();
	l->born_ns = born_ns;
	l->own_batches = o.own_batches;
	l->share = o.mode == BATCHD_SHARE;
	l->drop_last = o.drop_last;
	l->group_rows = o.group_batch_size ? o.group_batch_size : o.batch_size;
	r = check_options(&o, &l->fault);
	if (r == 0)
		r = delivery_create(&l->delivery, &o, &l->fault);
	if (l->delivery) { /* what the daemon makes; trainers that want different things of it can share one loader */
		o.dtype = BATCHD_UINT8;
		o.layout = BATCHD_NHWC;
	}
	if (r == 0)
		r = open_stream(l, &o, again, address);
	l->options.dtype = wanted->dtype; /* for a reconnect */
	l->options.layout = wanted->layout;
	if (r < 0) {
		*f = l->fault;
		strcpy(address, l->connection.address);
		unmapped = delivery_destroy(l->delivery, l->n_slots);
		l->delivery = NULL;
		if (l->slab && slab_detach(l->slab) && unmapped) {
			loader_send_close(l);
			if (r == DELIVERY_E_OTHER_WAY)
				await_end(&l->connection);
		}
		loader_destroy(l);
		return r;
	}
	*out = l;
	return 0;
}

int loader_open(const struct batchd_options *wanted, uint64_t born_ns, bool again, char *address,
		struct batchd_loader **out, struct fault *f)
{
	int r = open_once(wanted, born_ns, again, address, out, f);

	return r == DELIVERY_E_OTHER_WAY ? open_once(wanted, born_ns, again, address, out, f) : r;
}

/* A daemon that is away while a loader opens. One that has answered before is waited for as long as an open loader
 * waits for its own (reconnect_ms); an address where no daemon was seen may be misspelt. Only the time without a daemon
 * counts: how long one indexed the data or waited for a producer before it went away says nothing. */
struct outage {
	bool seen;                      /* a daemon was there, at `address` */
	char address[ADDRESS_MAX_BYTES];
	struct fault why;               /* it went away */
	uint64_t away_ns, began_ns;     /* in all, and since when this attempt */
	unsigned n_tries;               /* since it went away first */
};

static uint64_t most_ms(const struct outage *a, const struct batchd_options *o)
{
	return a->seen || o->reconnect_ms < CONNECTION_RETURN_MS ? o->reconnect_ms : CONNECTION_RETURN_MS;
}

static void note_seen(struct outage *a, const char *address, const struct fault *f)
{
	if (!a->seen)
		a->why = *f;
	a->seen = true;
	snprintf(a->address, sizeof a->address, "%s", address);
}

/* A daemon comes back to its own socket, where the other trainers of its job look for it, too; later any will do. */
static void choose_address(const struct outage *a, const struct batchd_options *o, char *address)
{
	bool same = a->seen && a->away_ns / 1000000 < o->reconnect_ms / CONNECTION_SAME_SHARE;

	snprintf(address, ADDRESS_MAX_BYTES, "%s", same ? a->address : "");
}

/* After a failure r: false if that is final; else a moment later. */
static bool waits_for_return(const struct batchd_options *o, int r, struct outage *a, struct fault *f)
{
	unsigned pause_ms = a->seen && a->n_tries < 5 ? CONNECTION_LOOK_MS << a->n_tries
			    : a->seen                 ? 1000
						      : CONNECTION_LOOK_MS;
	uint64_t away_ms;

	if (r == BATCHD_E_CONNECT)
		a->away_ns += loader_now_ns() - a->began_ns;
	away_ms = a->away_ns / 1000000;
	if (!(a->seen && r == BATCHD_E_CONNECT) && !connection_may_return(o->socket, r))
		return false;
	if (away_ms >= most_ms(a, o)) {
		if (a->seen && away_ms) {
			struct fault last = *f;

			fault_set(f, r, "%.2000s; it did not come back within %.1f s: %.2000s", a->why.text,
				  (double)away_ms / 1000, last.text);
		}
		return false;
	}
	if (o->on_progress && o->on_progress(o->progress_arg, "daemon", away_ms / 1000, most_ms(a, o) / 1000)) {
		fault_set(f, BATCHD_E_CANCELLED, "opening %s was cancelled", o->dataset);
		return false;
	}
	a->n_tries += a->seen;
	poll(NULL, 0, (int)pause_ms);
	a->away_ns += (uint64_t)pause_ms * 1000000;
	return true;
}

int batchd_open(const struct batchd_options *given, struct batchd_loader **out, char *err, size_t err_size)
{
	char address[ADDRESS_MAX_BYTES];
	struct batchd_options o;
	struct outage away = { 0 };
	struct fault f;
	int r;

	batchd_options_init(&o);
	memcpy(&o, given, given->size_bytes < sizeof o ? given->size_bytes : sizeof o);
	do {
		choose_address(&away, &o, address);
		away.began_ns = loader_now_ns();
		r = loader_open(&o, away.began_ns, false, address, out, &f);
		if (r == BATCHD_E_LOST || r == BATCHD_E_SHUTDOWN)
			note_seen(&away, address, &f);
	} while (r < 0 && waits_for_return(&o, r, &away, &f));
	return r == 0 ? 0 : fault_give(&f, err, err_size);
}
