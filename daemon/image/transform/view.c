/* Notes ops and computes pixels. The difficult part is order: a flip before a resize differs from one after it (windows
 * at exact ties round towards one side), and a resize of a resize rounds twice. Such a view is settled first, so that
 * every result equals that of the ops one by one. */
#include "image/transform/view.h"

#include <errno.h>
#include <string.h>

#include "image/kernels/gray.h"
#include "base/container.h"
#include "base/workspace.h"

/* Bytes of a pixel. */
static size_t view_px(const struct view *v)
{
	return pixel_bytes(v->pixel);
}

static void note_nothing(struct view *v, uint32_t width, uint32_t height)
{
	v->box = (struct region_px){ 0, 0, width, height };
	v->filter = FILTER_NEAREST;
	v->order = PASS_ORDER_PILLOW_13;
	v->resized = v->flip_horizontal = v->flip_vertical = false;
}

void view_of_decoder(struct view *v, struct decoder *d, uint32_t width, uint32_t height)
{
	v->pixel = PIXEL_RGB;
	v->decoder = d;
	v->part = NULL;
	v->held_in = -1;
	v->borrowed = true;
	v->gray = false;
	note_nothing(v, width, height);
}

void view_of_part(struct view *v, struct view_part *part, uint32_t width, uint32_t height)
{
	view_of_decoder(v, NULL, width, height);
	v->part = part;
}

static bool view_holds(const struct scratch *s, const uint8_t *at)
{
	return s->data && at >= s->data && at < s->data + s->size_bytes;
}

void view_of_image(struct view *v, const struct pipeline_worker *w, const struct image *i)
{
	v->pixel = PIXEL_RGB;
	v->decoder = NULL;
	v->part = NULL;
	v->image = *i;
	v->held_in = view_holds(&w->pixels[0], i->rgb) ? 0 : view_holds(&w->pixels[1], i->rgb) ? 1 : -1;
	v->borrowed = true;
	v->gray = false;
	note_nothing(v, i->width, i->height);
}

void view_of_gray(struct view *v, const struct pipeline_worker *w, const struct image *i)
{
	view_of_image(v, w, i);
	v->gray = true;
}

uint32_t view_width(const struct view *v)
{
	return v->resized ? v->keep.width : v->box.width;
}

uint32_t view_height(const struct view *v)
{
	return v->resized ? v->keep.height : v->box.height;
}

void view_flip_horizontal(struct view *v)
{
	v->flip_horizontal = !v->flip_horizontal;
}

void view_flip_vertical(struct view *v)
{
	v->flip_vertical = !v->flip_vertical;
}

void view_crop(struct view *v, struct region_px part)
{
	struct region_px *r = v->resized ? &v->keep : &v->box;

	r->x += v->flip_horizontal ? r->width - part.x - part.width : part.x;
	r->y += v->flip_vertical ? r->height - part.y - part.height : part.y;
	r->width = part.width;
	r->height = part.height;
}

static struct resample_request request_of(const struct view *v)
{
	struct resample_request q = {
		.filter = v->filter,
		.order = v->order,
		.box = v->box,
		.out_width = v->box.width,
		.out_height = v->box.height,
		.keep = { 0, 0, v->box.width, v->box.height },
		.flip = v->flip_horizontal,
	};

	if (v->resized) {
		q.out_width = v->out_width;
		q.out_height = v->out_height;
		q.keep = v->keep;
	}
	return q;
}

/* The smallest rectangle that has both. */
static struct region_px view_union(struct region_px a, struct region_px b)
{
	uint32_t x = a.x < b.x ? a.x : b.x, y = a.y < b.y ? a.y : b.y;
	uint32_t right = a.x + a.width > b.x + b.width ? a.x + a.width : b.x + b.width;
	uint32_t bottom = a.y + a.height > b.y + b.height ? a.y + a.height : b.y + b.height;

	return a.width ? (struct region_px){ x, y, right - x, bottom - y } : b;
}

static struct region_px view_needs(const struct view *v, const struct resample_request *q)
{
	return v->pixel == PIXEL_RGB ? resample_needs(q) : numbers_needs(q, v->pixel);
}

static void note_request(const struct view *v, const struct resample_request *q)
{
	v->part->region = view_union(v->part->region, view_needs(v, q));
}

void view_note(const struct view *v)
{
	struct resample_request q = request_of(v);

	note_request(v, &q);
}

static int fetch_part(const struct view *v, const struct resample_request *q, struct image *source,
		      struct region_px *origin)
{
	if (!v->part->is_there) {
		note_request(v, q);
		return VIEW_E_LATER;
	}
	*source = v->part->image;
	*origin = v->part->region;
	return 0;
}

static int gray_becomes_rgb(struct view *v, struct pipeline_worker *w)
{
	struct image *i = &v->image;
	size_t stride = (size_t)i->width * 3;
	uint8_t *rgb = scratch_reserve(&w->rgb, stride * i->height);

	if (!rgb)
		return -ENOMEM;
	for (uint32_t y = 0; y < i->height; y++)
		gray_to_rgb(i->rgb + y * i->stride_bytes, i->width, rgb + y * stride);
	i->rgb = rgb;
	i->stride_bytes = stride;
	v->gray = false;
	return 0;
}

/* Decodes the part that q reads, if necessary. *source then has at least that part; *origin is its place in the
 * original. */
static int view_fetch(struct view *v, struct pipeline_worker *w, const struct resample_request *q, struct image *source,
		      struct region_px *origin, struct image_error *err)
{
	if (v->part)
		return fetch_part(v, q, source, origin);
	if (v->gray && gray_becomes_rgb(v, w))
		return -ENOMEM;
	if (!v->decoder) {
		*source = v->image;
		*origin = (struct region_px){ 0, 0, v->image.width, v->image.height };
		return 0;
	}
	*origin = view_needs(v, q);
	return decoder_region_as(v->decoder, v->pixel, *origin, source, err);
}

static int reserve_image(struct scratch *s, size_t px_bytes, uint32_t width, uint32_t height, struct image *i,
			 struct image_error *err)
{
	size_t stride = (width * px_bytes + 63) / 64 * 64;

	if ((uint64_t)width * height > VIEW_MAX_PIXELS) {
		return image_fail(err, IMAGE_E_LIMIT,
				  "an op needs an image of %u x %u pixels in memory; at most %u are allowed", width,
				  height, VIEW_MAX_PIXELS);
	}
	i->rgb = scratch_reserve(s, stride * height);
	i->stride_bytes = stride;
	i->width = width;
	i->height = height;
	return i->rgb ? 0 : -ENOMEM;
}

/* The scratch that does not hold the view's image. */
static int view_other(const struct view *v)
{
	return v->held_in == 0 ? 1 : 0;
}

static int compute_numbers(struct view *v, struct pipeline_worker *w, const struct resample_request *q,
			   struct image *made, struct image_error *err)
{
	struct image source;
	struct region_px origin;
	int rc = view_fetch(v, w, q, &source, &origin, err);

	if (rc == 0)
		rc = reserve_image(&w->pixels[view_other(v)], view_px(v), q->keep.width, q->keep.height, made, err);
	if (rc == 0)
		rc = numbers_resample(q, v->pixel, &source, origin, v->flip_vertical, w->numbers, made);
	if (rc == IMAGE_E_LIMIT)
		return image_fail(
			err, rc,
			"a resize from %u x %u to %u x %u pixels needs more than %d numbers between its passes",
			q->box.width, q->box.height, q->out_width, q->out_height, NUMBERS_MAX_BETWEEN);
	return rc;
}

struct band_sink {
	struct row_sink sink;
	struct resampler *resampler;
};

static void take_band(struct row_sink *sink, const uint8_t *rows, size_t stride_bytes, unsigned n)
{
	enum stage before = workspace_stage(STAGE_TRANSFORM);
	resample_take_band(container_of(sink, struct band_sink, sink)->resampler, rows, stride_bytes, n);
	workspace_stage(before);
}

/* Decodes the part that q reads, if necessary, and begins to resample it: a decoder's rows while they come, where both
 * can do that. */
static int begin_rgb(struct view *v, struct pipeline_worker *w, const struct resample_request *q,
		     struct image_error *err)
{
	struct band_sink bands = { { take_band }, w->resampler };
	struct image source;
	struct region_px origin;
	int rc;

	if (v->decoder && !v->part && resample_takes_bands(q)) {
		origin = resample_needs(q);
		rc = resample_begin_bands(w->resampler, q);
		if (rc == 0)
			rc = decoder_region_to(v->decoder, origin, &bands.sink, &source, err);
		if (rc != 0 || !source.rgb)
			return rc;
	} else {
		rc = view_fetch(v, w, q, &source, &origin, err);
		if (rc != 0)
			return rc;
	}
	return resample_begin(w->resampler, q, &source, origin);
}

static int compute_rgb(struct view *v, struct pipeline_worker *w, const struct resample_request *q, struct image *made,
		       struct image_error *err)
{
	int rc = begin_rgb(v, w, q, err);

	if (rc == 0)
		rc = reserve_image(&w->pixels[view_other(v)], view_px(v), q->keep.width, q->keep.height, made, err);
	for (uint32_t y = 0; rc == 0 && y < made->height; y++) {
		uint32_t at = v->flip_vertical ? made->height - 1 - y : y;

		memcpy(made->rgb + at * made->stride_bytes, resample_next_row(w->resampler), (size_t)made->width * 3);
	}
	return rc;
}

/* Copies or resamples what q reads into other memory than its own. */
static int view_compute(struct view *v, struct pipeline_worker *w, const struct resample_request *q,
			struct image_error *err)
{
	struct region_px needs = view_needs(v, q);
	int to = view_other(v);
	struct image made;
	int rc = v->pixel == PIXEL_RGB ? compute_rgb(v, w, q, &made, err) : compute_numbers(v, w, q, &made, err);

	if (rc != 0)
		return rc;
	/* The next check of the time notices the time for these pixels. */
	(void)cpu_budget_spend(&w->budget, (uint64_t)needs.width * needs.height);
	v->image = made;
	v->held_in = to;
	v->borrowed = false;
	return 0;
}

/* Makes `box` the view's image, as a part of source, without copying. */
static void view_narrow(struct view *v, const struct image *source, struct region_px origin)
{
	v->image.rgb =
		source->rgb + (size_t)(v->box.y - origin.y) * source->stride_bytes + (v->box.x - origin.x) * view_px(v);
	v->image.stride_bytes = source->stride_bytes;
	v->image.width = v->box.width;
	v->image.height = v->box.height;
}

int view_settle(struct view *v, struct pipeline_worker *w, bool writable, struct image_error *err)
{
	struct resample_request q = request_of(v);
	bool moves = v->resized || v->flip_horizontal || v->flip_vertical;
	struct image source;
	struct region_px origin;
	int rc;

	if (moves || (writable && v->borrowed)) {
		rc = view_compute(v, w, &q, err);
	} else {
		rc = view_fetch(v, w, &q, &source, &origin, err);
		if (rc == 0)
			view_narrow(v, &source, origin);
	}
	if (rc != 0)
		return rc;
	v->decoder = NULL;
	v->part = NULL;
	note_nothing(v, v->image.width, v->image.height);
	return 0;
}

int view_make(struct view *v, struct pipeline_worker *w, uint32_t width, uint32_t height, struct image *made,
	      struct image_error *err)
{
	int rc = view_settle(v, w, false, err);

	return rc == 0 ? reserve_image(&w->pixels[view_other(v)], view_px(v), width, height, made, err) : rc;
}

void view_take(struct view *v, const struct image *made)
{
	v->held_in = view_other(v);
	v->image = *made;
	v->borrowed = false;
	note_nothing(v, made->width, made->height);
}

int view_resize(struct view *v, struct pipeline_worker *w, uint32_t width, uint32_t height, enum filter f,
		enum pass_order order, struct image_error *err)
{
	int rc = 0;

	if (width == view_width(v) && height == view_height(v))
		return 0;
	if (width < 1 || height < 1 || width > VIEW_MAX_EDGE || height > VIEW_MAX_EDGE) {
		return image_fail(err, IMAGE_E_LIMIT,
				  "an image of %u x %u pixels cannot be resized to %u x %u: 1 to %u per edge",
				  view_width(v), view_height(v), width, height, VIEW_MAX_EDGE);
	}
	if (v->resized || v->flip_horizontal || v->flip_vertical)
		rc = view_settle(v, w, false, err);
	if (rc != 0)
		return rc;
	v->resized = true;
	v->out_width = width;
	v->out_height = height;
	v->keep = (struct region_px){ 0, 0, width, height };
	v->filter = f;
	v->order = order;
	return 0;
}

/* fill: one pixel of the view's. */
static int window_as(struct view *v, struct pipeline_worker *w, int32_t left, int32_t top, uint32_t width,
		     uint32_t height, enum pad_mode mode, const void *fill, struct image_error *err)
{
	bool inside = left >= 0 && top >= 0 && (uint64_t)left + width <= view_width(v) &&
		      (uint64_t)top + height <= view_height(v);
	struct image made;
	int rc;

	if (inside) {
		view_crop(v, (struct region_px){ (uint32_t)left, (uint32_t)top, width, height });
		return 0;
	}
	rc = view_make(v, w, width, height, &made, err);
	if (rc == 0)
		rc = image_window_as(v->pixel, &v->image, left, top, mode, fill, &made, &w->columns);
	if (rc == 0)
		view_take(v, &made);
	return rc;
}

int view_window(struct view *v, struct pipeline_worker *w, int32_t left, int32_t top, uint32_t width, uint32_t height,
		enum pad_mode mode, const uint8_t fill[3], struct image_error *err)
{
	return v->pixel == PIXEL_RGB ? window_as(v, w, left, top, width, height, mode, fill, err)
				     : view_window_number(v, w, left, top, width, height, mode, fill[0], err);
}

int view_window_number(struct view *v, struct pipeline_worker *w, int32_t left, int32_t top, uint32_t width,
		       uint32_t height, enum pad_mode mode, double fill, struct image_error *err)
{
	int32_t whole = (int32_t)(v->pixel == PIXEL_FLOAT32 ? 0 : fill);
	uint16_t low = (uint16_t)whole;
	float number = (float)fill;
	const void *pixel = v->pixel == PIXEL_UINT16  ? (const void *)&low
			    : v->pixel == PIXEL_INT32 ? (const void *)&whole
						      : (const void *)&number;

	return window_as(v, w, left, top, width, height, mode, pixel, err);
}

static int finish_numbers(struct view *v, struct pipeline_worker *w, const struct convert *f, void *row,
			  struct image_error *err)
{
	int rc = view_settle(v, w, false, err);

	for (uint32_t y = 0; rc == 0 && y < f->height; y++)
		convert_numbers_row(f, v->image.rgb + y * v->image.stride_bytes, y, row);
	return rc;
}

static void finish_gray(const struct view *v, const struct convert *f, void *row)
{
	const uint8_t *from = v->image.rgb + v->box.y * v->image.stride_bytes + v->box.x;

	for (uint32_t y = 0; y < f->height; y++)
		convert_gray_row(f, from + y * v->image.stride_bytes, v->flip_vertical ? f->height - 1 - y : y, row);
}

/* Pixels that lie in memory as the row needs them go to no resampler. */
static int finish_settled(struct view *v, struct pipeline_worker *w, const struct convert *f, void *row,
			  struct image_error *err)
{
	bool flip = v->flip_vertical;
	int rc;

	v->flip_vertical = false;
	rc = view_settle(v, w, false, err);
	for (uint32_t y = 0; rc == 0 && y < f->height; y++)
		convert_row(f, v->image.rgb + y * v->image.stride_bytes, flip ? f->height - 1 - y : y, row);
	return rc;
}

int view_finish(struct view *v, struct pipeline_worker *w, const struct convert *f, void *row, struct image_error *err)
{
	struct resample_request q = request_of(v);
	int rc;

	if (view_width(v) != f->width || view_height(v) != f->height) /* a cached prefix of another pipeline */
		return image_fail(err, IMAGE_E_CORRUPT, "the pipeline made %u x %u pixels instead of %u x %u",
				  view_width(v), view_height(v), f->width, f->height);
	if (v->pixel != PIXEL_RGB)
		return finish_numbers(v, w, f, row, err);
	if (!v->decoder && !v->resized && !v->flip_horizontal) {
		if (!v->gray || f->n_channels != 1)
			return finish_settled(v, w, f, row, err);
		finish_gray(v, f, row);
		return 0;
	}
	rc = begin_rgb(v, w, &q, err);
	if (rc != 0)
		return rc;
	for (uint32_t y = 0; y < f->height; y++)
		convert_row(f, resample_next_row(w->resampler), v->flip_vertical ? f->height - 1 - y : y, row);
	return 0;
}
