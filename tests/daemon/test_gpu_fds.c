/* Descriptors of the daemon's memory on a GPU, and clients of another user that try to use up the daemon's descriptors:
 * clients that do not read the answers, that hang up and ask again, or that hand everything back. Against the whole
 * daemon, on the fake driver. */
#include <dirent.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "support/cuda-double.h"
#include "support/packets.h"
#include "support/suite.h"

enum { NOBODY = 65534, FDS = 60, ATTEMPTS = 200 };

static struct cuda_uuid uuid;

/* ---- fixture ---- */

/* The fake driver must not be loaded in the process that the daemon is forked from. */
static void find_uuid(void)
{
	int line[2], status;
	ck_assert_int_eq(pipe(line), 0);
	pid_t child = fork();
	if (child == 0) {
		double_load();
		uuid = uuid_of(0);
		_exit(write(line[1], &uuid, sizeof(uuid)) != sizeof(uuid));
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(read(line[0], &uuid, sizeof(uuid)), sizeof(uuid));
	close(line[0]);
	close(line[1]);
}

static void adjust(struct config *c)
{
	c->linger_ns = 0;
	c->limits.fds_per_user = FDS;
	c->limits.sessions_per_user = 10000;
	c->limits.sessions = 10000;
	c->limits.loaders_per_user = 10000;
	c->limits.loaders = 10000;
}

static void setup(void)
{
	setenv("BATCHD_LIBCUDA", double_path("libfakecuda.so"), 1);
	setenv("FAKECUDA_DELAY_US", "0", 1);
	setenv("FAKECUDA_QUIET", "1", 1);
	find_uuid();
	start_daemon_with(adjust);
	ck_assert_int_eq(chmod(dir, 0755), 0);
	ck_assert_int_eq(chmod(path, 0666), 0);
}

/* The fake driver keeps a descriptor of its own for each piece of memory beside the daemon's; a driver does not. */
static unsigned n_daemon_fds(void)
{
	char name[64], to[64];
	unsigned n = 0, n_double = 0;
	struct dirent *e;
	snprintf(name, sizeof(name), "/proc/%d/fd", (int)daemon_pid);
	DIR *d = opendir(name);
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		ssize_t size = readlinkat(dirfd(d), e->d_name, to, sizeof(to) - 1);
		to[size < 0 ? 0 : size] = '\0';
		n += size > 0;
		n_double += !strncmp(to, "/memfd:fakecuda ", 16);
	}
	closedir(d);
	return n - n_double / 2;
}

/* ---- clients ---- */

static Batchd__Wire__Open wish(unsigned job)
{
	static char name[32];
	Batchd__Wire__Open o = usual_open();
	snprintf(name, sizeof(name), "job %u", job);
	o.job = name;
	o.batch_size = 1;
	o.n_slots = 2;
	o.device_uuid = (ProtobufCBinaryData){ sizeof(uuid.bytes), uuid.bytes };
	o.device_kinds = 1u << BATCHD__WIRE__SLAB_KIND__CUDA_VMM_FD;
	return o;
}

/* A connection that the daemon greets, or -1 if it refuses. */
static int dial_greeted(void)
{
	Batchd__Wire__Hello h = BATCHD__WIRE__HELLO__INIT;
	int fd = dial();
	h.version = WIRE_VERSION;
	h.program = (char *)"attacker";
	SEND(fd, HELLO, hello, &h);
	const Batchd__Wire__ServerMessage *m = receive(fd, NULL);
	if (m && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_WELCOME)
		return fd;
	close(fd);
	return -1;
}

static bool offers(const Batchd__Wire__ServerMessage *m)
{
	return m && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED &&
	       m->opened->device_kind == BATCHD__WIRE__SLAB_KIND__CUDA_VMM_FD;
}

/* Stays connected until its process ends. */
static bool ask_and_not_read(unsigned i)
{
	static unsigned char buf[WIRE_MAX_BYTES];
	Batchd__Wire__Open o = wish(i);
	const Batchd__Wire__ServerMessage *m;
	int fd = dial_greeted();
	if (fd < 0)
		return false;
	SEND(fd, OPEN, open, &o);
	for (;;) {
		ssize_t n = recv(fd, buf, sizeof(buf), MSG_PEEK);
		if (n <= 0 || wire_unpack_server(&arena, buf, (size_t)n, &m, NULL))
			return false;
		if (m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_PROGRESS)
			return offers(m);
		(void)!recv(fd, buf, sizeof(buf), 0);
	}
}

static bool ask_and_hang_up(unsigned i)
{
	Batchd__Wire__Open o = wish(i);
	int fd = dial_greeted();
	bool offered = fd >= 0 && offers(answer_to_open(fd, &o, NULL));
	if (fd >= 0)
		close(fd);
	return offered;
}

static bool ask_and_give_back(unsigned i)
{
	Batchd__Wire__Open o = wish(i);
	Batchd__Wire__Close bye = BATCHD__WIRE__CLOSE__INIT;
	int fd = dial_greeted();
	bool offered = fd >= 0 && offers(answer_to_open(fd, &o, NULL));
	if (fd < 0)
		return false;
	SEND(fd, CLOSE, close, &bye);
	while (receive(fd, NULL))
		;
	close(fd);
	return offered;
}

/* In a process of its own, because its resources stay in use until that ends. */
static void check_it_serves_others(void)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		check_it_serves();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}

/* When no request is in progress any more: the same number for a while. */
static unsigned n_fds_at_rest(void)
{
	unsigned n = n_daemon_fds(), same = 0;
	for (unsigned i = 0; same < 50; i++) {
		ck_assert_msg(i < 10000, "the daemon does not come to rest");
		usleep(2000);
		unsigned now = n_daemon_fds();
		same = now == n ? same + 1 : 0;
		n = now;
	}
	return n;
}

/* As a user of its own. Returns how often it was offered a descriptor; *n_fds: the daemon's descriptors afterwards. */
static unsigned attack(bool (*ask)(unsigned), unsigned n_attempts, unsigned *n_fds)
{
	unsigned *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int ready[2], status;
	char byte;
	ck_assert_int_eq(pipe(ready), 0);
	pid_t child = fork();
	if (child == 0) {
		if (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY))
			_exit(1);
		close(ready[0]);
		for (unsigned i = 0; i < n_attempts; i++)
			*shared += ask(i);
		(void)!write(ready[1], "r", 1);
		pause();
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	*n_fds = n_fds_at_rest();
	check_it_serves_others();
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	unsigned n = *shared;
	munmap(shared, 4096);
	return n;
}

/* ---- tests ---- */

static bool (*const attacks[])(unsigned) = { ask_and_not_read, ask_and_hang_up, ask_and_give_back };

START_TEST(test_descriptors_of_gpu_memory_are_charged_to_their_user)
{
	/* However often a user's clients ask, and whatever they do with the answer, the daemon has at most fds_per_user
	 * descriptors open for that user; other users are served; when the processes have ended everything is as
	 * before. */
	unsigned at_work, once;
	if (geteuid()) {
		printf("skipped: becoming another user takes root\n");
		return;
	}
	setup();
	ck_assert_uint_eq(attack(ask_and_give_back, 1, &once), 1);
	unsigned idle = n_fds_at_rest();
	unsigned n = attack(attacks[_i], ATTEMPTS, &at_work);
	if (_i == 2)
		ck_assert_uint_eq(n, ATTEMPTS);
	else
		ck_assert_msg(n >= 5 && n < FDS, "%u descriptors were handed out", n);
	ck_assert_msg(at_work <= idle + FDS, "%u descriptors, %u of them before", at_work, idle);
	ck_assert_uint_eq(n_fds_at_rest(), idle);
	stop_daemon(); /* its exit status says that its accounts are balanced */
}
END_TEST

SUITE(gpu_fds)
{
	Suite *s = suite_create("gpu_fds");
	TCase *t = tcase_create("gpu_fds");

	tcase_add_loop_test(t, test_descriptors_of_gpu_memory_are_charged_to_their_user, 0, 3);
	suite_add_tcase(s, t);
	return s;
}
