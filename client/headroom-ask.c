/* Asking for a measurement with replays: one connection, which stands for as long as it lasts. */
#include <poll.h>

#include "batchd.h"
#include "clock.h"
#include "connect.h"

enum { PATIENCE_MS = 10000 }; /* for trainers to go on, after the measurement was stopped */

static int headroom_say(struct connection *c, const char *job, uint32_t n_before, uint32_t n_steps, struct fault *f)
{
	Batchd__Wire__Headroom body = BATCHD__WIRE__HEADROOM__INIT;

	body.job = (char *)job;
	body.n_before = n_before;
	body.n_steps = n_steps;
	body.stop = !n_steps;
	return connection_send(c, WIRE_CLIENT(HEADROOM, headroom, &body), NULL, 0) < 0 ? connection_lost(c, f) : 0;
}

/* The result within milliseconds. 0, BATCHD_AGAIN, or a code. */
static int headroom_await(struct connection *c, uint64_t milliseconds, const Batchd__Wire__HeadroomResult **result,
			  struct fault *f)
{
	uint64_t deadline = clock_now_ns() + milliseconds * 1000000;
	const Batchd__Wire__ServerMessage *m;
	int r;

	do {
		struct pollfd p = { .fd = c->socket, .events = POLLIN };
		uint64_t now = clock_now_ns();

		if (now >= deadline)
			return BATCHD_AGAIN;
		poll(&p, 1, (int)((deadline - now + 999999) / 1000000));
		r = connection_recv(c, MSG_DONTWAIT, &m, NULL, f);
	} while (r == BATCHD_AGAIN);
	if (r == 0 && m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_HEADROOM)
		return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s answers Headroom with %s", c->address,
				 wire_server_name(m));
	*result = r == 0 ? m->headroom : NULL;
	return r;
}

static void headroom_copy(const Batchd__Wire__HeadroomResult *from, struct batchd_headroom_rank *to, uint32_t *n)
{
	uint32_t room = *n;

	*n = 0;
	for (size_t i = 0; i < from->n_rank && *n < room; i++) {
		const Batchd__Wire__HeadroomRank *r = from->rank[i];

		to[(*n)++] = (struct batchd_headroom_rank){ .rank = r->rank,
							    .n_before = r->n_before,
							    .before_ns = r->before_ns,
							    .before_wait_ns = r->before_wait_ns,
							    .n_steps = r->n_steps,
							    .ns = r->ns };
	}
}

int batchd_headroom(const char *socket, const char *job, uint32_t n_before, uint32_t n_steps, uint32_t timeout_ms,
		    struct batchd_headroom_rank *ranks, uint32_t *n_ranks, char *err, size_t err_size)
{
	const Batchd__Wire__HeadroomResult *result = NULL;
	struct fault f = { 0 };
	struct connection *c;
	int r;

	c = connection_for_question(socket, &f);
	if (!c)
		return fault_give(&f, err, err_size);
	r = headroom_say(c, job, n_before, n_steps ? n_steps : 1, &f);
	if (r == 0)
		r = headroom_await(c, timeout_ms, &result, &f);
	if (r == BATCHD_AGAIN)
		r = headroom_say(c, "", 0, 0, &f);
	if (r == 0 && !result)
		r = headroom_await(c, PATIENCE_MS, &result, &f);
	if (r == BATCHD_AGAIN)
		r = fault_set(&f, BATCHD_E_LIMIT,
			      "the trainers of job '%s' do not go on: none has asked for a batch since", job);
	if (r == 0)
		headroom_copy(result, ranks, n_ranks);
	connection_answered(c);
	return r < 0 ? fault_give(&f, err, err_size) : 0;
}
