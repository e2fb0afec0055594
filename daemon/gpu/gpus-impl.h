/* Shared by gpus.c (the loop thread's side), thread.c (the thread that opens and closes) and copier.c (the
 * thread that copies). */
#ifndef BATCHD_CUDA_GPUS_IMPL_H
#define BATCHD_CUDA_GPUS_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "gpu/driver.h"
#include "gpu/gpus.h"
#include "gpu/vmm.h"
#include "base/clock.h"

enum { GPU_IN_FLIGHT = 16 }; /* copies handed to the driver at once */

enum gpu_work_kind { GPU_WORK_OPEN, GPU_WORK_CLOSE, GPU_WORK_UNPIN, GPU_WORK_COPY };

/* A host slab that is mirrored on at least one GPU, and the GPU whose opener registered it: CUDA registers a page only
 * once, and the registration (PORTABLE) holds for every context. Loop thread; openers and copiers read base, slot_bytes
 * and n_slots, which do not change. */
struct gpu_host {
	struct gpu_host *next;
	uint8_t *base;
	size_t slot_bytes;
	uint32_t n_slots;
	unsigned n_slabs;
	struct gpu *pinner; /* whose thread registers it, or has registered it */
	bool pinning;       /* its pages are being registered, for the first slab, or unregistered: other slabs wait */
	bool decided, pinned; /* decided: it is known whether the host slab could be pinned */
	struct gpu_slab_work *waiting;
};

/* A slab with its state for opening and closing. */
struct gpu_slab_work {
	struct gpu_slab slab; /* first: the part that callers see */
	struct gpu_work work;
	struct gpu_slab_params params;
	struct gpu_host *host;
	struct gpu_slab_work *next; /* in host->waiting */
	struct gpu_slab_work *next_opening;
	bool given_up; /* on_open has been called with GPU_E_LATE; set by the loop thread under all->lock */
	bool pin;      /* opening: register the host slab, too */
	bool spoilt;   /* a copy has failed; the copier's */
	void (*on_closed)(void *arg, bool lost);
	void *closed_arg;
	char why[GPU_REASON_BYTES]; /* the opener's until the work is done */
	cuda_ptr memory;            /* the opener's; the copier reads it while the slab is open */
	struct vmm vmm;             /* GPU_SHARE_FD: the allocation at `memory`; the opener's */
};

/* A GPU has two threads, so that copies continue while a slab is opened or closed, which may take seconds. */
struct gpu_thread {
	struct gpu *gpu;
	pthread_t id;
	pthread_cond_t asked; /* with all->lock */

	/* under all->lock */
	struct gpu_work *first, *last;
	uint64_t busy_since_ns; /* 0: waits for work */
	unsigned n_under_way;   /* of its work, passed to the driver */
	bool ended;
};

struct gpu {
	struct gpus *all;
	struct gpu *next;
	struct cuda_uuid uuid;
	struct gpu_thread opener;       /* opens, closes, pins, unpins: thread.c */
	struct gpu_thread copier;       /* copier.c */
	unsigned n_slabs;               /* loop thread: opening, open or closing */
	bool told;                      /* loop thread: on_lost has been called */
	struct gpu_slab_work *openings; /* loop thread: slabs that are being opened and not given up */

	/* under all->lock */
	bool stop, lost, known; /* known: this machine has it */
	bool worked;            /* a slab has been opened */
	unsigned n_spoilt;      /* slabs on which a copy has failed, each within a minute of the one before */
	uint64_t spoilt_ns;     /* when the last one was */
	char lost_text[GPU_REASON_BYTES];
	char written_off[GPU_REASON_BYTES]; /* reason why it was lost before it ever worked; then the loop is not
	                                     * told */
	char copy_error[160];               /* of the last copy that failed */
	struct gpu_stats stats;

	/* The opener's own. The copier reads context and n_contexts while a slab is open. */
	struct {
		cuda_device device;
		struct cuda_context *context; /* NULL: none */
		struct cuda_stream *stream;   /* for clearing and probing: copies are not waited for */
		unsigned n_contexts;          /* made so far */
		unsigned n_uses;              /* slabs and pinned hosts that need the context */
		uint64_t slab_bytes, budget_bytes;
		int result;           /* of the last call that failed */
		char last_error[160]; /* its text */
		bool probes;          /* a slab is being opened, closed or unpinned */
		bool doubtful;        /* ... and a call for it returned "unknown error" */
		atomic_bool lost;     /* no further call is made; set under all->lock by either thread, after the texts
		                       * that say why */
		char refused_why[GPU_N_SHARES][GPU_REASON_BYTES];
		uint64_t refused_ns[GPU_N_SHARES]; /* when the driver last refused to open a slab; 0: it has not */
		bool keeps;                        /* other processes have memory open that would be freed with the
		                                    * context: the context stays until the process ends */
	} own;

	/* The copier's while a slab is open, else the opener's. The opener makes the stream and the events with the
	 * context and destroys them with it. */
	struct {
		unsigned n_context; /* which of the contexts is current in the copier */
		struct cuda_stream *stream;
		struct cuda_event *events[GPU_IN_FLIGHT]; /* a stack of n_events free events */
		unsigned n_events;
		struct gpu_copy *flying[GPU_IN_FLIGHT]; /* a ring; oldest at `oldest` */
		unsigned oldest, n_flying;
	} copies;
};

struct gpus {
	uv_async_t async;
	uv_timer_t answer; /* active while a slab is being opened on a GPU that has never worked */
	struct gpus_params params;
	struct gpu *list;            /* loop thread */
	struct gpu_host *hosts;      /* loop thread */
	pthread_mutex_t driver_lock; /* for finding the driver; never held together with lock */
	bool driver_found;
	struct cuda_driver driver; /* read-only once found */

	pthread_mutex_t lock;
	struct gpu_work *done, *done_last;
	uint64_t pinned_bytes;
	int driver_version;
	bool uses_mps; /* see gpus_use_mps */

	char *mps_directory; /* where MPS would be reached */
	bool closing, ended; /* ended: the handles are closing */
	void (*on_closed)(void *arg);
	void *on_closed_arg;
};

/* mps.c: hides MPS from the driver. 0 or -ENOMEM. */
int gpu_hide_mps(struct gpus *g);
/* Before the driver starts: whether it finds MPS. Called with driver_lock held. */
void gpu_choose_mps(const struct gpus *g, bool is_client);

/* thread.c: the opener's start routine; arg is its struct gpu_thread. */
void *gpu_opener_run(void *arg);
/* How many bytes of a pinned host slab each registration holds, from the slab's beginning on; the last one may hold
 * less. A copy must not read from two registrations. */
uint64_t gpu_piece_bytes(const struct gpu_host *h);

/* copier.c: the copier's start routine; arg is its struct gpu_thread. */
void *gpu_copier_run(void *arg);

/* errors.c, for both threads. */
/* Counts a failed call, for the status. Returns the result's name; static, or of the calling thread until the next such
 * call. */
const char *gpu_note_error(struct gpu *gpu, int result, const char *call);
/* No further call is made on this GPU. The loop is told, unless the GPU never worked. */
void gpu_lose(struct gpu *gpu, const char *call, const char *name);

/* work.c, for both threads. */
/* The next piece of work for a thread that has n_under_way of at most `most` pieces under way. Sleeps while there is
 * neither new work nor work under way. NULL: the thread must check the work under way, or stop if there is none. */
struct gpu_work *gpu_next_work(struct gpu_thread *t, unsigned n_under_way, unsigned most);
void gpu_finish_work(struct gpu *gpu, struct gpu_work *w, int result);
/* The thread makes progress: for gpus_oldest_busy_ns its current work counts from now. */
void gpu_touch(struct gpu_thread *t);
/* The thread's last call of any function here. */
void gpu_thread_ends(struct gpu_thread *t);

/* Whether a copy has failed within the last minute. Under all->lock. */
static inline bool gpu_was_spoilt_lately(const struct gpu *gpu)
{
	return gpu->n_spoilt && clock_now_ns() - gpu->spoilt_ns < UINT64_C(60) * 1000000000;
}

static inline struct gpu_slab_work *slab_work_of(struct gpu_slab *slab)
{
	return (struct gpu_slab_work *)(void *)slab;
}

#endif
