/* See state-clock.h. A second of the clock has its own counts; those of a second that comes again are cleared when the
 * time gets there, so a clock that nothing touched for an hour costs no more than one that is in use. */
#include "core/state-clock.h"

#include <string.h>

#define SECOND_NS UINT64_C(1000000000)

const char *const clock_state_names[CLOCK_N_STATES] = {
	[CLOCK_BUSY] = "busy",           [CLOCK_READ] = "read",         [CLOCK_DECODE] = "decode",
	[CLOCK_TRANSFORM] = "transform", [CLOCK_GPU_COPY] = "gpu_copy", [CLOCK_ORDER] = "order",
	[CLOCK_PRODUCER] = "producer",   [CLOCK_PEER] = "peer",         [CLOCK_MEMORY] = "memory",
	[CLOCK_IDLE] = "idle",
};

void state_clock_begin(struct state_clock *c, uint64_t now_ns)
{
	*c = (struct state_clock){ .began_ns = now_ns, .at_ns = now_ns };
}

/* value * part / total, rounded down, without overflow. */
static uint64_t part_of(uint64_t value, uint64_t part, uint64_t total)
{
	return (uint64_t)((unsigned __int128)value * part / total);
}

/* Gives each second its part of the period's states. */
static void spread(struct state_clock *c, uint64_t now_ns, const uint64_t ns[CLOCK_N_STATES])
{
	uint64_t all = now_ns - c->at_ns;
	uint64_t first = c->at_ns / SECOND_NS, last = now_ns / SECOND_NS;
	if (last - first >= CLOCK_SECONDS)
		first = last - CLOCK_SECONDS + 1; /* the seconds before have no place any more */
	for (uint64_t k = first; k <= last; k++) {
		struct clock_second *s = &c->second[k % CLOCK_SECONDS];
		uint64_t begin = k * SECOND_NS > c->at_ns ? k * SECOND_NS : c->at_ns;
		uint64_t end = (k + 1) * SECOND_NS < now_ns ? (k + 1) * SECOND_NS : now_ns;
		if (k * SECOND_NS > c->at_ns)
			*s = (struct clock_second){ { 0 } };
		for (int i = 0; i < CLOCK_N_STATES; i++) {
			uint64_t part = first == last ? ns[i] : part_of(ns[i], end - begin, all);
			s->ns[i] += (uint32_t)part;
		}
	}
}

void state_clock_add(struct state_clock *c, uint64_t now_ns, const uint64_t ns[CLOCK_N_STATES])
{
	uint64_t all = now_ns > c->at_ns ? now_ns - c->at_ns : 0, used = 0, exact[CLOCK_N_STATES];
	if (!all)
		return;
	for (int i = 0; i < CLOCK_N_STATES; i++) {
		exact[i] = ns[i] < all - used ? ns[i] : all - used;
		used += exact[i];
	}
	exact[CLOCK_BUSY] += all - used;
	for (int i = 0; i < CLOCK_N_STATES; i++)
		c->total_ns[i] += exact[i];
	spread(c, now_ns, exact);
	c->at_ns = now_ns;
}

void state_clock_last(const struct state_clock *c, unsigned n_seconds, uint64_t ns[CLOCK_N_STATES])
{
	uint64_t last = c->at_ns / SECOND_NS, first = c->began_ns / SECOND_NS;
	memset(ns, 0, CLOCK_N_STATES * sizeof(*ns));
	for (uint64_t n = 0; n < n_seconds && n < CLOCK_SECONDS && last - n >= first; n++) {
		for (int i = 0; i < CLOCK_N_STATES; i++)
			ns[i] += c->second[(last - n) % CLOCK_SECONDS].ns[i];
		if (last == n)
			break;
	}
}
