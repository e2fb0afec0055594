/* Clients that request too much or are hostile, against the whole daemon: each is refused by name or disconnected, and
 * well-behaved clients are served as if the others did not exist. The daemon's exit status says that no charge is left
 * at the end. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <uv.h>

#include "support/packets.h"
#include "support/suite.h"
#include "base/clock.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* ---- requesting too much ---- */

/* Opens. Returns the field of the limit that refuses it, or "" when it is served (and stays open in *fd). */
static const char *refusal(Batchd__Wire__Open *o, int *fd)
{
	static char field[WIRE_MAX_FIELD + 1];
	int slab = -1;
	*fd = dial();
	greet(*fd);
	const Batchd__Wire__ServerMessage *m = answer_to_open(*fd, o, &slab);
	ck_assert_ptr_nonnull(m);
	field[0] = '\0';
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR) {
		ck_assert_int_eq(m->error->code, CODE(LIMIT));
		/* the text names the key to change, too */
		ck_assert_ptr_nonnull(strstr(m->error->text, m->error->field));
		strcpy(field, m->error->field);
		close(*fd);
	}
	if (slab >= 0)
		close(slab);
	return field;
}

static void small_shares(struct config *c)
{
	c->memory_bytes = 32 << 20;
	c->limits.memory_per_user = 0.25;
	c->limits.loaders_per_user = 3;
	c->linger_ns = 60000000000u;
}

START_TEST(test_a_users_batches_get_their_share_of_the_memory)
{
	/* 8 MiB of 32: a window shrinks to that, and the next is refused though the budget has room; when the first has
	 * left there is room again. */
	int fd, other;
	start_daemon_with(small_shares);
	Batchd__Wire__Open o = usual_open();
	o.batch_size = 1900; /* about 1.9 MiB a slot */
	o.n_slots = 8;
	struct client c = join_with(o);
	ck_assert_uint_eq(c.n_slots, 4);
	o.job = (char *)"other";
	ck_assert_str_eq(refusal(&o, &fd), "memory_per_user");
	o.batch_size = 10;
	ck_assert_str_eq(refusal(&o, &other), "");
	Batchd__Wire__Close bye = BATCHD__WIRE__CLOSE__INIT;
	SEND(c.fd, CLOSE, close, &bye);
	while (receive(c.fd, NULL))
		;
	hang_up(&c);
	o.batch_size = 1900;
	o.job = (char *)"third";
	ck_assert_str_eq(refusal(&o, &fd), ""); /* the first job lingers, and makes room */
	close(fd);
	close(other);
	stop_daemon();
}
END_TEST

static void tiny_shares(struct config *c)
{
	c->memory_bytes = 4 << 20;
	c->limits.memory_per_user = 0.1;
}

/* As many slots of 12 KiB, half of a ring, as there is memory for. */
static Batchd__Wire__Open open_all(void)
{
	Batchd__Wire__Open o = usual_open();
	o.sources = sources_of("random:length=20,shape=256,dtype=float32");
	o.n_slots = 64;
	return o;
}

START_TEST(test_slots_leave_room_for_the_rings_of_their_group)
{
	/* The first of eight trainers takes the slots, which are fewer than it wished; the others get their rings all the
	 * same. */
	struct client c[8];
	start_daemon_with(tiny_shares);
	Batchd__Wire__Open o = open_all();
	o.mode = BATCHD__WIRE__MODE__SHARE;
	o.world_size = 8;
	for (int i = 0; i < 8; i++) {
		o.rank = i;
		c[i] = join_with(o);
		ck_assert_uint_lt(c[i].n_slots, 64);
	}
	for (int i = 0; i < 8; i++)
		seek_to(&c[i], 0, 0);
	for (int i = 0; i < 8; i++) {
		ck_assert_uint_eq(next_batch(&c[i]).step, 0);
		hang_up(&c[i]);
	}
	stop_daemon();
}
END_TEST

START_TEST(test_a_trainer_without_room_for_its_ring_is_refused)
{
	/* Once a session went on without a ring then. The job's first rank has taken all memory of their user, so that a
	 * ring does not fit; the text says what it is that does not. */
	start_daemon_with(tiny_shares);
	Batchd__Wire__Open o = open_all();
	o.world_size = 2;
	struct client c = join_with(o);
	ck_assert_uint_lt(c.n_slots, 64);
	o.rank = 1;
	int fd = dial();
	greet(fd);
	const Batchd__Wire__ServerMessage *m = answer_to_open(fd, &o, NULL);
	ck_assert_ptr_nonnull(m);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR);
	ck_assert_int_eq(m->error->code, CODE(LIMIT));
	ck_assert_str_eq(m->error->field, "memory_per_user");
	ck_assert_msg(strstr(m->error->text, "the ring") != NULL, "%s", m->error->text);
	close(fd);
	hang_up(&c);
	stop_daemon();
}
END_TEST

START_TEST(test_a_user_may_have_so_many_loaders_and_unused_ones_make_room)
{
	/* The fourth of three jobs in use is refused; a job that merely lingers gives way. */
	int fds[3], fd;
	start_daemon_with(small_shares);
	Batchd__Wire__Open o = usual_open();
	char job[16];
	o.job = job;
	for (int i = 0; i < 3; i++) {
		snprintf(job, sizeof(job), "job%d", i);
		ck_assert_str_eq(refusal(&o, &fds[i]), "");
	}
	strcpy(job, "fourth");
	ck_assert_str_eq(refusal(&o, &fd), "loaders_per_user");
	close(fds[1]);
	while (*refusal(&o, &fd)) /* until the daemon has seen the hang-up */
		;
	close(fd);
	close(fds[0]);
	close(fds[2]);
	stop_daemon();
}
END_TEST

static void few_fds(struct config *c)
{
	c->limits.fds_per_user = 12; /* a connection takes 2, a slab 1 */
}

START_TEST(test_a_user_gets_so_many_of_the_daemons_descriptors)
{
	/* Four trainers of three descriptors each; a fifth connection is refused. A trainer may have to wait until the
	 * daemon sees the end of another user's process. The fourth tries again when it is refused because of the
	 * duplicates for its answer: under the fault shim a socket may be full. */
	struct client c[4];
	start_daemon_with(few_fds);
	Batchd__Wire__Open o = usual_open();
	char job[16];
	o.job = job;
	for (int i = 0; i < 4; i++) {
		snprintf(job, sizeof(job), "job%d", i);
		while (!join_unless("fds_per_user", &c[i], o))
			;
	}
	int fd = dial();
	const Batchd__Wire__ServerMessage *m = receive(fd, NULL);
	ck_assert_int_eq(m->error->code, CODE(LIMIT));
	ck_assert_str_eq(m->error->field, "fds_per_user");
	close(fd);
	for (int i = 0; i < 4; i++) {
		seek_to(&c[i], 0, 0);
		ck_assert_uint_eq(next_batch(&c[i]).step, 0);
		hang_up(&c[i]);
	}
	stop_daemon();
}
END_TEST

static void little_unread(struct config *c)
{
	c->limits.unread_per_user = 1 << 20;
}

START_TEST(test_answers_that_no_client_reads_are_limited)
{
	/* Asks for class names and never reads: it is disconnected when the daemon keeps a megabyte for it, before the
	 * daemon runs out of memory. */
	start_daemon_with(little_unread);
	Batchd__Wire__Open o = usual_open();
	o.sources = sources_of("random:length=1000,shape=4,dtype=float32,classes=1000");
	struct client c = join_with(o);
	unsigned sent = 0;
	for (; sent < 20000; sent++) {
		Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
		Batchd__Wire__ClassesRequest r = BATCHD__WIRE__CLASSES_REQUEST__INIT;
		m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_CLASSES;
		m.classes = &r;
		int error;
		while ((error = wire_send(c.fd, &m.base, NULL, 0, 0)) == -EINTR)
			;
		if (error)
			break;
	}
	ck_assert_uint_lt(sent, 2000); /* 4 KB an answer */
	ck_assert_uint_gt(sent, 100);
	hang_up(&c);
	check_it_serves();
	stop_daemon();
}
END_TEST

static void ask_status(int fd)
{
	Batchd__Wire__StatusRequest ask = BATCHD__WIRE__STATUS_REQUEST__INIT;
	SEND(fd, STATUS, status, &ask);
}

/* The daemon's status; in the buffer of receive(). */
static const Batchd__Wire__Status *hear_status(int fd)
{
	const Batchd__Wire__ServerMessage *m = receive(fd, NULL);
	ck_assert_ptr_nonnull(m);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_STATUS);
	ck_assert(!m->status->more);
	return m->status;
}

/* The daemon's clock stands still at that time; 0: it goes. */
static _Atomic uint64_t *stopped_ns;

uint64_t uv_hrtime(void)
{
	uint64_t stopped = stopped_ns ? atomic_load(stopped_ns) : 0;
	return stopped ? stopped : clock_now_ns();
}

START_TEST(test_a_user_that_asks_without_end_gets_the_same_and_others_what_is_new)
{
	/* A thousand requests that the daemon, stopped meanwhile, finds at once. Each status contains the daemon's
	 * processor time, so two equal ones were made once. How much of it a user may have for new ones grows with
	 * time, which stands still: on a busy machine it might grow faster than they take it. Then time goes on, and
	 * some time later an answer is new. */
	enum { N = 60, ASKED = 18 };
	static char last[WIRE_MAX_STATUS + 1];
	unsigned n_alike = 0;
	int fd[N];
	stopped_ns = mmap(NULL, sizeof(*stopped_ns), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne((void *)stopped_ns, MAP_FAILED);
	start_daemon();
	for (int i = 0; i < N; i++) {
		fd[i] = dial();
		greet(fd[i]);
	}
	kill(daemon_pid, SIGSTOP);
	atomic_store(stopped_ns, clock_now_ns());
	for (int i = 0; i < N * ASKED; i++)
		ask_status(fd[i % N]);
	kill(daemon_pid, SIGCONT);
	for (int i = 0; i < N * ASKED; i++) {
		const Batchd__Wire__Status *s = hear_status(fd[i / ASKED]);
		n_alike += strlen(last) == s->json.len && memcmp(last, s->json.data, s->json.len) == 0;
		memcpy(last, s->json.data, s->json.len);
		last[s->json.len] = '\0';
	}
	ck_assert_uint_gt(n_alike, 0);
	atomic_store(stopped_ns, 0);
	Batchd__Wire__Open o = usual_open();
	o.job = (char *)"newcomer";
	struct client c = join_with(o);
	for (bool new = false; !new;) {
		ask_status(fd[0]);
		const Batchd__Wire__Status *s = hear_status(fd[0]);
		new = memmem(s->json.data, s->json.len, "newcomer", 8) != NULL;
	}
	hang_up(&c);
	for (int i = 0; i < N; i++)
		close(fd[i]);
	stop_daemon();
}
END_TEST

START_TEST(test_own_batches_beyond_the_window_are_illegal)
{
	/* window + 2 requests may wait; one more, while nothing is released, ends the connection. */
	start_daemon();
	Batchd__Wire__Open o = usual_open();
	o.own_batches = true;
	o.n_slots = 3;
	for (unsigned extra = 0; extra < 2; extra++) {
		struct client c = join_with(o);
		seek_to(&c, 0, 0);
		uint64_t index = 5;
		for (uint64_t step = 0; step < 3 + 3 + 2 + extra; step++) { /* in slots, and waiting */
			Batchd__Wire__Indices x = BATCHD__WIRE__INDICES__INIT;
			x.seek = c.seek;
			x.step = step;
			x.n_index = 1;
			x.index = &index;
			SEND(c.fd, INDICES, indices, &x);
		}
		if (extra) {
			ck_assert_int_eq(last_words(c.fd), CODE(PROTOCOL));
		} else {
			for (unsigned i = 0; i < 3; i++)
				ck_assert_uint_eq(next_batch(&c).step, i);
			Batchd__Wire__StatusRequest ask = BATCHD__WIRE__STATUS_REQUEST__INIT;
			SEND(c.fd, STATUS, status, &ask);
			ck_assert_int_eq(receive(c.fd, NULL)->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_STATUS);
		}
		hang_up(&c);
	}
	check_it_serves();
	stop_daemon();
}
END_TEST

/* ---- the slab ---- */

/* Everything that a process with the descriptor could try; returns the number of the first attempt that works, 0 for
 * none. */
static int attack(int slab, size_t bytes)
{
	char again_path[64];
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	snprintf(again_path, sizeof(again_path), "/proc/self/fd/%d", slab);
	void *writable = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, slab, 0);
	if (writable != MAP_FAILED)
		return 1;
	uint8_t *shared = mmap(NULL, bytes, PROT_READ, MAP_SHARED, slab, 0);
	if (shared != MAP_FAILED && mprotect(shared, page, PROT_READ | PROT_WRITE) == 0)
		return 2;
	if (ftruncate(slab, 0) == 0 || ftruncate(slab, (off_t)(2 * bytes)) == 0)
		return 3;
	if (fallocate(slab, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)page) == 0)
		return 4;
	if (pwrite(slab, "x", 1, 0) == 1)
		return 5;
	if (fcntl(slab, F_ADD_SEALS, 0) == 0)
		return 6;
	if (fchmod(slab, 0777) == 0 && geteuid() != 0)
		return 7;
	int again = open(again_path, O_RDWR | O_CLOEXEC);
	if (again >= 0) { /* root, and the owner after chmod, get this far; the seal prevents the rest */
		if (mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) != MAP_FAILED)
			return 8;
		if (pwrite(again, "x", 1, 0) == 1 || ftruncate(again, 0) == 0)
			return 9;
		if (fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)page) == 0)
			return 10;
	}
	if (shared != MAP_FAILED && madvise(shared, page, MADV_REMOVE) == 0)
		return 11;
	int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC); /* debuggers write through this file what programs may
	                                                       * not */
	if (shared != MAP_FAILED && mem >= 0 && pwrite(mem, "x", 1, (off_t)(uintptr_t)shared) == 1)
		return 12;
	return 0;
}

static int attack_as(uid_t uid, int slab, size_t bytes)
{
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(setresuid(uid, uid, uid) ? 99 : attack(slab, bytes));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

START_TEST(test_no_process_that_has_the_slab_can_change_it)
{
	/* The trainer itself, a process of the same user, and a process of another user with the descriptor. */
	start_daemon();
	struct client c = join();
	seek_to(&c, 0, 0);
	Batchd__Wire__Batch b = next_batch(&c);
	uint8_t *slab = mmap(NULL, c.slab_bytes, PROT_READ, MAP_PRIVATE, c.slab, 0), *before = malloc(c.slot_bytes);
	ck_assert_ptr_ne(slab, MAP_FAILED);
	memcpy(before, slab + b.slot * c.slot_bytes, c.slot_bytes);
	ck_assert_int_eq(attack(c.slab, c.slab_bytes), 0);
	ck_assert_int_eq(attack_as(geteuid(), c.slab, c.slab_bytes), 0);
	if (geteuid() == 0)
		ck_assert_int_eq(attack_as(65534, c.slab, c.slab_bytes), 0);
	ck_assert_int_eq(memcmp(before, slab + b.slot * c.slot_bytes, c.slot_bytes), 0);
	struct stat st;
	ck_assert_int_eq(fstat(c.slab, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, c.slab_bytes);
	check_it_serves();
	free(before);
	hang_up(&c);
	stop_daemon();
}
END_TEST

/* The descriptors that came with Opened: of the slab, and of the ring. */
static void open_with_page(int fd, int fds[WIRE_MAX_FDS])
{
	Batchd__Wire__Open o = usual_open();
	const Batchd__Wire__ServerMessage *m;
	unsigned n_fds;
	SEND(fd, OPEN, open, &o);
	do
		m = receive_packet(fd, fds, &n_fds);
	while (m && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_PROGRESS);
	ck_assert_ptr_nonnull(m);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED);
	ck_assert_uint_eq(n_fds, 2);
}

START_TEST(test_a_control_page_cannot_be_taken_away_from_under_the_daemon)
{
	/* Its trainer may write anything into the page and discard its contents, but cannot shorten it, which would
	 * kill the daemon. */
	int fds[WIRE_MAX_FDS];
	start_daemon();
	int fd = dial();
	greet(fd);
	open_with_page(fd, fds);
	ck_assert_int_eq(ftruncate(fds[1], 0), -1);
	ck_assert_int_eq(ftruncate(fds[1], 1), -1);
	ck_assert_int_eq(ftruncate(fds[1], 1 << 20), -1);
	ck_assert_int_eq(fcntl(fds[1], F_ADD_SEALS, F_SEAL_WRITE), -1);
	struct client c = { .fd = fd, .slab = fds[0] };
	seek_to(&c, 0, 0);
	(void)fallocate(fds[1], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
	wake(&c);
	check_it_serves();
	close(fds[1]);
	hang_up(&c);
	check_it_serves();
	stop_daemon();
}
END_TEST

/* ---- illegal sequences ---- */

static uint32_t roll(uint32_t *seed, uint32_t n)
{
	*seed = *seed * 1664525 + 1013904223;
	return (uint32_t)((uint64_t)(*seed >> 4) * n >> 28);
}

/* A valid message, whatever the connection's state. */
static void say_something(struct client *c, uint32_t *seed)
{
	Batchd__Wire__Open o = usual_open();
	Batchd__Wire__Hello h = BATCHD__WIRE__HELLO__INIT;
	Batchd__Wire__Indices x = BATCHD__WIRE__INDICES__INIT;
	Batchd__Wire__StatusRequest s = BATCHD__WIRE__STATUS_REQUEST__INIT;
	Batchd__Wire__ClassesRequest k = BATCHD__WIRE__CLASSES_REQUEST__INIT;
	uint64_t index[3] = { roll(seed, 2000), roll(seed, 1000), UINT64_MAX };
	static const uint64_t odd[] = { 0, 1, 2, 7, 1u << 31, UINT64_MAX, UINT64_MAX - 1, INT64_MAX };
	switch (roll(seed, 10)) {
	case 0:
		h.version = roll(seed, 3);
		SEND(c->fd, HELLO, hello, &h);
		break;
	case 1:
	case 2:
		o.job = (char *)(roll(seed, 2) ? "a" : "b");
		o.rank = (int32_t)roll(seed, 4) - 1;
		o.world_size = roll(seed, 4);
		o.mode = (Batchd__Wire__Mode)roll(seed, 2);
		o.own_batches = roll(seed, 4) == 0;
		o.incarnation = roll(seed, 3);
		SEND(c->fd, OPEN, open, &o);
		break;
	case 3:
	case 4:
		c->seek += roll(seed, 2);
		seek_to(c, odd[roll(seed, 8)], odd[roll(seed, 8)]);
		break;
	case 5:
		release_by_packet(c, (uint32_t)odd[roll(seed, 8)], odd[roll(seed, 8)]);
		break;
	case 6:
		x.seek = c->seek;
		x.step = odd[roll(seed, 8)];
		x.index = index;
		x.n_index = roll(seed, 4);
		x.more = roll(seed, 2);
		SEND(c->fd, INDICES, indices, &x);
		break;
	case 7:
		SEND(c->fd, STATUS, status, &s);
		break;
	case 8:
		k.first = (uint32_t)odd[roll(seed, 8)];
		SEND(c->fd, CLASSES, classes, &k);
		break;
	default:
		wake(c);
	}
}

START_TEST(test_messages_in_any_order_harm_no_other_client)
{
	/* Hundreds of connections that send valid messages in illegal order with odd numbers, and disconnect at any
	 * time. */
	uint32_t seed = 1;
	start_daemon();
	check_it_serves();
	for (int i = 0; i < 400; i++) {
		struct client c = { .fd = dial(), .slab = -1 };
		if (roll(&seed, 8))
			greet(c.fd);
		for (uint32_t n = roll(&seed, 12); n > 0; n--)
			say_something(&c, &seed);
		close(c.fd);
	}
	check_it_serves();
	stop_daemon();
}
END_TEST

START_TEST(test_half_open_connections_harm_no_other_client)
{
	/* A client that does not read, and one that has shut down its writing side; both only end themselves. */
	start_daemon();
	for (int how = SHUT_RD; how <= SHUT_RDWR; how++) {
		struct client c = join();
		seek_to(&c, 0, 0);
		next_batch(&c);
		shutdown(c.fd, how);
		check_it_serves();
		hang_up(&c);
	}
	check_it_serves();
	stop_daemon();
}
END_TEST

START_TEST(test_nested_and_swollen_messages_are_refused_cheaply)
{
	/* 64 KiB of nested length-delimited fields, of empty sub-messages, of one field a thousand times: refused or
	 * ignored, without noticeable time or memory. */
	static uint8_t packet[WIRE_MAX_BYTES];
	start_daemon();
	for (int kind = 0; kind < 3; kind++) {
		int fd = dial();
		greet(fd);
		size_t n = sizeof(packet);
		if (kind == 0) { /* Open inside Open inside ... : three bytes of tag and length a level */
			for (size_t i = 0, left = n; i + 4 <= n; i += 4) {
				left -= 4;
				packet[i] = 2 << 3 | 2;
				packet[i + 1] = (uint8_t)(left | 0x80);
				packet[i + 2] = (uint8_t)(left >> 7 | 0x80);
				packet[i + 3] = (uint8_t)(left >> 14);
			}
		} else {
			for (size_t i = 0; i + 2 <= n; i += 2) {
				packet[i] = kind == 1 ? 7 << 3 | 2 : 100 % 16 << 3 | 2;
				packet[i + 1] = 0;
			}
		}
		ck_assert_int_eq(send(fd, packet, n, 0), (ssize_t)n);
		if (kind == 0)
			ck_assert_int_eq(last_words(fd), CODE(PROTOCOL));
		close(fd);
		check_it_serves();
	}
	stop_daemon();
}
END_TEST

SUITE(hostile)
{
	Suite *s = suite_create("hostile");
	TCase *t = tcase_create("hostile");
	tcase_add_test(t, test_a_users_batches_get_their_share_of_the_memory);
	tcase_add_test(t, test_slots_leave_room_for_the_rings_of_their_group);
	tcase_add_test(t, test_a_trainer_without_room_for_its_ring_is_refused);
	tcase_add_test(t, test_a_user_may_have_so_many_loaders_and_unused_ones_make_room);
	tcase_add_test(t, test_a_user_gets_so_many_of_the_daemons_descriptors);
	tcase_add_test(t, test_answers_that_no_client_reads_are_limited);
	tcase_add_test(t, test_a_user_that_asks_without_end_gets_the_same_and_others_what_is_new);
	tcase_add_test(t, test_own_batches_beyond_the_window_are_illegal);
	tcase_add_test(t, test_no_process_that_has_the_slab_can_change_it);
	tcase_add_test(t, test_a_control_page_cannot_be_taken_away_from_under_the_daemon);
	tcase_add_test(t, test_messages_in_any_order_harm_no_other_client);
	tcase_add_test(t, test_half_open_connections_harm_no_other_client);
	tcase_add_test(t, test_nested_and_swollen_messages_are_refused_cheaply);
	suite_add_tcase(s, t);
	return s;
}
