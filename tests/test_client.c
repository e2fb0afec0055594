/* libbatchd against a daemon that follows a script: a thread of the test that listens on a real socket, has a real sealed memfd, and says what the
 * case wants it to say. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/sampler.h"
#include "wire.h"

#include "../client/batchd.h"

enum { N_SLOTS = 3, BATCH = 4, ROW_FLOATS = 6, N_SAMPLES = 10, N_BATCHES = 3 };

/* ---- the heap: counted, and made to fail, in one thread; the sanitizers bring their own ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_HEAP 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OWN_HEAP 0
#else
#define OWN_HEAP 1
#endif
#else
#define OWN_HEAP 1
#endif

#if OWN_HEAP
static __thread unsigned n_allocations, fail_at; /* fail_at: which one fails, from 1; 0: none */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static bool refuses(void)
{
	if (++n_allocations != fail_at)
		return false;
	errno = ENOMEM;
	return true;
}

__attribute__((visibility("default"))) void *malloc(size_t n)
{
	return refuses() ? NULL : __libc_malloc(n);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
	return refuses() ? NULL : __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *p, size_t n)
{
	return refuses() ? NULL : __libc_realloc(p, n);
}
#endif

/* ---- the daemon ---- */

struct fake {
	char dir[64], path[96];
	int listener, peer;
	int slab_fd;                 /* read-only, sealed */
	char *slab;                  /* writable */
	size_t slot_bytes;
	uint64_t generation;         /* of the last batch sent */
	struct wire_arena arena;
	unsigned char bytes[WIRE_MAX_BYTES];
	int fds[WIRE_MAX_FDS];       /* of the last message */
	unsigned n_fds;
	Batchd__Wire__Opened opened; /* what it answers to Open */
	void (*script)(struct fake *d);
	pthread_t thread;
	uint32_t shape[2];
	char job[WIRE_MAX_JOB + 1], dataset[WIRE_MAX_DATASET + 1];
	int32_t rank;
	atomic_uint step;            /* for cases in which both sides take turns */
};
static struct fake *d;
static char err[4096];
static struct batchd_loader *loader;
static struct batchd_options options;
static struct batchd_batch batch;

static const Batchd__Wire__ClientMessage *hear(struct fake *f)
{
	const Batchd__Wire__ClientMessage *m;
	size_t n = sizeof f->bytes;

	wire_close_fds(f->fds, f->n_fds);
	f->n_fds = WIRE_MAX_FDS;
	if (wire_recv(f->peer, f->bytes, &n, f->fds, &f->n_fds, 0) < 0)
		return NULL;
	ck_assert_int_eq(wire_unpack_client(&f->arena, f->bytes, n, &m, NULL), 0);
	ck_assert(wire_client_fds_ok(m, f->n_fds));
	return m;
}

static const Batchd__Wire__ClientMessage *expect(struct fake *f, Batchd__Wire__ClientMessage__BodyCase kind)
{
	const Batchd__Wire__ClientMessage *m = hear(f);

	ck_assert_msg(m && m->body_case == kind, "expected message %d, got %s", kind, m ? wire_client_name(m) : "the end");
	return m;
}
#define EXPECT(f, KIND) expect(f, BATCHD__WIRE__CLIENT_MESSAGE__BODY_##KIND)

static void say(struct fake *f, Batchd__Wire__ServerMessage__BodyCase kind, void *body, int fd)
{
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	int r;

	m.body_case = kind;
	m.welcome = body; /* all members of the union are pointers */
	r = wire_send(f->peer, &m.base, &fd, fd >= 0 ? 1 : 0, 0);
	ck_assert(r == 0 || r == -EPIPE || r == -ECONNRESET); /* the client may have left already */
}
#define SAY(f, KIND, body) say(f, BATCHD__WIRE__SERVER_MESSAGE__BODY_##KIND, body, -1)

static void say_error(struct fake *f, Batchd__Wire__ErrorCode code, const char *field, const char *text)
{
	Batchd__Wire__Error e = BATCHD__WIRE__ERROR__INIT;

	e.code = code;
	e.field = (char *)field;
	e.text = (char *)text;
	SAY(f, ERROR, &e);
}

static void greet(struct fake *f)
{
	Batchd__Wire__Welcome w = BATCHD__WIRE__WELCOME__INIT;

	f->peer = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_uint_eq(EXPECT(f, HELLO)->hello->version, WIRE_VERSION);
	w.version = WIRE_VERSION;
	w.daemon = (char *)"9.9";
	SAY(f, WELCOME, &w);
}

static void hear_open(struct fake *f)
{
	const Batchd__Wire__Open *o = EXPECT(f, OPEN)->open;

	strcpy(f->job, o->job);
	strcpy(f->dataset, o->dataset);
	f->rank = o->rank;
}

static void welcome(struct fake *f)
{
	greet(f);
	hear_open(f);
	say(f, BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED, &f->opened, f->slab_fd);
}

/* What row `row` of a batch of `generation` holds. */
static float value(uint64_t generation, unsigned row)
{
	return (float)(generation * 100 + row);
}

/* Fills a slot and lends it. */
static void lend(struct fake *f, uint64_t seek, uint64_t epoch, uint64_t step, uint32_t slot, uint32_t n_rows, bool last)
{
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;
	char *at = f->slab + slot * f->slot_bytes;

	f->generation++;
	for (unsigned row = 0; row < n_rows; row++) {
		for (unsigned i = 0; i < ROW_FLOATS; i++)
			((float *)(void *)at)[row * ROW_FLOATS + i] = value(f->generation, row);
		((int64_t *)(void *)(at + f->opened.labels_offset))[row] = row;
		((int64_t *)(void *)(at + f->opened.indices_offset))[row] = (int64_t)(step * BATCH + row);
	}
	b.seek = seek;
	b.slot = slot;
	b.generation = f->generation;
	b.epoch = epoch;
	b.step = step;
	b.n_rows = n_rows;
	b.n_padding = last ? 1 : 0;
	b.last = last;
	SAY(f, BATCH, &b);
}

static void lend_epoch(struct fake *f, uint64_t seek, uint64_t epoch)
{
	for (unsigned i = 0; i < N_BATCHES; i++)
		lend(f, seek, epoch, i, i, i == N_BATCHES - 1 ? 2 : BATCH, i == N_BATCHES - 1);
}

static void expect_releases(struct fake *f, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		EXPECT(f, RELEASE);
}

/* Waits until the other side of the test has come that far. */
static void await(struct fake *f, unsigned step)
{
	while (atomic_load(&f->step) < step)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static void *run_script(void *arg)
{
	struct fake *f = arg;

	f->script(f);
	wire_close_fds(f->fds, f->n_fds);
	f->n_fds = 0;
	if (f->peer >= 0)
		close(f->peer);
	f->peer = -1;
	return NULL;
}

static void play(void (*script)(struct fake *))
{
	d->script = script;
	ck_assert_int_eq(pthread_create(&d->thread, NULL, run_script, d), 0);
}

static void finish(void)
{
	batchd_close(loader);
	loader = NULL;
	pthread_join(d->thread, NULL);
}

/* ---- fixture ---- */

static int sealed_memfd(size_t n_bytes, int seals, char **mapping)
{
	int fd = memfd_create("slab", MFD_CLOEXEC | MFD_ALLOW_SEALING), readonly;
	char path[64];

	ck_assert_int_eq(ftruncate(fd, (off_t)n_bytes), 0);
	*mapping = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	readonly = open(path, O_RDONLY | O_CLOEXEC);
	close(fd);
	return readonly;
}

static void setup(void)
{
	struct sockaddr_un address;
	socklen_t n;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	d = calloc(1, sizeof *d);
	strcpy(d->dir, "/tmp/test-client-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(d->dir));
	snprintf(d->path, sizeof d->path, "%s/socket", d->dir);
	d->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	wire_address(d->path, &address, &n);
	ck_assert_int_eq(bind(d->listener, (struct sockaddr *)&address, n), 0);
	listen(d->listener, 8);
	wire_arena_init(&d->arena);
	d->peer = -1;
	d->slot_bytes = page;
	d->slab_fd = sealed_memfd(N_SLOTS * page, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE, &d->slab);
	d->shape[0] = 2;
	d->shape[1] = 3;
	d->opened = (Batchd__Wire__Opened)BATCHD__WIRE__OPENED__INIT;
	d->opened.dataset_id = 0xd5;
	d->opened.loader_id = 0x10;
	d->opened.n_samples = N_SAMPLES;
	d->opened.n_classes = 3;
	d->opened.world_size = 1;
	d->opened.n_shape = 2;
	d->opened.shape = d->shape;
	d->opened.dtype = BATCHD__WIRE__DTYPE__FLOAT32;
	d->opened.slab_bytes = N_SLOTS * page;
	d->opened.n_slots = d->opened.window = N_SLOTS;
	d->opened.slot_bytes = page;
	d->opened.row_bytes = ROW_FLOATS * sizeof(float);
	d->opened.labels_offset = 1024;
	d->opened.indices_offset = 2048;
	d->opened.label_dtype = BATCHD__WIRE__DTYPE__INT64;

	batchd_options_init(&options);
	options.socket = d->path;
	options.dataset = "random:";
	options.batch_size = BATCH;
	options.job = "test";
	batch = (struct batchd_batch){ .size_bytes = sizeof batch };
	loader = NULL;
}

static void teardown(void)
{
	munmap(d->slab, N_SLOTS * d->slot_bytes);
	close(d->slab_fd);
	close(d->listener);
	unlink(d->path);
	rmdir(d->dir);
	free(d);
}

static void open_loader(void)
{
	int r = batchd_open(&options, &loader, err, sizeof err);

	ck_assert_msg(r == 0, "%s", err);
}

static void next_is(uint64_t epoch, uint64_t step)
{
	int r = batchd_next(loader, &batch, BATCHD_FOREVER);

	ck_assert_msg(r == BATCHD_OK, "%s: %s", batchd_code_name(r), batchd_error(loader));
	ck_assert_uint_eq(batch.epoch, epoch);
	ck_assert_uint_eq(batch.step, step);
}

static void release(void)
{
	ck_assert_int_eq(batchd_release(loader, batch.slot, batch.generation), 0);
}

static unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* ---- epochs ---- */

static void two_epochs(struct fake *f)
{
	const Batchd__Wire__Seek *s;

	welcome(f);
	s = EXPECT(f, SEEK)->seek;
	ck_assert_uint_eq(s->epoch, 5);
	ck_assert_uint_eq(s->step, 0);
	lend_epoch(f, 1, 5);
	for (unsigned i = 0; i < N_BATCHES; i++) {
		const Batchd__Wire__Release *r = EXPECT(f, RELEASE)->release;

		ck_assert_uint_eq(r->slot, i);
		ck_assert_uint_eq(r->generation, i + 1);
		lend(f, 1, 6, i, i, i == N_BATCHES - 1 ? 2 : BATCH, i == N_BATCHES - 1);
	}
	expect_releases(f, N_BATCHES);
	EXPECT(f, CLOSE);
}

START_TEST(test_next_epoch_goes_on_without_asking)
{
	/* Two epochs, batch for batch and byte for byte; the second needs no Seek, and what comes early waits in the socket. */
	struct batchd_info info = { .size_bytes = sizeof info };
	uint64_t n = 0;

	play(two_epochs);
	open_loader();
	batchd_get_info(loader, &info);
	ck_assert_uint_eq(info.n_batches, N_BATCHES);
	ck_assert_uint_eq(info.n_samples_rank, N_SAMPLES);
	ck_assert_uint_eq(info.dataset_id, 0xd5);
	ck_assert_uint_eq(info.n_dims, 2);
	ck_assert_uint_eq(info.shape[1], 3);
	ck_assert_str_eq(info.daemon_version, "9.9");
	ck_assert_str_eq(info.socket, d->path);
	for (uint64_t epoch = 5; epoch < 7; epoch++) {
		ck_assert_int_eq(batchd_start(loader, epoch, 0, 0, &n), 0);
		ck_assert_uint_eq(n, N_BATCHES);
		for (unsigned step = 0; step < N_BATCHES; step++) {
			next_is(epoch, step);
			ck_assert_uint_eq(batch.n_rows, step == N_BATCHES - 1 ? 2 : BATCH);
			ck_assert_int_eq(batch.last, step == N_BATCHES - 1);
			for (unsigned i = 0; i < batch.n_rows * ROW_FLOATS; i++)
				ck_assert(((const float *)batch.data)[i] == value(batch.generation, i / ROW_FLOATS));
			ck_assert_int_eq(((const int64_t *)batch.labels)[1], 1);
			ck_assert_int_eq(batch.indices[1], step * BATCH + 1);
			ck_assert_uint_eq(batchd_n_leased(loader), 1);
			release();
		}
		ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_END);
		ck_assert_int_eq(batchd_next(loader, &batch, 0), BATCHD_END);
	}
	finish();
}
END_TEST

static void seek_in_mid_epoch(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend_epoch(f, 1, 0);
	EXPECT(f, RELEASE);
	ck_assert_uint_eq(EXPECT(f, SEEK)->seek->base_sample, 4);
	expect_releases(f, 2);
	lend(f, 2, 7, 1, 0, BATCH, true);
	EXPECT(f, RELEASE);
	EXPECT(f, CLOSE);
}

START_TEST(test_batches_of_an_earlier_start_are_given_back_unseen)
{
	/* A new start in mid-epoch: what was on its way never reaches the caller, and its slots return. */
	uint64_t n;

	play(seek_in_mid_epoch);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, 0, 0, NULL), 0);
	next_is(0, 0);
	release();
	ck_assert_int_eq(batchd_start(loader, 7, 4, 1, &n), 0);
	ck_assert_uint_eq(n, 1);
	next_is(7, 1);
	ck_assert_uint_eq(batch.base, 4);
	release();
	finish();
}
END_TEST

static void gap(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend(f, 1, 0, 1, 0, BATCH, false);
	hear(f);
}

START_TEST(test_gap_in_the_steps_is_a_protocol_error_that_stays)
{
	/* A batch too many or too few would train on the wrong data; the loader refuses to go on. */
	play(gap);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_PROTOCOL);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "batch 0 of epoch 0 was due"));
	ck_assert_int_eq(batchd_start(loader, 1, 0, 0, NULL), BATCHD_E_PROTOCOL);
	finish();
}
END_TEST

START_TEST(test_epoch_length_is_that_of_the_sampler)
{
	/* Both sides compute the number of batches; they must agree for every world size, base and drop_last. */
	static const uint64_t sizes[] = { 0, 1, 7, 400, 1281167 };
	static const uint32_t worlds[] = { 1, 2, 3, 8 }, batches[] = { 1, 3, 64 };

	for (unsigned i = 0; i < 5 * 4 * 3 * 2; i++) {
		struct plan_spec p = { .n_samples = sizes[i % 5], .world_size = worlds[i / 5 % 4], .drop_last = i / 60 };
		struct batchd_info info = { .size_bytes = sizeof info };

		d->opened.n_samples = p.n_samples;
		options.world_size = d->opened.world_size = p.world_size;
		options.rank = 0;
		options.drop_last = p.drop_last;
		options.batch_size = batches[i / 20 % 3];
		play(welcome);
		open_loader();
		batchd_get_info(loader, &info);
		ck_assert_uint_eq(info.n_samples_rank, plan_spec_n_per_rank(&p));
		ck_assert_uint_eq(info.n_batches, plan_n_batches(plan_spec_n_per_rank(&p), options.batch_size, p.drop_last));
		finish();
	}
}
END_TEST

static void no_seek(struct fake *f)
{
	welcome(f);
	EXPECT(f, CLOSE);
}

START_TEST(test_epoch_without_batches_ends_at_once_and_asks_for_nothing)
{
	/* A base at the epoch's end, as a token of its last batch has it. */
	uint64_t n = 9;

	play(no_seek);
	open_loader();
	ck_assert_int_eq(batchd_start(loader, 0, N_SAMPLES, 0, &n), 0);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_END);
	ck_assert_int_eq(batchd_start(loader, 0, 0, N_BATCHES, &n), 0);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_END);
	finish();
}
END_TEST

static void on_alarm(int sig)
{
	(void)sig;
}

static void silent(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	await(f, 1);
}

START_TEST(test_waiting_ends_with_the_timeout_or_a_signal)
{
	/* Nothing is ready: try_next says so at once, a time-out after its time, and a signal is passed on to callers that want it. */
	struct sigaction sa = { .sa_handler = on_alarm };
	struct timespec before, after;

	play(silent);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	ck_assert_int_eq(batchd_try_next(loader, &batch), BATCHD_AGAIN);
	clock_gettime(CLOCK_MONOTONIC, &before);
	ck_assert_int_eq(batchd_next(loader, &batch, 30), BATCHD_AGAIN);
	clock_gettime(CLOCK_MONOTONIC, &after);
	ck_assert((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 >= 29);
	sigaction(SIGALRM, &sa, NULL);
	alarm(1);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_UNTIL_SIGNAL), BATCHD_AGAIN);
	atomic_store(&d->step, 1);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_LOST);
	finish();
}
END_TEST

/* ---- writing into batches ---- */

/* Lends slot 0 again and again. */
static void one_slot(struct fake *f)
{
	const Batchd__Wire__ClientMessage *m;

	welcome(f);
	EXPECT(f, SEEK);
	for (uint64_t step = 0; ; step++) {
		lend(f, 1, 0, step, 0, BATCH, false);
		m = hear(f);
		if (!m || m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_CLOSE)
			return;
		/* What the trainer wrote never got here. */
		ck_assert(*(float *)(void *)f->slab == value(f->generation, 0));
	}
}

static void write_into_batches(void)
{
	play(one_slot);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	for (unsigned step = 0; step < 4; step++) {
		float *pixels;

		next_is(0, step);
		pixels = batch.data;
		ck_assert(pixels[0] == value(batch.generation, 0));
		if (step != 2) {
			pixels[0] = -1;
			((int64_t *)batch.labels)[0] = 77;
		}
		ck_assert(step == 2 || pixels[0] == -1);
		ck_assert(pixels[ROW_FLOATS] == value(batch.generation, 1));
		release();
	}
	finish();
}

START_TEST(test_writes_stay_private_and_later_batches_are_fresh)
{
	/* The trainer normalises in place: the daemon does not see it, and neither does the next batch in the same slot. */
	write_into_batches();
}
END_TEST

START_TEST(test_writes_stay_private_when_mapped_writable)
{
	/* The same without the signal handler. */
	struct sigaction before, after;

	sigaction(SIGSEGV, NULL, &before);
	options.writable = 1;
	write_into_batches();
	sigaction(SIGSEGV, NULL, &after);
	ck_assert(before.sa_handler == after.sa_handler);
}
END_TEST

static void *write_from_thread(void *arg)
{
	*(float *)arg = -2;
	return NULL;
}

START_TEST(test_threads_may_write_into_one_batch_at_once)
{
	/* Four threads fault on the same slot. */
	pthread_t threads[4];

	play(one_slot);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, write_from_thread, (float *)batch.data + i);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < 4; i++)
		ck_assert(((float *)batch.data)[i] == -2);
	release();
	finish();
}
END_TEST

static sigjmp_buf escape;
static volatile sig_atomic_t n_handled;
static struct sigaction displaced;

static void on_foreign_fault(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	n_handled++;
	if (info->si_code > 0)
		siglongjmp(escape, 1);
}

/* As Python's faulthandler does it: reports, puts the handler back that it displaced, raises again. */
static void on_fault_like_python(int sig)
{
	n_handled++;
	sigaction(sig, &displaced, NULL);
	raise(sig);
}

START_TEST(test_foreign_faults_reach_the_handler_that_was_there_before)
{
	/* A fault outside our slots, and a signal that was sent, are none of our business. */
	struct sigaction sa = { .sa_sigaction = on_foreign_fault, .sa_flags = SA_SIGINFO };
	char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	sigaction(SIGSEGV, &sa, NULL);
	play(one_slot);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	if (sigsetjmp(escape, 1) == 0)
		*(volatile char *)page = 1;
	ck_assert_int_eq(n_handled, 1);
	kill(getpid(), SIGSEGV);
	ck_assert_int_eq(n_handled, 2);
	*(float *)batch.data = 1; /* ours still works */
	release();
	ck_assert_int_eq(n_handled, 2);
	if (sigsetjmp(escape, 1) == 0)
		*(volatile float *)batch.data = 1; /* no longer on loan */
	ck_assert_int_eq(n_handled, 3);
	munmap(page, 4096);
	finish();
}
END_TEST

START_TEST(test_handler_installed_after_ours_that_raises_again_loses_no_write)
{
	/* Python's faulthandler, enabled after the loader was opened: the write succeeds. */
	struct sigaction sa = { .sa_handler = on_fault_like_python, .sa_flags = SA_NODEFER };

	play(one_slot);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	sigaction(SIGSEGV, &sa, &displaced);
	*(volatile float *)batch.data = -3;
	ck_assert(*(float *)batch.data == -3);
	ck_assert_int_eq(n_handled, 1);
	release();
	/* At the next start ours goes on top, so it is not even asked. */
	sigaction(SIGSEGV, &sa, &displaced);
	next_is(0, 1);
	batchd_start(loader, 0, 0, 2, NULL);
	*(volatile float *)batch.data = -4;
	ck_assert_int_eq(n_handled, 1);
	release();
	finish();
}
END_TEST

/* Runs a child that opens a loader over d's listener and then does something fatal; its wait status. */
static int die_in_child(void (*how)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct sigaction fatal = { .sa_handler = SIG_DFL };

		sigaction(SIGSEGV, &fatal, NULL);
		open_loader();
		batchd_start(loader, 0, 0, 0, NULL);
		next_is(0, 0);
		how();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return status;
}

static void write_to_null(void)
{
	char *volatile nowhere = (char *)(uintptr_t)8;

	*nowhere = 1;
}

static void like_python_then_null(void)
{
	struct sigaction sa = { .sa_handler = on_fault_like_python, .sa_flags = SA_NODEFER };

	sigaction(SIGSEGV, &sa, &displaced);
	batchd_start(loader, 0, 0, 3, NULL);
	write_to_null();
}

static void raise_it(void)
{
	raise(SIGSEGV);
	raise(SIGSEGV);
}

static void three_clients(struct fake *f)
{
	for (unsigned i = 0; i < 3; i++) {
		one_slot(f);
		close(f->peer);
	}
	f->peer = -1;
}

START_TEST(test_real_crash_still_kills_the_process)
{
	/* Without anybody's handler a process dies of SIGSEGV as it would without us, core dump and all. */
	static void (*const how[])(void) = { write_to_null, like_python_then_null, raise_it };

	play(three_clients);
	for (unsigned i = 0; i < 3; i++) {
		int status = die_in_child(how[i]);

		ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "case %u: status 0x%x", i, status);
	}
	pthread_join(d->thread, NULL);
}
END_TEST

/* ---- the end ---- */

static void overwrite_after_close(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend_epoch(f, 1, 0);
	EXPECT(f, CLOSE);
	memset(f->slab, 0xee, N_SLOTS * f->slot_bytes);
	ck_assert_ptr_null(hear(f));
	atomic_store(&f->step, 1);
}

START_TEST(test_batches_on_loan_outlive_close)
{
	/* Tensors that outlive the loader keep their bytes, while the daemon gets all its slots back at once. */
	struct batchd_batch kept[2];
	unsigned n_fds;

	play(overwrite_after_close);
	n_fds = count_fds();
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	kept[0] = batch;
	((float *)batch.data)[1] = -5;
	next_is(0, 1);
	kept[1] = batch;
	batchd_close(loader);
	await(d, 1);
	ck_assert(((float *)kept[0].data)[0] == value(1, 0));
	ck_assert(((float *)kept[0].data)[1] == -5);
	ck_assert(((float *)kept[1].data)[0] == value(2, 0));
	ck_assert_int_eq(((int64_t *)kept[1].labels)[2], 2);
	((float *)kept[1].data)[0] = -6;
	ck_assert_int_eq(batchd_release(loader, kept[0].slot, kept[0].generation), 0);
	ck_assert(((float *)kept[1].data)[0] == -6);
	ck_assert_int_eq(batchd_release(loader, kept[1].slot, kept[1].generation), 0); /* frees the loader */
	loader = NULL;
	finish();
	ck_assert_uint_eq(count_fds(), n_fds);
}
END_TEST

static void vanish(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	lend(f, 1, 0, 0, 0, BATCH, false);
	await(f, 1);
}

START_TEST(test_daemon_that_vanishes_leaves_held_batches_readable)
{
	/* The error names the socket and where to look; what we hold stays ours. */
	play(vanish);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	atomic_store(&d->step, 1);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_LOST);
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), d->path));
	ck_assert_ptr_nonnull(strstr(batchd_error(loader), "batchctl status"));
	ck_assert(((float *)batch.data)[0] == value(1, 0));
	ck_assert_int_eq(batchd_release(loader, batch.slot, batch.generation), BATCHD_E_LOST);
	ck_assert_uint_eq(batchd_n_leased(loader), 0);
	finish();
}
END_TEST

static void shut_down(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	say_error(f, BATCHD__WIRE__ERROR_CODE__BAD_DATA, "", "2 of 10 samples could not be decoded: a.jpg, b.jpg");
}

START_TEST(test_reason_of_the_daemon_is_told)
{
	/* Code and text arrive, also when the daemon closed without reading what we sent last. */
	play(shut_down);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_BAD_DATA);
	ck_assert_str_eq(batchd_error(loader), "2 of 10 samples could not be decoded: a.jpg, b.jpg");
	pthread_join(d->thread, NULL);
	ck_assert_int_eq(batchd_start(loader, 1, 0, 0, NULL), BATCHD_E_BAD_DATA);
	batchd_close(loader);
}
END_TEST

START_TEST(test_release_of_what_is_not_on_loan_is_refused)
{
	/* Twice, with a stale generation, beyond the slots: nothing is sent to the daemon. */
	play(one_slot);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	ck_assert_int_eq(batchd_release(loader, batch.slot, batch.generation + 1), BATCHD_E_INVALID);
	ck_assert_int_eq(batchd_release(loader, N_SLOTS, batch.generation), BATCHD_E_INVALID);
	release();
	ck_assert_int_eq(batchd_release(loader, batch.slot, batch.generation), BATCHD_E_INVALID);
	next_is(0, 1);
	release();
	finish();
}
END_TEST

START_TEST(test_child_of_a_fork_can_do_nothing_and_harms_nothing)
{
	/* In the child every call says FORKED, a release sends nothing; the parent goes on. The child may open a loader of its own. */
	int status;
	pid_t pid;

	play(one_slot);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	pid = fork();
	if (pid == 0) {
		int bad = 0;

		bad |= batchd_next(loader, &batch, 0) != BATCHD_E_FORKED;
		bad |= batchd_start(loader, 0, 0, 0, NULL) != BATCHD_E_FORKED;
		bad |= batchd_release(loader, batch.slot, batch.generation) != BATCHD_E_FORKED;
		bad |= strstr(batchd_error(loader), "parent") == NULL;
		bad |= batchd_n_leased(loader) != 0;
		batchd_close(loader);
		bad |= *(volatile float *)batch.data != value(1, 0);
		_exit(bad);
	}
	waitpid(pid, &status, 0);
	ck_assert_int_eq(status, 0);
	release();
	next_is(0, 1);
	release();
	finish();
}
END_TEST

/* ---- threads ---- */

static void many(struct fake *f)
{
	uint64_t generation_of[N_SLOTS] = { 0 };
	unsigned n_out = 0;
	uint64_t step = 0;

	welcome(f);
	EXPECT(f, SEEK);
	for (uint32_t slot = 0; slot < N_SLOTS; slot++) {
		lend(f, 1, 0, step++, slot, BATCH, false);
		generation_of[slot] = f->generation;
		n_out++;
	}
	while (n_out) {
		const Batchd__Wire__Release *r = EXPECT(f, RELEASE)->release;

		ck_assert_uint_eq(r->generation, generation_of[r->slot]);
		n_out--;
		if (step < 300) {
			uint32_t slot = r->slot;

			lend(f, 1, 0, step, slot, BATCH, step == 299);
			step++;
			generation_of[slot] = f->generation;
			n_out++;
		}
	}
}

struct handed {
	struct batchd_batch batch;
	atomic_bool full;
};

static void *release_all(void *arg)
{
	struct handed *h = arg;

	for (unsigned i = 0; i < 300; i++) {
		while (!atomic_load(&h->full))
			sched_yield();
		((volatile float *)h->batch.data)[0] = -1;
		ck_assert_int_eq(batchd_release(loader, h->batch.slot, h->batch.generation), 0);
		atomic_store(&h->full, false);
	}
	return NULL;
}

START_TEST(test_one_thread_takes_while_another_releases)
{
	/* A prefetch thread and a training loop; slots go round a hundred times, written to each time. */
	struct handed h = { .full = false };
	pthread_t releaser;

	play(many);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	pthread_create(&releaser, NULL, release_all, &h);
	for (unsigned step = 0; step < 300; step++) {
		next_is(0, step);
		ck_assert(((float *)batch.data)[0] == value(batch.generation, 0));
		while (atomic_load(&h.full))
			sched_yield();
		h.batch = batch;
		atomic_store(&h.full, true);
	}
	pthread_join(releaser, NULL);
	finish();
}
END_TEST

/* ---- own batches ---- */

static void answer_indices(struct fake *f)
{
	welcome(f);
	for (uint64_t epoch = 0; epoch < 2; epoch++) {
		uint64_t step = 2 * epoch, n = 0;

		ck_assert_uint_eq(EXPECT(f, SEEK)->seek->step, step);
		for (unsigned batches = 0; batches < 1; ) {
			const Batchd__Wire__Indices *i = EXPECT(f, INDICES)->indices;

			ck_assert_uint_eq(i->step, step);
			ck_assert_uint_eq(i->seek, epoch + 1);
			for (size_t k = 0; k < i->n_index; k++)
				ck_assert_uint_eq(i->index[k], (n + k) % N_SAMPLES);
			n += i->n_index;
			batches += !i->more;
		}
		ck_assert_uint_eq(n, 5000);
		lend(f, epoch + 1, epoch, step, 0, BATCH, false);
		EXPECT(f, RELEASE);
	}
	EXPECT(f, CLOSE);
}

START_TEST(test_own_batch_of_many_indices_arrives_whole)
{
	/* 5000 indices take two packets; the epoch ends when all that was pushed has come; the next begins with a seek. */
	uint64_t *indices = malloc(5000 * sizeof *indices);

	for (unsigned i = 0; i < 5000; i++)
		indices[i] = i % N_SAMPLES;
	d->slot_bytes = d->opened.slot_bytes = 65536 * 4;
	munmap(d->slab, N_SLOTS * (size_t)sysconf(_SC_PAGESIZE));
	close(d->slab_fd);
	d->opened.slab_bytes = N_SLOTS * d->slot_bytes;
	d->slab_fd = sealed_memfd(N_SLOTS * d->slot_bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE, &d->slab);
	d->opened.labels_offset = 5000 * d->opened.row_bytes;
	d->opened.indices_offset = d->opened.labels_offset + 5000 * 8;
	options.batch_size = 5000;
	options.own_batches = 1;
	play(answer_indices);
	open_loader();
	ck_assert_int_eq(batchd_push(loader, indices, 1), BATCHD_E_INVALID); /* not started */
	for (uint64_t epoch = 0; epoch < 2; epoch++) {
		ck_assert_int_eq(batchd_start(loader, epoch, 0, 2 * epoch, NULL), 0);
		ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_INVALID); /* would wait for ever */
		ck_assert_int_eq(batchd_push(loader, indices, 5000), 0);
		ck_assert_int_eq(batchd_push_end(loader), 0);
		ck_assert_int_eq(batchd_push(loader, indices, 1), BATCHD_E_INVALID);
		next_is(epoch, 2 * epoch);
		release();
		ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_END);
	}
	finish();
	free(indices);
}
END_TEST

static void hear_indices(struct fake *f)
{
	welcome(f);
	EXPECT(f, SEEK);
	for (uint64_t step = 0; step < N_SLOTS + 2; step++)
		EXPECT(f, INDICES);
	lend(f, 1, 0, 0, 0, 1, false);
	EXPECT(f, RELEASE);
	EXPECT(f, INDICES);
	EXPECT(f, CLOSE);
}

START_TEST(test_pushing_stops_at_the_window_and_goes_on_after_a_batch)
{
	/* Never more than window + 2 unanswered; wrong indices are refused here, not by the daemon's hanging up. */
	uint64_t index = 9, wrong = N_SAMPLES;

	options.own_batches = 1;
	play(hear_indices);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	ck_assert_int_eq(batchd_push(loader, &wrong, 1), BATCHD_E_INVALID);
	ck_assert_int_eq(batchd_push(loader, &index, 0), BATCHD_E_INVALID);
	for (unsigned i = 0; i < N_SLOTS + 2; i++)
		ck_assert_int_eq(batchd_push(loader, &index, 1), 0);
	ck_assert_int_eq(batchd_push(loader, &index, 1), BATCHD_AGAIN);
	next_is(0, 0);
	release();
	ck_assert_int_eq(batchd_push(loader, &index, 1), 0);
	ck_assert_int_eq(batchd_push(loader, &index, 1), BATCHD_AGAIN);
	finish();
}
END_TEST

/* ---- questions ---- */

static void tell_classes(struct fake *f)
{
	static char *names[] = { (char *)"cat", (char *)"d\xff" "g", (char *)"eel" };
	Batchd__Wire__Classes c = BATCHD__WIRE__CLASSES__INIT;

	welcome(f);
	EXPECT(f, SEEK);
	lend(f, 1, 0, 0, 0, BATCH, false);
	ck_assert_uint_eq(EXPECT(f, CLASSES)->classes->first, 0);
	lend(f, 1, 0, 1, 1, BATCH, false);
	c.n_name = 2;
	c.name = names;
	c.total = 3;
	SAY(f, CLASSES, &c);
	ck_assert_uint_eq(EXPECT(f, CLASSES)->classes->first, 2);
	c.first = 2;
	c.n_name = 1;
	c.name = names + 2;
	SAY(f, CLASSES, &c);
	lend(f, 1, 0, 2, 2, 2, true);
	expect_releases(f, N_BATCHES);
	EXPECT(f, CLOSE);
}

START_TEST(test_classes_come_between_batches_that_wait_their_turn)
{
	/* Names in two packets, whatever bytes they have, while batches arrive: none of those is lost or out of order. */
	play(tell_classes);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	ck_assert_str_eq(batchd_class(loader, 2), "eel");
	ck_assert_str_eq(batchd_class(loader, 0), "cat");
	ck_assert_str_eq(batchd_class(loader, 1), "d\xff" "g");
	ck_assert_ptr_null(batchd_class(loader, 3));
	for (unsigned step = 0; step < N_BATCHES; step++) {
		next_is(0, step);
		release();
	}
	finish();
}
END_TEST

static void tell_status(struct fake *f)
{
	Batchd__Wire__Status s = BATCHD__WIRE__STATUS__INIT;

	greet(f);
	EXPECT(f, STATUS);
	s.json = (ProtobufCBinaryData){ 6, (uint8_t *)"{\"a\": " };
	s.more = 1;
	SAY(f, STATUS, &s);
	s.json = (ProtobufCBinaryData){ 2, (uint8_t *)"1}" };
	s.more = 0;
	SAY(f, STATUS, &s);
}

START_TEST(test_status_is_put_together_from_its_parts)
{
	/* Without a loader, over as many packets as it takes. */
	char *json;

	play(tell_status);
	ck_assert_int_eq(batchd_status(d->path, &json, err, sizeof err), 0);
	ck_assert_str_eq(json, "{\"a\": 1}");
	free(json);
	pthread_join(d->thread, NULL);
}
END_TEST

/* ---- opening ---- */

static void report_progress(struct fake *f)
{
	Batchd__Wire__Progress p = BATCHD__WIRE__PROGRESS__INIT;

	greet(f);
	hear_open(f);
	for (p.done = 1; p.done < 4; p.done++) {
		p.phase = (char *)"index";
		p.total = 3;
		SAY(f, PROGRESS, &p);
	}
	say(f, BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED, &f->opened, f->slab_fd);
	hear(f);
}

static int on_progress(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	uint64_t *expected = arg;

	if (!*phase)
		return 0; /* a busy machine: a second has passed */
	ck_assert_str_eq(phase, "index");
	ck_assert_uint_eq(done, ++*expected);
	ck_assert_uint_eq(total, 3);
	return *expected == 103;
}

START_TEST(test_progress_is_told_and_can_cancel)
{
	/* Once to the end, once given up on. */
	uint64_t n = 0;

	options.on_progress = on_progress;
	options.progress_arg = &n;
	play(report_progress);
	open_loader();
	ck_assert_uint_eq(n, 3);
	finish();
}
END_TEST

static int cancel(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	(void)arg, (void)phase, (void)done, (void)total;
	return 1;
}

START_TEST(test_cancelled_open_leaves_nothing_behind)
{
	/* No loader, no descriptor. */
	unsigned n_fds;

	play(report_progress);
	n_fds = count_fds();
	options.on_progress = cancel;
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_CANCELLED);
	ck_assert_ptr_null(loader);
	pthread_join(d->thread, NULL);
	ck_assert_uint_eq(count_fds(), n_fds);
}
END_TEST

#if OWN_HEAP
static void welcome_whoever_comes(struct fake *f)
{
	const Batchd__Wire__ClientMessage *m;

	while (!atomic_load(&f->step)) {
		Batchd__Wire__Welcome w = BATCHD__WIRE__WELCOME__INIT;

		f->peer = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
		while ((m = hear(f))) {
			w.version = WIRE_VERSION;
			if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_HELLO)
				SAY(f, WELCOME, &w);
			else if (m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_OPEN)
				say(f, BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED, &f->opened, f->slab_fd);
		}
		close(f->peer);
	}
	f->peer = -1;
}

START_TEST(test_any_allocation_may_fail_while_opening)
{
	/* The first, the second, ... until none is left to fail: an error each time, and everything is given back. */
	unsigned n_failed = 0, n_fds;
	int r;

	options.own_batches = 1;
	play(welcome_whoever_comes);
	n_fds = count_fds();
	do {
		n_allocations = 0;
		fail_at = n_failed + 1;
		r = batchd_open(&options, &loader, err, sizeof err);
		if (r == 0)
			atomic_store(&d->step, 1);
		fail_at = 0;
		if (r < 0) {
			n_failed++;
			ck_assert_msg(r == BATCHD_E_NOMEM || r == BATCHD_E_INVALID || r == BATCHD_E_CONNECT, "%s: %s", batchd_code_name(r), err);
			ck_assert_ptr_null(loader);
			ck_assert_uint_le(count_fds(), n_fds + 1); /* the daemon's end may be closing still */
		}
	} while (r < 0);
	ck_assert_uint_ge(n_failed, 4);
	finish();
}
END_TEST

START_TEST(test_a_batch_allocates_nothing)
{
	/* Taking and giving back 50 batches, written to or not, leaves the heap alone. */
	unsigned n_good = 0, n;

	play(one_slot);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	release();
	n_allocations = 0;
	for (unsigned step = 1; step <= 50; step++) { /* without assertions: those allocate */
		n_good += batchd_next(loader, &batch, BATCHD_FOREVER) == BATCHD_OK;
		if (step % 2)
			((volatile float *)batch.data)[0] = 1;
		n_good += batchd_release(loader, batch.slot, batch.generation) == 0;
	}
	n = n_allocations;
	ck_assert_uint_eq(n_good, 100);
	ck_assert_uint_eq(n, 0);
	finish();
}
END_TEST
#endif

static void refuse(struct fake *f)
{
	greet(f);
	hear_open(f);
	say_error(f, BATCHD__WIRE__ERROR_CODE__MISMATCH, "batch_size", "job test uses 32");
}

START_TEST(test_refusal_names_the_field)
{
	/* The job exists and asks for something else. */
	play(refuse);
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_MISMATCH);
	ck_assert_str_eq(err, "batch_size: job test uses 32");
	pthread_join(d->thread, NULL);
}
END_TEST

/* Each case spoils what the daemon offers in another way. */
static void spoil(int i)
{
	char *mapping;

	switch (i) {
	case 0: d->opened.n_slots = 0; break;
	case 1: d->opened.window = N_SLOTS + 1; break;
	case 2: d->opened.slot_bytes += 8; break;
	case 3: d->opened.slab_bytes /= 2; break;
	case 4: d->opened.row_bytes = 8; break;
	case 5: d->opened.labels_offset = d->slot_bytes - 8; break;
	case 6: d->opened.indices_offset = UINT64_MAX - 7; break;
	case 7: d->shape[0] = d->shape[1] = UINT32_MAX; break;
	case 8: d->opened.slab_kind = BATCHD__WIRE__SLAB_KIND__CUDA_IPC; break;
	case 9: d->opened.world_size = 0; break;
	case 10: d->opened.n_slots = d->opened.window = 30; d->opened.slab_bytes *= 10; break; /* more than the file has */
	default:
		close(d->slab_fd);
		d->slab_fd = sealed_memfd(N_SLOTS * d->slot_bytes, i == 11 ? F_SEAL_SHRINK | F_SEAL_GROW : F_SEAL_GROW, &mapping);
		munmap(mapping, N_SLOTS * d->slot_bytes);
	}
}

START_TEST(test_impossible_offer_is_refused_before_it_is_used)
{
	/* Sizes that overflow, slots beyond the memory, memory that could shrink or change under us. */
	unsigned n_fds;

	spoil(_i);
	play(welcome);
	n_fds = count_fds();
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_PROTOCOL);
	pthread_join(d->thread, NULL);
	ck_assert_uint_le(count_fds(), n_fds);
}
END_TEST

static void lend_beyond(struct fake *f)
{
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;

	welcome(f);
	EXPECT(f, SEEK);
	b.seek = 1;
	b.slot = (unsigned)f->rank == 1 ? N_SLOTS : 0;
	b.n_rows = (unsigned)f->rank == 2 ? BATCH + 1 : BATCH;
	SAY(f, BATCH, &b);
	hear(f);
}

START_TEST(test_batch_beyond_the_slab_is_refused)
{
	/* A slot that does not exist, more rows than a slot holds. */
	options.world_size = d->opened.world_size = 3;
	options.rank = _i;
	play(lend_beyond);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	ck_assert_int_eq(batchd_next(loader, &batch, BATCHD_FOREVER), BATCHD_E_PROTOCOL);
	finish();
}
END_TEST

START_TEST(test_no_daemon_is_said_with_what_was_tried)
{
	/* A socket file without a daemon, and none at all. */
	close(d->listener);
	d->listener = -1;
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_CONNECT);
	ck_assert_ptr_nonnull(strstr(err, d->path));
	unlink(d->path);
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_CONNECT);
	options.socket = NULL;
	setenv("BATCHD_SOCKET", "/nowhere/at/all", 1);
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_CONNECT);
	ck_assert_ptr_nonnull(strstr(err, "/nowhere/at/all"));
}
END_TEST

START_TEST(test_wrong_options_are_named)
{
	/* Without asking anybody. */
	const struct { const char *word; int32_t rank; uint32_t world_size, batch_size; int own; enum batchd_mode mode; } cases[] = {
		{ "batch_size", 0, 1, 0, 0, BATCHD_SHARD }, { "world_size", 0, 0, 1, 0, BATCHD_SHARD }, { "rank", 2, 2, 1, 0, BATCHD_SHARD },
		{ "rank", -1, 2, 1, 0, BATCHD_SHARD }, { "share", 0, 1, 1, 1, BATCHD_SHARE },
	};

	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		options.rank = cases[i].rank;
		options.world_size = cases[i].world_size;
		options.batch_size = cases[i].batch_size;
		options.own_batches = cases[i].own;
		options.mode = cases[i].mode;
		ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_INVALID);
		ck_assert_msg(strstr(err, cases[i].word) != NULL, "%s", err);
	}
}
END_TEST

static void open_file(const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof path, "%s/%s", d->dir, name);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void remove_file(const char *name)
{
	char path[128];

	snprintf(path, sizeof path, "%s/%s", d->dir, name);
	unlink(path);
}

static void check_fds(struct fake *f)
{
	greet(f);
	hear_open(f);
	for (unsigned i = 0; i < f->n_fds; i++) {
		char link[64], target[128] = "", *want = i == 1 && strncmp(f->dataset, "files:", 6) == 0 ? f->dir : NULL;

		snprintf(link, sizeof link, "/proc/self/fd/%d", f->fds[i]);
		ck_assert_int_gt(readlink(link, target, sizeof target - 1), 0);
		ck_assert_int_eq(fcntl(f->fds[i], F_GETFL) & O_ACCMODE, O_RDONLY);
		if (want)
			ck_assert_str_eq(target, want);
		else
			ck_assert_msg(strstr(f->dataset, target) != NULL, "%s is not in %s", target, f->dataset);
	}
	f->rank = (int32_t)f->n_fds;
	say(f, BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED, &f->opened, f->slab_fd);
	hear(f);
}

START_TEST(test_paths_become_absolute_and_come_with_their_fds)
{
	/* Relative to the current directory or the home directory; the daemon gets one descriptor of each thing it may read. */
	static const struct { const char *given, *sent; int n_fds; } cases[] = {
		{ "imagefolder:.", "imagefolder:%s", 1 }, { "imagefolder:../%s", "imagefolder:%s", 1 }, { "files:list", "files:%s/list", 2 },
		{ "npy:x", "npy:%s/x", 1 }, { "npy:./x,~/list", "npy:%s/x,%s/list", 2 }, { "random:n=3", "random:n=3", 0 }, { "train", "train", 0 },
	};

	open_file("list");
	open_file("x");
	ck_assert_int_eq(chdir(d->dir), 0);
	setenv("HOME", d->dir, 1);
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		char given[128], sent[256];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(given, sizeof given, cases[i].given, strrchr(d->dir, '/') + 1);
		snprintf(sent, sizeof sent, cases[i].sent, d->dir, d->dir);
#pragma GCC diagnostic pop
		options.dataset = given;
		play(check_fds);
		open_loader();
		finish();
		ck_assert_str_eq(d->dataset, sent);
		ck_assert_int_eq(d->rank, cases[i].n_fds);
	}
	remove_file("list");
	remove_file("x");
}
END_TEST

START_TEST(test_missing_path_is_named_before_any_daemon_is_asked)
{
	/* Nobody listens here at all. */
	static const struct { const char *dataset, *word; int code; } cases[] = {
		{ "imagefolder:/no/such/dir", "/no/such/dir", BATCHD_E_NOT_FOUND }, { "files:gone", "gone", BATCHD_E_NOT_FOUND },
		{ "npy:/dev/null", "regular", BATCHD_E_INVALID }, { "npy:", "empty", BATCHD_E_NOT_FOUND }, { "", "dataset", BATCHD_E_INVALID },
		{ "imagefolder:/etc/passwd", "not a directory", BATCHD_E_INVALID }, { "/etc", "imagefolder:/etc", BATCHD_E_INVALID },
		{ "a\nb", "printable", BATCHD_E_INVALID },
	};

	options.socket = "/nowhere/at/all";
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		options.dataset = cases[i].dataset;
		ck_assert_msg(batchd_open(&options, &loader, err, sizeof err) == cases[i].code, "%s: %s", cases[i].dataset, err);
		ck_assert_msg(strstr(err, cases[i].word) != NULL, "%s", err);
	}
}
END_TEST

/* The job's name that opening with these options leads to; the loader stays open in *l. */
static void job_of(char name[WIRE_MAX_JOB + 1], struct batchd_loader **l)
{
	play(welcome);
	ck_assert_int_eq(batchd_open(&options, l, err, sizeof err), 0);
	pthread_join(d->thread, NULL);
	strcpy(name, d->job);
}

START_TEST(test_ranks_of_one_run_find_the_same_job)
{
	/* Ranks differ in their rank only; another run, another specification, another loader alike in the same process have names of their own. */
	char first[129], other_rank[129], alike[129], again[129], other_run[129], other_spec[129];
	struct batchd_loader *l[2];

	options.job = NULL;
	options.world_size = d->opened.world_size = 2;
	options.rank = 0;
	setenv("MASTER_PORT", "29500", 1);
	job_of(first, &l[0]);
	job_of(alike, &l[1]);
	batchd_close(l[0]);
	batchd_close(l[1]);
	options.rank = 1;
	job_of(other_rank, &l[0]);
	batchd_close(l[0]);
	job_of(again, &l[0]);
	batchd_close(l[0]);
	options.seed = 1;
	job_of(other_spec, &l[0]);
	batchd_close(l[0]);
	options.seed = 0;
	setenv("MASTER_PORT", "29501", 1);
	job_of(other_run, &l[0]);
	batchd_close(l[0]);
	ck_assert_str_eq(first, other_rank);
	ck_assert_str_eq(first, again);
	ck_assert_str_ne(first, alike);
	ck_assert_str_ne(first, other_spec);
	ck_assert_str_ne(first, other_run);
}
END_TEST

START_TEST(test_lone_trainers_do_not_meet_and_sharing_ones_do)
{
	/* Two loaders of one process without a job's name. */
	char a[129], b[129];
	struct batchd_loader *l[2];

	options.job = NULL;
	job_of(a, &l[0]);
	job_of(b, &l[1]);
	batchd_close(l[0]);
	batchd_close(l[1]);
	ck_assert_str_ne(a, b);
	options.mode = BATCHD_SHARE;
	job_of(a, &l[0]);
	job_of(b, &l[1]);
	batchd_close(l[0]);
	batchd_close(l[1]);
	ck_assert_str_eq(a, b);
}
END_TEST

START_TEST(test_daemon_that_cannot_start_is_quoted)
{
	/* On demand, as an ordinary user with a runtime directory of their own: the program's last words are in the error, and no process stays behind. */
	char program[128], runtime[128];
	FILE *script;

	snprintf(program, sizeof program, "%s/batchd", d->dir);
	snprintf(runtime, sizeof runtime, "%s/run", d->dir);
	script = fopen(program, "w");
	fputs("#!/bin/sh\necho \"no such luck: $*\" >&2\nexit 1\n", script);
	fclose(script);
	chmod(program, 0755);
	chmod(d->dir, 0755);
	mkdir(runtime, 0700);
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(runtime, 65534, 65534), 0);
		ck_assert_int_eq(seteuid(65534), 0);
	}
	setenv("XDG_RUNTIME_DIR", runtime, 1);
	setenv("BATCHD_DAEMON", program, 1);
	unsetenv("BATCHD_SOCKET");
	options.socket = NULL;
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_CONNECT);
	ck_assert_msg(strstr(err, "no such luck: --socket") != NULL, "%s", err);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	options.autostart = 0;
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_CONNECT);
	ck_assert_ptr_null(strstr(err, "no such luck"));
	ck_assert_int_eq(seteuid(getuid()), 0);
	snprintf(runtime, sizeof runtime, "rm -rf %s", d->dir);
	ck_assert_int_eq(system(runtime), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client");
	TCase *epochs = tcase_create("epochs"), *writes = tcase_create("writes"), *ends = tcase_create("ends"), *opening = tcase_create("opening");
	TCase *all[] = { epochs, writes, ends, opening };
	SRunner *runner;
	int n_failed;

	for (unsigned i = 0; i < 4; i++) {
		tcase_add_checked_fixture(all[i], setup, teardown);
		suite_add_tcase(suite, all[i]);
	}
	tcase_add_test(epochs, test_next_epoch_goes_on_without_asking);
	tcase_add_test(epochs, test_batches_of_an_earlier_start_are_given_back_unseen);
	tcase_add_test(epochs, test_gap_in_the_steps_is_a_protocol_error_that_stays);
	tcase_add_test(epochs, test_epoch_length_is_that_of_the_sampler);
	tcase_add_test(epochs, test_epoch_without_batches_ends_at_once_and_asks_for_nothing);
	tcase_add_test(epochs, test_waiting_ends_with_the_timeout_or_a_signal);
	tcase_add_test(epochs, test_own_batch_of_many_indices_arrives_whole);
	tcase_add_test(epochs, test_pushing_stops_at_the_window_and_goes_on_after_a_batch);
	tcase_add_test(epochs, test_classes_come_between_batches_that_wait_their_turn);
	tcase_add_test(epochs, test_status_is_put_together_from_its_parts);
	tcase_add_test(writes, test_writes_stay_private_and_later_batches_are_fresh);
	tcase_add_test(writes, test_writes_stay_private_when_mapped_writable);
	tcase_add_test(writes, test_threads_may_write_into_one_batch_at_once);
	tcase_add_test(writes, test_foreign_faults_reach_the_handler_that_was_there_before);
	tcase_add_test(writes, test_handler_installed_after_ours_that_raises_again_loses_no_write);
	tcase_add_test(writes, test_real_crash_still_kills_the_process);
	tcase_add_test(writes, test_one_thread_takes_while_another_releases);
	tcase_add_test(ends, test_batches_on_loan_outlive_close);
	tcase_add_test(ends, test_daemon_that_vanishes_leaves_held_batches_readable);
	tcase_add_test(ends, test_reason_of_the_daemon_is_told);
	tcase_add_test(ends, test_release_of_what_is_not_on_loan_is_refused);
	tcase_add_test(ends, test_child_of_a_fork_can_do_nothing_and_harms_nothing);
	tcase_add_test(opening, test_progress_is_told_and_can_cancel);
	tcase_add_test(opening, test_cancelled_open_leaves_nothing_behind);
#if OWN_HEAP
	tcase_add_test(opening, test_any_allocation_may_fail_while_opening);
	tcase_add_test(writes, test_a_batch_allocates_nothing);
#endif
	tcase_add_test(opening, test_refusal_names_the_field);
	tcase_add_loop_test(opening, test_impossible_offer_is_refused_before_it_is_used, 0, 13);
	tcase_add_loop_test(opening, test_batch_beyond_the_slab_is_refused, 1, 3);
	tcase_add_test(opening, test_no_daemon_is_said_with_what_was_tried);
	tcase_add_test(opening, test_wrong_options_are_named);
	tcase_add_test(opening, test_paths_become_absolute_and_come_with_their_fds);
	tcase_add_test(opening, test_missing_path_is_named_before_any_daemon_is_asked);
	tcase_add_test(opening, test_ranks_of_one_run_find_the_same_job);
	tcase_add_test(opening, test_lone_trainers_do_not_meet_and_sharing_ones_do);
	tcase_add_test(opening, test_daemon_that_cannot_start_is_quoted);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	n_failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return n_failed != 0;
}
