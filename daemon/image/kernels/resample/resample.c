/* The resampler: chooses the path, makes the weights and runs the two passes row by row.
 *
 * It never stores more than a few rows. Rows first (the usual order): source rows are shrunk to the result's width,
 * four at a time, into a ring just large enough for one output row's window, and the vertical pass sums rows of the
 * ring. Columns first (see enum pass_order): each output row is summed from source rows and then shrunk. In both orders
 * a finished row is in the first-level cache when the caller gets it.
 *
 * A source that comes in bands goes through the horizontal pass band by band, into a ring that has all of its rows:
 * they are as short as the result's.
 *
 * SIMD code reads slightly past the end of a row. That is harmless within the image, but the last rows may touch the
 * end of the caller's memory (a mapped cache entry ends at a page), so these few rows are copied first. */
#include "image/kernels/resample/resample.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "image/kernels/geometry.h"
#include "image/kernels/resample/paths.h"
#include "image/kernels/row-sink.h"

_Static_assert((int)ROW_SINK_BAND == (int)RESAMPLE_BATCH_ROWS, "a band is what a horizontal call takes");
_Static_assert((int)ROW_SINK_SLACK_BYTES >= (int)RESAMPLE_SLACK_BYTES, "as far as the horizontal pass reads");

enum pass_plan { PLAN_PICK, PLAN_ROWS_FIRST, PLAN_COLUMNS_FIRST };

struct resampler {
	const struct resample_path *path;
	struct taps columns, rows;              /* the horizontal and the vertical axis */
	struct scratch table;                   /* the path's form of columns */
	const struct resample_path *table_path; /* the path that made table; NULL: none */

	/* The present resampling. */
	struct resample_request request;
	struct image src;
	enum pass_plan plan;
	bool has_horizontal, has_vertical; /* a pass that would change nothing is skipped */
	uint32_t next_row;                 /* of the result */
	uint32_t n_shrunk;                 /* source rows that went through the horizontal pass */
	bool in_fours;                     /* they lie in the ring in fours, see paths.h */
	struct scratch ring;               /* PLAN_ROWS_FIRST: ring_rows rows, ring_stride apart */
	uint32_t ring_rows;                /* of bands: all rows, as they come before the first is used */
	size_t ring_stride;
	struct scratch wide;   /* PLAN_COLUMNS_FIRST: one row of the source's width */
	struct scratch row;    /* one row of the result */
	struct scratch last;   /* copies of the source's last rows */
	struct scratch window; /* const uint8_t *[rows.width]: the rows whose weighted sum is one output row */
};

static const struct resample_path *const all_paths[] = {
#if defined(__x86_64__)
	&resample_avx512,
	&resample_avx2,
#elif defined(__aarch64__)
	&resample_neon,
#endif
	&resample_c,
};
enum { N_PATHS = sizeof(all_paths) / sizeof(all_paths[0]) };

static const struct resample_path *path_by_name(const char *name)
{
	for (size_t i = 0; i < N_PATHS; i++)
		if ((!name || strcmp(all_paths[i]->name, name) == 0) && all_paths[i]->can_run())
			return all_paths[i];
	return NULL;
}

const char *const *resample_paths(void)
{
	static _Thread_local const char *names[N_PATHS + 1]; /* per thread, so that filling it needs no lock */
	size_t n = 0;

	for (size_t i = 0; i < N_PATHS; i++)
		if (all_paths[i]->can_run())
			names[n++] = all_paths[i]->name;
	names[n] = NULL;
	return names;
}

struct resampler *resampler_create(void)
{
	struct resampler *r = calloc(1, sizeof(*r));

	if (r)
		r->path = path_by_name(NULL);
	return r;
}

void resampler_destroy(struct resampler *r)
{
	if (!r)
		return;
	resampler_trim(r);
	free(r);
}

void resampler_trim(struct resampler *r)
{
	taps_finish(&r->columns);
	taps_finish(&r->rows);
	r->table_path = NULL;
	scratch_finish(&r->table);
	scratch_finish(&r->ring);
	scratch_finish(&r->wide);
	scratch_finish(&r->row);
	scratch_finish(&r->last);
	scratch_finish(&r->window);
}

int resampler_set_path(struct resampler *r, const char *name)
{
	const struct resample_path *path = path_by_name(name);

	if (!path)
		return -ENOENT;
	r->path = path;
	return 0;
}

struct region_px resample_needs(const struct resample_request *q)
{
	struct region_px needs;
	uint32_t end_x, end_y;

	taps_span(q->filter, q->box.width, q->out_width, q->keep.x, q->keep.width, &needs.x, &end_x);
	taps_span(q->filter, q->box.height, q->out_height, q->keep.y, q->keep.height, &needs.y, &end_y);
	needs.width = end_x - needs.x;
	needs.height = end_y - needs.y;
	needs.x += q->box.x;
	needs.y += q->box.y;
	return needs;
}

static enum pass_plan plan_of(const struct resample_request *q)
{
	int64_t less_height = (int64_t)q->box.height - q->out_height, less_width = (int64_t)q->box.width - q->out_width;

	if (q->filter == FILTER_NEAREST)
		return PLAN_PICK;
	if (q->order == PASS_ORDER_PILLOW_13 && less_height > 0 && less_height > less_width * 2)
		return PLAN_COLUMNS_FIRST;
	return PLAN_ROWS_FIRST;
}

bool resample_columns_first(const struct resample_request *q)
{
	return plan_of(q) == PLAN_COLUMNS_FIRST;
}

/* The part of src that this request may read, as the taps see it: relative to the box. */
static int make_taps(struct resampler *r, struct region_px needs)
{
	const struct resample_request *q = &r->request;
	struct taps_request columns = {
		.filter = q->filter,
		.in = q->box.width,
		.out = q->out_width,
		.from = q->keep.x,
		.n = q->keep.width,
		.avail_from = needs.x - q->box.x,
		.n_avail = needs.width,
		.reverse = q->flip,
	};
	struct taps_request rows = {
		.filter = q->filter,
		.in = q->box.height,
		.out = q->out_height,
		.from = q->keep.y,
		.n = q->keep.height,
		.avail_from = needs.y - q->box.y,
		.n_avail = needs.height,
	};
	bool columns_changed = false, rows_changed;
	int rc = 0;

	if (r->has_horizontal)
		rc = taps_make(&r->columns, &columns, &columns_changed);
	if (columns_changed)
		r->table_path = NULL;
	if (rc == 0 && r->has_vertical)
		rc = taps_make(&r->rows, &rows, &rows_changed);
	if (rc < 0 || !r->has_horizontal || !r->path->prepare || r->plan == PLAN_PICK)
		return rc;
	if (r->table_path != r->path) {
		uint8_t *table = scratch_reserve(&r->table, r->path->table_bytes(&r->columns));

		if (!table)
			return -ENOMEM;
		r->path->prepare(&r->columns, table);
		r->table_path = r->path;
	}
	return 0;
}

static bool can_be_in_fours(const struct resampler *r)
{
	return r->path->vertical_fours && r->plan == PLAN_ROWS_FIRST && r->has_horizontal && r->has_vertical &&
	       r->rows.width <= RESAMPLE_MAX_FOURS_TAPS;
}

static uint32_t fours_of(uint32_t n_rows)
{
	return (n_rows + RESAMPLE_BATCH_ROWS - 1) / RESAMPLE_BATCH_ROWS;
}

/* n_ring: fours in the ring. */
static int reserve_fours(struct resampler *r, uint32_t n_ring)
{
	size_t out_bytes = (size_t)r->request.keep.width * 3;

	r->ring_stride = resample_fours_bytes(out_bytes) + RESAMPLE_SLACK_BYTES;
	r->ring_rows = n_ring;
	if (!scratch_reserve(&r->row, out_bytes + RESAMPLE_SLACK_BYTES) ||
	    !scratch_reserve(&r->window, (fours_of(r->rows.width - 1) + 1) * sizeof(const uint8_t *)) ||
	    !scratch_reserve(&r->ring, r->ring_rows * r->ring_stride) ||
	    !scratch_reserve(&r->last, (size_t)r->src.width * 3 + RESAMPLE_SLACK_BYTES))
		return -ENOMEM;
	return 0;
}

/* n_ring: rows in the ring at least. */
static int reserve_rows(struct resampler *r, uint32_t n_ring)
{
	size_t out_bytes = (size_t)r->request.keep.width * 3;

	r->ring_stride = (out_bytes + RESAMPLE_SLACK_BYTES + 63) / 64 * 64;
	r->ring_rows = n_ring;
	/* batches never wrap */
	r->ring_rows = (r->ring_rows + RESAMPLE_BATCH_ROWS - 1) / RESAMPLE_BATCH_ROWS * RESAMPLE_BATCH_ROWS;
	if (!scratch_reserve(&r->row, out_bytes + RESAMPLE_SLACK_BYTES))
		return -ENOMEM;
	if (r->has_vertical && !scratch_reserve(&r->window, r->rows.width * sizeof(const uint8_t *)))
		return -ENOMEM;
	if (r->has_horizontal && r->plan == PLAN_ROWS_FIRST &&
	    !scratch_reserve(&r->ring, r->ring_rows * r->ring_stride))
		return -ENOMEM;
	if (r->plan == PLAN_COLUMNS_FIRST &&
	    !scratch_reserve(&r->wide, (size_t)r->src.width * 3 + RESAMPLE_SLACK_BYTES))
		return -ENOMEM;
	if (!scratch_reserve(&r->last, (size_t)r->src.width * 3 + RESAMPLE_SLACK_BYTES))
		return -ENOMEM;
	return 0;
}

/* src: exactly the needed part. */
static int begin_with(struct resampler *r, const struct resample_request *q, struct region_px needs, struct image src)
{
	r->request = *q;
	r->plan = plan_of(q);
	r->has_horizontal = q->box.width != q->out_width;
	r->has_vertical = q->box.height != q->out_height;
	r->src = src;
	r->next_row = r->n_shrunk = 0;
	r->in_fours = false;
	return make_taps(r, needs);
}

int resample_begin(struct resampler *r, const struct resample_request *q, const struct image *src,
		   struct region_px src_origin)
{
	struct region_px needs = resample_needs(q);
	size_t y = needs.y - src_origin.y, x = needs.x - src_origin.x;
	uint8_t *first = src->rgb + y * src->stride_bytes + x * 3;
	int rc = begin_with(r, q, needs, (struct image){ first, src->stride_bytes, needs.width, needs.height });

	if (rc < 0)
		return rc;
	/* A source row must have its slack, but for the last one, of which there is a copy. */
	r->in_fours = can_be_in_fours(r) && src->stride_bytes >= RESAMPLE_SLACK_BYTES;
	return r->in_fours ? reserve_fours(r, fours_of(r->rows.width - 1) + 1)
			   : reserve_rows(r, (r->has_vertical ? r->rows.width : 1) + RESAMPLE_BATCH_ROWS);
}

static const uint8_t *src_row(const struct resampler *r, uint32_t y)
{
	return r->src.rgb + (size_t)y * r->src.stride_bytes;
}

/* Whether RESAMPLE_SLACK_BYTES after row y are still inside the source. */
static bool has_slack(const struct resampler *r, uint32_t y)
{
	return (size_t)(r->src.height - 1 - y) * r->src.stride_bytes >= RESAMPLE_SLACK_BYTES;
}

static uint8_t *resample_ring_row(const struct resampler *r, uint32_t y)
{
	return r->ring.data + (size_t)(y % r->ring_rows) * r->ring_stride;
}

/* Sends the next source rows through the horizontal pass: four, or the remaining ones. */
static void shrink_rows(struct resampler *r)
{
	uint32_t y = r->n_shrunk, n = r->src.height - y;
	const uint8_t *src = src_row(r, y);

	n = n < RESAMPLE_BATCH_ROWS ? n : RESAMPLE_BATCH_ROWS;
	while (n > 1 && !has_slack(r, y + n - 1))
		n--;
	if (!has_slack(r, y)) {
		memcpy(r->last.data, src, (size_t)r->src.width * 3);
		src = r->last.data;
	}
	r->path->horizontal(&r->columns, r->table.data, src, r->src.stride_bytes, resample_ring_row(r, y),
			    r->ring_stride, n);
	r->n_shrunk += n;
}

/* The same for the next four, which become one row of the ring. */
static void shrink_four(struct resampler *r)
{
	const uint8_t *src[RESAMPLE_BATCH_ROWS];
	uint32_t last = r->src.height - 1;

	for (uint32_t k = 0; k < RESAMPLE_BATCH_ROWS; k++) {
		uint32_t y = r->n_shrunk + k < last ? r->n_shrunk + k : last;

		src[k] = y < last ? src_row(r, y) : r->last.data;
		if (y == last && r->n_shrunk + k == last)
			memcpy(r->last.data, src_row(r, last), (size_t)r->src.width * 3);
	}
	r->path->horizontal_four(&r->columns, r->table.data, src,
				 resample_ring_row(r, r->n_shrunk / RESAMPLE_BATCH_ROWS));
	r->n_shrunk += RESAMPLE_BATCH_ROWS;
}

static const uint8_t *fours_row(struct resampler *r, uint32_t y)
{
	const uint8_t **window = (const uint8_t **)(void *)r->window.data;
	uint32_t first = r->rows.first[y], n = r->rows.count[y], in_four = first % RESAMPLE_BATCH_ROWS;
	uint32_t n_fours = (in_four + n + RESAMPLE_BATCH_ROWS - 1) / RESAMPLE_BATCH_ROWS;

	while (r->n_shrunk < first + n)
		shrink_four(r);
	for (uint32_t j = 0; j < n_fours; j++)
		window[j] = resample_ring_row(r, first / RESAMPLE_BATCH_ROWS + j);
	r->path->vertical_fours(r->rows.k + (size_t)y * r->rows.width, in_four, n, window, r->row.data,
				(size_t)r->request.keep.width * 3);
	return r->row.data;
}

/* Computes output row y from source rows, or from the ring if these have been shrunk already. */
static void sum_rows(struct resampler *r, uint32_t y, bool from_ring, size_t n_bytes, uint8_t *dst)
{
	const uint8_t **window = (const uint8_t **)(void *)r->window.data;
	uint32_t first = r->rows.first[y], n = r->rows.count[y];

	for (uint32_t j = 0; j < n; j++)
		window[j] = from_ring ? resample_ring_row(r, first + j) : src_row(r, first + j);
	r->path->vertical(r->rows.k + (size_t)y * r->rows.width, n, window, dst, n_bytes);
}

/* Mirrors a row if there was no horizontal pass to do it. The row may be r->row itself. */
static const uint8_t *mirrored(struct resampler *r, const uint8_t *row)
{
	uint32_t n = r->request.keep.width;

	if (!r->request.flip)
		return row;
	if (row == r->row.data)
		row = memcpy(r->last.data, row, (size_t)n * 3);
	pixels_mirror(row, r->row.data, n);
	return r->row.data;
}

static const uint8_t *pick_row(struct resampler *r, uint32_t y)
{
	const uint8_t *src = src_row(r, r->has_vertical ? r->rows.first[y] : y);

	if (!r->has_horizontal)
		return mirrored(r, src);
	for (uint32_t x = 0; x < r->request.keep.width; x++)
		memcpy(r->row.data + (size_t)x * 3, src + (size_t)r->columns.first[x] * 3, 3);
	return r->row.data;
}

static const uint8_t *rows_first_row(struct resampler *r, uint32_t y)
{
	size_t n_bytes = (size_t)r->request.keep.width * 3;
	uint32_t end = r->has_vertical ? r->rows.first[y] + r->rows.count[y] : y + 1;

	if (!r->has_horizontal && !r->has_vertical)
		return mirrored(r, src_row(r, y));
	if (!r->has_horizontal) {
		sum_rows(r, y, false, n_bytes, r->row.data);
		return mirrored(r, r->row.data);
	}
	while (r->n_shrunk < end)
		shrink_rows(r);
	if (!r->has_vertical)
		return resample_ring_row(r, y);
	sum_rows(r, y, true, n_bytes, r->row.data);
	return r->row.data;
}

static const uint8_t *columns_first_row(struct resampler *r, uint32_t y)
{
	uint8_t *summed = r->has_horizontal ? r->wide.data : r->row.data;

	sum_rows(r, y, false, (size_t)r->src.width * 3, summed);
	if (!r->has_horizontal)
		return mirrored(r, summed);
	r->path->horizontal(&r->columns, r->table.data, summed, 0, r->row.data, 0, 1);
	return r->row.data;
}

bool resample_takes_bands(const struct resample_request *q)
{
	return plan_of(q) == PLAN_ROWS_FIRST && q->box.width != q->out_width &&
	       q->keep.width <= resample_needs(q).width;
}

int resample_begin_bands(struct resampler *r, const struct resample_request *q)
{
	struct region_px needs = resample_needs(q);
	int rc = begin_with(r, q, needs, (struct image){ NULL, 0, needs.width, needs.height });

	assert(resample_takes_bands(q));
	if (rc < 0)
		return rc;
	r->in_fours = can_be_in_fours(r);
	return r->in_fours ? reserve_fours(r, fours_of(needs.height)) : reserve_rows(r, needs.height);
}

void resample_take_band(struct resampler *r, const uint8_t *rows, size_t stride_bytes, unsigned n)
{
	assert(n >= 1 && n <= RESAMPLE_BATCH_ROWS && n <= r->src.height - r->n_shrunk);
	if (r->in_fours) {
		const uint8_t *src[RESAMPLE_BATCH_ROWS];

		for (unsigned k = 0; k < RESAMPLE_BATCH_ROWS; k++)
			src[k] = rows + (k < n ? k : n - 1) * stride_bytes;
		r->path->horizontal_four(&r->columns, r->table.data, src,
					 resample_ring_row(r, r->n_shrunk / RESAMPLE_BATCH_ROWS));
	} else {
		r->path->horizontal(&r->columns, r->table.data, rows, stride_bytes, resample_ring_row(r, r->n_shrunk),
				    r->ring_stride, n);
	}
	r->n_shrunk += n;
}

const uint8_t *resample_next_row(struct resampler *r)
{
	uint32_t y = r->next_row++;

	if (r->in_fours)
		return fours_row(r, y);
	if (r->plan == PLAN_PICK)
		return pick_row(r, y);
	return r->plan == PLAN_ROWS_FIRST ? rows_first_row(r, y) : columns_first_row(r, y);
}

int resample(struct resampler *r, const struct resample_request *q, const struct image *src,
	     struct region_px src_origin, struct image *dst)
{
	int rc = resample_begin(r, q, src, src_origin);

	for (uint32_t y = 0; rc == 0 && y < q->keep.height; y++)
		memcpy(dst->rgb + (size_t)y * dst->stride_bytes, resample_next_row(r), (size_t)q->keep.width * 3);
	return rc;
}
