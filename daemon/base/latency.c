/* See latency.h. */
#include "base/latency.h"

enum { FIRST_BITS = 10, MOST = 1 << 16 };

static unsigned latency_class_of(uint64_t ns)
{
	if (ns < 1u << FIRST_BITS)
		return 0;
	unsigned bits = 63 - (unsigned)__builtin_clzll(ns);
	unsigned c = 1 + (bits - FIRST_BITS) * 4 + (unsigned)(ns >> (bits - 2) & 3);
	return c < LATENCY_CLASSES ? c : LATENCY_CLASSES - 1;
}

/* The upper limit of the class. */
static uint64_t end_of(unsigned c)
{
	return c == 0 ? UINT64_C(1) << FIRST_BITS
		      : (4 + (c - 1) % 4 + 1) * (UINT64_C(1) << (FIRST_BITS - 2 + (c - 1) / 4));
}

static void latency_fade(struct latency *l)
{
	l->n = 0;
	for (unsigned c = 0; c < LATENCY_CLASSES; c++)
		l->n += l->count[c] /= 2;
}

void latency_add(struct latency *l, uint64_t ns)
{
	if (l->n >= MOST)
		latency_fade(l);
	l->count[latency_class_of(ns)]++;
	l->n++;
}

uint64_t latency_percentile_ns(const struct latency *l, unsigned percent)
{
	uint64_t wanted = ((uint64_t)l->n * percent + 99) / 100, seen = 0;
	for (unsigned c = 0; l->n && c < LATENCY_CLASSES; c++) {
		seen += l->count[c];
		if (seen >= wanted)
			return end_of(c);
	}
	return 0;
}
