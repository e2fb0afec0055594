/* See clock-status.h. Shares are of the time that the clock has counted, so they sum to 1; a trainer that has just come
 * is idle. */
#include "watch/clock-status.h"

#include <assert.h>

#include "server/session-state.h"
#include "base/thread-kind.h"

static const struct {
	const char *name;
	unsigned seconds;
} periods[] = { { "last_5s", 5 }, { "last_10s", 10 }, { "last_minute", 60 }, { "since_start", 0 } };

static json_t *seconds_json(const uint64_t us[CLOCK_N_STATES])
{
	json_t *o = json_object();
	for (int i = 0; i < CLOCK_N_STATES; i++)
		json_object_set_new(o, clock_state_names[i], json_real((double)us[i] / 1e6));
	return o;
}

static json_t *shares_json(const uint64_t us[CLOCK_N_STATES])
{
	json_t *o = json_object();
	double all = 0;
	for (int i = 0; i < CLOCK_N_STATES; i++)
		all += (double)us[i];
	for (int i = 0; i < CLOCK_N_STATES; i++)
		json_object_set_new(o, clock_state_names[i],
				    json_real(all > 0           ? (double)us[i] / all
					      : i == CLOCK_IDLE ? 1
								: 0));
	return o;
}

json_t *latency_status_json(const struct latency *l)
{
	return json_pack("{s:I, s:f, s:f}", "batches", (json_int_t)l->n, "p50_us",
			 (double)latency_percentile_ns(l, 50) / 1000, "p99_us",
			 (double)latency_percentile_ns(l, 99) / 1000);
}

json_t *clock_status_json(const struct session *s)
{
	assert(is_loop_thread());
	json_t *shares = json_object();
	struct clock_times t;
	for (unsigned i = 0; i < sizeof(periods) / sizeof(*periods); i++) {
		state_clock_last(&s->clock, periods[i].seconds, &t);
		json_object_set_new(shares, periods[i].name, shares_json(t.us));
	}
	return json_pack("{s:s, s:o, s:o, s:o}", "state", clock_state_names[s->clock.state], "shares", shares,
			 "seconds", seconds_json(t.us), "waits", latency_status_json(&s->waits));
}
