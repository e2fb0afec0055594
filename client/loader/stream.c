/* The stream of batches: its position, and which batch may come next.
 *
 * The daemon continues with the next epoch by itself; its batches stay in the link (handover.c) until batchd_start asks
 * for exactly that epoch, and then nothing needs to be sent. Asking for anything else sends a Seek with a new number,
 * and every batch that arrives with an older number is given back unseen. */
#include "loader/stream.h"

#include <string.h>
#include <sys/mman.h>

#include "link/clock.h"
#include "link/handover.h"
#include "loader/pending.h"
#include "loader/position.h"
#include "loader/reconnect.h"
#include "loader/slices.h"
#include "link/token.h"

/* ---- start ---- */

static void drop_slices(struct batchd_loader *l)
{
	pthread_mutex_lock(&l->lock);
	slices_stop(l);
	pthread_mutex_unlock(&l->lock);
}

static int stream_seek(struct batchd_loader *l, void *arg, int left_ms)
{
	(void)arg;
	(void)left_ms;
	return position_seek(l);
}

static int stream_start(struct batchd_loader *l, uint64_t epoch, uint64_t base, uint64_t step, uint64_t *n_batches)
{
	int r = loader_check(l);
	uint64_t n;
	bool as_expected;

	if (r < 0)
		return r;
	if (l->served && base)
		return loader_misuse(l, BATCHD_E_INVALID,
				     "batchd_start: a producer's epoch has no base: count its batches with `step`");
	n = l->own_batches ? 0 : l->served ? l->link->info.n_batches : position_n_batches(l, &l->link->info, base);
	n = n > step ? n - step : 0;
	if (n_batches)
		*n_batches = n;
	slab_guard(l->link->slab);
	drop_slices(l);
	as_expected = l->link->continues && epoch == l->epoch + 1 && base == 0 && step == 0;
	l->epoch = epoch;
	l->base = base;
	l->next_step = l->n_pushed = step;
	l->pushed_all = false;
	l->n_missed = as_expected ? l->n_missed : 0;
	l->order = l->own_batches && l->resumed.size_bytes && epoch == l->resumed.epoch && step == l->resumed.step
			   ? l->resumed.order
			   : 0;
	pending_drop_all(l);
	position_move(l, n > 0 || l->own_batches || l->served ? EPOCH_RUNNING : EPOCH_OVER);
	if (!position_is_running(l)) {
		/* the daemon is not asked for an epoch without batches, so its position differs */
		l->link->continues = false;
		return 0;
	}
	l->link->continues = false;
	return as_expected ? 0 : with_link_now(l, stream_seek, NULL);
}

int batchd_start(struct batchd_loader *l, uint64_t epoch, uint64_t base, uint64_t step, uint64_t *n_batches)
{
	int r = loader_enter(l);

	return r < 0 ? r : loader_leave(l, stream_start(l, epoch, base, step, n_batches));
}

/* ---- next ---- */

/* Gives back a batch that was not lent to the trainer. */
static int stream_refuse(struct batchd_loader *l, const struct ready *b)
{
	int r = link_drop_large(l->link, b, &l->fault);

	if (r < 0)
		return r;
	pthread_mutex_lock(&l->lock);
	r = link_free_slot(l->link, b->slot, b->generation, 0);
	pthread_mutex_unlock(&l->lock);
	return r < 0 ? connection_lost(&l->link->connection, &l->fault) : 0;
}

/* Lends the slot to this process, and unmaps `large` if that fails. 0, or a code with l->fault: the daemon lends a slot
 * that it cannot lend. */
static int stream_lend(struct batchd_loader *l, const struct ready *b, void *large, uint64_t wait_ns)
{
	bool there, ok;

	pthread_mutex_lock(&l->lock);
	there = b->slot >= l->link->n_slots || slab_has(l->link->slab, b->slot);
	ok = there && !loader_is_closed(l) && b->n_rows >= 1 && (l->served || b->n_rows <= l->group_rows) &&
	     link_lend(l->link, b, large, wait_ns);
	if (ok)
		l->consumer_thread = pthread_self();
	pthread_mutex_unlock(&l->lock);
	if (ok)
		return 0;
	if (large)
		munmap(large, (size_t)b->large_bytes);
	if (!there)
		return fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s lends slot %u, where its memory has ended",
				 l->link->connection.address, b->slot);
	return fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s lends an impossible slot or number of rows",
			 l->link->connection.address);
}

/* Ends the epoch before this trainer has had all of it. */
static void end_early(struct batchd_loader *l)
{
	l->n_missed += position_n_batches(l, &l->link->info, l->base) - l->next_step;
	l->next_step = position_n_batches(l, &l->link->info, l->base);
	l->link->continues = true;
	position_move(l, EPOCH_OVER);
}

/* Batches are missing, as the group's policy allows. 0: continue with b, which is of this epoch; BATCHD_END: b is of a
 * later epoch, and is kept. */
static int stream_leap(struct batchd_loader *l, const struct ready *b)
{
	uint64_t step = b->step * slices_per_batch(l);

	if (b->epoch == l->epoch && step < position_n_batches(l, &l->link->info, l->base)) {
		l->n_missed += step - l->next_step;
		l->next_step = step;
		return 0;
	}
	end_early(l);
	handover_put_back(l->link, b);
	return BATCHD_END;
}

/* Whether b is the batch that is due. 0; BATCHD_AGAIN: it is of an earlier start or was given out before (it is given
 * back); BATCHD_END: the rest of the epoch will not come; or a code with l->fault. */
static int check_turn(struct batchd_loader *l, const struct ready *b)
{
	uint64_t due = l->next_step / slices_per_batch(l);
	bool duplicate = b->seek == l->seek && b->epoch == l->epoch && b->step < due;
	bool dropped = l->share && b->seek == l->seek && b->epoch < l->epoch; /* the short batch that drop_last drops */

	if (b->seek < l->seek || duplicate || dropped) {
		int r = b->slot < l->link->n_slots
				? stream_refuse(l, b)
				: fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd lends a slot that does not exist");

		return r < 0 ? r : BATCHD_AGAIN;
	}
	if (b->seek == l->seek && b->n_skipped && (b->epoch > l->epoch || (b->epoch == l->epoch && b->step > due)))
		return stream_leap(l, b);
	if (b->seek != l->seek || b->epoch != l->epoch || b->step != due)
		return fault_set(&l->fault, BATCHD_E_PROTOCOL,
				 "batchd at %s sent batch %llu of epoch %llu where batch %llu of epoch %llu was due",
				 l->link->connection.address, (unsigned long long)b->step, (unsigned long long)b->epoch,
				 (unsigned long long)due, (unsigned long long)l->epoch);
	return 0;
}

static void stream_give(struct batchd_loader *l, const struct slice *s, bool last, uint64_t wait_ns,
			struct batchd_batch *out)
{
	const struct ready *b = &s->batch;
	const struct link *k = l->link;
	char *slot = link_data(k, b->slot);
	struct batchd_batch full = {
		.size_bytes = out->size_bytes,
		.data = slot + s->row * k->row_bytes,
		.labels = k->label_bytes ? slot + k->labels_offset + s->row * k->label_bytes : NULL,
		.indices = b->large_bytes ? NULL : (const int64_t *)(void *)(slot + k->indices_offset) + s->row,
		.row = s->row,
		.n_skipped = l->n_missed,
		.apart = b->apart,
		.n_rows = s->n_rows,
		.n_padding = b->n_padding,
		.n_replaced = b->n_replaced,
		.slot = b->slot,
		.generation = b->generation | k->id << LINK_ID_SHIFT,
		.epoch = b->epoch,
		.base = l->base,
		.step = l->next_step,
		.wait_ns = wait_ns,
		.last = last,
		.n_given = l->n_given,
		.order = l->order,
	};

	memcpy(out, &full, out->size_bytes < sizeof full ? out->size_bytes : sizeof full);
}

const struct ready *stream_peek(struct batchd_loader *l)
{
	const struct ready *first = handover_peek(l->link, &l->fault);

	return first && first->seek == l->seek && first->slot < l->link->n_slots && first->n_rows <= l->group_rows
		       ? first
		       : NULL;
}

/* Gives out a batch that is on loan already, or a slice of one in a share group. */
static int give_slice(struct batchd_loader *l, const struct slice *s, uint64_t wait_ns, struct batchd_batch *b)
{
	bool last = l->share && !l->served ? l->next_step + 1 == position_n_batches(l, &l->link->info, l->base)
					   : s->batch.last;

	l->n_given++;
	if (l->pending_first)
		l->order = token_order(l->order, l->pending_first->index, l->pending_first->n);
	stream_give(l, s, last, wait_ns, b);
	l->n_missed = 0;
	l->next_step++;
	position_move(l, last ? EPOCH_OVER : EPOCH_RUNNING);
	pending_forget_first(l);
	if (last)
		l->link->continues = !l->own_batches;
	return BATCHD_OK;
}

/* The mark says that a producer's epoch has ended before this step. If the daemon has just gone, so that the mark
 * cannot be given back, the next call reports that. BATCHD_AGAIN: a trainer that joined after the last batch begins
 * with the next epoch. */
static int end_of_served_epoch(struct batchd_loader *l, const struct ready *mark)
{
	pthread_mutex_lock(&l->lock);
	link_free_slot(l->link, mark->slot, mark->generation, 0);
	pthread_mutex_unlock(&l->lock);
	if (l->epoch_state == EPOCH_JOINED) {
		position_move(l, EPOCH_RUNNING);
		l->epoch++;
		l->next_step = 0;
		return BATCHD_AGAIN;
	}
	l->link->continues = true;
	position_move(l, EPOCH_OVER);
	return BATCHD_END;
}

/* Takes the next batch from the present connection. */
static int next_here(struct batchd_loader *l, struct batchd_batch *b, uint64_t began, int timeout_ms)
{
	struct ready ready = { 0 };
	struct slice slice;
	uint64_t now, wait_ns;
	void *large;
	int r;

	if (slices_next(l, &slice))
		return give_slice(l, &slice, 0, b);
	do {
		r = handover_take(l->link, timeout_ms, &ready, &l->fault);
		if (r != 0)
			return r;
		r = check_turn(l, &ready);
		if (r == 0 && l->served && ready.last && !ready.n_rows)
			r = end_of_served_epoch(l, &ready);
	} while (r == BATCHD_AGAIN);
	if (r != 0)
		return r;
	r = link_take_large(l->link, &ready, &large, &l->fault);
	if (r < 0)
		return r;
	now = clock_now_ns();
	wait_ns = now - began;
	ring_set_state(&l->link->ring, RING_BUSY);
	r = stream_lend(l, &ready, large, wait_ns);
	if (r < 0)
		return r;
	ring_count_batch(&l->link->ring, ready.n_rows);
	slice = (struct slice){ .batch = ready, .n_rows = ready.n_rows };
	if (slices_per_batch(l) > 1) {
		slices_begin(l, &ready);
		if (!slices_next(l, &slice))
			return fault_set(&l->fault, BATCHD_E_PROTOCOL,
					 "batchd at %s sent a batch with fewer rows than it has to have",
					 l->link->connection.address);
	}
	return give_slice(l, &slice, wait_ns, b);
}

struct next_call {
	struct batchd_batch *batch;
	uint64_t began_ns;
};

static int attempt_next(struct batchd_loader *l, void *arg, int left_ms)
{
	struct next_call *c = arg;
	int r = next_here(l, c->batch, c->began_ns, left_ms);

	if (r == BATCHD_OK || r == BATCHD_END)
		reconnect_note_progress(l);
	return r;
}

int stream_next(struct batchd_loader *l, struct batchd_batch *b, int timeout_ms, uint64_t began)
{
	struct next_call call = { .batch = b, .began_ns = began };
	int r = loader_check(l);

	if (r < 0)
		return r;
	if (!position_is_running(l) || (l->pushed_all && l->next_step == l->n_pushed)) {
		if (l->pushed_all)
			position_move(l, EPOCH_OVER);
		ring_set_state(&l->link->ring, RING_IDLE);
		return BATCHD_END;
	}
	if (l->own_batches && l->next_step == l->n_pushed)
		return loader_misuse(l, BATCHD_E_INVALID, "batchd_next: nothing was pushed that could come");
	return with_link(l, timeout_ms, attempt_next, &call);
}

/* ---- joining a group ---- */

struct join_call {
	enum batchd_join how;
	const Batchd__Wire__Joined *joined;
};

/* Sends the request and waits for the answer; batches that come before it are of an earlier start. */
static int attempt_join(struct batchd_loader *l, void *arg, int left_ms)
{
	struct join_call *c = arg;
	Batchd__Wire__Join body = BATCHD__WIRE__JOIN__INIT;
	const Batchd__Wire__ServerMessage *answer;
	int r;

	(void)left_ms;
	body.seek = ++l->seek;
	body.start = (Batchd__Wire__Start)c->how;
	body.no_device = link_no_device(l->link);
	r = link_call(l->link, WIRE_CLIENT(JOIN, join, &body), "a join", BATCHD__WIRE__SERVER_MESSAGE__BODY_JOINED,
		      &answer, &l->fault);
	if (r == 0 && answer->joined->seek != l->seek)
		return fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s answers another join than the last",
				 l->link->connection.address);
	c->joined = r == 0 ? answer->joined : NULL;
	return r;
}

static int stream_join(struct batchd_loader *l, enum batchd_join how, struct batchd_position *position, int timeout_ms)
{
	struct join_call call = { .how = how };
	const Batchd__Wire__Joined *joined;
	struct batchd_position p = { .size_bytes = position->size_bytes };
	int r = loader_check(l);

	if (r < 0)
		return r;
	if (!l->share || l->link->info.world_size > 1 || (unsigned)how > BATCHD_JOIN_START)
		return loader_misuse(l, BATCHD_E_INVALID,
				     "batchd_join goes with an open share group: mode share, world_size 1");
	slab_guard(l->link->slab);
	drop_slices(l);
	l->link->continues = false;
	if (position_is_running(l))
		position_move(l, EPOCH_REST); /* a reconnect has nothing to ask for */
	r = with_link(l, timeout_ms, attempt_join, &call);
	if (r != 0)
		return r;
	joined = call.joined;
	l->epoch = p.epoch = joined->epoch;
	l->base = p.base = joined->base_sample;
	l->next_step = p.step = joined->step * slices_per_batch(l);
	l->n_missed = 0;
	if (l->served)
		position_move(l, joined->step ? EPOCH_JOINED : EPOCH_RUNNING);
	else
		position_move(l, l->next_step < position_n_batches(l, &l->link->info, l->base) ? EPOCH_RUNNING
											       : EPOCH_OVER);
	p.n_given = l->n_given;
	memcpy(position, &p, p.size_bytes < sizeof p ? p.size_bytes : sizeof p);
	return 0;
}

int batchd_join(struct batchd_loader *l, enum batchd_join how, struct batchd_position *position, int timeout_ms)
{
	int r = loader_enter(l);

	return r < 0 ? r : loader_leave(l, stream_join(l, how, position, timeout_ms));
}
