/* State clocks: every nanosecond in exactly one state, periods that begin and end anywhere, and the division of a
 * trainer's waiting. */
#include <check.h>
#include <string.h>

#include "core/state-clock.h"
#include "core/trainer-clock.h"
#include "suite.h"

#define S UINT64_C(1000000000)

static uint64_t sum(const uint64_t ns[CLOCK_N_STATES])
{
	uint64_t all = 0;
	for (int i = 0; i < CLOCK_N_STATES; i++)
		all += ns[i];
	return all;
}

START_TEST(test_every_period_sums_to_its_length)
{
	/* Steps of all lengths, from nanoseconds to minutes, that end at, before and after a second. */
	static const uint64_t steps[] = { 1,         999,    1000000, S - 1,  S,      S + 1,
					  3 * S / 2, 10 * S, 63 * S,  64 * S, 65 * S, 600 * S };
	struct state_clock c;
	uint64_t now = 5 * S + 123456789, began = now, last[CLOCK_N_STATES];
	state_clock_begin(&c, now);
	for (unsigned i = 0; i < 2000; i++) {
		uint64_t step = steps[i * 7 % (sizeof(steps) / sizeof(*steps))], ns[CLOCK_N_STATES] = { 0 };
		ns[CLOCK_DECODE] = step / 3;
		ns[CLOCK_BUSY] = step - step / 3;
		now += step;
		state_clock_add(&c, now, ns);
		ck_assert_uint_eq(sum(c.total_ns), now - began);
		state_clock_last(&c, 10, last);
		uint64_t most = now - began < 9 * S + now % S ? now - began : 9 * S + now % S;
		ck_assert_uint_le(sum(last), most);
		ck_assert_uint_ge(sum(last) + 5000, most); /* rounding: less than 2 ns for each addition to a second */
	}
}
END_TEST

START_TEST(test_a_minute_forgets_what_was_before)
{
	struct state_clock c;
	uint64_t ns[CLOCK_N_STATES] = { [CLOCK_READ] = 100 * S }, last[CLOCK_N_STATES];
	state_clock_begin(&c, 7 * S);
	state_clock_add(&c, 107 * S, ns);
	state_clock_last(&c, 60, last);
	ck_assert_uint_eq(last[CLOCK_READ], 59 * S); /* and the second that has just begun */
	memset(ns, 0, sizeof(ns));
	ns[CLOCK_BUSY] = 10 * S;
	state_clock_add(&c, 117 * S, ns);
	state_clock_last(&c, 10, last);
	ck_assert_uint_eq(last[CLOCK_READ], 0);
	ck_assert_uint_eq(last[CLOCK_BUSY], 9 * S);
	state_clock_last(&c, 60, last);
	ck_assert_uint_eq(last[CLOCK_READ], 49 * S);
	ck_assert_uint_eq(c.total_ns[CLOCK_READ], 100 * S);
}
END_TEST

START_TEST(test_too_much_or_too_little_is_made_whole)
{
	/* Whatever a trainer writes into its page, its states fill the time exactly. */
	struct state_clock c;
	uint64_t ns[CLOCK_N_STATES] = { 0 };
	state_clock_begin(&c, S);
	ns[CLOCK_READ] = UINT64_MAX;
	ns[CLOCK_IDLE] = UINT64_MAX;
	state_clock_add(&c, 2 * S, ns);
	ck_assert_uint_eq(c.total_ns[CLOCK_READ], S);
	memset(ns, 0, sizeof(ns));
	state_clock_add(&c, 3 * S, ns);
	ck_assert_uint_eq(c.total_ns[CLOCK_BUSY], S);
	state_clock_add(&c, 2 * S, ns); /* a clock never goes back */
	ck_assert_uint_eq(sum(c.total_ns), 2 * S);
}
END_TEST

/* ---- a trainer's waiting ---- */

static struct trainer_clock trainer;
static struct batch_source source;

static void setup(void)
{
	trainer_clock_begin(&trainer, S);
	memset((void *)&source, 0, sizeof(source));
	trainer.told.known = true;
}

/* A second later: the trainer has waited for wait_ns of it, and two workers were busy for busy_ns in all. */
static void pass(uint64_t wait_ns, uint64_t busy_ns, unsigned n_tickets)
{
	trainer.shortage = SHORTAGE_ROWS;
	trainer.usage = (struct pool_usage){ .at_ns = trainer.states.at_ns, .n_workers = 2 };
	trainer.told.wait_ns += wait_ns;
	struct pool_usage now = {
		.at_ns = trainer.states.at_ns + S, .busy_ns = busy_ns, .n_workers = 2, .n_tickets = n_tickets
	};
	trainer_clock_add(&trainer, trainer.states.at_ns + S, &now, &source);
}

static void cost(uint64_t read_ns, uint64_t decode_ns, uint64_t transform_ns, uint64_t memory_ns)
{
	struct source_costs c = { .n_rows = 100, .ns = { read_ns, decode_ns, transform_ns, memory_ns } };
	source_add_costs(&source, &c);
}

START_TEST(test_busy_workers_divide_a_wait_by_what_they_did)
{
	cost(0, 6 * S, 3 * S, S); /* what rows waited for memory counts elsewhere */
	pass(S / 2, 2 * S, 5);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_BUSY], S / 2);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_DECODE], 6 * S / 18 + 1); /* and what is left */
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_TRANSFORM], 3 * S / 18);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_MEMORY], 0);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_READ], 0);
}
END_TEST

START_TEST(test_idle_workers_and_rows_without_input_are_a_slow_disk)
{
	/* A quarter of what two workers could do: three quarters of the wait were for the disk. */
	cost(0, S, 0, 0);
	pass(S, S / 2, 5);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_READ], 3 * S / 4);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_DECODE], S / 4);
}
END_TEST

START_TEST(test_idle_workers_without_rows_that_wait_are_no_slow_disk)
{
	cost(0, S, 0, 0);
	pass(S, S / 2, 0);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_READ], 0);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_DECODE], S);
}
END_TEST

/* A second in which some of 8 workers worked, some waited for memory and the others did nothing, while rows waited for
 * their files. */
static void pass_with(unsigned n_processors, unsigned n_running, unsigned n_short, unsigned n_tickets)
{
	trainer.shortage = SHORTAGE_ROWS;
	trainer.usage =
		(struct pool_usage){ .at_ns = trainer.states.at_ns, .n_workers = 8, .n_processors = n_processors };
	trainer.told.wait_ns += S;
	struct pool_usage now = trainer.usage;
	now.at_ns += S, now.busy_ns = (n_running + n_short) * S, now.memory_ns = n_short * S;
	now.n_tickets = n_tickets;
	trainer_clock_add(&trainer, now.at_ns, &now, &source);
}

START_TEST(test_workers_that_wait_for_memory_count_while_they_wait)
{
	/* No row is done yet. */
	pass_with(8, 1, 7, 0);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_MEMORY], 7 * S / 8);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_DECODE], S / 8);
}
END_TEST

START_TEST(test_memory_is_not_the_limit_while_all_processors_work)
{
	/* Two processors, and a third worker would find none. */
	cost(0, S, 0, 0);
	pass_with(2, 2, 6, 0);
	pass_with(2, 2, 3, 5);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_DECODE], 2 * S);
	/* One of the two has nothing to do: of 4 more workers each second one could work. */
	pass_with(2, 1, 7, 0);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_MEMORY], 4 * S / 5);
	pass_with(2, 1, 0, 7);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_READ], 4 * S / 5);
}
END_TEST

START_TEST(test_the_cost_of_recent_rows_counts)
{
	/* Epochs of decoding, then a cache: only transforms are waited for. */
	cost(0, 1000 * S, S, 0);
	pass(S, 2 * S, 0);
	cost(0, 0, S, 0);
	pass(S, 2 * S, 0);
	ck_assert_uint_ge(trainer.states.total_ns[CLOCK_TRANSFORM], S);
}
END_TEST

START_TEST(test_a_trainer_that_lies_fills_its_own_time_only)
{
	/* Times that go back, or are longer than the time that has passed. */
	trainer.shortage = SHORTAGE_PEER;
	for (uint64_t k = 2; k < 40; k++) {
		trainer.told.wait_ns = k % 3 ? k * S * 1000 : 0;
		trainer.told.idle_ns = k % 2 ? UINT64_MAX - k : k;
		trainer.told.order_ns = k % 5 ? k * S / 2 : UINT64_MAX;
		trainer_clock_add(&trainer, k * S, NULL, NULL);
		ck_assert_uint_eq(sum(trainer.states.total_ns), (k - 1) * S);
	}
}
END_TEST

START_TEST(test_a_sampler_of_the_trainer_is_the_order)
{
	/* Whatever else is short meanwhile, and beside waiting and idle time. */
	trainer.shortage = SHORTAGE_PEER;
	trainer.told.order_ns = 2 * S;
	trainer.told.wait_ns = S;
	trainer.told.idle_ns = S;
	trainer_clock_add(&trainer, 6 * S, NULL, NULL);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_ORDER], 2 * S);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_PEER], S);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_IDLE], S);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_BUSY], S);
	ck_assert_int_eq(trainer.state, CLOCK_ORDER);
}
END_TEST

START_TEST(test_a_trainer_that_has_not_told_is_idle)
{
	trainer.told = (struct trainer_waits){ .wait_ns = 5 * S };
	trainer_clock_add(&trainer, 3 * S, NULL, NULL);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_IDLE] + trainer.states.total_ns[CLOCK_BUSY], 2 * S);
}
END_TEST

static uint64_t unasked(const struct batch_source *s, uint64_t now_ns)
{
	(void)s;
	return now_ns / 4; /* a quarter of the time */
}

START_TEST(test_a_producer_is_slow_only_while_it_is_asked)
{
	static const struct batch_source_ops ops = { .unasked_ns = unasked };
	source.ops = &ops;
	trainer.shortage = SHORTAGE_PRODUCER;
	trainer.unasked_ns = unasked(&source, S);
	trainer.told.wait_ns = 4 * S;
	trainer_clock_add(&trainer, 5 * S, NULL, &source);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_PRODUCER], 3 * S);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_PEER], S);
}
END_TEST

START_TEST(test_short_periods_are_accounted_together)
{
	/* Fast batches: 50 periods of 10 us, of which the trainer waits 4 us for rows and 2 us for the hand-over. Nothing is
	 * accounted for them one by one, and together they give what they would have given so. */
	enum { US = 1000 };
	cost(0, 3, 1, 0);
	trainer.usage = (struct pool_usage){ .at_ns = S, .n_workers = 2 };
	uint64_t now = S;
	for (int i = 0; i < 50; i++) {
		trainer.shortage = SHORTAGE_ROWS;
		trainer.told.wait_ns += 4 * US;
		ck_assert(trainer_clock_defer(&trainer, now += 5 * US));
		trainer.shortage = SHORTAGE_NONE;
		trainer.told.wait_ns += 2 * US;
		ck_assert(trainer_clock_defer(&trainer, now += 5 * US));
		ck_assert_uint_eq(trainer.states.at_ns, S);
	}
	struct pool_usage usage = { .at_ns = now, .busy_ns = 1000 * US, .n_workers = 2 };
	trainer_clock_add(&trainer, now, &usage, &source);
	ck_assert_uint_eq(sum(trainer.states.total_ns), 500 * US);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_DECODE], 150 * US);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_TRANSFORM], 50 * US);
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_BUSY], 300 * US);
	trainer_clock_add(&trainer, now + US, &usage, &source); /* once */
	ck_assert_uint_eq(trainer.states.total_ns[CLOCK_DECODE], 150 * US);
}
END_TEST

START_TEST(test_a_long_period_and_other_shortages_are_accounted_at_once)
{
	trainer.shortage = SHORTAGE_ROWS;
	ck_assert(trainer_clock_defer(&trainer, S + 999999));
	ck_assert(!trainer_clock_defer(&trainer, S + 1000000));
	for (int i = SHORTAGE_COPY; i <= SHORTAGE_MEMORY; i++) {
		trainer.shortage = (enum shortage)i;
		ck_assert(!trainer_clock_defer(&trainer, S + 10));
	}
	trainer.shortage = SHORTAGE_NONE;
	trainer.told.known = false; /* it counts as idle */
	ck_assert(!trainer_clock_defer(&trainer, S + 10));
}
END_TEST

SUITE(state_clock)
{
	Suite *s = suite_create("state_clock");
	TCase *t = tcase_create("states");
	tcase_add_test(t, test_every_period_sums_to_its_length);
	tcase_add_test(t, test_a_minute_forgets_what_was_before);
	tcase_add_test(t, test_too_much_or_too_little_is_made_whole);
	suite_add_tcase(s, t);
	t = tcase_create("waiting");
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, test_busy_workers_divide_a_wait_by_what_they_did);
	tcase_add_test(t, test_idle_workers_and_rows_without_input_are_a_slow_disk);
	tcase_add_test(t, test_idle_workers_without_rows_that_wait_are_no_slow_disk);
	tcase_add_test(t, test_workers_that_wait_for_memory_count_while_they_wait);
	tcase_add_test(t, test_memory_is_not_the_limit_while_all_processors_work);
	tcase_add_test(t, test_the_cost_of_recent_rows_counts);
	tcase_add_test(t, test_a_trainer_that_lies_fills_its_own_time_only);
	tcase_add_test(t, test_a_sampler_of_the_trainer_is_the_order);
	tcase_add_test(t, test_a_trainer_that_has_not_told_is_idle);
	tcase_add_test(t, test_a_producer_is_slow_only_while_it_is_asked);
	tcase_add_test(t, test_short_periods_are_accounted_together);
	tcase_add_test(t, test_a_long_period_and_other_shortages_are_accounted_at_once);
	suite_add_tcase(s, t);
	return s;
}
