/* See state-clock.h. A second of the clock has its own counts; those of a second that comes again are cleared when the
 * time gets there. */
#include "batch/state-clock.h"

#define SECOND_NS UINT64_C(1000000000)

const char *const clock_state_names[CLOCK_N_STATES] = {
	[CLOCK_BUSY] = "busy",           [CLOCK_READ] = "read",         [CLOCK_DECODE] = "decode",
	[CLOCK_TRANSFORM] = "transform", [CLOCK_GPU_COPY] = "gpu_copy", [CLOCK_ORDER] = "order",
	[CLOCK_PRODUCER] = "producer",   [CLOCK_PEER] = "peer",         [CLOCK_MEMORY] = "memory",
	[CLOCK_IDLE] = "idle",
};

void state_clock_begin(struct state_clock *c, uint64_t now_ns)
{
	*c = (struct state_clock){ .at_ns = now_ns, .state = CLOCK_IDLE, .first_second = now_ns / SECOND_NS };
}

/* Counts us microseconds of one second. Each state gets the difference of two rounded sums, so together they get all. */
static void count(struct state_clock *c, struct clock_second *s, uint64_t us, const struct clock_sample *sample)
{
	double sum = 0;
	uint64_t counted = 0;
	for (int i = 0; i < CLOCK_N_STATES; i++) {
		sum += sample->part[i];
		uint64_t upto = i == CLOCK_IDLE ? us : (uint64_t)(sum * (double)us + 0.5);
		upto = upto < counted ? counted : upto > us ? us : upto;
		s->us[i] += (uint32_t)(upto - counted);
		c->total.us[i] += upto - counted;
		counted = upto;
	}
	for (int i = 0; i < WORK_N; i++) {
		uint64_t work_us = (uint64_t)(sample->work[i] * (double)us + 0.5);
		s->work_us[i] += (uint32_t)work_us;
		c->total.work_us[i] += work_us;
	}
}

void state_clock_add(struct state_clock *c, uint64_t now_ns, const struct clock_sample *sample)
{
	c->state = CLOCK_BUSY;
	for (int i = 0; i < CLOCK_N_STATES; i++)
		c->state = sample->part[i] > sample->part[c->state] ? (enum clock_state)i : c->state;
	while (c->at_ns < now_ns) {
		uint64_t k = c->at_ns / SECOND_NS, end = (k + 1) * SECOND_NS < now_ns ? (k + 1) * SECOND_NS : now_ns;
		count(c, &c->second[k % CLOCK_SECONDS], end / 1000 - c->at_ns / 1000, sample);
		if (end == (k + 1) * SECOND_NS)
			c->second[(k + 1) % CLOCK_SECONDS] = (struct clock_second){ .us = { 0 } };
		c->at_ns = end;
	}
}

void state_clock_last(const struct state_clock *c, unsigned n_seconds, struct clock_times *out)
{
	uint64_t last = c->at_ns / SECOND_NS, n = last - c->first_second + 1;
	if (!n_seconds) {
		*out = c->total;
		return;
	}
	*out = (struct clock_times){ .us = { 0 } };
	n = n < n_seconds ? n : n_seconds;
	for (uint64_t k = 0; k < n && k < CLOCK_SECONDS; k++) {
		const struct clock_second *s = &c->second[(last - k) % CLOCK_SECONDS];
		for (int i = 0; i < CLOCK_N_STATES; i++)
			out->us[i] += s->us[i];
		for (int i = 0; i < WORK_N; i++)
			out->work_us[i] += s->work_us[i];
	}
}
