/* Memory that runs out in the daemon: of all the allocations (and mappings, and shared memory) of a trainer's whole
 * life, the n-th fails, for every n: once, and with all that follow. An affected client gets an error or loses its
 * connection; nothing crashes or hangs, the next trainer is served, and at the end nothing is left (checked by the
 * daemon's exit status for charges, by the sanitizers for memory). The linker's --wrap counts calls of our own objects
 * (see the Makefile), so that it works under the sanitizers, too. */
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "support/jpegs.h"
#include "support/packets.h"
#include "support/suite.h"

/* Shared with the daemon's process. */
static struct {
	atomic_long countdown; /* calls until one fails; 0 and below: none does */
	atomic_bool for_good;  /* and all that follow it */
	atomic_bool failing;
	atomic_uint n_failed;
	atomic_bool starting; /* a daemon that cannot start ends without cleaning up */
} *shortage;

__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return shortage && atomic_load(&shortage->starting);
}

/* Under a sanitizer a process takes a tenth of a second to start and end. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { START_STEP = 7 };
#else
enum { START_STEP = 1 };
#endif

static bool in_daemon;

static bool refuses(void)
{
	if (!in_daemon)
		return false;
	bool hit = atomic_load(&shortage->failing);
	if (!hit && atomic_load(&shortage->countdown) > 0 && atomic_fetch_sub(&shortage->countdown, 1) == 1) {
		hit = true;
		atomic_store(&shortage->failing, atomic_load(&shortage->for_good));
	}
	if (hit) {
		atomic_fetch_add(&shortage->n_failed, 1);
		errno = ENOMEM;
	}
	return hit;
}

#define WRAP(type, name, parameters, arguments, failure) \
	type __real_##name parameters; \
	type __wrap_##name parameters; \
	type __wrap_##name parameters \
	{ \
		return refuses() ? failure : __real_##name arguments; \
	}

WRAP(void *, malloc, (size_t n), (n), NULL)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), NULL)
WRAP(void *, realloc, (void *p, size_t n), (p, n), NULL)
WRAP(void *, aligned_alloc, (size_t align, size_t n), (align, n), NULL)
WRAP(char *, strdup, (const char *s), (s), NULL)
WRAP(void *, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t offset), (at, n, prot, flags, fd, offset),
     MAP_FAILED)
WRAP(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1)
WRAP(int, fallocate, (int fd, int mode, off_t offset, off_t n), (fd, mode, offset, n), -1)

static void arm(long n, bool for_good)
{
	atomic_store(&shortage->n_failed, 0);
	atomic_store(&shortage->failing, false);
	atomic_store(&shortage->for_good, for_good);
	atomic_store(&shortage->countdown, n);
}

/* Whether the shortage came. */
static bool disarm(void)
{
	atomic_store(&shortage->countdown, 0);
	atomic_store(&shortage->for_good, false);
	atomic_store(&shortage->failing, false);
	return atomic_load(&shortage->n_failed) > 0;
}

/* ---- a trainer that accepts every outcome ---- */

static char last_error[WIRE_MAX_TEXT + 1];

/* False: the connection has ended, perhaps with an error. */
static bool is_alive(const Batchd__Wire__ServerMessage *m)
{
	if (m && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR)
		strcpy(last_error, m->error->text);
	return m && m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR;
}

static bool takes_batch(struct client *c)
{
	const Batchd__Wire__ServerMessage *m = next_message(c);
	if (!is_alive(m))
		return false;
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH);
	release(c, m->batch->slot, m->batch->generation);
	return true;
}

static void push(struct client *c, uint64_t step)
{
	uint64_t index[2] = { step, step };
	Batchd__Wire__Indices x = BATCHD__WIRE__INDICES__INIT;
	x.seek = c->seek;
	x.step = step;
	x.n_index = 2;
	x.index = index;
	SEND(c->fd, INDICES, indices, &x);
}

/* -1: the daemon has ended. */
static int try_dial(void)
{
	struct sockaddr_un address;
	socklen_t n;
	wire_address(path, &address, &n);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connect(fd, (struct sockaddr *)&address, n) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Everything that a trainer does in its life. True: all of it succeeded. */
static bool live(Batchd__Wire__Open *o)
{
	struct client c = { .fd = try_dial(), .slab = -1 };
	if (c.fd < 0)
		return false;
	Batchd__Wire__Hello h = BATCHD__WIRE__HELLO__INIT;
	Batchd__Wire__ClassesRequest k = BATCHD__WIRE__CLASSES_REQUEST__INIT;
	Batchd__Wire__Close bye = BATCHD__WIRE__CLOSE__INIT;
	h.version = WIRE_VERSION;
	h.program = (char *)"needy";
	SEND(c.fd, HELLO, hello, &h);
	SEND(c.fd, OPEN, open, o);
	bool ok = is_alive(receive(c.fd, NULL)) && is_alive(await_answer(&c));
	if (ok)
		seek_to(&c, 0, 0);
	for (uint64_t step = 0; ok && step < 6; step++) {
		if (o->own_batches)
			push(&c, step);
		ok = takes_batch(&c);
	}
	if (ok) {
		SEND(c.fd, CLASSES, classes, &k);
		ok = is_alive(receive(c.fd, NULL));
	}
	if (ok) {
		SEND(c.fd, CLOSE, close, &bye);
		while (receive(c.fd, NULL))
			;
	}
	hang_up(&c);
	return ok;
}

/* ---- the daemon ---- */

static void needy_daemon(struct config *c)
{
	c->linger_ns = 0;
	c->workers = 2;
	c->io_threads = 2;
	c->limits.sessions = c->limits.sessions_per_user = 65536; /* trainers that fail while they hold batches stay:
	                                                           * they are this process, which lives on */
	c->limits.fds_per_user = 1 << 20;
	signal(SIGTERM, SIG_IGN); /* Check's handler would end the test; the daemon installs its own */
	in_daemon = true;
}

static void setup(void)
{
	shortage = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shortage, MAP_FAILED);
}

/* The n-th allocation fails, for every n up to their number; after each failure another trainer is served. */
static unsigned fail_each(Batchd__Wire__Open *o, bool for_good)
{
	unsigned n = 1;
	ck_assert_msg(live(o), "%s", last_error); /* allocations that are made once per process */
	for (;; n++) {
		arm(n, for_good);
		bool ok = live(o);
		bool came = disarm();
		ck_assert_msg(ok || came, "the trainer failed without a shortage: %s", last_error);
		check_it_serves();
		if (!came)
			return n - 1;
		ck_assert_uint_lt(n, 5000);
	}
}

static void check_open(Batchd__Wire__Open o, unsigned least)
{
	start_daemon_with(needy_daemon);
	unsigned once = fail_each(&o, false), for_good = fail_each(&o, true);
	printf("%u and %u allocations failed\n", once, for_good);
	ck_assert_uint_ge(once, least);
	ck_assert_uint_ge(for_good, least);
	stop_daemon();
}

START_TEST(test_any_allocation_may_fail_for_a_trainer)
{
	/* In shard mode, a trainer that shares, and a trainer with index batches of its own. */
	Batchd__Wire__Open o = usual_open();
	o.shuffle = true;
	if (_i == 1) {
		o.mode = BATCHD__WIRE__MODE__SHARE;
		o.rank = -1;
	} else if (_i == 2) {
		o.shuffle = false;
		o.own_batches = true;
	}
	check_open(o, 15);
}
END_TEST

static void write_picture(const char *name)
{
	struct jpeg_recipe r = {
		.width = 32, .height = 24, .n_components = 3, .h = 2, .v = 2, .quality = 90, .noise = 20
	};
	size_t n;
	uint8_t *bytes = jpeg_make(&r, 1, &n);
	FILE *f = fopen(name, "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
	fclose(f);
	free(bytes);
}

START_TEST(test_any_allocation_may_fail_for_pictures)
{
	/* Indexing a folder, decoding, resizing, the caches. */
	char root[64] = "/tmp/batchd-shortage-XXXXXX", name[160], source[96], command[128];
	ck_assert_ptr_nonnull(mkdtemp(root));
	for (int i = 0; i < 8; i++) {
		snprintf(name, sizeof(name), "%s/%c", root, 'a' + i % 2);
		mkdir(name, 0755);
		snprintf(name, sizeof(name), "%s/%c/%d.jpg", root, 'a' + i % 2, i);
		write_picture(name);
	}
	snprintf(source, sizeof(source), "imagefolder:%s", root);
	Batchd__Wire__Open o = usual_open();
	o.sources = sources_of(source);
	o.batch_size = 2;
	o.dtype = BATCHD__WIRE__DTYPE__FLOAT32;
	o.transform = (char *)"[[\"RandomResizedCrop\", 16], \"RandomHorizontalFlip\", \"ToTensor\"]";
	check_open(o, 40);
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(test_any_allocation_may_fail_while_starting)
{
	/* It starts, or prints why not and exits with 1: no signal, no hang. */
	Batchd__Wire__Open o = usual_open();
	unsigned n_starts = 0;
	atomic_store(&shortage->starting, true);
	for (unsigned n = 1; n < 5000; n += START_STEP) {
		int status;
		bool for_good = n % 2 == 0;
		arm(n, for_good);
		start_daemon_with(needy_daemon);
		live(&o);
		bool came = disarm();
		pid_t gone = 0;
		for (int tries = 0; tries < 2000 && !gone; tries++) {
			if (live(&o)) /* it serves, so it has its signal handlers */
				kill(daemon_pid, SIGTERM);
			gone = waitpid(daemon_pid, &status, WNOHANG);
			if (!gone)
				usleep(1000);
		}
		ck_assert_int_eq(gone, daemon_pid);
		ck_assert_msg(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 1),
			      "allocation %u: status %x", n, status);
		n_starts += WEXITSTATUS(status) == 0;
		unlink(path);
		rmdir(dir);
		if (!came)
			break;
		ck_assert_uint_lt(n, 4980);
	}
	ck_assert_uint_ge(n_starts, 1);
}
END_TEST

SUITE(shortage)
{
	Suite *s = suite_create("shortage");
	TCase *t = tcase_create("shortage");
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_loop_test(t, test_any_allocation_may_fail_for_a_trainer, 0, 3);
	tcase_add_test(t, test_any_allocation_may_fail_for_pictures);
	tcase_add_test(t, test_any_allocation_may_fail_while_starting);
	suite_add_tcase(s, t);
	return s;
}
