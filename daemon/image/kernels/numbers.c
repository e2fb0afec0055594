/* Pillow's resampling of modes I;16, I and F: weights and sums in double, each pass rounded to the mode's numbers. Nearest
 * neighbour computes each position of I;16 again, and for the other two it adds up the step, as it does for RGB. (Older
 * versions of Pillow than 13 keep the low byte of a sum above 65535.) */
#include "image/kernels/exact.h"

#include "image/kernels/numbers.h"

#include <errno.h>
#include <string.h>

#include "image/kernels/taps.h"

/* Of each output position the source positions that it reads, from the start of the box, and their weights. */
struct axis {
	uint32_t width; /* weights of a position */
	uint32_t *first, *count;
	double *weights;
};

struct job {
	const struct resample_request *q;
	enum pixel pixel;
	struct region_px needs; /* from the start of the box */
	struct image src;       /* these pixels */
	bool flip_vertical;
	struct axis columns, rows;
	double *sums; /* of a row */
	struct image *dst;
};

struct region_px numbers_needs(const struct resample_request *q, enum pixel pixel)
{
	struct region_px r = resample_needs(q);

	if (q->filter != FILTER_NEAREST || pixel != PIXEL_UINT16)
		return r;
	/* Both ways of computing a position differ by rounding only. */
	uint32_t right = r.x + r.width, bottom = r.y + r.height;

	r.x -= r.x > q->box.x;
	r.y -= r.y > q->box.y;
	r.width = right + (right < q->box.x + q->box.width) - r.x;
	r.height = bottom + (bottom < q->box.y + q->box.height) - r.y;
	return r;
}

/* ---- numbers ---- */

static inline __attribute__((always_inline)) double number_get(enum pixel pixel, const uint8_t *row, size_t x)
{
	switch (pixel) {
	case PIXEL_UINT16:
		return ((const uint16_t *)(const void *)row)[x];
	case PIXEL_INT32:
		return ((const int32_t *)(const void *)row)[x];
	default:
		return (double)((const float *)(const void *)row)[x];
	}
}

static int32_t rounded(double v)
{
	v = v >= 0.0 ? v + 0.5 : v - 0.5;
	return v > -2147483649.0 && v < 2147483648.0 ? (int32_t)v : INT32_MIN; /* as x86 converts it */
}

static uint16_t clipped(int32_t v)
{
	return v < 0 ? 0 : v > UINT16_MAX ? UINT16_MAX : (uint16_t)v;
}

static inline __attribute__((always_inline)) void number_put(enum pixel pixel, uint8_t *row, size_t x, double v)
{
	switch (pixel) {
	case PIXEL_UINT16:
		((uint16_t *)(void *)row)[x] = clipped(rounded(v));
		break;
	case PIXEL_INT32:
		((int32_t *)(void *)row)[x] = rounded(v);
		break;
	default:
		((float *)(void *)row)[x] = (float)v;
	}
}

/* ---- the passes ---- */

static inline __attribute__((always_inline)) void shrink_row_of(enum pixel pixel, const struct axis *a, uint32_t from,
								uint32_t n, const uint8_t *in, uint8_t *out, bool flip)
{
	for (uint32_t i = 0; i < n; i++) {
		const double *weight = a->weights + (size_t)i * a->width;
		uint32_t first = a->first[i] - from;
		double sum = 0.0;

		for (uint32_t j = 0; j < a->count[i]; j++)
			sum += number_get(pixel, in, first + j) * weight[j];
		number_put(pixel, out, flip ? n - 1 - i : i, sum);
	}
}

/* A row of the source, which begins at the needed part, becomes one of the result's width. */
static void shrink_row(const struct job *j, const uint8_t *in, uint8_t *out)
{
	uint32_t n = j->q->keep.width, from = j->needs.x;

	switch (j->pixel) {
	case PIXEL_UINT16:
		shrink_row_of(PIXEL_UINT16, &j->columns, from, n, in, out, j->q->flip);
		break;
	case PIXEL_INT32:
		shrink_row_of(PIXEL_INT32, &j->columns, from, n, in, out, j->q->flip);
		break;
	default:
		shrink_row_of(PIXEL_FLOAT32, &j->columns, from, n, in, out, j->q->flip);
	}
}

static inline __attribute__((always_inline)) void sum_rows_of(enum pixel pixel, const struct axis *a, uint32_t y,
							      uint32_t from, const struct image *in, double *sums,
							      uint8_t *out)
{
	memset(sums, 0, in->width * sizeof(*sums));
	for (uint32_t k = 0; k < a->count[y]; k++) {
		const uint8_t *row = in->rgb + (a->first[y] - from + k) * in->stride_bytes;
		double weight = a->weights[(size_t)y * a->width + k];

		for (uint32_t x = 0; x < in->width; x++)
			sums[x] += number_get(pixel, row, x) * weight;
	}
	for (uint32_t x = 0; x < in->width; x++)
		number_put(pixel, out, x, sums[x]);
}

/* Row y of the result, from rows of any width that begin at the needed part. */
static void sum_rows(const struct job *j, uint32_t y, const struct image *in, uint8_t *out)
{
	switch (j->pixel) {
	case PIXEL_UINT16:
		sum_rows_of(PIXEL_UINT16, &j->rows, y, j->needs.y, in, j->sums, out);
		break;
	case PIXEL_INT32:
		sum_rows_of(PIXEL_INT32, &j->rows, y, j->needs.y, in, j->sums, out);
		break;
	default:
		sum_rows_of(PIXEL_FLOAT32, &j->rows, y, j->needs.y, in, j->sums, out);
	}
}

static uint8_t *dst_row(const struct job *j, uint32_t y)
{
	return j->dst->rgb + (j->flip_vertical ? j->dst->height - 1 - y : y) * j->dst->stride_bytes;
}

static void copy_row(const struct job *j, const uint8_t *in, uint8_t *out)
{
	size_t bytes = pixel_bytes(j->pixel);
	uint32_t n = j->q->keep.width;

	for (uint32_t i = 0; i < n && j->q->flip; i++)
		memcpy(out + (n - 1 - i) * bytes, in + i * bytes, bytes);
	if (!j->q->flip)
		memcpy(out, in, n * bytes);
}

static const uint8_t *job_row(const struct job *j, uint32_t y)
{
	return j->src.rgb + y * j->src.stride_bytes;
}

static void rows_first(const struct job *j, bool horizontal, bool vertical, const struct image *between)
{
	for (uint32_t y = 0; y < between->height && horizontal; y++)
		shrink_row(j, job_row(j, y), vertical ? between->rgb + y * between->stride_bytes : dst_row(j, y));
	for (uint32_t y = 0; y < j->q->keep.height && vertical; y++)
		sum_rows(j, y, between, dst_row(j, y));
}

static void columns_first(const struct job *j, bool horizontal, uint8_t *row)
{
	for (uint32_t y = 0; y < j->q->keep.height; y++) {
		sum_rows(j, y, &j->src, row);
		if (horizontal)
			shrink_row(j, row, dst_row(j, y));
		else
			copy_row(j, row, dst_row(j, y));
	}
}

/* ---- nearest neighbour, and no change ---- */

static void pick_positions(enum pixel pixel, uint32_t in, uint32_t out, uint32_t from, uint32_t n, uint32_t *to)
{
	double step = (double)in / out, at = step * 0.5;

	for (uint32_t x = 0; x < from + n; x++, at += step) {
		double where = pixel == PIXEL_UINT16 ? step * (x + 0.5) : at;
		uint32_t source = where < in ? (uint32_t)where : in - 1;

		if (x >= from)
			to[x - from] = source;
	}
}

static int pick(struct job *j, struct scratch *memory)
{
	const struct resample_request *q = j->q;
	size_t bytes = pixel_bytes(j->pixel);
	uint32_t n = q->keep.width;
	uint32_t *columns = (uint32_t *)(void *)scratch_reserve(memory, ((size_t)q->keep.width + q->keep.height) *
										sizeof(uint32_t));
	uint32_t *rows = columns + n;

	if (!columns)
		return -ENOMEM;
	pick_positions(j->pixel, q->box.width, q->out_width, q->keep.x, n, columns);
	pick_positions(j->pixel, q->box.height, q->out_height, q->keep.y, q->keep.height, rows);
	for (uint32_t y = 0; y < q->keep.height; y++) {
		const uint8_t *in = job_row(j, rows[y] - j->needs.y);
		uint8_t *out = dst_row(j, y);

		for (uint32_t x = 0; x < n; x++)
			memcpy(out + (q->flip ? n - 1 - x : x) * bytes, in + (columns[x] - j->needs.x) * bytes, bytes);
	}
	return 0;
}

/* ---- weights ---- */

static size_t axis_bytes(uint32_t n, uint32_t width)
{
	return (size_t)n * (width * sizeof(double) + 2 * sizeof(uint32_t));
}

static uint8_t *axis_make(struct axis *a, enum filter f, uint32_t in, uint32_t out, uint32_t from, uint32_t n,
			  uint8_t *memory)
{
	a->weights = (double *)(void *)memory;
	a->first = (uint32_t *)(void *)(a->weights + (size_t)n * a->width);
	a->count = a->first + n;
	for (uint32_t i = 0; i < n; i++)
		taps_exact(f, in, out, from + i, &a->first[i], &a->count[i], a->weights + (size_t)i * a->width);
	return memory + axis_bytes(n, a->width);
}

/* The sums of a row come first, as their size keeps what is behind them aligned. */
static int weigh_axes(struct job *j, bool horizontal, bool vertical, struct scratch *memory)
{
	const struct resample_request *q = j->q;
	size_t n_sums = q->keep.width > j->needs.width ? q->keep.width : j->needs.width;

	j->columns.width = horizontal ? taps_exact_width(q->filter, q->box.width, q->out_width) : 0;
	j->rows.width = vertical ? taps_exact_width(q->filter, q->box.height, q->out_height) : 0;
	uint8_t *at = scratch_reserve(memory, n_sums * sizeof(double) + axis_bytes(q->keep.width, j->columns.width) +
						      axis_bytes(q->keep.height, j->rows.width));

	if (!at)
		return -ENOMEM;
	j->sums = (double *)(void *)at;
	at += n_sums * sizeof(double);
	if (horizontal)
		at = axis_make(&j->columns, q->filter, q->box.width, q->out_width, q->keep.x, q->keep.width, at);
	if (vertical)
		axis_make(&j->rows, q->filter, q->box.height, q->out_height, q->keep.y, q->keep.height, at);
	return 0;
}

static int two_passes(struct job *j, bool horizontal, bool vertical, struct scratch memory[2])
{
	const struct resample_request *q = j->q;
	bool columns = resample_columns_first(q), wide = horizontal && vertical && !columns;
	struct image between = j->src;
	size_t bytes = pixel_bytes(j->pixel);
	int rc;

	if (wide && (uint64_t)j->needs.height * q->keep.width > NUMBERS_MAX_BETWEEN)
		return IMAGE_E_LIMIT;
	if ((rc = weigh_axes(j, horizontal, vertical, &memory[0])))
		return rc;
	uint8_t *room =
		scratch_reserve(&memory[1], columns ? j->needs.width * bytes
						    : (wide ? (size_t)j->needs.height : 1) * q->keep.width * bytes);

	if (!room)
		return -ENOMEM;
	if (wide) {
		between.rgb = room;
		between.stride_bytes = q->keep.width * bytes;
		between.width = q->keep.width;
	}
	if (columns ||
	    (vertical && !horizontal)) /* without a horizontal pass rows are mirrored after the vertical one */
		columns_first(j, horizontal, room);
	else
		rows_first(j, horizontal, vertical, &between);
	return 0;
}

int numbers_resample(const struct resample_request *q, enum pixel pixel, const struct image *src,
		     struct region_px src_origin, bool flip_vertical, struct scratch memory[2], struct image *dst)
{
	struct region_px needs = numbers_needs(q, pixel);
	bool horizontal = q->box.width != q->out_width, vertical = q->box.height != q->out_height;
	struct job j = {
		.q = q,
		.pixel = pixel,
		.needs = { needs.x - q->box.x, needs.y - q->box.y, needs.width, needs.height },
		.src = { src->rgb + (needs.y - src_origin.y) * src->stride_bytes +
				 (needs.x - src_origin.x) * pixel_bytes(pixel),
			 src->stride_bytes, needs.width, needs.height },
		.flip_vertical = flip_vertical,
		.dst = dst,
	};

	if (q->filter == FILTER_NEAREST || (!horizontal && !vertical))
		return pick(&j, &memory[0]);
	return two_passes(&j, horizontal, vertical, memory);
}
