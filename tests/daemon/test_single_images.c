/* Single images over the wire: rows as libjpeg decodes them, and clients that break the rules, ask without end, or die in
 * the middle. The daemon's exit status says that no charge and no descriptor is left. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "support/jpegs.h"
#include "support/packets.h"

enum { EDGE = 64, ROW = EDGE * EDGE * 3 };

static const char *const whole = "[[\"CenterCrop\", [64, 64]], \"ToTensor\"]";

struct caller {
	int fd, memfd, slab;
	uint32_t n_slots;
	uint64_t slot_bytes, row_bytes;
	const uint8_t *rows;
	uint8_t *jpeg;
	size_t n_bytes;
};

static void send_open(int fd, const char *transform, int memfd)
{
	Batchd__Wire__LoadOpen o = BATCHD__WIRE__LOAD_OPEN__INIT;
	o.transform = (char *)transform;
	o.layout = BATCHD__WIRE__LAYOUT__NHWC;
	while (wire_send(fd, &WIRE_CLIENT(LOAD_OPEN, load_open, &o)->base, &memfd, 1, 0) == -EINTR)
		;
}

static struct caller call_with(const char *transform)
{
	struct caller c = { .fd = dial(), .memfd = memfd_create("images", MFD_CLOEXEC), .slab = -1 };
	const struct jpeg_recipe r = {
		.width = EDGE, .height = EDGE, .n_components = 3, .h = 2, .v = 2, .quality = 85, .noise = 40
	};
	c.jpeg = jpeg_make(&r, 1, &c.n_bytes);
	greet(c.fd);
	send_open(c.fd, transform, c.memfd);
	const Batchd__Wire__ServerMessage *m = receive(c.fd, &c.slab);
	ck_assert_ptr_nonnull(m);
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR)
		ck_abort_msg("%s", m->error->text);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_LOAD_OPENED);
	c.n_slots = m->load_opened->n_slots;
	c.slot_bytes = m->load_opened->slot_bytes;
	c.row_bytes = m->load_opened->row_bytes;
	c.rows = mmap(NULL, c.n_slots * c.slot_bytes, PROT_READ, MAP_SHARED, c.slab, 0);
	ck_assert_ptr_ne(c.rows, MAP_FAILED);
	return c;
}

static struct caller call(void)
{
	return call_with(whole);
}

static void put(const struct caller *c, uint64_t offset)
{
	ck_assert_int_eq(pwrite(c->memfd, c->jpeg, c->n_bytes, (off_t)offset), (ssize_t)c->n_bytes);
}

static void ask(const struct caller *c, uint32_t slot, uint64_t offset, uint64_t n_bytes)
{
	Batchd__Wire__Load l = BATCHD__WIRE__LOAD__INIT;
	l.slot = slot;
	l.offset = offset;
	l.n_bytes = n_bytes;
	SEND(c->fd, LOAD, load, &l);
}

static const Batchd__Wire__Loaded *answer(const struct caller *c)
{
	const Batchd__Wire__ServerMessage *m = receive(c->fd, NULL);
	ck_assert_ptr_nonnull(m);
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR)
		ck_abort_msg("%s", m->error->text);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_LOADED);
	return m->loaded;
}

static void finish(struct caller *c)
{
	munmap((void *)c->rows, c->n_slots * c->slot_bytes);
	close(c->slab);
	close(c->memfd);
	close(c->fd);
	free(c->jpeg);
}

static void check_row(const struct caller *c, uint32_t slot)
{
	struct jpeg_in in;
	uint8_t pixels[ROW];
	ck_assert_int_eq(jpeg_in_open(&in, c->jpeg, c->n_bytes), 0);
	ck_assert_int_eq(jpeg_in_pixels(&in, pixels), 0);
	jpeg_in_close(&in);
	ck_assert_int_eq(memcmp(c->rows + slot * c->slot_bytes, pixels, ROW), 0);
}

START_TEST(test_rows_are_what_libjpeg_decodes)
{
	/* All slots at once, twice, from several places of the memory; answers come in any order, each once. */
	start_daemon();
	struct caller c = call();
	ck_assert_uint_eq(c.row_bytes, ROW);
	ck_assert_uint_ge(c.n_slots, 4);
	for (int round = 0; round < 2; round++) {
		uint64_t seen = 0;
		for (uint32_t i = 0; i < c.n_slots; i++) {
			put(&c, i * 8192);
			ask(&c, i, i * 8192, c.n_bytes);
		}
		for (uint32_t i = 0; i < c.n_slots; i++) {
			const Batchd__Wire__Loaded *l = answer(&c);
			ck_assert_int_eq(l->code, CODE(OK));
			ck_assert(!(seen & (uint64_t)1 << l->slot));
			seen |= (uint64_t)1 << l->slot;
			check_row(&c, l->slot);
		}
	}
	finish(&c);
	stop_daemon();
}
END_TEST

START_TEST(test_bad_images_cost_no_connection)
{
	/* Damaged, empty, of a forged size, after the memory's end, at an impossible place: each is told, and the next
	 * image is made. */
	static const struct {
		uint64_t offset, n_bytes;
		const char *text;
	} bad[] = { { 0, 100, "" },
		    { 0, 0, "" },
		    { 4096, 4096, "" },
		    { 0, UINT64_MAX, "at most" },
		    { 0, (256ull << 20) + 1, "at most" },
		    { 0, 1 << 20, "memory has" },
		    { 1 << 30, 100, "memory has" },
		    { UINT64_MAX - 5, 100, "cannot read" } };
	start_daemon();
	struct caller c = call();
	put(&c, 0);
	ck_assert_int_eq(ftruncate(c.memfd, 16384), 0);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		ask(&c, 1, bad[i].offset, bad[i].n_bytes);
		const Batchd__Wire__Loaded *l = answer(&c);
		ck_assert_int_eq(l->code, CODE(BAD_DATA));
		ck_assert_msg(strlen(l->text) > 4 && strstr(l->text, bad[i].text), "%s", l->text);
		ask(&c, 1, 0, c.n_bytes);
		ck_assert_int_eq(answer(&c)->code, CODE(OK));
		check_row(&c, 1);
	}
	finish(&c);
	stop_daemon();
}
END_TEST

START_TEST(test_broken_rules_end_the_connection)
{
	/* A slot that is not there, one that is in use, a second LoadOpen, an Open after it, a Load before it. */
	start_daemon();
	for (int i = 0; i < 5; i++) {
		struct caller c = call();
		Batchd__Wire__Open o = usual_open();
		put(&c, 0);
		if (i == 0)
			ask(&c, c.n_slots, 0, c.n_bytes);
		for (int k = 0; i == 1 && k < 1000; k++) /* the worker may be as fast as these come */
			ask(&c, 0, 0, c.n_bytes);
		if (i == 2)
			send_open(c.fd, whole, c.memfd);
		if (i == 3)
			SEND(c.fd, OPEN, open, &o);
		if (i == 4) {
			close(c.fd);
			c.fd = dial();
			greet(c.fd);
			ask(&c, 0, 0, c.n_bytes);
		}
		ck_assert_int_eq(last_words(c.fd), CODE(PROTOCOL));
		finish(&c);
	}
	check_it_serves();
	stop_daemon();
}
END_TEST

START_TEST(test_only_a_memfd_is_read)
{
	/* Any other file might make a worker wait for a server. */
	start_daemon();
	int pipes[2];
	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	int files[] = { pipes[0], open("/proc/self/exe", O_RDONLY | O_CLOEXEC) };
	for (int i = 0; i < 2; i++) {
		int fd = dial();
		greet(fd);
		send_open(fd, whole, files[i]);
		ck_assert_int_eq(last_words(fd), CODE(INVALID));
		close(fd);
		close(files[i]);
	}
	close(pipes[1]);
	check_it_serves();
	stop_daemon();
}
END_TEST

START_TEST(test_a_wrong_transform_is_refused_by_name)
{
	static const char *const wrong[] = { "[[\"Nonsense\"]]", "{\"a\": \"val224\", \"b\": \"val224\"}", "[" };
	start_daemon();
	int memfd = memfd_create("images", MFD_CLOEXEC);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		int fd = dial();
		greet(fd);
		send_open(fd, wrong[i], memfd);
		const Batchd__Wire__ServerMessage *m = receive(fd, NULL);
		ck_assert_int_eq(m->error->code, CODE(INVALID));
		ck_assert_str_eq(m->error->field, "transform");
		close(fd);
	}
	close(memfd);
	stop_daemon();
}
END_TEST

START_TEST(test_a_forked_child_keeps_no_slots)
{
	/* Proves that a client ends with its process, though a child of it has the connection open. */
	int ended[2];
	char byte;
	start_daemon();
	ck_assert_int_eq(pipe2(ended, O_CLOEXEC), 0);
	pid_t client = fork();
	if (client == 0) {
		struct caller c = call();
		if (fork() == 0) {
			last_words(c.fd);
			_exit(write(ended[1], "", 1) != 1);
		}
		_exit(0);
	}
	ck_assert_int_eq(waitpid(client, NULL, 0), client);
	ck_assert_int_eq(read(ended[0], &byte, 1), 1); /* when the daemon has closed the connection */
	close(ended[0]);
	close(ended[1]);
	stop_daemon();
}
END_TEST

static void small_share(struct config *c)
{
	c->memory_bytes = 32 << 20;
	c->limits.memory_per_user = 0.25;
}

START_TEST(test_rows_are_charged_to_their_user)
{
	/* 8 MiB: some clients of large rows fit, the later ones with fewer slots; one is refused by the limit's name, and
	 * fits when the others have gone. */
	static const char *const large = "[[\"Resize\", [1024, 512]], \"ToTensor\"]"; /* 1.5 MiB a row */
	struct caller c[8];
	unsigned n = 0, slots = WIRE_MAX_LOADS;
	start_daemon_with(small_share);
	int memfd = memfd_create("images", MFD_CLOEXEC), code = 0, fd;
	while (n < 8 && code == 0) {
		c[n].fd = dial();
		greet(c[n].fd);
		send_open(c[n].fd, large, memfd);
		const Batchd__Wire__ServerMessage *m = receive(c[n].fd, NULL);
		if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR) {
			code = (int)m->error->code;
			ck_assert_str_eq(m->error->field, "memory_per_user");
		} else {
			ck_assert_uint_ge(slots, m->load_opened->n_slots);
			slots = m->load_opened->n_slots;
		}
		n++;
	}
	ck_assert_int_eq(code, CODE(LIMIT));
	ck_assert_uint_ge(n, 2);
	ck_assert_uint_lt(slots, 4);
	for (unsigned i = 0; i < n; i++)
		close(c[i].fd);
	while (code) { /* until the daemon has seen the hang-ups */
		fd = dial();
		greet(fd);
		send_open(fd, large, memfd);
		const Batchd__Wire__ServerMessage *m = receive(fd, NULL);
		code = m && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_LOAD_OPENED ? 0 : 1;
		close(fd);
		if (code)
			usleep(10000);
	}
	close(memfd);
	stop_daemon();
}
END_TEST

START_TEST(test_clients_that_die_in_the_middle_leave_nothing)
{
	/* Each hangs up with all of its slots in use, or before its slab is there; then the daemon stops at once. */
	start_daemon();
	for (int i = 0; i < 20; i++) {
		struct caller c = call();
		put(&c, 0);
		for (uint32_t k = 0; k < c.n_slots; k++)
			ask(&c, k, 0, c.n_bytes);
		finish(&c);
		int fd = dial(), memfd = memfd_create("images", MFD_CLOEXEC);
		greet(fd);
		send_open(fd, whole, memfd);
		close(memfd);
		close(fd);
	}
	struct caller c = call();
	put(&c, 0);
	for (uint32_t k = 0; k < c.n_slots; k++)
		ask(&c, k, 0, c.n_bytes);
	stop_daemon();
	finish(&c);
}
END_TEST

START_TEST(test_a_client_that_never_reads_is_ended)
{
	/* It asks for each slot again and again. The daemon keeps a bounded number of answers, tells why, and goes on; what
	 * the client held is given back. A slot that is still in use ends it too, so the loop pauses for the workers. */
	start_daemon_with(small_share);
	for (int i = 0; i < 3; i++) {
		struct caller c = call();
		int sent = 0;
		put(&c, 0);
		Batchd__Wire__Load l = BATCHD__WIRE__LOAD__INIT;
		while (sent < 100000) {
			l.slot = (uint32_t)sent++ % c.n_slots;
			if (wire_send(c.fd, &WIRE_CLIENT(LOAD, load, &l)->base, NULL, 0, 0))
				break;
			if (l.slot == c.n_slots - 1)
				usleep(2000);
		}
		ck_assert_int_lt(sent, 100000);
		finish(&c);
	}
	check_it_serves();
	stop_daemon();
}
END_TEST

START_TEST(test_clients_that_open_and_go_leave_nothing)
{
	/* Dozens at once, for more memory than their user may have; most have gone before their slab is there. */
	enum { N = 60 };
	int fd[N], memfd = memfd_create("images", MFD_CLOEXEC);
	start_daemon_with(small_share);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < N; i++) {
			fd[i] = dial();
			greet(fd[i]);
			send_open(fd[i], whole, memfd);
		}
		for (int i = 0; i < N; i++)
			close(fd[i]);
	}
	close(memfd);
	check_it_serves();
	stop_daemon();
}
END_TEST

START_TEST(test_a_reload_while_clients_open_changes_nothing_under_them)
{
	/* What an I/O thread looks at is copied before: under ThreadSanitizer this is the test. */
	start_daemon();
	int memfd = memfd_create("images", MFD_CLOEXEC);
	for (int i = 0; i < 50; i++) {
		int fd[4];
		for (int k = 0; k < 4; k++) {
			fd[k] = dial();
			greet(fd[k]);
			send_open(fd[k], whole, memfd);
			kill(daemon_pid, SIGHUP);
		}
		for (int k = 0; k < 4; k++) {
			const Batchd__Wire__ServerMessage *m = receive(fd[k], NULL);
			ck_assert_ptr_nonnull(m);
			ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_LOAD_OPENED);
			close(fd[k]);
		}
	}
	close(memfd);
	stop_daemon();
}
END_TEST

START_TEST(test_a_trainer_and_a_flood_of_images_both_go_on)
{
	/* One client keeps all of its slots busy; a trainer of the same user gets its batches meanwhile, and the client
	 * its images. */
	start_daemon();
	struct caller c = call();
	put(&c, 0);
	for (uint32_t k = 0; k < c.n_slots; k++)
		ask(&c, k, 0, c.n_bytes);
	struct client t = join();
	seek_to(&t, 0, 0);
	for (unsigned i = 0; i < 50; i++) {
		Batchd__Wire__Batch b = next_batch(&t);
		ck_assert_uint_eq(b.step, i);
		release(&t, b.slot, b.generation);
		for (int k = 0; k < 4; k++) {
			const Batchd__Wire__Loaded *l = answer(&c);
			ck_assert_int_eq(l->code, CODE(OK));
			ask(&c, l->slot, 0, c.n_bytes);
		}
	}
	hang_up(&t);
	finish(&c);
	stop_daemon();
}
END_TEST

SUITE(single_images)
{
	Suite *s = suite_create("single_images");
	TCase *t = tcase_create("load");
	tcase_add_test(t, test_rows_are_what_libjpeg_decodes);
	tcase_add_test(t, test_bad_images_cost_no_connection);
	tcase_add_test(t, test_broken_rules_end_the_connection);
	tcase_add_test(t, test_only_a_memfd_is_read);
	tcase_add_test(t, test_a_wrong_transform_is_refused_by_name);
	tcase_add_test(t, test_a_forked_child_keeps_no_slots);
	tcase_add_test(t, test_rows_are_charged_to_their_user);
	tcase_add_test(t, test_clients_that_die_in_the_middle_leave_nothing);
	tcase_add_test(t, test_a_client_that_never_reads_is_ended);
	tcase_add_test(t, test_clients_that_open_and_go_leave_nothing);
	tcase_add_test(t, test_a_reload_while_clients_open_changes_nothing_under_them);
	tcase_add_test(t, test_a_trainer_and_a_flood_of_images_both_go_on);
	suite_add_tcase(s, t);
	return s;
}
