/* See opening.h. Except for the last two, functions run on an I/O thread. */
#include "server/opening.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch/plan/blend.h"
#include "batch/plan/plan.h"
#include "batch/endings.h"
#include "base/closing.h"
#include "base/container.h"
#include "base/log.h"
#include "base/thread-kind.h"

/* The data set grows: its user is charged at once, because indexing may need more memory than there is. */
static int on_more_memory(void *arg, uint64_t bytes)
{
	struct opening *o = arg;
	if (atomic_load(&o->stop))
		return -ECANCELED; /* whatever the format: each of them grows with what it finds */
	int r = budget_charge_data(&o->task.job->engine->budget, o->task.job->spec.uid, &o->memory, bytes);
	o->refused = r > 0 ? r : 0;
	if (r > 0) {
		o->wanted_bytes = o->memory.amount + bytes;
	}
	return r > 0 ? -EDQUOT : r;
}

static void on_dataset_progress(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	struct opening *o = arg;
	atomic_store(&o->done, done);
	atomic_store(&o->total, total);
	atomic_store(&o->phase, phase);
}

void opening_fail(struct opening *o, Batchd__Wire__ErrorCode code, const char *field, const char *text)
{
	o->result = -EINVAL;
	refuse(&o->why, code, field, "%s", text);
}

static void explain_refusal(struct opening *o)
{
	char text[sizeof(o->why.text)], what[512];
	snprintf(what, sizeof(what), "%.400s: the data set has more names and labels than there is room for: it",
		 o->task.job->spec.dataset);
	budget_explain(&o->task.job->engine->budget, o->task.job->spec.uid, o->refused, what, o->wanted_bytes,
		       "close other loaders, raise the limit, or split the data set", text, sizeof(text));
	opening_fail(o, BATCHD__WIRE__ERROR_CODE__LIMIT, o->refused == ACCOUNT_E_USER ? "memory_per_user" : "memory",
		     text);
}

uint64_t opening_bits_bytes(const struct recipe *r, bool has_pipeline)
{
	const struct dataset *ds = r->dataset;
	bool may_be_bad = dataset_is_image(ds) || has_pipeline;
	for (unsigned k = 0; k < dataset_n_fields(ds); k++) {
		const struct field *f = dataset_field(ds, k);
		may_be_bad |= f->kind == FIELD_RAGGED && f->longest > r->value_bytes / dtype_bytes(f->dtype);
	}
	return may_be_bad ? dataset_n(ds) / 8 : 0;
}

static int charge_bits(struct opening *o)
{
	return meter_take(&o->meter, opening_bits_bytes(&o->recipe, o->task.job->spec.transform[0]));
}

static bool lacks_fields(struct opening *o, const struct loader_spec *spec)
{
	char text[sizeof(o->why.text)];
	if (fields_check(o->recipe.dataset, spec->fields, text, sizeof(text)))
		return false;
	opening_fail(o, BATCHD__WIRE__ERROR_CODE__INVALID, "fields", text);
	return true;
}

/* A window moves over samples in their order, which the list of a blend with weights does not have. */
static bool cannot_order(struct opening *o, const struct loader_spec *spec)
{
	if (spec->shuffle <= 1 || plan_is_resampled(spec->shuffle) || !dataset_blend(o->recipe.dataset))
		return false;
	opening_fail(o, BATCHD__WIRE__ERROR_CODE__INVALID, "shuffle",
		     "a window does not go with weights: shuffle a blend with weights as a whole (shuffle=True), or "
		     "draw its shards by weight (shuffle=\"resampled\")");
	return true;
}

/* A data set whose weight is too small for a single sample would be named for nothing. */
static bool leaves_out_a_part(struct opening *o, const struct loader_spec *spec)
{
	const struct dataset_blend *blend = dataset_blend(o->recipe.dataset);
	uint64_t counts[64], n = dataset_n(o->recipe.dataset); /* as plan_blend_counts */
	char text[200];
	if (!blend || plan_is_resampled(spec->shuffle))
		return false;
	plan_blend_counts(blend, n, counts);
	for (unsigned k = 0; k < blend->n; k++) {
		if (counts[k] || !blend->part[k].n)
			continue;
		snprintf(
			text, sizeof(text),
			"blend: the weight of data set %u is so small that an epoch of %llu samples has none of it: raise "
			"it, or leave the data set out",
			k + 1, (unsigned long long)n);
		opening_fail(o, BATCHD__WIRE__ERROR_CODE__INVALID, "dataset", text);
		return true;
	}
	return false;
}

static void opening_open_pipeline(struct opening *o, const struct loader_spec *spec)
{
	struct pipeline_error err;
	const struct dataset *ds = o->recipe.dataset;
	const struct field *first = dataset_field(ds, 0);
	struct image_form form = { .n_channels = 3 };
	bool image = dataset_is_image(ds);
	char text[400];
	if (!image && !spec->transform[0])
		return;
	if (!image && pixels_of(first, &o->recipe.pixels, text, sizeof(text))) {
		opening_fail(o, BATCHD__WIRE__ERROR_CODE__INVALID, "transform", text);
		return;
	}
	if (!fields_wants(spec->fields, first->name))
		return;
	if (!image)
		form = o->recipe.pixels.form;
	if (spec->layout == LAYOUT_AS_STORED) {
		opening_fail(o, BATCHD__WIRE__ERROR_CODE__INVALID, "layout", "images are delivered as NCHW or NHWC");
		return;
	}
	/* Of an Arrow file, only its schema says whether it has images. */
	const char *transform = spec->transform[0] ? spec->transform : "train224";
	if (views_parse(transform, &form, spec->dtype, spec->layout, &o->recipe.pipeline, &err)) {
		opening_fail(o, BATCHD__WIRE__ERROR_CODE__INVALID, "transform", err.text);
		return;
	}
	if (!fields_check_views(&o->recipe, spec->fields, text, sizeof(text))) {
		opening_fail(o, BATCHD__WIRE__ERROR_CODE__INVALID, "transform", text);
		return;
	}
	if (!spec->apply_exif && !spec->leave_exif && dataset_turns(ds) == 2) {
		opening_fail(
			o, BATCHD__WIRE__ERROR_CODE__INVALID, "apply_exif",
			"HuggingFace's package turns its images upright, and the other data sets are not turned: give "
			"apply_exif=True or apply_exif=False for all");
		return;
	}
	o->recipe.apply_exif = spec->apply_exif || (!spec->leave_exif && dataset_turns(ds));
	if (!image)
		return; /* pixels in memory or in the page cache need no cache of ours */
	if (recipe_attach(&o->recipe, o->cache, o->decoded_budget_bytes, o->choose_decoded, &o->limits))
		opening_fail(o, BATCHD__WIRE__ERROR_CODE__INTERNAL, "", "out of memory");
}

/* Reports files of kinds that cannot be decoded, before the first batch. */
static bool refuses_kinds(struct opening *o, const struct loader_spec *spec)
{
	char text[512];
	enum endings found = dataset_is_image(o->recipe.dataset) ? endings_look(o->recipe.dataset, text, sizeof(text))
								 : ENDINGS_READ;
	if (found == ENDINGS_SOME_UNREAD)
		log_record(LOG_LEVEL_WARNING, "kinds-not-read", "%s: %s; until then they are replaced by others",
			   spec->dataset, text);
	if (found == ENDINGS_ALL_UNREAD)
		opening_fail(o, BATCHD__WIRE__ERROR_CODE__BAD_DATA, "dataset", text);
	return found == ENDINGS_ALL_UNREAD;
}

/* Samples that are left out are bad ones, which are known before the first batch. */
static bool leaves_out_too_many(struct opening *o)
{
	const struct dataset *ds = o->recipe.dataset;
	uint64_t n = dataset_n_left_out(ds);
	char text[sizeof(o->why.text)];
	if ((double)n <= o->bad_data * (double)(n + dataset_n(ds)))
		return false;
	snprintf(text, sizeof(text), "%s. That is more than bad_data in the daemon's configuration allows (%g%%)",
		 dataset_left_out(ds), 100 * o->bad_data);
	opening_fail(o, BATCHD__WIRE__ERROR_CODE__BAD_DATA, "dataset", text);
	return true;
}

/* A loop over images and labels would get numbers that are none. */
static bool lacks_labels(struct opening *o, const struct loader_spec *spec)
{
	const char *text = dataset_no_label(o->recipe.dataset);
	if (spec->fields[0] || !text[0])
		return false;
	opening_fail(o, BATCHD__WIRE__ERROR_CODE__INVALID, "dataset", text);
	return true;
}

static bool misses_files(struct opening *o)
{
	struct dataset_error err = { .text = "" };
	if (!dataset_check_first(o->recipe.dataset, &err))
		return false;
	opening_fail(o, (Batchd__Wire__ErrorCode)err.code, "dataset", err.text);
	return true;
}

static struct dataset_source source_of(const struct opening *o)
{
	return (struct dataset_source){ .sources = o->sources, .fds = o->fds, .n_fds = o->n_fds, .access = &o->access };
}

static void open_source(struct opening *o)
{
	const struct loader_spec *spec = &o->task.job->spec;
	atomic_store(&o->phase, NULL); /* if it had to wait */
	struct dataset_error err = { .text = "" };
	struct dataset_source source = source_of(o);
	source.cache_dir = o->manifest_dir;
	source.cache_limit_bytes = o->index_dir_limit_bytes;
	source.meter = &o->meter;
	source.on_progress = on_dataset_progress;
	source.progress_arg = o;
	source.stop = &o->stop;
	o->meter = (struct meter){ .more = on_more_memory, .arg = o };
	int r = dataset_open(&source, &o->recipe.dataset, &err);
	if (r == 0)
		r = charge_bits(o);
	if (r && o->refused) {
		explain_refusal(o);
		return;
	}
	if (r) {
		opening_fail(o, err.code ? (Batchd__Wire__ErrorCode)err.code : BATCHD__WIRE__ERROR_CODE__INTERNAL,
			     "dataset", err.text[0] ? err.text : strerror(-r));
		return;
	}
	if (dataset_n(o->recipe.dataset) == 0)
		opening_fail(o, BATCHD__WIRE__ERROR_CODE__INVALID, "dataset", "the data set has no samples");
	else if (!lacks_labels(o, spec) && !lacks_fields(o, spec) && !leaves_out_too_many(o) && !misses_files(o) &&
		 !leaves_out_a_part(o, spec) && !cannot_order(o, spec) && !refuses_kinds(o, spec))
		opening_open_pipeline(o, spec);
}

void opening_locate(struct job_task *t)
{
	struct opening *o = container_of(t, struct opening, task);
	struct dataset_source source = source_of(o);
	locate_source(&source, &o->where);
}

void opening_run(struct job_task *t)
{
	struct opening *o = container_of(t, struct opening, task);
	open_source(o);
	if (o->result == 0 && o->recipe.dataset)
		locate_dataset(o->recipe.dataset, &o->where);
	if (o->refused)
		return; /* it may run again when other loaders have made room */
	/* Closed here and not on the loop: closing a file on a FUSE file system waits for its server. */
	wire_close_fds(o->fds, o->n_fds);
	o->n_fds = 0;
}

/* ---- on the loop thread ---- */

void opening_free_recipe(struct opening *o)
{
	assert(is_loop_thread());
	recipe_finish(&o->recipe);
	charge_release(&o->memory);
}

void opening_free(uv_handle_t *h)
{
	assert(is_loop_thread());
	struct opening *o = h->data;
	closing_add(o->access.uid, o->fds, o->n_fds); /* of an opening that never ran */
	opening_free_recipe(o);
	sources_free(o->sources);
	free(o->manifest_dir);
	free(o);
}
