/* Single images, made by the daemon's workers: see batchd.h.
 *
 * The memfd that the daemon reads from begins with a part for each slot, which stays mapped here, so that an image of
 * usual size is copied once and touches no new memory. A larger one has a place after these parts, and its memory is
 * given back at once. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "batchd.h"
#include "link/connect.h"
#include "link/field.h"

#define PART_BYTES ((size_t)1 << 20)
#define MOST_BYTES ((uint64_t)256 << 20) /* of an image: the daemon's limit */
enum { COPY_BYTES = 256 << 10 };

struct place {
	uint32_t image; /* which of the call's */
	bool busy, large;
};

struct batchd_load {
	struct connection c;
	struct fault fault;
	pid_t pid;
	int memfd;
	uint8_t *parts;      /* n_slots of PART_BYTES */
	const uint8_t *rows; /* n_slots of slot_bytes */
	uint32_t n_slots, shape[3];
	size_t slot_bytes, row_bytes;
	/* Of the call under way: images that were sent, and those that came back; the first that failed. */
	uint32_t n_sent, n_back, failed;
	struct place place[WIRE_MAX_LOADS];
};

void batchd_load_options_init(struct batchd_load_options *o)
{
	memset(o, 0, sizeof *o);
	o->size_bytes = sizeof *o;
	o->transform = "val224";
	o->dtype = BATCHD_FLOAT32;
	o->autostart = 1;
}

/* ---- opening ---- */

static int load_fail_memory(struct batchd_load *l)
{
	return fault_set(&l->fault, BATCHD_E_NOMEM, "no memory for images that are loaded: %s", strerror(errno));
}

static int load_ask(struct batchd_load *l, const struct batchd_load_options *o)
{
	Batchd__Wire__LoadOpen body = BATCHD__WIRE__LOAD_OPEN__INIT;

	body.transform = (char *)(o->transform ? o->transform : "");
	body.dtype = (Batchd__Wire__Dtype)o->dtype;
	body.layout = (Batchd__Wire__Layout)o->layout;
	body.apply_exif = o->apply_exif;
	if (strlen(body.transform) > WIRE_MAX_TRANSFORM)
		return fault_set(&l->fault, BATCHD_E_INVALID, "the transform has more than %d bytes",
				 WIRE_MAX_TRANSFORM);
	return connection_send(&l->c, WIRE_CLIENT(LOAD_OPEN, load_open, &body), &l->memfd, 1) < 0
		       ? connection_lost(&l->c, &l->fault)
		       : 0;
}

/* A caller makes room for rows by their shape. */
static int load_check_rows(struct batchd_load *l, const Batchd__Wire__LoadOpened *m, unsigned dtype)
{
	uint64_t n = field_dtype_bytes(dtype);
	bool fits = n > 0;

	for (unsigned i = 0; i < 3; i++)
		fits = fits && !__builtin_mul_overflow(n, m->shape[i], &n);
	return fits && n == m->row_bytes ? 0
					 : fault_set(&l->fault, BATCHD_E_PROTOCOL,
						     "batchd at %s: its rows have %llu bytes, which %u x %u x %u "
						     "numbers do not take",
						     l->c.address, (unsigned long long)m->row_bytes, m->shape[0],
						     m->shape[1], m->shape[2]);
}

/* Memory that the daemon could make shorter would end this process. */
static int load_check_memory(struct batchd_load *l, int slab)
{
	int seals = fcntl(slab, F_GET_SEALS);
	struct stat st;

	if (seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(slab, &st) == 0 &&
	    (uint64_t)st.st_size >= l->n_slots * l->slot_bytes)
		return 0;
	return fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s offers memory that it could take away",
			 l->c.address);
}

static int load_map(struct batchd_load *l, const Batchd__Wire__LoadOpened *m, int slab)
{
	void *rows, *parts;
	int r;

	l->n_slots = m->n_slots;
	l->slot_bytes = m->slot_bytes;
	l->row_bytes = m->row_bytes;
	memcpy(l->shape, m->shape, sizeof l->shape);
	r = load_check_memory(l, slab);
	if (r < 0)
		return r;
	rows = mmap(NULL, l->n_slots * l->slot_bytes, PROT_READ, MAP_SHARED, slab, 0);
	if (rows == MAP_FAILED)
		return load_fail_memory(l);
	l->rows = rows;
	if (ftruncate(l->memfd, (off_t)(l->n_slots * PART_BYTES)) < 0)
		return load_fail_memory(l);
	parts = mmap(NULL, l->n_slots * PART_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, l->memfd, 0);
	if (parts == MAP_FAILED)
		return load_fail_memory(l);
	l->parts = parts;
	return 0;
}

static int load_await_opened(struct batchd_load *l, unsigned dtype)
{
	const Batchd__Wire__ServerMessage *m;
	int fds[CONNECTION_FDS] = { -1, -1, -1 }, r;

	do
		r = connection_recv(&l->c, 0, &m, fds, &l->fault);
	while (r == BATCHD_AGAIN);
	if (r == 0 && m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_LOAD_OPENED)
		r = fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s answers LoadOpen with %s", l->c.address,
			      wire_server_name(m));
	else if (r == 0)
		r = load_check_rows(l, m->load_opened, dtype);
	if (r == 0)
		r = load_map(l, m->load_opened, fds[0]);
	for (int i = 0; i < CONNECTION_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return r;
}

int batchd_load_open(const struct batchd_load_options *options, struct batchd_load **out, char *err, size_t err_size)
{
	struct batchd_load_options o;
	struct batchd_load *l = calloc(1, sizeof *l);
	struct fault f = { 0 };
	int r;

	*out = NULL;
	if (!l) {
		fault_set(&f, BATCHD_E_NOMEM, "out of memory");
		return fault_give(&f, err, err_size);
	}
	batchd_load_options_init(&o);
	memcpy(&o, options, options->size_bytes < sizeof o ? options->size_bytes : sizeof o);
	l->pid = getpid();
	l->c.socket = -1;
	l->memfd = (int)syscall(SYS_memfd_create, "batchd-load", 1u /* MFD_CLOEXEC */ | 2u /* MFD_ALLOW_SEALING */);
	r = l->memfd < 0 ? load_fail_memory(l) : 0;
	if (r == 0)
		r = connection_open(&l->c, o.socket, o.autostart, o.program, &l->fault);
	if (r == 0)
		r = load_ask(l, &o);
	if (r == 0)
		r = load_await_opened(l, o.dtype);
	if (r == 0) {
		*out = l;
		return 0;
	}
	f = l->fault;
	batchd_load_close(l);
	return fault_give(&f, err, err_size);
}

void batchd_load_close(struct batchd_load *l)
{
	if (!l)
		return;
	connection_close(&l->c);
	if (l->memfd >= 0)
		close(l->memfd);
	if (l->parts)
		munmap(l->parts, l->n_slots * PART_BYTES);
	if (l->rows)
		munmap((void *)l->rows, l->n_slots * l->slot_bytes);
	free(l);
}

void batchd_load_shape(const struct batchd_load *l, uint32_t shape[3])
{
	memcpy(shape, l->shape, sizeof l->shape);
}

size_t batchd_load_row_bytes(const struct batchd_load *l)
{
	return l->row_bytes;
}

/* ---- an image into the memfd ---- */

static uint64_t load_offset(const struct batchd_load *l, uint32_t slot)
{
	return l->place[slot].large ? l->n_slots * PART_BYTES + slot * MOST_BYTES : slot * PART_BYTES;
}

static int load_write(struct batchd_load *l, uint32_t slot, uint64_t at, const void *bytes, size_t n)
{
	const uint8_t *from = bytes;

	while (n) {
		ssize_t put = pwrite(l->memfd, from, n, (off_t)(load_offset(l, slot) + at));

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return load_fail_memory(l);
		from += put;
		at += (uint64_t)put;
		n -= (size_t)put;
	}
	return 0;
}

/* n bytes to `to`, fewer only at the file's end; -1: errno. */
static ssize_t load_read(int fd, void *to, size_t n)
{
	size_t got = 0;

	while (got < n) {
		ssize_t more = read(fd, (uint8_t *)to + got, n - got);

		if (more < 0 && errno == EINTR)
			continue;
		if (more < 0)
			return -1;
		if (!more)
			break;
		got += (size_t)more;
	}
	return (ssize_t)got;
}

static int load_unreadable(struct batchd_load *l, int error)
{
	return fault_set(&l->fault, error == ENOENT ? BATCHD_E_NOT_FOUND : BATCHD_E_ACCESS, "cannot read it: %s",
			 strerror(error));
}

static int load_too_large(struct batchd_load *l, uint64_t n_bytes)
{
	return fault_set(&l->fault, BATCHD_E_BAD_DATA, "it has %llu bytes; at most %llu are read",
			 (unsigned long long)n_bytes, (unsigned long long)MOST_BYTES);
}

static int load_copy_large(struct batchd_load *l, uint32_t slot, int fd, size_t *n_bytes)
{
	uint8_t *buffer = malloc(COPY_BYTES);
	size_t all = 0;
	ssize_t got = 1;
	int r = buffer ? 0 : load_fail_memory(l);

	while (r == 0 && got > 0 && all <= MOST_BYTES) {
		got = load_read(fd, buffer, COPY_BYTES);
		r = got < 0 ? load_unreadable(l, errno) : load_write(l, slot, all, buffer, (size_t)got);
		all += got > 0 ? (size_t)got : 0;
	}
	free(buffer);
	*n_bytes = all;
	return r == 0 && all > MOST_BYTES ? load_too_large(l, all) : r;
}

static int load_copy_file(struct batchd_load *l, uint32_t slot, int fd, size_t *n_bytes)
{
	struct stat st;
	ssize_t got;

	if (fstat(fd, &st) < 0)
		return load_unreadable(l, errno);
	if (!S_ISREG(st.st_mode))
		return fault_set(&l->fault, BATCHD_E_INVALID, "it is not a regular file");
	if ((uint64_t)st.st_size > MOST_BYTES)
		return load_too_large(l, (uint64_t)st.st_size);
	l->place[slot].large = (size_t)st.st_size > PART_BYTES;
	if (l->place[slot].large)
		return load_copy_large(l, slot, fd, n_bytes);
	got = load_read(fd, l->parts + slot * PART_BYTES, (size_t)st.st_size);
	if (got < 0)
		return load_unreadable(l, errno);
	*n_bytes = (size_t)got;
	return 0;
}

static int load_copy(struct batchd_load *l, uint32_t slot, const struct batchd_image *image, size_t *n_bytes)
{
	int fd, r;

	if (!image->path) {
		if (image->n_bytes > MOST_BYTES)
			return load_too_large(l, image->n_bytes);
		*n_bytes = image->n_bytes;
		l->place[slot].large = image->n_bytes > PART_BYTES;
		if (l->place[slot].large)
			return load_write(l, slot, 0, image->bytes, image->n_bytes);
		if (image->n_bytes)
			memcpy(l->parts + slot * PART_BYTES, image->bytes, image->n_bytes);
		return 0;
	}
	fd = open(image->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return load_unreadable(l, errno);
	r = load_copy_file(l, slot, fd, n_bytes);
	close(fd);
	return r;
}

static void load_give_back(struct batchd_load *l, uint32_t slot)
{
	if (l->place[slot].large)
		fallocate(l->memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)load_offset(l, slot),
			  (off_t)MOST_BYTES);
	l->place[slot].large = false;
}

/* ---- a call ---- */

static uint32_t load_free_slot(const struct batchd_load *l)
{
	uint32_t i = 0;

	while (i < l->n_slots && l->place[i].busy)
		i++;
	return i;
}

/* After an image that failed, no further one is sent. Negative: the connection is lost. */
static int load_send(struct batchd_load *l, const struct batchd_image *image)
{
	Batchd__Wire__Load body = BATCHD__WIRE__LOAD__INIT;
	uint32_t slot = load_free_slot(l);
	size_t n_bytes = 0;
	int r = load_copy(l, slot, image, &n_bytes);

	if (r < 0) {
		load_give_back(l, slot);
		l->failed = l->n_sent;
		return 0;
	}
	body.slot = slot;
	body.offset = load_offset(l, slot);
	body.n_bytes = n_bytes;
	body.seed = image->seed;
	body.epoch = image->epoch;
	body.index = image->index;
	if (connection_send(&l->c, WIRE_CLIENT(LOAD, load, &body), NULL, 0) < 0)
		return connection_lost(&l->c, &l->fault);
	l->place[slot].busy = true;
	l->place[slot].image = l->n_sent++;
	return 0;
}

static int load_take(struct batchd_load *l, uint8_t *rows)
{
	const Batchd__Wire__ServerMessage *m;
	const Batchd__Wire__Loaded *back;
	struct place *p;
	int r = connection_recv(&l->c, 0, &m, NULL, &l->fault);

	if (r)
		return r;
	back = m->loaded;
	if (m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_LOADED || back->slot >= l->n_slots ||
	    !l->place[back->slot].busy)
		return fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s answers Load with %s", l->c.address,
				 wire_server_name(m));
	p = &l->place[back->slot];
	if (back->code == BATCHD__WIRE__ERROR_CODE__OK) {
		memcpy(rows + p->image * l->row_bytes, l->rows + back->slot * l->slot_bytes, l->row_bytes);
	} else if (p->image < l->failed) { /* the first of those that failed is told */
		l->failed = p->image;
		fault_set(&l->fault,
			  back->code == BATCHD__WIRE__ERROR_CODE__BAD_DATA ? BATCHD_E_BAD_DATA : BATCHD_E_INTERNAL,
			  "%s", back->text);
	}
	load_give_back(l, back->slot);
	p->busy = false;
	l->n_back++;
	return 0;
}

int batchd_load_images(struct batchd_load *l, const struct batchd_image *images, uint32_t n, void *rows,
		       uint32_t *failed, char *err, size_t err_size)
{
	int r = 0;

	*failed = UINT32_MAX;
	if (l->pid != getpid()) {
		struct fault f = { 0 };

		fault_set(&f, BATCHD_E_FORKED, "this connection belongs to the parent of this process: open another");
		return fault_give(&f, err, err_size);
	}
	if (l->c.socket < 0)
		return fault_give(&l->fault, err, err_size);
	if (!l->n_sent && !l->n_back)
		l->failed = UINT32_MAX;
	while (r == 0 && (l->n_back < l->n_sent || (l->n_sent < n && l->failed == UINT32_MAX))) {
		if (l->n_sent < n && l->failed == UINT32_MAX && load_free_slot(l) < l->n_slots)
			r = load_send(l, &images[l->n_sent]);
		else
			r = load_take(l, rows);
	}
	if (r == BATCHD_AGAIN)
		return r;
	l->n_sent = l->n_back = 0;
	if (r < 0)
		connection_close(&l->c);
	else
		*failed = l->failed;
	return r < 0 || l->failed != UINT32_MAX ? fault_give(&l->fault, err, err_size) : 0;
}
