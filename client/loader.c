/* Opening and closing a loader, and what it says about itself.
 *
 * Closing is the awkward part: tensors made from batches may outlive the loader, and the daemon must not wait for them. So
 * batchd_close puts copies of this process's own in the place of the batches still on loan, at the same addresses, tells the
 * daemon that all leases are over, and leaves the struct alive until the last batch is released. */
#include "loader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrays.h"
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

bool loader_is_foreign(const struct batchd_loader *l)
{
	return l->generation != process_generation();
}

int loader_send(struct batchd_loader *l, Batchd__Wire__ClientMessage *m)
{
	int r;

	pthread_mutex_lock(&l->lock);
	r = connection_send(&l->connection, m, NULL, 0);
	pthread_mutex_unlock(&l->lock);
	return r < 0 ? connection_lost(&l->connection, &l->fault) : 0;
}

static bool is_about_others(const Batchd__Wire__ServerMessage *m)
{
	return m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_NOTICE && m->notice->kind != BATCHD__WIRE__NOTICE_KIND__DIFFERENCE;
}

/* What others of the job do is told in passing. 0, or BATCHD_E_STALLED if that was asked for. */
static int take_notice(struct batchd_loader *l, const Batchd__Wire__Notice *n)
{
	if (n->kind == BATCHD__WIRE__NOTICE_KIND__RANK_GOES_ON)
		loader_event(l, BATCHD_EVENT_GOES_ON, n->text);
	if (n->kind != BATCHD__WIRE__NOTICE_KIND__RANK_STALLED)
		return 0;
	loader_event(l, BATCHD_EVENT_STALLED, n->text);
	if (!l->options.stall_error)
		return 0;
	fault_set(&l->fault, 0, "%s", n->text);
	return BATCHD_E_STALLED;
}

int loader_recv(struct batchd_loader *l, int flags, const Batchd__Wire__ServerMessage **m)
{
	int r;

	for (;;) {
		r = connection_recv(&l->connection, flags, m, NULL, &l->fault);
		if (r != 0 || !is_about_others(*m))
			return r;
		r = take_notice(l, (*m)->notice);
		if (r < 0)
			return r;
	}
}

/* ---- open ---- */

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
		return fault_set(f, BATCHD_E_INVALID, "%s goes with share mode", o->policy ? "policy" : "group_batch_size");
	if (!o->group_batch_size || o->group_batch_size == o->batch_size)
		return 0;
	if (!strncmp(o->dataset, "serve:", strlen("serve:")))
		return fault_set(f, BATCHD_E_INVALID, "group_batch_size: a producer's batches are as large as it makes them");
	if (o->group_batch_size > MAX_BATCH)
		return fault_set(f, BATCHD_E_INVALID, "group_batch_size must be 1 to %d, not %u", MAX_BATCH, o->group_batch_size);
	if (o->group_batch_size % o->batch_size == 0)
		return 0;
	list_divisors(o->group_batch_size, sizes, sizeof sizes);
	return fault_set(f, BATCHD_E_INVALID, "batch_size: the group's batches of %u rows cannot be cut into %u; sizes that fit: %s", o->group_batch_size,
			 o->batch_size, sizes);
}

static int check_options(const struct batchd_options *o, struct fault *f)
{
	int r;

	if (o->batch_size < 1 || o->batch_size > MAX_BATCH)
		return fault_set(f, BATCHD_E_INVALID, "batch_size must be 1 to %d, not %u", MAX_BATCH, o->batch_size);
	if (o->world_size < 1)
		return fault_set(f, BATCHD_E_INVALID, "world_size must be at least 1");
	if (o->rank >= 0 && (uint32_t)o->rank >= o->world_size)
		return fault_set(f, BATCHD_E_INVALID, "rank must be below world_size: %d of %u", o->rank, o->world_size);
	if (o->rank < 0 && o->mode == BATCHD_SHARD && o->world_size > 1)
		return fault_set(f, BATCHD_E_INVALID, "rank must be given: which of the %u trainers is this one?", o->world_size);
	r = check_share(o, f);
	if (r < 0)
		return r;
	if (o->own_batches && o->mode == BATCHD_SHARE)
		return fault_set(f, BATCHD_E_INVALID, "share mode has one order for all: own batches do not go with it");
	if (o->dtype == BATCHD_BFLOAT16 && (!o->device || !*o->device || strcmp(o->device, "cpu") == 0))
		return fault_set(f, BATCHD_E_INVALID, "dtype: bfloat16 is made on a GPU only (option device)");
	if ((unsigned)o->dtype > BATCHD_BFLOAT16 || (unsigned)o->layout > BATCHD_AS_STORED || (unsigned)o->mode > BATCHD_SHARE)
		return fault_set(f, BATCHD_E_INVALID, "dtype, layout or mode is none of batchd.h's");
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
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_OPEN;
	m.open = &open;
	return connection_send(&l->connection, &m, s->fds, s->n_fds) < 0 ? connection_lost(&l->connection, &l->fault) : 0;
}

/* Waits for Opened, telling the caller what happens meanwhile. */
static int await_opened(struct batchd_loader *l, const struct batchd_options *o, const Batchd__Wire__Opened **opened, int *fds)
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

static const size_t dtype_bytes[] = { 1, 2, 4, 4, 8, 8, 2, 1 };

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
	else if (!fits(0, m->n_slots, m->slot_bytes, m->slab_bytes) || !fits(0, batch_size, l->row_bytes, m->slot_bytes) ||
		 !fits(m->labels_offset, batch_size, l->label_bytes, m->slot_bytes) ||
		 !fits(m->indices_offset, batch_size, sizeof(int64_t), m->slot_bytes) || m->indices_offset % 8)
		what = "slots that are too small for a batch";
	else if (m->world_size < 1 || m->n_samples > INT64_MAX)
		what = "impossible numbers";
	return what ? fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s offers %s", l->connection.address, what) : 0;
}

static void fill_info(struct batchd_loader *l, const Batchd__Wire__Opened *m, uint32_t batch_size)
{
	struct batchd_info *i = &l->info;

	*i = (struct batchd_info){
		.size_bytes = sizeof *i,
		.dataset_id = m->dataset_id, .loader_id = m->loader_id, .n_samples = m->n_samples, .n_classes = m->n_classes,
		.rank = m->rank, .world_size = m->world_size, .batch_size = batch_size, .window = m->window,
		.n_dims = (uint32_t)m->n_shape, .n_label_dims = (uint32_t)m->n_label_shape,
		.dtype = (enum batchd_dtype)m->dtype, .label_dtype = (enum batchd_dtype)m->label_dtype, .layout = (enum batchd_layout)m->layout,
		.has_normalize = m->n_mean > 0,
		.socket = l->connection.address, .job = l->job.name, .daemon_version = l->connection.daemon_version,
		.group_batch_size = l->group_rows, .policy = (enum batchd_policy)m->policy,
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
	i->served = m->served;
	i->n_samples_rank = l->own_batches ? 0 : stream_n_rows(l, 0);
	i->n_batches = l->own_batches ? 0 : m->served ? m->n_batches : stream_n_batches(l, 0);
}

static int take_opened(struct batchd_loader *l, const struct batchd_options *o, const Batchd__Wire__Opened *m, const int *fds)
{
	int r = check_opened(l, m, m->served ? 1 : l->group_rows);

	if (r < 0)
		return r;
	r = !m->ring ? 0 : m->ring == RING_LAYOUT ? ring_map(&l->ring, fds[1]) : -EPROTO;
	if (r == -EPROTO)
		return fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s offers a control page that cannot be used", l->connection.address);
	if (r < 0)
		return fault_set(&l->fault, BATCHD_E_NOMEM, "cannot map the control page of batchd at %s: %s", l->connection.address, strerror(-r));
	l->served = m->served;
	if (m->served && o->group_batch_size && o->group_batch_size != o->batch_size)
		return fault_set(&l->fault, BATCHD_E_INVALID, "group_batch_size: a producer's batches are as large as it makes them");
	fill_info(l, m, m->served ? m->n_rows : o->batch_size);
	l->lease = calloc(l->n_slots, sizeof *l->lease);
	l->early = calloc(l->n_slots, sizeof *l->early);
	if (!l->lease || !l->early)
		return fault_set(&l->fault, BATCHD_E_NOMEM, "out of memory");
	r = slab_map(fds[0], m->n_slots, m->slot_bytes, o->writable, &l->slab, &l->fault);
	return r < 0 || !l->delivery ? r : delivery_attach(l, m, fds[0]);
}

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

static void free_classes(struct batchd_loader *l)
{
	for (uint32_t i = 0; l->classes && i < l->info.n_classes; i++)
		free(l->classes[i]);
	free(l->classes);
	l->classes = NULL;
}

static int open_stream(struct batchd_loader *l, const struct batchd_options *o, bool again)
{
	const Batchd__Wire__Opened *opened = NULL;
	struct source source;
	int fds[CONNECTION_FDS] = { -1, -1 }, r = source_open(&source, o->dataset, &l->fault);

	if (r == 0)
		r = connection_open(&l->connection, o->socket, o->autostart, o->program, &l->fault);
	if (r == 0) {
		job_init(&l->job, o, source.dataset);
		r = keep_options(l, o, source.dataset);
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

void loader_send_close(struct batchd_loader *l)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__Close body = BATCHD__WIRE__CLOSE__INIT;

	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_CLOSE;
	m.close = &body;
	if (l->connection.socket >= 0)
		connection_send(&l->connection, &m, NULL, 0);
}

void loader_destroy(struct batchd_loader *l)
{
	bool on_gpu = l->delivery != NULL, unmapped = delivery_destroy(l->delivery, l->n_slots);

	if (on_gpu && unmapped)
		loader_send_close(l); /* a former connection, whose daemon may be waiting for this */
	connection_close(&l->connection);
	job_finish(&l->job);
	slab_destroy(l->slab);
	ring_unmap(&l->ring);
	free_classes(l);
	stream_drop_pending(l);
	free((char *)l->options.socket);
	free((char *)l->options.dataset);
	free((char *)l->options.transform);
	free((char *)l->options.program);
	free((char *)l->options.device);
	free(l->early);
	free(l->lease);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

int loader_open(const struct batchd_options *wanted, uint64_t born_ns, bool again, struct batchd_loader **out, struct fault *f)
{
	struct batchd_options o = *wanted;
	struct batchd_loader *l = calloc(1, sizeof *l);
	bool unmapped;
	int r;

	*out = NULL;
	if (!l)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	pthread_mutex_init(&l->lock, NULL);
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
		r = open_stream(l, &o, again);
	l->options.dtype = wanted->dtype; /* for a reconnect */
	l->options.layout = wanted->layout;
	if (r < 0) {
		*f = l->fault;
		unmapped = delivery_destroy(l->delivery, l->n_slots);
		l->delivery = NULL;
		if (l->slab && slab_detach(l->slab) && unmapped)
			loader_send_close(l);
		loader_destroy(l);
		return r;
	}
	*out = l;
	return 0;
}

int batchd_open(const struct batchd_options *given, struct batchd_loader **out, char *err, size_t err_size)
{
	struct batchd_options o;
	struct fault f;

	batchd_options_init(&o);
	memcpy(&o, given, given->size_bytes < sizeof o ? given->size_bytes : sizeof o);
	if (loader_open(&o, loader_now_ns(), false, out, &f) == 0)
		return 0;
	return fault_give(&f, err, err_size);
}

/* ---- close ---- */

static bool is_over(const struct batchd_loader *l)
{
	return atomic_load(&l->n_leased) == 0 && !l->former;
}

void batchd_close(struct batchd_loader *l)
{
	bool last;

	if (!l)
		return;
	if (l->delivery && !loader_is_foreign(l)) {
		delivery_close(l);
		return;
	}
	if (loader_is_foreign(l)) {
		connection_close(&l->connection); /* this process's copy only; the rest may be in use by the parent's objects here */
		return;
	}
	pthread_mutex_lock(&l->lock);
	slices_stop(l);
	/* When memory is too short for copies the leases last until the process exits, which the daemon sees by itself. */
	if (slab_detach(l->slab) && !l->absence.lost)
		loader_send_close(l);
	connection_close(&l->connection);
	l->closed = l->detached = true;
	last = is_over(l);
	pthread_mutex_unlock(&l->lock);
	if (last)
		loader_destroy(l);
}

static bool holds(const struct batchd_loader *l, uint32_t slot, uint64_t generation)
{
	return slot < l->n_slots && l->lease[slot].held && l->lease[slot].generation == generation;
}

/* Of an earlier connection: the slot is a copy of ours, which goes. */
static int release_former(struct batchd_loader *l, uint64_t era, uint32_t slot, uint64_t generation)
{
	struct batchd_loader **at = &l->former, *f;

	while (*at && (*at)->era != era)
		at = &(*at)->former;
	f = *at;
	if (!f || !holds(f, slot, generation) || !f->lease[slot].n_out || (f->delivery && !delivery_may_release(f->delivery, slot)))
		return BATCHD_E_INVALID;
	if (lease_ends(&f->lease[slot]))
		loader_let_go(f, slot);
	if (atomic_load(&f->n_leased) == 0) {
		*at = f->former;
		f->former = NULL;
		loader_destroy(f);
	}
	return 0;
}

void loader_finish(struct batchd_loader *l)
{
	bool unmapped = delivery_destroy(l->delivery, l->n_slots); /* before the daemon hears that it may use its memory again */

	l->delivery = NULL;
	if (slab_detach(l->slab) && unmapped)
		loader_send_close(l); /* unless it is lost */
	loader_destroy(l);
}

/* The other end of a closed loader's life, and the ordinary end of a loan. */
void loader_end_lease(struct batchd_loader *l, uint32_t slot)
{
	/* All of our own book-keeping first: once the daemon knows, the slot may be lent again at once, to the thread in
	 * batchd_next. */
	l->lease[slot].held = false;
	if (l->detached)
		slab_drop(l->slab, slot);
	else
		slab_take_back(l->slab, slot);
	atomic_fetch_sub(&l->n_leased, 1);
	/* A connection that is cut has ended all loans; whoever waits for a batch next notices, and makes another. */
	if (!l->detached)
		(void)handover_release(l, slot, l->lease[slot].generation, l->lease[slot].wait_ns);
}

void loader_let_go(struct batchd_loader *l, uint32_t slot)
{
	if (l->delivery)
		delivery_let_go(l, slot);
	else
		loader_end_lease(l, slot);
}

static int release_current(struct batchd_loader *l, uint32_t slot, uint64_t generation)
{
	if (!holds(l, slot, generation) || !l->lease[slot].n_out || (l->delivery && !delivery_may_release(l->delivery, slot)))
		return BATCHD_E_INVALID;
	if (lease_ends(&l->lease[slot]))
		loader_let_go(l, slot);
	return 0;
}

int batchd_release(struct batchd_loader *l, uint32_t slot, uint64_t generation)
{
	uint64_t era = generation >> ERA_SHIFT;
	bool last, on_gpu;
	int r;

	if (loader_is_foreign(l))
		return BATCHD_E_FORKED;
	generation &= ((uint64_t)1 << ERA_SHIFT) - 1;
	pthread_mutex_lock(&l->lock);
	r = era == l->era ? release_current(l, slot, generation) : release_former(l, era, slot, generation);
	on_gpu = l->delivery != NULL;
	last = r == 0 && l->closed && !on_gpu && is_over(l);
	pthread_mutex_unlock(&l->lock);
	if (last)
		loader_destroy(l);
	if (on_gpu)
		delivery_reap();
	return r;
}

/* ---- what it is ---- */

const char *batchd_error(const struct batchd_loader *l)
{
	return loader_is_foreign(l) ? "this loader belongs to the parent process: open one after the fork" : l->fault.text;
}

void batchd_get_info(const struct batchd_loader *l, struct batchd_info *info)
{
	size_t n = info->size_bytes;

	memcpy(info, &l->info, n < sizeof *info ? n : sizeof *info);
	info->size_bytes = n;
}

uint32_t batchd_n_leased(const struct batchd_loader *l)
{
	if (loader_is_foreign(l))
		return 0;
	return l->delivery ? delivery_n_held((struct batchd_loader *)l) : atomic_load(&l->n_leased);
}

int batchd_fd(const struct batchd_loader *l)
{
	return l->absence.lost ? -1 : l->connection.socket;
}

int batchd_arrays(struct batchd_loader *l, const struct batchd_batch *b, struct batchd_array *arrays, uint32_t max, const char **text, size_t *n_text)
{
	struct fault f = { 0 };
	int r = BATCHD_E_FORKED;

	if (loader_is_foreign(l))
		return r;
	r = l->served ? arrays_read(b->data, (size_t)l->row_bytes, arrays, max, text, n_text, &f) :
			fault_set(&f, BATCHD_E_INVALID, "batchd_arrays is for batches of producers (serve:NAME)");
	if (r < 0) {
		l->fault = f;
		l->fault.code = 0; /* the next batch may be a better one */
	}
	return r;
}

/* ---- classes ---- */

static int ask_classes(struct batchd_loader *l, uint32_t first)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__ClassesRequest body = BATCHD__WIRE__CLASSES_REQUEST__INIT;

	body.first = first;
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_CLASSES;
	m.classes = &body;
	return loader_send(l, &m);
}

/* The names from `first` on, as many as one packet holds; *n says how many. Batches that come first are kept. */
static int take_classes(struct batchd_loader *l, uint32_t first, uint32_t *n)
{
	const Batchd__Wire__ServerMessage *m;
	int r;

	do {
		r = loader_recv(l, 0, &m);
		if (r == 0 && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH)
			r = stream_keep_early(l, m->batch) < 0 ? l->fault.code : BATCHD_AGAIN;
		else if (r == 0 && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_WAKE)
			r = handover_heard_wake(l);
	} while (r == BATCHD_AGAIN);
	if (r < 0)
		return r;
	if (m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_CLASSES || m->classes->first != first || !m->classes->n_name ||
	    m->classes->n_name > l->info.n_classes - first)
		return fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s does not tell its classes", l->connection.address);
	*n = (uint32_t)m->classes->n_name;
	for (uint32_t i = 0; i < *n; i++) {
		l->classes[first + i] = strdup(m->classes->name[i]);
		if (!l->classes[first + i])
			return fault_set(&l->fault, BATCHD_E_NOMEM, "out of memory");
	}
	return 0;
}

static int fetch_classes(struct batchd_loader *l)
{
	uint32_t n = 0;
	int r = 0;

	l->classes = calloc(l->info.n_classes, sizeof *l->classes);
	if (!l->classes)
		return fault_set(&l->fault, BATCHD_E_NOMEM, "out of memory");
	for (uint32_t first = 0; r == 0 && first < l->info.n_classes; first += n) {
		r = ask_classes(l, first);
		if (r == 0)
			r = take_classes(l, first, &n);
	}
	return r;
}

const char *batchd_class(struct batchd_loader *l, uint32_t i)
{
	int r;

	if (loader_is_foreign(l) || l->fault.code || i >= l->info.n_classes)
		return NULL;
	while (!l->classes) {
		if (l->absence.lost && loader_reconnect(l, BATCHD_FOREVER) < 0)
			return NULL;
		r = fetch_classes(l);
		if (r < 0)
			free_classes(l);
		if (r < 0 && !loader_is_lost(l, r))
			return NULL;
	}
	return l->classes[i];
}
