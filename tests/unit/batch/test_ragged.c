/* Batches of pictures with captions, from a data set in memory through the real pool: what the worker that makes the
 * last row packs. Every tenth picture is damaged, so most batches have substitutes. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "support/consumers.h"
#include "batch/loader.h"
#include "dataset/impl.h"
#include "support/jpegs.h"
#include "support/suite.h"

enum { N = 1000, BATCH = 32, SLOTS = 4, IMAGE, LABEL, CAPTION, SCORES, UNIT = 10, MOST_UNITS = 16 };

/* The caption of sample i: its number, 10 bytes, i % 17 times. */
struct album {
	struct dataset base;
	uint8_t *jpeg;
	size_t n_jpeg;
	char captions[N][UNIT * MOST_UNITS + 1];
};

static size_t n_caption(uint64_t index)
{
	return index % (MOST_UNITS + 1) * UNIT;
}

static float score(uint64_t index, unsigned i)
{
	return (float)index + 0.25f * (float)i;
}

static void album_destroy(struct dataset *ds)
{
	free(((struct album *)ds)->jpeg);
	free(ds);
}

static int album_read(struct dataset *ds, uint64_t index, enum read_how how, struct file_bytes *out,
		      struct dataset_error *err)
{
	const struct album *a = (const struct album *)ds;
	(void)how;
	(void)err;
	if (out->capacity_bytes < a->n_jpeg + 64) {
		free(out->data);
		out->data = malloc(a->n_jpeg + 64);
		out->capacity_bytes = a->n_jpeg + 64;
	}
	memset(out->data, 0, a->n_jpeg + 64);
	if (index % 10)
		memcpy(out->data, a->jpeg, a->n_jpeg);
	out->n_bytes = a->n_jpeg;
	out->ino = index + 1;
	return 0;
}

static int album_is_current(struct dataset *ds, uint64_t index, enum read_how how, const struct file_bytes *b)
{
	(void)ds, (void)index, (void)how, (void)b;
	return 1;
}

static _Thread_local float scores[3];

static void album_value(const struct dataset *ds, uint64_t index, unsigned field, struct field_value *out)
{
	const struct album *a = (const struct album *)ds;
	if (field == LABEL - IMAGE) {
		field_value_set_scalar(out, (int64_t)index * 3);
	} else if (field == CAPTION - IMAGE) {
		out->bytes = a->captions[index];
		out->n_bytes = n_caption(index);
	} else {
		for (unsigned i = 0; i < 3; i++)
			scores[i] = score(index, i);
		out->bytes = scores;
		out->n_bytes = sizeof(scores);
	}
}

static void album_name(const struct dataset *ds, uint64_t index, char *buf, size_t size)
{
	(void)ds;
	snprintf(buf, size, "picture %llu", (unsigned long long)index);
}

static const struct dataset_ops album_ops = { .destroy = album_destroy,
					      .read = album_read,
					      .is_current = album_is_current,
					      .value = album_value,
					      .name = album_name };

/* longest: in units; less than the truth for a data set that lies about its lengths. */
static struct dataset *make_album(unsigned longest)
{
	static const struct jpeg_recipe recipe = { 16, 16, 3, .h = 1, .v = 1, .quality = 90, .noise = 9 };
	struct album *a = calloc(1, sizeof(*a));
	struct field_measure *m = calloc(1, sizeof(*m));
	struct dataset_error err;
	struct field *f;
	a->base.ops = &album_ops;
	atomic_init(&a->base.refs, 1);
	a->base.n = N;
	a->base.is_image = true;
	a->jpeg = jpeg_make(&recipe, 7, &a->n_jpeg);
	ck_assert_int_eq(dataset_add_image_fields(&a->base, &err), 0);
	f = dataset_add_field(&a->base, "caption", DTYPE_UINT8, &err);
	f->kind = FIELD_RAGGED;
	f->text = true;
	for (uint64_t i = 0; i < N; i++) {
		for (size_t k = 0; k < n_caption(i); k += UNIT)
			snprintf(a->captions[i] + k, UNIT + 1, "%09llu,", (unsigned long long)i);
		field_measure_add(m, n_caption(i) < longest * UNIT ? n_caption(i) : longest * UNIT);
	}
	field_measure_end(m, f);
	free(m);
	f = dataset_add_field(&a->base, "scores", DTYPE_FLOAT32, &err);
	f->n_dims = 1;
	f->shape[0] = 3;
	return &a->base;
}

/* ---- a loader with one trainer ---- */

static struct {
	uv_loop_t loop;
	struct pool *pool;
	struct loader *loader;
	struct consumer c;
	unsigned n_batches, n_replaced, n_pending;
	struct {
		uint32_t slot;
		uint64_t generation;
	} pending[SLOTS];
	char failed[4096];
	bool closed;
} t;

static void *make_worker(void *arg)
{
	(void)arg;
	return sample_worker_create(&decode_limits_default);
}

static void free_worker(void *w)
{
	sample_worker_destroy(w);
}

static void *make_input(void *arg)
{
	(void)arg;
	return sample_input_create(&decode_limits_default);
}

static void free_input(void *in)
{
	sample_input_destroy(in);
}

static const struct slot_field *place_of(const char *name)
{
	for (unsigned k = 0; k < t.loader->layout.n_fields; k++) {
		if (!strcmp(t.loader->fields[k].name, name))
			return &t.loader->layout.field[k];
	}
	return NULL;
}

static void check_row(const struct slot *slot, uint32_t row, uint64_t index)
{
	const uint8_t *base = slot_data(slot);
	const struct slot_field *f = place_of("caption");
	char expected[UNIT + 1];
	int64_t label;
	if (f) {
		const int64_t *offsets = (const int64_t *)(const void *)(base + f->offset);
		const char *text = (const char *)base + f->values_offset + offsets[row];
		size_t n = (size_t)(offsets[row + 1] - offsets[row]);
		ck_assert(offsets[0] == 0 && (uint64_t)offsets[slot->n_rows] <= f->most_values);
		ck_assert_uint_eq(n, n_caption(index));
		snprintf(expected, sizeof(expected), "%09llu,", (unsigned long long)index);
		for (size_t k = 0; k < n; k += UNIT)
			ck_assert_mem_eq(text + k, expected, UNIT);
	}
	f = place_of("label");
	memcpy(&label, base + f->offset + row * f->item_bytes, sizeof(label));
	ck_assert_int_eq(label, (int64_t)index * 3);
	f = place_of("scores");
	for (unsigned i = 0; f && i < 3; i++)
		ck_assert(((const float *)(const void *)(base + f->offset))[3 * row + i] == score(index, i));
}

static int on_publish(struct consumer *c, const struct slot *slot)
{
	(void)c;
	t.pending[t.n_pending].slot = slot->number;
	t.pending[t.n_pending++].generation = slot->generation;
	t.n_batches++;
	if (slot->at.epoch == 0) /* the next epoch may have begun */
		t.n_replaced += atomic_load(&((struct slot *)slot)->n_replaced);
	for (uint32_t row = 0; row < slot->n_rows; row++) {
		uint64_t index = (uint64_t)slot_indices(slot)[row];
		ck_assert(!place_of("image") || index % 10);
		check_row(slot, row, index);
	}
	return 0;
}

static const struct consumer_ops consumer_ops = { .publish = on_publish, .look = consumer_look, .arm = consumer_arm };

static void on_failed(struct loader *l)
{
	snprintf(t.failed, sizeof(t.failed), "%s", l->error);
}

static void on_published(struct loader *l, bool waited)
{
	(void)l, (void)waited;
}

static void on_closed(struct loader *l)
{
	(void)l;
	t.closed = true;
}

static const struct loader_ops loader_ops = { .failed = on_failed, .published = on_published, .closed = on_closed };

/* An epoch, or what comes of it before the loader fails. */
static void run_epoch(unsigned longest, uint64_t value_bytes, double bad_budget, const char *fields)
{
	struct pool_params params = { .max_workers = 4,
				      .n_io = 2,
				      .n_tickets = 8,
				      .worker_create = make_worker,
				      .worker_destroy = free_worker,
				      .input_create = make_input,
				      .input_destroy = free_input };
	struct recipe recipe = { .dataset = make_album(longest), .value_bytes = value_bytes };
	struct loader_spec copy, spec = { .job = (char *)"j",
					  .dataset = (char *)"album:",
					  .transform = (char *)"[\"ToTensor\"]",
					  .fields = (char *)fields,
					  .batch_size = BATCH,
					  .world_size = 1,
					  .shuffle = true };
	struct pipeline_error pe;
	struct slots *slots;
	memset(&t, 0, sizeof(t));
	t.c.ops = &consumer_ops;
	uv_loop_init(&t.loop);
	ck_assert_int_eq(pool_create(&t.loop, &params, &t.pool), 0);
	if (fields_wants(fields, "image"))
		ck_assert_int_eq(pipeline_parse("[[\"Resize\", [8, 8]], \"ToTensor\"]", DTYPE_UINT8, LAYOUT_NHWC,
						&recipe.pipeline, &pe),
				 0);
	ck_assert_int_eq(loader_spec_copy(&spec, &copy), 0);
	ck_assert_int_eq(loader_create(t.pool, &copy, &recipe, bad_budget, &loader_ops, NULL, &t.loader), 0);
	ck_assert_int_eq(slots_create(&t.loader->layout, SLOTS, SLOTS, &slots), 0);
	stream_set_slots(loader_stream(t.loader, 0), slots);
	ck_assert_int_eq(loader_attach(t.loader, &t.c, 0), 0);
	loader_seek(&t.c, 1, &(struct position){ 0 });
	while (t.n_batches < (N + BATCH - 1) / BATCH && !*t.failed) {
		consumer_waits(&t.c);
		if (!t.n_pending)
			uv_run(&t.loop, UV_RUN_ONCE);
		for (unsigned n = t.n_pending; n > 0; n--) {
			t.n_pending--;
			stream_release(&t.c, t.pending[t.n_pending].slot, t.pending[t.n_pending].generation);
		}
	}
	loader_finish_consumer(&t.c);
	loader_close(t.loader);
	while (!t.closed)
		uv_run(&t.loop, UV_RUN_ONCE);
	pool_close(t.pool, NULL, NULL);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	uv_loop_close(&t.loop);
}

START_TEST(test_substitutes_bring_their_own_fields)
{
	/* Proves that a row that replaces a damaged picture has the label, the scores and the caption of the sample that
	 * it shows. */
	run_epoch(MOST_UNITS, 0, 0.2, "");
	ck_assert_str_eq(t.failed, "");
	ck_assert_uint_eq(t.n_replaced, N / 10);
}
END_TEST

START_TEST(test_pictures_with_long_captions_are_replaced)
{
	/* Proves that a caption beyond the limit makes its picture bad, though it can be decoded. */
	run_epoch(MOST_UNITS, (MOST_UNITS - 1) * UNIT, 0.3, "");
	ck_assert_str_eq(t.failed, "");
	ck_assert_uint_gt(t.n_replaced, N / 10 + N / 20);
	run_epoch(MOST_UNITS, (MOST_UNITS - 1) * UNIT, 0.01, "caption,label,scores");
	ck_assert_ptr_nonnull(strstr(t.failed, "its caption has 160 bytes, and limits.value_bytes"));
}
END_TEST

START_TEST(test_without_the_picture_no_picture_is_damaged)
{
	/* Proves that the other fields are made of all samples when no image is wanted, and that a field that is not
	 * wanted has no place. */
	run_epoch(MOST_UNITS, 0, 0, "caption,label");
	ck_assert_str_eq(t.failed, "");
	ck_assert_uint_eq(t.n_replaced, 0);
	ck_assert_uint_ge(t.n_batches, (N + BATCH - 1) / BATCH);
}
END_TEST

START_TEST(test_a_batch_that_outgrows_its_room_fails_and_writes_nothing_beyond)
{
	/* Proves that a data set that is wrong about its lengths costs its own loader only. With a longest caption of 0
	 * there is room for nothing. */
	run_epoch(0, 0, 0.2, "caption,label");
	ck_assert_ptr_nonnull(strstr(t.failed, "caption"));
	ck_assert_uint_eq(t.n_batches, 0);
}
END_TEST

SUITE(ragged)
{
	Suite *s = suite_create("ragged");
	TCase *tc = tcase_create("ragged");
	tcase_add_test(tc, test_substitutes_bring_their_own_fields);
	tcase_add_test(tc, test_pictures_with_long_captions_are_replaced);
	tcase_add_test(tc, test_without_the_picture_no_picture_is_damaged);
	tcase_add_test(tc, test_a_batch_that_outgrows_its_room_fails_and_writes_nothing_beyond);
	suite_add_tcase(s, tc);
	return s;
}
