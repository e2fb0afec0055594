/* Well-formed messages in any order against the whole daemon: its loop on a thread of this process, and up to four
 * clients that send what the input says, in a child process, whose end gives back everything that they still hold. The
 * messages are those of batchd.proto with valid, nearly valid and invalid values; slots, generations and rings are
 * those that the daemon has sent.
 *
 * No crash, no assertion, no report of a sanitizer; after each input the daemon still answers and has dropped the
 * clients; and when it ends its accounts are balanced. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include "support/any-message.h"
#include "daemon.h"
#include "ring.h"
#include "base/log.h"
#include "support/sources-text.h"
#include "wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_SHARD_SETS = 5, N_CLIENTS = 4, N_HELD = 8, MAX_STEPS = 200, ANSWER_MS = 20000, OPENED_MS = 100, MANY = 300 };

static struct {
	char dir[64], socket[100], folder[100], list[120], array[120], shards[N_SHARD_SETS][200];
	int listen_fd;
	pthread_t thread;
} d;

static _Noreturn void fail(const char *why)
{
	fprintf(stderr, "fuzz_daemon: %s\n", why);
	abort();
}

static void require(bool ok, const char *why)
{
	if (!ok)
		fail(why);
}

/* ---- the daemon ---- */

static void *run_daemon(void *arg)
{
	static struct config config;
	static struct daemon_params params;

	(void)arg;
	require(config_defaults(&config) == 0, "no memory for a configuration");
	log_set_level(LOG_LEVEL_ERROR);
	config.workers = 2;
	config.io_threads = 4;
	config.memory_bytes = 64 << 20;
	config.linger_ns = 0;
	config.bad_data = 1;
	params = (struct daemon_params){ .config = &config, .listen_fd = d.listen_fd, .socket_path = d.socket };
	int r = daemon_run(&params);

	config_finish(&config);
	require(r == 0, "the daemon's books are not even");
	return NULL;
}

static void write_file(const char *path, const void *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	require(fd >= 0 && write(fd, bytes, n) == (ssize_t)n, "cannot write a file");
	close(fd);
}

static size_t put_member(char *to, const char *name, const char *bytes)
{
	size_t n = strlen(bytes);
	unsigned sum = 0;

	snprintf(to, 100, "%s", name);
	memcpy(to + 100, "0000644", 7);
	snprintf(to + 124, 12, "%011zo", n);
	memset(to + 148, ' ', 8);
	to[156] = '0';
	memcpy(to + 257, "ustar\00000", 8);
	for (int i = 0; i < 512; i++)
		sum += (unsigned char)to[i];
	snprintf(to + 148, 8, "%06o", sum);
	memcpy(to + 512, bytes, n);
	return 1024;
}

/* Two samples with labels, and one without. */
static void make_tar(const char *path)
{
	static char bytes[8192];
	size_t n = put_member(bytes, "0.jpg", "no picture");

	n += put_member(bytes + n, "0.cls", "7");
	n += put_member(bytes + n, "1.jpg", "no picture");
	n += put_member(bytes + n, "1.cls", "8");
	n += put_member(bytes + n, "2.jpg", "no picture");
	write_file(path, bytes, n + 1024);
}

/* Two numbers; plain and compressed. */
static void make_mds(const char *path, const char *compressed_path)
{
	static const char config[] = "{\"column_names\":[\"x\"],\"column_encodings\":[\"int\"],\"column_sizes\":[8]}";
	const uint32_t begin = 16 + sizeof(config) - 1, head[4] = { 2, begin, begin + 8, begin + 16 };
	char bytes[16 + sizeof(config) - 1 + 16] = { 0 }, compressed[512];

	memcpy(bytes, head, sizeof(head));
	memcpy(bytes + 16, config, sizeof(config) - 1);
	write_file(path, bytes, sizeof(bytes));
	size_t n = ZSTD_compress(compressed, sizeof(compressed), bytes, sizeof(bytes), 1);
	require(!ZSTD_isError(n), "cannot compress");
	write_file(compressed_path, compressed, n);
}

static void make_shards(void)
{
	const char *dir = d.dir;
	char path[100], compressed[100];

	snprintf(path, sizeof(path), "%s/a.tar", dir);
	make_tar(path);
	snprintf(path, sizeof(path), "%s/a.mds", dir);
	snprintf(compressed, sizeof(compressed), "%s/b.mds", dir);
	make_mds(path, compressed);
	snprintf(d.shards[0], sizeof(d.shards[0]), "tar:%s//a.tar", dir);
	snprintf(d.shards[1], sizeof(d.shards[1]), "mds:%s//*.mds#x=x", dir);
	snprintf(d.shards[2], sizeof(d.shards[2]), "mds:%s//b.mds#x=x", dir);
	snprintf(d.shards[3], sizeof(d.shards[3]), "blend:tar:%s//a.tar;;tar:%s//a.tar", dir, dir);
	snprintf(d.shards[4], sizeof(d.shards[4]), "blend:0.7*mds:%s//*.mds#x=x;;0.3*mds:%s//b.mds#x=x", dir, dir);
}

/* A folder with three invalid pictures, a list of them, an array of 24 numbers, and shards. */
static void make_data(void)
{
	unsigned char array[128 + 24] = "\x93NUMPY\1\0\x76\0{'descr': '|u1', 'fortran_order': False, 'shape': (12, 2)}";
	char path[160];

	snprintf(d.folder, sizeof(d.folder), "%s/set", d.dir);
	mkdir(d.folder, 0755);
	snprintf(path, sizeof(path), "%s/cat", d.folder);
	mkdir(path, 0755);
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/cat/%d.jpg", d.folder, i);
		write_file(path, "no picture", 10);
	}
	snprintf(d.list, sizeof(d.list), "%s/list.txt", d.folder);
	write_file(d.list, "cat/0.jpg 0\ncat/1.jpg 1\n", 24);
	for (size_t i = strlen((char *)array + 10) + 10; i < 127; i++)
		array[i] = ' ';
	array[127] = '\n';
	snprintf(d.array, sizeof(d.array), "%s/array.npy", d.folder);
	write_file(d.array, array, sizeof(array));
	make_shards();
}

static void stop_daemon(void)
{
	char command[128];

	kill(getpid(), SIGTERM);
	pthread_join(d.thread, NULL);
	close(d.listen_fd);
	snprintf(command, sizeof(command), "rm -rf %s", d.dir);
	if (system(command))
		fprintf(stderr, "%s is left behind\n", d.dir);
}

static void start_daemon(void)
{
	struct sockaddr_un address;
	socklen_t n;

	strcpy(d.dir, "/tmp/fuzz-daemon-XXXXXX");
	require(mkdtemp(d.dir) != NULL, "no folder");
	snprintf(d.socket, sizeof(d.socket), "%s/socket", d.dir);
	make_data();
	require(wire_address(d.socket, &address, &n) == 0, "no address");
	d.listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	require(bind(d.listen_fd, (struct sockaddr *)&address, n) == 0 && listen(d.listen_fd, 64) == 0, "no socket");
	signal(SIGPIPE, SIG_IGN);
	require(pthread_create(&d.thread, NULL, run_daemon, NULL) == 0, "no thread");
	atexit(stop_daemon);
}

/* ---- the input ---- */

struct input {
	const uint8_t *at, *end;
};

static uint8_t byte(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static uint64_t number(struct input *in)
{
	static const uint64_t odd[] = { 0,         1,         2,          3,         63,
					64,        255,       256,        4096,      4097,
					65536,     INT32_MAX, UINT32_MAX, INT64_MAX, (uint64_t)1 << 63,
					UINT64_MAX };
	uint8_t b = byte(in);

	return b < 128 ? b % 16 : b < 192 ? byte(in) : odd[b % 16];
}

/* ---- clients ---- */

struct client {
	int fd; /* -1: none */
	bool opened, produces, loads;
	uint64_t seek;
	uint64_t step;
	Batchd__Wire__Batch held[N_HELD];
	unsigned n_held;
	struct ring ring;
	uint64_t fill, n_filled;
	uint32_t slab;
};

static struct wire_arena arena;

static int dial(void)
{
	struct sockaddr_un address;
	socklen_t n;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	require(wire_address(d.socket, &address, &n) == 0, "no address");
	require(connect(fd, (struct sockaddr *)&address, n) == 0, "the daemon does not listen");
	return fd;
}

static void hang_up(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	ring_unmap(&c->ring);
	*c = (struct client){ .fd = -1 };
}

static void note(struct client *c, const Batchd__Wire__ServerMessage *m, const int *fds, unsigned n_fds)
{
	c->opened = c->opened || m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED;
	c->loads = c->loads || m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_LOAD_OPENED;
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_FILL)
		c->fill = m->fill->fill;
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_PRODUCING) {
		c->produces = true;
		c->slab = m->producing->slab;
	}
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED && n_fds >= 2 && !c->ring.page)
		require(ring_map(&c->ring, fds[1]) == 0, "the daemon sent a ring that cannot be mapped");
}

/* Takes the batches in the ring, as far as the client has not written over its words. */
static void take_entries(struct client *c)
{
	unsigned char bytes[RING_MAX_MESSAGE];
	const Batchd__Wire__ServerMessage *m;
	size_t n;

	while (c->ring.page && ring_take(&c->ring.batches, bytes, &n) == 0) {
		if (wire_unpack_server(&arena, bytes, n, &m, NULL) == 0 &&
		    m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH)
			c->held[c->n_held++ % N_HELD] = *m->batch;
	}
}

/* Reads messages that have come. wait_ms: how long to wait for the next one until the client is accepted. False: the
 * connection has ended. */
static bool take(struct client *c, int wait_ms)
{
	static unsigned char buf[WIRE_MAX_BYTES];

	for (;;) {
		struct pollfd p = { c->fd, POLLIN, 0 };
		const Batchd__Wire__ServerMessage *m;
		int fds[WIRE_MAX_FDS], r;
		unsigned n_fds = WIRE_MAX_FDS;
		size_t n = sizeof(buf);

		take_entries(c);
		if (poll(&p, 1, wait_ms) != 1)
			return true;
		r = wire_recv(c->fd, buf, &n, fds, &n_fds, MSG_DONTWAIT);
		if (r == -EAGAIN || r == -EINTR)
			return true;
		if (r)
			return false;
		require(wire_unpack_server(&arena, buf, n, &m, NULL) == 0, "the daemon said something illegal");
		require(wire_server_fds_ok(m, n_fds), "the daemon sent descriptors beside the wrong message");
		note(c, m, fds, n_fds);
		wire_close_fds(fds, n_fds);
		wait_ms = wait_ms && !c->opened && !c->produces ? wait_ms : 0;
	}
}

/* ---- what clients send ---- */

static int open_shards(unsigned which, char *dataset, size_t size, int fds[WIRE_MAX_FDS])
{
	int n = which % N_SHARD_SETS < 3 ? 1 : 2; /* after the first three: blends of two */

	snprintf(dataset, size, "%s", d.shards[which % N_SHARD_SETS]);
	for (int i = 0; i < n; i++)
		fds[i] = open(d.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return n;
}

static int open_files(struct input *in, Batchd__Wire__Open *o, char *dataset, size_t size, int fds[WIRE_MAX_FDS])
{
	static const char *const random[] = { "random:length=20,shape=4",
					      "random:length=1,shape=1",
					      "serve:a",
					      "random:length=100000,shape=2x3,dtype=float32",
					      "a",
					      "random:" };
	uint8_t b = byte(in);
	int n = 0;

	if (b % 4 == 0) {
		snprintf(dataset, size, "imagefolder:%s", d.folder);
		fds[n++] = open(d.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	} else if (b % 8 == 1) {
		snprintf(dataset, size, "files:%s", d.list);
		fds[n++] = open(d.list, O_RDONLY | O_CLOEXEC);
		fds[n++] = open(d.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	} else if (b % 8 == 5) {
		snprintf(dataset, size, "npy:%s", d.array);
		fds[n++] = open(d.array, O_RDONLY | O_CLOEXEC);
	} else if (b % 8 == 7) {
		n = open_shards(b / 8, dataset, size, fds);
	} else {
		snprintf(dataset, size, "%s", random[b / 4 % 6]);
	}
	if (b > 250) /* differs from the message */
		fds[n++] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	o->sources = sources_of(dataset);
	return n;
}

/* A valid request of an honest trainer. */
static void fill_honest_open(struct input *in, Batchd__Wire__Open *o)
{
	static char *const jobs[] = { "a", "b", "c", "d" };
	uint8_t b = byte(in), more = byte(in);

	o->job = jobs[b & 3];
	o->transform = "";
	o->mode = b >> 2 & 1;
	o->world_size = 1u + (b >> 3 & 1);
	o->rank = o->mode ? -1 : b >> 4 & (o->world_size > 1);
	o->ring = RING_LAYOUT;
	o->own_batches = !o->mode && b >> 6 == 3;
	o->batch_size = more & 1 ? 2 : 4;
	o->n_slots = more & 2 ? 0 : 2u + (more >> 2 & 3);
	o->policy = o->mode && more & 16 ? (Batchd__Wire__Policy)(more >> 6) : 0;
	o->incarnation = more >> 5 & 1;
	o->producer_wait_ms = 50;
	if (o->sources->n_source && o->sources->source[0]->kind == SOURCE_KIND__SERVE)
		o->own_batches = o->policy = 0;
}

static void fill_open(struct input *in, Batchd__Wire__Open *o)
{
	static char *const jobs[] = { "a", "b", "c", "" };
	static char *const transforms[] = { "", "val224", "[[\"CenterCrop\",[4,4]],\"ToTensor\"]", "[" };
	uint8_t b = byte(in);

	o->job = jobs[b % 4 == 3 ? b / 4 % 4 : b % 4];
	o->transform = !(o->sources->n_source && o->sources->source[0]->kind == SOURCE_KIND__RANDOM) && b % 16 > 3
			       ? transforms[b / 16 % 4]
			       : "";
	o->batch_size = (uint32_t)(b & 64 ? number(in) : 2);
	b = byte(in);
	o->mode = b & 1;
	o->shuffle = b >> 1 & 1;
	o->drop_last = b >> 2 & 1;
	o->own_batches = (b >> 3 & 7) == 7;
	o->ring = b >> 6;
	b = byte(in);
	o->world_size = b % 8 < 6 ? 1u + b % 3 % 2 : (uint32_t)number(in);
	o->rank = b >> 3 & 7 ? (int32_t)(b >> 3 & 1) : (int32_t)number(in);
	o->n_slots = b >> 6 ? 2u + (b >> 6) : (uint32_t)number(in);
	b = byte(in);
	o->policy = (Batchd__Wire__Policy)(b % 16 < 12 ? 0 : b % 4);
	o->incarnation = b >> 6 == 3 ? number(in) : 0;
	o->own_batch_size = b % 32 == 31 ? (uint32_t)number(in) : 0;
	o->again = b >> 5 & 1;
	o->born_ns = b;
	o->dtype = (Batchd__Wire__Dtype)(b % 3);
	o->producer_wait_ms = 1 + b;
}

static void say(struct client *c, const Batchd__Wire__ClientMessage *m, const int *fds, unsigned n_fds)
{
	(void)wire_send(c->fd, &m->base, fds, n_fds, MSG_DONTWAIT);
}

#define SAY(c, BODY, member, pointer) \
	do { \
		Batchd__Wire__ClientMessage say_m = BATCHD__WIRE__CLIENT_MESSAGE__INIT; \
		say_m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_##BODY; \
		say_m.member = (pointer); \
		say((c), &say_m, NULL, 0); \
	} while (0)

static void say_hello(struct client *c, struct input *in)
{
	Batchd__Wire__Hello h = BATCHD__WIRE__HELLO__INIT;

	h.version = byte(in) ? WIRE_VERSION : (uint32_t)number(in);
	h.program = (char *)"fuzz";
	SAY(c, HELLO, hello, &h);
}

static void say_open(struct client *c, struct input *in)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__Open o = BATCHD__WIRE__OPEN__INIT;
	int fds[WIRE_MAX_FDS];
	char dataset[200];
	int n = open_files(in, &o, dataset, sizeof(dataset), fds);

	if (byte(in) % 8)
		fill_honest_open(in, &o);
	else
		fill_open(in, &o);
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_OPEN;
	m.open = &o;
	say(c, &m, fds, (unsigned)n);
	wire_close_fds(fds, (unsigned)n);
}

static void say_seek(struct client *c, struct input *in)
{
	Batchd__Wire__Seek s = BATCHD__WIRE__SEEK__INIT;
	uint8_t b = byte(in);

	s.seek = b > 240 ? number(in) : ++c->seek;
	s.epoch = b & 3 ? b >> 2 & 1 : number(in);
	s.step = b & 8 ? 0 : number(in);
	s.base_sample = b & 48 ? 0 : number(in);
	c->step = s.step;
	SAY(c, SEEK, seek, &s);
}

static void say_join(struct client *c, struct input *in)
{
	Batchd__Wire__Join j = BATCHD__WIRE__JOIN__INIT;

	j.seek = ++c->seek;
	j.start = (Batchd__Wire__Start)(byte(in) % 3);
	SAY(c, JOIN, join, &j);
}

static void say_indices(struct client *c, struct input *in)
{
	Batchd__Wire__Indices x = BATCHD__WIRE__INDICES__INIT;
	uint64_t index[8];
	uint8_t b = byte(in);

	x.seek = c->seek;
	x.step = b & 128 ? number(in) : c->step++;
	x.n_index = b % 9;
	for (size_t i = 0; i < x.n_index; i++)
		index[i] = number(in);
	x.index = index;
	x.more = b >> 6 & 1;
	SAY(c, INDICES, indices, &x);
}

static void say_release(struct client *c, struct input *in)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__Release r = BATCHD__WIRE__RELEASE__INIT;
	Batchd__Wire__Wake wake = BATCHD__WIRE__WAKE__INIT;
	uint8_t b = byte(in);
	const Batchd__Wire__Batch *held = &c->held[b % N_HELD];

	r.slot = b & 128 ? (uint32_t)number(in) : held->slot;
	r.generation = b & 64 ? number(in) : held->generation;
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_RELEASE;
	m.release = &r;
	if (b & 32 || !c->ring.page || ring_put(&c->ring.releases, &m.base))
		say(c, &m, NULL, 0);
	else if (ring_wake_daemon_released(&c->ring))
		SAY(c, WAKE, wake, &wake);
}

/* Writes any number to any field of the page, or the next value of a counter. */
static void write_page(struct client *c, struct input *in)
{
	struct ring_page *p = c->ring.page;
	uint8_t b = byte(in);

	if (!p)
		return;
	_Atomic uint32_t *fields[] = { &p->batches.taken,    &p->releases.produced, &p->waiting,
				       &p->batches.produced, &p->releases.taken,    &p->wake_at };
	_Atomic uint32_t *field = fields[b % 6];

	if (b & 128)
		p->release[b % RING_ENTRIES][byte(in) % RING_RELEASE_BYTES] = byte(in);
	else
		atomic_store(field, b & 64 ? (uint32_t)number(in) : atomic_load(field) + 1);
}

static void say_produce(struct client *c, struct input *in)
{
	Batchd__Wire__Produce p = BATCHD__WIRE__PRODUCE__INIT;
	uint8_t b = byte(in);

	p.name = (char *)"a";
	p.slot_bytes = b & 3 ? 4096 : number(in);
	p.n_batches = b & 4 ? number(in) : 0;
	p.resumable = b >> 3 & 1;
	p.incarnation = b >> 6;
	SAY(c, PRODUCE, produce, &p);
}

/* With a memfd, which usually is what it has to be. */
static void say_large(struct client *c, const Batchd__Wire__Filled *f, struct input *in)
{
	const int seals[] = { F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, F_SEAL_SHRINK, F_SEAL_WRITE, 0 };
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__Filled filled = *f;
	uint8_t b = byte(in);
	int fd = memfd_create("batch", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	filled.n_bytes = f->n_bytes % (1 << 22);
	require(fd >= 0 && ftruncate(fd, (off_t)filled.n_bytes + (b & 64)) == 0 &&
			fcntl(fd, F_ADD_SEALS, seals[b & 4 ? b & 3 : 0]) == 0,
		"no memfd");
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_FILLED;
	m.filled = &filled;
	say(c, &m, &fd, 1);
	close(fd);
}

static void say_filled(struct client *c, struct input *in)
{
	Batchd__Wire__Filled f = BATCHD__WIRE__FILLED__INIT;
	uint8_t b = byte(in);

	f.fill = b & 128 ? number(in) : b & 64 ? 0 : ++c->n_filled;
	f.slab = b & 32 ? (uint32_t)number(in) : c->slab;
	f.n_rows = b & 1 ? 1 : (uint32_t)number(in);
	f.n_bytes = b & 2 ? 0 : number(in);
	f.end = (b >> 2 & 3) == 3;
	f.skipped = (b >> 2 & 3) == 2;
	f.n_batches = b & 16 ? number(in) : 0;
	if (f.n_bytes % 4 == 1 && f.n_rows)
		say_large(c, &f, in);
	else
		SAY(c, FILLED, filled, &f);
}

static const char picture[] = "P5 2 2 255\nabcd";

/* Its memory has nothing in it, or a picture. */
static void say_load_open(struct client *c, struct input *in)
{
	static const char *const transforms[] = { "", "val224", "[[\"Resize\", [8, 9]], \"ToTensor\"]", "[", "{}" };
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__LoadOpen o = BATCHD__WIRE__LOAD_OPEN__INIT;
	uint8_t b = byte(in);
	int fd = b & 1 ? memfd_create("fuzz", MFD_CLOEXEC) : open("/dev/null", O_RDONLY | O_CLOEXEC);

	o.transform = (char *)transforms[b / 2 % 5];
	o.dtype = (Batchd__Wire__Dtype)(b >> 4);
	o.apply_exif = b & 8;
	if (b & 4 && write(fd, picture, sizeof(picture) - 1) < 0)
		o.transform = (char *)"";
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_LOAD_OPEN;
	m.load_open = &o;
	say(c, &m, &fd, fd >= 0);
	if (fd >= 0)
		close(fd);
}

static void say_load(struct client *c, struct input *in)
{
	Batchd__Wire__Load l = BATCHD__WIRE__LOAD__INIT;
	uint8_t b = byte(in);

	l.slot = b & 1 ? (uint32_t)number(in) : b >> 6;
	l.offset = b & 2 ? number(in) : 0;
	l.n_bytes = b & 4 ? number(in) : b & 16 ? 1 : sizeof(picture) - 1;
	l.index = b & 8 ? number(in) : 0;
	SAY(c, LOAD, load, &l);
}

static void say_something(struct client *c, struct input *in, uint8_t what)
{
	Batchd__Wire__StatusRequest status = BATCHD__WIRE__STATUS_REQUEST__INIT;
	Batchd__Wire__ProducerEnd end = BATCHD__WIRE__PRODUCER_END__INIT;
	Batchd__Wire__ClassesRequest classes = BATCHD__WIRE__CLASSES_REQUEST__INIT;
	Batchd__Wire__Close bye = BATCHD__WIRE__CLOSE__INIT;
	struct any_message any;

	switch (what) {
	case 0:
		SAY(c, STATUS, status, &status);
		break;
	case 1:
		classes.first = (uint32_t)number(in);
		SAY(c, CLASSES, classes, &classes);
		break;
	case 4:
		end.text = (char *)"over";
		SAY(c, PRODUCER_END, producer_end, &end);
		break;
	case 5:
		SAY(c, CLOSE, close, &bye);
		break;
	case 6:
	case 14: /* also before Opened: see step */
		say_load_open(c, in);
		break;
	case 7:
	case 8:
	case 15:
		say_load(c, in);
		break;
	default: /* an empty one of any kind */
		any_message_make(&any, byte(in) % any_message_kinds());
		say(c, &any.message, NULL, 0);
	}
}

static void step(struct client *c, struct input *in, uint8_t what)
{
	if (c->fd < 0) {
		c->fd = dial();
		if (what < 240)
			say_hello(c, in);
	}
	/* Mostly in an order that leads somewhere: most messages before Opened end the connection. */
	if (!c->opened && !c->produces && !c->loads && what % 16 > 1 && what % 16 < 14 && what < 224) {
		if (what % 16 > 10)
			say_produce(c, in);
		else
			say_open(c, in);
		if (!take(c, OPENED_MS))
			hang_up(c);
		return;
	}
	switch (what % 16) {
	case 0:
	case 1:
		say_open(c, in);
		break;
	case 2:
		say_seek(c, in);
		break;
	case 3: /* often enough that a count without limit shows */
		for (int n = what >= 192 ? MANY : 1; n > 0; n--) {
			say_seek(c, in);
			if (!take(c, 0)) {
				hang_up(c);
				return;
			}
		}
		break;
	case 4:
		say_join(c, in);
		break;
	case 5:
		say_indices(c, in);
		break;
	case 6:
	case 7:
		say_release(c, in);
		break;
	case 8:
	case 9:
		write_page(c, in);
		break;
	case 10:
		say_produce(c, in);
		break;
	case 11:
		say_filled(c, in);
		break;
	case 12:
	case 13:
		say_something(c, in, what / 16);
		break;
	case 14:
		if (!take(c, what / 16)) /* waits a little, so that something may come */
			hang_up(c);
		return;
	default:
		hang_up(c);
		return;
	}
	if (!take(c, 0))
		hang_up(c);
}

/* ---- afterwards ---- */

/* Whether the next message has come. The fuzzer's clock interrupts the wait. */
static bool hear(int fd, void *buf, size_t n)
{
	struct pollfd p = { fd, POLLIN, 0 };
	unsigned n_fds = 0;
	int r;

	do
		r = poll(&p, 1, ANSWER_MS);
	while (r < 0 && errno == EINTR);
	if (r != 1)
		return false;
	do
		r = wire_recv(fd, buf, &n, NULL, &n_fds, 0);
	while (r == -EINTR);
	return r == 0;
}

/* The daemon answers, and shows that all other clients have gone. */
static void check_daemon(void)
{
	static const char nothing[] = "\"loaders\":[],\"sessions\":[]";

	for (int tries = 0;; tries++) {
		struct client c = { .fd = dial() };
		Batchd__Wire__StatusRequest r = BATCHD__WIRE__STATUS_REQUEST__INIT;
		Batchd__Wire__Hello h = BATCHD__WIRE__HELLO__INIT;
		static unsigned char buf[WIRE_MAX_BYTES];

		h.version = WIRE_VERSION;
		h.program = (char *)"witness";
		SAY(&c, HELLO, hello, &h);
		require(hear(c.fd, buf, sizeof(buf)), "the daemon does not answer");
		SAY(&c, STATUS, status, &r);
		memset(buf, 0, sizeof(buf));
		require(hear(c.fd, buf, sizeof(buf)), "the daemon does not say how it is");
		bool gone = memmem(buf, sizeof(buf), nothing, strlen(nothing)) != NULL;

		hang_up(&c);
		if (gone)
			return;
		require(tries < ANSWER_MS / 10, "the daemon keeps what no client has any more");
		usleep(10000);
	}
}

static _Noreturn void run_clients(struct input in)
{
	struct client clients[N_CLIENTS];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < N_CLIENTS; i++)
		clients[i] = (struct client){ .fd = -1 };
	for (int n = 0; in.at < in.end && n < MAX_STEPS; n++) {
		uint8_t who = byte(&in), what = byte(&in);

		step(&clients[who % N_CLIENTS], &in, what);
	}
	_exit(0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int status;
	pid_t pid;

	if (!d.dir[0]) {
		wire_arena_init(&arena);
		start_daemon();
	}
	pid = fork();
	require(pid >= 0, "no process");
	if (pid == 0)
		run_clients((struct input){ data, data + size });
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	require(status == 0, "a client has failed");
	check_daemon();
	return 0;
}
