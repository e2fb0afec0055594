/* Sessions, as all parts of the daemon see them: data only. A session's job, slots, GPU, ring and stalls each have a
 * file of their own. session.c, which stands above those files, has its messages. Loop thread only. */
#ifndef BATCHD_SESSION_STATE_H
#define BATCHD_SESSION_STATE_H

#include <uv.h>

#include "core/stream.h"
#include "cuda/gpus.h"
#include "engine.h"
#include "ipc/peer.h"
#include "ring.h"

struct job;
struct job_task;

enum session_state { SESSION_GREETED, SESSION_OPENING, SESSION_ATTACHED, SESSION_GHOST, SESSION_PARTING };

/* The GPU that it wants its batches on; device.c's. Zeroed at first. */
struct device {
	bool asked;  /* for its batches on a GPU, if only by its own hands */
	bool wanted; /* and nothing has stood in its way so far */
	unsigned char uuid[GPU_UUID_BYTES];
	uint32_t driver_version; /* the trainer's; 0: not known */
	unsigned shares;         /* ways to it that are not refused yet: bits, by enum gpu_share */
	bool prefers_fd;         /* CUDA IPC may fail between the namespaces of the two processes */
	char refused[GPU_N_SHARES][GPU_REASON_BYTES]; /* why each other way is refused */
	bool told;                                    /* that its memory there is being made */
	char reason[GPU_REASON_BYTES];                /* why it got none; empty: it did, or wanted none */
};

/* Whether a trainer gets on; stall.c's. */
struct stall {
	uint64_t active_ns; /* when it was last seen to; 0: not looked at yet */
	uint64_t progress;  /* what it had done by then */
	uint64_t cpu_ns;    /* processor time at the first look since */
	bool seen;          /* there was one */
	bool is_on;         /* it is reported as stalled */
	char why[256];
};

/* A trainer. A ghost is one whose connection has ended while its process lives and holds slots. One that is parting has
 * been told that the daemon stops, and has the daemon's memory on a GPU open until its Close. */
struct session {
	struct session *next; /* in the daemon's list */
	struct session *next_in_job;
	struct engine *engine;
	struct peer *peer; /* NULL: a ghost */
	struct job *job;
	enum session_state state;
	struct consumer consumer;
	int32_t wanted_rank;
	uint32_t own_batch_size;       /* what its trainer says, for status; 0: the loader's */
	bool was_together, told_apart; /* share: has been with most of its group; the log knows that it no longer is */
	uint64_t born_ns;              /* as its trainer says: orders those who claim one rank, when one of them comes
	                              * back */
	bool again;                    /* it comes back after it lost a connection */
	struct job_task *allotment;    /* its slots are being made */
	struct job_task *comparison;   /* its question is being answered */
	struct device device;
	bool wants_ring;
	struct ring ring; /* its ring; none: its batches go as packets */
	struct charge ring_bytes;
	struct producer *producer; /* it makes batches itself; owned; then it is never more than GREETED */
	uint64_t producer_wait_ns, producer_deadline_ns; /* how long it waits for a served data set's producer, and
	                                                  * until when */
	int pidfd;                                       /* a ghost's */
	uv_poll_t exit_poll;
	uint64_t number, n_released, wait_ns;
	struct stall stall;
	uint64_t advanced;       /* in which of its job's advances it had its turn */
	struct charge held, fds; /* a ghost's, as its connection had them */
	pid_t pid;
	uid_t uid;
	char program[WIRE_MAX_PROGRAM + 1];
	uint64_t connected_ns;
};

#endif
