/* Trainers in containers that share a daemon: one uid, and the same paths, addresses and process numbers for other
 * things. */
#include <fcntl.h>
#include <jansson.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batchd.h"
#include "support/packets.h"

static char place[64];

static void set_up(void)
{
	strcpy(place, "/tmp/test_containers.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(place));
	ck_assert_int_eq(chmod(place, 0755), 0);
}

static void tear_down(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", place);
	ck_assert_int_eq(system(command), 0);
}

static const char *in_place(const char *name)
{
	static char where[4][128];
	static unsigned turn;

	turn = (turn + 1) % 4;
	snprintf(where[turn], sizeof(where[0]), "%s/%s", place, name);
	return where[turn];
}

/* A data set of n files, whose content is never read. */
static void make_set(const char *name, unsigned n)
{
	char file[64];

	ck_assert_int_eq(mkdir(in_place(name), 0755), 0);
	snprintf(file, sizeof(file), "%s/cat", name);
	ck_assert_int_eq(mkdir(in_place(file), 0755), 0);
	for (unsigned i = 0; i < n; i++) {
		snprintf(file, sizeof(file), "%s/cat/%u.jpg", name, i);
		close(open(in_place(file), O_WRONLY | O_CREAT, 0644));
	}
}

/* ---- what the daemon compares ---- */

/* Opens the folder under a path that has nothing to do with it; returns the answer, and the connection in *fd. */
static const Batchd__Wire__ServerMessage *open_folder(const char *folder, const char *job, int *fd)
{
	Batchd__Wire__Open o = usual_open();
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	const Batchd__Wire__ServerMessage *answer;
	int dir_fd = open(in_place(folder), O_RDONLY | O_DIRECTORY);

	ck_assert_int_ge(dir_fd, 0);
	o.sources = sources_of("imagefolder:/data");
	o.transform = (char *)"train224";
	o.mode = BATCHD__WIRE__MODE__SHARE;
	o.rank = -1;
	o.job = (char *)job;
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_OPEN;
	m.open = &o;
	*fd = dial();
	greet(*fd);
	ck_assert_int_eq(wire_send(*fd, &m.base, &dir_fd, 1, 0), 0);
	close(dir_fd);
	do {
		answer = receive(*fd, NULL);
	} while (answer && answer->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_PROGRESS);
	ck_assert_ptr_nonnull(answer);
	return answer;
}

START_TEST(test_the_same_path_to_another_folder_is_a_mismatch)
{
	/* Proves that a client that joins a job is refused by name if its descriptor leads to another folder, while a
	 * client with the same folder joins; a folder is the same by any descriptor and mount. */
	const Batchd__Wire__ServerMessage *m;
	int first, again, other;

	make_set("one", 4);
	make_set("two", 1);
	start_daemon();
	m = open_folder("one", "job", &first);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED);
	ck_assert_uint_eq(m->opened->n_samples, 4);
	m = open_folder("one", "job", &again);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED);
	m = open_folder("two", "job", &other);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR);
	ck_assert_int_eq(m->error->code, CODE(MISMATCH));
	ck_assert_str_eq(m->error->field, "dataset");
	ck_assert_ptr_nonnull(strstr(m->error->text, "another folder"));
	close(other);
	m = open_folder("two", "another job", &other);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED);
	ck_assert_uint_eq(m->opened->n_samples, 1);
	close(first);
	close(again);
	close(other);
	stop_daemon();
}
END_TEST

START_TEST(test_a_folder_that_was_replaced_is_opened_anew)
{
	/* Proves that a warm job without users gives way to the same path with another folder behind it. */
	const Batchd__Wire__ServerMessage *m;
	int fd;

	make_set("one", 4);
	start_daemon();
	m = open_folder("one", "job", &fd);
	ck_assert_uint_eq(m->opened->n_samples, 4);
	Batchd__Wire__Close bye = BATCHD__WIRE__CLOSE__INIT;

	SEND(fd, CLOSE, close, &bye);
	ck_assert_int_eq(last_words(fd), -1);
	close(fd);
	ck_assert_int_eq(rename(in_place("one"), in_place("old")), 0);
	make_set("one", 3);
	m = open_folder("one", "job", &fd);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED);
	ck_assert_uint_eq(m->opened->n_samples, 3);
	close(fd);
	stop_daemon();
}
END_TEST

/* Whether this user may create namespaces; prints it if not. */
static bool can_unshare(int flags)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		_exit(unshare(flags) || ((flags & CLONE_NEWNS) && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)));
	}
	waitpid(pid, &status, 0);
	if (status) {
		printf("skipped: needs the right to make namespaces (root has it)\n");
	}
	return status == 0;
}

/* ---- which users the daemon trusts ---- */

/* Opens by path alone, then by descriptor, in a process of its own that may have unshared its mounts; returns the codes
 * of both answers, -1 for Opened. */
static void open_both_ways(bool elsewhere, const char *folder, const char *job_name, int codes[2])
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (elsewhere && unshare(CLONE_NEWNS)) {
			_exit(255);
		}
		for (int i = 0; i < 2; i++) {
			Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
			const Batchd__Wire__ServerMessage *answer;
			Batchd__Wire__Open o = usual_open();
			char dataset[160], job[32];
			int dir_fd = open(in_place(folder), O_RDONLY | O_DIRECTORY), fd = dial();

			snprintf(dataset, sizeof(dataset), "imagefolder:%s", in_place(folder));
			snprintf(job, sizeof(job), "%s%d", job_name, i);
			o.sources = sources_of(dataset);
			o.transform = (char *)"train224";
			o.job = job;
			m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_OPEN;
			m.open = &o;
			greet(fd);
			wire_send(fd, &m.base, &dir_fd, (unsigned)i, 0);
			do {
				answer = receive(fd, NULL);
			} while (answer && answer->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_PROGRESS);
			codes[i] = !answer ? 15
				   : answer->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR
					   ? (int)answer->error->code
					   : 0;
			close(fd);
		}
		_exit(codes[0] | codes[1] << 4);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) != 255);
	codes[0] = WEXITSTATUS(status) & 15 ? WEXITSTATUS(status) & 15 : -1;
	codes[1] = WEXITSTATUS(status) >> 4 ? WEXITSTATUS(status) >> 4 : -1;
}

START_TEST(test_a_client_in_another_mount_namespace_is_not_trusted)
{
	/* Proves that for its own user (root, where these tests may create namespaces) the daemon opens paths and
	 * follows links in its own mount namespace only. In another namespace a path alone is refused, and so is a link
	 * that leads out of the folder; and a job that was opened with more rights admits no client from there. */
	int codes[2];

	make_set("one", 4);
	make_set("two", 1);
	ck_assert_int_eq(symlink(in_place("one/cat"), in_place("two/dog")), 0);
	start_daemon();
	open_both_ways(false, "two", "warm", codes);
	ck_assert_int_eq(codes[0], -1);
	ck_assert_int_eq(codes[1], -1);
	if (can_unshare(CLONE_NEWNS)) {
		open_both_ways(true, "two", "cold", codes);
		ck_assert_int_eq(codes[0], CODE(ACCESS));
		ck_assert_int_eq(codes[1], CODE(ACCESS));
		open_both_ways(true, "two", "warm", codes);
		ck_assert(codes[1] == CODE(ACCESS) || codes[1] == CODE(MISMATCH));
		open_both_ways(true, "one", "cold", codes);
		ck_assert_int_eq(codes[0], CODE(ACCESS));
		ck_assert_int_eq(codes[1], -1);
	}
	stop_daemon();
}
END_TEST

/* ---- how trainers name their jobs ---- */

/* A trainer in a process of its own. It writes a number when it has opened (0: it could not), then the result of
 * batchd_next for each byte that it is sent, until its input ends. Later trainers inherit the pipes of earlier ones, so
 * the last ends first. */
struct trainer {
	pid_t pid;
	int to, from;
};

static int64_t ask(struct trainer *t, bool first)
{
	int64_t answer = -1;

	if (!first) {
		ck_assert_int_eq(write(t->to, "", 1), 1);
	}
	ck_assert_int_eq(read(t->from, &answer, sizeof(answer)), sizeof(answer));
	return answer;
}

static void end(struct trainer *t)
{
	int status;

	close(t->to);
	ck_assert_int_eq(waitpid(t->pid, &status, 0), t->pid);
	ck_assert_int_eq(status, 0);
	close(t->from);
}

static void serve(int in, int out, const struct batchd_options *o)
{
	struct batchd_info info = { .size_bytes = sizeof(info) };
	struct batchd_loader *l = NULL;
	int64_t answer = 0;
	char err[512], byte;

	if (batchd_open(o, &l, err, sizeof(err)) == 0) {
		batchd_get_info(l, &info);
		answer = (int64_t)info.n_samples;
	} else {
		fprintf(stderr, "%s\n", err);
	}
	if (write(out, &answer, sizeof(answer)) != sizeof(answer)) {
		_exit(1);
	}
	for (bool started = false; read(in, &byte, 1) == 1; started = true) {
		struct batchd_batch b = { .size_bytes = sizeof(b) };

		if (!started) {
			batchd_start(l, 0, 0, 0, NULL);
		}
		answer = batchd_next(l, &b, BATCHD_FOREVER);
		if (answer == 0) {
			batchd_release(l, b.slot, b.generation);
		}
		if (write(out, &answer, sizeof(answer)) != sizeof(answer)) {
			_exit(1);
		}
	}
	batchd_close(l);
	_exit(0);
}

static struct trainer begin(int flags, const char *volume, const struct batchd_options *o)
{
	struct trainer t;
	int to[2], from[2];

	ck_assert_int_eq(pipe2(to, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(from, O_CLOEXEC), 0);
	t.pid = fork();
	if (t.pid == 0) {
		close(to[1]);
		if (unshare(flags) || (volume && (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
						  mount(in_place(volume), in_place("data"), NULL, MS_BIND, NULL)))) {
			_exit(2);
		}
		serve(to[0], from[1], o);
	}
	t.to = to[1];
	t.from = from[0];
	close(to[0]);
	close(from[1]);
	return t;
}

static struct batchd_options options(const char *dataset)
{
	struct batchd_options o;

	batchd_options_init(&o);
	o.socket = path;
	o.autostart = 0;
	o.dataset = dataset;
	o.batch_size = 1;
	return o;
}

START_TEST(test_share_groups_of_two_containers_do_not_meet)
{
	/* Proves that two containers of one user with different volumes at one path each get their own data, while a
	 * second trainer with the same volume shares the first one's job. */
	char dataset[128];
	struct trainer a, b, c;

	if (!can_unshare(CLONE_NEWNS)) {
		return;
	}
	make_set("one", 4);
	make_set("two", 1);
	ck_assert_int_eq(mkdir(in_place("data"), 0755), 0);
	snprintf(dataset, sizeof(dataset), "imagefolder:%s/data", place);
	start_daemon();
	struct batchd_options o = options(dataset);

	o.mode = BATCHD_SHARE;
	o.rank = -1;
	a = begin(CLONE_NEWNS, "one", &o);
	ck_assert_int_eq(ask(&a, true), 4);
	b = begin(CLONE_NEWNS, "two", &o);
	ck_assert_int_eq(ask(&b, true), 1);
	c = begin(CLONE_NEWNS, "one", &o);
	ck_assert_int_eq(ask(&c, true), 4);

	/* The number of jobs, as the daemon reports it. */
	Batchd__Wire__StatusRequest r = BATCHD__WIRE__STATUS_REQUEST__INIT;
	const Batchd__Wire__ServerMessage *m;
	int fd = dial();

	greet(fd);
	SEND(fd, STATUS, status, &r);
	m = receive(fd, NULL);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_STATUS);
	json_t *status = json_loadb((char *)m->status->json.data, m->status->json.len, 0, NULL);

	ck_assert_uint_eq(json_array_size(json_object_get(status, "loaders")), 2);
	json_decref(status);
	close(fd);
	end(&c);
	end(&b);
	end(&a);
	stop_daemon();
}
END_TEST

START_TEST(test_runs_of_two_containers_do_not_fence_each_other)
{
	/* Proves that two runs with the same rendezvous, each in a network of its own, are two jobs: rank 0 of the
	 * second takes nothing from rank 0 of the first. Within one network it takes its place, as a restarted rank
	 * must. */
	static const char *const runs[][2] = { { "MASTER_PORT", "29500" }, { "TORCHELASTIC_RUN_ID", "1" } };
	struct trainer a, b;

	if (!can_unshare(CLONE_NEWNET)) {
		return;
	}
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	setenv(runs[_i][0], runs[_i][1], 1);
	start_daemon();
	struct batchd_options o = options("random:length=1000,shape=4");

	o.world_size = 2;
	o.rank = 0;
	o.reconnect_ms = 0;
	a = begin(CLONE_NEWNET, NULL, &o);
	ck_assert_int_eq(ask(&a, true), 1000);
	ck_assert_int_eq(ask(&a, false), 0);
	b = begin(CLONE_NEWNET, NULL, &o);
	ck_assert_int_eq(ask(&b, true), 1000);
	ck_assert_int_eq(ask(&b, false), 0);
	for (int i = 0; i < 50; i++) { /* more than its ring holds */
		ck_assert_int_eq(ask(&a, false), 0);
	}
	end(&b);
	end(&a);
	a = begin(0, NULL, &o);
	ck_assert_int_eq(ask(&a, true), 1000);
	b = begin(0, NULL, &o);
	ck_assert_int_eq(ask(&b, true), 1000);
	int64_t answer = 0;

	for (int i = 0; i < 50 && answer == 0; i++) {
		answer = ask(&a, false);
	}
	ck_assert_int_eq(answer, BATCHD_E_FENCED);
	end(&b);
	end(&a);
	stop_daemon();
}
END_TEST

SUITE(containers)
{
	Suite *s = suite_create("containers");
	TCase *t = tcase_create("containers");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, test_the_same_path_to_another_folder_is_a_mismatch);
	tcase_add_test(t, test_a_folder_that_was_replaced_is_opened_anew);
	tcase_add_test(t, test_a_client_in_another_mount_namespace_is_not_trusted);
	tcase_add_test(t, test_share_groups_of_two_containers_do_not_meet);
	tcase_add_loop_test(t, test_runs_of_two_containers_do_not_fence_each_other, 0, 2);
	suite_add_tcase(s, t);
	return s;
}
