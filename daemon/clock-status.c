/* See clock-status.h. Shares are of the time that the clock has accounted, so they sum to 1; a trainer that has just come
 * is idle. */
#include "clock-status.h"

#include "core/shortage.h"
#include "session-ring.h"

static const struct {
	const char *name;
	unsigned seconds;
} windows[] = { { "last_10s", 10 }, { "last_minute", 60 } };

void clock_status_update(struct session *s)
{
	if (s->state != SESSION_ATTACHED)
		return;
	session_ring_read_clock(s, uv_hrtime());
	shortage_account(&s->consumer);
}

static json_t *seconds_json(const uint64_t ns[CLOCK_N_STATES])
{
	json_t *o = json_object();
	for (int i = 0; i < CLOCK_N_STATES; i++)
		json_object_set_new(o, clock_state_names[i], json_real((double)ns[i] / 1e9));
	return o;
}

static json_t *shares_json(const uint64_t ns[CLOCK_N_STATES])
{
	json_t *o = json_object();
	double all = 0;
	for (int i = 0; i < CLOCK_N_STATES; i++)
		all += (double)ns[i];
	for (int i = 0; i < CLOCK_N_STATES; i++)
		json_object_set_new(o, clock_state_names[i],
				    json_real(all > 0           ? (double)ns[i] / all
					      : i == CLOCK_IDLE ? 1
								: 0));
	return o;
}

static json_t *waits_json(const struct latency *l)
{
	json_t *o = json_object();
	json_object_set_new(o, "batches", json_integer(l->n));
	json_object_set_new(o, "p50_us", json_real((double)latency_percentile_ns(l, 50) / 1000));
	json_object_set_new(o, "p99_us", json_real((double)latency_percentile_ns(l, 99) / 1000));
	return o;
}

json_t *clock_status_json(const struct session *s)
{
	const struct trainer_clock *c = &s->consumer.clock;
	json_t *o = json_object(), *shares = json_object();
	for (unsigned i = 0; i < sizeof(windows) / sizeof(*windows); i++) {
		uint64_t ns[CLOCK_N_STATES];
		state_clock_last(&c->states, windows[i].seconds, ns);
		json_object_set_new(shares, windows[i].name, shares_json(ns));
	}
	json_object_set_new(shares, "since_start", shares_json(c->states.total_ns));
	json_object_set_new(o, "state", json_string(clock_state_names[c->state]));
	json_object_set_new(o, "shares", shares);
	json_object_set_new(o, "seconds", seconds_json(c->states.total_ns));
	json_object_set_new(o, "waits", waits_json(&s->waits));
	return o;
}
