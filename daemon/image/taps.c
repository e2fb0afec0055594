/* The weights of one axis, as Pillow computes them (its Resample.c): in double, around the centre of each output position, with the
 * filter stretched when the image shrinks, normalised to 1, then rounded to 22 bits.
 *
 * Everything here decides pixels: the order of the additions, the roundings that differ for negative numbers and the
 * way nearest neighbour accumulates its step are all part of the result. It must not be compiled with fused
 * multiply-adds (-ffp-contract=off), which would round once where Pillow rounds twice. */
#include "image/taps.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Where output position x looks, in source positions. */
struct window {
	double center;
	uint32_t first, end;
};

struct stretch {
	double scale;       /* source positions per output position */
	double filterscale; /* the same, but never below 1: when enlarging the filter keeps its size */
	double support;     /* half the window */
};

static double bilinear(double x)
{
	x = fabs(x);
	return x < 1.0 ? 1.0 - x : 0.0;
}

static double bicubic(double x)
{
	const double a = -0.5;

	x = fabs(x);
	if (x < 1.0)
		return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
	if (x < 2.0)
		return (((x - 5) * x + 8) * x - 4) * a;
	return 0.0;
}

static struct stretch stretch_of(enum filter f, uint32_t in, uint32_t out)
{
	struct stretch s;

	s.scale = (double)in / out;
	s.filterscale = s.scale < 1.0 ? 1.0 : s.scale;
	s.support = (f == FILTER_BICUBIC ? 2.0 : 1.0) * s.filterscale;
	return s;
}

static struct window window_at(const struct stretch *s, uint32_t in, uint32_t x)
{
	struct window w;
	int first, end;

	w.center = 0.0 + (x + 0.5) * s->scale;
	first = (int)(w.center - s->support + 0.5); /* towards zero, as Pillow rounds: a negative one becomes 0 either way */
	end = (int)(w.center + s->support + 0.5);
	w.first = first < 0 ? 0 : (uint32_t)first;
	w.end = end > (int)in ? in : (uint32_t)end;
	return w;
}

/* Nearest neighbour adds its step up from the left edge, rounding errors included. */
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
	if (in == out) { /* the pass is left out */
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

/* The weights of one window. Returns how many there are. */
static uint32_t weigh(enum filter f, const struct stretch *s, const struct window *w, double *weight)
{
	double inverse = 1.0 / s->filterscale, sum = 0.0;
	uint32_t n = w->end - w->first;

	for (uint32_t j = 0; j < n; j++) {
		double at = ((double)(j + w->first) - w->center + 0.5) * inverse;

		weight[j] = f == FILTER_BICUBIC ? bicubic(at) : bilinear(at);
		sum += weight[j];
	}
	if (sum != 0.0)
		for (uint32_t j = 0; j < n; j++)
			weight[j] /= sum;
	return n;
}

static void antialiased_fill(struct taps *t, const struct taps_request *q, double *weight)
{
	struct stretch s = stretch_of(q->filter, q->in, q->out);

	for (uint32_t x = 0; x < q->n; x++) {
		struct window w = window_at(&s, q->in, q->from + x);
		uint32_t i = q->reverse ? q->n - 1 - x : x;
		uint32_t n = weigh(q->filter, &s, &w, weight), first = w.first - q->avail_from, shift;
		int32_t *k = t->k + (size_t)i * t->width;

		/* At the right edge the window moves left, behind zeros, so that width positions can be read. */
		shift = first + t->width > q->n_avail ? first + t->width - q->n_avail : 0;
		memset(k, 0, shift * sizeof(*k));
		for (uint32_t j = 0; j < n; j++)
			k[shift + j] = to_fixed(weight[j]);
		memset(k + shift + n, 0, (t->width - shift - n) * sizeof(*k));
		t->first[i] = first - shift;
		t->count[i] = shift + n;
	}
}

/* Weights per position: the largest window's, so that four taps are four taps. */
static uint32_t taps_width(const struct taps_request *q)
{
	struct stretch s = stretch_of(q->filter, q->in, q->out);
	uint32_t width = 1;

	for (uint32_t x = 0; q->filter != FILTER_NEAREST && x < q->n; x++) {
		struct window w = window_at(&s, q->in, q->from + x);

		width = w.end - w.first > width ? w.end - w.first : width;
	}
	return width;
}

static bool same_request(const struct taps_request *a, const struct taps_request *b)
{
	return a->filter == b->filter && a->in == b->in && a->out == b->out && a->from == b->from && a->n == b->n &&
	       a->avail_from == b->avail_from && a->n_avail == b->n_avail && a->reverse == b->reverse;
}

int taps_make(struct taps *t, const struct taps_request *want, bool *changed)
{
	uint32_t width = taps_width(want);
	size_t n_first = ((size_t)want->n * sizeof(uint32_t) + 63) / 64 * 64;
	double *weight;

	*changed = !same_request(&t->made, want);
	if (!*changed)
		return 0;
	t->made.n = 0;
	t->first = (uint32_t *)(void *)scratch_reserve(&t->memory, 2 * n_first + (size_t)want->n * width * sizeof(int32_t));
	weight = (double *)(void *)scratch_reserve(&t->weights, width * sizeof(double));
	if (!t->first || !weight)
		return -ENOMEM;
	t->count = t->first + n_first / sizeof(uint32_t);
	t->k = (int32_t *)(void *)(t->count + n_first / sizeof(uint32_t));
	t->width = width;
	if (want->filter == FILTER_NEAREST)
		nearest_fill(t, want);
	else
		antialiased_fill(t, want, weight);
	t->made = *want;
	return 0;
}

void taps_finish(struct taps *t)
{
	scratch_finish(&t->memory);
	scratch_finish(&t->weights);
}
