/* Opening a link: checks the options, asks, checks the answer. */
#include "loader/open.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/delivery.h"
#include "loader/mix-loader.h"
#include "loader/position.h"
#include "link/source.h"

enum { MAX_SLOTS = 65536, MAX_GROUP = 1 << 24 };

/* ---- the request ---- */

/* The batch sizes that divide n, for a person. */
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
	if (o->group_batch_size > MAX_GROUP)
		return fault_set(f, BATCHD_E_INVALID, "group_batch_size must be 1 to %d, not %u", MAX_GROUP,
				 o->group_batch_size);
	if (o->group_batch_size % o->batch_size == 0)
		return 0;
	list_divisors(o->group_batch_size, sizes, sizeof sizes);
	return fault_set(f, BATCHD_E_INVALID,
			 "batch_size: the group's batches of %u rows cannot be cut into %u; sizes that fit: %s",
			 o->group_batch_size, o->batch_size, sizes);
}

static int check_fields(const struct batchd_options *o, struct fault *f)
{
	if (o->n_fields > WIRE_MAX_FIELDS)
		return fault_set(f, BATCHD_E_INVALID, "fields: %u names; a sample has at most %d", o->n_fields,
				 WIRE_MAX_FIELDS);
	for (uint32_t i = 0; i < o->n_fields; i++)
		if (!*o->fields[i] || !wire_text_ok(o->fields[i], strlen(o->fields[i]), WIRE_MAX_FIELD_NAME))
			return fault_set(f, BATCHD_E_INVALID,
					 "fields: name %u is empty, has more than %d bytes, or is not printable UTF-8",
					 i, WIRE_MAX_FIELD_NAME);
	return 0;
}

int open_check(const struct batchd_options *o, struct fault *f)
{
	int r;

	if (o->batch_size < 1) /* how large it may be is the daemon's to say (limits.batch_size) */
		return fault_set(f, BATCHD_E_INVALID, "batch_size must be at least 1");
	if (o->world_size < 1)
		return fault_set(f, BATCHD_E_INVALID, "world_size must be at least 1");
	if (o->rank >= 0 && (uint32_t)o->rank >= o->world_size)
		return fault_set(f, BATCHD_E_INVALID,
				 "rank must be below world_size: rank %d of a world_size of %u (ranks count from 0)",
				 o->rank, o->world_size);
	if (o->rank < 0 && o->mode == BATCHD_SHARD && o->world_size > 1)
		return fault_set(f, BATCHD_E_INVALID, "rank must be given: which of the %u trainers is this one?",
				 o->world_size);
	if (o->node_world_size > o->world_size || (o->node_world_size && o->node_rank >= o->node_world_size))
		return fault_set(f, BATCHD_E_INVALID,
				 "node_rank must be below node_world_size, and that at most world_size: "
				 "%u of %u of %u",
				 o->node_rank, o->node_world_size, o->world_size);
	r = check_share(o, f);
	if (r < 0)
		return r;
	if (o->own_batches && o->mode == BATCHD_SHARE)
		return fault_set(f, BATCHD_E_INVALID,
				 "share mode has one order for all: own batches do not go with it");
	if (o->dtype == BATCHD_BFLOAT16 && (!o->device || !*o->device || strcmp(o->device, "cpu") == 0))
		return fault_set(f, BATCHD_E_INVALID, "dtype: bfloat16 is made on a GPU only (option device)");
	if ((unsigned)o->dtype > BATCHD_BFLOAT16 && o->dtype != BATCHD_UINT16)
		return fault_set(f, BATCHD_E_INVALID,
				 "dtype: images are made as uint8, float16, float32 or, on a GPU, bfloat16; "
				 "images of modes I;16 and I also as uint16 and int32; arrays come as they are "
				 "stored, whatever dtype says");
	if ((unsigned)o->layout > BATCHD_AS_STORED || (unsigned)o->mode > BATCHD_SHARE)
		return fault_set(f, BATCHD_E_INVALID, "layout or mode is none of batchd.h's");
	if (o->job && !wire_text_ok(o->job, strlen(o->job), WIRE_MAX_JOB))
		return fault_set(f, BATCHD_E_INVALID, "job: the name has more than %d bytes, or is not printable UTF-8",
				 WIRE_MAX_JOB);
	if (o->transform && strlen(o->transform) > WIRE_MAX_TRANSFORM)
		return fault_set(f, BATCHD_E_INVALID, "transform: more than %d bytes", WIRE_MAX_TRANSFORM);
	return check_fields(o, f);
}

static int send_open(struct batchd_loader *l, struct link *k, const struct batchd_options *o, bool again,
		     struct fault *f)
{
	Batchd__Wire__Open open = BATCHD__WIRE__OPEN__INIT;

	open.sources = l->source.sources;
	open.transform = (char *)(o->transform ? o->transform : "");
	open.dtype = (Batchd__Wire__Dtype)o->dtype;
	open.layout = (Batchd__Wire__Layout)o->layout;
	open.batch_size = l->group_rows;
	open.own_batch_size = o->mode == BATCHD_SHARE ? o->batch_size : 0;
	open.policy = (Batchd__Wire__Policy)o->policy;
	open.shuffle = (uint32_t)o->shuffle;
	open.seed = o->seed;
	open.drop_last = o->drop_last && o->mode != BATCHD_SHARE; /* see slices.c */
	open.repeats = o->repeats;
	open.epoch_rows = o->epoch_rows;
	open.rank = o->rank < 0 && o->mode == BATCHD_SHARD ? 0 : o->rank;
	open.world_size = o->world_size;
	open.job = l->job.name;
	open.mode = (Batchd__Wire__Mode)o->mode;
	open.num_workers = o->num_workers;
	open.apply_exif = o->apply_exif > 0;
	open.leave_exif = o->apply_exif < 0;
	open.own_batches = !!o->own_batches;
	open.n_slots = o->n_slots;
	open.incarnation = o->incarnation;
	if (k->gpu)
		delivery_ask(delivery_of(k), &open);
	open.born_ns = l->born_ns;
	open.again = again;
	open.ring = RING_LAYOUT;
	open.producer_wait_ms = o->producer_timeout_ms;
	open.node_rank = o->node_rank;
	open.node_world_size = o->node_world_size;
	open.n_field = o->n_fields;
	open.field = (char **)o->fields;
	return connection_send(&k->connection, WIRE_CLIENT(OPEN, open, &open), l->source.fds, l->source.n_fds) < 0
		       ? connection_lost(&k->connection, f)
		       : 0;
}

/* ---- the answer ---- */

/* Waits for Opened, and reports progress to the caller meanwhile. */
static int await_opened(struct link *k, const struct batchd_options *o, const Batchd__Wire__Opened **opened, int *fds,
			struct fault *f)
{
	char phase[WIRE_MAX_PHASE + 1] = "";
	uint64_t done = 0, total = 0;

	for (;;) {
		const Batchd__Wire__ServerMessage *m;
		int r = connection_recv(&k->connection, 0, &m, fds, f);

		if (r < 0)
			return r;
		if (r == 0 && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED) {
			*opened = m->opened;
			return 0;
		}
		if (r == 0 && m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_PROGRESS)
			return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s answers an open with %s",
					 k->connection.address, wire_server_name(m));
		if (r == 0) {
			snprintf(phase, sizeof phase, "%s", m->progress->phase);
			done = m->progress->done;
			total = m->progress->total;
		}
		if (o->on_progress && o->on_progress(o->progress_arg, phase, done, total))
			return fault_set(f, BATCHD_E_CANCELLED, "opening %s was cancelled", o->dataset);
	}
}

/* Whether `count` items of `size` fit between offset and the slot's end. */
static bool open_fits(uint64_t offset, uint64_t count, uint64_t size, uint64_t slot_bytes)
{
	uint64_t n;

	return !__builtin_mul_overflow(count, size, &n) && offset <= slot_bytes && n <= slot_bytes - offset;
}

/* Checks every number that will be used as an offset, a size or an index. */
static int check_opened(struct link *k, const Batchd__Wire__Opened *m, uint32_t batch_size, struct fault *f)
{
	const struct link_field *label;
	const char *what = NULL;
	bool no_memory = false;

	if (m->n_slots < 1 || m->n_slots > MAX_SLOTS || m->window < 1 || m->window > m->n_slots)
		what = "an impossible number of slots";
	else if (!open_fits(0, m->n_slots, m->slot_bytes, m->slab_bytes) ||
		 !open_fits(m->indices_offset, batch_size, sizeof(int64_t), m->slot_bytes) || m->indices_offset % 8)
		what = "slots that are too small for a batch";
	else if (m->world_size < 1 || m->n_samples > INT64_MAX)
		what = "impossible numbers";
	else
		what = fields_take(m, batch_size, &k->fields, &no_memory);
	if (no_memory)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	k->row_bytes = !what && fields_first(&k->fields) ? fields_first(&k->fields)->item_bytes : 0;
	label = what ? NULL : fields_label(&k->fields);
	k->label_bytes = label ? label->item_bytes : 0;
	k->labels_offset = label ? label->offset : 0;
	return what ? fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s offers %s", k->connection.address, what) : 0;
}

static void fill_shapes(const struct link_fields *fields, struct batchd_info *i)
{
	const struct link_field *first = fields_first(fields), *label = fields_label(fields);

	i->label_dtype = BATCHD_INT64;
	if (first) {
		i->dtype = first->is.dtype;
		i->n_dims = first->is.n_dims;
		memcpy(i->shape, first->is.shape, sizeof i->shape);
		i->has_normalize = first->is.has_normalize;
		memcpy(i->mean, first->is.mean, sizeof i->mean);
		memcpy(i->std, first->is.std, sizeof i->std);
	}
	if (label) {
		i->label_dtype = label->is.dtype;
		i->n_label_dims = label->is.n_dims;
		memcpy(i->label_shape, label->is.shape, sizeof i->label_shape);
	}
}

static void fill_info(const struct batchd_loader *l, struct link *k, const Batchd__Wire__Opened *m, uint32_t batch_size)
{
	struct batchd_info *i = &k->info;

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
		.layout = (enum batchd_layout)m->layout,
		.socket = k->connection.address,
		.job = l->job.name,
		.daemon_version = k->connection.daemon_version,
		.group_batch_size = l->group_rows,
		.policy = (enum batchd_policy)m->policy,
	};
	fill_shapes(&k->fields, i);
	i->n_fields = m->served ? 0 : k->fields.n;
	k->content_id = i->content_id = m->content_id;
	k->pipeline_id = m->pipeline_id;
	k->n_slots = m->n_slots;
	k->indices_offset = (size_t)m->indices_offset;
	i->stored_dtype = i->dtype;
	i->stored_layout = i->layout;
	memcpy(i->stored_shape, i->shape, sizeof i->stored_shape);
	i->device = "cpu";
	i->device_reason = "";
	i->n_left_out = m->n_left_out;
	snprintf(k->left_out, sizeof k->left_out, "%s", m->left_out);
	i->left_out = k->left_out;
	i->can_finish = 1;
	i->finish_reason = "";
	i->served = m->served;
	i->n_samples_rank = l->own_batches ? 0 : position_n_rows(l, i, 0);
	i->n_batches = l->own_batches ? 0 : m->served ? m->n_batches : position_n_batches(l, i, 0);
}

static int take_opened(struct batchd_loader *l, struct link *k, const struct batchd_options *o,
		       const Batchd__Wire__Opened *m, const int *fds, struct fault *f)
{
	int r = check_opened(k, m, m->served ? 1 : l->group_rows, f);

	if (r < 0)
		return r;
	r = m->ring == RING_LAYOUT ? ring_map(&k->ring, fds[1]) : -EPROTO;
	if (r == -EPROTO)
		return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s offers a ring that cannot be used",
				 k->connection.address);
	if (r < 0)
		return fault_set(f, BATCHD_E_NOMEM, "cannot map the ring of batchd at %s: %s", k->connection.address,
				 strerror(-r));
	if (m->served && o->group_batch_size && o->group_batch_size != o->batch_size)
		return fault_set(f, BATCHD_E_INVALID,
				 "group_batch_size: a producer's batches are as large as it makes them");
	if (!m->served && o->producer_timeout_ms)
		return fault_set(f, BATCHD_E_INVALID,
				 "producer_timeout does nothing for this data set: it is the wait for the producer of "
				 "\"serve:NAME\": leave it out");
	fill_info(l, k, m, m->served ? m->n_rows : o->batch_size);
	k->lease = calloc(k->n_slots, sizeof *k->lease);
	if (!k->lease)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	r = slab_map(fds[0], m->n_slots, m->slot_bytes, o->writable, &k->slab, f);
	if (r == 0 && k->gpu)
		r = delivery_attach(k, m, fds[0], fds[2], f);
	return r < 0 || !l->mix ? r : mix_loader_attach(l, k, m, f);
}

/* ---- open ---- */

static char *open_copy_text(const char *text, bool *failed)
{
	char *copy = text ? strdup(text) : NULL;

	*failed |= text && !copy;
	return copy;
}

static const char *const *copy_fields(struct batchd_loader *l, const struct batchd_options *o)
{
	for (uint32_t i = 0; i < o->n_fields; i++) {
		snprintf(l->wanted_text[i], sizeof l->wanted_text[i], "%s", o->fields[i]); /* open_check: it fits */
		l->wanted[i] = l->wanted_text[i];
	}
	return l->wanted;
}

/* Keeps what a reconnect needs. */
static int keep_options(struct batchd_loader *l, const struct batchd_options *o, const char *device, struct fault *f)
{
	bool failed = false;

	job_init(&l->job, o, &l->source);
	l->options = *o;
	l->options.job = NULL; /* it is in l->job */
	l->options.device = open_copy_text(device, &failed);
	l->options.socket = open_copy_text(o->socket, &failed);
	l->options.dataset = l->source.text;
	l->options.transform = open_copy_text(o->transform, &failed);
	l->options.program = open_copy_text(o->program, &failed);
	l->options.mix = open_copy_text(o->mix, &failed);
	l->options.fields = copy_fields(l, o);
	return failed ? fault_set(f, BATCHD_E_NOMEM, "out of memory") : 0;
}

/* The options that a link sends to the daemon. */
static struct batchd_options link_options(const struct batchd_loader *l, const struct batchd_options *wanted,
					  const struct link *k)
{
	struct batchd_options o = *wanted;

	/* Trainers that convert the daemon's uint8 differently can share one loader. */
	if (k->gpu ? !l->floats_in_slots : mix_loader_wants_bytes(l, wanted)) {
		o.dtype = BATCHD_UINT8;
		o.layout = BATCHD_NHWC;
	} else if (k->gpu) {
		o.dtype = delivery_numbers(o.dtype);
	}
	return o;
}

static int connect_and_ask(struct batchd_loader *l, struct link *k, const struct batchd_options *wanted, bool again,
			   const char *address, struct fault *f)
{
	struct batchd_options o = link_options(l, wanted, k);
	int r = l->source.text ? source_open_fds(&l->source, f) : source_open(&l->source, o.dataset, f);

	if (r == 0)
		r = connection_open(&k->connection, *address ? address : o.socket, o.autostart && !*address, o.program,
				    f);
	if (r == 0 && !l->options.dataset) /* the first daemon that answers */
		r = keep_options(l, wanted, k->gpu ? delivery_of(k)->gpu.name : NULL, f);
	if (r == 0 && *k->connection.notice)
		loader_event(l, BATCHD_EVENT_OWN, k->connection.notice);
	if (r == 0)
		r = send_open(l, k, &o, again, f);
	source_close_fds(&l->source);
	return r;
}

static int await_and_take(struct batchd_loader *l, struct link *k, const struct batchd_options *o, struct fault *f)
{
	const Batchd__Wire__Opened *opened = NULL;
	int fds[CONNECTION_FDS] = { -1, -1, -1 }, r = await_opened(k, o, &opened, fds, f);

	if (r == 0)
		r = take_opened(l, k, o, opened, fds, f);
	for (unsigned i = 0; i < CONNECTION_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return r;
}

/* Waits until the daemon has closed the connection, and so has taken back what it lent; only a moment, in case it
 * hangs. */
static void await_end(struct connection *c)
{
	const Batchd__Wire__ServerMessage *m;
	struct fault f;
	int r;

	do
		r = connection_recv(c, 0, &m, NULL, &f);
	while (r == 0);
}

/* Reports what other trainers of the job do. 0, or BATCHD_E_STALLED if the trainer asked for that. */
static int on_notice(void *arg, const Batchd__Wire__Notice *n, struct fault *f)
{
	struct batchd_loader *l = arg;

	if (n->kind == BATCHD__WIRE__NOTICE_KIND__RANK_GOES_ON)
		loader_event(l, BATCHD_EVENT_GOES_ON, n->text);
	if (n->kind != BATCHD__WIRE__NOTICE_KIND__RANK_STALLED)
		return 0;
	loader_event(l, BATCHD_EVENT_STALLED, n->text);
	if (!l->options.stall_error)
		return 0;
	fault_set(f, 0, "%s", n->text);
	return BATCHD_E_STALLED;
}

static bool is_closed(const void *arg)
{
	return loader_is_closed(arg);
}

/* without_ipc: what the daemon offered first could not be opened by CUDA IPC. */
static int open_once(struct batchd_loader *l, const struct batchd_options *o, bool again, bool without_ipc,
		     char *address, struct link **out, struct fault *f)
{
	struct link_host host = { .lock = &l->lock, .is_closed = is_closed, .on_notice = on_notice, .arg = l };
	struct link *k = link_create(&host);
	int r;

	*out = NULL;
	if (!k)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	k->without_ipc = without_ipc;
	r = delivery_create(k, o, f);
	if (k->gpu)
		k->gpu->on_free = link_end_lease;
	if (r == 0)
		r = connect_and_ask(l, k, o, again, address, f);
	if (r == 0)
		r = await_and_take(l, k, o, f);
	if (r < 0) {
		strcpy(address, k->connection.address);
		if (r == DELIVERY_E_OTHER_WAY) {
			k->comes_again = true;
			link_leave(k);
			await_end(&k->connection);
			connection_close(&k->connection);
		}
		link_destroy(k);
		return r;
	}
	*out = k;
	return 0;
}

/* Whether this library makes the loader's floats, and may have the daemon make them instead. */
static bool finishes(const struct batchd_loader *l, const struct batchd_options *o)
{
	bool on_gpu = o->device && *o->device && strcmp(o->device, "cpu") != 0;

	return on_gpu ? o->dtype != BATCHD_UINT8 : mix_loader_finishes(o) && !l->share;
}

/* After a refusal: whether to ask again, for floats in place of bytes or the other way round. Some pipelines make
 * floats only, which a trainer learns by asking for bytes. A rank that opens meanwhile finds a job of the kind that it
 * did not ask for: of floats, which it can use, or one of bytes that is about to fail, with which it waits for that. */
static bool asks_otherwise(struct batchd_loader *l, const struct batchd_options *o, int refused, const struct fault *f)
{
	bool no_bytes = refused == BATCHD_E_INVALID && !l->floats_in_slots;

	if (!f->told || !finishes(l, o) || !(no_bytes || (refused == BATCHD_E_MISMATCH && f->dtype)))
		return false;
	l->floats_in_slots = !l->floats_in_slots;
	return true;
}

int open_link(struct batchd_loader *l, const struct batchd_options *o, bool again, char *address, struct link **out,
	      struct fault *f)
{
	/* Each rank that starts can make one more job of bytes; trainers that really differ are told so soon. */
	uint32_t tries = 4 + 2 * (o->world_size < 64 ? o->world_size : 64);
	int r = open_once(l, o, again, false, address, out, f);

	while (r < 0 && tries-- > 0 && asks_otherwise(l, o, r, f))
		r = open_once(l, o, again, false, address, out, f);
	return r == DELIVERY_E_OTHER_WAY ? open_once(l, o, again, true, address, out, f) : r;
}

void open_switch(struct batchd_loader *l, struct link *k)
{
	struct info_text *text = &l->text;

	snprintf(text->socket, sizeof text->socket, "%s", k->connection.address);
	snprintf(text->daemon_version, sizeof text->daemon_version, "%s", k->connection.daemon_version);
	snprintf(text->device, sizeof text->device, "%s", k->info.device);
	snprintf(text->device_reason, sizeof text->device_reason, "%s", k->info.device_reason);
	for (uint32_t i = 0; i < k->fields.n; i++) {
		text->field[i] = k->fields.list[i].is;
		strcpy(text->field_name[i], k->fields.list[i].name);
		text->field[i].name = text->field_name[i];
	}
	k->info.fields = text->field;
	k->info.socket = text->socket;
	k->info.daemon_version = text->daemon_version;
	k->info.device = text->device;
	snprintf(text->finish_reason, sizeof text->finish_reason, "%s", k->info.finish_reason);
	snprintf(text->left_out, sizeof text->left_out, "%s", k->info.left_out);
	k->info.device_reason = text->device_reason;
	k->info.left_out = text->left_out;
	k->info.finish_reason = text->finish_reason;
	l->link = k;
}
