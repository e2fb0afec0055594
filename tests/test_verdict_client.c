/* batchd_verdict: the same as the status has, for the trainer's own user only, and a code where there is no trainer. */
#include <jansson.h>

#include "../client/batchd.h"
#include "packets.h"

static struct batchd_loader *loader_open(const char *job)
{
	struct batchd_options o;
	struct batchd_loader *l;
	char err[512];
	batchd_options_init(&o);
	o.socket = path;
	o.dataset = "random:length=4000,shape=16,dtype=float32";
	o.batch_size = 8;
	o.job = job;
	ck_assert_msg(batchd_open(&o, &l, err, sizeof(err)) == 0, "%s", err);
	return l;
}

static void take(struct batchd_loader *l, unsigned n, useconds_t work_us)
{
	struct batchd_batch b = { .size_bytes = sizeof(b) };
	ck_assert_int_eq(batchd_start(l, 0, 0, 0, NULL), 0);
	for (unsigned i = 0; i < n; i++) {
		ck_assert_int_eq(batchd_next(l, &b, BATCHD_FOREVER), BATCHD_OK);
		usleep(work_us);
		batchd_release(l, b.slot, b.generation);
	}
}

static json_t *session_of(json_t *status, const char *job)
{
	json_t *s;
	size_t i;
	json_array_foreach (json_object_get(status, "sessions"), i, s)
		if (json_object_get(s, "job") && !strcmp(json_string_value(json_object_get(s, "job")), job))
			return s;
	ck_abort_msg("no session of job %s", job);
}

static void check_same(const struct batchd_verdict *v, const json_t *o)
{
	static const char *const states[] = { "busy",  "read",     "decode", "transform", "gpu_copy",
					      "order", "producer", "peer",   "memory",    "idle" };
	ck_assert_int_eq(!!v->known, json_is_true(json_object_get(o, "known")));
	ck_assert_int_eq(!!v->input_bound, json_is_true(json_object_get(o, "input_bound")));
	ck_assert_str_eq(states[v->cause], json_string_value(json_object_get(o, "cause")));
	ck_assert_double_eq_tol(v->share, json_number_value(json_object_get(o, "share")), 0.05);
	ck_assert_double_eq_tol(v->decoded_cache, json_number_value(json_object_get(o, "decoded_cache")), 0.05);
}

START_TEST(test_a_verdict_is_the_status_own)
{
	/* A trainer that works for more than a second: known, not input-bound, nearly all of it busy; by the struct, and
	 * by the status. */
	char *text, err[512];
	struct batchd_verdict v = { .size_bytes = sizeof(v) };
	start_daemon();
	struct batchd_loader *l = loader_open("judged");
	ck_assert_int_eq(batchd_verdict(path, "judged", 0, 0, &v, err, sizeof(err)), 0);
	ck_assert(!v.known);
	take(l, 60, 25000);
	for (int since_start = 0; since_start < 2; since_start++) {
		ck_assert_int_eq(batchd_verdict(path, "judged", 0, since_start, &v, err, sizeof(err)), 0);
		ck_assert_int_eq(batchd_status(path, &text, err, sizeof(err)), 0);
		json_t *status = json_loads(text, 0, NULL);
		check_same(&v, json_object_get(session_of(status, "judged"),
					       since_start ? "verdict_since_start" : "verdict"));
		json_decref(status);
		free(text);
		double sum = 0;
		for (int i = 0; i < BATCHD_N_STATES; i++)
			sum += v.shares[i];
		ck_assert_double_eq_tol(sum, 1, 1e-6);
		ck_assert(v.known && v.shares[BATCHD_STATE_BUSY] > 0.3 && strlen(v.text) > 10);
	}
	batchd_close(l);
	stop_daemon();
}
END_TEST

START_TEST(test_a_smaller_struct_is_filled_as_far_as_it_goes)
{
	/* A program that was built with an older header. */
	char err[512];
	struct batchd_verdict v;
	start_daemon();
	struct batchd_loader *l = loader_open("old");
	memset(&v, 0x5a, sizeof(v));
	v.size_bytes = offsetof(struct batchd_verdict, shares);
	ck_assert_int_eq(batchd_verdict(path, "old", 0, 0, &v, err, sizeof(err)), 0);
	ck_assert_uint_eq(v.size_bytes, offsetof(struct batchd_verdict, shares));
	ck_assert_int_eq(v.known, 0);
	ck_assert_int_eq(((unsigned char *)v.shares)[0], 0x5a);
	batchd_close(l);
	stop_daemon();
}
END_TEST

START_TEST(test_no_such_trainer)
{
	char err[512] = "";
	struct batchd_verdict v = { .size_bytes = sizeof(v) };
	start_daemon();
	struct batchd_loader *l = loader_open("here");
	ck_assert_int_eq(batchd_verdict(path, "elsewhere", 0, 0, &v, err, sizeof(err)), BATCHD_E_NOT_FOUND);
	ck_assert_ptr_nonnull(strstr(err, "elsewhere"));
	ck_assert_int_eq(batchd_verdict(path, "here", 7, 0, &v, err, sizeof(err)), BATCHD_E_NOT_FOUND);
	batchd_close(l);
	stop_daemon();
	ck_assert_int_eq(batchd_verdict(path, "here", 0, 0, &v, err, sizeof(err)), BATCHD_E_CONNECT);
}
END_TEST

SUITE(verdict_client)
{
	Suite *s = suite_create("verdict_client");
	TCase *t = tcase_create("verdict");
	tcase_add_test(t, test_a_verdict_is_the_status_own);
	tcase_add_test(t, test_a_smaller_struct_is_filled_as_far_as_it_goes);
	tcase_add_test(t, test_no_such_trainer);
	suite_add_tcase(s, t);
	return s;
}
