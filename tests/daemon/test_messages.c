/* Each message in each state of a session: taken, or refused with the right words. What is expected stands here once
 * more, apart from the daemon's own rules. */
#include <fcntl.h>
#include <sys/mman.h>

#include "support/any-message.h"
#include "support/packets.h"
#include "watch/session-questions.h"
#include "server/session.h"

/* ---- what is expected ---- */

static const struct expected {
	Batchd__Wire__ClientMessage__BodyCase message;
	unsigned states;
	const char *taken; /* how the refusal of an empty one begins where it is legal; NULL: it is not refused */
	const char *refused;
} expected[] = {
	{ CLIENT_MESSAGE(HELLO), 0, NULL, "Hello is out of place" },
	{ CLIENT_MESSAGE(OPEN), SESSION_IN(GREETED), "this client asks for no ring",
	  "Open came twice, from a producer, or after LoadOpen" },
	{ CLIENT_MESSAGE(SEEK), SESSION_IN(ATTACHED), "seek numbers must grow", "Seek before Opened" },
	{ CLIENT_MESSAGE(JOIN), SESSION_IN(ATTACHED), "seek numbers must grow", "Join before Opened" },
	{ CLIENT_MESSAGE(INDICES), SESSION_IN(ATTACHED), "Indices without batch_sampler", "Indices before Opened" },
	{ CLIENT_MESSAGE(RELEASE), SESSION_IN(ATTACHED), "released a slot", "Release before Opened" },
	{ CLIENT_MESSAGE(WAKE), SESSION_IN(ATTACHED), NULL, "Wake before Opened" },
	{ CLIENT_MESSAGE(CLASSES), SESSION_IN(ATTACHED), NULL, "ClassesRequest before Opened" },
	{ CLIENT_MESSAGE(STATUS), SESSION_IN_ANY, NULL, NULL },
	{ CLIENT_MESSAGE(CLOSE), SESSION_IN_ANY, NULL, NULL },
	{ CLIENT_MESSAGE(TRACE), SESSION_IN(GREETED) | SESSION_IN(PRODUCING) | SESSION_IN(LOADING), NULL,
	  "Trace after Open" },
	{ CLIENT_MESSAGE(PRODUCE), SESSION_IN(GREETED), "slot_bytes is 0",
	  "Produce came twice, from a trainer, or after LoadOpen" },
	{ CLIENT_MESSAGE(FILLED), SESSION_IN(PRODUCING), "mapped a slab that was not offered",
	  "Filled before Produce" },
	{ CLIENT_MESSAGE(PRODUCER_END), SESSION_IN(PRODUCING), NULL, "ProducerEnd before Produce" },
	{ CLIENT_MESSAGE(LOAD_OPEN), SESSION_IN(GREETED), NULL, "LoadOpen came twice, from a trainer or producer" },
	{ CLIENT_MESSAGE(LOAD), SESSION_IN(LOADING), NULL, "Load before LoadOpened" },
};

static const struct expected *expected_of(Batchd__Wire__ClientMessage__BodyCase message)
{
	for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
		if (expected[i].message == message)
			return &expected[i];
	}
	ck_abort_msg("a message that this test does not know");
}

/* ---- clients ---- */

static int memfd;
static unsigned n_clients;

static void start(void)
{
	start_daemon();
	memfd = memfd_create("images", MFD_CLOEXEC);
}

static void stop(void)
{
	close(memfd);
	check_it_serves();
	stop_daemon();
}

static void say(int fd, const Batchd__Wire__ClientMessage *m)
{
	unsigned n_fds = m->body_case == CLIENT_MESSAGE(LOAD_OPEN);
	while (wire_send(fd, &m->base, &memfd, n_fds, 0) == -EINTR)
		;
}

static void say_load_open(int fd)
{
	Batchd__Wire__LoadOpen o = BATCHD__WIRE__LOAD_OPEN__INIT;
	o.layout = BATCHD__WIRE__LAYOUT__NHWC;
	say(fd, WIRE_CLIENT(LOAD_OPEN, load_open, &o));
	const Batchd__Wire__ServerMessage *m = receive(fd, NULL);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_LOAD_OPENED);
}

static void say_produce(int fd, char *name)
{
	Batchd__Wire__Produce p = BATCHD__WIRE__PRODUCE__INIT;
	p.name = name;
	p.slot_bytes = 4096;
	say(fd, WIRE_CLIENT(PRODUCE, produce, &p));
	const Batchd__Wire__ServerMessage *m = receive(fd, NULL);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_PRODUCING);
}

/* A client whose session is in this state, and that has said nothing more than it takes. */
static struct client greeted_as(enum session_state state)
{
	struct client c = { .fd = -1, .slab = -1 };
	Batchd__Wire__Open o = usual_open();
	char name[32];
	snprintf(name, sizeof(name), "client%u", ++n_clients);
	o.job = name;
	if (state == SESSION_ATTACHED)
		return join_with(o);
	c.fd = dial();
	greet(c.fd);
	o.sources = sources_of("serve:nothing"); /* its producer never comes */
	if (state == SESSION_OPENING)
		say(c.fd, WIRE_CLIENT(OPEN, open, &o));
	else if (state == SESSION_PRODUCING)
		say_produce(c.fd, name);
	else if (state == SESSION_LOADING)
		say_load_open(c.fd);
	return c;
}

static void leave(struct client *c)
{
	ring_unmap(&c->ring);
	if (c->slab >= 0)
		close(c->slab);
	close(c->fd);
}

/* ---- cases ---- */

START_TEST(test_there_is_one_rule_for_each_message)
{
	/* Also for those that watch brings; and what a message makes of a client is a role. */
	const struct engine e = { .reader = session_questions };
	struct any_message m;
	for (size_t i = 0; i < any_message_kinds(); i++) {
		any_message_make(&m, i);
		const struct message_rule *rule = session_rule(&e, m.message.body_case);
		const struct expected *x = expected_of(m.message.body_case);
		unsigned legal = x->states | (x->message == CLIENT_MESSAGE(CLOSE) ? SESSION_IN(DRAINING) : 0);
		ck_assert((rule->take != NULL) == (x->message != CLIENT_MESSAGE(HELLO)));
		ck_assert_uint_eq(rule->states, legal);
		ck_assert(!rule->becomes || rule->states == SESSION_IN(GREETED));
		ck_assert(!rule->take || (rule->states & SESSION_IN_ANY) == SESSION_IN_ANY || rule->otherwise);
	}
}
END_TEST

static void check_message(enum session_state state, const struct any_message *m)
{
	const struct expected *x = expected_of(m->message.body_case);
	const char *wanted = x->states & 1u << state ? x->taken : x->refused;
	Batchd__Wire__Close bye = BATCHD__WIRE__CLOSE__INIT;
	struct client c = greeted_as(state);
	char text[300] = "";
	const Batchd__Wire__ServerMessage *got;
	say(c.fd, &m->message);
	say(c.fd, WIRE_CLIENT(CLOSE, close, &bye));
	while ((got = receive(c.fd, NULL))) {
		if (got->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR)
			continue;
		snprintf(text, sizeof(text), "%s", got->error->text);
		ck_assert(x->states & 1u << state || got->error->code == CODE(PROTOCOL));
	}
	ck_assert_msg(wanted ? strncmp(text, wanted, strlen(wanted)) == 0 : !*text, "%s in state %d: '%s'",
		      wire_client_name(&m->message), (int)state, text);
	ck_assert(!wanted || x->states & 1u << state || strcmp(text, wanted) == 0);
	leave(&c);
}

START_TEST(test_a_message_is_taken_or_refused_by_the_session_s_state)
{
	/* Each in each state in which the client is heard. */
	static const enum session_state states[] = { SESSION_GREETED, SESSION_OPENING, SESSION_ATTACHED,
						     SESSION_PRODUCING, SESSION_LOADING };
	struct any_message m;
	start();
	for (size_t i = 0; i < any_message_kinds(); i++) {
		any_message_make(&m, i);
		check_message(states[_i], &m);
	}
	stop();
}
END_TEST

static bool status_has(const char *text)
{
	Batchd__Wire__StatusRequest r = BATCHD__WIRE__STATUS_REQUEST__INIT;
	int fd = dial();
	greet(fd);
	SEND(fd, STATUS, status, &r);
	const Batchd__Wire__ServerMessage *m = receive(fd, NULL);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_STATUS);
	bool has = memmem(m->status->json.data, m->status->json.len, text, strlen(text)) != NULL;
	close(fd);
	return has;
}

START_TEST(test_a_draining_client_is_heard_for_its_close_only)
{
	/* A trainer that holds a batch is fenced. What it says until it knows is ignored, and no fault. */
	struct any_message m;
	Batchd__Wire__Open o = usual_open();
	Batchd__Wire__Close bye = BATCHD__WIRE__CLOSE__INIT;
	start();
	struct client old = join_with(o);
	seek_to(&old, 0, 0);
	next_batch(&old);
	o.incarnation = 1;
	struct client fresh = join_with(o);
	ck_assert_int_eq(last_words(old.fd), CODE(FENCED));
	for (size_t i = 0; i < any_message_kinds(); i++) {
		any_message_make(&m, i);
		if (m.message.body_case != CLIENT_MESSAGE(HELLO) && m.message.body_case != CLIENT_MESSAGE(CLOSE))
			say(old.fd, &m.message);
	}
	for (int i = 0; i < 3; i++) /* the daemon reads them at the first, or before the second */
		ck_assert(status_has("told to go"));
	say(old.fd, WIRE_CLIENT(CLOSE, close, &bye));
	while (status_has("told to go"))
		;
	hang_up(&old);
	hang_up(&fresh);
	stop();
}
END_TEST

SUITE(messages)
{
	Suite *s = suite_create("messages");
	TCase *rules = tcase_create("rules"), *daemon = tcase_create("daemon");
	tcase_add_test(rules, test_there_is_one_rule_for_each_message);
	suite_add_tcase(s, rules);
	tcase_set_timeout(daemon, 60);
	tcase_add_loop_test(daemon, test_a_message_is_taken_or_refused_by_the_session_s_state, 0, 5);
	tcase_add_test(daemon, test_a_draining_client_is_heard_for_its_close_only);
	suite_add_tcase(s, daemon);
	return s;
}
