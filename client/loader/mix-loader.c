/* See mix-loader.h. */
#include "loader/mix-loader.h"

#include <stdlib.h>
#include <string.h>

#include "finish/finish.h"
#include "loader/position.h"

/* ---- opening ---- */

int mix_loader_read(struct batchd_loader *l, const struct batchd_options *o, struct fault *f)
{
	char why[256];

	if (!o->mix)
		return 0;
	l->mix = calloc(1, sizeof *l->mix);
	if (!l->mix)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	if (!mix_parse(o->mix, l->mix, why, sizeof why))
		return fault_set(f, BATCHD_E_INVALID, "mix: %s", why);
	if ((uint64_t)l->mix->n_classes * o->batch_size * sizeof(float) > MIX_MAX_TARGET_BYTES)
		return fault_set(f, BATCHD_E_LIMIT,
				 "mix: soft targets of %u classes for %u rows take more than 1 GiB; leave classes out, "
				 "which gives pairs of labels, or lower batch_size",
				 l->mix->n_classes, o->batch_size);
	return 0;
}

/* timm asserts it at each batch; here it is known before the first one. */
static int check_even(const struct batchd_loader *l, const struct link *k, struct fault *f)
{
	uint32_t size = k->info.batch_size;
	uint64_t last = l->own_batches ? 0 : position_n_rows(l, &k->info, 0) % size;

	if (!mix_wants_even(l->mix))
		return 0;
	if (size % 2)
		return fault_set(
			f, BATCHD_E_INVALID,
			"mix: timm's Mixup wants an even batch size, as it mixes rows in pairs, and batch_size is %u",
			size);
	if (last % 2 && !l->drop_last)
		return fault_set(
			f, BATCHD_E_INVALID,
			"mix: timm's Mixup wants an even number of rows, and the last batch of an epoch has %u: "
			"give drop_last, or another batch_size",
			(uint32_t)last);
	return 0;
}

static int check_mix_classes(const struct batchd_loader *l, struct link *k, struct fault *f)
{
	const struct batchd_info *i = &k->info;

	if (!l->mix->n_classes)
		return 0;
	if (!k->label_bytes || i->label_dtype != BATCHD_INT64 || i->n_label_dims)
		return fault_set(
			f, BATCHD_E_INVALID,
			"mix: soft targets are made of a field 'label' with one whole number (int64) a row, which "
			"this data set or the list of fields has not");
	if (i->n_classes > l->mix->n_classes)
		return fault_set(f, BATCHD_E_INVALID, "mix: the data set has %u classes, and the soft targets only %u",
				 i->n_classes, l->mix->n_classes);
	k->info.n_mix_classes = l->mix->n_classes;
	return 0;
}

/* Where the pixels are: in the slot they are NHWC bytes, or finished floats in the layout asked for. */
static bool image_shape(const struct batchd_field *i, enum batchd_layout layout, uint32_t *h, uint32_t *w, uint32_t *c)
{
	unsigned first = layout == BATCHD_NCHW ? 1 : 0;

	*h = i->shape[first];
	*w = i->shape[first + 1];
	*c = i->shape[layout == BATCHD_NCHW ? 0 : 2];
	return i->n_dims == 3 && *h && *w && *c && *c <= CONVERT_MAX_CHANNELS && (uint64_t)*h * *w <= UINT32_MAX / 8;
}

static int view_attach(const struct batchd_loader *l, const struct link *k, const struct link_field *view,
		       uint32_t n_mean, struct finish *finish, struct fault *f)
{
	const struct batchd_options *o = &l->options;
	enum batchd_layout stored = k->info.stored_layout;
	bool has_numbers = view->is.dtype == o->dtype && stored == o->layout;
	uint32_t h, w, c;
	struct convert_plan plan;

	if ((!has_numbers && (view->is.dtype != BATCHD_UINT8 || stored != BATCHD_NHWC)) ||
	    !image_shape(&view->is, stored, &h, &w, &c) || (n_mean && n_mean < c))
		return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s offers images of another kind than asked for",
				 k->connection.address);
	if (!view->to_tensor && !has_numbers)
		return fault_set(f, BATCHD_E_INVALID,
				 "mix: floats need \"ToTensor\" in the transform, which scales pixels to 0..1");
	convert_plan_init(&plan, o->dtype == BATCHD_FLOAT16 ? CONVERT_TO_FLOAT16 : CONVERT_TO_FLOAT32,
			  o->layout == BATCHD_NCHW, c, h * w, n_mean ? view->is.mean : NULL,
			  n_mean ? view->is.std : NULL);
	finish_init(finish, &plan, h, w, has_numbers);
	return 0;
}

/* What a batch's first field is when it is finished. */
static void describe_finished(const struct batchd_loader *l, struct link *k)
{
	const struct finish *first = &k->finish[0];
	struct batchd_info *i = &k->info;

	i->dtype = l->options.dtype;
	i->layout = l->options.layout;
	i->has_normalize = 0;
	i->needs_finish = 1;
	if (i->layout == BATCHD_NCHW)
		i->shape[0] = first->plan.n_channels, i->shape[1] = first->height, i->shape[2] = first->width;
}

static uint32_t count_views(const Batchd__Wire__Opened *m)
{
	uint32_t n = 1; /* the first field is one */

	while (n < m->n_field && m->field[n]->view)
		n++;
	return n;
}

static int finish_attach(const struct batchd_loader *l, struct link *k, const Batchd__Wire__Opened *m, struct fault *f)
{
	int r = 0;

	k->n_finish = count_views(m);
	k->finish = malloc(k->n_finish * sizeof *k->finish);
	if (!k->finish)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	for (uint32_t n = 0; r == 0 && n < k->n_finish; n++)
		r = view_attach(l, k, &k->fields.list[n], (uint32_t)m->field[n]->n_mean, &k->finish[n], f);
	if (r == 0)
		describe_finished(l, k);
	return r;
}

/* All views of a row are mixed as one table says. A box is in pixels, so that it fits views of one size only. */
static int check_views(const struct batchd_loader *l, const struct link *k, const Batchd__Wire__Opened *m,
		       struct fault *f)
{
	const struct batchd_field *first = &k->fields.list[0].is;

	for (uint32_t n = 1; n < count_views(m); n++) {
		const struct batchd_field *view = &k->fields.list[n].is;

		if (mix_may_cut(l->mix) && memcmp(view->shape, first->shape, sizeof view->shape) != 0)
			return fault_set(
				f, BATCHD_E_INVALID,
				"mix: CutMix cuts one box in all views of a row, which then have one size, and '%s' and "
				"'%s' have not: leave CutMix out (timm: cutmix_alpha=0), or mix the views in the trainer",
				k->fields.list[0].name, k->fields.list[n].name);
	}
	return 0;
}

int mix_loader_attach(struct batchd_loader *l, struct link *k, const Batchd__Wire__Opened *m, struct fault *f)
{
	int r;

	if (m->served || m->layout == BATCHD__WIRE__LAYOUT__AS_STORED)
		return fault_set(f, BATCHD_E_INVALID, "mix: %s; it goes with images that a transform makes",
				 m->served ? "a producer's batches are its own" : "arrays come as they are stored");
	if (!m->n_field)
		return fault_set(f, BATCHD_E_INVALID, "mix: the batches have no images");
	r = check_views(l, k, m, f);
	if (r == 0)
		r = check_even(l, k, f);
	if (r == 0)
		r = check_mix_classes(l, k, f);
	return r < 0 || k->gpu || !mix_loader_finishes(&l->options) ? r : finish_attach(l, k, m, f);
}

/* ---- a batch ---- */

/* Stored images are NHWC, or as asked for where nothing is finished. */
static void stored_size(const struct batchd_info *i, uint32_t *height, uint32_t *width)
{
	unsigned first = i->stored_layout == BATCHD_NCHW ? 1 : 0;

	*height = i->stored_shape[first];
	*width = i->stored_shape[first + 1];
}

int mix_loader_table(const struct batchd_loader *l, const struct link *k, const struct batchd_batch *b,
		     struct batchd_mix_row *rows, struct fault *f)
{
	const struct batchd_info *i = &k->info;
	struct mix_place place = { .seed = l->options.seed, .epoch = b->epoch, .is_off = atomic_load(&l->mixing_off) };
	uint32_t height, width;

	if (b->n_rows % 2 && mix_wants_even(l->mix))
		return fault_set(f, BATCHD_E_INVALID,
				 "mix: timm's Mixup wants an even number of rows, and this batch has %u", b->n_rows);
	place.position = b->base + (l->share ? b->step : b->step * i->world_size + i->rank) * i->batch_size;
	stored_size(i, &height, &width);
	mix_draw(l->mix, &place, b->n_rows, height, width, rows);
	return 0;
}

int mix_loader_check_labels(const struct batchd_loader *l, const struct batchd_batch *b, struct fault *f)
{
	const int64_t *labels = b->labels;

	for (uint32_t i = 0; i < b->n_rows; i++)
		if (labels[i] < 0 || labels[i] >= l->mix->n_classes)
			return fault_set(f, BATCHD_E_BAD_DATA,
					 "mix: sample %lld has label %lld, and targets have %u classes",
					 (long long)b->indices[i], (long long)labels[i], l->mix->n_classes);
	return 0;
}
