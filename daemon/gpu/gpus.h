/* GPUs as places to which batches are copied before they are published.
 *
 * A slab on a GPU mirrors a slab in host memory: slot i begins at i * slot_bytes in both. It is exported once, and
 * trainers open its handle or its descriptor. Which of the two is decided before the slab is made, because memory of
 * one kind does not have the other. Two threads per GPU make every CUDA call of this process for that GPU: one opens,
 * pins and closes, which may take seconds, the other copies meanwhile. They are started by the first slab that a
 * trainer wants on that GPU; until then the driver is not even loaded. Host slabs are pinned (registered with CUDA) for
 * as long as a slab mirrors them, so that copies use DMA.
 *
 *     asked for --> opening ---------> open --> closing --> gone          a slab
 *                      |  on_open        |         on_closed
 *                      +--> refused      +--> lost: the GPU failed for good; copies end with GPU_E_LOST
 *
 * Threads: all functions here are the loop thread's, and every callback runs there. Nothing here blocks. With CUDA=0
 * gpus-none.c replaces gpus.c: every GPU is refused, with that reason. */
#ifndef BATCHD_CUDA_GPUS_H
#define BATCHD_CUDA_GPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

struct gpus;
struct gpu;

enum {
	GPU_E_REFUSED = 1,  /* not possible here; the reason is for the trainer's user, and the trainer goes on
	                     * without */
	GPU_E_UNPINNED = 2, /* the host slab could not be pinned and pin_memory is on */
	GPU_E_FAILED = 3,   /* this one copy failed */
	GPU_E_LOST = 4,     /* the GPU failed for good: only a new process can use it again */
	GPU_E_LATE = 5,     /* refused, but the driver still has the host slab */

	GPU_UUID_BYTES = 16,
	GPU_HANDLE_BYTES = 64,
	GPU_REASON_BYTES = 512,
	GPU_SIZE_CLASSES = 5, /* of copies: below 64 KiB, 1 MiB, 16 MiB, 256 MiB, and larger ones */
};
extern const char *const gpu_size_class_names[GPU_SIZE_CLASSES]; /* "64KiB", ...: the upper limit of each class; the
                                                                  * last is "larger" */

enum gpu_pin { GPU_PIN_AUTO, GPU_PIN_ON, GPU_PIN_OFF };
/* With GPU_PIN_AUTO nothing is pinned where there is less memory: what is pinned cannot be reclaimed, and a slow copy is
 * better than a machine that swaps. */
#define GPU_PIN_LEAST_BYTES (UINT64_C(8) << 30)

/* How other processes open a slab. */
enum gpu_share {
	GPU_SHARE_IPC, /* by a handle for cudaIpcOpenMemHandle: processes of one user in the same namespaces */
	GPU_SHARE_FD,  /* by a descriptor: any process that receives it; the memory outlives this process */
	GPU_N_SHARES
};
extern const char *const gpu_share_names[GPU_N_SHARES]; /* "cuda-ipc", "cuda-vmm-fd" */

#define GPU_MEMORY_AUTO UINT64_MAX

struct gpus_params {
	uint64_t memory_bytes; /* for slabs, per GPU; 0: no GPU is used; GPU_MEMORY_AUTO: a tenth of the GPU's memory */
	enum gpu_pin pin;
	double pin_limit;       /* 0..1: the most that may be pinned of the memory that is pinned or still available */
	uint64_t machine_bytes; /* what the machine or the control group has; 0: not known */
	uint64_t answer_ns; /* how long a call may take on a GPU that has never worked, until it is not waited for; 0: a
	                     * minute */
	const char *root;   /* NULL, or a directory that replaces / where /sys is read (tests) */
	void (*on_lost)(void *arg, struct gpu *gpu, const char *text); /* once per GPU */
	void *arg;
};

/* 0 or negative errno. Starts nothing. The loop must run until gpus_close's callback. Before other threads are started,
 * as it sets a variable of the environment. */
int gpus_create(uv_loop_t *loop, const struct gpus_params *params, struct gpus **out);
/* A trainer of this process's user has its GPU through NVIDIA's MPS, because the GPU's compute mode leaves no other way.
 * If the driver has not been started yet, this process becomes a client of MPS when it is. Without this call it never
 * does: MPS serves one user at a time, so as its client this process would wait for another user's, or they for it.
 * NULL is allowed. */
void gpus_use_mps(struct gpus *g);
/* Every slab must be closed or closing. The threads finish their current work and end, then on_closed is called. A
 * thread that never returns from a driver call delays it forever. */
void gpus_close(struct gpus *g, void (*on_closed)(void *arg), void *arg);

/* ---- slabs ---- */

/* Read-only to callers, from on_open on. */
struct gpu_slab {
	struct gpu *gpu;
	void *arg; /* the owner's */
	enum gpu_share share;
	unsigned char handle[GPU_HANDLE_BYTES]; /* GPU_SHARE_IPC: for cudaIpcOpenMemHandle in other processes */
	int fd;         /* GPU_SHARE_FD: a descriptor to send; open as long as the slab is; else -1 */
	uint64_t bytes; /* whole multiples of 2 MiB */
	bool pinned;    /* the host slab is pinned */
	int numa_node;  /* to which the host slab was moved for this slab; -1: it lies where it did */
	bool left;      /* set by the owner before closing, for GPU_SHARE_IPC: other processes have it open, so it is
	                 * not freed before this process ends */
};

struct gpu_slab_params {
	unsigned char uuid[GPU_UUID_BYTES];
	enum gpu_share share;
	uint8_t *host; /* the host slab, every page present; stays mapped until on_closed */
	size_t slot_bytes;
	uint32_t n_slots;
	/* slab: the caller's from now on, or NULL with result GPU_E_REFUSED, GPU_E_UNPINNED, GPU_E_LOST or GPU_E_LATE
	 * and why. */
	void (*on_open)(void *arg, struct gpu_slab *slab, int result, const char *why);
	/* After GPU_E_LATE, when the driver has let go of the host slab: it may be unmapped from now on, unless lost,
	 * as in gpu_slab_close. NULL: it stays mapped in any case. */
	void (*on_late)(void *arg, bool lost);
	void *arg;
};

/* 0: on_open will be called; GPU_E_REFUSED: it will not be called, `why` (GPU_REASON_BYTES) gives the reason;
 * -ENOMEM. */
int gpu_slab_open(struct gpus *g, const struct gpu_slab_params *params, char *why);
/* No copy of the slab may be under way. Unless it is `left` or of GPU_SHARE_FD, no other process may have it open. The
 * host slab may be unmapped in on_closed, not before; when lost is true not even then: the GPU may still read it, or
 * CUDA still has it registered, and its addresses must not be reused. */
void gpu_slab_close(struct gpu_slab *slab, void (*on_closed)(void *arg, bool lost), void *arg);

/* ---- copies ---- */

struct gpu_work {
	struct gpu_work *next; /* all members: gpus.c's */
	struct gpu *gpu;
	struct gpu_slab *slab;
	int kind, result;
};

/* A copy from the host slab to the same place on the GPU. The caller owns the struct and keeps it until done. */
struct gpu_copy {
	struct gpu_work work;
	uint32_t n_parts; /* 0 to 2 */
	struct {
		uint64_t offset, bytes; /* in both slabs */
	} part[2];
	/* result: 0: seen complete; GPU_E_FAILED or GPU_E_LOST with why. Either way the host memory is no longer
	 * read. */
	void (*done)(struct gpu_copy *copy, int result, const char *why);
	uint64_t seen_ns; /* CLOCK_MONOTONIC when it was seen complete; set before done; 0: it failed */
	void *event;      /* the copier's */
};
/* Copies of one GPU run in the order of these calls. */
void gpu_copy_begin(struct gpu_slab *slab, struct gpu_copy *copy);

/* ---- status ---- */

struct gpu_stats {
	char name[96];
	unsigned char uuid[GPU_UUID_BYTES];
	int driver_version; /* 1000 * major + 10 * minor; 0: not known yet */
	bool context, lost;
	uint64_t n_slabs, slab_bytes, budget_bytes;
	uint64_t pinned_bytes; /* of host slabs that this GPU's opener registered */
	struct {
		uint64_t n, bytes;
	} copies[GPU_SIZE_CLASSES]; /* host to device, seen complete; the daemon never copies from device to host */
	uint64_t n_pageable;        /* of them from memory that was not pinned */
	uint64_t n_errors;
	char last_error[160], pin_note[GPU_REASON_BYTES]; /* pin_note: why something is not pinned */
	int numa_node;  /* NUMA node near the GPU, where pinned batches are placed if possible; -1: only one node, or
	                 * not known */
	int numa_error; /* errno of the last failed attempt to place them there; 0: none */
	uint64_t in_flight;
};
bool gpu_is_lost(const struct gpu *gpu); /* true only after on_lost has been called */
bool gpu_has_uuid(const struct gpu *gpu, const unsigned char uuid[GPU_UUID_BYTES]);
/* Fills in up to n entries and returns their number: the GPUs that have been asked for and that this machine has. */
unsigned gpus_get_stats(struct gpus *g, struct gpu_stats *stats, unsigned n);
/* How long the longest-running CUDA call has taken so far; 0: none is under way. GPUs that have never worked do not
 * count, as only those that ask for them wait. */
uint64_t gpus_oldest_busy_ns(struct gpus *g);
int gpus_driver_version(struct gpus *g); /* 0: not known yet, or g is NULL */

/* "GPU-8a1b...": as nvidia-smi writes it. */
enum { GPU_UUID_TEXT_BYTES = 41 };
void gpu_uuid_format(const unsigned char uuid[GPU_UUID_BYTES], char text[GPU_UUID_TEXT_BYTES]);

#endif
