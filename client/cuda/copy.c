/* Pinned host memory, slots on the GPU, one stream.
 *
 * The slab's ordinary mapping is private, so a page that the trainer writes to becomes another page behind the same
 * address, while the GPU's DMA would go on reading the one that was pinned. So the DMA has a mapping of its own:
 * shared, for reading only, as the memfd allows no other. Pinning such memory needs a GPU that can (read-only
 * registration); where it cannot, two pinned buffers are in between, and the processor copies once more. Nothing is
 * ever copied from pageable memory.
 *
 * A slot on the GPU belongs to the host slot of the same number. It is written again only after the lease on the old
 * batch ended, which is after all work that reads it has been seen complete. */
#include "cuda/copy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "batchd.h"

enum { N_STAGES = 2 };

static const size_t PIECE = (size_t)1 << 30; /* pinned at a time; a multiple of every page size */
static const size_t ALIGN = 256;             /* of a slot on the GPU, as in the daemon's own slabs */

struct stage {
	char *memory;                  /* pinned; NULL when the slab itself is */
	struct cuda_event *done;       /* the last copy out of it */
};

struct copy {
	const struct gpu *gpu;
	char *host;                    /* the slab, shared and read-only */
	size_t n_bytes, slot_bytes, stride;
	size_t n_pinned;               /* bytes of the slab; 0: through stages */
	bool stays;                    /* some of it could not be unpinned */
	uint32_t n_slots;
	cuda_ptr base;
	struct cuda_stream *stream;
	struct stage stage[N_STAGES];
	unsigned next_stage;
	struct copied {
		uint64_t generation;   /* 0: none yet; the daemon's begin with 1 */
		struct cuda_event *done;
	} *copied;                     /* of each slot */
};

/* ---- pinning ---- */

/* What CUDA does not let go must not be unmapped: its address would be somebody else's soon. False: then. */
static bool unpin(struct copy *c)
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
		c->stays = !unpin(c);
	return r;
}

static int pin_stages(struct copy *c)
{
	for (unsigned i = 0; i < N_STAGES; i++) {
		struct stage *s = &c->stage[i];
		void *memory = mmap(NULL, c->slot_bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		int r;

		if (memory == MAP_FAILED)
			return CUDA_OUT_OF_MEMORY;
		r = c->gpu->driver->mem_host_register(memory, c->slot_bytes, CUDA_HOST_REGISTER_PORTABLE);
		if (r != CUDA_OK) {
			munmap(memory, c->slot_bytes);
			return r;
		}
		s->memory = memory;
		r = c->gpu->driver->event_create(&s->done, CUDA_EVENT_DISABLE_TIMING | CUDA_EVENT_BLOCKING_SYNC);
		if (r != CUDA_OK)
			return r;
	}
	return CUDA_OK;
}

/* ---- life ---- */

static int make(struct copy *c, struct fault *f)
{
	const struct cuda_driver *driver = c->gpu->driver;
	int r = CUDA_NOT_SUPPORTED;

	if (c->gpu->registers_read_only)
		r = pin_slab(c);
	if (r != CUDA_OK && !cuda_error_sticky(r))
		r = pin_stages(c);
	if (r != CUDA_OK)
		return gpu_fault(c->gpu, r, f, "cannot pin memory for copies to the GPU");
	r = driver->mem_alloc(&c->base, c->stride * c->n_slots);
	if (r == CUDA_OK)
		r = driver->stream_create_with_priority(&c->stream, CUDA_STREAM_NON_BLOCKING, 0);
	for (uint32_t i = 0; i < c->n_slots && r == CUDA_OK; i++)
		r = driver->event_create(&c->copied[i].done, CUDA_EVENT_DISABLE_TIMING);
	return gpu_fault(c->gpu, r, f, "cannot make room for batches on the GPU");
}

int copy_create(struct copy **out, const struct gpu *g, int fd, uint32_t n_slots, size_t slot_bytes, struct fault *f)
{
	struct copy *c = calloc(1, sizeof *c);
	void *host;
	int r;

	if (!c || !(c->copied = calloc(n_slots, sizeof *c->copied))) {
		free(c);
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	}
	c->gpu = g;
	c->n_slots = n_slots;
	c->slot_bytes = slot_bytes;
	c->n_bytes = slot_bytes * n_slots;
	c->stride = (slot_bytes + ALIGN - 1) / ALIGN * ALIGN;
	host = mmap(NULL, c->n_bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (host == MAP_FAILED) {
		r = fault_set(f, BATCHD_E_NOMEM, "cannot map the daemon's %zu bytes for copies: %s", c->n_bytes,
			      strerror(errno));
		free(c->copied);
		free(c);
		return r;
	}
	c->host = host;
	r = make(c, f);
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
	if (c->stream) {
		driver->stream_synchronize(c->stream); /* the end of the loader: nothing of the trainer's waits */
		driver->stream_destroy(c->stream);
	}
	for (uint32_t i = 0; i < c->n_slots; i++)
		if (c->copied[i].done)
			driver->event_destroy(c->copied[i].done);
	if (c->base)
		driver->mem_free(c->base);
	for (unsigned i = 0; i < N_STAGES; i++) {
		if (c->stage[i].done)
			driver->event_destroy(c->stage[i].done);
		if (c->stage[i].memory) {
			if (driver->mem_host_unregister(c->stage[i].memory) == CUDA_OK)
				munmap(c->stage[i].memory, c->slot_bytes);
		}
	}
	if (unpin(c) && !c->stays)
		munmap(c->host, c->n_bytes);
	free(c->copied);
	free(c);
}

const char *copy_detour(const struct copy *c)
{
	return c->n_pinned
		       ? ""
		       : "this GPU cannot read from memory that is mapped for reading only, so every batch is copied once more on the way";
}

/* ---- copies ---- */

/* Where the DMA finds the slot's bytes. A stage may still be read by the copy before the last: then, and only then,
 * this waits. */
static int source(struct copy *c, uint32_t slot, size_t data_bytes, size_t labels_offset, size_t labels_bytes,
		  const char **from, struct stage **stage)
{
	struct stage *s = &c->stage[c->next_stage];
	const char *host = c->host + slot * c->slot_bytes;
	int r;

	*from = host;
	*stage = NULL;
	if (c->n_pinned)
		return CUDA_OK;
	c->next_stage = (c->next_stage + 1) % N_STAGES;
	r = c->gpu->driver->event_synchronize(s->done);
	if (r != CUDA_OK)
		return r;
	memcpy(s->memory, host, data_bytes);
	memcpy(s->memory + labels_offset, host + labels_offset, labels_bytes);
	*from = s->memory;
	*stage = s;
	return CUDA_OK;
}

/* From one registration to the next: a single copy must not straddle two. */
static int copy_piece(struct copy *c, uint32_t slot, const char *from, size_t offset, size_t n_bytes)
{
	cuda_ptr to = copy_slot(c, slot) + offset;
	int r = CUDA_OK;

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

int copy_begin(struct copy *c, uint32_t slot, uint64_t generation, size_t data_bytes, size_t labels_offset,
	       size_t labels_bytes)
{
	struct copied *copied = &c->copied[slot];
	struct stage *stage;
	const char *from;
	int r;

	if (copied->generation == generation)
		return CUDA_OK;
	r = source(c, slot, data_bytes, labels_offset, labels_bytes, &from, &stage);
	if (r == CUDA_OK)
		r = copy_piece(c, slot, from, 0, data_bytes);
	if (r == CUDA_OK)
		r = copy_piece(c, slot, from, labels_offset, labels_bytes);
	if (r == CUDA_OK && stage)
		r = c->gpu->driver->event_record(stage->done, c->stream);
	if (r == CUDA_OK)
		r = c->gpu->driver->event_record(copied->done, c->stream);
	if (r == CUDA_OK)
		copied->generation = generation;
	return r;
}

int copy_wait(const struct copy *c, uint32_t slot, struct cuda_stream *stream)
{
	return c->gpu->driver->stream_wait_event(stream, c->copied[slot].done, 0);
}

cuda_ptr copy_slot(const struct copy *c, uint32_t slot)
{
	return c->base + slot * c->stride;
}
