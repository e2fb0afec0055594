/* The weights of one axis, as Pillow computes them (its Resample.c): in double, around the centre of each output
 * position, with the filter stretched when the image shrinks, normalized to 1, then rounded to 22 bits.
 *
 * Every detail here affects pixels: the order of the additions, the different rounding of negative numbers and the
 * accumulation of the step for nearest neighbour are all part of the result. */
#include "image/kernels/exact.h"

#include "image/kernels/taps.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "image/kernels/weights.h"

/* The source positions that an output position reads. */
struct window {
	uint32_t first, end;
};

struct stretch {
	double scale;       /* source positions per output position */
	double filterscale; /* the same, but at least 1: when enlarging, the filter keeps its size */
	double support;     /* half the window */
};

static inline double taps_bilinear(double x)
{
	x = fabs(x);
	return x < 1.0 ? 1.0 - x : 0.0;
}

static inline double taps_bicubic(double x)
{
	const double a = -0.5;

	x = fabs(x);
	if (x < 1.0)
		return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
	if (x < 2.0)
		return (((x - 5) * x + 8) * x - 4) * a;
	return 0.0;
}

static inline double taps_box(double x)
{
	return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
}

static inline double taps_hamming(double x)
{
	x = fabs(x);
	if (x == 0.0)
		return 1.0;
	if (x >= 1.0)
		return 0.0;
	x *= M_PI;
	return sin(x) / x * ((double)0.54f + (double)0.46f * cos(x)); /* Pillow's constants are floats */
}

static inline double taps_sinc(double x)
{
	if (x == 0.0)
		return 1.0;
	x *= M_PI;
	return sin(x) / x;
}

static inline double taps_lanczos(double x)
{
	return -3.0 <= x && x < 3.0 ? taps_sinc(x) * taps_sinc(x / 3) : 0.0;
}

/* Half the window of a filter that is not stretched. */
static double support_of(enum filter f)
{
	switch (f) {
	case FILTER_LANCZOS:
		return 3.0;
	case FILTER_BICUBIC:
		return 2.0;
	case FILTER_BOX:
		return 0.5;
	default:
		return 1.0;
	}
}

static struct stretch stretch_of(enum filter f, uint32_t in, uint32_t out)
{
	struct stretch s;

	s.scale = (double)in / out;
	s.filterscale = s.scale < 1.0 ? 1.0 : s.scale;
	s.support = support_of(f) * s.filterscale;
	return s;
}

static double center_of(const struct stretch *s, uint32_t x)
{
	return 0.0 + (x + 0.5) * s->scale;
}

static struct window window_at(const struct stretch *s, uint32_t in, uint32_t x)
{
	int32_t first, end;

	weights_window(s->scale, s->support, (int32_t)in, (int32_t)x, &first, &end);
	return (struct window){ (uint32_t)first, (uint32_t)end };
}

/* Nearest neighbour accumulates its step from the left edge, rounding errors included. */
static void nearest_fill(struct taps *t, const struct taps_request *q)
{
	double step = (double)q->in / q->out;
	double at = 0.0 + step * 0.5;

	for (uint32_t x = 0; x < q->from + q->n; x++, at += step) {
		uint32_t i, source = (uint32_t)at;

		if (x < q->from)
			continue;
		i = q->reverse ? q->n - 1 - (x - q->from) : x - q->from;
		t->first[i] = (source < q->in ? source : q->in - 1) - q->avail_from;
		t->count[i] = 1;
		t->k[i] = 1 << TAPS_PRECISION_BITS;
	}
}

static void nearest_span(uint32_t in, uint32_t out, uint32_t from, uint32_t n, uint32_t *first, uint32_t *end)
{
	double step = (double)in / out;
	double at = 0.0 + step * 0.5;
	uint32_t source = 0;

	*first = 0;
	for (uint32_t x = 0; x < from + n; x++, at += step) {
		source = (uint32_t)at < in ? (uint32_t)at : in - 1;
		if (x == from)
			*first = source;
	}
	*end = source + 1;
}

void taps_span(enum filter f, uint32_t in, uint32_t out, uint32_t from, uint32_t n, uint32_t *first, uint32_t *end)
{
	if (in == out) { /* the pass is skipped */
		*first = from;
		*end = from + n;
	} else if (f == FILTER_NEAREST) {
		nearest_span(in, out, from, n, first, end);
	} else {
		struct stretch s = stretch_of(f, in, out);

		*first = window_at(&s, in, from).first;
		*end = window_at(&s, in, from + n - 1).end;
	}
}

static int32_t to_fixed(double weight)
{
	return (int32_t)((weight < 0 ? -0.5 : 0.5) + weight * (1 << TAPS_PRECISION_BITS));
}

/* Computes all windows. Returns the exact size of the largest, so that windows of four taps use the code for four
 * taps. */
static uint32_t find_windows(struct taps *t, const struct taps_request *q)
{
	struct stretch s = stretch_of(q->filter, q->in, q->out);
	struct weights_axis axis = {
		.scale = s.scale,
		.support = s.support,
		.in = q->in,
		.from = q->reverse ? q->from + q->n - 1 : q->from,
		.n = q->n,
		.step = q->reverse ? -1 : 1,
	};

	return weights_find(&axis, t->first, t->count);
}

/* The n weights of the window that begins at first. Inline, so that each filter has its own loop. */
static inline __attribute__((always_inline)) void weigh(double (*filter)(double), const struct stretch *s,
							double center, uint32_t first, uint32_t n, double *weight)
{
	double inverse = 1.0 / s->filterscale, sum = 0.0;

	for (uint32_t j = 0; j < n; j++) {
		weight[j] = filter(((double)(j + first) - center + 0.5) * inverse);
		sum += weight[j];
	}
	if (sum != 0.0)
		for (uint32_t j = 0; j < n; j++)
			weight[j] /= sum;
}

static void weigh_by(enum filter f, const struct stretch *s, double center, uint32_t first, uint32_t n, double *weight)
{
	switch (f) {
	case FILTER_LANCZOS:
		weigh(taps_lanczos, s, center, first, n, weight);
		break;
	case FILTER_BICUBIC:
		weigh(taps_bicubic, s, center, first, n, weight);
		break;
	case FILTER_BOX:
		weigh(taps_box, s, center, first, n, weight);
		break;
	case FILTER_HAMMING:
		weigh(taps_hamming, s, center, first, n, weight);
		break;
	default:
		weigh(taps_bilinear, s, center, first, n, weight);
	}
}

uint32_t taps_exact_width(enum filter f, uint32_t in, uint32_t out)
{
	return (uint32_t)ceil(stretch_of(f, in, out).support) * 2 + 1;
}

void taps_exact(enum filter f, uint32_t in, uint32_t out, uint32_t x, uint32_t *first, uint32_t *count, double *weights)
{
	struct stretch s = stretch_of(f, in, out);
	struct window w = window_at(&s, in, x);

	*first = w.first;
	*count = w.end - w.first;
	weigh_by(f, &s, center_of(&s, x), w.first, *count, weights);
}

/* Takes weights from[0], from[step] ... of the window at i, which find_windows has found. At the right edge the window moves
 * left and starts with zero weights, so that width positions can be read. */
static void put_window(struct taps *t, const struct taps_request *q, uint32_t i, const int32_t *from, uint32_t step)
{
	uint32_t n = t->count[i], first = t->first[i] - q->avail_from,
		 shift = first + t->width > q->n_avail ? first + t->width - q->n_avail : 0;
	int32_t *k = t->k + (size_t)i * t->width;

	memset(k, 0, t->width * sizeof(*k));
	for (uint32_t j = 0; j < n; j++)
		k[shift + j] = from[(size_t)j * step];
	t->first[i] = first - shift;
	t->count[i] = shift + n;
}

static uint32_t position_of(const struct taps_request *q, uint32_t i)
{
	return q->from + (q->reverse ? q->n - 1 - i : i);
}

static void fill_one(struct taps *t, const struct taps_request *q, const struct stretch *s, uint32_t i, double *exact,
		     int32_t *fixed)
{
	weigh_by(q->filter, s, center_of(s, position_of(q, i)), t->first[i], t->count[i], exact);
	for (uint32_t j = 0; j < t->count[i]; j++)
		fixed[j] = to_fixed(exact[j]);
	put_window(t, q, i, fixed, 1);
}

/* Whether the windows of the eight positions from i on stay where they are. They move in one direction only. */
static bool eight_stay(const struct taps *t, const struct taps_request *q, uint32_t i)
{
	uint32_t a = t->first[i], b = t->first[i + WEIGHTS_AT_ONCE - 1];

	return (a > b ? a : b) - q->avail_from + t->width <= q->n_avail;
}

/* Positions i and the n - 1 after it; the rest of the eight are the last one again. */
static void fill_eight(struct taps *t, const struct taps_request *q, const struct stretch *s, uint32_t i, uint32_t n,
		       double *exact, int32_t *fixed)
{
	struct weights_windows windows;

	for (uint32_t w = 0; w < WEIGHTS_AT_ONCE; w++) {
		uint32_t at = i + (w < n ? w : n - 1);

		windows.center[w] = center_of(s, position_of(q, at));
		windows.first[w] = (double)t->first[at];
		windows.count[w] = (double)t->count[at];
	}
	weights_make(q->filter, s->filterscale, &windows, t->width, exact, fixed);
	if (n == WEIGHTS_AT_ONCE && eight_stay(t, q, i)) {
		weights_by_window(fixed, t->width, t->k + (size_t)i * t->width);
		for (uint32_t w = 0; w < n; w++)
			t->first[i + w] -= q->avail_from;
		return;
	}
	for (uint32_t w = 0; w < n; w++)
		put_window(t, q, i + w, fixed + w, WEIGHTS_AT_ONCE);
}

static void taps_fill(struct taps *t, const struct taps_request *q)
{
	struct stretch s = stretch_of(q->filter, q->in, q->out);
	double *exact = (double *)(void *)t->exact.data;
	int32_t *fixed = (int32_t *)(void *)(exact + WEIGHTS_ROOM(t->width));
	uint32_t step = weights_can(q->filter) ? WEIGHTS_AT_ONCE : 1;

	for (uint32_t i = 0; i < q->n; i += step)
		if (step == 1)
			fill_one(t, q, &s, i, exact, fixed);
		else
			fill_eight(t, q, &s, i, q->n - i < step ? q->n - i : step, exact, fixed);
}

static bool same_request(const struct taps_request *a, const struct taps_request *b)
{
	return a->filter == b->filter && a->in == b->in && a->out == b->out && a->from == b->from && a->n == b->n &&
	       a->avail_from == b->avail_from && a->n_avail == b->n_avail && a->reverse == b->reverse;
}

/* Room for first and count of n positions. */
static int reserve_windows(struct taps *t, uint32_t n)
{
	size_t n_padded = ((size_t)n + 15) / 16 * 16;

	t->first = (uint32_t *)(void *)scratch_reserve(&t->windows, 2 * n_padded * sizeof(uint32_t));
	t->count = t->first ? t->first + n_padded : NULL;
	return t->first ? 0 : -ENOMEM;
}

static int reserve_weights(struct taps *t, uint32_t n, uint32_t width)
{
	t->width = width;
	t->k = (int32_t *)(void *)scratch_reserve(&t->weights, ((size_t)n * width + WEIGHTS_AT_ONCE) * sizeof(int32_t));
	return t->k && scratch_reserve(&t->exact, WEIGHTS_ROOM(width) * (sizeof(double) + sizeof(int32_t))) ? 0
													    : -ENOMEM;
}

int taps_make(struct taps *t, const struct taps_request *want, bool *changed)
{
	bool nearest = want->filter == FILTER_NEAREST;
	int rc;

	*changed = !same_request(&t->made, want);
	if (!*changed)
		return 0;
	t->made.n = 0;
	rc = reserve_windows(t, want->n);
	if (rc == 0)
		rc = reserve_weights(t, want->n, nearest ? 1 : find_windows(t, want));
	if (rc != 0)
		return rc;
	if (nearest)
		nearest_fill(t, want);
	else
		taps_fill(t, want);
	t->made = *want;
	return 0;
}

void taps_finish(struct taps *t)
{
	scratch_finish(&t->windows);
	scratch_finish(&t->weights);
	scratch_finish(&t->exact);
	t->made.n = 0;
}
