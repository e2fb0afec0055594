/* A trainer's verdict: one connection, one question, one answer. */
#include <stdio.h>
#include <string.h>

#include "batchd.h"
#include "connect.h"

static int verdict_ask(struct connection *c, const char *job, uint32_t rank, bool since_start,
		       const Batchd__Wire__Verdict **answer, struct fault *f)
{
	Batchd__Wire__VerdictRequest body = BATCHD__WIRE__VERDICT_REQUEST__INIT;
	const Batchd__Wire__ServerMessage *m;
	int r;

	body.job = (char *)job;
	body.rank = rank;
	body.since_start = since_start;
	if (connection_send(c, WIRE_CLIENT(VERDICT, verdict, &body), NULL, 0) < 0)
		return connection_lost(c, f);
	do
		r = connection_recv(c, 0, &m, NULL, f);
	while (r == BATCHD_AGAIN);
	if (r < 0)
		return r;
	if (m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_VERDICT || m->verdict->n_part != BATCHD_N_STATES)
		return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s answers a question for a verdict with %s",
				 c->address, wire_server_name(m));
	*answer = m->verdict;
	return 0;
}

static void verdict_copy(const Batchd__Wire__Verdict *from, struct batchd_verdict *to)
{
	struct batchd_verdict v = { .size_bytes = to->size_bytes,
				    .known = from->known,
				    .input_bound = from->input_bound,
				    .cause = (enum batchd_state)from->cause,
				    .share = from->share,
				    .without_cause = from->without_cause,
				    .twice_the_cpu = from->twice_the_cpu,
				    .all_processors = from->all_processors,
				    .decoded_cache = from->decoded_cache };

	snprintf(v.text, sizeof v.text, "%s", from->text);
	for (int i = 0; i < BATCHD_N_STATES; i++)
		v.shares[i] = from->part[i];
	memcpy(to, &v, to->size_bytes < sizeof v ? to->size_bytes : sizeof v);
}

int batchd_verdict(const char *socket, const char *job, uint32_t rank, int since_start, struct batchd_verdict *v,
		   char *err, size_t err_size)
{
	const Batchd__Wire__Verdict *answer = NULL;
	struct fault f = { 0 };
	struct connection *c;
	int r;

	c = connection_for_question(socket, &f);
	if (!c)
		return fault_give(&f, err, err_size);
	r = verdict_ask(c, job, rank, since_start, &answer, &f);
	if (r == 0)
		verdict_copy(answer, v);
	connection_answered(c);
	return r < 0 ? fault_give(&f, err, err_size) : 0;
}
