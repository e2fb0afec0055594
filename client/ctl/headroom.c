/* batchctl headroom: how fast a job's training would be with infinitely fast input, measured on the job itself. */
#include <inttypes.h>
#include <stdio.h>

#include "batchd.h"
#include "ctl.h"
#include "options.h"

enum { MOST_RANKS = 512, FEWEST = 2 };

struct headroom {
	const char *socket, *job;
	uint64_t n_before, n_steps, most_ns;
	bool json;
	struct batchd_headroom_rank rank[MOST_RANKS];
	uint32_t n;
};

/* Mean seconds of a step. */
static double step_s(uint64_t ns, uint32_t n)
{
	return n ? (double)ns / 1e9 / n : 0;
}

static int headroom_ask(struct headroom *h)
{
	char err[1024] = "";
	int r;

	h->n = MOST_RANKS;
	r = batchd_headroom(h->socket, h->job, (uint32_t)h->n_before, (uint32_t)h->n_steps,
			    (uint32_t)(h->most_ns / 1000000), h->rank, &h->n, err, sizeof err);
	if (r == 0)
		return CTL_OK;
	ctl_complain("headroom", "%s", *err ? err : batchd_code_name(r));
	return ctl_exit_of(r);
}

/* Ranks that depend on each other are as slow as the slowest. False: there are too few steps to say anything. */
static bool headroom_sum_up(const struct headroom *h, double *before, double *after)
{
	*before = *after = 0;
	for (uint32_t i = 0; i < h->n; i++) {
		const struct batchd_headroom_rank *r = &h->rank[i];
		double b = step_s(r->before_ns, r->n_before), a = step_s(r->ns, r->n_steps);

		if (r->n_before < 1 || r->n_steps < FEWEST)
			return false;
		*before = b > *before ? b : *before;
		*after = a > *after ? a : *after;
	}
	return h->n && *after > 0;
}

static void headroom_print_rank(const struct batchd_headroom_rank *r)
{
	printf("rank %u: %u steps of %.2f ms, of which %.2f ms waiting; %u replayed steps of %.2f ms\n", r->rank,
	       r->n_before, 1e3 * step_s(r->before_ns, r->n_before), 1e3 * step_s(r->before_wait_ns, r->n_before),
	       r->n_steps, 1e3 * step_s(r->ns, r->n_steps));
}

static int headroom_print(const struct headroom *h, double factor)
{
	for (uint32_t i = 0; i < h->n; i++)
		headroom_print_rank(&h->rank[i]);
	printf("with infinitely fast input the training would be %.2f times as fast\n", factor);
	return ctl_flush("headroom");
}

static int headroom_print_as_json(const struct headroom *h, double factor)
{
	json_t *ranks = json_array();

	for (uint32_t i = 0; i < h->n; i++) {
		const struct batchd_headroom_rank *r = &h->rank[i];

		json_array_append_new(ranks,
				      json_pack("{s:I, s:I, s:f, s:f, s:I, s:f}", "rank", (json_int_t)r->rank, "steps",
						(json_int_t)r->n_before, "step_s", step_s(r->before_ns, r->n_before),
						"wait_s", step_s(r->before_wait_ns, r->n_before), "replayed",
						(json_int_t)r->n_steps, "replayed_step_s", step_s(r->ns, r->n_steps)));
	}
	return ctl_print_json("headroom", json_pack("{s:o, s:f, s:o}", "job", ctl_json_text(h->job), "faster", factor,
						    "ranks", ranks));
}

int headroom_main(int argc, char **argv)
{
	static struct headroom h = { .n_steps = 40, .most_ns = 60000000000u };
	const struct option_spec specs[] = {
		{ "steps", OPTION_NUMBER, &h.n_steps, "N", "batches to replay to each trainer (default 40)", 2, 1000,
		  NULL },
		{ "before", OPTION_NUMBER, &h.n_before, "N", "steps to time before (default: as many)", 1, 1000, NULL },
		{ "time", OPTION_DURATION, &h.most_ns, "TIME", "end the replays after this time (default 60s)",
		  1000000u, 0, NULL },
		{ "socket", OPTION_TEXT, &h.socket, "PATH",
		  "ask the daemon at PATH (default $BATCHD_SOCKET, then your own, then the system's)", 0, 0, NULL },
		{ "json", OPTION_FLAG, &h.json, NULL, "the result as JSON", 0, 0, NULL },
		{ 0 },
	};
	const struct command cmd = {
		"headroom",
		"JOB",
		"Says how much faster a job's training would be with infinitely fast input.",
		"The trainers get their last batches again for some steps, and then go on where they were. These are extra\n"
		"steps of the training, so each trainer has to allow them: headroom=True, or BATCHD_HEADROOM=1.",
		1,
	};
	double before, after;
	int code;

	if (!command_parse(&cmd, specs, argc, argv, &h.job, &code))
		return code;
	if (!h.n_before)
		h.n_before = h.n_steps;
	if (h.most_ns / 1000000 > INT32_MAX)
		h.most_ns = (uint64_t)INT32_MAX * 1000000;
	code = headroom_ask(&h);
	if (code != CTL_OK)
		return code;
	if (!headroom_sum_up(&h, &before, &after)) {
		ctl_complain("headroom",
			     "the trainers of job '%s' made too few steps to compare; give more --time or "
			     "fewer --before",
			     h.job);
		return CTL_FAILED;
	}
	return h.json ? headroom_print_as_json(&h, before / after) : headroom_print(&h, before / after);
}
