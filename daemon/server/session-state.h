/* Sessions, as all parts of the daemon see them: data only. A session's job, slots, GPU, ring and stalls each have a
 * file of their own. session.c, which stands above those files, handles its messages. Loop thread only. */
#ifndef BATCHD_SESSION_STATE_H
#define BATCHD_SESSION_STATE_H

#include <uv.h>

#include "batch/state-clock.h"
#include "batch/stream.h"
#include "gpu/gpus.h"
#include "server/engine.h"
#include "server/ipc/peer.h"
#include "ring.h"
#include "base/latency.h"

struct job;
struct job_task;
struct single_images;

/*        +--------> PRODUCING, LOADING ----------------------+
 *        |                                                   v
 *     GREETED ----> OPENING ----> ATTACHED ----> DRAINING -> ENDING ----> ORPHANED
 *        |             |             |                       ^
 *        +-------------+-------------+-----------------------+
 *
 * A client's role is in its state: GREETED, it has none yet, and may ask; PRODUCING, it makes batches; LOADING, it loads
 * single images; all others are of trainers. session-message.h says what it may send in each.
 *
 * ENDING: its connection ends. The session gets nothing more and does not count in its job, but it stays in every list,
 * and in its stream, until the loop's turn ends; then it is freed, or becomes ORPHANED. So a call that ends sessions
 * frees none, and a loop over sessions needs no care. */
enum session_state {
	SESSION_GREETED,
	SESSION_OPENING,
	SESSION_ATTACHED,
	SESSION_ORPHANED,
	SESSION_DRAINING,
	SESSION_ENDING,
	SESSION_PRODUCING,
	SESSION_LOADING
};

/* The GPU that the session wants its batches on; device.c's. Zeroed at first. */
struct device {
	bool asked;  /* for batches on a GPU, even if the trainer copies them itself */
	bool wanted; /* asked, and still possible */
	unsigned char uuid[GPU_UUID_BYTES];
	uint32_t driver_version; /* the trainer's; 0: not known */
	unsigned shares;         /* ways to share it that are not refused yet: bits, by enum gpu_share */
	bool prefers_fd;         /* CUDA IPC may fail between the namespaces of the two processes */
	char refused[GPU_N_SHARES][GPU_REASON_BYTES]; /* why each other way is refused */
	bool told;                                    /* the trainer knows that its memory there is being made */
	char reason[GPU_REASON_BYTES];                /* why it has no device; empty: it has one, or wanted none */
};

/* Whether a trainer makes progress; stall.c's. */
struct stall {
	uint64_t active_ns; /* last look with progress, or without batches; 0: no look yet */
	uint64_t progress;  /* its count of actions at that time */
	uint64_t cpu_ns;    /* processor time at the first look since */
	bool seen;          /* there was such a look */
	bool is_on;         /* it is reported as stalled */
	char why[256];
};

/* A client. An orphan is a session whose connection has ended while its process lives and holds slots. A draining session
 * has been told that the daemon stops, and has the daemon's memory on a GPU open until its Close. */
struct session {
	struct session *next; /* in the daemon's list */
	struct engine *engine;
	struct peer *peer; /* NULL: an orphan */
	enum session_state state;
	uint64_t number;
	pid_t pid;
	uid_t uid;
	char program[WIRE_MAX_PROGRAM + 1];
	uint64_t connected_ns;
	bool records; /* it has begun a recording (base/trace.h) */

	struct producer *producer;           /* of a client that is PRODUCING; owned */
	struct single_images *single_images; /* of one that is LOADING */

	/* All else is a trainer's. From its Open: */
	int32_t wanted_rank;
	uint32_t own_batch_size;                         /* for status; 0: the loader's */
	uint64_t born_ns;                                /* orders the trainers that claim one rank when one of them
	                                                  * reconnects */
	bool again;                                      /* it reconnects after it lost a connection */
	uint64_t producer_wait_ns, producer_deadline_ns; /* its wait for a served data set's producer: length and end */
	/* Its job, and its batches: */
	struct session *next_in_job;
	struct job *job;
	struct consumer consumer;
	struct job_task *slot_alloc; /* its slots are being made */
	struct device device;
	struct ring ring; /* NULL page: not attached yet, or no more */
	struct charge ring_bytes;
	struct ring_taken taken;       /* session_ring_taken, when the ring was closed */
	bool was_together, told_apart; /* share: has been with most of its group; the log says that it no longer is */
	bool ends_job;                 /* it has said Close, and that no other trainer can come to its job */
	/* How it gets on: */
	uint64_t n_released, wait_ns;
	struct latency waits;     /* of its batches, as it told when it gave them back */
	struct state_clock clock; /* of how it spends its time while it is ATTACHED; sampler.c's */
	struct stall stall;
	/* An orphan's: */
	int pidfd;
	uv_poll_t exit_poll;
	struct charge held, fds; /* taken over from its connection */
};

#endif
