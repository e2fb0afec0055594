/* See rows.h. Functions under "workers and I/O threads" read only constant data (the recipe, the spec), write
 * the rows they were given, and touch nothing else except atomics and the badlist. */
#include "batch/pool/rows.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "batch/plan/plan.h"
#include "batch/stream.h"
#include "image/transform/random.h"
#include "base/container.h"
#include "base/log.h"
#include "base/thread-kind.h"
#include "base/trace.h"

enum {
	SUBSTITUTES = 16,         /* tries before a row is given up */
	SLOW_SAMPLES = 2,         /* of a row that may use up their processor time before it is given up, too */
	CHUNK_BYTES = 256 * 1024, /* of array rows that a worker takes at once */
	CHUNK_PICTURES = 16,      /* rows of an array that go through a pipeline, which may be long */
};

static struct slot *pool_rows_slot_of(struct pool_job *job)
{
	return container_of(job, struct slot, job);
}

static struct pool_rows *pool_rows_of(struct batch_source *source)
{
	return container_of(source, struct pool_rows, source);
}

static struct pool_rows *source_of(const struct slot *slot)
{
	return pool_rows_of(slot->source);
}

/* ---- workers and I/O threads ---- */

struct row {
	struct pool_rows *source;
	struct slot *slot;
	uint32_t number;
};

static uint8_t *row_of_field(const struct row *r, const struct slot_field *f)
{
	return slot_data(r->slot) + f->offset + (size_t)r->number * f->item_bytes;
}

/* A row's position in its epoch, over all ranks; own batches may be shorter than batch_size and leave gaps. */
static uint64_t global_position(const struct row *r)
{
	const struct loader_spec *spec = r->source->spec;
	const struct position *at = &r->slot->at;
	return at->base + (at->step * spec->world_size + r->slot->stream->plan_rank) * spec->batch_size + r->number;
}

/* The place of a row in the order of a plan, which begins again after its end: another world size does not change it. */
static uint64_t plan_position(const struct row *r)
{
	const struct loader_spec *spec = r->source->spec;
	const struct position *at = &r->slot->at;
	uint64_t row = at->step * spec->batch_size + r->number, world = spec->share ? 1 : spec->world_size;
	return at->base + row * world + r->slot->stream->plan_rank;
}

static uint64_t length_of_plan(const struct row *r)
{
	const struct loader_spec *spec = r->source->spec;
	return plan_length(dataset_n(r->source->recipe->dataset), spec->repeats, spec->epoch_rows);
}

/* What the row's random draws are keyed by. The built-in order has a sample `repeats` times per epoch, so its pixels
 * depend on which of these it is, and not on the world size; the first is as without repeats. A caller's own order, and
 * a blend with weights, may repeat a sample, and each time is another augmentation. */
static struct sample_key pool_rows_key_of(const struct row *r, uint64_t index)
{
	const struct loader_spec *spec = r->source->spec;
	uint64_t seed = spec->seed;
	if (spec->own_batches)
		seed = random_seed_at(seed, global_position(r));
	else if (dataset_blend(r->source->recipe->dataset) || plan_is_resampled(spec->shuffle))
		seed = random_seed_at(seed, plan_position(r) % length_of_plan(r));
	else if (spec->repeats > 1)
		seed = random_seed_again(seed, plan_repeat(plan_position(r), length_of_plan(r), spec->repeats));
	return (struct sample_key){ seed, r->slot->at.epoch, index };
}

static uint64_t substitute_index(const struct row *r, uint64_t index, unsigned attempt)
{
	const struct pool_rows *p = r->source;
	return sample_substitute(p->spec->seed, r->slot->at.epoch, index, attempt, dataset_n(p->recipe->dataset));
}

static void pool_rows_note_bad(struct pool_rows *p, uint64_t index, const char *text, bool outside)
{
	if (!badlist_add(&p->bad, index, text, outside))
		return;
	const char *fields[] = { "JOB", p->spec->job, "SAMPLE", text, NULL };
	log_record_fields(LOG_LEVEL_WARNING, "bad-sample", fields, "sample %llu replaced: %s",
			  (unsigned long long)index, text);
}

/* If a row's sample cannot be decoded, another sample takes the row. The choice depends only on (seed, epoch, index): a
 * resumed epoch has the same substitutes, also with another world size. Attempt 0 is the sample itself. */
static uint64_t pool_rows_candidate(const struct row *r, unsigned attempt)
{
	uint64_t index = (uint64_t)slot_indices(r->slot)[r->number];
	return attempt == 0 ? index : substitute_index(r, index, attempt - 1);
}

/* A bound that the loader's configuration sets, not the data set. True with the text: the sample is bad data. */
static bool is_too_long(const struct pool_rows *p, uint64_t index, char *text, size_t size)
{
	const struct dataset *ds = p->recipe->dataset;
	for (unsigned k = 0; p->checks_values && k < p->layout->n_fields; k++) {
		const struct slot_field *f = &p->layout->field[k];
		struct field_value v = { .n_bytes = 0 };
		if (f->ragged)
			dataset_value(ds, index, f->number, &v);
		if (v.n_bytes <= p->recipe->value_bytes)
			continue;
		char name[512];
		dataset_name(ds, index, name, sizeof(name));
		snprintf(text, size,
			 "%s: its %s has %zu bytes, and limits.value_bytes in the daemon's configuration is %llu", name,
			 p->fields[k].name, v.n_bytes, (unsigned long long)p->recipe->value_bytes);
		return true;
	}
	return false;
}

/* The fields of an image's sample that are in memory. */
static void pool_rows_copy_values(const struct row *r, uint64_t index)
{
	const struct slot_layout *l = r->source->layout;
	for (unsigned k = 0; k < l->n_fields; k++) {
		const struct slot_field *f = &l->field[k];
		struct field_value v;
		if (f->ragged || f->number == 0)
			continue;
		dataset_value(r->source->recipe->dataset, index, f->number, &v);
		assert(v.n_bytes == f->item_bytes);
		memcpy(row_of_field(r, f), v.bytes, v.n_bytes);
	}
}

/* Places for the fields of a picture's sample that lie in arrays beside it, all others NULL. False: there are none. */
static bool places_of_others(const struct row *r, void *rows[DATASET_MAX_FIELDS])
{
	const struct slot_layout *l = r->source->layout;
	bool any = false;
	memset(rows, 0, DATASET_MAX_FIELDS * sizeof(rows[0]));
	for (unsigned k = 0; k < l->n_fields; k++) {
		const struct slot_field *f = &l->field[k];
		if (f->ragged || f->number == 0)
			continue;
		rows[f->number] = row_of_field(r, f);
		any = true;
	}
	return any;
}

static void gather_others(const struct row *r, uint64_t index)
{
	void *rows[DATASET_MAX_FIELDS];
	struct dataset_error err;
	if (places_of_others(r, rows) && dataset_gather(r->source->recipe->dataset, &index, 1, rows, &err))
		atomic_store(&r->slot->failed, true);
}

static void note_made(const struct row *r, uint64_t index, unsigned attempt)
{
	if (dataset_is_image(r->source->recipe->dataset))
		pool_rows_copy_values(r, index);
	else
		gather_others(r, index);
	if (attempt == 0)
		return;
	slot_indices(r->slot)[r->number] = (int64_t)index;
	atomic_fetch_add_explicit(&r->slot->n_replaced, 1, memory_order_relaxed);
}

/* ---- ragged fields ---- */

/* Only a batch with substitutes can be too large: its rows need not be different ones. */
static bool pack_field(struct slot *slot, const struct slot_field *f, const struct dataset *ds)
{
	int64_t *offsets = (int64_t *)(void *)(slot_data(slot) + f->offset);
	const int64_t *indices = slot_indices(slot);
	uint8_t *values = slot_data(slot) + f->values_offset;
	uint64_t n = 0;
	offsets[0] = 0;
	for (uint32_t row = 0; row < slot->n_rows; row++) {
		struct field_value v;
		dataset_value(ds, (uint64_t)indices[row], f->number, &v);
		uint64_t more = v.n_bytes / f->item_bytes;
		if (more > f->most_values - n)
			return false;
		memcpy(values + n * f->item_bytes, v.bytes, more * f->item_bytes);
		n += more;
		offsets[row + 1] = (int64_t)n;
	}
	return true;
}

static void pool_rows_pack(struct pool_rows *p, struct slot *slot)
{
	for (unsigned k = 0; k < p->layout->n_fields; k++) {
		const struct slot_field *f = &p->layout->field[k];
		if (!f->ragged || pack_field(slot, f, p->recipe->dataset))
			continue;
		char text[256];
		unsigned n_replaced = atomic_load(&slot->n_replaced);
		if (n_replaced)
			snprintf(text, sizeof(text),
				 "the %s of a batch with %u substitutes for bad samples is longer than that of any "
				 "batch without; mend or remove the bad samples",
				 p->fields[k].name, n_replaced);
		else
			snprintf(text, sizeof(text), "the %s of a batch is longer than the data set has said",
				 p->fields[k].name);
		pool_rows_note_bad(p, (uint64_t)slot_indices(slot)[0], text, true);
		atomic_store(&slot->failed, true);
	}
}

/* n rows are made, or given up. */
static void finish_rows(struct pool_rows *p, struct slot *slot, uint32_t n)
{
	/* The worker that takes the count to 0 sees what all others wrote into the slot. */
	if (p->layout->any_ragged && atomic_fetch_sub_explicit(&slot->n_unpacked, n, memory_order_acq_rel) == n &&
	    !atomic_load(&slot->failed))
		pool_rows_pack(p, slot);
	tally_add(&p->source.sums, SOURCE_ROWS, n);
}

/* ---- images ---- */

static void note_image(const struct row *r, const struct sample_worker *w)
{
	struct tally *sums = &r->source->source.sums;
	const struct sample_spans *spans = sample_spans(w);
	if (!dataset_is_image(r->source->recipe->dataset))
		tally_add(sums, SOURCE_ARRAY_BYTES, pixels_bytes(&r->source->recipe->pixels));
	if (sample_decoded_bytes(w)) {
		tally_add(sums, SOURCE_DECODED_ROWS, 1);
		tally_add(sums, SOURCE_DECODED_BYTES, sample_decoded_bytes(w));
	}
	if (spans)
		trace_add(TRACE_STAGES, spans->began_ns, spans->ended_ns, (uintptr_t)&r->slot->job,
			  trace_stages(spans->read_ns, spans->decode_ns), r->number);
}

static void places_of_views(const struct row *r, void *rows[VIEWS_MAX])
{
	for (unsigned k = 0; k < views_n(r->source->recipe->pipeline); k++)
		rows[k] = row_of_field(r, &r->source->layout->field[k]); /* views are the first fields: fields.c */
}

static int make_image(const struct row *r, void *worker, uint64_t index, struct sample_input *in,
		      struct sample_error *err)
{
	struct pool_rows *p = r->source;
	void *rows[VIEWS_MAX];
	err->slow = false;
	if (is_too_long(p, index, err->text, sizeof(err->text)))
		return SAMPLE_E_BAD;
	places_of_views(r, rows);
	sample_worker_hurry(worker, pool_queue_is_waited_for(&r->slot->stream->queue));
	int result = sample_make(p->recipe, worker, pool_rows_key_of(r, index), in, false, rows, err);
	if (sample_read_bytes(worker))
		tally_add(&p->source.sums, SOURCE_FILE_BYTES, sample_read_bytes(worker));
	if (result == 0)
		note_image(r, worker);
	return result;
}

static int run_image(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	(void)n;
	struct slot *slot = pool_rows_slot_of(job);
	struct pool_rows *p = source_of(slot);
	struct row r = { p, slot, first };
	struct sample_input *in = ticket ? ticket->input : NULL;
	unsigned n_slow = ticket ? ticket->n_slow : 0;
	/* No further rows are made of a failed batch: the loader ends with it. */
	bool failed = atomic_load_explicit(&slot->failed, memory_order_relaxed), done = failed;
	for (unsigned attempt = ticket ? ticket->stage : 0; !done; attempt++, in = NULL) {
		uint64_t index = pool_rows_candidate(&r, attempt);
		struct sample_error err;
		int result = make_image(&r, worker, index, in, &err);
		if (result == SAMPLE_E_WOULD_BLOCK) {
			/* Without a ticket, the row begins again with one, and comes back here. */
			if (ticket) {
				ticket->stage = attempt;
				ticket->n_slow = n_slow;
			}
			return POOL_WOULD_BLOCK;
		}
		if (result == SAMPLE_E_BAD) {
			pool_rows_note_bad(p, index, err.text, err.outside);
			n_slow += err.slow;
			/* Spend no time on a substitute if there are too many bad samples already. */
			failed = attempt == SUBSTITUTES || n_slow == SLOW_SAMPLES ||
				 badlist_exceeds(&p->bad, p->bad_budget);
		} else if (result == 0) {
			note_made(&r, index, attempt);
		} else {
			failed = attempt == 0 || attempt == SUBSTITUTES;
		}
		done = failed || result == 0;
	}
	if (failed)
		atomic_store(&slot->failed, true);
	if (ticket)
		sample_input_drop(ticket->input);
	finish_rows(p, slot, 1);
	return 0;
}

/* ---- pictures that are rows of arrays on a local disk ---- */

/* Makes the row if nothing is wrong with it. */
static bool make_gathered(const struct row *r, void *worker, const uint8_t *picture)
{
	void *rows[VIEWS_MAX];
	struct sample_error err;
	places_of_views(r, rows);
	if (sample_make_gathered(r->source->recipe, worker, pool_rows_key_of(r, pool_rows_candidate(r, 0)), picture,
				 rows, &err))
		return false;
	note_image(r, worker);
	finish_rows(r->source, r->slot, 1);
	return true;
}

/* One by one where anything is wrong: run_image says what, and finds a substitute. */
static int run_pictures(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	struct slot *slot = pool_rows_slot_of(job);
	struct pool_rows *p = source_of(slot);
	struct row r = { p, slot, first };
	void *others[DATASET_MAX_FIELDS];
	size_t picture_bytes = pixels_bytes(&p->recipe->pixels);
	assert(!ticket);
	(void)places_of_others(&r, others);
	const uint8_t *pictures =
		p->checks_values || atomic_load_explicit(&slot->failed, memory_order_relaxed)
			? NULL
			: sample_gather(p->recipe, worker, (const uint64_t *)(const void *)(slot_indices(slot) + first),
					n, others);
	for (; r.number < first + n; r.number++) {
		if (pictures && make_gathered(&r, worker, pictures + (r.number - first) * picture_bytes))
			continue;
		int result = run_image(job, worker, r.number, 1, NULL);
		assert(result == 0);
		(void)result;
	}
	return 0;
}

static void fetch_image(struct pool_job *job, struct pool_ticket *ticket)
{
	struct slot *slot = pool_rows_slot_of(job);
	struct row r = { source_of(slot), slot, ticket->row };
	sample_fetch(r.source->recipe, pool_rows_candidate(&r, ticket->stage), ticket->input);
	tally_add(&r.source->source.sums, SOURCE_FILE_BYTES, sample_fetched_bytes(ticket->input));
}

/* ---- arrays ---- */

/* Replaces samples of which a value is too long. False: one cannot be replaced. */
static bool replace_long(const struct row *first, uint32_t n)
{
	struct pool_rows *p = first->source;
	char text[800];
	for (uint32_t i = 0; i < n; i++) {
		struct row r = { p, first->slot, first->number + i };
		uint64_t index = pool_rows_candidate(&r, 0), wanted = index;
		unsigned attempt = 0;
		while (is_too_long(p, index, text, sizeof(text))) {
			pool_rows_note_bad(p, index, text, true);
			if (attempt == SUBSTITUTES || badlist_exceeds(&p->bad, p->bad_budget))
				return false;
			index = substitute_index(&r, wanted, attempt++);
		}
		if (attempt == 0)
			continue;
		slot_indices(r.slot)[r.number] = (int64_t)index;
		atomic_fetch_add_explicit(&r.slot->n_replaced, 1, memory_order_relaxed);
	}
	return true;
}

static int pool_rows_gather(const struct row *r, uint32_t n, struct dataset_error *err)
{
	const uint64_t *indices = (const uint64_t *)(const void *)(slot_indices(r->slot) + r->number);
	const struct slot_layout *l = r->source->layout;
	void *rows[DATASET_MAX_FIELDS] = { NULL };
	if (r->source->checks_values && !replace_long(r, n)) {
		atomic_store(&r->slot->failed, true);
		return 0;
	}
	for (unsigned k = 0; k < l->n_fields; k++) {
		if (!l->field[k].ragged)
			rows[l->field[k].number] = row_of_field(r, &l->field[k]);
	}
	return dataset_gather(r->source->recipe->dataset, indices, n, rows, err);
}

static void note_gathered(const struct row *r, uint32_t n, int result, const struct dataset_error *err)
{
	if (result) {
		pool_rows_note_bad(r->source, (uint64_t)slot_indices(r->slot)[r->number], err->text,
				   err->code == DATASET_E_ACCESS);
		atomic_store(&r->slot->failed, true);
	}
	tally_add(&r->source->source.sums, SOURCE_ARRAY_BYTES, n * r->source->layout->row_bytes);
	finish_rows(r->source, r->slot, n);
}

static int run_array(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	(void)worker;
	(void)ticket;
	struct slot *slot = pool_rows_slot_of(job);
	struct row r = { source_of(slot), slot, first };
	struct dataset_error err;
	int result = pool_rows_gather(&r, n, &err);
	note_gathered(&r, n, result, &err);
	return 0;
}

/* Rows whose pages come from a server: the I/O thread that waits for the pages also copies them, because they may be
 * evicted before a worker gets to them. */
static int run_far_array(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	(void)worker;
	if (!ticket)
		return POOL_WOULD_BLOCK;
	struct slot *slot = pool_rows_slot_of(job);
	struct row r = { source_of(slot), slot, first };
	const struct sample_input *in = ticket->input;
	note_gathered(&r, n, in->result, &in->error);
	return 0;
}

static void fetch_array(struct pool_job *job, struct pool_ticket *ticket)
{
	struct slot *slot = pool_rows_slot_of(job);
	struct row r = { source_of(slot), slot, ticket->row };
	struct sample_input *in = ticket->input;
	in->result = pool_rows_gather(&r, ticket->n, &in->error);
}

/* ---- the loop thread ---- */

static void on_job_done(struct pool_job *job)
{
	struct slot *slot = pool_rows_slot_of(job);
	struct pool_rows *p = source_of(slot);
	p->filled(p, slot);
}

static const struct pool_job_ops image_job = { .run = run_image, .fetch = fetch_image, .done = on_job_done };
static const struct pool_job_ops pictures_job = { .run = run_pictures, .done = on_job_done };
static const struct pool_job_ops array_job = { .run = run_array, .done = on_job_done };
static const struct pool_job_ops far_array_job = { .run = run_far_array, .fetch = fetch_array, .done = on_job_done };

static const struct pool_job_ops *ops_for(const struct pool_rows *p)
{
	const struct dataset *ds = p->recipe->dataset;
	if (p->recipe->pipeline)
		return dataset_is_image(ds) || dataset_server(ds) ? &image_job : &pictures_job;
	return dataset_server(ds) ? &far_array_job : &array_job;
}

static uint32_t chunk_for(const struct pool_rows *p, const struct slot *slot)
{
	size_t row_bytes = p->layout->row_bytes, most = slot->n_rows;
	if (slot->job.ops == &image_job)
		return 1;
	if (slot->job.ops == &pictures_job) {
		size_t picture_bytes = pixels_bytes(&p->recipe->pixels);
		row_bytes = row_bytes > picture_bytes ? row_bytes : picture_bytes;
		most = most < CHUNK_PICTURES ? most : CHUNK_PICTURES;
	}
	size_t rows = CHUNK_BYTES / (row_bytes ? row_bytes : 1);
	return (uint32_t)(rows < 1 ? 1 : rows > most ? most : rows);
}

static void pool_rows_on_submit(struct batch_source *source, struct slot *slot)
{
	struct pool_rows *p = pool_rows_of(source);
	slot->job.ops = ops_for(p);
	slot->job.n_rows = slot->n_rows;
	slot->job.node = slot_node(slot);
	atomic_store_explicit(&slot->n_unpacked, slot->n_rows, memory_order_relaxed);
	slot->job.chunk = chunk_for(p, slot);
	pool_submit(p->pool, &slot->stream->queue, &slot->job);
}

static void pool_rows_on_cancel(struct batch_source *source, struct slot *slot)
{
	pool_cancel(pool_rows_of(source)->pool, &slot->job);
}

/* Other streams do not depend on a stream that has stopped, and cancelled jobs complete by themselves. */
static void pool_rows_ignore(struct batch_source *source)
{
	(void)source;
}

static const struct batch_source_ops source_ops = { .submit = pool_rows_on_submit,
						    .cancel = pool_rows_on_cancel,
						    .moved = pool_rows_ignore,
						    .close = pool_rows_ignore };

bool pool_rows_is_bad(struct pool_rows *p, struct slot *slot)
{
	assert(is_loop_thread());
	assert(slot->source == &p->source);
	return atomic_load(&slot->failed) ||
	       (atomic_load(&slot->n_replaced) && badlist_exceeds(&p->bad, p->bad_budget));
}

int pool_rows_init(struct pool_rows *p, struct pool *pool, const struct loader_spec *spec, const struct recipe *recipe,
		   const struct slot_layout *layout, const struct field *fields, double bad_budget)
{
	assert(is_loop_thread());
	assert(pool && recipe->dataset && layout->n_fields > 0);
	*p = (struct pool_rows){ .source = { .ops = &source_ops, .goes_back = true, .copies = !recipe->pipeline },
				 .pool = pool,
				 .spec = spec,
				 .recipe = recipe,
				 .layout = layout,
				 .fields = fields,
				 .bad_budget = bad_budget };
	for (unsigned k = 0; recipe->value_bytes && k < layout->n_fields; k++) {
		const struct slot_field *f = &layout->field[k];
		p->checks_values |= f->ragged && fields[k].longest > recipe->value_bytes / f->item_bytes;
	}
	return badlist_init(&p->bad, dataset_n(recipe->dataset), dataset_n_left_out(recipe->dataset));
}

void pool_rows_finish(struct pool_rows *p)
{
	assert(is_loop_thread());
	badlist_finish(&p->bad);
}
