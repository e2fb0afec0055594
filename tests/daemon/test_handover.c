/* Batches and releases through the ring, between a whole daemon in a process of its own and the real client library:
 * whatever a trainer's habits, it is never left waiting; and whatever it writes into its page, no other client notices.
 * If a wake-up were lost, a case would run into its time limit. */
#include "support/packets.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "batchd.h"
#include "ring.h"
#include "support/suite.h"

static struct batchd_options usual_options(const char *job)
{
	struct batchd_options o;
	batchd_options_init(&o);
	o.socket = path;
	o.dataset = "random:length=1000,shape=64,dtype=float32";
	o.job = job;
	o.batch_size = 4;
	o.shuffle = 1;
	o.autostart = 0;
	return o;
}

static struct batchd_loader *open_with(const struct batchd_options *o)
{
	struct batchd_loader *l;
	char err[512];
	ck_assert_msg(batchd_open(o, &l, err, sizeof(err)) == 0, "%s", err);
	return l;
}

/* ---- trainers with habits ---- */

enum how { NEXT, TRY_AND_POLL, OTHER_THREAD };

struct habit {
	struct batchd_options options;
	unsigned n;           /* batches to take */
	unsigned keeps;       /* batches held while it asks for the next */
	unsigned pause_us;    /* its work on each */
	unsigned seeks_every; /* 0: never */
	enum how how;
};

/* A thread that releases batches for trainers whose batches end in another thread. */
struct bin {
	struct batchd_loader *loader;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct batchd_batch batch[64];
	unsigned n;
	bool over;
};

static void *empty_bin(void *arg)
{
	struct bin *b = arg;
	pthread_mutex_lock(&b->lock);
	while (b->n > 0 || !b->over) {
		if (b->n == 0) {
			pthread_cond_wait(&b->filled, &b->lock);
			continue;
		}
		struct batchd_batch batch = b->batch[--b->n];
		pthread_mutex_unlock(&b->lock);
		ck_assert_int_eq(batchd_release(b->loader, batch.slot, batch.generation), 0);
		pthread_mutex_lock(&b->lock);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

static void give_back(struct bin *b, enum how how, const struct batchd_batch *batch)
{
	if (how != OTHER_THREAD) {
		ck_assert_int_eq(batchd_release(b->loader, batch->slot, batch->generation), 0);
		return;
	}
	pthread_mutex_lock(&b->lock);
	b->batch[b->n++] = *batch;
	pthread_cond_signal(&b->filled);
	pthread_mutex_unlock(&b->lock);
}

static int take(struct batchd_loader *l, enum how how, struct batchd_batch *b)
{
	if (how != TRY_AND_POLL)
		return batchd_next(l, b, BATCHD_FOREVER);
	for (;;) {
		int r = batchd_try_next(l, b);
		if (r != BATCHD_AGAIN)
			return r;
		struct pollfd p = { batchd_fd(l), POLLIN, 0 };
		ck_assert_int_eq(TEMP_FAILURE_RETRY(poll(&p, 1, -1)), 1);
	}
}

static void push_some(struct batchd_loader *l)
{
	uint64_t indices[4] = { 1, 2, 3, 4 };
	int r;
	do
		r = batchd_push(l, indices, 4);
	while (r == 0);
	ck_assert_int_eq(r, BATCHD_AGAIN);
}

static void start(struct batchd_loader *l, bool own, uint64_t epoch, uint64_t step)
{
	ck_assert_int_eq(batchd_start(l, epoch, 0, step, NULL), 0);
	if (own)
		push_some(l);
}

static void train(struct batchd_loader *l, const struct habit *h)
{
	struct bin bin = { .loader = l, .lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER };
	struct batchd_batch held[64], b = { .size_bytes = sizeof(b) };
	unsigned n_held = 0;
	uint64_t epoch = 0, expected = 0;
	if (h->how == OTHER_THREAD)
		pthread_create(&bin.thread, NULL, empty_bin, &bin);
	start(l, h->options.own_batches, epoch, 0);
	for (unsigned i = 0; i < h->n; i++) {
		if (h->seeks_every && i % h->seeks_every == h->seeks_every - 1)
			start(l, h->options.own_batches, ++epoch, expected = i % 7);
		int r = take(l, h->how, &b);
		if (r == BATCHD_END) {
			start(l, false, ++epoch, expected = 0);
			r = take(l, h->how, &b);
		}
		ck_assert_msg(r == 0, "%s: %s", batchd_code_name(r), batchd_error(l));
		ck_assert_uint_eq(b.epoch, epoch);
		ck_assert_uint_eq(b.step, expected++);
		if (h->options.own_batches)
			push_some(l);
		held[n_held++] = b;
		if (n_held > h->keeps) {
			give_back(&bin, h->how, &held[0]);
			memmove(held, held + 1, --n_held * sizeof(*held));
		}
		if (h->pause_us)
			usleep(h->pause_us);
	}
	while (n_held > 0)
		give_back(&bin, h->how, &held[--n_held]);
	if (h->how == OTHER_THREAD) {
		pthread_mutex_lock(&bin.lock);
		bin.over = true;
		pthread_cond_signal(&bin.filled);
		pthread_mutex_unlock(&bin.lock);
		pthread_join(bin.thread, NULL);
	}
}

static void *train_alone(void *arg)
{
	const struct habit *h = arg;
	struct batchd_loader *l = open_with(&h->options);
	train(l, h);
	batchd_close(l);
	return NULL;
}

START_TEST(test_a_trainer_of_any_habits_gets_its_batches)
{
	/* Windows of 2 to 64; trainers that release before asking, after it, or keep all slots but one; trainers that
	 * poll, or release in another thread; own batches, and seeks while batches are in transit. */
	start_daemon();
	static const unsigned windows[] = { 2, 3, 4, 9, 64 };
	for (unsigned w = 0; w < sizeof(windows) / sizeof(*windows); w++) {
		for (unsigned k = 0; k < 3; k++) {
			for (enum how how = NEXT; how <= OTHER_THREAD; how++) {
				struct habit h = { .options = usual_options("habits"), .n = 300, .how = how };
				h.options.n_slots = windows[w];
				h.keeps = k == 0 ? 0 : k == 1 ? 1 : windows[w] - 1;
				h.options.own_batches = (w + k + how) % 3 == 0;
				h.options.shuffle = !h.options.own_batches;
				h.seeks_every = (w + k + how) % 2 ? 11 : 0;
				char job[32];
				snprintf(job, sizeof(job), "habits-%u-%u-%d", w, k, (int)how);
				h.options.job = job;
				train_alone(&h);
			}
		}
	}
	stop_daemon();
}
END_TEST

START_TEST(test_members_of_a_group_of_different_speed_all_get_their_batches)
{
	/* In share mode the fast trainers wait for the slow one's releases. One keeps all slots but one, one polls, one
	 * is slow. */
	start_daemon();
	for (unsigned n_slots = 2; n_slots <= 8; n_slots += 3) {
		struct habit h[3];
		pthread_t thread[3];
		for (int i = 0; i < 3; i++) {
			h[i] = (struct habit){ .options = usual_options("group"),
					       .n = 120,
					       .keeps = i == 1 ? n_slots - 1 : 0,
					       .pause_us = i == 0 ? 1000 : 0,
					       .how = i == 2 ? TRY_AND_POLL : NEXT };
			h[i].options.mode = BATCHD_SHARE;
			h[i].options.world_size = 3;
			h[i].options.rank = i;
			h[i].options.n_slots = n_slots;
			h[i].options.incarnation = n_slots;
			pthread_create(&thread[i], NULL, train_alone, &h[i]);
		}
		for (int i = 0; i < 3; i++)
			pthread_join(thread[i], NULL);
	}
	stop_daemon();
}
END_TEST

START_TEST(test_more_batches_than_the_ring_holds_are_not_lost)
{
	/* In a group everything in the window is sent again after each seek: 40 seeks of a window of 8 give far more
	 * than 64 entries. */
	start_daemon();
	struct batchd_options o = usual_options("again");
	o.mode = BATCHD_SHARE;
	o.n_slots = 8;
	o.rank = 0;
	struct batchd_loader *anchor = open_with(&o); /* holds the window in place */
	struct batchd_batch b = { .size_bytes = sizeof(b) };
	o.rank = -1;
	ck_assert_int_eq(batchd_start(anchor, 0, 0, 0, NULL), 0);
	ck_assert_int_eq(batchd_next(anchor, &b, BATCHD_FOREVER), 0);
	struct batchd_loader *l = open_with(&o);
	for (unsigned i = 0; i < 40; i++) {
		ck_assert_int_eq(batchd_start(l, 0, 0, 0, NULL), 0);
		usleep(1000);
	}
	for (unsigned i = 0; i < 8; i++) {
		struct batchd_batch mine = { .size_bytes = sizeof(mine) };
		ck_assert_msg(batchd_next(l, &mine, BATCHD_FOREVER) == 0, "%s", batchd_error(l));
		ck_assert_uint_eq(mine.step, i);
		ck_assert_int_eq(batchd_release(l, mine.slot, mine.generation), 0);
	}
	batchd_close(l);
	ck_assert_int_eq(batchd_release(anchor, b.slot, b.generation), 0);
	batchd_close(anchor);
	stop_daemon();
}
END_TEST

/* ---- pages that lie ---- */

static struct client join_as(const char *job, uint32_t layout)
{
	Batchd__Wire__Open o = usual_open();
	o.job = (char *)job;
	o.ring = layout;
	return join_with(o);
}

/* Takes a batch without a word to the daemon. */
static Batchd__Wire__Batch take_quietly(struct client *c)
{
	unsigned char bytes[RING_MAX_MESSAGE];
	const Batchd__Wire__ServerMessage *m;
	size_t n;
	int r;
	while ((r = ring_take(&c->ring.batches, bytes, &n)) == -EAGAIN)
		usleep(1000);
	ck_assert_int_eq(r, 0);
	ck_assert_int_eq(wire_unpack_server(&arena, bytes, n, &m, NULL), 0);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH);
	return *m->batch;
}

/* Each breaks the rules in another way, except the first and the last, which are allowed. */
static bool misbehave(struct client *c, int how)
{
	struct ring_page *p = c->ring.page;
	Batchd__Wire__Batch b = take_quietly(c);
	switch (how) {
	case 1:
		put_release(c, b.slot, b.generation + 1);
		return true;
	case 2:
		put_release(c, 99, b.generation);
		return true;
	case 3:
		put_release(c, b.slot, b.generation);
		put_release(c, b.slot, b.generation);
		return true;
	case 4:
		atomic_store(&p->releases.produced, RING_ENTRIES + 1);
		return true;
	case 5:
		atomic_store(&p->releases.produced, UINT32_MAX);
		return true;
	case 6:
		atomic_store(&p->releases.produced, 1);
		return true; /* of length 0 */
	case 7:
		memset(p->release[0], 0xff, RING_RELEASE_BYTES);
		atomic_store(&p->releases.produced, 1);
		return true;
	/* field 7, StatusRequest, instead of Release */
	case 8:
		put_release(c, b.slot, b.generation);
		p->release[0][4] = 0x3a;
		return true;
	case 9:
		put_release(c, b.slot, b.generation);
		memset(p->release[0] + 4, 0xff, 20);
		return true;
	/* there is no room for the next batch */
	case 10:
		atomic_store(&p->batches.taken, 1000);
		put_release(c, b.slot, b.generation);
		return true;
	case 11:
		put_release(c, b.slot, b.generation);
		return false;
	default:
		return false;
	}
}

START_TEST(test_a_page_that_breaks_the_rules_ends_its_session)
{
	/* With Error PROTOCOL that names the ring; a page that is merely slow or unused does not end the connection. */
	start_daemon();
	struct client c = join_as("liar", RING_LAYOUT + 5); /* a client that knows newer layouts gets the daemon's
	                                                   * layout */
	seek_to(&c, 0, 0);
	bool bad = misbehave(&c, _i);
	wake(&c);
	if (bad) {
		ck_assert_int_eq(last_words(c.fd), CODE(PROTOCOL));
	} else {
		for (unsigned step = 1; step < 4; step++)
			ck_assert_uint_eq(take_quietly(&c).step, step);
	}
	hang_up(&c);
	check_it_serves();
	stop_daemon();
}
END_TEST

/* For a child that will be killed: what Check writes about it would be cut off in the middle, and the parent could not
 * read its own records any more. */
static void leave_check(void)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	for (int fd = 3; fd < 256; fd++) {
		struct stat st;
		if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
			dup2(null, fd);
	}
}

/* Writes over its pages at random until it is killed; opens again whenever the daemon disconnects it. */
static void scribble(const char *job, unsigned seed)
{
	for (;;) {
		struct client c = join_as(job, RING_LAYOUT);
		uint32_t *words = (uint32_t *)(void *)c.ring.page;
		unsigned char bytes[WIRE_MAX_BYTES];
		struct pollfd p = { c.fd, POLLIN, 0 };
		seek_to(&c, 0, 0);
		for (unsigned i = 0; i < 200; i++) {
			size_t at = (size_t)rand_r(&seed) % (seed % 4 ? 96 : RING_PAGE_BYTES / 4);
			*(volatile uint32_t *)&words[at] =
				(uint32_t)rand_r(&seed) % (rand_r(&seed) % 3 ? 80 : UINT32_MAX);
			if (i % 8 == 0)
				wake(&c);
			if (TEMP_FAILURE_RETRY(poll(&p, 1, 0)) == 1 && recv(c.fd, bytes, sizeof(bytes), 0) <= 0)
				break;
			if (i % 50 == 49)
				usleep(1000);
		}
		hang_up(&c);
	}
}

/* A client that is disconnected while it holds batches counts as its user's session until its process ends. */
static void many_sessions(struct config *c)
{
	c->limits.sessions = c->limits.sessions_per_user = 65536;
	c->limits.fds_per_user = 1 << 20;
}

START_TEST(test_others_go_on_beside_pages_that_change_at_random)
{
	/* Two processes that scribble over their rings, and a trainer that gets every batch, in order. */
	start_daemon_with(many_sessions);
	pid_t vandals[2];
	for (unsigned i = 0; i < 2; i++) {
		vandals[i] = fork();
		if (vandals[i] == 0) {
			leave_check();
			scribble(i ? "vandal" : "another vandal", i + 1);
			_exit(0);
		}
	}
	struct habit h = { .options = usual_options("honest"), .n = 1500, .keeps = 1, .pause_us = 100 };
	train_alone(&h);
	for (unsigned i = 0; i < 2; i++) {
		int status;
		kill(vandals[i], SIGKILL);
		waitpid(vandals[i], &status, 0);
		/* no failed check has stopped it */
		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	check_it_serves();
	stop_daemon();
}
END_TEST

START_TEST(test_trainers_killed_at_any_moment_leave_nothing_behind)
{
	/* Thirty trainers take and release as fast as they can until SIGKILL; each successor in the same rank, and a
	 * neighbour, get their batches. */
	start_daemon();
	struct habit neighbour = { .options = usual_options("neighbour"), .n = 1000, .pause_us = 100 };
	pthread_t thread;
	pid_t pids[30];
	for (unsigned i = 0; i < 30; i++) {
		struct habit h = { .options = usual_options("killed"), .n = 1u << 30, .keeps = i % 3 };
		pids[i] = fork();
		if (pids[i] == 0) {
			leave_check();
			train_alone(&h);
			_exit(0);
		}
		usleep(10000 + i * 700);
		kill(pids[i], SIGKILL);
		int status;
		ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
		ck_assert(WIFSIGNALED(status)); /* and no failed check has ended it */
	}
	pthread_create(&thread, NULL, train_alone, &neighbour);
	struct habit last = { .options = usual_options("killed"), .n = 300 };
	train_alone(&last);
	pthread_join(thread, NULL);
	stop_daemon();
}
END_TEST

SUITE(handover)
{
	Suite *suite = suite_create("handover");
	TCase *all = tcase_create("handover");
	suite_add_tcase(suite, all);
	tcase_add_test(all, test_a_trainer_of_any_habits_gets_its_batches);
	tcase_add_test(all, test_members_of_a_group_of_different_speed_all_get_their_batches);
	tcase_add_test(all, test_more_batches_than_the_ring_holds_are_not_lost);
	tcase_add_loop_test(all, test_a_page_that_breaks_the_rules_ends_its_session, 0, 12);
	tcase_add_test(all, test_others_go_on_beside_pages_that_change_at_random);
	tcase_add_test(all, test_trainers_killed_at_any_moment_leave_nothing_behind);
	return suite;
}
