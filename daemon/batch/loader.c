/* See loader.h. */
#include "batch/loader.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "batch/plan/plan.h"
#include "batch/verify-command.h"
#include "base/container.h"
#include "base/thread-kind.h"

enum {
	NAMED_IN_ERROR = 5,    /* bad samples; the log has them all */
	INLINE_PLAN = 1 << 16, /* samples whose order is made on the loop thread: well under a millisecond */
};

static struct loader *loader_of(const struct stream_host *h)
{
	return container_of(h, struct loader, host);
}

/* ---- what comes back ---- */

static void maybe_free(struct loader *l)
{
	assert(is_loop_thread());
	if (!l->closing || l->host.n_in_flight)
		return;
	l->ops->closed(l);
	streams_finish(&l->streams);
	pool_lane_leave(l->host.pool, l->host.lane);
	for (unsigned i = 0; i < 4; i++)
		plan_unref(l->plans[i].plan);
	pool_rows_finish(&l->rows);
	recipe_finish(&l->recipe);
	loader_spec_finish(&l->spec);
	free(l->fields);
	free(l);
}

/* Rows of arrays have no bad-data budget: a file that cannot be read ends the loader. */
static void fail_for_bad(struct loader *l)
{
	char bad[1536], limit[160] = "", command[1024];
	struct badlist *list = &l->rows.bad;
	uint64_t n = badlist_count(list);
	badlist_describe(list, NAMED_IN_ERROR, bad, sizeof(bad));
	if (n && badlist_exceeds(list, l->rows.bad_budget))
		snprintf(limit, sizeof(limit),
			 ". That is more than bad_data in the daemon's configuration allows (%g%%)",
			 100 * l->rows.bad_budget);
	verify_command(l->spec.dataset, command, sizeof(command));
	if (n && l->recipe.pipeline && badlist_count_files(list) && verify_can_open(l->spec.dataset))
		loader_fail(l, "%s%s; `%s` names them all", bad, limit, command);
	else if (n && l->recipe.pipeline)
		loader_fail(l, "%s%s", bad, limit);
	else
		loader_fail(l, "%s", n ? bad : "out of memory for a sample");
}

static void on_pool_filled(struct pool_rows *p, struct slot *slot)
{
	struct loader *l = p->owner;
	assert(l->host.n_in_flight > 0);
	l->host.n_in_flight--;
	if (pool_rows_is_bad(p, slot))
		fail_for_bad(l);
	stream_on_filled(slot->stream, slot);
	maybe_free(l);
}

static void on_came_back(struct stream_host *h)
{
	maybe_free(loader_of(h));
}

void loader_set_source(struct loader *l, struct batch_source *source)
{
	assert(is_loop_thread());
	assert(!l->host.n_in_flight && source);
	l->host.source = source;
}

void loader_source_done(struct loader *l, struct slot *slot)
{
	assert(is_loop_thread());
	assert(l->host.n_in_flight > 0 && slot->source == l->host.source);
	l->host.n_in_flight--;
	tally_add(&l->host.source->sums, SOURCE_ROWS, slot->n_rows);
	stream_on_filled(slot->stream, slot);
	maybe_free(l);
}

static void on_published(struct stream_host *h, bool waited)
{
	struct loader *l = loader_of(h);
	l->ops->published(l, waited);
}

/* No trainer with that device slab finds further batches there, whichever batch failed. */
static void loader_on_device_slab_failed(struct stream_host *h, const struct device_slab *device_slab, const char *why)
{
	struct loader *l = loader_of(h);
	for (uint32_t i = 0; l->is_async && i < l->group.n_places; i++) {
		struct consumer *c = l->group.member[i];
		if (c && c->device_slab == device_slab)
			c->ops->device_slab_failed(c, why);
	}
	for (uint32_t k = 0; !l->is_async && k < l->streams.n; k++) {
		struct stream *s = l->streams.list[k];
		for (uint32_t i = 0; s->consumers && i < s->n_consumers; i++) {
			struct consumer *c = s->consumers[i];
			if (c && c->device_slab == device_slab)
				c->ops->device_slab_failed(c, why);
		}
	}
}

void loader_fail(struct loader *l, const char *fmt, ...)
{
	assert(is_loop_thread());
	if (l->failed)
		return;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(l->error, sizeof(l->error), fmt, ap);
	va_end(ap);
	l->failed = l->host.stopped = true;
	l->ops->failed(l);
}

static void on_failed(struct stream_host *h, const char *why)
{
	loader_fail(loader_of(h), "%s", why);
}

/* ---- plans ---- */

struct plan_task {
	struct pool_task task;
	struct loader *loader;
	struct plan_spec spec;
	struct charge bytes;
	struct plan *plan;
	int result;
};

static struct plan_spec plan_spec_of(const struct loader *l, uint64_t epoch, uint64_t base)
{
	return (struct plan_spec){ .n_samples = dataset_n(l->recipe.dataset),
				   .seed = l->spec.seed,
				   .epoch = epoch,
				   .base = base,
				   .n_rows = l->spec.epoch_rows,
				   .repeats = l->spec.repeats,
				   .world_size = l->spec.share ? 1 : l->spec.world_size,
				   .shuffle = l->spec.shuffle,
				   .drop_last = l->spec.drop_last,
				   .blend = dataset_blend(l->recipe.dataset),
				   .shards = l->recipe.dataset };
}

/* Its order is a list of all samples: it takes memory, and time to make. */
static bool has_list(const struct loader *l)
{
	return l->spec.shuffle || dataset_blend(l->recipe.dataset);
}

static void plan_task_run(struct pool_task *t)
{
	struct plan_task *task = container_of(t, struct plan_task, task);
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
	assert(!result || !plan);
	struct plan_entry *e = find_plan(l, spec->epoch, spec->base);
	if (plan && bytes->account)
		plan_take_charge(plan, bytes);
	charge_release(bytes);
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

static void plan_task_done(struct pool_task *t)
{
	struct plan_task *task = container_of(t, struct plan_task, task);
	struct loader *l = task->loader;
	plan_arrived(l, &task->spec, task->plan, &task->bytes, task->result);
	for (uint32_t i = 0; i < l->streams.n; i++)
		stream_pump(l->streams.list[i]);
	free(task);
	assert(l->host.n_in_flight > 0);
	l->host.n_in_flight--;
	maybe_free(l);
}

/* NULL: all entries are being made. The caller asks again when one is ready, instead of evicting an entry that a stream
 * waits for. */
static struct plan_entry *claim_entry(struct loader *l, uint64_t epoch, uint64_t base)
{
	struct plan_entry *oldest = NULL;
	assert(!find_plan(l, epoch, base));
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
	assert(is_loop_thread());
	unsigned n = 2;
	if (l->spec.own_batches || l->spec.served || !has_list(l))
		return 0;
	struct plan_spec spec = plan_spec_of(l, 0, 0);
	uint64_t one = plan_spec_bytes(&spec), most = free_bytes / 4 * 3;
	for (unsigned i = 0; i < 4 && n > 0; i++)
		n -= l->plans[i].plan != NULL;
	while (n > 0 && one > most / n)
		n--;
	return n * one;
}

/* Drops the plan that was used longest ago, if there is one: its entry is free afterwards. */
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

/* must_be: a stream waits for the plan. Then older plans make room, and the loader fails if there is no room. */
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
	assert(is_loop_thread());
	assert(!find_plan(l, epoch, base));
	struct plan_task *task = calloc(1, sizeof(*task));
	if (!task) {
		loader_fail(l, "out of memory for the order of an epoch");
		return;
	}
	*task = (struct plan_task){ .task = { .run = plan_task_run, .done = plan_task_done, .owner = l->spec.uid },
				    .loader = l,
				    .spec = plan_spec_of(l, epoch, base) };
	if (!charge_plan(l, &task->spec, must_be, &task->bytes) || !claim_entry(l, epoch, base)) {
		charge_release(&task->bytes);
		free(task);
		return;
	}
	l->host.n_in_flight++;
	pool_run_task(l->host.pool, &task->task);
}

static struct plan *make_cheap_plan(struct loader *l, uint64_t epoch, uint64_t base)
{
	assert(!find_plan(l, epoch, base));
	struct plan_spec spec = plan_spec_of(l, epoch, base);
	struct plan *plan = NULL;
	struct charge bytes = { 0 };
	if (!charge_plan(l, &spec, true, &bytes))
		return NULL;
	int r = plan_create(&spec, &plan);
	claim_entry(l, epoch, base); /* none is being made elsewhere: all of them are cheap */
	plan_arrived(l, &spec, plan, &bytes, r);
	struct plan_entry *e = find_plan(l, epoch, base);
	return e ? e->plan : NULL;
}

static struct plan *on_order(struct stream_host *h, uint64_t epoch, uint64_t base)
{
	assert(is_loop_thread());
	struct loader *l = loader_of(h);
	struct plan_entry *e = find_plan(l, epoch, base);
	bool cheap = !has_list(l) || dataset_n(l->recipe.dataset) <= INLINE_PLAN;
	if (l->failed)
		return NULL;
	if (!e && cheap)
		return make_cheap_plan(l, epoch, base);
	if (!e) {
		request_plan(l, epoch, base, true);
		return NULL;
	}
	e->used = ++l->plan_clock;
	/* Make the next epoch's order while this one is read, if there is memory and an I/O thread for it. */
	if (!cheap && e->plan && !find_plan(l, epoch + 1, 0))
		request_plan(l, epoch + 1, 0, false);
	return e->plan;
}

static uint64_t n_per_rank(const struct loader *l, uint64_t base)
{
	struct plan_spec spec = plan_spec_of(l, 0, base);
	return plan_spec_n_per_rank(&spec);
}

uint64_t loader_epoch_rows(const struct loader *l)
{
	return plan_length(dataset_n(l->recipe.dataset), l->spec.repeats, l->spec.epoch_rows);
}

uint64_t loader_n_batches(const struct loader *l, uint64_t base)
{
	/* The length of a producer's epoch is known only when the epoch is over. */
	return l->spec.served ? UINT64_MAX : plan_n_batches(n_per_rank(l, base), l->spec.batch_size, l->spec.drop_last);
}

static uint64_t on_n_batches(const struct stream_host *h, uint64_t base)
{
	return loader_n_batches(loader_of(h), base);
}

/* ---- life ---- */

/* The same for the same request on the same data, also after a restart: tokens carry it. */
static uint64_t hash_loader(const struct loader *l)
{
	char text[512];
	enum dtype dtype = l->layout.n_fields ? l->fields[0].dtype : DTYPE_UINT8;
	int n = snprintf(text, sizeof(text), "%llx %d %d %u %d %llx %d %d %d %d %u %llx",
			 (unsigned long long)dataset_id(l->recipe.dataset), (int)dtype, (int)l->spec.layout,
			 l->spec.batch_size, l->spec.shuffle, (unsigned long long)l->spec.seed, l->spec.drop_last,
			 l->spec.share, l->recipe.apply_exif, l->spec.own_batches, l->spec.repeats,
			 (unsigned long long)l->spec.epoch_rows);
	uint64_t h = XXH3_64bits(text, (size_t)n);
	const char *pipeline = l->recipe.pipeline ? pipeline_text(l->recipe.pipeline) : "";
	h = XXH3_64bits_withSeed(pipeline, strlen(pipeline), h);
	for (unsigned k = 0; k < l->layout.n_fields; k++)
		h = XXH3_64bits_withSeed(l->fields[k].name, strlen(l->fields[k].name), h);
	return h;
}

enum { BY_INDEX, BY_POSITION }; /* what random draws are keyed by: global_position */

static uint64_t hash_pipeline(const struct loader *l)
{
	const char *text = l->recipe.pipeline ? pipeline_text(l->recipe.pipeline) : NULL;
	uint64_t keyed = l->spec.own_batches ? BY_POSITION : BY_INDEX;
	return text ? XXH3_64bits_withSeed(text, strlen(text), l->recipe.apply_exif | keyed << 1) : 0;
}

/* A share group of size 1 is an open group: trainers come and go. */
static bool is_async(const struct loader_spec *spec)
{
	return spec->share && !spec->served && (spec->world_size == 1 || spec->policy != GROUP_WAIT);
}

static const struct stream_host_ops host_ops = { .n_batches = on_n_batches,
						 .order = on_order,
						 .published = on_published,
						 .device_slab_failed = loader_on_device_slab_failed,
						 .failed = on_failed,
						 .came_back = on_came_back };

/* Shard: streams of ranks are made as the ranks come. */
static int make_streams(struct loader *l)
{
	l->is_async = is_async(&l->spec);
	l->streams.host = &l->host;
	if (l->is_async)
		return group_init(&l->group, &l->streams, l->spec.policy, l->spec.world_size);
	bool open = l->spec.served && l->spec.world_size == 1; /* as far as one sequence of batches allows: a later
	                                                        * trainer joins at the position of the others */
	l->streams.n_consumers = !l->spec.share ? 1 : open ? LOADER_MAX_SHARE : l->spec.world_size;
	if (!l->spec.share)
		return 0;
	struct stream *s = streams_add(&l->streams, 0);
	if (s && l->spec.world_size > 1)
		s->expected = UINT64_MAX >> (64 - l->spec.world_size);
	return s ? 0 : -ENOMEM;
}

uint32_t loader_n_ranks(const struct loader *l)
{
	return l->spec.share ? 1 : l->spec.world_size;
}

struct stream *loader_find_stream(const struct loader *l, uint32_t rank)
{
	return streams_find(&l->streams, l->spec.share ? 0 : rank);
}

struct stream *loader_stream(struct loader *l, uint32_t rank)
{
	assert(is_loop_thread());
	assert(l->spec.share || rank < l->spec.world_size);
	struct stream *s = loader_find_stream(l, rank);
	return s ? s : streams_add(&l->streams, rank);
}

int loader_attach(struct loader *l, struct consumer *c, uint32_t rank)
{
	assert(is_loop_thread());
	assert(!l->closing);
	return l->is_async ? group_attach(&l->group, c, rank) : stream_attach(loader_find_stream(l, rank), c, rank);
}

void loader_detach(struct consumer *c)
{
	assert(is_loop_thread());
	if (c->group)
		group_leave(c);
	else
		stream_detach(c);
}

int loader_seek(struct consumer *c, uint64_t seek, const struct position *to)
{
	assert(is_loop_thread());
	assert(consumer_is_placed(c) || c->home);
	if (!c->group)
		return stream_seek(c, seek, to);
	group_seek(c, seek, to);
	return 0;
}

void loader_finish_consumer(struct consumer *c)
{
	loader_detach(c);
	consumer_finish(c);
}

size_t loader_stream_bytes(const struct loader *l)
{
	return sizeof(struct stream) + sizeof(struct stream *) + l->streams.n_consumers * sizeof(struct consumer *);
}

int loader_create(struct pool *pool, struct loader_spec *spec, struct recipe *recipe, double bad_budget,
		  const struct loader_ops *ops, void *owner, struct loader **out)
{
	assert(is_loop_thread());
	assert(recipe->dataset && spec->batch_size > 0 && spec->world_size > 0);
	struct loader *l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->spec = *spec;
	l->recipe = *recipe;
	l->host = (struct stream_host){ .ops = &host_ops, .pool = pool, .spec = &l->spec, .source = &l->rows.source };
	l->ops = ops;
	l->owner = owner;
	l->created_ns = uv_hrtime();
	int r = fields_make(recipe, spec, &l->fields, &l->layout);
	if (r == 0 && dataset_server(recipe->dataset))
		r = pool_lane_join(pool, dataset_server(recipe->dataset), spec->uid, &l->host.lane);
	if (r == 0)
		r = pool_rows_init(&l->rows, pool, &l->spec, &l->recipe, &l->layout, l->fields, bad_budget);
	if (r == 0) {
		l->rows.filled = on_pool_filled;
		l->rows.owner = l;
		r = make_streams(l);
		if (r)
			pool_rows_finish(&l->rows);
	}
	if (r) {
		streams_finish(&l->streams);
		pool_lane_leave(pool, l->host.lane);
		free(l->fields);
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
	assert(is_loop_thread());
	l->host.stopped = true;
}

void loader_close(struct loader *l)
{
	assert(is_loop_thread());
	assert(!l->closing);
	l->host.stopped = true;
	for (uint32_t i = 0; i < l->streams.n; i++)
		stream_finish(l->streams.list[i]);
	if (l->is_async)
		group_finish(&l->group);
	l->host.source->ops->close(l->host.source);
	l->closing = true;
	maybe_free(l);
}
