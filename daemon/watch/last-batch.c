/* See last-batch.h. */
#include "watch/last-batch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "batch/loader.h"
#include "server/engine.h"
#include "server/job.h"
#include "image/transform/thumbnail.h"
#include "base/thread-kind.h"

enum { PART = 200 };
#define LEAST_NS 200000000u /* between two answers to one user */

/* ---- which batch ---- */

static bool is_newer(const struct slot *a, const struct slot *b)
{
	return !b || position_compare(&a->at, &b->at) > 0;
}

/* The newest batch that a trainer has been given; without one, the newest that is ready. NULL: there is none. */
static const struct slot *find_batch(const struct loader *l, const struct stream **stream)
{
	const struct slot *best = NULL;

	for (uint32_t i = 0; i < l->streams.n; i++) {
		const struct stream *s = l->streams.list[i];

		for (uint32_t k = 0; s->slots && k < s->slots->n_made; k++) {
			const struct slot *slot = &s->slots->slot[k];
			bool more = best && slot->n_leases > 0 && !best->n_leases;
			bool less = best && !slot->n_leases && best->n_leases > 0;

			if (slot->state != SLOT_READY || !slot->n_rows || less || !(more || is_newer(slot, best)))
				continue;
			best = slot;
			*stream = s;
		}
	}
	return best;
}

/* ---- pictures ---- */

/* Of field k of the loader. False: it has no pictures. */
static bool form_of(const struct loader *l, unsigned k, struct thumbnail_form *form)
{
	const struct field *f = &l->fields[k];

	if (l->layout.field[k].ragged)
		return false;
	if (!l->recipe.pipeline)
		return thumbnail_form_of_array(f->dtype, f->n_dims, f->shape, form);
	if (l->layout.field[k].number != 0 || k >= views_n(l->recipe.pipeline))
		return false;
	thumbnail_form_of_view(views_at(l->recipe.pipeline, k), form);
	return true;
}

static json_t *base64(const uint8_t *bytes, size_t n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *text = malloc((n + 2) / 3 * 4 + 1), *to = text;
	json_t *made;

	for (size_t i = 0; text && i < n; i += 3) {
		uint32_t v = (uint32_t)bytes[i] << 16 | (i + 1 < n ? (uint32_t)bytes[i + 1] << 8 : 0) |
			     (i + 2 < n ? bytes[i + 2] : 0);

		for (unsigned k = 0; k < 4; k++)
			*to++ = (char)(i + k <= n ? digits[v >> (18 - 6 * k) & 63] : '=');
	}
	made = text ? json_stringn(text, (size_t)(to - text)) : NULL;
	free(text);
	return made;
}

/* File names are bytes and JSON is UTF-8. */
static json_t *file_name(const struct dataset *ds, uint64_t index)
{
	char name[512];
	json_t *text;

	dataset_name(ds, index, name, sizeof name);
	text = json_string(name);
	for (char *c = name; !text && *c; c++)
		*c = (signed char)*c < 0 ? '?' : *c;
	return text ? text : json_string(name);
}

static json_t *picture(const struct loader *l, const struct slot *slot, unsigned k, uint32_t row,
		       const struct thumbnail_form *form)
{
	static struct thumbnail made; /* the loop thread's */
	const struct slot_field *field = &l->layout.field[k];
	const struct dataset *ds = l->recipe.dataset;
	uint64_t index = (uint64_t)slot_indices(slot)[row];
	bool named = ds && index < dataset_n(ds) && !l->spec.served; /* a producer writes any index */

	thumbnail_make(form, slot_data(slot) + field->offset + row * field->item_bytes, &made);
	return json_pack(
		"{s:I, s:I, s:o*, s:o*, s:o*, s:I, s:I, s:o}", "row", (json_int_t)row, "index", (json_int_t)index,
		"view", json_string(l->fields[k].name), "name", named ? file_name(ds, index) : NULL, "label",
		named ? json_integer(dataset_label(ds, index)) : NULL, "width", (json_int_t)made.width, "height",
		(json_int_t)made.height, "rgb", base64(made.rgb, (size_t)made.width * made.height * 3));
}

/* All views of the first rows, as many as there is room for. */
static json_t *pictures(const struct loader *l, const struct slot *slot)
{
	json_t *list = json_array();

	for (uint32_t row = 0; row < slot->n_rows && json_array_size(list) < LAST_BATCH_PICTURES; row++) {
		size_t before = json_array_size(list);

		for (unsigned k = 0; k < l->layout.n_fields && json_array_size(list) < LAST_BATCH_PICTURES; k++) {
			struct thumbnail_form form;

			if (form_of(l, k, &form))
				json_array_append_new(list, picture(l, slot, k, row, &form));
		}
		if (json_array_size(list) == before)
			break; /* no field has pictures */
	}
	return list;
}

/* ---- the answer ---- */

static struct last_batch_turn *find_turn(struct last_batch_turns *turns, uid_t viewer)
{
	struct last_batch_turn *t = turns->of;

	for (struct last_batch_turn *other = turns->of; other < turns->of + LAST_BATCH_VIEWERS; other++) {
		if (other->asked && other->viewer == viewer)
			return other;
		if (other->asked < t->asked)
			t = other;
	}
	*t = (struct last_batch_turn){ .viewer = viewer };
	return t;
}

static unsigned refuse_pictures(unsigned status, const char *why, char **text)
{
	*text = strdup(why);
	return status;
}

static unsigned make_answer(const struct job *j, char **text)
{
	const struct stream *stream = NULL;
	const struct slot *slot = find_batch(j->loader, &stream);
	json_t *list = slot ? pictures(j->loader, slot) : NULL, *o;

	if (!slot)
		return refuse_pictures(409, "no batch is ready now; ask again when the job has made one\n", text);
	if (!json_array_size(list)) {
		json_decref(list);
		return refuse_pictures(409, "the batches of this job have no field that is an image\n", text);
	}
	o = json_pack("{s:s, s:I, s:I, s:I, s:I, s:o}", "job", j->spec.job, "rank", (json_int_t)stream->number, "epoch",
		      (json_int_t)slot->at.epoch, "step", (json_int_t)slot->at.step, "rows", (json_int_t)slot->n_rows,
		      "pictures", list);
	*text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	return *text ? 200 : 503;
}

unsigned last_batch_answer(struct engine *e, struct last_batch_turns *turns, uint64_t number, uid_t viewer, char **text)
{
	assert(is_loop_thread());
	const struct job *j = e->jobs;
	struct last_batch_turn *turn;
	uint64_t began = uv_hrtime(), took;
	unsigned status;

	*text = NULL;
	while (j && j->number != number)
		j = j->next;
	if (!j)
		return refuse_pictures(404, "no such job; batchctl status lists the jobs\n", text);
	if (viewer == (uid_t)-1 || j->spec.uid != viewer)
		return refuse_pictures(
			403, "images are shown to the user of the job only; open the page as that user\n", text);
	if (!j->loader || j->state == JOB_CLOSING)
		return refuse_pictures(409, "no batch is ready now; ask again when the job has made one\n", text);
	turn = find_turn(turns, viewer);
	turn->asked = ++turns->n_asked;
	if (began < turn->next_ns)
		return refuse_pictures(503, "asked too often; wait some seconds and ask again\n", text);
	status = make_answer(j, text);
	took = (uv_hrtime() - began) * PART;
	turn->next_ns = began + (took > LEAST_NS ? took : LEAST_NS);
	return status;
}
