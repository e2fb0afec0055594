/* Producers: clients that make the batches of a served job one after the other, at any time; the mistakes they may
 * make; and their deaths. See sim.h. */
#include "server/session-message.h"
#include "sim.h"

struct sim_producer sim_producers[SIM_MAX_PRODUCERS];

#define NUMBER(k) ((unsigned)((k) - sim_producers))

#define SAY(k, BODY, field, pointer) \
	do { \
		Batchd__Wire__ClientMessage say_m = BATCHD__WIRE__CLIENT_MESSAGE__INIT; \
		say_m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_##BODY; \
		say_m.field = (pointer); \
		sim_send((k)->socket, &say_m, -1); \
	} while (0)

/* ---- what a producer makes: the same for every producer ---- */

uint64_t sim_epoch_length(const struct sim_job *j, uint64_t epoch)
{
	return 1 + (j->seed * 5 + (j->is_known ? 0 : epoch * 3) + j->n_samples) % 9;
}

uint32_t sim_made_rows(uint64_t epoch, uint64_t step)
{
	return (uint32_t)(1 + (epoch + step) % 3);
}

uint64_t sim_made_index(uint64_t epoch, uint64_t step)
{
	return epoch << 32 | step;
}

/* ---- life ---- */

void sim_producer_starts(struct sim_producer *k, struct sim_job *j)
{
	static pid_t last_pid = 6000000;
	Batchd__Wire__Hello h = BATCHD__WIRE__HELLO__INIT;
	Batchd__Wire__Produce p = BATCHD__WIRE__PRODUCE__INIT;
	*k = (struct sim_producer){ .job = j, .pid = ++last_pid };
	k->socket = sim_connect(k->pid, j->uid);
	h.version = WIRE_VERSION;
	h.program = (char *)"producer";
	SAY(k, HELLO, hello, &h);
	p.name = j->name;
	p.slot_bytes = SIM_ROW_BYTES;
	p.n_rows = 2;
	p.id = 1;
	p.incarnation = j->incarnation;
	p.resumable = j->resumable;
	p.n_batches = j->is_known ? sim_epoch_length(j, 0) : 0;
	SAY(k, PRODUCE, produce, &p);
	j->n_makers_gone += j->n_producers++ > 0; /* or a new producer replaces it now */
	sim_trace("producer %u: serves %s%s", NUMBER(k), j->name, j->resumable ? ", resumable" : "");
}

void sim_producer_exits(struct sim_producer *k)
{
	if (!k->job)
		return;
	k->job->n_makers_gone++;
	k->socket->dead = k->socket->hung_up = true;
	for (unsigned i = 0; i < k->n_slabs; i++)
		sim_slab_unref(k->slab[i].slab);
	k->job = NULL;
	k->n_fills = k->n_slabs = 0;
}

bool sim_producer_is_there(const struct sim_job *j)
{
	for (unsigned i = 0; i < SIM_MAX_PRODUCERS; i++) {
		const struct sim_producer *k = &sim_producers[i];
		if (k->job == j && k->socket->peer && !k->socket->hung_up && !k->misbehaved)
			return true;
	}
	return false;
}

/* ---- what the daemon tells a producer ---- */

static void see_slab(struct sim_producer *k, const Batchd__Wire__Producing *m, struct sim_packet *packet)
{
	Batchd__Wire__Filled f = BATCHD__WIRE__FILLED__INIT;
	if (!m->slab)
		return;
	SIM_CHECK(packet->slab && !packet->slab->sealed, "producer %u: a slab that it cannot map", NUMBER(k));
	SIM_CHECK(k->n_slabs < SIM_MAX_MADE_SLABS, "producer %u: too many slabs", NUMBER(k));
	k->slab[k->n_slabs++] = (struct sim_made_slab){ .slab = packet->slab,
							.number = m->slab,
							.slot_bytes = m->slot_bytes,
							.room_bytes = m->room_bytes,
							.n_slots = m->n_slots };
	packet->slab = NULL;
	f.slab = m->slab;
	SAY(k, FILLED, filled, &f);
}

static void see_fill(struct sim_producer *k, const Batchd__Wire__Fill *m)
{
	for (unsigned i = 0; m->cancel && i < k->n_fills; i++) {
		if (k->fill[i].number == m->fill)
			k->fill[i].cancelled = true;
	}
	if (m->cancel)
		return;
	if (m->taken) {
		SIM_CHECK(k->is_waiting, "producer %u: a batch is taken that it has not sent", NUMBER(k));
		k->is_waiting = false;
		return;
	}
	SIM_CHECK(k->n_fills < SIM_MAX_FILLS, "producer %u: more fills than slots", NUMBER(k));
	SIM_CHECK(m->fill == ++k->n_asked, "producer %u: fill %u comes after %u", NUMBER(k), (unsigned)m->fill,
		  (unsigned)k->n_asked - 1);
	struct sim_made_slab *slab = NULL;
	for (unsigned i = 0; i < k->n_slabs; i++) {
		if (k->slab[i].number == m->slab)
			slab = &k->slab[i];
	}
	SIM_CHECK(slab && m->slot < slab->n_slots, "producer %u: a fill for a slot that it does not have", NUMBER(k));
	k->fill[k->n_fills++] = (struct sim_fill){ .number = m->fill,
						   .epoch = m->epoch,
						   .step = m->step,
						   .slot = m->slot,
						   .slab = slab->slab,
						   .slot_bytes = slab->slot_bytes,
						   .room_bytes = slab->room_bytes };
}

static bool read_one(struct sim_producer *k)
{
	static struct wire_arena arena;
	const Batchd__Wire__ServerMessage *m;
	const char *why = "";
	struct sim_packet *packet = sim_queue_pop(&k->socket->to_client);
	if (!packet && k->socket->peer)
		return false;
	if (!packet) {
		sim_producer_exits(k);
		return true;
	}
	wire_arena_init(&arena);
	SIM_CHECK(wire_unpack_server(&arena, packet->bytes, packet->n_bytes, &m, &why) == 0, "wire.c refuses it: %s",
		  why);
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_PRODUCING)
		see_slab(k, m->producing, packet);
	else if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_FILL)
		see_fill(k, m->fill);
	else if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR)
		SIM_CHECK(m->error->code == BATCHD__WIRE__ERROR_CODE__FENCED ||
				  m->error->code == BATCHD__WIRE__ERROR_CODE__SHUTDOWN ||
				  (k->misbehaved && m->error->code == BATCHD__WIRE__ERROR_CODE__PROTOCOL) ||
				  (k->misbehaved && m->error->code == BATCHD__WIRE__ERROR_CODE__INVALID),
			  "producer %u: refused with %s: %s", NUMBER(k), wire_code_name(m->error->code),
			  m->error->text);
	sim_packet_free(packet);
	return true;
}

/* ---- what a producer does ---- */

/* No other process may have that memory, whatever happened to the fill. */
static void write_batch(const struct sim_producer *k, struct sim_fill *f)
{
	uint64_t stamp[2];
	for (unsigned i = 0; i < SIM_MAX_TRAINERS; i++)
		SIM_CHECK(!sim_trainer_holds(&sim_trainers[i], f->slab, f->slot),
			  "producer %u writes into slot %u, which trainer %u holds", NUMBER(k), f->slot, i);
	sim_stamp(sim_made_index(f->epoch, f->step), stamp);
	memcpy(f->slab->base + f->slot * f->slot_bytes, stamp, sizeof(stamp));
	f->written = true;
}

static void answer(struct sim_producer *k, uint64_t number, uint32_t n_rows, bool end, bool skipped, uint64_t n_batches)
{
	Batchd__Wire__Filled m = BATCHD__WIRE__FILLED__INIT;
	m.fill = number;
	m.n_rows = n_rows;
	m.end = end;
	m.skipped = skipped;
	m.n_batches = n_batches;
	SAY(k, FILLED, filled, &m);
}

static bool is_begin(const struct sim_producer *k, const struct sim_fill *f)
{
	return f->step < (k->job->share ? 1 : k->job->world_size);
}

/* The batch is not made, but later batches may be. */
static void pass_over(struct sim_producer *k, const struct sim_fill *f)
{
	if (!is_begin(k, f))
		return;
	k->passes_over = true;
	k->passed_epoch = f->epoch;
}

/* Whether the producer may have to seek. */
static void go_to(struct sim_producer *k, const struct sim_fill *f, bool end)
{
	bool goes_on = f->epoch == k->at_epoch && f->step >= k->at_step,
	     begins = is_begin(k, f) || (k->passes_over && k->passed_epoch == f->epoch);
	k->passes_over = false;
	SIM_CHECK(k->job->resumable || goes_on || begins,
		  "producer %u: is to begin with batch %u of epoch %u, which it cannot", NUMBER(k), (unsigned)f->step,
		  (unsigned)f->epoch);
	k->at_epoch = f->epoch;
	k->at_step = f->step + !end;
}

static void forget_first(struct sim_producer *k)
{
	memmove(&k->fill[0], &k->fill[1], --k->n_fills * sizeof(k->fill[0]));
}

/* Makes the batch in memory of its own. */
static bool make_large(struct sim_producer *k, struct sim_fill *f)
{
	Batchd__Wire__Filled m = BATCHD__WIRE__FILLED__INIT;
	Batchd__Wire__ClientMessage message = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	uint64_t stamp[2];
	if (!sim_has(SIM_LARGE) || !sim_chance(15))
		return false;
	m.fill = f->number;
	m.n_rows = sim_made_rows(f->epoch, f->step);
	m.n_bytes = f->room_bytes + 1 + sim_below(3) * 8192;
	message.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_FILLED;
	message.filled = &m;
	struct sim_slab *slab = sim_slab_alone((size_t)m.n_bytes);
	sim_stamp(sim_made_index(f->epoch, f->step), stamp);
	memcpy(slab->base, stamp, sizeof(stamp));
	sim_trace("producer %u: batch %u of epoch %u takes %u bytes", NUMBER(k), (unsigned)f->step, (unsigned)f->epoch,
		  (unsigned)m.n_bytes);
	k->is_waiting = true;
	sim_send_slab(k->socket, &message, slab);
	forget_first(k);
	return true;
}

/* Starts or finishes the oldest fill. */
static bool work(struct sim_producer *k)
{
	struct sim_fill *f = &k->fill[0];
	if (!k->n_fills || k->is_waiting)
		return false;
	uint64_t n = sim_epoch_length(k->job, f->epoch);
	bool end = f->step >= n, skips = f->cancelled && !f->written;
	if (!end && !skips && !f->written) {
		go_to(k, f, false);
		if (!make_large(k, f))
			write_batch(k, f);
		return true;
	}
	if (skips)
		pass_over(k, f);
	else if (!f->written)
		go_to(k, f, end);
	answer(k, f->number, end || skips ? 0 : sim_made_rows(f->epoch, f->step), end && !skips, skips,
	       end && !skips && k->job->counts ? n : 0);
	forget_first(k);
	return true;
}

static void end_with_last_words(struct sim_producer *k)
{
	Batchd__Wire__ProducerEnd m = BATCHD__WIRE__PRODUCER_END__INIT;
	m.text = (char *)"Traceback: nothing left";
	sim_trace("producer %u: ends", NUMBER(k));
	SAY(k, PRODUCER_END, producer_end, &m);
	sim_producer_exits(k);
}

static void misbehave(struct sim_producer *k)
{
	k->misbehaved = true;
	k->job->n_makers_gone++;
	sim_trace("producer %u: misbehaves", NUMBER(k));
	if (sim_has(SIM_STRAYS) && sim_chance(50))
		sim_send_stray(k->socket, SESSION_IN(PRODUCING));
	else if (sim_chance(50))
		/* a fill that is not in transit either */
		answer(k, k->n_asked + SIM_MAX_FILLS + sim_below(2), 1, false, false, 0);
	else if (k->n_fills)
		answer(k, k->fill[0].number, 0, false, false, 0);
	else
		answer(k, 1, 0, false, false, 0);
}

static bool begin_another(struct sim_producer *k)
{
	struct sim_job *j = &sim_jobs[sim_below(sim_n_jobs)];
	if (!j->served || (sim_producer_is_there(j) && !sim_chance(4)))
		return false;
	sim_producer_starts(k, j);
	return true;
}

bool sim_producer_acts(struct sim_producer *k)
{
	unsigned what = sim_below(1000);
	if (!k->job)
		return begin_another(k);
	if (what < 4) {
		sim_trace("producer %u: is killed", NUMBER(k));
		sim_producer_exits(k);
		return true;
	}
	if (k->stopped) {
		k->stopped = what >= 200;
		return false;
	}
	if (what < 7)
		end_with_last_words(k);
	else if (what < 14)
		k->stopped = true;
	else if (what < 16 && !k->misbehaved && k->socket->peer)
		misbehave(k);
	else
		return sim_chance(50) ? read_one(k) || work(k) : (!k->misbehaved && work(k)) || read_one(k);
	return true;
}

bool sim_producer_gets_on(struct sim_producer *k)
{
	return k->job && !k->stopped && (read_one(k) || (k->job && !k->misbehaved && work(k)));
}
