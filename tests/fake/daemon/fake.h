/* A scripted daemon for tests of libbatchd: a thread of the test listens on a real socket, has a real sealed memfd, and
 * sends the messages that the case wants. Also the trainer's side: the beginning and the end of most cases. One of each
 * per test program. */
#ifndef BATCHD_TESTS_FAKE_H
#define BATCHD_TESTS_FAKE_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ring.h"
#include "sources.h"
#include "support/suite.h"
#include "wire.h"

#include "../client/batchd.h"

enum { N_SLOTS = 3, BATCH = 4, ROW_FLOATS = 6, N_SAMPLES = 10, N_BATCHES = 3 };

/* ---- the daemon ---- */

struct fake {
	char dir[64], path[96];
	int listener, peer;
	int slab_fd; /* read-only, sealed */
	char *slab;  /* writable */
	size_t slot_bytes;
	struct ring ring;    /* of the present connection */
	uint64_t generation; /* of the last batch sent */
	struct wire_arena arena;
	unsigned char bytes[WIRE_MAX_BYTES];
	int fds[WIRE_MAX_FDS]; /* of the last message */
	unsigned n_fds;
	unsigned n_wakes;            /* Wakes that it has sent */
	Batchd__Wire__Opened opened; /* its answer to Open */
	void (*script)(struct fake *d);
	pthread_t thread;
	uint32_t shape[2]; /* of field 0, "data"; field 1 is "label" */
	Batchd__Wire__Field field[WIRE_MAX_FIELDS], *fields[WIRE_MAX_FIELDS];
	char job[WIRE_MAX_JOB + 1], dataset[WIRE_MAX_DATASET + 1];
	int32_t rank;
	atomic_uint step; /* for cases in which both sides take turns */
};
static struct fake *d __attribute__((unused));
static char err[4096] __attribute__((unused));
static struct batchd_loader *loader __attribute__((unused));
static struct batchd_options options __attribute__((unused));
static struct batchd_batch batch __attribute__((unused));

/* The next packet. */
static inline const Batchd__Wire__ClientMessage *hear_packet(struct fake *f)
{
	const Batchd__Wire__ClientMessage *m;
	size_t n;
	int r;

	wire_close_fds(f->fds, f->n_fds);
	do {
		n = sizeof f->bytes;
		f->n_fds = WIRE_MAX_FDS;
		r = wire_recv(f->peer, f->bytes, &n, f->fds, &f->n_fds, 0);
	} while (r == -EINTR);
	if (r < 0)
		f->n_fds = 0;
	if (r < 0)
		return NULL;
	ck_assert_int_eq(wire_unpack_client(&f->arena, f->bytes, n, &m, NULL), 0);
	ck_assert(wire_client_fds_ok(m, f->n_fds));
	return m;
}

/* The next release in the ring; NULL: there is none now. */
static inline const Batchd__Wire__ClientMessage *take_release(struct fake *f)
{
	const Batchd__Wire__ClientMessage *m;
	size_t n = 0;
	int r = f->ring.page ? ring_take(&f->ring.releases, f->bytes, &n) : -EAGAIN;

	if (r == -EAGAIN)
		return NULL;
	ck_assert_int_eq(r, 0);
	ck_assert_int_eq(wire_unpack_client(&f->arena, f->bytes, n, &m, NULL), 0);
	ck_assert_int_eq(m->body_case, BATCHD__WIRE__CLIENT_MESSAGE__BODY_RELEASE);
	return m;
}

/* The next release, or else the next packet that is not a Wake. */
static inline const Batchd__Wire__ClientMessage *hear(struct fake *f)
{
	for (;;) {
		const Batchd__Wire__ClientMessage *m = take_release(f);

		if (!m && f->ring.page) {
			ring_arm(&f->ring, 1);
			m = take_release(f);
		}
		if (!m)
			m = hear_packet(f);
		if (!m || m->body_case != BATCHD__WIRE__CLIENT_MESSAGE__BODY_WAKE)
			return m;
	}
}

/* Of a packet nothing is said about the releases in the ring, which have no order with it; but the last one comes after
 * them all. */
static inline const Batchd__Wire__ClientMessage *expect(struct fake *f, Batchd__Wire__ClientMessage__BodyCase kind)
{
	bool in_ring =
		kind == BATCHD__WIRE__CLIENT_MESSAGE__BODY_RELEASE || kind == BATCHD__WIRE__CLIENT_MESSAGE__BODY_CLOSE;
	const Batchd__Wire__ClientMessage *m;

	do
		m = in_ring ? hear(f) : hear_packet(f);
	while (m && m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_WAKE);
	ck_assert_msg(m && m->body_case == kind, "expected message %d, got %s", kind,
		      m ? wire_client_name(m) : "the end");
	return m;
}
#define EXPECT(f, KIND) expect(f, BATCHD__WIRE__CLIENT_MESSAGE__BODY_##KIND)

static inline void say(struct fake *f, Batchd__Wire__ServerMessage__BodyCase kind, void *body, int fd)
{
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	int r;

	m.body_case = kind;
	m.welcome = body; /* all members of the union are pointers */
	do
		r = wire_send(f->peer, &m.base, &fd, fd >= 0 ? 1 : 0, 0);
	while (r == -EINTR);
	ck_assert(r == 0 || r == -EPIPE || r == -ECONNRESET); /* the client may have left already */
}
#define SAY(f, KIND, body) say(f, BATCHD__WIRE__SERVER_MESSAGE__BODY_##KIND, body, -1)

static inline void say_error(struct fake *f, Batchd__Wire__ErrorCode code, const char *field, const char *text)
{
	Batchd__Wire__Error e = BATCHD__WIRE__ERROR__INIT;

	e.code = code;
	e.field = (char *)field;
	e.text = (char *)text;
	SAY(f, ERROR, &e);
}

static inline void greet(struct fake *f)
{
	Batchd__Wire__Welcome w = BATCHD__WIRE__WELCOME__INIT;

	f->peer = (int)TEMP_FAILURE_RETRY(accept4(f->listener, NULL, NULL, SOCK_CLOEXEC));
	ck_assert_uint_eq(EXPECT(f, HELLO)->hello->version, WIRE_VERSION);
	w.version = WIRE_VERSION;
	w.daemon = (char *)"9.9";
	SAY(f, WELCOME, &w);
}

/* The data set that an Open asks for, as a text. */
static inline void take_dataset(const Batchd__Wire__Open *o, char text[WIRE_MAX_DATASET + 1])
{
	char *printed = sources_print(o->sources, SOURCE_EXACT);

	snprintf(text, WIRE_MAX_DATASET + 1, "%s", printed);
	free(printed);
}

static inline void hear_open(struct fake *f)
{
	const Batchd__Wire__Open *o = EXPECT(f, OPEN)->open;

	strcpy(f->job, o->job);
	take_dataset(o, f->dataset);
	f->rank = o->rank;
}

/* With the slab, and a new ring. */
static inline void say_opened(struct fake *f)
{
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	int fds[2] = { f->slab_fd, -1 }, r;

	ring_unmap(&f->ring);
	ck_assert_int_eq(ring_create(&f->ring, &fds[1]), 0);
	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED;
	m.opened = &f->opened;
	do
		r = wire_send(f->peer, &m.base, fds, 2, 0);
	while (r == -EINTR);
	ck_assert(r == 0 || r == -EPIPE || r == -ECONNRESET); /* the client may have left already */
	close(fds[1]);
}

static inline void welcome(struct fake *f)
{
	greet(f);
	hear_open(f);
	say_opened(f);
}

/* The trainer has nothing to take and has said so: the next thing that it does is sleep. */
static inline void await_waiting(struct fake *f)
{
	while (!ring_is_waited_for(&f->ring))
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

static inline void put_batch(struct fake *f, Batchd__Wire__Batch *b)
{
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;

	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH;
	m.batch = b;
	ck_assert_int_eq(ring_put(&f->ring.batches, &m.base), 0);
}

/* Puts a batch into the ring, and wakes the trainer if it sleeps. */
static inline void send_batch(struct fake *f, Batchd__Wire__Batch *b)
{
	Batchd__Wire__Wake w = BATCHD__WIRE__WAKE__INIT;

	put_batch(f, b);
	if (ring_wake_client(&f->ring)) {
		f->n_wakes++;
		SAY(f, WAKE, &w);
	}
}

/* The value in row `row` of a batch of `generation`. */
static inline float value(uint64_t generation, unsigned row)
{
	return (float)(generation * 100 + row);
}

/* Fills a slot and lends it. */
static inline void lend(struct fake *f, uint64_t seek, uint64_t epoch, uint64_t step, uint32_t slot, uint32_t n_rows,
			bool last)
{
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;
	char *at = f->slab + slot * f->slot_bytes;

	f->generation++;
	for (unsigned row = 0; row < n_rows; row++) {
		for (unsigned i = 0; i < ROW_FLOATS; i++)
			((float *)(void *)at)[row * ROW_FLOATS + i] = value(f->generation, row);
		((int64_t *)(void *)(at + f->field[1].offset))[row] = row;
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
	send_batch(f, &b);
}

static inline void lend_epoch(struct fake *f, uint64_t seek, uint64_t epoch)
{
	for (unsigned i = 0; i < N_BATCHES; i++)
		lend(f, seek, epoch, i, i, i == N_BATCHES - 1 ? 2 : BATCH, i == N_BATCHES - 1);
}

static inline void expect_releases(struct fake *f, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		EXPECT(f, RELEASE);
}

/* Waits until the other side of the test has reached this step. */
static inline void await(struct fake *f, unsigned step)
{
	while (atomic_load(&f->step) < step)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static inline void *run_script(void *arg)
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

static inline void play(void (*script)(struct fake *))
{
	d->script = script;
	ck_assert_int_eq(pthread_create(&d->thread, NULL, run_script, d), 0);
}

static inline void finish(void)
{
	batchd_close(loader);
	loader = NULL;
	pthread_join(d->thread, NULL);
}

/* ---- fixture ---- */

static inline int sealed_memfd(size_t n_bytes, int seals, char **mapping)
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

static inline void set_field(struct fake *f, unsigned i, const char *name, Batchd__Wire__Dtype dtype, uint64_t offset)
{
	f->field[i] = (Batchd__Wire__Field)BATCHD__WIRE__FIELD__INIT;
	f->field[i].name = (char *)name;
	f->field[i].dtype = dtype;
	f->field[i].offset = offset;
	f->fields[i] = &f->field[i];
}

static inline void setup(void)
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
	set_field(d, 0, "data", BATCHD__WIRE__DTYPE__FLOAT32, 0);
	set_field(d, 1, "label", BATCHD__WIRE__DTYPE__INT64, 1024);
	d->field[0].n_shape = 2;
	d->field[0].shape = d->shape;
	d->opened.field = d->fields;
	d->opened.n_field = 2;
	d->opened.slab_bytes = N_SLOTS * page;
	d->opened.n_slots = d->opened.window = N_SLOTS;
	d->opened.slot_bytes = page;
	d->opened.indices_offset = 2048;
	d->opened.ring = RING_LAYOUT;

	batchd_options_init(&options);
	options.reconnect_ms = 0; /* cases about reconnecting set it */
	options.socket = d->path;
	options.dataset = "random:";
	options.batch_size = BATCH;
	options.job = "test";
	batch = (struct batchd_batch){ .size_bytes = sizeof batch };
	loader = NULL;
}

static inline void teardown(void)
{
	ring_unmap(&d->ring);
	munmap(d->slab, N_SLOTS * d->slot_bytes);
	close(d->slab_fd);
	close(d->listener);
	unlink(d->path);
	rmdir(d->dir);
	free(d);
}

static inline void open_loader(void)
{
	int r = batchd_open(&options, &loader, err, sizeof err);

	ck_assert_msg(r == 0, "%s", err);
}

static inline void next_is(uint64_t epoch, uint64_t step)
{
	int r = batchd_next(loader, &batch, BATCHD_FOREVER);

	ck_assert_msg(r == BATCHD_OK, "%s: %s", batchd_code_name(r), batchd_error(loader));
	ck_assert_uint_eq(batch.epoch, epoch);
	ck_assert_uint_eq(batch.step, step);
}

static inline void release(void)
{
	ck_assert_int_eq(batchd_release(loader, batch.slot, batch.generation), 0);
}

static inline unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* A script: lends slot 0 again and again. */
static inline void one_slot(struct fake *f)
{
	const Batchd__Wire__ClientMessage *m;

	welcome(f);
	EXPECT(f, SEEK);
	for (uint64_t step = 0;; step++) {
		lend(f, 1, 0, step, 0, BATCH, false);
		m = hear(f);
		if (!m || m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_CLOSE)
			return;
		/* A trainer's writes do not reach this memory. */
		ck_assert(*(float *)(void *)f->slab == value(f->generation, 0));
	}
}

#endif
