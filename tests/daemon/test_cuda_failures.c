/* Each call of the driver that a trainer makes may fail, in each way, at each time: either with a message that names
 * the error or without an effect, and without leaks. test_gpus.c does the same to the daemon's GPU thread,
 * tests/soak/soak_gpu_failures.py to whole processes.
 *
 * A run without failures counts the calls. Then there is one run for each call and kind of error, in a process of its
 * own, because fatal errors stay. Every run is a trainer's life: open, batches taken and given back in every way,
 * close; then, after a temporary error, the same once more without an error. */
#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../client/batchd.h"
#include "loader/dlpack.h"
#include "gpu/driver.h"
#include "fake/cuda/fakecuda.h"
#include "support/jpegs.h"
#include "support/packets.h"
#include "support/suite.h"

/* Left out: 1: all but the first and the last call of each function; 2: all but the first, and all kinds but one. */
#if defined(__SANITIZE_THREAD__)
enum { SLOW = 2 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SLOW = 1 };
#else
enum { SLOW = 0 };
#endif

enum { SIDE = 24, BATCH = 4, AT_ONCE = 3, MOST_NAMES = 80 };

/* For a batch: only a trainer that hangs waits so long, and then says at which failure. */
enum { WAIT_MS = 300000 };

static const char *const names[] = {
#define X(member, symbol, parameters) #symbol,
	CUDA_CALLS(X)
#undef X
		"run", /* an operation of a stream */
};
enum { N_NAMES = sizeof names / sizeof *names };

static char pictures[128];

/* ---- in the child ---- */

static struct cuda_driver cu;
static struct cuda_stream *stream;
static cuda_ptr tensor;
static bool (*inject)(const char *spec);
static uint64_t (*counter)(const char *name);
static unsigned (*alive)(void);
static const char *(*last_violation)(void);
static const char *failing = ""; /* the rule */

static void wrong(const char *what, const char *text)
{
	fprintf(stderr, "%s: %s: %s\n", failing, what, text);
	_exit(1);
}

static void find(void *library, const char *name, void *to)
{
	void *f = dlsym(library, name);

	if (!f)
		wrong("the fake driver has no", name);
	memcpy(to, &f, sizeof f);
}

static void begin_cuda(const char *personality)
{
	struct cuda_context *context;
	void *library;
	char why[256];

	if (*personality)
		setenv("FAKECUDA_PERSONALITY", personality, 1);
	setenv("FAKECUDA_QUIET", "1", 1);
	if (cuda_driver_load(&cu, why, sizeof why))
		wrong("no double", why);
	library = dlopen(getenv("BATCHD_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
	find(library, "fakecuda_fail", &inject);
	find(library, "fakecuda_counter", &counter);
	find(library, "fakecuda_alive", &alive);
	find(library, "fakecuda_last_violation", &last_violation);
	if (cu.init(0) || cu.primary_ctx_retain(&context, 0) || cu.ctx_set_current(context) ||
	    cu.stream_create_with_priority(&stream, CUDA_STREAM_NON_BLOCKING, 0) ||
	    cu.mem_alloc(&tensor, BATCH * SIDE * SIDE * 3 * 4))
		wrong("the fake driver", "does not work");
}

/* One kind of use of a batch, given back or kept. Returns a code. */
static int use(struct batchd_loader *l, const struct batchd_batch *b, unsigned way)
{
	struct dl_managed *m;
	int r;

	if (way == 2) {
		r = batchd_cuda_dlpack(l, b, 0, stream, (void **)&m);
		if (r == 0)
			r = batchd_cuda_add_stream(l, b->slot, b->generation, NULL);
		if (m)
			m->deleter(m);
		return r;
	}
	r = batchd_cuda_finish(l, b, (void *)(uintptr_t)tensor, stream);
	if (r == 0 && way == 1)
		r = batchd_cuda_labels(l, b, (void *)(uintptr_t)tensor, stream);
	return r < 0 ? r : batchd_cuda_release(l, b->slot, b->generation, stream);
}

/* A trainer's life. Returns the code that ended it, with its text, or 0. */
static int life(char text[4096])
{
	struct batchd_options o;
	struct batchd_batch b = { .size_bytes = sizeof b };
	struct batchd_info info = { .size_bytes = sizeof info };
	struct batchd_loader *l;
	char dataset[160], job[64];
	int r;

	batchd_options_init(&o);
	snprintf(dataset, sizeof dataset, "imagefolder:%s", pictures);
	snprintf(job, sizeof job, "failures %d", (int)getpid());
	o.socket = path;
	o.dataset = dataset;
	o.job = job;
	o.transform = "[[\"CenterCrop\", 24], \"ToTensor\"]";
	o.batch_size = BATCH;
	o.n_slots = 3;
	o.device = "cuda";
	o.reconnect_ms = 0;
	r = batchd_open(&o, &l, text, 4096);
	if (r < 0)
		return r;
	batchd_get_info(l, &info);
	r = batchd_start(l, 0, 0, 0, NULL);
	for (unsigned i = 0; i < 5 && r == 0; i++) {
		r = batchd_next(l, &b, WAIT_MS);
		if (r == BATCHD_AGAIN)
			wrong("no batch", "for 300 s");
		if (r == BATCHD_END)
			r = batchd_start(l, 1, 0, 0, NULL);
		else if (r == BATCHD_OK)
			r = info.can_finish ? use(l, &b, i % 3) : use(l, &b, 2);
		snprintf(text, 4096, "%s", r < 0 ? batchd_error(l) : "");
		if (r < 0)
			(void)batchd_release(l, b.slot, b.generation); /* refused, if it is on its way back */
	}
	batchd_close(l);
	return r;
}

static bool gives_back(const char *name)
{
	return strstr(name, "Destroy") || strstr(name, "Free") || strstr(name, "Unregister") ||
	       strstr(name, "Release") || strstr(name, "Unmap") || strstr(name, "Unload") || strstr(name, "Close") ||
	       strstr(name, "PopCurrent");
}

/* The n-th call of that name ends in error. */
static void fail_one(const char *name, unsigned nth, int error)
{
	char rule[96], text[4096] = "";
	unsigned before = alive();
	bool fatal = cuda_error_sticky(error);
	int r;

	snprintf(rule, sizeof rule, "%s:%u=%d", name, nth, error);
	failing = rule;
	if (!inject(rule))
		wrong("the fake driver does not know", name);
	r = life(text);
	inject(NULL);
	if (r < 0 && !strstr(text, cuda_error_name(&cu, error)) && !strstr(text, "no memory of the loader's GPU"))
		wrong("no clear message", text);
	if (fatal)
		return;
	r = life(text);
	if (r < 0)
		wrong("the next life failed", text);
	if (!gives_back(name) && alive() != before)
		wrong("things are left", "alive");
	if (!gives_back(name) && counter("violations"))
		wrong("a rule was broken", last_violation());
}

/* ---- in the test ---- */

/* "cuMemAlloc" of "cuMemAlloc_v2": the fake driver's names of calls. */
static void short_name(const char *symbol, char out[64])
{
	char *version;

	snprintf(out, 64, "%s", symbol);
	version = strstr(out, "_v");
	if (version)
		*version = '\0';
}

static void make_pictures(void)
{
	char name[300];

	snprintf(pictures, sizeof pictures, "%s-pictures", dir);
	mkdir(pictures, 0700);
	for (unsigned i = 0; i < 10; i++) {
		struct jpeg_recipe r = {
			.width = 40 + i, .height = 33, .n_components = 3, .h = 2, .v = 2, .quality = 90, .noise = 90
		};
		size_t n;
		uint8_t *bytes = jpeg_make(&r, i + 1, &n);
		FILE *f;

		snprintf(name, sizeof name, "%s/%u", pictures, i % 2);
		mkdir(name, 0700);
		snprintf(name, sizeof name, "%s/%u/%u.jpg", pictures, i % 2, i);
		f = fopen(name, "w");
		fwrite(bytes, n, 1, f);
		fclose(f);
		free(bytes);
	}
}

static void adjust(struct config *c)
{
	c->linger_ns = 0;
}

static void setup(void)
{
	static char driver[4200];

	snprintf(driver, sizeof driver, "%s/libfakecuda.so", getenv("BATCHD_BUILD") ? getenv("BATCHD_BUILD") : "build");
	setenv("BATCHD_LIBCUDA", driver, 1);
	setenv("FAKECUDA_DELAY_US", "0", 1);
	start_daemon_with(adjust);
	make_pictures();
}

static void teardown(void)
{
	char command[200];

	stop_daemon();
	snprintf(command, sizeof command, "rm -rf '%s'", pictures);
	ck_assert_int_eq(system(command), 0);
}

/* How often a life makes each call. */
static void count_calls(const char *personality, unsigned *counts)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		char text[4096] = "";

		begin_cuda(personality);
		for (unsigned i = 0; i < N_NAMES; i++) {
			char name[64];

			short_name(names[i], name);
			counts[i] = (unsigned)counter(name);
		}
		if (life(text) < 0)
			wrong("without an error", text);
		for (unsigned i = 0; i < N_NAMES; i++) {
			char name[64];

			short_name(names[i], name);
			counts[i] = (unsigned)counter(name) - counts[i];
		}
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}

static unsigned n_running, n_wrong;

static void reap(unsigned most)
{
	while (n_running > most) {
		int status;
		pid_t pid = waitpid(-1, &status, 0);

		ck_assert_int_gt(pid, 0);
		ck_assert_msg(pid != daemon_pid, "the daemon has ended: %x", status);
		n_running--;
		n_wrong += status != 0;
		if (WIFSIGNALED(status))
			fprintf(stderr, "a trainer died of signal %d\n", WTERMSIG(status));
	}
}

static void start(const char *personality, const char *name, unsigned nth, int error)
{
	reap(AT_ONCE - 1);
	pid_t child = fork();
	if (child == 0) {
		begin_cuda(personality);
		fail_one(name, nth, error);
		_exit(0);
	}
	ck_assert_int_gt(child, 0);
	n_running++;
}

static const char *const personalities[] = { "", "no-ipc", "no-ipc,read-only-register", "no-legacy-ipc" };

START_TEST(test_every_call_may_fail_in_every_way)
{
	/* By IPC, by copying, by copying through pinned memory, and by a descriptor after IPC has failed. */
	const char *personality = personalities[_i];
	unsigned *counts = mmap(NULL, sizeof *counts * MOST_NAMES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				-1, 0),
		 n = 0, n_names = 0;

	setup();
	count_calls(personality, counts);
	n_running = n_wrong = 0;
	for (unsigned i = 0; i < N_NAMES; i++) {
		char name[64];

		short_name(names[i], name);
		n_names += counts[i] > 0;
		for (unsigned nth = 1; nth <= counts[i]; nth++) {
			const int kinds[] = { CUDA_OUT_OF_MEMORY, CUDA_INVALID_VALUE, CUDA_NOT_SUPPORTED,
					      nth % 2 ? CUDA_ILLEGAL_ADDRESS : CUDA_ECC_UNCORRECTABLE };

			for (unsigned k = 0; k < 4; k++) {
				if (!strcmp(name, "run") && !cuda_error_sticky(kinds[k]))
					continue; /* queued work fails fatally or not at all */
				if (((SLOW || !suite_is_whole()) && ((nth > 1 && nth < counts[i]) || k % 3 != 0)) ||
				    (SLOW == 2 && (nth > 1 || k > 0)))
					continue;
				start(personality, name, nth, kinds[k]);
				n++;
			}
		}
	}
	reap(0);
	ck_assert_msg(!n_wrong, "%u of %u failures are not dealt with", n_wrong, n);
	ck_assert_uint_ge(n_names, 15);
	ck_assert_uint_ge(n, SLOW == 2 ? 15 : SLOW || !suite_is_whole() ? 40 : 200);
	munmap(counts, sizeof *counts * MOST_NAMES);
	teardown();
}
END_TEST

/* ---- the end of a process ---- */

static struct batchd_loader *late;
static struct batchd_batch late_batch = { .size_bytes = sizeof late_batch };

/* Registered before CUDA was initialised, so it runs after the driver has shut down. */
static void close_late(void)
{
	int r = batchd_cuda_release(late, late_batch.slot, late_batch.generation, stream);

	if (r != BATCHD_E_GPU || !strstr(batchd_error(late), "CUDA_ERROR_DEINITIALIZED"))
		wrong("a release after the driver's end", batchd_error(late));
	batchd_close(late);
	if (counter("violations"))
		wrong("a rule was broken", last_violation());
	_exit(7);
}

static void exit_with_a_batch(void)
{
	struct batchd_options o;
	struct dl_managed *m;
	char text[4096];

	atexit(close_late);
	begin_cuda("");
	batchd_options_init(&o);
	o.socket = path;
	o.dataset = "random:length=100,shape=64,dtype=uint8";
	o.device = "cuda";
	o.batch_size = BATCH;
	if (batchd_open(&o, &late, text, sizeof text) < 0)
		wrong("batchd_open", text);
	if (batchd_start(late, 0, 0, 0, NULL) < 0 || batchd_next(late, &late_batch, WAIT_MS) != BATCHD_OK ||
	    batchd_cuda_dlpack(late, &late_batch, 0, stream, (void **)&m) < 0)
		wrong("a tensor", batchd_error(late));
	m->deleter(m); /* like a tensor that an interpreter destroys at its end */
	if (batchd_next(late, &late_batch, WAIT_MS) != BATCHD_OK)
		wrong("batchd_next", batchd_error(late));
	exit(0);
}

START_TEST(test_a_loader_outlives_the_driver)
{
	/* Closed by an atexit handler after the driver has shut down: a clear error, no crash, no wait. */
	int status;
	pid_t child;

	setup();
	child = fork();
	if (child == 0)
		exit_with_a_batch();
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 7, "%x", status);
	teardown();
}
END_TEST

SUITE(cuda_failures)
{
	Suite *s = suite_create("cuda_failures");
	TCase *t = tcase_create("cuda_failures");

	tcase_add_loop_test(t, test_every_call_may_fail_in_every_way, 0, 4);
	tcase_add_test(t, test_a_loader_outlives_the_driver);
	suite_add_tcase(s, t);
	return s;
}
