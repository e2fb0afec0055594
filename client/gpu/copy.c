/* Places for batches on the GPU, filled from the host slab on a stream of this library's own.
 *
 * The slab's ordinary mapping is private, so a page that the trainer writes to becomes another page at the same
 * address, while the GPU's DMA would still read the page that was pinned. So the DMA has a mapping of its own: shared
 * and read-only, as the memfd allows no other. There are three ways to copy from there; the first that works is
 * taken:
 *
 *   direct     the mapping itself is pinned. It needs a GPU and a driver that can register read-only memory (not all
 *              can on x86; an H100 with driver 580 can). The trainer's thread only queues the copy.
 *   staged     a thread copies each slot into one of two pinned buffers and queues the copy from there.
 *   pageable   nothing can be pinned (confidential computing, a limit on locked memory): the thread has the driver
 *              copy through buffers of its own.
 *
 * A batch has a place from the copy of its slot until its lease has ended, which is after all work that reads it has
 * been seen complete. Few places serve many slots: more are made only while the trainer itself holds so many batches,
 * because the memory is the trainer's and lies outside the daemon's budget. A slot that was copied ahead of its turn and
 * then not lent (the trainer has sought another position) lends its place to the next slot that finds none. */
#include "gpu/copy.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "batchd.h"
#include "gpu/copy-thread.h"

enum { N_STAGES = 2, N_PLACES = 6 }; /* N_PLACES: at first: a batch in hand, four that the GPU still reads, the next */

/* Pinned at a time; a multiple of the page's size. Other processes wait in the driver while a piece is pinned, 40 ms for
 * 1 GiB, 2 ms for this (tests/gpu/RESULTS.md). */
static const size_t PIECE = (size_t)64 << 20;
static const size_t GRANULARITY = (size_t)2 << 20; /* of the GPU's memory */
static const size_t ALIGN = 256;                   /* of a place on the GPU, as in the daemon's own slabs */

struct stage {
	char *memory;            /* pinned; NULL: direct or pageable */
	struct cuda_event *done; /* the last copy out of it */
};

struct copy {
	const struct gpu *gpu;
	char *host; /* the slab, shared and read-only */
	size_t n_bytes, slot_bytes, stride;
	size_t n_pinned; /* bytes of the slab; 0: staged or pageable */
	bool stays;      /* a part could not be unpinned */
	uint32_t n_slots;
	struct cuda_stream *stream;
	struct copy_thread *thread; /* staged, pageable; then it owns the stages and the stream */
	struct stage stage[N_STAGES];
	unsigned next_stage;
	struct copied {
		uint64_t generation; /* requested last; 0: none yet, as the daemon begins with 1 */
		struct cuda_event *done;
		cuda_ptr place; /* 0: none; under the lock, as is_lent */
		bool is_lent;   /* the trainer asked for the batch */
	} *copied;              /* of each slot */
	pthread_mutex_t lock;
	cuda_ptr *memory;      /* what was allocated, a place or several at a time */
	cuda_ptr *free_places; /* a stack */
	uint32_t n_memory, n_places, n_free;
};

/* ---- pinning ---- */

/* Memory that CUDA cannot unregister must not be unmapped: its address would soon be reused. False: some is left. */
static bool copy_unpin(struct copy *c)
{
	bool all = true;

	for (size_t at = 0; at < c->n_pinned; at += PIECE)
		all &= c->gpu->driver->mem_host_unregister(c->host + at) == CUDA_OK;
	c->n_pinned = 0;
	return all;
}

static int pin_slab(struct copy *c)
{
	int r = CUDA_OK;

	for (size_t at = 0; at < c->n_bytes && r == CUDA_OK; at += PIECE) {
		size_t n = c->n_bytes - at < PIECE ? c->n_bytes - at : PIECE;

		r = c->gpu->driver->mem_host_register(c->host + at, n,
						      CUDA_HOST_REGISTER_PORTABLE | CUDA_HOST_REGISTER_READ_ONLY);
		if (r == CUDA_OK)
			c->n_pinned = at + n;
	}
	if (r != CUDA_OK)
		c->stays = !copy_unpin(c);
	return r;
}

static int make_stages(struct copy *c)
{
	int r = CUDA_OK;

	for (unsigned i = 0; i < N_STAGES && r == CUDA_OK; i++) {
		struct stage *s = &c->stage[i];
		void *memory = NULL;

		r = c->gpu->driver->mem_host_alloc(&memory, c->slot_bytes, CUDA_HOST_ALLOC_PORTABLE);
		s->memory = r == CUDA_OK ? memory : NULL;
		if (r == CUDA_OK)
			r = c->gpu->driver->event_create(&s->done,
							 CUDA_EVENT_DISABLE_TIMING | CUDA_EVENT_BLOCKING_SYNC);
	}
	return r;
}

static void free_stages(struct copy *c)
{
	for (unsigned i = 0; i < N_STAGES; i++) {
		if (c->stage[i].done)
			c->gpu->driver->event_destroy(c->stage[i].done);
		if (c->stage[i].memory)
			c->gpu->driver->mem_free_host(c->stage[i].memory);
		c->stage[i] = (struct stage){ 0 };
	}
}

/* Chooses direct, staged or pageable. A CUDA result after which nothing works, or CUDA_OK. */
static int find_way(struct copy *c)
{
	int r = c->gpu->registers_read_only ? pin_slab(c) : CUDA_NOT_SUPPORTED;

	if (r == CUDA_OK || cuda_error_sticky(r))
		return r;
	r = make_stages(c);
	if (r == CUDA_OK || cuda_error_sticky(r))
		return r;
	free_stages(c);
	return CUDA_OK;
}

/* ---- places ---- */

/* Under the lock, or while opening. A CUDA result. */
static int add_places(struct copy *c, uint32_t n)
{
	cuda_ptr memory = 0;
	int r;

	assert(c->n_places + n <= c->n_slots); /* so the lists are long enough */
	r = c->gpu->driver->mem_alloc(&memory, c->stride * n);
	if (r != CUDA_OK)
		return r;
	c->memory[c->n_memory++] = memory;
	c->n_places += n;
	for (uint32_t i = 0; i < n; i++)
		c->free_places[c->n_free++] = memory + i * c->stride;
	return CUDA_OK;
}

/* As many as fit the driver's own granularity cost nothing more. */
static int make_places(struct copy *c)
{
	size_t least = GRANULARITY / c->stride, n = least > N_PLACES ? least : N_PLACES;
	int r = add_places(c, n < c->n_slots ? (uint32_t)n : c->n_slots);

	return r == CUDA_OUT_OF_MEMORY ? add_places(c, 1) : r;
}

/* A slot whose batch was copied and then not lent. NULL: none. Under the lock. */
static struct copied *find_unlent(const struct copy *c)
{
	for (uint32_t i = 0; i < c->n_slots; i++)
		if (c->copied[i].place && !c->copied[i].is_lent)
			return &c->copied[i];
	return NULL;
}

/* Copies are done in the order in which they are begun, so a copy to a place that is taken from its slot does no
 * harm. */
static int find_place(struct copy *c, struct copied *slot, bool is_lent)
{
	struct copied *unlent = is_lent && !c->n_free ? find_unlent(c) : NULL;
	int r = CUDA_OK;

	if (unlent) {
		slot->place = unlent->place;
		unlent->place = unlent->generation = 0;
		return CUDA_OK;
	}
	if (!c->n_free && is_lent)
		r = add_places(c, 1);
	if (c->n_free)
		slot->place = c->free_places[--c->n_free];
	return r;
}

static int copy_take_place(struct copy *c, struct copied *slot, bool is_lent)
{
	int r = CUDA_OK;

	pthread_mutex_lock(&c->lock);
	if (!slot->place)
		r = find_place(c, slot, is_lent);
	slot->is_lent |= is_lent;
	pthread_mutex_unlock(&c->lock);
	return r;
}

void copy_free(struct copy *c, uint32_t slot)
{
	struct copied *copied = &c->copied[slot];

	pthread_mutex_lock(&c->lock);
	if (copied->place)
		c->free_places[c->n_free++] = copied->place;
	copied->place = copied->generation = 0;
	copied->is_lent = false;
	pthread_mutex_unlock(&c->lock);
}

bool copy_has_room(struct copy *c, const uint32_t *slot)
{
	bool has;

	pthread_mutex_lock(&c->lock);
	/* with as many places as slots, each batch that can come finds one */
	has = c->n_free || c->n_places == c->n_slots || (slot && c->copied[*slot].place) || find_unlent(c);
	pthread_mutex_unlock(&c->lock);
	return has;
}

int copy_add_place(struct copy *c)
{
	int r;

	pthread_mutex_lock(&c->lock);
	r = add_places(c, 1);
	pthread_mutex_unlock(&c->lock);
	return r;
}

void copy_describe(const struct copy *c, char *text, size_t n)
{
	snprintf(
		text, n,
		"all %u places of this trainer's on the GPU hold batches that it keeps, and there is no room for another one of %.1f MB",
		c->n_places, (double)c->stride / 1e6);
}

/* ---- life ---- */

static int copy_run(void *arg, const struct copy_request *r);

/* With the greatest priority: streams share a few hardware queues, and a copy in a queue that the trainer's kernels use
 * would wait behind them. */
static int copy_make_stream(struct copy *c)
{
	const struct cuda_driver *driver = c->gpu->driver;
	int least = 0, greatest = 0, r = driver->ctx_get_stream_priority_range(&least, &greatest);

	return r == CUDA_OK ? driver->stream_create_with_priority(&c->stream, CUDA_STREAM_NON_BLOCKING, greatest) : r;
}

static int copy_make(struct copy *c, struct fault *f)
{
	const struct cuda_driver *driver = c->gpu->driver;
	char what[96];
	int r = find_way(c);

	if (r != CUDA_OK)
		return gpu_fault(c->gpu, r, f, "cannot pin memory for copies to the GPU");
	r = make_places(c);
	if (r != CUDA_OK) {
		snprintf(what, sizeof what, "cannot make room for one batch of %.1f MB on the GPU",
			 (double)c->stride / 1e6);
		return gpu_fault(c->gpu, r, f, what);
	}
	r = copy_make_stream(c);
	for (uint32_t i = 0; i < c->n_slots && r == CUDA_OK; i++)
		r = driver->event_create(&c->copied[i].done, CUDA_EVENT_DISABLE_TIMING);
	if (r != CUDA_OK)
		return gpu_fault(c->gpu, r, f, "cannot prepare copies to the GPU");
	return c->n_pinned ? 0 : copy_thread_create(&c->thread, c->gpu, c->n_slots, copy_run, c, f);
}

static void free_copy(struct copy *c)
{
	if (c) {
		free(c->copied);
		free(c->memory);
	}
	free(c);
}

int copy_create(struct copy **out, const struct gpu *g, int fd, uint32_t n_slots, size_t slot_bytes, struct fault *f)
{
	struct copy *c = calloc(1, sizeof *c);
	void *host;
	int r;

	if (!c || !(c->copied = calloc(n_slots, sizeof *c->copied)) ||
	    !(c->memory = calloc(2 * n_slots, sizeof *c->memory))) {
		free_copy(c);
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	}
	c->free_places = c->memory + n_slots;
	pthread_mutex_init(&c->lock, NULL);
	c->gpu = g;
	c->n_slots = n_slots;
	c->slot_bytes = slot_bytes;
	c->n_bytes = slot_bytes * n_slots;
	c->stride = (slot_bytes + ALIGN - 1) / ALIGN * ALIGN;
	host = mmap(NULL, c->n_bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (host == MAP_FAILED) {
		r = fault_set(f, BATCHD_E_NOMEM, "cannot map the daemon's %zu bytes for copies: %s", c->n_bytes,
			      strerror(errno));
		free_copy(c);
		return r;
	}
	c->host = host;
	r = copy_make(c, f);
	if (r < 0) {
		copy_destroy(c);
		return r;
	}
	*out = c;
	return 0;
}

void copy_destroy(struct copy *c)
{
	const struct cuda_driver *driver;

	if (!c)
		return;
	driver = c->gpu->driver;
	copy_thread_destroy(c->thread);
	if (c->stream) {
		driver->stream_synchronize(c->stream); /* the end of the loader: the trainer waits for nothing */
		driver->stream_destroy(c->stream);
	}
	for (uint32_t i = 0; i < c->n_slots; i++)
		if (c->copied[i].done)
			driver->event_destroy(c->copied[i].done);
	while (c->n_memory)
		driver->mem_free(c->memory[--c->n_memory]);
	free_stages(c);
	if (copy_unpin(c) && !c->stays)
		munmap(c->host, c->n_bytes);
	pthread_mutex_destroy(&c->lock);
	free_copy(c);
}

const char *copy_detour(const struct copy *c)
{
	if (c->n_pinned)
		return "";
	return c->stage[0].memory
		       ? "this GPU cannot read from memory that is mapped for reading only, so every batch is copied once more on the way"
		       : "no memory can be pinned here, so the driver copies every batch through buffers of its own, which is slow";
}

/* ---- copies ---- */

/* The address from which the DMA reads the slot's bytes. In the thread. The copy before the last may still read a
 * stage: then, and only then, this waits. */
static int fill_stage(struct copy *c, const struct copy_request *r, const char **from, struct stage **stage)
{
	struct stage *s = &c->stage[c->next_stage];
	const char *host = c->host + r->slot * c->slot_bytes;
	int result;

	*from = host;
	*stage = NULL;
	if (!s->memory)
		return CUDA_OK;
	c->next_stage = (c->next_stage + 1) % N_STAGES;
	result = c->gpu->driver->event_synchronize(s->done);
	if (result != CUDA_OK)
		return result;
	memcpy(s->memory, host, r->data_bytes);
	memcpy(s->memory + r->rest_offset, host + r->rest_offset, r->rest_bytes);
	*from = s->memory;
	*stage = s;
	return CUDA_OK;
}

/* Copies between registration borders: a single copy must not straddle two. */
static int copy_piece(struct copy *c, cuda_ptr to, const char *from, size_t offset, size_t n_bytes)
{
	int r = CUDA_OK;

	to += offset;
	from += offset;
	while (n_bytes && r == CUDA_OK) {
		size_t left = c->n_pinned ? PIECE - (size_t)(from - c->host) % PIECE : n_bytes;
		size_t n = n_bytes < left ? n_bytes : left;

		r = c->gpu->driver->memcpy_htod_async(to, from, n, c->stream);
		from += n;
		to += n;
		n_bytes -= n;
	}
	return r;
}

/* Queues the copy of a slot; `from`: the address of its bytes. */
static int copy_queue(struct copy *c, const struct copy_request *r, const char *from, const struct stage *stage)
{
	int result = copy_piece(c, r->to, from, 0, r->data_bytes);

	if (result == CUDA_OK)
		result = copy_piece(c, r->to, from, r->rest_offset, r->rest_bytes);
	if (result == CUDA_OK && stage)
		result = c->gpu->driver->event_record(stage->done, c->stream);
	if (result == CUDA_OK)
		result = c->gpu->driver->event_record(c->copied[r->slot].done, c->stream);
	return result;
}

static int copy_run(void *arg, const struct copy_request *r)
{
	struct copy *c = arg;
	struct stage *stage;
	const char *from;
	int result = fill_stage(c, r, &from, &stage);

	return result == CUDA_OK ? copy_queue(c, r, from, stage) : result;
}

int copy_begin(struct copy *c, const struct copy_request *wanted, bool is_lent)
{
	struct copied *copied = &c->copied[wanted->slot];
	struct copy_request r = *wanted;
	int result = copy_take_place(c, copied, is_lent);

	if (result != CUDA_OK || !copied->place || copied->generation == r.generation)
		return result;
	r.to = copied->place;
	if (c->thread)
		copy_thread_ask(c->thread, &r);
	else
		result = copy_queue(c, &r, c->host + r.slot * c->slot_bytes, NULL);
	copied->generation = result == CUDA_OK ? r.generation : 0;
	return result;
}

int copy_begun(struct copy *c, uint32_t slot)
{
	int result = c->thread ? copy_thread_wait(c->thread, slot) : CUDA_OK;

	if (result != CUDA_OK)
		c->copied[slot].generation = 0;
	return result;
}

int copy_wait(const struct copy *c, uint32_t slot, struct cuda_stream *stream)
{
	return c->gpu->driver->stream_wait_event(stream, c->copied[slot].done, 0);
}

cuda_ptr copy_slot(const struct copy *c, uint32_t slot)
{
	return c->copied[slot].place;
}
