/* What gpus.c (the loop thread's side) and gpu-thread.c (the GPU threads') share. */
#ifndef BATCHD_CUDA_GPUS_IMPL_H
#define BATCHD_CUDA_GPUS_IMPL_H

#include <pthread.h>

#include "cuda/driver.h"
#include "cuda/gpus.h"

enum { GPU_IN_FLIGHT = 16 }; /* copies handed to the driver at once */

enum gpu_work_kind { GPU_WORK_OPEN, GPU_WORK_CLOSE, GPU_WORK_UNPIN, GPU_WORK_COPY };

/* A host slab that is mirrored on at least one GPU, and which GPU's thread registered it: with CUDA a page can be
 * registered only once, and (PORTABLE) counts for every context. Loop thread; a GPU thread reads base, slot_bytes and
 * n_slots, which do not change. */
struct gpu_host {
	struct gpu_host *next;
	uint8_t *base;
	size_t slot_bytes;
	uint32_t n_slots;
	unsigned n_slabs;
	struct gpu *pinner;            /* whose thread registers, or has registered, it */
	bool pinning;                  /* the first slab is being opened: others wait */
	bool decided, pinned;          /* it has been: whether it could be pinned */
	struct gpu_slab_work *waiting;
};

/* A slab with what opening and closing it takes. */
struct gpu_slab_work {
	struct gpu_slab slab;          /* first: what callers see */
	struct gpu_work work;
	struct gpu_slab_params params;
	struct gpu_host *host;
	struct gpu_slab_work *next;    /* in host->waiting */
	bool pin;                      /* opening: register the host slab, too */
	bool spoilt;                   /* a copy has failed; the GPU thread's */
	void (*on_closed)(void *arg, bool lost);
	void *closed_arg;
	char why[GPU_REASON_BYTES];    /* the GPU thread's until the work is done */
	cuda_ptr memory;               /* the GPU thread's */
};

struct gpu {
	struct gpus *all;
	struct gpu *next;
	struct cuda_uuid uuid;
	pthread_t thread;
	pthread_cond_t asked;          /* with all->lock */
	unsigned n_slabs;              /* loop thread: opening, open or closing */
	bool told;                     /* loop thread: on_lost has been called */

	/* under all->lock */
	struct gpu_work *first, *last;
	bool stop, ended, lost, known; /* known: this machine has it */
	uint64_t busy_since_ns;        /* 0: waits for work */
	char lost_text[GPU_REASON_BYTES];
	struct gpu_stats stats;

	/* The GPU thread's own. */
	struct {
		cuda_device device;
		struct cuda_context *context; /* NULL: none */
		struct cuda_stream *stream;
		struct cuda_event *events[GPU_IN_FLIGHT]; /* a stack of n_events that are free */
		unsigned n_events;
		struct gpu_copy *flying[GPU_IN_FLIGHT];   /* a ring; oldest at `oldest` */
		unsigned oldest, n_flying;
		unsigned n_uses;              /* slabs and pinned hosts that need the context */
		unsigned n_spoilt;            /* slabs on which a copy has failed, each within a minute of the one
		                               * before */
		uint64_t spoilt_ns;           /* when the last was */
		uint64_t slab_bytes, budget_bytes;
		int result;                   /* of the last call that failed */
		bool opening;                 /* a slab is being opened */
		bool doubtful;                /* ... and a call for it ended in "unknown error" */
		bool worked;                  /* a slab has been opened */
		bool lost;                    /* no call is made any more */
		char written_off[GPU_REASON_BYTES]; /* lost before it ever worked: why; then the loop is not told */
		char refused_why[GPU_REASON_BYTES];
		uint64_t refused_ns;          /* when the driver last refused to open a slab; 0: it has not */
		bool keeps;                   /* memory that others have open: the context, which it would go with,
		                               * stays until the process ends */
	} own;
};

struct gpus {
	uv_async_t async;
	struct gpus_params params;
	struct gpu *list;              /* loop thread */
	struct gpu_host *hosts;        /* loop thread */
	pthread_mutex_t driver_lock;   /* for finding the driver; never held together with lock */
	bool driver_found;
	struct cuda_driver driver;     /* read-only once found */

	pthread_mutex_t lock;
	struct gpu_work *done, *done_last;
	uint64_t pinned_bytes;
	int driver_version;

	bool closing;
	void (*on_closed)(void *arg);
	void *on_closed_arg;
};

/* gpu-thread.c: what the thread runs. */
void *gpu_thread(void *gpu);

static inline struct gpu_slab_work *slab_work_of(struct gpu_slab *slab)
{
	return (struct gpu_slab_work *)(void *)slab;
}

#endif
