/* A loader's part in a measurement with replays, against a daemon that dies and threads that close the loader at the
 * worst moments; the links are doubles. The daemon's part is test_headroom.c's. */
#include "../client/headroom.h"
#include "../client/links.h"
#include "suite.h"

enum { RUN = 7, STEPS = 6 };

static struct batchd_loader loader;
static struct link here;
static struct lease leases[8];
static uint64_t n_told;

/* What the next look at the connection finds. */
static struct {
	Batchd__Wire__Replay replay;
	bool is_gone, is_closed; /* the daemon has gone; another thread closes the loader meanwhile */
} news;

/* ---- doubles ---- */

struct link *links_find(const struct batchd_loader *l, uint64_t generation)
{
	(void)generation;
	return l->link;
}

void links_end(struct batchd_loader *l, struct link *k)
{
	(void)l;
	(void)k;
}

void link_let_go(struct link *k, uint32_t slot)
{
	k->lease[slot].held = false;
}

int link_send(struct link *k, Batchd__Wire__ClientMessage *m, struct fault *f)
{
	(void)k;
	(void)f;
	n_told += m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_STEPPED;
	return 0;
}

static void close_loader(void)
{
	pthread_mutex_lock(&loader.lock);
	loader.closed = true;
	headroom_let_go(&loader);
	pthread_mutex_unlock(&loader.lock);
}

int link_listen(struct link *k, int flags, struct fault *f)
{
	(void)k;
	(void)flags;
	(void)f;
	if (news.replay.replay) {
		headroom_hear(&loader, &news.replay);
		news.replay.replay = 0;
		return 0;
	}
	if (news.is_closed)
		close_loader();
	return news.is_gone ? BATCHD_E_LOST : BATCHD_AGAIN;
}

/* ---- tests ---- */

static void hear(uint32_t upto, bool end)
{
	news.replay = (Batchd__Wire__Replay){ .replay = RUN, .upto = upto, .end = end };
}

static void setup(void)
{
	memset(&loader, 0, sizeof(loader));
	memset(&here, 0, sizeof(here));
	memset(leases, 0, sizeof(leases));
	memset(&news, 0, sizeof(news));
	n_told = 0;
	pthread_mutex_init(&loader.lock, NULL);
	loader.options.headroom = 1;
	loader.link = &here;
	here.lease = leases;
	here.info.window = 8;
	here.connection.socket = -1;
}

static void give(uint32_t slot)
{
	struct batchd_batch b = { .size_bytes = sizeof(b), .slot = slot, .step = slot };

	leases[slot] = (struct lease){ .held = true, .n_out = 1 };
	headroom_note_given(&loader, &b, 4, 0);
}

/* The marked batch and the one that completes the step before the replays. */
static void begin(void)
{
	struct ready marked = { .replay = RUN, .replay_before = 1, .replay_steps = STEPS };

	headroom_begin(&loader, &marked);
	give(0);
	give(1);
	ck_assert_int_eq(loader.headroom.phase, HEADROOM_REPLAY);
}

static int again(void)
{
	struct batchd_batch b = { .size_bytes = sizeof(b) };
	int r = headroom_next(&loader, &b, 0, 0);

	if (r == BATCHD_OK) {
		ck_assert(b.replayed && b.step % 2 == 1);
		ck_assert_uint_gt(leases[b.slot].n_out, 1);
		leases[b.slot].n_out--;
	}
	return r;
}

static unsigned replays_until_over(void)
{
	unsigned n = 0;
	int r;

	while ((r = again()) == BATCHD_OK)
		n++;
	ck_assert_int_eq(r, HEADROOM_OVER);
	ck_assert_uint_eq(loader.headroom.n_kept, 0);
	ck_assert(leases[0].n_out == 1 && leases[1].n_out == 1); /* the trainer's own */
	return n;
}

START_TEST(test_granted_replays_are_made_and_then_asked_for)
{
	begin();
	hear(2, false);
	ck_assert_int_eq(again(), BATCHD_OK);
	ck_assert_int_eq(again(), BATCHD_OK);
	ck_assert_int_eq(again(), BATCHD_AGAIN);
	hear(STEPS, false);
	ck_assert_uint_eq(replays_until_over(), STEPS - 2);
	ck_assert_uint_ge(n_told, 2);
}
END_TEST

START_TEST(test_a_daemon_that_ended_the_run_before_it_went_is_believed)
{
	/* Another rank may have made these two and gone on. */
	begin();
	hear(2, false);
	ck_assert_int_eq(again(), BATCHD_OK);
	hear(2, true);
	news.is_gone = true;
	ck_assert_uint_eq(replays_until_over(), 1);
}
END_TEST

START_TEST(test_a_rank_that_was_granted_replays_makes_them_without_the_daemon)
{
	/* Another rank may be within its first replay. */
	begin();
	hear(2, false);
	news.is_gone = true;
	ck_assert_uint_eq(replays_until_over(), STEPS);
}
END_TEST

START_TEST(test_without_a_grant_no_rank_replays_once_the_daemon_has_gone)
{
	begin();
	ck_assert_int_eq(again(), BATCHD_AGAIN);
	news.is_gone = true;
	ck_assert_uint_eq(replays_until_over(), 0);
}
END_TEST

START_TEST(test_another_thread_closes_the_loader_while_the_trainer_asks)
{
	begin();
	hear(STEPS, false);
	ck_assert_int_eq(again(), BATCHD_OK);
	news.is_closed = true;
	ck_assert_int_eq(again(), BATCHD_E_CLOSED);
	ck_assert(leases[0].n_out == 1 && leases[1].n_out == 1);
	ck_assert_int_eq(again(), HEADROOM_OVER);
}
END_TEST

START_TEST(test_another_run_takes_the_place_of_one_whose_end_was_not_heard)
{
	struct ready marked = { .replay = RUN + 1, .replay_before = 1, .replay_steps = 2 };

	begin();
	news.replay = (Batchd__Wire__Replay){ .replay = RUN + 1, .upto = 2 };
	ck_assert_int_eq(again(), HEADROOM_OVER);
	headroom_begin(&loader, &marked);
	give(2);
	give(3);
	ck_assert_int_eq(again(), BATCHD_OK);
	headroom_begin(&loader, &(struct ready){ .replay = RUN, .replay_steps = STEPS }); /* in the midst of one */
	ck_assert_int_eq(again(), BATCHD_OK);
	ck_assert_int_eq(again(), HEADROOM_OVER);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(leases[i].n_out, 1);
}
END_TEST

SUITE(headroom_client)
{
	Suite *s = suite_create("headroom_client");
	TCase *t = tcase_create("headroom_client");
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, test_granted_replays_are_made_and_then_asked_for);
	tcase_add_test(t, test_a_daemon_that_ended_the_run_before_it_went_is_believed);
	tcase_add_test(t, test_a_rank_that_was_granted_replays_makes_them_without_the_daemon);
	tcase_add_test(t, test_without_a_grant_no_rank_replays_once_the_daemon_has_gone);
	tcase_add_test(t, test_another_thread_closes_the_loader_while_the_trainer_asks);
	tcase_add_test(t, test_another_run_takes_the_place_of_one_whose_end_was_not_heard);
	suite_add_tcase(s, t);
	return s;
}
