/* The daemon's state as JSON (jansson), for `batchctl status` and monitoring. Every number is taken at the time of the
 * request; nothing is stored for it. Names are the terms of the field; bytes, seconds and counts have their unit in the
 * key. */
#include "watch/status.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <jansson.h>

#include "watch/clock-status.h"
#include "batch/device-slab.h"
#include "batch/loader.h"
#include "batch/plan/plan.h"
#include "dataset/cache/sample-cache.h"
#include "server/job.h"
#include "server/single-images.h"
#include "watch/numa-status.h"
#include "watch/pin-status.h"
#include "server/producer.h"
#include "server/recent-errors.h"
#include "server/session-ring.h"
#include "server/slot-alloc.h"
#include "server/spare.h"
#include "base/namespace.h"
#include "watch/stage-status.h"
#include "base/thread-kind.h"
#include "watch/verdict-status.h"

/* Whether all of a user's rows are shown: names, paths and programs are private to that user. */
static bool may_see(uid_t viewer, uid_t owner)
{
	return viewer == 0 || viewer == owner;
}

static double status_seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

static void status_set(json_t *object, const char *key, json_t *value)
{
	json_object_set_new(object, key, value);
}

static void set_int(json_t *object, const char *key, uint64_t value)
{
	status_set(object, key, json_integer((json_int_t)value));
}

/* File names are bytes and JSON is UTF-8: invalid bytes become '?'. */
static void set_text(json_t *object, const char *key, const char *value)
{
	json_t *text = json_string(value);
	if (!text) {
		char copy[1024];
		size_t n = 0;
		for (; value[n] && n < sizeof(copy) - 1; n++)
			copy[n] = (unsigned char)value[n] < 128 ? value[n] : '?';
		copy[n] = '\0';
		text = json_string(copy);
	}
	status_set(object, key, text);
}

static uint64_t rss_bytes(void)
{
	unsigned long long size, resident = 0;
	FILE *f = fopen("/proc/self/statm", "re");
	if (!f)
		return 0;
	if (fscanf(f, "%llu %llu", &size, &resident) != 2)
		resident = 0;
	fclose(f);
	return resident * (unsigned long long)sysconf(_SC_PAGESIZE);
}

static double cpu_seconds(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* version: 1000 * major + 10 * minor, as in CUDA. */
static void set_driver(json_t *object, int version)
{
	char text[32];
	snprintf(text, sizeof(text), "%d.%d", version / 1000, version % 1000 / 10);
	set_text(object, "cuda_driver", text);
}

/* Besides the user, these namespaces decide whether a trainer can map the daemon's memory on a GPU. */
static json_t *namespaces_part(void)
{
	return json_pack("{s:I, s:I, s:I}", "pid", (json_int_t)namespace_own("pid"), "net",
			 (json_int_t)namespace_own("net"), "ipc", (json_int_t)namespace_own("ipc"));
}

static json_t *process_part(const struct engine *e, uid_t viewer)
{
	json_t *o = json_object();
	set_text(o, "version", e->version);
	set_int(o, "pid", (uint64_t)getpid());
	set_int(o, "uid", (uint64_t)geteuid());
	status_set(o, "namespaces", namespaces_part());
	set_driver(o, gpus_driver_version(e->gpus)); /* "0.0": none is in use */
	status_set(o, "uptime_s", json_real(status_seconds(uv_hrtime() - e->started_ns)));
	status_set(o, "cpu_s", json_real(cpu_seconds()));
	bool known = viewer != (uid_t)-1; /* of an unknown reader's business are no paths */
	set_text(o, "socket", known && e->socket_path ? e->socket_path : "");
	set_text(o, "config", known && e->config_path ? e->config_path : "");
	set_int(o, "rss_bytes", rss_bytes());
	return o;
}

static json_t *workers_part(const struct engine *e)
{
	struct pool_stats s;
	pool_get_stats(e->pool, &s);
	json_t *o = json_object();
	set_int(o, "target", s.target);
	set_int(o, "max", s.max);
	set_int(o, "busy", s.busy);
	set_int(o, "io_threads", s.n_io);
	set_int(o, "io_busy", s.io_busy);
	set_text(o, "mode", e->tuner.fixed ? "fixed" : "auto");
	set_text(o, "why", e->tuner.why);
	set_int(o, "rows", s.n_rows);
	set_int(o, "rows_waited_for_input", s.n_parked);
	set_int(o, "wakes", s.n_wakes);
	return o;
}

/* Local disks, and each server's file system with data sets: of those of other users only numbers. */
static json_t *file_systems_part(const struct engine *e, uid_t viewer)
{
	json_t *list = json_array();
	struct pool_lane_stats s;
	for (unsigned i = 0; pool_get_lane_stats(e->pool, i, viewer, &s); i++) {
		json_t *o = json_object();
		set_text(o, "name", i == 0 ? "local disks" : s.is_users || viewer == 0 ? s.name : "");
		set_int(o, "io_threads", s.n_io);
		set_int(o, "io_busy", s.io_busy);
		set_int(o, "waiting", s.n_waiting);
		status_set(o, "longest_s", json_real(status_seconds(s.oldest_ns)));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *bad_part(struct badlist *bad)
{
	json_t *list = json_array();
	pthread_mutex_lock(&bad->lock);
	for (uint64_t i = 0; i < bad->n_named && i < 100; i++) {
		json_t *o = json_object();
		set_int(o, "index", bad->named[i].index);
		set_text(o, "error", bad->named[i].text);
		json_array_append_new(list, o);
	}
	pthread_mutex_unlock(&bad->lock);
	return list;
}

static json_t *ranks_of(uint64_t bits)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < 64; i++) {
		if (bits & ((uint64_t)1 << i))
			json_array_append_new(list, json_integer(i));
	}
	return list;
}

/* ---- batches that trainers have taken ---- */

/* Batches in the trainer's ring that it has not taken yet. For a trainer that has gone this is unknown, and all count as
 * taken. */
static uint32_t n_untaken(const struct session *s)
{
	uint32_t n = s->ring.page && s->state == SESSION_ATTACHED ? ring_peek_untaken(&s->ring.batches) : 0;
	return n < s->consumer.n_leases ? n : s->consumer.n_leases;
}

/* For the trainer that has taken most: the others of its group have taken some of the same. */
static uint32_t most_taken(const struct job *j, const struct stream *s)
{
	uint32_t most = 0;
	for (const struct session *x = j->engine->sessions; x; x = x->next) {
		uint32_t n = x->job == j && x->consumer.slots == s->slots ? x->consumer.n_leases - n_untaken(x) : 0;
		most = n > most ? n : most;
	}
	return most;
}

static struct ring_taken count_taken(const struct job *j)
{
	struct ring_taken all = { j->loader->n_batches_taken, j->loader->n_rows_taken };
	for (const struct session *s = j->engine->sessions; s; s = s->next) {
		struct ring_taken one = s->job == j ? session_ring_taken(s) : (struct ring_taken){ 0 };
		all.n_batches += one.n_batches;
		all.n_rows += one.n_rows;
	}
	return all;
}

static json_t *stream_part(const struct job *j, const struct stream *s)
{
	struct stream_counts n;
	stream_count(s, &n);
	uint32_t taken = most_taken(j, s), held = taken < n.held ? taken : n.held, untaken = n.held - held;
	json_t *o = json_object();
	set_int(o, "rank", s->number);
	set_int(o, "epoch", s->next.epoch);
	set_int(o, "step", s->next.step);
	set_int(o, "batches", s->n_batches);
	set_int(o, "ready", n.ready + untaken);
	set_int(o, "making", n.making);
	set_int(o, "held", held);
	set_int(o, "window", n.window);
	/* The oldest batch keeps its slot until these ranks have had it. */
	status_set(o, "waits_for_ranks",
		   n.full && s->n_consumers > 1 ? ranks_of(n.waits_for | s->expected) : json_array());
	const char *waiting = !s->positioned ? "a trainer to begin"
			      : n.full && n.making == 0 && untaken
				      ? "trainers to take batches: the trainer is the slow part"
			      : n.full && n.making == 0    ? "trainers to release batches"
			      : n.making                   ? s->host->spec->served ? "the producer" : "workers"
			      : s->host->spec->own_batches ? "the batch sampler"
							   : "";
	set_text(o, "waiting_for", waiting);
	char why[200];
	slot_alloc_explain(j->loader, s->slots, why, sizeof(why));
	set_text(o, "slots_why", why);
	return o;
}

static const char *state_of(const struct job *j)
{
	return j->state == JOB_READY && !j->n_sessions ? "lingering" : job_state_name(j->state);
}

/* Rows of one job have the same text here, so that readers can join them. For another user's job it is a number. */
static void set_job(json_t *o, const struct job *j, uid_t viewer)
{
	char text[64] = "";
	if (j && !may_see(viewer, j->spec.uid))
		snprintf(text, sizeof(text), "user %u's job %llu", (unsigned)j->spec.uid,
			 (unsigned long long)j->number);
	set_text(o, "job", j && !text[0] ? j->spec.job : text);
}

static json_t *fields_part(const struct loader *l)
{
	json_t *list = json_array();
	for (unsigned k = 0; k < l->layout.n_fields; k++)
		json_array_append_new(list, json_string(l->fields[k].name));
	return list;
}

/* How long trainers were blocked for a batch. */
static json_t *waits_part(const struct histogram *h)
{
	json_t *limits = json_array(), *counts = json_array();
	for (unsigned i = 0; i < HISTOGRAM_CLASSES; i++) {
		if (i + 1 < HISTOGRAM_CLASSES)
			json_array_append_new(limits, json_real(status_seconds(histogram_limit_ns(i))));
		json_array_append_new(counts, json_integer((json_int_t)h->count[i]));
	}
	return json_pack("{s:o, s:o, s:f}", "le_s", limits, "count", counts, "sum_s", status_seconds(h->sum_ns));
}

/* What the job's trainers have asked for. */
static void set_spec(json_t *o, const struct loader_spec *spec, bool all)
{
	if (all) {
		set_text(o, "dataset", spec->dataset);
		set_text(o, "transform", spec->transform);
	}
	set_text(o, "mode", spec->share ? "share" : "shard");
	set_text(o, "layout",
		 spec->layout == LAYOUT_NCHW   ? "NCHW"
		 : spec->layout == LAYOUT_NHWC ? "NHWC"
					       : "as stored");
	set_int(o, "batch_size", spec->batch_size);
	set_int(o, "world_size", spec->world_size);
	if (spec->share)
		set_text(o, "policy", group_policy_name(spec->policy));
	status_set(o, "shuffle", json_boolean(spec->shuffle));
	status_set(o, "shuffle_window", json_integer(spec->shuffle > 1 ? spec->shuffle % PLAN_RESAMPLED : 0));
	status_set(o, "resampled", json_boolean(plan_is_resampled(spec->shuffle)));
	status_set(o, "drop_last", json_boolean(spec->drop_last));
	if (spec->repeats > 1)
		set_int(o, "repeats", spec->repeats);
	if (spec->epoch_rows)
		set_int(o, "epoch_rows", spec->epoch_rows);
	set_int(o, "seed", spec->seed);
	set_int(o, "uid", spec->uid);
}

/* What has been made and delivered. */
static void set_made(json_t *o, const struct job *j, bool all)
{
	struct loader *l = j->loader;
	char id[32];
	/* The loader's id is a hash of hidden values, which a reader could guess and try. */
	snprintf(id, sizeof(id), "%016llx", (unsigned long long)(all ? l->id : j->number));
	double age = status_seconds(uv_hrtime() - l->created_ns);
	uint64_t made = tally_sum(&l->host.source->sums, SOURCE_ROWS);
	set_text(o, "id", id);
	set_text(o, "dtype", l->layout.n_fields ? dtype_name(l->fields[0].dtype) : "");
	status_set(o, "fields", fields_part(l));
	set_int(o, "n_samples", dataset_n(l->recipe.dataset));
	set_int(o, "samples_decoded", made);
	set_int(o, "file_bytes_read", tally_sum(&l->host.source->sums, SOURCE_FILE_BYTES));
	set_int(o, "array_bytes_read", tally_sum(&l->host.source->sums, SOURCE_ARRAY_BYTES));
	json_t *stages = stage_status_json(l->host.source);
	if (stages)
		status_set(o, "stages", stages);
	status_set(o, "served", json_boolean(j->served != NULL));
	status_set(o, "waits", waits_part(&j->waits));
	struct ring_taken taken = count_taken(j);
	set_int(o, "samples_delivered", taken.n_rows);
	set_int(o, "batches_delivered", taken.n_batches);
	if (l->is_async) {
		set_int(o, "places", l->group.n_places);
		set_int(o, "batches_skipped", l->group.n_skipped);
		set_int(o, "trainers_detached", l->group.n_detached);
	}
	status_set(o, "images_per_s", json_real(age > 0 ? (double)made / age : 0));
	set_int(o, "n_bad", badlist_count(&l->rows.bad));
	set_int(o, "n_bad_files", badlist_count_files(&l->rows.bad));
	if (all)
		status_set(o, "bad", bad_part(&l->rows.bad));
	if (all && l->failed)
		set_text(o, "error", l->error);
}

static json_t *streams_part(const struct job *j)
{
	const struct loader *l = j->loader;
	json_t *streams = json_array();
	for (uint32_t i = 0; i < l->streams.n && i < 64; i++) {
		if (l->streams.list[i]->slots && (!l->is_async || l->streams.list[i]->n_members))
			json_array_append_new(streams, stream_part(j, l->streams.list[i]));
	}
	return streams;
}

static json_t *loader_part(const struct job *j, uid_t viewer)
{
	json_t *o = json_object();
	bool all = may_see(viewer, j->spec.uid);
	set_job(o, j, viewer);
	set_int(o, "number", j->number);
	set_spec(o, &j->spec, all);
	set_int(o, "sessions", j->n_sessions);
	set_text(o, "state", state_of(j));
	if (j->loader && j->state != JOB_CLOSING) {
		set_made(o, j, all);
		status_set(o, "streams", streams_part(j));
	}
	return o;
}

/* The reason of a stall names a system call or a process; so another user gets no verdict's text with it. */
static void set_clock(json_t *o, const struct session *s, bool all)
{
	status_set(o, "clock", clock_status_json(s));
	if (all && s->job)
		verdict_status_add(o, s);
}

static json_t *session_part(const struct session *s, uid_t viewer)
{
	static const char *const states[] = { "greeted", "opening", "attached", "gone, holds batches", "told to go" };
	json_t *o = json_object();
	bool all = may_see(viewer, s->uid);
	set_int(o, "id", s->number);
	set_int(o, "pid", (uint64_t)s->pid);
	set_int(o, "uid", s->uid);
	if (all)
		set_text(o, "program", s->program);
	set_job(o, s->job, viewer);
	set_int(o, "rank", s->consumer.rank);
	set_text(o, "state", states[s->state]);
	set_int(o, "ready", n_untaken(s));
	set_int(o, "held", s->consumer.n_leases - n_untaken(s));
	status_set(o, "waiting", json_boolean(s->consumer.waiting));
	if (s->consumer.device_slab) {
		char uuid[GPU_UUID_TEXT_BYTES];
		gpu_uuid_format(s->consumer.device_slab->uuid, uuid);
		set_text(o, "gpu", uuid);
		set_text(o, "transport", gpu_share_names[s->consumer.device_slab->share]);
		/* From when the completion of a batch's copy was seen until the trainer was told. */
		status_set(o, "gpu_handover", latency_status_json(&s->consumer.device_slab->handover));
	}
	if (all && s->device.reason[0])
		set_text(o, "no_gpu", s->device.reason);
	if (s->state == SESSION_ATTACHED)
		set_clock(o, s, all);
	status_set(o, "wait_s", json_real(status_seconds(s->wait_ns)));
	status_set(o, "connected_s", json_real(status_seconds(uv_hrtime() - s->connected_ns)));
	set_int(o, "batches", session_ring_taken(s).n_batches);
	status_set(o, "stalled", json_boolean(s->stall.is_on));
	if (s->stall.is_on) {
		status_set(o, "stalled_s", json_real(status_seconds(uv_hrtime() - s->stall.active_ns)));
		if (all)
			set_text(o, "stalled_why", s->stall.why);
	}
	if (s->own_batch_size)
		set_int(o, "batch_size", s->own_batch_size);
	if (s->consumer.group) {
		set_int(o, "behind", group_n_behind(&s->consumer)); /* batches, behind the first trainer of its
		                                                     * cohort */
		set_int(o, "skipped", s->consumer.n_skipped);
		status_set(o, "apart", json_boolean(group_is_apart(&s->consumer)));
		if (s->consumer.state == CONSUMER_AWAITING)
			set_int(o, "waits_for_epoch", s->consumer.cursor.epoch); /* until its group gets there */
	}
	return o;
}

/* What a producer waits for; "its own work": its trainers wait for it. */
static const char *producer_waits_for(const struct producer *p)
{
	if (!p->job)
		return "trainers to come";
	if (p->asked > p->answered)
		return "its own work";
	return p->offers ? "the slab to be mapped" : "trainers to release batches";
}

static json_t *producer_part(const struct producer *p, uid_t viewer)
{
	json_t *o = json_object();
	double age = status_seconds(uv_hrtime() - p->created_ns);
	if (may_see(viewer, p->uid)) {
		set_text(o, "name", p->name);
		set_text(o, "program", p->session->program);
	}
	set_int(o, "pid", (uint64_t)p->pid);
	set_int(o, "uid", p->uid);
	set_job(o, p->job, viewer);
	set_int(o, "trainers", p->job ? p->job->n_sessions : 0);
	set_int(o, "epoch", p->at.epoch);
	set_int(o, "step", p->at.step);
	set_int(o, "batches_per_epoch", p->n_batches);
	set_int(o, "batches", p->n_made);
	set_int(o, "rows", p->rows_made);
	status_set(o, "batches_per_s", json_real(age > 0 ? (double)p->n_made / age : 0));
	set_int(o, "asked", p->asked - p->answered);
	set_int(o, "slot_bytes", p->slot_bytes);
	status_set(o, "resumable", json_boolean(p->resumable));
	status_set(o, "connected_s", json_real(age));
	set_text(o, "waiting_for", producer_waits_for(p));
	return o;
}

static json_t *memory_part(const struct engine *e)
{
	json_t *o = json_object();
	set_int(o, "budget_bytes", e->budget.total_bytes);
	set_int(o, "work_bytes", work_memory_used((struct work_memory *)&e->budget.work));
	set_int(o, "work_budget_bytes", e->budget.work_bytes);
	uint64_t spare = spare_bytes(e);
	set_int(o, "slots_bytes", accounts_used(&e->budget.accounts, ACCOUNT_SLOT_BYTES) - spare);
	set_int(o, "spare_bytes", spare);
	set_int(o, "data_bytes", accounts_used(&e->budget.accounts, ACCOUNT_DATA_BYTES));
	set_int(o, "cache_bytes", budget_cache_bytes(&e->budget));
	set_int(o, "rss_bytes", rss_bytes());
	status_set(o, "pinning", pin_status_json(e));
	return o;
}

static json_t *cache_part(const struct engine *e)
{
	static const char *const names[CACHE_N_TIERS] = { [CACHE_DECODED] = "decoded", [CACHE_CHECKPOINTS] = "index" };
	json_t *list = json_array();
	for (int tier = 0; tier < CACHE_N_TIERS; tier++) {
		struct cache_stats s;
		cache_get_stats(e->budget.cache, (enum cache_tier)tier, &s);
		json_t *o = json_object();
		set_text(o, "tier", names[tier]);
		set_int(o, "bytes", s.charged_bytes);
		set_int(o, "entry_bytes", s.entry_bytes);
		set_int(o, "budget_bytes", s.budget_bytes);
		set_int(o, "entries", s.n_entries);
		set_int(o, "hits", s.hits);
		set_int(o, "misses", s.misses);
		set_int(o, "stale", s.stale);
		set_int(o, "refused", s.refused);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *copies_part(const struct gpu_stats *g)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < GPU_SIZE_CLASSES; i++) {
		json_t *o = json_object();
		set_text(o, "direction", "host to device"); /* the daemon's only one */
		set_text(o, "below", gpu_size_class_names[i]);
		set_int(o, "copies", g->copies[i].n);
		set_int(o, "bytes", g->copies[i].bytes);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *gpu_part(const struct gpu_stats *g)
{
	char uuid[GPU_UUID_TEXT_BYTES];
	json_t *o = json_object();
	gpu_uuid_format(g->uuid, uuid);
	set_text(o, "name", g->name);
	set_text(o, "uuid", uuid);
	set_driver(o, g->driver_version);
	set_text(o, "state", g->lost ? "lost" : g->context ? "in use" : "not in use");
	status_set(o, "context", json_boolean(g->context));
	set_int(o, "slabs", g->n_slabs);
	set_int(o, "slab_bytes", g->slab_bytes);
	set_int(o, "budget_bytes", g->budget_bytes);
	set_int(o, "pinned_bytes", g->pinned_bytes);
	set_int(o, "copies_in_flight", g->in_flight);
	set_int(o, "pageable_copies", g->n_pageable);
	status_set(o, "copies", copies_part(g));
	set_int(o, "errors", g->n_errors);
	set_text(o, "last_error", g->last_error);
	set_text(o, "not_pinned", g->pin_note);
	status_set(o, "numa_node", json_integer(g->numa_node));
	set_text(o, "numa_error", g->numa_error ? strerror(g->numa_error) : "");
	return o;
}

static json_t *gpus_part(const struct engine *e)
{
	struct gpu_stats stats[SLOTS_MAX_MIRRORS];
	json_t *list = json_array();
	unsigned n = e->gpus ? gpus_get_stats(e->gpus, stats, SLOTS_MAX_MIRRORS) : 0;
	for (unsigned i = 0; i < n; i++)
		json_array_append_new(list, gpu_part(&stats[i]));
	return list;
}

static json_t *limits_part(const struct engine *e)
{
	json_t *o = json_object();
	set_int(o, "sessions", e->config->limits.sessions);
	set_int(o, "sessions_per_user", e->config->limits.sessions_per_user);
	set_int(o, "loaders", e->config->limits.loaders);
	set_int(o, "loaders_per_user", e->config->limits.loaders_per_user);
	set_int(o, "slots_bytes_per_user", account_memory_limit(&e->budget.accounts));
	set_int(o, "unread_bytes_per_user", e->config->limits.unread_per_user);
	set_int(o, "fds_per_user", e->config->limits.fds_per_user);
	set_int(o, "file_systems", e->config->limits.file_systems);
	set_int(o, "file_systems_per_user", e->config->limits.file_systems_per_user);
	set_int(o, "producers", e->config->limits.producers);
	set_int(o, "producers_per_user", e->config->limits.producers_per_user);
	set_int(o, "batch_size", e->config->limits.batch_size);
	set_int(o, "batch_bytes", e->config->limits.batch_bytes);
	set_int(o, "value_bytes", e->config->limits.value_bytes);
	return o;
}

static void add_user(void *arg, const struct account *x)
{
	static const char *const names[ACCOUNT_N_KINDS] = {
		[ACCOUNT_SESSIONS] = "sessions",         [ACCOUNT_LOADERS] = "loaders",
		[ACCOUNT_SLOT_BYTES] = "slots_bytes",    [ACCOUNT_DATA_BYTES] = "data_bytes",
		[ACCOUNT_UNREAD_BYTES] = "unread_bytes", [ACCOUNT_FDS] = "fds",
		[ACCOUNT_FILE_SYSTEMS] = "file_systems",
	};
	json_t *o = json_object();
	set_int(o, "uid", x->uid);
	for (int kind = 0; kind < ACCOUNT_N_KINDS; kind++)
		set_int(o, names[kind], x->used[kind]);
	json_array_append_new(arg, o);
}

/* What each user is charged for. */
static json_t *users_part(const struct engine *e)
{
	json_t *list = json_array();
	accounts_each(&e->budget.accounts, add_user, list);
	return list;
}

static bool is_shown(void *arg, const struct session *s)
{
	return may_see(*(const uid_t *)arg, s->uid);
}

/* Clients of single images. */
static json_t *image_clients_part(const struct engine *e, uid_t viewer)
{
	json_t *list = json_array();
	for (const struct session *s = e->sessions; s; s = s->next) {
		json_t *o = single_images_status_json(s);
		if (!o)
			continue;
		set_int(o, "pid", (uint64_t)s->pid);
		set_int(o, "uid", s->uid);
		if (may_see(viewer, s->uid))
			set_text(o, "program", s->program);
		json_array_append_new(list, o);
	}
	return list;
}

char *status_json(struct engine *e, uid_t viewer)
{
	assert(is_loop_thread());
	json_t *root = json_object(), *loaders = json_array(), *sessions = json_array(), *producers = json_array();
	status_set(root, "daemon", process_part(e, viewer));
	status_set(root, "workers", workers_part(e));
	status_set(root, "file_systems", file_systems_part(e, viewer));
	status_set(root, "memory", memory_part(e));
	json_t *numa = numa_status_json(e);
	if (numa)
		status_set(root, "numa", numa);
	status_set(root, "cache", cache_part(e));
	status_set(root, "gpus", gpus_part(e));
	for (const struct job *j = e->jobs; j; j = j->next)
		json_array_append_new(loaders, loader_part(j, viewer));
	for (const struct session *s = e->sessions; s; s = s->next) {
		if (s->state >= SESSION_OPENING && s->state <= SESSION_DRAINING) /* trainers */
			json_array_append_new(sessions, session_part(s, viewer));
	}
	json_t *verdict = verdict_status_worst(e, is_shown, &viewer);
	if (verdict)
		status_set(root, "verdict", verdict);
	status_set(root, "loaders", loaders);
	status_set(root, "sessions", sessions);
	status_set(root, "image_clients", image_clients_part(e, viewer));
	status_set(root, "users", users_part(e));
	for (const struct producer *p = e->producers; p; p = p->next)
		json_array_append_new(producers, producer_part(p, viewer));
	status_set(root, "producers", producers);
	status_set(root, "errors", recent_errors_json(e->errors, viewer));
	status_set(root, "limits", limits_part(e));
	char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(9));
	json_decref(root);
	return text;
}
