/* A simulated world for the daemon's state machines: session.c, job.c, shutdown.c, open-request.c and everything in
 * batch/ but pool and slab are the real ones. The files below replace the layers under them, with the same names, so
 * that the linker takes these instead:
 *
 *     uv.c        clock, timers, polls     time passes only when an event says so; a poll is a process's pidfd
 *     pool.c      workers, I/O threads     a row takes a random time, rows finish in any order
 *     peer.c      sockets                  packets wait in both directions until their turn comes; the real wire.c
 *                                          packs and checks them
 *     slab.c      memory                   counted; what a trainer has mapped stays readable, as a memfd would; control
 *                                          pages, too
 *     world.c     the daemon around them   and what must always be true of it
 *     trainer.c   trainers                 what they may do, what they must see
 *     producer.c     producers                of served data sets
 *     gpu.c       GPUs                     slabs on them, copies that take time
 *
 * A history depends only on its seed and on the features of its world, and runs in one thread. A new feature rolls dice
 * only in histories that have it, so that the recorded seeds of failures keep their meaning. sim_fail prints how to
 * replay the history and ends the process. */
#ifndef BATCHD_TESTS_SIM_H
#define BATCHD_TESTS_SIM_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/ipc/server.h"
#include "server/job.h"
#include "server/session.h"

enum {
	SIM_FD = 1 << 20,
	SIM_MAX_FDS = 4096,
	SIM_MAX_TRAINERS = 12,
	SIM_MAX_JOBS = 3,
	SIM_MAX_SLOTS = 700,
	SIM_MAX_HELD = 256,
	SIM_MAX_HOARD = 128,
	SIM_MAX_LARGE = 64,
	SIM_MAX_ROWS = 8,
	SIM_ROW_BYTES = 16
};

/* ---- dice and words ---- */

enum sim_feature {
	SIM_BASES = 1,         /* groups in lockstep resume anywhere */
	SIM_RESTARTS = 2,      /* the daemon is killed or stopped, a new one takes its place, and trainers reconnect and
	                        * continue from where they were */
	SIM_SERVED = 4,        /* some jobs' batches are made by producers */
	SIM_GPUS = 8,          /* some trainers want their batches on a GPU */
	SIM_STALLS = 16,       /* the daemon looks for stalled trainers; /proc knows none of these processes */
	SIM_ASKS = 32,         /* trainers with batch sizes of their own */
	SIM_LENGTHS = 64,      /* with SIM_SERVED: some producers say how long their epochs are */
	SIM_UNCOUNTED = 128,   /* with SIM_SERVED: some producers do not say how many batches an epoch had */
	SIM_APART = 256,       /* with SIM_SERVED: more of them, and jobs whose ranks come, leave and seek
	                        * anywhere */
	SIM_GREEDY = 512,      /* some trainers seek again and again and keep the batches of earlier seeks */
	SIM_WORLDS = 1024,     /* jobs of up to the largest allowed number of ranks */
	SIM_LIES = 2048,       /* some trainers write arbitrary values into their ring, at any moment */
	SIM_CLOSES = 4096,     /* trainers send Close in any state, more than once, and keep sending */
	SIM_LARGE = 8192,      /* with SIM_SERVED: some batches do not fit the producer's slots */
	SIM_STRANGERS = 16384, /* with SIM_GPUS: some trainers are in another PID namespace or of another user, so that
	                        * their GPU memory comes as a descriptor */
	SIM_STRAYS = 32768, /* clients that misbehave may send any message of the wire that is illegal in their state */
	SIM_SPARES = 65536, /* some trainers say with Close that their job ends, and open another loader */
	SIM_ALL_FEATURES = 131071,
	SIM_ANY_FEATURES = 1u << 31, /* for sim_begin: the seed decides */
};

extern uint64_t sim_seed;
extern unsigned sim_features;
static inline bool sim_has(enum sim_feature f)
{
	return (sim_features & f) != 0;
}
uint32_t sim_below(uint32_t n);
bool sim_chance(unsigned percent);
void sim_trace(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void sim_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
#define SIM_CHECK(what, ...) \
	do { \
		if (!(what)) \
			sim_fail(__VA_ARGS__); \
	} while (0)

/* ---- descriptors ---- */

int sim_fd_open(void *thing);
void *sim_fd_thing(int fd);
unsigned sim_n_fds(void);

/* ---- clock and polls (uv.c) ---- */

/* The next timer fires. `later`: also a timer that is not due yet, which is how time passes. */
bool sim_timer_fires(bool later);
/* Only sim_held_timer_fires fires this timer; the passing of time does not. */
void sim_timer_hold(const uv_timer_t *t);
/* This timer is no event: it fires, late, when time has passed for another one. NULL: there is none. */
void sim_timer_put_aside(const uv_timer_t *t);
void sim_held_timer_fires(void);
bool sim_handle_closes(void);
/* Notifies the poll of this descriptor, whichever it is. */
bool sim_poll_fires(int fd);
unsigned sim_n_handles(void);

/* ---- workers (pool.c) ---- */

void sim_pool_start(void);
struct pool *sim_pool(void);
bool sim_worker_works(void); /* starts rows or finishes some */
bool sim_task_runs(void);
bool sim_pool_wakes_loop(void);
bool sim_pool_is_empty(void);        /* no queue, job or task is left */
extern unsigned sim_bad_row_percent; /* of rows that cannot be made at present */
extern bool sim_rows_fail;           /* rows fail at some time of this history */

/* ---- memory (slab.c) ---- */

struct sim_slab {
	uint8_t *base;
	size_t bytes, present;
	unsigned n_refs; /* the daemon, and every client that has mapped it */
	pid_t reader;    /* the first process that has mapped it; -1: there were several */
	bool in_daemon, sealed;
	uint64_t generation[SIM_MAX_SLOTS]; /* the last generation seen in each slot */
};

/* A control page. The rings in it are the real ones. */
struct sim_page {
	struct ring_page page;
	unsigned n_refs; /* every client that has mapped it, its descriptor, and packets in transit */
};
void sim_page_unref(struct sim_page *p);
void sim_page_map(struct sim_page *p, struct ring *r);
unsigned sim_n_pages(void);
void sim_slab_unref(struct sim_slab *s);
/* The sealed memory of a batch that does not fit its slot; a producer's. */
struct sim_slab *sim_slab_alone(size_t n_bytes);
uint64_t sim_daemon_slab_bytes(void);
uint64_t sim_large_bytes(void); /* of large batches that the daemon has */
unsigned sim_n_slabs(void);
unsigned sim_n_slabs_in_daemon(void);
extern unsigned sim_no_memory_percent;

/* ---- sockets (peer.c) ---- */

struct sim_packet {
	struct sim_packet *next;
	struct sim_slab *slab;    /* sent with the packet; a reference */
	struct sim_page *page;    /* sent with the packet; a reference */
	struct sim_gpu_slab *gpu; /* sent with the packet as a descriptor, which keeps it */
	int64_t lease;            /* the slot that it gives back (Release), or -1 */
	size_t n_bytes;
	uint8_t bytes[];
};

struct sim_queue {
	struct sim_packet *first, **end;
	unsigned n;
};

struct sim_socket {
	struct peer *peer; /* NULL: the daemon has closed it */
	pid_t pid;
	struct sim_queue to_daemon, to_client;
	struct sim_socket *previous; /* the previous socket of the same process */
	bool lost;                   /* the daemon's process is gone */
	bool was_expected;           /* its group was waiting for it when it sent where to begin */
	bool hung_up;                /* no process has the client's end open any more */
	bool dead;                   /* the process that connected is gone */
};

struct sim_socket *sim_connect(pid_t pid, uid_t uid);
void sim_note_socket(struct sim_socket *s); /* records the socket in the history, which owns all sockets */
void sim_socket_free(struct sim_socket *s);
struct sim_packet *sim_queue_pop(struct sim_queue *q);
void sim_packet_free(struct sim_packet *p);
void sim_send(struct sim_socket *s, const Batchd__Wire__ClientMessage *m, int64_t lease);
/* An empty message that is illegal in each of these states (SESSION_IN). */
void sim_send_stray(struct sim_socket *s, unsigned states);
void sim_send_slab(struct sim_socket *s, const Batchd__Wire__ClientMessage *m, struct sim_slab *slab); /* takes it */
bool sim_daemon_receives(struct sim_socket *s);
bool sim_daemon_sees_hangup(struct sim_socket *s);
bool sim_daemon_sees_exit(struct sim_socket *s);
bool sim_peer_ends(void); /* a connection that has been marked is taken apart */

/* ---- the daemon (world.c) ---- */

struct sim_job {
	char name[16], dataset[64];
	struct plan_cache {
		struct plan *plan;
		uint64_t epoch, base;
	} plans[8];
	uint32_t n_samples, batch_size, world_size, n_slots;
	uint64_t seed, incarnation;
	uid_t uid;
	bool shuffle, drop_last, share, own;
	enum group_policy policy;
	bool async;                       /* a share group that is not in lockstep */
	bool served, resumable, is_known; /* is_known: the length of its epochs is known */
	bool counts;                      /* producers say at an epoch's end how many batches it had */
	bool unbalanced;                  /* a rank may have been at a different position than the others */
	unsigned n_producers, n_makers_gone, n_odd_seeks; /* n_odd_seeks: seeks into the middle of an epoch, where not
	                                                * every producer can begin */
	unsigned next_plan;
};

extern struct engine sim_engine;
extern struct server sim_server;
extern struct sim_job sim_jobs[SIM_MAX_JOBS];
extern unsigned sim_n_jobs;

void sim_begin(uint64_t seed, unsigned features);
void sim_end(void);
void sim_check(void);
void sim_stop_daemon(void);
/* Ends the daemon's process. Its state is torn down as for a daemon that stops, but no client is notified. */
void sim_kill_daemon(void);
/* A stopping daemon stops waiting for clients that have GPU memory open. */
void sim_shutdown_timer(void);
bool sim_daemon_is_gone(void);
void sim_another_daemon(void);
/* The bytes of a row of this sample. */
void sim_stamp(uint64_t index, uint64_t out[2]);
/* The plan that a trainer expects; borrowed. */
struct plan *sim_plan(struct sim_job *j, uint64_t epoch, uint64_t base);
uint64_t sim_n_batches(const struct sim_job *j, uint64_t base);

/* ---- trainers (trainer.c) ---- */

/* What a trainer still reads from a lost connection. */
struct sim_old {
	struct sim_slab *slab;
	size_t slot_bytes;
	unsigned n_held;
	struct sim_held *held;
};

/* A lease of an earlier seek, kept by a trainer that releases nothing. */
struct sim_hoard {
	uint32_t slot;
	uint64_t generation;
};

struct sim_held {
	uint32_t slot, n_rows;
	uint64_t generation, index[SIM_MAX_ROWS];
	struct sim_slab *large; /* where the batch lies, a reference; NULL: in its slot */
};

enum sim_phase {
	SIM_UNUSED,
	SIM_OPENING,
	SIM_ATTACHED,
	SIM_STREAMING,
	SIM_CLOSED, /* alive, and still holds batches */
	SIM_EXITED
};

/* What has been read of a ring: entry by entry, the slots that its entries are about. A published entry is not written
 * again. */
struct sim_lane {
	uint32_t seen, slot[RING_ENTRIES];
};

struct sim_trainer {
	enum sim_phase phase;
	struct sim_socket *socket;
	struct sim_job *job;
	pid_t pid;
	int32_t wanted_rank;
	uint32_t rank, n_slots;
	size_t slot_bytes;
	uint64_t seek;
	struct position expect;
	bool stopped, said_waiting, misbehaved;
	bool greedy, lies;          /* lies: its ring does not say what it has */
	bool left;                  /* it has closed its loader, and may open another one */
	bool again, began, gave_up; /* it has reconnected; knows its position; wants no more */
	uint64_t born_ns, incarnation;
	struct sim_old old;
	unsigned claim;
	Batchd__Wire__Start start; /* how it joined last */
	bool waits_for_epoch;      /* it has asked for the next epoch, which may never begin */
	struct sim_slab *slab;
	struct ring ring;
	bool is_stranger;         /* CUDA IPC does not reach it */
	unsigned wanted_gpu;      /* 1, 2; 3: a GPU that does not exist; 0: it wants none */
	struct sim_gpu_slab *gpu; /* the slab that it has open */
	struct sim_lane batches, releases;
	unsigned n_held, n_hoard, n_got, target;
	unsigned keeps; /* how many batches it keeps while it makes progress */
	Batchd__Wire__ErrorCode error;
	uint64_t pushed[8][SIM_MAX_ROWS]; /* its own batches: by step % 8 */
	uint32_t pushed_n[8];
	uint64_t next_push;
	struct sim_slab *large[SIM_MAX_LARGE]; /* received, each for a batch that is still in the ring; oldest first */
	unsigned n_large;
	/* Fields from here on are not read before they are set: most of this is never touched. */
	struct sim_held held[SIM_MAX_HELD];
	struct sim_hoard hoard[SIM_MAX_HOARD];
	uint64_t last_generation[SIM_MAX_SLOTS]; /* of each slot, and the row stamps in it */
	struct position last_at[SIM_MAX_SLOTS];
};

extern struct sim_trainer sim_trainers[SIM_MAX_TRAINERS];
extern bool sim_claims_hold;

/* A turn of a random trainer: does anything. */
bool sim_trainer_acts(struct sim_trainer *t);
/* What a well-behaved trainer does: takes and releases its batches, asks for more until it has had `target`. */
bool sim_trainer_gets_on(struct sim_trainer *t);
/* Whether the trainer has lost its connection and will come back. */
bool sim_trainer_may_return(const struct sim_trainer *t);
void sim_trainer_returns(struct sim_trainer *t);
/* The trainer has received what a stopping daemon sent it. */
void sim_trainer_hears_the_end(struct sim_trainer *t);
void sim_trainer_leaves(struct sim_trainer *t);
void sim_trainer_seeks(struct sim_trainer *t);                  /* or joins at a random position */
struct sim_trainer *sim_trainer_of(const struct sim_socket *s); /* the trainer of this connection; NULL: no trainer's,
                                                                 * or a producer's */
void sim_trainer_exits(struct sim_trainer *t, bool child_keeps_socket);
void sim_trainer_join(struct sim_trainer *t, struct sim_job *j, int32_t rank);
void sim_trainer_looks(struct sim_trainer *t); /* everything that it holds is unchanged */
/* How often the trainer has, is about to have, or is releasing each slot. */
void sim_trainer_leases(struct sim_trainer *t, unsigned count[SIM_MAX_SLOTS]);
/* Lying trainers write into their rings, whatever the loop is doing. */
void sim_liars_scribble(void);
bool sim_trainer_holds(const struct sim_trainer *t, const struct sim_slab *slab, uint32_t slot);

/* ---- GPUs (gpu.c) ---- */

enum { SIM_DRIVER_VERSION = 13000 };

struct sim_gpu_slab {
	struct gpu_slab base; /* first member; the daemon's */
	struct gpu_slab_params params;
	struct sim_gpu_slab *next;
	uint8_t *memory;
	unsigned n_open; /* by trainers, and descriptors in transit to a trainer */
	bool freed;
};

bool sim_gpu_works(void);
unsigned sim_n_gpu_slabs(void);
void sim_gpu_end(void);
void sim_gpu_uuid(unsigned number, unsigned char uuid[GPU_UUID_BYTES]);
struct sim_gpu_slab *sim_gpu_open_handle(const void *handle);
struct sim_gpu_slab *sim_gpu_send(int fd); /* the same, for a slab sent as a descriptor */
void sim_gpu_close_handle(struct sim_gpu_slab *s);
extern unsigned sim_gpu_error_percent; /* of copies that fail */

/* ---- producers (producer.c) ---- */

enum { SIM_MAX_PRODUCERS = 4, SIM_MAX_FILLS = 256, SIM_MAX_MADE_SLABS = 64 };

struct sim_made_slab {
	struct sim_slab *slab; /* a reference */
	uint64_t slot_bytes, room_bytes;
	uint32_t number, n_slots;
};

struct sim_fill {
	struct sim_slab *slab;
	uint64_t number, epoch, step, slot_bytes, room_bytes;
	uint32_t slot;
	bool cancelled, written;
};

struct sim_producer {
	struct sim_job *job; /* NULL: unused */
	struct sim_socket *socket;
	pid_t pid;
	bool stopped, misbehaved;
	uint64_t n_asked, at_epoch, at_step, passed_epoch;
	bool passes_over; /* the beginning of passed_epoch */
	bool is_waiting;  /* its last answer is a large batch, which is not taken yet */
	unsigned n_slabs, n_fills;
	struct sim_made_slab slab[SIM_MAX_MADE_SLABS];
	struct sim_fill fill[SIM_MAX_FILLS]; /* oldest first */
};

extern struct sim_producer sim_producers[SIM_MAX_PRODUCERS];

bool sim_producer_acts(struct sim_producer *k);
bool sim_producer_gets_on(struct sim_producer *k);
void sim_producer_starts(struct sim_producer *k, struct sim_job *j);
void sim_producer_exits(struct sim_producer *k);
bool sim_producer_is_there(const struct sim_job *j);
/* Batches of an epoch, of all ranks together; rows of a batch; the stamp that its bytes hold. */
uint64_t sim_epoch_length(const struct sim_job *j, uint64_t epoch);
uint32_t sim_made_rows(uint64_t epoch, uint64_t step);
uint64_t sim_made_index(uint64_t epoch, uint64_t step);
static inline uint64_t sim_made_per_rank(const struct sim_job *j, uint64_t epoch)
{
	return sim_epoch_length(j, epoch) / (j->share ? 1 : j->world_size);
}

#endif
