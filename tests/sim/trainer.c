/* Trainers: what they may do, at any moment and in any order; and what they must see, whatever other trainers do. See
 * sim.h. */
#include "server/session-message.h"
#include "sim.h"
#include "../support/sources-text.h"

#include "batch/plan/plan.h"

struct sim_trainer sim_trainers[SIM_MAX_TRAINERS];
bool sim_claims_hold; /* false: another history begins */

#define NUMBER(t) ((unsigned)((t) - sim_trainers))

/* ---- what a trainer sends ---- */

#define SAY(t, BODY, field, pointer, lease) \
	do { \
		Batchd__Wire__ClientMessage say_m = BATCHD__WIRE__CLIENT_MESSAGE__INIT; \
		say_m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_##BODY; \
		say_m.field = (pointer); \
		sim_send((t)->socket, &say_m, (lease)); \
	} while (0)

static void say_wake(struct sim_trainer *t)
{
	Batchd__Wire__Wake w = BATCHD__WIRE__WAKE__INIT;
	SAY(t, WAKE, wake, &w, -1);
}

/* Sends through the ring, as the library does. Some messages are sent as packets, which is allowed. Illegal messages
 * are also sent as packets, so that they can be told apart. */
static bool put_release(struct sim_trainer *t, Batchd__Wire__Release *r)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_RELEASE;
	m.release = r;
	if (sim_chance(5) || ring_put(&t->ring.releases, &m.base))
		return false;
	if (ring_wake_daemon_released(&t->ring))
		say_wake(t);
	return true;
}

static void say_release(struct sim_trainer *t, uint32_t slot, uint64_t generation, bool legal)
{
	Batchd__Wire__Release r = BATCHD__WIRE__RELEASE__INIT;
	r.slot = slot;
	r.generation = generation;
	if (legal && put_release(t, &r))
		return;
	SAY(t, RELEASE, release, &r, legal ? (int64_t)slot : -1);
}

/* Which trainer has ever asked for which rank in this history, in this order. */
static struct claim {
	const struct sim_job *job;
	pid_t pid;
	int32_t rank;
	bool again;
	uint64_t born_ns, incarnation;
} claims[1024];
static unsigned n_claims;

static void note_claim(struct sim_trainer *t)
{
	if (!sim_claims_hold)
		n_claims = 0;
	sim_claims_hold = true;
	SIM_CHECK(n_claims < sizeof(claims) / sizeof(claims[0]), "too many claims");
	t->claim = n_claims;
	claims[n_claims++] = (struct claim){ t->job, t->pid, t->wanted_rank, t->again, t->born_ns, t->incarnation };
}

/* Whether a newer claim may take this trainer's place: a newer incarnation, or a newer trainer of its rank. A trainer
 * that comes back is as old as before. */
static bool may_be_fenced(const struct sim_trainer *t)
{
	const struct claim *mine = &claims[t->claim];
	for (unsigned i = 0; i < n_claims; i++) {
		const struct claim *c = &claims[i];
		if (c->job != mine->job)
			continue;
		bool same = c->rank < 0 || mine->rank < 0 || c->rank == mine->rank;
		bool by_birth = (c->again || mine->again) && c->born_ns != mine->born_ns;
		bool newer = by_birth ? c->born_ns > mine->born_ns : i > t->claim;
		if (c->incarnation > mine->incarnation || (c->pid != mine->pid && same && newer))
			return true;
	}
	return false;
}

static void open_session(struct sim_trainer *t)
{
	Batchd__Wire__Hello h = BATCHD__WIRE__HELLO__INIT;
	Batchd__Wire__Open o = BATCHD__WIRE__OPEN__INIT;
	struct sim_job *j = t->job;
	struct sim_socket *previous = t->socket;
	note_claim(t);
	t->phase = SIM_OPENING;
	t->socket = sim_connect(t->pid, j->uid);
	t->socket->previous = previous;
	h.version = WIRE_VERSION;
	h.program = (char *)"trainer";
	SAY(t, HELLO, hello, &h, -1);
	o.sources = sources_of(j->dataset);
	o.transform = (char *)"";
	o.dtype = BATCHD__WIRE__DTYPE__FLOAT32;
	o.batch_size = j->batch_size;
	o.shuffle = j->shuffle;
	o.seed = j->seed;
	o.drop_last = j->drop_last;
	o.rank = t->wanted_rank;
	o.world_size = j->world_size;
	o.job = j->name;
	o.mode = j->share ? BATCHD__WIRE__MODE__SHARE : BATCHD__WIRE__MODE__SHARD;
	o.own_batches = j->own;
	o.policy = j->share ? (Batchd__Wire__Policy)(j->policy + 1) : BATCHD__WIRE__POLICY__POLICY_DEFAULT;
	o.n_slots = j->n_slots;
	if (sim_has(SIM_ASKS) && j->share && !j->served && sim_chance(50))
		/* this is the library's business, but the status shows it */
		o.own_batch_size = j->batch_size % 2 ? 1 : j->batch_size / 2;
	o.incarnation = t->incarnation;
	o.born_ns = t->born_ns;
	o.again = t->again;
	o.ring = RING_LAYOUT;
	if (t->wanted_gpu) {
		static unsigned char uuid[GPU_UUID_BYTES];
		sim_gpu_uuid(t->wanted_gpu - 1, uuid);
		o.device_uuid = (ProtobufCBinaryData){ GPU_UUID_BYTES, uuid };
		o.device_kinds = 1u << BATCHD__WIRE__SLAB_KIND__CUDA_IPC;
		if (t->is_stranger || (sim_has(SIM_STRANGERS) && sim_chance(50)))
			o.device_kinds |= 1u << BATCHD__WIRE__SLAB_KIND__CUDA_VMM_FD;
		o.pid_namespace = t->is_stranger;
		o.driver_version = sim_chance(95) ? SIM_DRIVER_VERSION : SIM_DRIVER_VERSION - 1000;
	}
	SAY(t, OPEN, open, &o, -1);
	sim_trace("trainer %u: opens %s as rank %d, incarnation %u%s", NUMBER(t), j->name, t->wanted_rank,
		  (unsigned)t->incarnation, t->again ? ", again" : "");
}

void sim_trainer_join(struct sim_trainer *t, struct sim_job *j, int32_t rank)
{
	static pid_t last_pid = 5000000; /* above the largest PID of this machine, so no real process has it */
	const bool again = sim_has(SIM_SPARES) && t->left && !t->socket->dead;
	const pid_t pid = again ? t->pid : ++last_pid;
	struct sim_socket *previous = again ? t->socket : NULL;
	memset(t, 0, offsetof(struct sim_trainer, held));
	t->job = j;
	t->pid = pid;
	t->socket = previous;
	t->wanted_rank = rank;
	t->incarnation = j->incarnation;
	t->born_ns = sim_has(SIM_RESTARTS) ? (uint64_t)t->pid : 0;
	if (sim_has(SIM_GPUS) && sim_chance(70))
		t->wanted_gpu = sim_chance(5) ? 3 : 1 + sim_below(2);
	t->is_stranger = t->wanted_gpu && sim_has(SIM_STRANGERS) && sim_chance(50);
	t->greedy = sim_has(SIM_GREEDY) && sim_chance(40);
	open_session(t);
}

/* ---- coming back ---- */

static void close_gpu(struct sim_trainer *t)
{
	sim_gpu_close_handle(t->gpu);
	t->gpu = NULL;
}

/* What came for batches that are still in the ring. */
static void forget_large(struct sim_trainer *t)
{
	while (t->n_large)
		sim_slab_unref(t->large[--t->n_large]);
}

/* It no longer reads its batches. */
static void forget_held(struct sim_trainer *t)
{
	for (unsigned i = 0; i < t->n_held; i++)
		sim_slab_unref(t->held[i].large);
	t->n_held = t->n_hoard = 0;
}

static void forget_old(struct sim_trainer *t)
{
	for (unsigned i = 0; i < t->old.n_held; i++)
		sim_slab_unref(t->old.held[i].large);
	sim_slab_unref(t->old.slab);
	free(t->old.held);
	t->old = (struct sim_old){ 0 };
}

bool sim_trainer_may_return(const struct sim_trainer *t)
{
	bool lost = !t->error || t->error == BATCHD__WIRE__ERROR_CODE__SHUTDOWN ||
		    t->error == BATCHD__WIRE__ERROR_CODE__GPU_LOST;
	return t->phase == SIM_CLOSED && lost && sim_has(SIM_RESTARTS) && !sim_engine.stopping && !t->misbehaved &&
	       !t->stopped && !t->gave_up;
}

/* The trainer keeps reading what it holds, in the memory of the old connection. */
void sim_trainer_returns(struct sim_trainer *t)
{
	forget_old(t);
	close_gpu(t);
	t->old = (struct sim_old){ .slab = t->slab,
				   .slot_bytes = t->slot_bytes,
				   .n_held = t->n_held,
				   .held = malloc((t->n_held + 1) * sizeof(t->held[0])) };
	memcpy(t->old.held, t->held, t->n_held * sizeof(t->held[0]));
	ring_unmap(&t->ring);
	t->slab = NULL;
	t->n_held = t->n_hoard = 0;
	forget_large(t);
	t->batches = t->releases = (struct sim_lane){ 0 };
	t->error = BATCHD__WIRE__ERROR_CODE__OK;
	t->said_waiting = false;
	t->again = true;
	t->began = t->began && t->expect.epoch != UINT64_MAX;
	open_session(t);
}

static void seek(struct sim_trainer *t, struct position to)
{
	Batchd__Wire__Seek s = BATCHD__WIRE__SEEK__INIT;
	if (!t->job->own && !t->job->served && to.step >= sim_n_batches(t->job, to.base))
		return; /* both sides know that nothing is left */
	t->job->n_odd_seeks += to.step > 0;
	t->job->unbalanced |= to.epoch || to.step || t->phase == SIM_STREAMING;
	t->expect = to;
	t->began = true;
	t->waits_for_epoch = false;
	t->next_push = to.step;
	t->phase = SIM_STREAMING;
	s.seek = ++t->seek;
	s.epoch = to.epoch;
	s.base_sample = to.base;
	s.step = to.step;
	SAY(t, SEEK, seek, &s, -1);
	sim_trace("trainer %u: seeks %u.%u.%u (%u)", NUMBER(t), (unsigned)to.epoch, (unsigned)to.base,
		  (unsigned)to.step, (unsigned)t->seek);
}

static bool join(struct sim_trainer *t)
{
	Batchd__Wire__Join j = BATCHD__WIRE__JOIN__INIT;
	bool open = t->job->served ? t->job->share : t->job->async;
	if (!open || t->job->world_size > 1 || (!t->job->served && !sim_n_batches(t->job, 0)) || sim_chance(40))
		return false;
	j.seek = ++t->seek;
	/* a producer does not seek back to the start for a trainer */
	j.start = t->start = (Batchd__Wire__Start)sim_below(t->job->served ? 2 : 3);
	t->waits_for_epoch = j.start == BATCHD__WIRE__START__AT_EPOCH;
	t->phase = SIM_STREAMING;
	t->expect = (struct position){ .epoch = UINT64_MAX };
	SAY(t, JOIN, join, &j, -1);
	sim_trace("trainer %u: joins at %d (%u)", NUMBER(t), (int)j.start, (unsigned)t->seek);
	return true;
}

static void see_joined(struct sim_trainer *t, const Batchd__Wire__Joined *j)
{
	SIM_CHECK(j->seek <= t->seek, "trainer %u: joined without asking", NUMBER(t));
	if (j->seek != t->seek)
		return;
	t->job->n_odd_seeks += t->job->served && j->step > 0;
	SIM_CHECK(t->start == BATCHD__WIRE__START__AT_NEXT || (!j->step && !j->base_sample),
		  "trainer %u: an epoch's first batch is not %u.%u", NUMBER(t), (unsigned)j->base_sample,
		  (unsigned)j->step);
	t->expect = (struct position){ .epoch = j->epoch, .base = j->base_sample, .step = j->step };
	t->began = true;
}

static bool go_on(struct sim_trainer *t)
{
	if (t->again && t->began && t->phase == SIM_ATTACHED)
		seek(t, t->expect);
	return t->phase == SIM_STREAMING;
}

void sim_trainer_seeks(struct sim_trainer *t)
{
	if ((t->phase == SIM_ATTACHED && go_on(t)) || join(t))
		return;
	bool whole = t->job->own || t->job->served || (t->job->share && !t->job->async && !sim_has(SIM_BASES));
	struct position to = { .epoch = sim_below(2),
			       .base = whole || sim_chance(60) ? 0 : sim_below(t->job->n_samples) };
	uint64_t n = t->job->own ? 3
		     : t->job->served
			     ? (sim_chance(sim_has(SIM_APART) ? 70 : 20) ? sim_made_per_rank(t->job, to.epoch) + 1 : 0)
			     : sim_n_batches(t->job, to.base);
	to.step = n && sim_chance(50) ? sim_below((uint32_t)n) : 0;
	seek(t, to);
}

static bool push(struct sim_trainer *t)
{
	Batchd__Wire__Indices x = BATCHD__WIRE__INDICES__INIT;
	unsigned at = t->next_push % 8;
	if (!t->job->own || t->phase != SIM_STREAMING || t->next_push >= t->expect.step + 4)
		return false;
	t->pushed_n[at] = 1 + sim_below(t->job->batch_size);
	for (unsigned i = 0; i < t->pushed_n[at]; i++)
		t->pushed[at][i] = sim_below(t->job->n_samples);
	uint32_t first = t->pushed_n[at] > 1 && sim_chance(30) ? 1 : 0;
	x.seek = t->seek;
	x.step = t->next_push++;
	if (first) { /* in two packets */
		x.index = t->pushed[at];
		x.n_index = first;
		x.more = true;
		SAY(t, INDICES, indices, &x, -1);
	}
	x.index = t->pushed[at] + first;
	x.n_index = t->pushed_n[at] - first;
	x.more = false;
	SAY(t, INDICES, indices, &x, -1);
	return true;
}

/* ---- what a trainer sees ---- */

static void look_at(const struct sim_trainer *t, const struct sim_slab *slab, size_t slot_bytes,
		    const struct sim_held *h)
{
	const uint8_t *base = h->large ? h->large->base : slab->base + h->slot * slot_bytes;
	for (uint32_t i = 0; i < h->n_rows; i++) {
		uint64_t stamp[2];
		sim_stamp(h->index[i], stamp);
		SIM_CHECK(!memcmp(base + (size_t)i * SIM_ROW_BYTES, stamp, sizeof(stamp)),
			  "trainer %u: slot %u, row %u: not the bytes of sample %u", NUMBER(t), h->slot, i,
			  (unsigned)h->index[i]);
	}
}

/* The same on the trainer's GPU, while it is connected. */
static void look_at_gpu(const struct sim_trainer *t, const struct sim_held *h)
{
	if (!t->gpu || t->phase != SIM_STREAMING || h->large)
		return; /* of a large batch the trainer makes a copy itself */
	size_t slot_bytes = t->slot_bytes;
	SIM_CHECK(!t->gpu->freed || t->gpu->base.left || t->gpu->base.share == GPU_SHARE_FD,
		  "trainer %u: its memory on the GPU is gone", NUMBER(t));
	SIM_CHECK(!memcmp(t->gpu->memory + h->slot * slot_bytes, t->slab->base + h->slot * slot_bytes,
			  h->n_rows * SIM_ROW_BYTES),
		  "trainer %u: slot %u is not the same on the GPU", NUMBER(t), h->slot);
}

void sim_trainer_looks(struct sim_trainer *t)
{
	if (t->lies)
		return;
	for (unsigned i = 0; i < t->n_held; i++) {
		look_at(t, t->slab, t->slot_bytes, &t->held[i]);
		look_at_gpu(t, &t->held[i]);
	}
	for (unsigned i = 0; i < t->old.n_held; i++)
		look_at(t, t->old.slab, t->old.slot_bytes, &t->old.held[i]);
}

/* From a producer: a batch, or the mark at the end of an epoch. */
static void expect_made(struct sim_trainer *t, const Batchd__Wire__Batch *b, struct sim_held *h)
{
	struct sim_job *j = t->job;
	uint64_t step = j->share ? b->step : b->step * j->world_size + t->rank;
	uint64_t n = sim_made_per_rank(j, b->epoch);
	/* With producers that neither count nor go back, no last round is certain while a rank is elsewhere. */
	bool unsure = !j->counts && !j->resumable && j->unbalanced;
	bool mark = b->last && (b->step == n || (unsure && b->step + 1 == n));
	SIM_CHECK(b->last == mark && (mark || b->step < n),
		  "trainer %u: epoch %u has %u batches for each rank, not %u%s", NUMBER(t), (unsigned)b->epoch,
		  (unsigned)n, (unsigned)b->step, b->last ? "" : " and more");
	SIM_CHECK(b->n_rows == (mark ? 0 : sim_made_rows(b->epoch, step)), "trainer %u: %u rows in batch %u", NUMBER(t),
		  b->n_rows, (unsigned)b->step);
	h->n_rows = !mark;
	h->index[0] = sim_made_index(b->epoch, step);
}

static void expect_rows(struct sim_trainer *t, const Batchd__Wire__Batch *b, struct sim_held *h)
{
	struct sim_job *j = t->job;
	h->n_rows = b->n_rows;
	if (j->own) {
		unsigned at = b->step % 8;
		SIM_CHECK(b->n_rows == t->pushed_n[at] && !b->last, "trainer %u: %u rows of own batch %u", NUMBER(t),
			  b->n_rows, (unsigned)b->step);
		memcpy(h->index, t->pushed[at], sizeof(h->index));
		return;
	}
	if (j->served) {
		expect_made(t, b, h);
		return;
	}
	struct plan *plan = sim_plan(j, t->expect.epoch, t->expect.base);
	uint32_t rank = j->share ? 0 : t->rank, n_padding = 0;
	uint64_t begin = b->step * j->batch_size, left = plan_n_per_rank(plan) - begin;
	uint32_t n = left < j->batch_size ? (uint32_t)left : j->batch_size;
	SIM_CHECK(b->n_rows == n, "trainer %u: %u rows instead of %u in batch %u", NUMBER(t), b->n_rows, n,
		  (unsigned)b->step);
	for (uint32_t i = 0; i < n; i++) {
		h->index[i] = plan_at(plan, rank, begin + i);
		n_padding += plan_is_padding(plan, rank, begin + i);
	}
	SIM_CHECK(b->n_padding == n_padding, "trainer %u: %u padding rows instead of %u", NUMBER(t), b->n_padding,
		  n_padding);
	SIM_CHECK(b->last == (b->step + 1 == sim_n_batches(j, t->expect.base)),
		  "trainer %u: batch %u is wrong about being the last", NUMBER(t), (unsigned)b->step);
}

static bool read_packet(struct sim_trainer *t);

/* The memory of the batch that has come, which was sent before it; a reference. NULL: it lies in its slot. */
static struct sim_slab *take_large(struct sim_trainer *t, const Batchd__Wire__Batch *b)
{
	if (!b->large_bytes)
		return NULL;
	while (!t->n_large && t->socket->to_client.n)
		read_packet(t);
	SIM_CHECK(t->n_large, "trainer %u: a large batch without its memory", NUMBER(t));
	struct sim_slab *slab = t->large[0];
	memmove(&t->large[0], &t->large[1], --t->n_large * sizeof(t->large[0]));
	SIM_CHECK(slab->bytes == b->large_bytes && t->job->served, "trainer %u: the memory of another batch",
		  NUMBER(t));
	return slab;
}

static void see_batch(struct sim_trainer *t, const Batchd__Wire__Batch *b)
{
	Batchd__Wire__Batch copy = *b; /* its message goes with the next one that is read */
	struct sim_slab *large = take_large(t, b);
	b = &copy;
	SIM_CHECK(t->phase == SIM_STREAMING && b->slot < t->n_slots && b->seek <= t->seek,
		  "trainer %u: a batch it did not ask for", NUMBER(t));
	SIM_CHECK(t->n_held < sizeof(t->held) / sizeof(t->held[0]), "trainer %u: more leases than there can be",
		  NUMBER(t));
	if (t->said_waiting)
		ring_stop_waiting(&t->ring);
	t->said_waiting = false;
	struct position at = { .epoch = b->epoch, .step = b->step };
	SIM_CHECK(b->generation > t->last_generation[b->slot] || (b->generation == t->last_generation[b->slot] &&
								  !position_compare(&at, &t->last_at[b->slot])),
		  "trainer %u: slot %u in generation %u again, with something else", NUMBER(t), b->slot,
		  (unsigned)b->generation);
	t->last_generation[b->slot] = b->generation;
	t->last_at[b->slot] = at;
	if (b->seek < t->seek)
		sim_slab_unref(large);
	if (b->seek < t->seek && t->greedy && t->n_hoard < SIM_MAX_HOARD) {
		t->hoard[t->n_hoard++] = (struct sim_hoard){ b->slot, b->generation };
		return;
	}
	if (b->seek < t->seek) {
		say_release(t, b->slot, b->generation, true);
		return;
	}
	SIM_CHECK(!b->n_skipped || (t->job->async && t->job->policy == GROUP_SKIP),
		  "trainer %u: missed batches, which is not the policy", NUMBER(t));
	for (uint64_t i = 0; i < b->n_skipped; i++) {
		t->expect.step++;
		if (t->expect.step == sim_n_batches(t->job, t->expect.base))
			t->expect = (struct position){ .epoch = t->expect.epoch + 1 };
	}
	SIM_CHECK(b->epoch == t->expect.epoch && b->step == t->expect.step,
		  "trainer %u: batch %u.%u instead of %u.%u.%u", NUMBER(t), (unsigned)b->epoch, (unsigned)b->step,
		  (unsigned)t->expect.epoch, (unsigned)t->expect.base, (unsigned)t->expect.step);
	struct sim_held *h = &t->held[t->n_held++];
	*h = (struct sim_held){ .slot = b->slot, .generation = b->generation, .large = large };
	expect_rows(t, b, h);
	const uint8_t *base = t->slab->base + b->slot * t->slot_bytes;
	static const struct slot_field fields[] = { { .item_bytes = SIM_ROW_BYTES },
						    { .item_bytes = sizeof(int64_t) } };
	struct slot_layout layout;
	SIM_CHECK(slot_layout_make(fields, 2, t->job->batch_size, &layout) == 0, "no layout");
	for (uint32_t i = 0; !t->job->served && i < h->n_rows; i++) {
		int64_t index;
		memcpy(&index, base + layout.indices_offset + i * sizeof(index), sizeof(index));
		SIM_CHECK((uint64_t)index == h->index[i], "trainer %u: batch %u, row %u is sample %u instead of %u",
			  NUMBER(t), (unsigned)b->step, i, (unsigned)index, (unsigned)h->index[i]);
	}
	look_at(t, t->slab, t->slot_bytes, h);
	look_at_gpu(t, h);
	t->n_got++;
	t->expect.step++;
	if (b->last)
		t->expect = (struct position){ .epoch = t->expect.epoch + 1 };
}

static void see_opened(struct sim_trainer *t, const Batchd__Wire__Opened *o, struct sim_packet *k)
{
	SIM_CHECK(k->slab && t->phase == SIM_OPENING, "trainer %u: Opened out of place", NUMBER(t));
	t->slab = k->slab;
	k->slab = NULL;
	t->slab->reader = !t->slab->reader || t->slab->reader == t->pid ? t->pid : -1;
	SIM_CHECK(t->slab->sealed, "trainer %u: a slab that a producer may still map", NUMBER(t));
	SIM_CHECK(o->n_batches == (t->job->is_known ? sim_made_per_rank(t->job, 0) : 0),
		  "trainer %u: Opened is wrong about the epochs", NUMBER(t));
	SIM_CHECK(o->served == t->job->served, "trainer %u: Opened is wrong about the producer", NUMBER(t));
	SIM_CHECK(o->ring == RING_LAYOUT, "trainer %u: Opened without a ring", NUMBER(t));
	sim_page_map(k->page, &t->ring);
	if (k->gpu) {
		t->gpu = k->gpu;
		k->gpu = NULL;
	} else if (o->device_uuid.len) {
		SIM_CHECK(!t->is_stranger, "trainer %u: memory that it cannot open", NUMBER(t));
		t->gpu = sim_gpu_open_handle(o->ipc_handle.data);
	}
	SIM_CHECK(!t->wanted_gpu || o->device_uuid.len || *o->device_reason, "trainer %u: no GPU, and no reason",
		  NUMBER(t));
	SIM_CHECK(!t->gpu || t->gpu->params.uuid[0] == t->wanted_gpu, "trainer %u: another GPU", NUMBER(t));
	t->n_slots = o->n_slots;
	t->slot_bytes = o->slot_bytes;
	SIM_CHECK(t->n_slots <= SIM_MAX_SLOTS, "trainer %u: %u slots", NUMBER(t), t->n_slots);
	memset(t->last_generation, 0, t->n_slots * sizeof(t->last_generation[0]));
	t->rank = o->rank;
	t->phase = SIM_ATTACHED;
	SIM_CHECK(o->slab_bytes == t->slab->bytes && o->n_slots * o->slot_bytes <= o->slab_bytes &&
			  (o->served || (o->n_field == 2 && o->field[1]->offset >= SIM_ROW_BYTES)),
		  "trainer %u: Opened is wrong about the slab", NUMBER(t));
	SIM_CHECK(t->wanted_rank < 0 || o->rank == (uint32_t)t->wanted_rank, "trainer %u: rank %u instead of %d",
		  NUMBER(t), o->rank, t->wanted_rank);
}

static bool is_fair_about_producer(const struct sim_job *j, const char *text)
{
	bool cannot = strstr(text, "cannot begin with"), feeds = strstr(text, "feeds job"),
	     never = strstr(text, "no producer named");
	return j->served && !feeds && (cannot ? !j->resumable && j->n_odd_seeks : never || j->n_makers_gone);
}

/* What the daemon waits for that listens after an Error. The slots of a trainer that is fenced, or ends because the rest
 * of its slots could not be made, go to others of its job, so what it keeps must be copies; other errors end the job, and
 * with it what is written into its slots. */
static void let_go(struct sim_trainer *t)
{
	Batchd__Wire__Close c = BATCHD__WIRE__CLOSE__INIT;
	close_gpu(t);
	if (t->error == BATCHD__WIRE__ERROR_CODE__FENCED || t->error == BATCHD__WIRE__ERROR_CODE__LIMIT)
		forget_held(t); /* it has copied them: another trainer may get the slab */
	SAY(t, CLOSE, close, &c, -1);
}

/* Which refusals are not a fault of the daemon, given what this trainer did and the state of the world. */
static void see_error(struct sim_trainer *t, const Batchd__Wire__Error *e)
{
	static const Batchd__Wire__ErrorCode fair[] = {
		BATCHD__WIRE__ERROR_CODE__SHUTDOWN,
		BATCHD__WIRE__ERROR_CODE__LIMIT,
	};
	bool ok = e->code == BATCHD__WIRE__ERROR_CODE__PROTOCOL   ? t->misbehaved
		  : e->code == BATCHD__WIRE__ERROR_CODE__BAD_DATA ? sim_rows_fail
		  : e->code == BATCHD__WIRE__ERROR_CODE__FENCED   ? may_be_fenced(t)
		  : e->code == BATCHD__WIRE__ERROR_CODE__GPU_LOST ? sim_gpu_error_percent && t->wanted_gpu
		  : e->code == BATCHD__WIRE__ERROR_CODE__BEHIND
			  ? t->job->share && !t->job->async &&
				    (!t->socket->was_expected || (t->job->served && !t->job->resumable))
		  : e->code == BATCHD__WIRE__ERROR_CODE__PRODUCER ? is_fair_about_producer(t->job, e->text)
		  : e->code == BATCHD__WIRE__ERROR_CODE__MISMATCH
			  ? t->job->share && !t->job->async && !strcmp(e->field, "base_sample")
			  : false;
	for (unsigned i = 0; i < sizeof(fair) / sizeof(fair[0]); i++)
		ok |= e->code == fair[i];
	SIM_CHECK(ok, "trainer %u: refused with %s: %s", NUMBER(t), wire_code_name(e->code), e->text);
	t->error = e->code;
	/* The trainer seeks back to a batch that the daemon made but never delivered, maybe twice, and the other ranks
	 * are in another epoch by then. */
	t->job->n_odd_seeks += e->code == BATCHD__WIRE__ERROR_CODE__GPU_LOST;
	if (t->socket->peer) /* the daemon still listens */
		let_go(t);
}

static void see_notice(struct sim_trainer *t, const Batchd__Wire__Notice *n)
{
	SIM_CHECK(sim_has(SIM_STALLS) && (n->rank < t->job->world_size || t->job->share),
		  "trainer %u: a notice that makes no sense: %s", NUMBER(t), n->text);
}

/* A sleeping trainer does not look at the ring until a packet arrives, so a missing wake-up shows in the end. */
static bool take_one(struct sim_trainer *t)
{
	static struct wire_arena arena;
	unsigned char bytes[RING_MAX_MESSAGE];
	const Batchd__Wire__ServerMessage *m;
	const char *why = "";
	size_t n;
	if (t->expect.epoch == UINT64_MAX)
		return false; /* Joined comes on the socket, before anything in the ring */
	if (t->error)
		return false; /* it has said Close */
	if (!t->ring.page || t->said_waiting || ring_take(&t->ring.batches, bytes, &n))
		return false;
	wire_arena_init(&arena);
	SIM_CHECK(wire_unpack_server(&arena, bytes, n, &m, &why) == 0, "wire.c refuses it: %s", why);
	SIM_CHECK(m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH, "trainer %u: %s in the ring", NUMBER(t),
		  wire_server_name(m));
	if (ring_wake_daemon_taken(&t->ring))
		say_wake(t);
	see_batch(t, m->batch);
	return true;
}

static void see_large(struct sim_trainer *t, struct sim_packet *k)
{
	SIM_CHECK(k->slab && k->slab->sealed && t->n_large < SIM_MAX_LARGE, "trainer %u: more large batches than slots",
		  NUMBER(t));
	t->large[t->n_large++] = k->slab;
	k->slab = NULL;
}

static bool read_one(struct sim_trainer *t)
{
	return take_one(t) || read_packet(t);
}

static bool read_packet(struct sim_trainer *t)
{
	static struct wire_arena arena;
	const Batchd__Wire__ServerMessage *m;
	const char *why = "";
	struct sim_packet *k = sim_queue_pop(&t->socket->to_client);
	if (!k) {
		if (t->socket->peer || t->phase == SIM_CLOSED)
			return false;
		SIM_CHECK(t->error || t->socket->lost, "trainer %u: closed without a word", NUMBER(t));
		t->phase = SIM_CLOSED;
		t->socket->hung_up = true;
		return true;
	}
	wire_arena_init(&arena);
	SIM_CHECK(wire_unpack_server(&arena, k->bytes, k->n_bytes, &m, &why) == 0, "wire.c refuses it: %s", why);
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED)
		see_opened(t, m->opened, k);
	else if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_JOINED)
		see_joined(t, m->joined);
	else if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR)
		see_error(t, m->error);
	else if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_NOTICE)
		see_notice(t, m->notice);
	else if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_LARGE)
		see_large(t, k);
	if (t->said_waiting) /* a socket full of notices has no room for a Wake: any packet makes the trainer look */
		t->said_waiting = ring_is_waited_for(&t->ring);
	sim_packet_free(k);
	return true;
}

static void look_at_batches(struct sim_lane *lane, const struct ring_page *p)
{
	static struct wire_arena arena;
	for (; lane->seen != p->batches.produced; lane->seen++) {
		const Batchd__Wire__ServerMessage *m;
		const unsigned char *entry = p->batch[lane->seen % RING_ENTRIES];
		uint32_t n_bytes;
		memcpy(&n_bytes, entry, sizeof(n_bytes));
		wire_arena_init(&arena);
		SIM_CHECK(wire_unpack_server(&arena, entry + 4, n_bytes, &m, NULL) == 0, "no message in the ring");
		lane->slot[lane->seen % RING_ENTRIES] = m->batch->slot;
	}
}

static void look_at_releases(struct sim_lane *lane, const struct ring_page *p)
{
	static struct wire_arena arena;
	for (; lane->seen != p->releases.produced; lane->seen++) {
		const Batchd__Wire__ClientMessage *m;
		const unsigned char *entry = p->release[lane->seen % RING_ENTRIES];
		uint32_t n_bytes;
		memcpy(&n_bytes, entry, sizeof(n_bytes));
		wire_arena_init(&arena);
		SIM_CHECK(wire_unpack_client(&arena, entry + 4, n_bytes, &m, NULL) == 0, "no message in the ring");
		lane->slot[lane->seen % RING_ENTRIES] = m->release->slot;
	}
}

/* What is in the ring, in both directions. */
static void count_ring(struct sim_trainer *t, unsigned *count)
{
	const struct ring_page *p = t->ring.page;
	look_at_batches(&t->batches, p);
	look_at_releases(&t->releases, p);
	for (uint32_t i = p->batches.taken; i != p->batches.produced; i++)
		count[t->batches.slot[i % RING_ENTRIES]]++;
	for (uint32_t i = p->releases.taken; i != p->releases.produced; i++)
		count[t->releases.slot[i % RING_ENTRIES]]++;
}

static void count_packets(const struct sim_queue *q, unsigned *count)
{
	for (const struct sim_packet *k = q->first; k; k = k->next) {
		if (k->lease >= 0)
			count[k->lease]++;
	}
}

void sim_trainer_leases(struct sim_trainer *t, unsigned count[SIM_MAX_SLOTS])
{
	memset(count, 0, SIM_MAX_SLOTS * sizeof(*count));
	if (t->ring.page)
		count_ring(t, count);
	count_packets(&t->socket->to_daemon, count);
	for (unsigned i = 0; i < t->n_held; i++)
		count[t->held[i].slot]++;
	for (unsigned i = 0; i < t->n_hoard; i++)
		count[t->hoard[i].slot]++;
}

bool sim_trainer_holds(const struct sim_trainer *t, const struct sim_slab *slab, uint32_t slot)
{
	if (t->lies)
		return false; /* if it says so */
	for (unsigned i = 0; t->phase != SIM_UNUSED && t->slab == slab && i < t->n_hoard; i++) {
		if (t->hoard[i].slot == slot)
			return true;
	}
	for (unsigned i = 0; t->phase != SIM_UNUSED && t->slab == slab && i < t->n_held; i++) {
		if (t->held[i].slot == slot)
			return true;
	}
	for (unsigned i = 0; t->phase != SIM_UNUSED && t->old.slab == slab && i < t->old.n_held; i++) {
		if (t->old.held[i].slot == slot)
			return true;
	}
	return false;
}

/* ---- what a trainer does ---- */

static bool release_one(struct sim_trainer *t)
{
	if (!t->n_held || t->phase != SIM_STREAMING)
		return false;
	unsigned i = sim_below(t->n_held);
	struct sim_held h = t->held[i];
	look_at(t, t->slab, t->slot_bytes, &h);
	look_at_gpu(t, &h);
	t->held[i] = t->held[--t->n_held];
	sim_slab_unref(h.large);
	say_release(t, h.slot, h.generation, true);
	return true;
}

static bool wait_for_more(struct sim_trainer *t)
{
	if (t->phase != SIM_STREAMING || t->said_waiting || t->socket->to_client.n)
		return false;
	t->said_waiting = true;
	ring_start_waiting(&t->ring);
	if (ring_waiting_entries(&t->ring.batches) == 0)
		return true;
	t->said_waiting = !ring_stop_waiting(&t->ring);
	return !t->said_waiting;
}

static void drop_everything(struct sim_trainer *t)
{
	t->job->unbalanced = true;
	forget_held(t);
	forget_large(t);
	sim_slab_unref(t->slab);
	t->slab = NULL;
	ring_unmap(&t->ring);
	close_gpu(t);
	forget_old(t);
}

static bool give_back_hoard(struct sim_trainer *t)
{
	if (!t->n_hoard || t->phase != SIM_STREAMING)
		return false;
	struct sim_hoard h = t->hoard[--t->n_hoard];
	say_release(t, h.slot, h.generation, true);
	return true;
}

/* Seeks back to a batch that the trainer has, or to its position, without releasing anything. */
static void seek_greedily(struct sim_trainer *t)
{
	for (unsigned n = 1 + sim_below(20); n > 0; n--) {
		struct position to = t->expect;
		if (to.epoch == UINT64_MAX)
			return; /* it does not know its position yet */
		if (t->n_held && !t->job->own) {
			const struct position *at = &t->last_at[t->held[sim_below(t->n_held)].slot];
			to = (struct position){ .epoch = at->epoch,
						.base = at->epoch == to.epoch ? to.base : 0,
						.step = at->step };
		}
		seek(t, to);
	}
}

/* Sends anything, after Close. */
static void say_more(struct sim_trainer *t)
{
	Batchd__Wire__Close c = BATCHD__WIRE__CLOSE__INIT;
	Batchd__Wire__Seek s = BATCHD__WIRE__SEEK__INIT;
	Batchd__Wire__Release r = BATCHD__WIRE__RELEASE__INIT;
	Batchd__Wire__ClassesRequest k = BATCHD__WIRE__CLASSES_REQUEST__INIT;
	if (sim_has(SIM_STRAYS)) {
		sim_send_stray(t->socket, 0);
		return;
	}
	switch (sim_below(5)) {
	case 0:
		SAY(t, CLOSE, close, &c, -1);
		break;
	case 1:
		s.seek = t->seek + 1;
		SAY(t, SEEK, seek, &s, -1);
		break;
	case 2:
		SAY(t, RELEASE, release, &r, -1);
		break;
	case 3:
		SAY(t, CLASSES, classes, &k, -1);
		break;
	default:
		say_wake(t);
	}
}

void sim_trainer_leaves(struct sim_trainer *t)
{
	Batchd__Wire__Close c = BATCHD__WIRE__CLOSE__INIT;
	sim_trace("trainer %u: closes", NUMBER(t));
	if (sim_has(SIM_CLOSES) && t->greedy && t->phase == SIM_STREAMING)
		seek_greedily(t);
	c.ends_job = sim_has(SIM_SPARES) && sim_chance(70);
	SAY(t, CLOSE, close, &c, -1);
	for (unsigned n = sim_has(SIM_CLOSES) ? sim_below(4) : 0; n > 0; n--)
		say_more(t);
	drop_everything(t);
	t->socket->hung_up = true;
	t->phase = SIM_EXITED; /* whether the process survives matters to its spare slots only */
	t->left = true;
}

static void hang_up(struct sim_trainer *t)
{
	sim_trace("trainer %u: hangs up with %u batches", NUMBER(t), t->n_held);
	t->socket->hung_up = true;
	t->phase = SIM_CLOSED;
	t->gave_up = true;
	t->job->unbalanced = true;
}

struct sim_trainer *sim_trainer_of(const struct sim_socket *s)
{
	for (unsigned i = 0; i < SIM_MAX_TRAINERS; i++) {
		if (sim_trainers[i].socket == s)
			return &sim_trainers[i];
	}
	return NULL;
}

void sim_trainer_exits(struct sim_trainer *t, bool child_keeps_socket)
{
	sim_trace("trainer %u: is killed with %u batches%s", NUMBER(t), t->n_held,
		  child_keeps_socket ? ", a child keeps the socket" : "");
	drop_everything(t);
	for (struct sim_socket *s = t->socket; s; s = s->previous) {
		s->dead = true;
		s->hung_up |= !child_keeps_socket;
	}
	t->phase = SIM_EXITED;
}

/* Breaks a rule. Only this client pays for it. */
static void misbehave(struct sim_trainer *t)
{
	t->misbehaved = true;
	sim_trace("trainer %u: misbehaves", NUMBER(t));
	if (sim_has(SIM_STRAYS) && sim_chance(50)) {
		sim_send_stray(t->socket, SESSION_IN(OPENING) | SESSION_IN(ATTACHED));
	} else if (t->phase == SIM_OPENING) {
		say_wake(t);
	} else if (t->n_held && sim_chance(50)) {
		/* A past or an impossible generation: the next one may have come by the time that the daemon reads
		 * this. */
		say_release(t, t->held[0].slot, t->held[0].generation + (sim_below(2) ? UINT64_MAX : UINT64_C(1) << 40),
			    false);
	} else if (sim_chance(50)) {
		say_release(t, sim_chance(50) ? t->n_slots : UINT32_MAX, 1, false);
	} else {
		Batchd__Wire__Seek s = BATCHD__WIRE__SEEK__INIT; /* a number that was used already */
		SAY(t, SEEK, seek, &s, -1);
	}
}

/* Writes arbitrary values into any word or entry of its page. */
static void scribble(struct sim_trainer *t)
{
	struct ring_page *p = t->ring.page;
	_Atomic uint32_t *words[] = { &p->batches.taken,  &p->releases.produced, &p->batches.produced,
				      &p->releases.taken, &p->waiting,           &p->wake_at };
	_Atomic uint32_t *word = words[sim_chance(70) ? sim_below(2) : sim_below(6)];
	switch (sim_below(5)) {
	case 0:
		atomic_store(word, sim_below(200) - 100);
		break;
	case 1:
		atomic_fetch_add(word, 1);
		break;
	case 2:
		atomic_fetch_sub(word, 1 + sim_below(3));
		break;
	case 3: /* it claims to have taken everything */
		atomic_store(&p->batches.taken, atomic_load(&p->batches.produced));
		break;
	default:
		p->release[sim_below(RING_ENTRIES)][sim_below(RING_RELEASE_BYTES)] = (unsigned char)sim_below(256);
	}
}

void sim_liars_scribble(void)
{
	if (!sim_has(SIM_LIES))
		return;
	for (unsigned i = 0; i < SIM_MAX_TRAINERS; i++) {
		if (sim_trainers[i].lies && sim_trainers[i].ring.page && sim_chance(40))
			scribble(&sim_trainers[i]);
	}
}

static bool lie(struct sim_trainer *t)
{
	sim_trace("trainer %u: writes into its page", NUMBER(t));
	t->lies = t->misbehaved = true;
	scribble(t);
	if (sim_chance(60))
		say_wake(t);
	return true;
}

static void ask(struct sim_trainer *t)
{
	Batchd__Wire__StatusRequest s = BATCHD__WIRE__STATUS_REQUEST__INIT;
	Batchd__Wire__ClassesRequest c = BATCHD__WIRE__CLASSES_REQUEST__INIT;
	if (sim_chance(5) && t->socket->to_client.n < 3)
		SAY(t, STATUS, status, &s, -1);
	else if (t->phase >= SIM_ATTACHED)
		SAY(t, CLASSES, classes, &c, -1);
}

bool sim_trainer_acts(struct sim_trainer *t)
{
	unsigned what = sim_below(1000);
	if (t->phase == SIM_UNUSED || t->phase == SIM_EXITED)
		return false;
	if (what < 8) {
		sim_trainer_exits(t, sim_chance(30));
		return true;
	}
	if (t->stopped) {
		t->stopped = what >= 50;
		return false;
	}
	if (t->phase == SIM_CLOSED && sim_trainer_may_return(t) && what < 500) {
		sim_trainer_returns(t);
		return true;
	}
	if (t->phase == SIM_CLOSED)
		return false;
	if (t->lies && what < 900)
		return t->ring.page && lie(t);
	if (sim_has(SIM_LIES) && t->ring.page && t->phase == SIM_STREAMING && sim_chance(10))
		return lie(t);
	if (sim_has(SIM_GREEDY) && t->greedy && t->phase == SIM_STREAMING && sim_chance(25)) {
		seek_greedily(t);
		return true;
	}
	if (t->lies) {
		if (what < 950)
			hang_up(t);
		else
			sim_trainer_leaves(t);
		return true;
	}
	if (what < 12)
		hang_up(t);
	else if (what < 18)
		sim_trainer_leaves(t);
	else if (what < 22)
		t->stopped = true;
	else if (what < 25 && !t->misbehaved)
		misbehave(t);
	else if (what < 30)
		ask(t);
	else if (t->phase == SIM_ATTACHED && what < 600)
		sim_trainer_seeks(t);
	else if (what < 50 && t->phase == SIM_STREAMING)
		sim_trainer_seeks(t);
	else if (what < 350)
		return release_one(t) || read_one(t);
	else if (what < 450)
		return push(t) || read_one(t);
	else if (what < 900)
		return read_one(t) || wait_for_more(t);
	else
		return wait_for_more(t);
	return true;
}

/* A trainer that shares a loader with others keeps going for their sake, up to a limit. */
static bool is_needed(const struct sim_trainer *t)
{
	for (unsigned i = 0; (t->job->share || t->job->served) && i < SIM_MAX_TRAINERS; i++) {
		const struct sim_trainer *other = &sim_trainers[i];
		if (other->job == t->job && other->phase == SIM_STREAMING && other->n_got < other->target)
			return t->n_got < t->target + 100;
	}
	return false;
}

bool sim_trainer_gets_on(struct sim_trainer *t)
{
	if (sim_trainer_may_return(t)) {
		sim_trainer_returns(t);
		return true;
	}
	if (t->lies)
		return false;
	if (t->phase < SIM_OPENING || t->phase > SIM_STREAMING || t->stopped ||
	    (t->phase != SIM_OPENING && t->n_got >= t->target && !is_needed(t)))
		return false;
	/* its new connection may have fewer slots */
	unsigned keeps = t->phase >= SIM_ATTACHED && t->keeps >= t->n_slots ? t->n_slots - 1 : t->keeps;
	if (read_one(t) || give_back_hoard(t) || (t->n_held > keeps && release_one(t)))
		return true;
	if (t->phase == SIM_ATTACHED && !t->misbehaved) {
		uint64_t before = t->seek;
		if (!go_on(t))
			seek(t, (struct position){ .epoch = 0 });
		return t->seek > before;
	}
	return push(t) || wait_for_more(t);
}

void sim_trainer_hears_the_end(struct sim_trainer *t)
{
	while (t->phase >= SIM_OPENING && t->phase <= SIM_STREAMING && !t->stopped && !t->lies && !t->error &&
	       read_one(t))
		;
}
