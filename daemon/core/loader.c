/* See loader.h. Functions below "workers" run on worker and I/O threads: they read the loader's recipe and spec
 * (constant), write the rows they were given, and touch nothing else but atomics and the badlist. */
#include "core/loader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "core/sampler.h"
#include "pipeline/random.h"
#include "util/log.h"

enum {
	SUBSTITUTES = 16,            /* tries before a loader gives up on a row */
	SLOW_SAMPLES = 2,            /* of a row that may use up their processor time before that, too */
	NAMED_IN_ERROR = 5,          /* bad samples; the log has them all */
	INLINE_PLAN = 1 << 16,       /* samples whose order is made on the loop thread: well under a millisecond */
	CHUNK_BYTES = 256 * 1024,    /* of array rows a worker takes at once */
};

#define slot_of(job_ptr) ((struct slot *)(void *)((char *)(job_ptr)-offsetof(struct slot, job)))

/* ---- workers ---- */

struct row {
	struct loader *loader;
	struct slot *slot;
	uint32_t number;
};

static void *row_data(const struct row *r)
{
	return slot_data(r->slot) + (size_t)r->number * r->loader->layout.row_bytes;
}

/* A row's place in its epoch, over all ranks; own batches may be shorter than batch_size and leave gaps. */
static uint64_t global_position(const struct row *r)
{
	const struct loader_spec *spec = &r->loader->spec;
	const struct position *at = &r->slot->at;
	return at->base + (at->step * spec->world_size + r->slot->stream->plan_rank) * spec->batch_size + r->number;
}

/* What the row's draws are keyed by. The built-in order names a sample once an epoch, so that its pixels do not depend
 * on the world size; a caller's own may name it as often as it likes, and each time is another augmentation. */
static struct sample_key key_of(const struct row *r, uint64_t index)
{
	const struct loader_spec *spec = &r->loader->spec;
	uint64_t seed = spec->own_batches ? random_seed_at(spec->seed, global_position(r)) : spec->seed;
	return (struct sample_key){ seed, r->slot->at.epoch, index };
}

static uint64_t substitute_index(const struct row *r, uint64_t index, unsigned attempt)
{
	const struct loader *l = r->loader;
	return sample_substitute(l->spec.seed, r->slot->at.epoch, index, attempt, dataset_n(l->recipe.dataset));
}

static void note_bad(struct loader *l, uint64_t index, const char *text)
{
	if (!badlist_add(&l->bad, index, text))
		return;
	const char *fields[] = { "JOB", l->spec.job, "SAMPLE", text, NULL };
	log_record_fields(LOG_LEVEL_WARNING, "bad-sample", fields, "sample %llu replaced: %s",
			  (unsigned long long)index, text);
}

/* Where a row's sample cannot be decoded another takes the row; which one depends on nothing but (seed, epoch, index):
 * a resumed epoch has the same ones, also with another world size. Attempt 0 is the sample itself. */
static uint64_t candidate(const struct row *r, unsigned attempt)
{
	uint64_t index = (uint64_t)slot_indices(r->slot)[r->number];
	return attempt == 0 ? index : substitute_index(r, index, attempt - 1);
}

static void note_made(const struct row *r, uint64_t index, unsigned attempt)
{
	((int64_t *)(void *)slot_labels(r->slot))[r->number] = dataset_label(r->loader->recipe.dataset, index);
	if (attempt == 0)
		return;
	slot_indices(r->slot)[r->number] = (int64_t)index;
	atomic_fetch_add_explicit(&r->slot->n_replaced, 1, memory_order_relaxed);
}

static int run_image(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	(void)n;
	struct slot *slot = slot_of(job);
	struct loader *l = slot->stream->loader;
	struct row r = { l, slot, first };
	struct sample_input *in = ticket ? ticket->input : NULL;
	unsigned n_slow = ticket ? ticket->n_slow : 0;
	/* Of a batch that has failed nothing more is made: the loader ends with it. */
	bool failed = atomic_load_explicit(&slot->failed, memory_order_relaxed), done = failed;
	for (unsigned attempt = ticket ? ticket->stage : 0; !done; attempt++, in = NULL) {
		uint64_t index = candidate(&r, attempt);
		struct sample_error err;
		int result = sample_make(&l->recipe, worker, key_of(&r, index), in, false, row_data(&r), &err);
		if (result == SAMPLE_E_WOULD_BLOCK) {
			/* Without a ticket yet the row begins anew with one, and comes back here. */
			if (ticket) {
				ticket->stage = attempt;
				ticket->n_slow = n_slow;
			}
			return POOL_WOULD_BLOCK;
		}
		if (result == SAMPLE_E_BAD) {
			note_bad(l, index, err.text);
			n_slow += err.slow;
			/* No time is spent on a substitute when there are too many bad samples already. */
			failed = attempt == SUBSTITUTES || n_slow == SLOW_SAMPLES || badlist_exceeds(&l->bad, l->bad_budget);
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
	atomic_fetch_add_explicit(&l->n_made, 1, memory_order_relaxed);
	return 0;
}

static void fetch_image(struct pool_job *job, struct pool_ticket *ticket)
{
	struct slot *slot = slot_of(job);
	struct row r = { slot->stream->loader, slot, ticket->row };
	sample_fetch(&r.loader->recipe, candidate(&r, ticket->stage), ticket->input);
}

static int gather(const struct row *r, uint32_t n, struct dataset_error *err)
{
	const uint64_t *indices = (const uint64_t *)(const void *)(slot_indices(r->slot) + r->number);
	return dataset_gather(r->loader->recipe.dataset, indices, n, row_data(r),
			      slot_labels(r->slot) + (size_t)r->number * r->loader->layout.label_bytes, err);
}

static void note_gathered(const struct row *r, uint32_t n, int result, const struct dataset_error *err)
{
	if (result) {
		note_bad(r->loader, (uint64_t)slot_indices(r->slot)[r->number], err->text);
		atomic_store(&r->slot->failed, true);
	}
	atomic_fetch_add_explicit(&r->loader->n_made, n, memory_order_relaxed);
}

static int run_array(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	(void)worker;
	(void)ticket;
	struct slot *slot = slot_of(job);
	struct row r = { slot->stream->loader, slot, first };
	struct dataset_error err;
	int result = gather(&r, n, &err);
	note_gathered(&r, n, result, &err);
	return 0;
}

/* Rows whose pages a server brings: the I/O thread that waits for them copies them, too, as they may be gone again by
 * the time that a worker came to it. */
static int run_far_array(struct pool_job *job, void *worker, uint32_t first, uint32_t n, struct pool_ticket *ticket)
{
	(void)worker;
	if (!ticket)
		return POOL_WOULD_BLOCK;
	struct slot *slot = slot_of(job);
	struct row r = { slot->stream->loader, slot, first };
	const struct sample_input *in = ticket->input;
	note_gathered(&r, n, in->result, &in->error);
	return 0;
}

static void fetch_array(struct pool_job *job, struct pool_ticket *ticket)
{
	struct slot *slot = slot_of(job);
	struct row r = { slot->stream->loader, slot, ticket->row };
	struct sample_input *in = ticket->input;
	in->result = gather(&r, ticket->n, &in->error);
}

/* ---- jobs, on the loop thread ---- */

static void free_streams(struct loader *l)
{
	for (uint32_t i = 0; i < l->n_streams; i++) {
		pool_queue_remove(l->pool, &l->streams[i]->queue);
		free(l->streams[i]);
	}
	free(l->streams);
}

static void maybe_free(struct loader *l)
{
	if (!l->closing || l->n_in_flight)
		return;
	l->ops->closed(l);
	free_streams(l);
	for (unsigned i = 0; i < 4; i++)
		plan_unref(l->plans[i].plan);
	badlist_finish(&l->bad);
	recipe_finish(&l->recipe);
	loader_spec_finish(&l->spec);
	free(l);
}

/* The rows of arrays have no limit: a file that cannot be read ends the loader. */
static void fail_for_bad(struct loader *l)
{
	char bad[1536], limit[160] = "";
	uint64_t n = badlist_count(&l->bad);
	badlist_describe(&l->bad, NAMED_IN_ERROR, bad, sizeof(bad));
	if (n && badlist_exceeds(&l->bad, l->bad_budget))
		snprintf(limit, sizeof(limit), ". That is more than bad_data in the daemon's configuration allows (%g%%)",
			 100 * l->bad_budget);
	if (n && l->recipe.pipeline)
		loader_fail(l, "%s%s; `batchctl verify %s` names them all", bad, limit, l->spec.dataset);
	else
		loader_fail(l, "%s", n ? bad : "out of memory for a sample");
}

static void on_job_done(struct pool_job *job)
{
	struct slot *slot = slot_of(job);
	struct stream *s = slot->stream;
	struct loader *l = s->loader;
	l->n_in_flight--;
	if (atomic_load(&slot->failed) || (atomic_load(&slot->n_replaced) && badlist_exceeds(&l->bad, l->bad_budget))) {
		fail_for_bad(l);
	}
	stream_on_filled(s, slot);
	maybe_free(l);
}

void loader_copied(struct loader *l)
{
	l->n_in_flight--;
	maybe_free(l);
}

static const struct pool_job_ops image_job = { .run = run_image, .fetch = fetch_image, .done = on_job_done };
static const struct pool_job_ops array_job = { .run = run_array, .done = on_job_done };
static const struct pool_job_ops far_array_job = { .run = run_far_array, .fetch = fetch_array, .done = on_job_done };

void loader_submit(struct loader *l, struct pool_queue *q, struct slot *slot)
{
	if (l->source) {
		l->n_in_flight++;
		l->source->ops->submit(l->source, slot);
		return;
	}
	bool image = l->recipe.pipeline != NULL;
	size_t rows = CHUNK_BYTES / (l->layout.row_bytes ? l->layout.row_bytes : 1);
	slot->job.ops = image ? &image_job : dataset_server(l->recipe.dataset) ? &far_array_job : &array_job;
	slot->job.n_rows = slot->n_rows;
	slot->job.chunk = image || rows < 1 ? 1 : rows > slot->n_rows ? slot->n_rows : (uint32_t)rows;
	l->n_in_flight++;
	pool_submit(l->pool, q, &slot->job);
}

void loader_cancel(struct loader *l, struct slot *slot)
{
	if (l->source)
		l->source->ops->cancel(l->source, slot);
	else
		pool_cancel(l->pool, &slot->job);
}

void loader_source_done(struct loader *l, struct slot *slot)
{
	loader_hold(l);
	l->n_in_flight--;
	atomic_fetch_add_explicit(&l->n_made, slot->n_rows, memory_order_relaxed);
	stream_on_filled(slot->stream, slot);
	loader_let_go(l);
}

void loader_hold(struct loader *l)
{
	l->n_in_flight++;
}

void loader_let_go(struct loader *l)
{
	l->n_in_flight--;
	maybe_free(l);
}

void loader_note_published(struct loader *l, const struct slot *slot, bool waited)
{
	l->n_batches_published++;
	l->n_samples_published += slot->n_rows;
	l->ops->published(l, waited);
}

void loader_fail(struct loader *l, const char *fmt, ...)
{
	if (l->failed)
		return;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(l->error, sizeof(l->error), fmt, ap);
	va_end(ap);
	l->failed = true;
	l->ops->failed(l);
}

/* ---- plans ---- */

struct plan_task {
	struct pool_task task;
	struct loader *loader;
	struct plan_spec spec;
	struct charge bytes, place;
	struct plan *plan;
	int result;
};

static struct plan_spec plan_spec_of(const struct loader *l, uint64_t epoch, uint64_t base)
{
	return (struct plan_spec){ .n_samples = dataset_n(l->recipe.dataset), .seed = l->spec.seed, .epoch = epoch,
				   .base = base, .world_size = l->spec.share ? 1 : l->spec.world_size,
				   .shuffle = l->spec.shuffle, .drop_last = l->spec.drop_last };
}

static void plan_task_run(struct pool_task *t)
{
	struct plan_task *task = (struct plan_task *)t;
	task->result = plan_create(&task->spec, &task->plan);
}

static struct plan_entry *find_plan(struct loader *l, uint64_t epoch, uint64_t base)
{
	for (unsigned i = 0; i < 4; i++) {
		struct plan_entry *e = &l->plans[i];
		if (e->in_use && e->epoch == epoch && e->base == base)
			return e;
	}
	return NULL;
}

static void plan_arrived(struct loader *l, const struct plan_spec *spec, struct plan *plan, struct charge *bytes,
			 int result)
{
	struct plan_entry *e = find_plan(l, spec->epoch, spec->base);
	if (plan && bytes->account)
		plan_take_charge(plan, bytes);
	charge_end(bytes);
	if (result) {
		loader_fail(l, "out of memory for the order of an epoch: %llu bytes",
			    (unsigned long long)plan_spec_bytes(spec));
	} else if (e && !e->plan) {
		e->plan = plan;
		e->used = ++l->plan_clock;
		return;
	}
	plan_unref(plan);
}

void loader_retry(struct loader *l)
{
	l->wants_task = false;
	loader_hold(l);
	for (uint32_t i = 0; i < l->n_streams; i++)
		stream_pump(l->streams[i]);
	loader_let_go(l);
}

static void plan_task_done(struct pool_task *t)
{
	struct plan_task *task = (struct plan_task *)t;
	struct loader *l = task->loader;
	plan_arrived(l, &task->spec, task->plan, &task->bytes, task->result);
	loader_retry(l);
	if (l->ops->end_task)
		l->ops->end_task(l, &task->place);
	free(task);
	l->n_in_flight--;
	maybe_free(l);
}

/* NULL: all of them are being made. Who wants one more asks again when one is there, instead of taking the place of one
 * that somebody waits for. */
static struct plan_entry *claim_entry(struct loader *l, uint64_t epoch, uint64_t base)
{
	struct plan_entry *oldest = NULL;
	for (unsigned i = 0; i < 4; i++) {
		bool being_made = l->plans[i].in_use && !l->plans[i].plan;
		if (!being_made && (!oldest || l->plans[i].used < oldest->used))
			oldest = &l->plans[i];
	}
	if (!oldest)
		return NULL;
	plan_unref(oldest->plan);
	*oldest = (struct plan_entry){ .epoch = epoch, .base = base, .used = ++l->plan_clock, .in_use = true };
	return oldest;
}

uint64_t loader_order_bytes(const struct loader *l, uint64_t free_bytes)
{
	struct plan_spec spec = plan_spec_of(l, 0, 0);
	uint64_t one = plan_spec_bytes(&spec), most = free_bytes / 4 * 3;
	unsigned n = 2;
	if (!l->spec.shuffle || l->spec.own_batches || l->source)
		return 0;
	for (unsigned i = 0; i < 4 && n > 0; i++)
		n -= l->plans[i].plan != NULL;
	while (n > 0 && one > most / n)
		n--;
	return n * one;
}

/* The plan that was used longest ago, if it is there: its place is free afterwards. */
static bool drop_oldest(struct loader *l)
{
	struct plan_entry *oldest = NULL;
	for (unsigned i = 0; i < 4; i++) {
		if (l->plans[i].plan && (!oldest || l->plans[i].used < oldest->used))
			oldest = &l->plans[i];
	}
	if (!oldest)
		return false;
	plan_unref(oldest->plan);
	*oldest = (struct plan_entry){ 0 };
	return true;
}

/* must_be: somebody waits for it. Then older plans make room, and the loader fails where none is left. */
static bool charge_plan(struct loader *l, const struct plan_spec *spec, bool must_be, struct charge *c)
{
	char what[64], why[512];
	int r;
	if (!l->ops->charge)
		return true;
	snprintf(what, sizeof(what), "the order of an epoch of %llu samples", (unsigned long long)spec->n_samples);
	do
		r = l->ops->charge(l, what, plan_spec_bytes(spec), must_be, c, why, sizeof(why));
	while (r && must_be && drop_oldest(l));
	if (r && must_be)
		loader_fail(l, "%s", why);
	return r == 0;
}

static void request_plan(struct loader *l, uint64_t epoch, uint64_t base, bool must_be)
{
	struct plan_task *task = calloc(1, sizeof(*task));
	if (!task) {
		loader_fail(l, "out of memory for the order of an epoch");
		return;
	}
	*task = (struct plan_task){ .task = { .run = plan_task_run, .done = plan_task_done }, .loader = l,
				    .spec = plan_spec_of(l, epoch, base) };
	if (l->ops->begin_task && !l->ops->begin_task(l, &task->place)) {
		l->wants_task = l->wants_task || must_be;
		free(task);
		return;
	}
	if (!charge_plan(l, &task->spec, must_be, &task->bytes) || !claim_entry(l, epoch, base)) {
		charge_end(&task->bytes);
		if (l->ops->end_task)
			l->ops->end_task(l, &task->place);
		free(task);
		return;
	}
	l->n_in_flight++;
	pool_run_task(l->pool, &task->task);
}

static struct plan *make_cheap_plan(struct loader *l, uint64_t epoch, uint64_t base)
{
	struct plan_spec spec = plan_spec_of(l, epoch, base);
	struct plan *plan = NULL;
	struct charge bytes = { 0 };
	if (!charge_plan(l, &spec, true, &bytes))
		return NULL;
	int r = plan_create(&spec, &plan);
	claim_entry(l, epoch, base); /* none is being made elsewhere: they are all cheap */
	plan_arrived(l, &spec, plan, &bytes, r);
	struct plan_entry *e = find_plan(l, epoch, base);
	return e ? e->plan : NULL;
}

struct plan *loader_plan(struct loader *l, uint64_t epoch, uint64_t base)
{
	struct plan_entry *e = find_plan(l, epoch, base);
	bool cheap = !l->spec.shuffle || dataset_n(l->recipe.dataset) <= INLINE_PLAN;
	if (l->failed)
		return NULL;
	if (!e && cheap)
		return make_cheap_plan(l, epoch, base);
	if (!e) {
		request_plan(l, epoch, base, true);
		return NULL;
	}
	e->used = ++l->plan_clock;
	/* The next epoch's order is made while this one is read, if there is memory and an I/O thread for it. */
	if (!cheap && e->plan && !find_plan(l, epoch + 1, 0))
		request_plan(l, epoch + 1, 0, false);
	return e->plan;
}

static uint64_t n_per_rank(const struct loader *l, uint64_t base)
{
	struct plan_spec spec = plan_spec_of(l, 0, base);
	return plan_spec_n_per_rank(&spec);
}

uint64_t loader_n_batches(const struct loader *l, uint64_t base)
{
	/* How long a producer's epoch is shows only when it is over. */
	return l->source ? UINT64_MAX : plan_n_batches(n_per_rank(l, base), l->spec.batch_size, l->spec.drop_last);
}

/* ---- life ---- */

static size_t product(const uint32_t *shape, unsigned n, size_t element_bytes)
{
	for (unsigned i = 0; i < n; i++)
		element_bytes *= shape[i];
	return element_bytes;
}

static void describe_samples(struct loader *l)
{
	const struct recipe *r = &l->recipe;
	if (r->pipeline) {
		pipeline_shape(r->pipeline, l->shape);
		l->n_dims = 3;
		l->dtype = l->spec.dtype;
	} else {
		l->n_dims = dataset_shape(r->dataset, l->shape, &l->dtype);
	}
	l->n_label_dims = dataset_label_shape(r->dataset, l->label_shape, &l->label_dtype);
}

/* The same for the same request on the same data, after a restart as well: tokens carry it. */
static uint64_t hash_loader(const struct loader *l)
{
	char text[512];
	int n = snprintf(text, sizeof(text), "%llx %d %d %u %d %llx %d %d %d %d",
			 (unsigned long long)dataset_id(l->recipe.dataset), (int)l->dtype, (int)l->spec.layout,
			 l->spec.batch_size, l->spec.shuffle, (unsigned long long)l->spec.seed, l->spec.drop_last,
			 l->spec.share, l->spec.apply_exif, l->spec.own_batches);
	uint64_t h = XXH3_64bits(text, (size_t)n);
	const char *pipeline = l->recipe.pipeline ? pipeline_text(l->recipe.pipeline) : "";
	return XXH3_64bits_withSeed(pipeline, strlen(pipeline), h);
}

enum { BY_INDEX, BY_POSITION }; /* what draws are keyed by: global_position */

static uint64_t hash_pipeline(const struct loader *l)
{
	const char *text = l->recipe.pipeline ? pipeline_text(l->recipe.pipeline) : NULL;
	uint64_t keyed = l->spec.own_batches ? BY_POSITION : BY_INDEX;
	return text ? XXH3_64bits_withSeed(text, strlen(text), l->spec.apply_exif | keyed << 1) : 0;
}

/* A share group of one is an open one: trainers come and go. */
static bool is_loose(const struct loader_spec *spec)
{
	return spec->share && !spec->served && (spec->world_size == 1 || spec->policy != GROUP_WAIT);
}

/* Where the stream of that number is, or would be. */
static uint32_t place_of(const struct loader *l, uint32_t number)
{
	uint32_t low = 0, high = l->n_streams;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (l->streams[middle]->number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct stream *add_stream(struct loader *l, uint32_t number)
{
	struct stream **grown = realloc(l->streams, (l->n_streams + 1) * sizeof(struct stream *));
	if (grown)
		l->streams = grown;
	struct stream *s = grown ? malloc(sizeof(*s)) : NULL;
	if (!s || stream_init(s, l, number, l->n_consumers)) {
		free(s);
		return NULL;
	}
	uint32_t place = place_of(l, number);
	memmove(&l->streams[place + 1], &l->streams[place], (l->n_streams - place) * sizeof(struct stream *));
	l->streams[place] = s;
	l->n_streams++;
	return s;
}

/* Those of ranks are made as they come. */
static int make_streams(struct loader *l)
{
	l->is_loose = is_loose(&l->spec);
	if (l->is_loose)
		group_init(&l->group, l, l->spec.policy, l->spec.world_size);
	bool open = l->spec.served && l->spec.world_size == 1; /* as one sequence of batches allows: who comes later
	                                                        * joins where the others are */
	l->n_consumers = l->is_loose      ? l->group.n_places
			 : !l->spec.share ? 1
			 : open           ? LOADER_MAX_SHARE
					  : l->spec.world_size;
	return l->spec.share && !add_stream(l, 0) ? -ENOMEM : 0;
}

uint32_t loader_n_ranks(const struct loader *l)
{
	return l->spec.share ? 1 : l->spec.world_size;
}

struct stream *loader_find_stream(const struct loader *l, uint32_t rank)
{
	uint32_t number = l->spec.share ? 0 : rank, place = place_of(l, number);
	return place < l->n_streams && l->streams[place]->number == number ? l->streams[place] : NULL;
}

struct stream *loader_stream(struct loader *l, uint32_t rank)
{
	struct stream *s = loader_find_stream(l, rank);
	return s ? s : add_stream(l, rank);
}

size_t loader_stream_bytes(const struct loader *l)
{
	return sizeof(struct stream) + sizeof(struct stream *) + l->n_consumers * sizeof(struct consumer *);
}

struct stream *loader_add_cohort(struct loader *l)
{
	return l->n_streams < GROUP_MAX_COHORTS(l->group.n_places) ? add_stream(l, l->n_streams) : NULL;
}

int loader_create(struct pool *pool, struct loader_spec *spec, struct recipe *recipe, double bad_budget,
		  const struct loader_ops *ops, void *owner, struct loader **out)
{
	struct loader *l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->pool = pool;
	l->spec = *spec;
	l->recipe = *recipe;
	l->ops = ops;
	l->owner = owner;
	l->bad_budget = bad_budget;
	l->created_ns = uv_hrtime();
	describe_samples(l);
	size_t row_bytes = recipe->pipeline ? pipeline_row_bytes(recipe->pipeline) :
					      product(l->shape, l->n_dims, dtype_bytes(l->dtype));
	size_t label_bytes = product(l->label_shape, l->n_label_dims, dtype_bytes(l->label_dtype));
	int r = slot_layout_make(row_bytes, label_bytes, spec->batch_size, &l->layout);
	if (r == 0)
		r = badlist_init(&l->bad, dataset_n(recipe->dataset));
	if (r == 0) {
		r = make_streams(l);
		if (r)
			badlist_finish(&l->bad);
	}
	if (r) {
		free(l->streams);
		free(l);
		return r;
	}
	l->id = hash_loader(l);
	l->pipeline_id = hash_pipeline(l);
	*spec = (struct loader_spec){ 0 };
	*recipe = (struct recipe){ 0 };
	*out = l;
	return 0;
}

void loader_stop(struct loader *l)
{
	l->stopped = true;
}

void loader_close(struct loader *l)
{
	l->closing = true;
	loader_hold(l);
	for (uint32_t i = 0; i < l->n_streams; i++)
		stream_finish(l->streams[i]);
	if (l->is_loose)
		group_finish(&l->group);
	if (l->source)
		l->source->ops->close(l->source);
	loader_let_go(l);
}
