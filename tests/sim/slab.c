/* Memory that is counted. After the daemon has dropped a slab or a ring, it stays readable for every client that has
 * mapped it, as a memfd does. See sim.h. */
#include <errno.h>

#include "batch/large-batch.h"
#include "sim.h"

unsigned sim_no_memory_percent;
static uint64_t daemon_bytes, large_bytes;
static unsigned n_slabs, n_in_daemon, n_pages;

int __wrap_slab_init(struct slab *s, size_t size_bytes, size_t present_bytes);
int __wrap_slab_init_open(struct slab *s, size_t size_bytes);
int __wrap_slab_seal(struct slab *s);
int __wrap_slab_extend(struct slab *s, size_t offset, size_t n_bytes);
void __wrap_slab_finish(struct slab *s);

static int make(struct slab *s, size_t size_bytes, size_t present_bytes)
{
	size_t bytes = (size_bytes + 4095) / 4096 * 4096;
	if (sim_chance(sim_no_memory_percent))
		return -ENOMEM;
	struct sim_slab *x = calloc(1, sizeof(*x));
	x->base = aligned_alloc(64, bytes);
	memset(x->base, 0xa5, bytes < 4096 ? bytes : 4096);
	x->bytes = bytes;
	x->present = present_bytes;
	x->n_refs = 1;
	x->in_daemon = true;
	daemon_bytes += present_bytes;
	n_in_daemon++;
	n_slabs++;
	*s = (struct slab){ .base = x->base, .bytes = bytes, .fd = sim_fd_open(x), .writable_fd = -1 };
	return 0;
}

int __wrap_slab_init(struct slab *s, size_t size_bytes, size_t present_bytes)
{
	int r = make(s, size_bytes, present_bytes);
	if (r)
		return r;
	((struct sim_slab *)sim_fd_thing(s->fd))->sealed = true;
	if (present_bytes < size_bytes)
		s->writable_fd = sim_fd_open(sim_fd_thing(s->fd));
	return 0;
}

int __wrap_slab_init_open(struct slab *s, size_t size_bytes)
{
	int r = make(s, size_bytes, size_bytes);
	if (r == 0)
		s->writable_fd = sim_fd_open(sim_fd_thing(s->fd));
	return r;
}

int __wrap_slab_seal(struct slab *s)
{
	SIM_CHECK(s->writable_fd >= 0, "a slab is sealed twice");
	struct sim_slab *x = sim_fd_thing(s->writable_fd);
	wire_close_fds(&s->writable_fd, 1);
	x->sealed = true;
	return 0;
}

int __wrap_slab_extend(struct slab *s, size_t offset, size_t n_bytes)
{
	struct sim_slab *x = sim_fd_thing(s->fd);
	SIM_CHECK(s->writable_fd >= 0, "a slab grows that is sealed");
	SIM_CHECK(offset == x->present && offset + n_bytes <= x->bytes, "a slab grows where it should not");
	if (sim_chance(sim_no_memory_percent))
		return -ENOMEM;
	x->present += n_bytes;
	daemon_bytes += n_bytes;
	return 0;
}

void __wrap_slab_finish(struct slab *s)
{
	struct sim_slab *x = sim_fd_thing(s->fd);
	wire_close_fds(&s->fd, 1);
	if (s->writable_fd >= 0)
		wire_close_fds(&s->writable_fd, 1);
	x->in_daemon = false;
	daemon_bytes -= x->present;
	n_in_daemon--;
	sim_slab_unref(x);
	*s = (struct slab){ .fd = -1, .writable_fd = -1 };
}

void sim_slab_unref(struct sim_slab *s)
{
	if (!s || --s->n_refs > 0)
		return;
	free(s->base);
	free(s);
	n_slabs--;
}

/* ---- batches that do not fit ---- */

struct large_batch *__wrap_large_batch_create(int fd, uint64_t n_bytes, uid_t payer, const char **why);
void __wrap_slab_release(void *base, size_t bytes, const int fds[2], uid_t payer);

struct sim_slab *sim_slab_alone(size_t n_bytes)
{
	struct sim_slab *x = calloc(1, sizeof(*x));
	x->base = calloc(1, n_bytes);
	x->bytes = x->present = n_bytes;
	x->n_refs = 1;
	x->sealed = true;
	n_slabs++;
	return x;
}

struct large_batch *__wrap_large_batch_create(int fd, uint64_t n_bytes, uid_t payer, const char **why)
{
	struct sim_slab *x = sim_fd_thing(fd);
	struct large_batch *b = calloc(1, sizeof(*b));
	SIM_CHECK(x->bytes == n_bytes, "a large batch of another size");
	*why = NULL;
	large_bytes += n_bytes;
	*b = (struct large_batch){ .fd = fd, .n_bytes = n_bytes, .held_bytes = n_bytes, .payer = payer };
	return b;
}

/* Only large batches get here. */
void __wrap_slab_release(void *base, size_t bytes, const int fds[2], uid_t payer)
{
	int fd = fds[0];
	(void)payer;
	SIM_CHECK(!base && !bytes && fds[1] < 0, "memory is given back that was not made here");
	large_bytes -= ((struct sim_slab *)sim_fd_thing(fd))->bytes;
	sim_slab_unref(sim_fd_thing(fd));
	wire_close_fds(&fd, 1);
}

uint64_t sim_daemon_slab_bytes(void)
{
	return daemon_bytes;
}

uint64_t sim_large_bytes(void)
{
	return large_bytes;
}

unsigned sim_n_slabs(void)
{
	return n_slabs;
}

unsigned sim_n_slabs_in_daemon(void)
{
	return n_in_daemon;
}

/* ---- rings ---- */

int __wrap_ring_create(struct ring *r, int *fd);
void __wrap_ring_unmap(struct ring *r);

void sim_page_unref(struct sim_page *p)
{
	if (!p || --p->n_refs > 0)
		return;
	free(p);
	n_pages--;
}

/* Same as ring.c's map. */
void sim_page_map(struct sim_page *p, struct ring *r)
{
	p->n_refs++;
	r->page = &p->page;
	r->batches = (struct ring_end){ &p->page.batches, p->page.batch[0], RING_BATCH_BYTES, 0, 0, false };
	r->releases = (struct ring_end){ &p->page.releases, p->page.release[0], RING_RELEASE_BYTES, 0, 0, false };
}

int __wrap_ring_create(struct ring *r, int *fd)
{
	*r = (struct ring){ 0 };
	*fd = -1;
	if (sim_chance(sim_no_memory_percent))
		return -ENOMEM;
	struct sim_page *p = aligned_alloc(_Alignof(struct sim_page), sizeof(*p));
	memset(p, 0, sizeof(*p));
	n_pages++;
	sim_page_map(p, r);
	*fd = sim_fd_open(p);
	return 0;
}

void __wrap_ring_unmap(struct ring *r)
{
	if (r->page)
		sim_page_unref((struct sim_page *)(void *)r->page);
	*r = (struct ring){ 0 };
}

unsigned sim_n_pages(void)
{
	return n_pages;
}
