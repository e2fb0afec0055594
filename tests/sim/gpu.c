/* Two simulated GPUs. An event decides when a GPU's thread makes progress. They have slabs and copies that take time,
 * and check what must be true of that memory. Replaces gpu/gpus.c. See sim.h. */
#include <errno.h>

#include "sim.h"

#include "gpu/gpus.h"

enum { N_GPUS = 2, MAX_WORK = 1024 };

struct gpu {
	unsigned char uuid[GPU_UUID_BYTES];
};

enum kind { OPEN, BEGIN_COPY, END_COPY, CLOSE };

struct work {
	enum kind kind;
	struct sim_gpu_slab *slab;
	struct gpu_copy *copy;
	uint64_t sum; /* checksum of the copied bytes when the copy began */
	void (*on_closed)(void *arg, bool lost);
	void *arg;
};

static struct gpu gpus[N_GPUS];
static struct work queue[MAX_WORK];
static unsigned n_work, n_slabs;
static struct sim_gpu_slab *all; /* all slabs of the history: a handle may still be in transit long after its slab is
                                  * gone */
unsigned sim_gpu_error_percent;
static void (*on_all_closed)(void *arg); /* the daemon waits for the threads of its GPUs to end */
static void *all_closed_arg;

const char *const gpu_size_class_names[GPU_SIZE_CLASSES] = { "64KiB", "1MiB", "16MiB", "256MiB", "larger" };
const char *const gpu_share_names[GPU_N_SHARES] = { "cuda-ipc", "cuda-vmm-fd" };

void sim_gpu_uuid(unsigned number, unsigned char uuid[GPU_UUID_BYTES])
{
	memset(uuid, 0, GPU_UUID_BYTES);
	uuid[0] = (unsigned char)(number + 1);
}

static void add(struct work w)
{
	SIM_CHECK(n_work < MAX_WORK, "too much work for a GPU");
	queue[n_work++] = w;
}

/* ---- trainers ---- */

struct sim_gpu_slab *sim_gpu_open_handle(const void *handle)
{
	struct sim_gpu_slab *s;
	memcpy(&s, handle, sizeof(s));
	if (s->freed)
		return NULL; /* the daemon that sent the handle is gone */
	SIM_CHECK(s->memory, "a handle to memory that is not there");
	s->n_open++;
	return s;
}

struct sim_gpu_slab *sim_gpu_send(int fd)
{
	struct sim_gpu_slab *s = sim_fd_thing(fd);
	SIM_CHECK(s->memory && !s->freed && s->params.share == GPU_SHARE_FD,
		  "the descriptor of memory that is not there");
	s->n_open++;
	return s;
}

static void maybe_free(struct sim_gpu_slab *s)
{
	if (!s->freed || s->n_open)
		return;
	free(s->memory);
	s->memory = NULL;
	n_slabs--;
}

void sim_gpu_end(void)
{
	while (all) {
		struct sim_gpu_slab *s = all;
		all = s->next;
		free(s);
	}
}

void sim_gpu_close_handle(struct sim_gpu_slab *s)
{
	if (!s)
		return;
	s->n_open--;
	maybe_free(s);
}

unsigned sim_n_gpu_slabs(void)
{
	return n_slabs;
}

/* ---- the GPUs' threads ---- */

static void open_slab(struct sim_gpu_slab *s)
{
	const struct gpu_slab_params *p = &s->params;
	if (sim_chance(15)) {
		bool unpinned = sim_chance(20);
		p->on_open(p->arg, NULL, unpinned ? GPU_E_UNPINNED : GPU_E_REFUSED,
			   unpinned ? "it cannot be pinned" : "there is no room on it");
		s->freed = true;
		n_slabs--;
		return;
	}
	s->memory = malloc(s->base.bytes);
	memset(s->memory, 0x5a, s->base.bytes);
	if (p->share == GPU_SHARE_IPC)
		memcpy(s->base.handle, &s, sizeof(s));
	else
		s->base.fd = sim_fd_open(s);
	p->on_open(p->arg, &s->base, 0, "");
}

static uint64_t sum_of(const struct work *w)
{
	uint64_t sum = 1;
	for (uint32_t i = 0; i < w->copy->n_parts; i++) {
		const uint8_t *from = w->slab->params.host + w->copy->part[i].offset;
		for (uint64_t k = 0; k < w->copy->part[i].bytes; k++)
			sum = sum * 31 + from[k];
	}
	return sum;
}

static void begin_copy(struct work w)
{
	w.sum = sum_of(&w);
	w.kind = END_COPY;
	memmove(&queue[1], &queue[0], n_work++ * sizeof(queue[0])); /* nothing overtakes it */
	queue[0] = w;
}

static void end_copy(const struct work *w)
{
	bool fails = sim_chance(sim_gpu_error_percent);
	SIM_CHECK(sum_of(w) == w->sum, "a slot changes while it is copied");
	for (uint32_t i = 0; !fails && i < w->copy->n_parts; i++)
		memcpy(w->slab->memory + w->copy->part[i].offset, w->slab->params.host + w->copy->part[i].offset,
		       w->copy->part[i].bytes);
	w->copy->done(w->copy, fails ? GPU_E_FAILED : 0, fails ? "the copy failed" : "");
}

static void close_slab(const struct work *w)
{
	struct sim_gpu_slab *s = w->slab;
	SIM_CHECK(!s->n_open || s->base.left || s->base.share == GPU_SHARE_FD,
		  "memory on a GPU is freed that a trainer has open");
	if (s->base.share == GPU_SHARE_FD)
		close(s->base.fd);
	s->freed = true;
	maybe_free(s);
	w->on_closed(w->arg, false);
}

/* A thread finishes its current work before it ends. */
static void maybe_end(void)
{
	void (*fn)(void *arg) = n_work ? NULL : on_all_closed;
	if (!fn)
		return;
	on_all_closed = NULL;
	fn(all_closed_arg);
}

bool sim_gpu_works(void)
{
	struct work w = queue[0];
	if (!n_work)
		return false;
	memmove(&queue[0], &queue[1], --n_work * sizeof(queue[0]));
	if (w.kind == OPEN)
		open_slab(w.slab);
	else if (w.kind == BEGIN_COPY)
		begin_copy(w);
	else if (w.kind == END_COPY)
		end_copy(&w);
	else
		close_slab(&w);
	maybe_end();
	return true;
}

/* ---- what the daemon calls ---- */

int gpu_slab_open(struct gpus *g, const struct gpu_slab_params *params, char *why)
{
	(void)g;
	for (unsigned i = 0; i < N_GPUS; i++)
		sim_gpu_uuid(i, gpus[i].uuid);
	for (unsigned i = 0; i < N_GPUS; i++) {
		if (memcmp(gpus[i].uuid, params->uuid, GPU_UUID_BYTES))
			continue;
		struct sim_gpu_slab *s = calloc(1, sizeof(*s));
		s->base.gpu = &gpus[i];
		s->base.arg = params->arg;
		s->base.share = params->share;
		s->base.fd = -1;
		s->base.bytes = params->slot_bytes * params->n_slots;
		s->params = *params;
		s->next = all;
		all = s;
		n_slabs++;
		add((struct work){ .kind = OPEN, .slab = s });
		return 0;
	}
	snprintf(why, GPU_REASON_BYTES, "there is no such GPU");
	return GPU_E_REFUSED;
}

void gpu_slab_close(struct gpu_slab *slab, void (*on_closed)(void *arg, bool lost), void *arg)
{
	add((struct work){ .kind = CLOSE, .slab = (struct sim_gpu_slab *)slab, .on_closed = on_closed, .arg = arg });
}

void gpu_copy_begin(struct gpu_slab *slab, struct gpu_copy *copy)
{
	add((struct work){ .kind = BEGIN_COPY, .slab = (struct sim_gpu_slab *)slab, .copy = copy });
}

void gpus_use_mps(struct gpus *g)
{
	(void)g;
}

bool gpu_is_lost(const struct gpu *gpu)
{
	(void)gpu;
	return false;
}

bool gpu_has_uuid(const struct gpu *gpu, const unsigned char uuid[GPU_UUID_BYTES])
{
	return !memcmp(gpu->uuid, uuid, GPU_UUID_BYTES);
}

void gpus_close(struct gpus *g, void (*on_closed)(void *arg), void *arg)
{
	(void)g;
	on_all_closed = on_closed;
	all_closed_arg = arg;
	maybe_end();
}

unsigned gpus_get_stats(struct gpus *g, struct gpu_stats *stats, unsigned n)
{
	(void)g, (void)stats, (void)n;
	return 0;
}

uint64_t gpus_oldest_busy_ns(struct gpus *g)
{
	(void)g;
	return 0;
}

int gpus_driver_version(struct gpus *g)
{
	(void)g;
	return SIM_DRIVER_VERSION;
}
