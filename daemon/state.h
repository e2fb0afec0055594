/* The daemon's parts and who contains whom: batchd > jobs > sessions. Loop thread only. */
#ifndef BATCHD_STATE_H
#define BATCHD_STATE_H

#include <uv.h>

#include "budget.h"
#include "daemon.h"
#include "device.h"
#include "refusal.h"
#include "core/tuner.h"
#include "ipc/server.h"
#include "report.h"
#include "request.h"
#include "ring.h"

struct session;
struct opening;
struct producer;
struct feed;

/* What a session's descriptors lead to, and with which rights it is read. Two containers may call different volumes the
 * same, and root in one is not root outside. */
struct data_identity {
	bool trusted;
	unsigned n;
	struct {
		uint64_t dev, ino;
	} files[WIRE_MAX_FDS];       /* in the order of the descriptors; zeros: cannot be told */
};

/* A job: the trainers that use one loader, and the loader.
 *
 *     OPENING ----> READY ----> (linger) ----> CLOSING
 *        |             |                          ^
 *        |             +------> ENDING -----------+     its producer has gone: each session has what was made for it
 * first, then it is told |             |          |               |
 *        +-------------+----------+---> FAILED ---+
 */
enum job_state { JOB_OPENING, JOB_READY, JOB_FAILED, JOB_CLOSING, JOB_ENDING };

struct job {
	struct job *next;
	struct batchd *daemon;
	enum job_state state;
	struct loader_spec spec;
	struct data_identity data;   /* its first session's */
	uint64_t number;             /* of the daemon's jobs */
	struct loader *loader;       /* READY, ENDING, FAILED after READY, CLOSING */
	struct opening *opening;     /* OPENING; one of the tasks */
	struct session *sessions;    /* attached or waiting for the loader */
	unsigned n_sessions;
	unsigned n_tasks;            /* that will come back to this job; see job_task */
	bool retired;                /* a newer incarnation has taken its name: nobody joins it any more */
	bool slots_pending;          /* share: its slab is being made */
	struct charge loader_charge, fds; /* to its user, until closing begins */
	struct charge data_bytes;    /* what its data set takes, as long as the loader is there */
	uint64_t n_advances;         /* calls of job_advance so far */
	uv_timer_t linger;
	Batchd__Wire__ErrorCode fail_code; /* FAILED, ENDING: what its sessions are told; 0: BAD_DATA */
	/* Of a served data set; OPENING until a producer of that name is there. */
	char *served;                /* the producer's name; owned; NULL: it is none */
	struct producer *producer;   /* READY */
	struct feed *feed;           /* the loader's source; owned */
	void (*on_closing)(struct job *j); /* NULL: nothing more to do */
};

/* Something that takes a while and comes back to its job, which stays until then. The session that asked for it may be
 * gone by then. In what it is about, first or not. */
struct job_task {
	struct pool_task pool_task;
	struct job *job;
	struct session *session;     /* that asked, and waits; NULL: none does (any more) */
	struct job_task **place;     /* where that session keeps it */
	bool lets_linger;            /* the job may linger meanwhile, and goes on doing so afterwards */
	void (*run)(struct job_task *t);  /* on an I/O thread, after job_task_run */
	void (*done)(struct job_task *t); /* on the loop thread; may free it, or begin it again */
};

enum session_state { SESSION_GREETED, SESSION_OPENING, SESSION_ATTACHED, SESSION_GHOST, SESSION_PARTING };

/* Whether a trainer gets on; stall.c's. */
struct stall {
	uint64_t active_ns;          /* when it was last seen to; 0: not looked at yet */
	uint64_t progress;           /* what it had done by then */
	uint64_t cpu_ns;             /* processor time at the first look since */
	bool seen;                   /* there was one */
	bool is_on;                  /* it is reported as stalled */
	char why[256];
};

/* A trainer. A ghost is one whose connection has ended while its process lives and holds slots. One that is parting has
 * been told that the daemon stops, and has the daemon's memory on a GPU open until its Close. */
struct session {
	struct session *next;        /* in the daemon's list */
	struct session *next_in_job;
	struct batchd *daemon;
	struct peer *peer;           /* NULL: a ghost */
	struct job *job;
	enum session_state state;
	struct consumer consumer;
	int32_t wanted_rank;
	uint32_t own_batch_size;     /* what its trainer says, for status; 0: the loader's */
	bool was_together, told_apart; /* share: has been with most of its group; the log knows that it no longer is */
	uint64_t born_ns;            /* as its trainer says: orders those who claim one rank, when one of them comes
	                              * back */
	bool again;                  /* it comes back after it lost a connection */
	struct job_task *allotment;  /* its slots are being made */
	struct job_task *comparison; /* its question is being answered */
	struct device device;
	bool wants_ring;
	struct ring ring;            /* its control page; none: its batches go as packets */
	struct charge ring_bytes;
	struct producer *producer;   /* it makes batches itself; owned; then it is never more than GREETED */
	uint64_t producer_wait_ns, producer_deadline_ns; /* how long it waits for a served data set's producer, and
	                                                  * until when */
	int pidfd;                   /* a ghost's */
	uv_poll_t exit_poll;
	uint64_t number, n_released, wait_ns;
	struct stall stall;
	uint64_t advanced;           /* in which of its job's advances it had its turn */
	struct charge held, fds;     /* a ghost's, as its connection had them */
	pid_t pid;
	uid_t uid;
	char program[WIRE_MAX_PROGRAM + 1];
	uint64_t connected_ns;
};

/* What session.c does for the files below it. */
struct job_ops {
	/* What the session waits for may be there: goes on with opening. It may be gone afterwards, and others too. */
	void (*advance)(struct session *s);
	/* Its session is over: told why, and closed. A trainer that is to open again (REOPEN) keeps what it holds until
	 * it says Close, as it does once it has put copies in their place, or hangs up and exits. */
	void (*ended)(struct session *s, const struct refusal *why);
};

struct batchd {
	uv_loop_t loop;
	const struct batchd_params *params;
	struct config *config;
	struct pool *pool;
	unsigned n_io;               /* I/O threads */
	struct tuner tuner;
	struct gpus *gpus;
	struct server server;
	struct reports reports;
	const struct job_ops *job_ops;
	/* What the root does for the files below it: */
	void (*on_activity)(struct batchd *b); /* a session came or went */
	void (*on_ended)(struct batchd *b);    /* a session or a job has gone */
	struct job *jobs;
	uint64_t n_jobs;             /* so far */
	struct session *sessions;
	struct producer *producers;
	struct opening *waiting;     /* for an I/O thread that their user may have, first come first served */
	struct budget budget;
	uv_signal_t on_term, on_int, on_hup;
	uv_check_t audit;                /* of the accounts, whenever nobody is here */
	bool uneven;                     /* it found something */
	uv_timer_t idle, watchdog, sync, stall, patience; /* patience: at the end, with who has memory on a GPU open,
	                                                   * then with the GPUs' threads */
	struct pool_task sync_task;
	bool syncing;
	bool stopping;
	int exit_code;
	uint64_t started_ns;
};

/* session.c */
extern const struct peer_ops session_peer_ops;
extern const struct job_ops session_job_ops;
/* While stopping: tells the trainer, and ends the session unless its process may have memory on a GPU open, which is
 * not to be freed until it says Close or exits. */
void session_dismiss(struct session *s);
/* While stopping: slots of ghosts, and of trainers that are opening again, are not waited for, unless they are on a GPU.
 */
void session_forsake(struct session *s);
/* While stopping: nor is what is open on a GPU any longer, which is then left to the end of this process. Whether there
 * was such a thing. */
bool session_abandon(struct session *s);

/* stall.c: trainers that do not get on. */
void stall_watch(struct batchd *b);     /* (re)starts or stops the clock */
void stall_forget(struct session *s);   /* it leaves its job */
void stall_tell(const struct session *newcomer); /* which others of its job do not get on, as those have heard who
                                                  * were there */

/* compare.c: what has changed in a data set since a token was made. */
/* Begins to find out; the answer is sent. 0 or REFUSED. */
int session_compare(struct session *s, const Batchd__Wire__Compare *m, struct refusal *why);

/* job.c */
/* Joins the job, making it if it is new. Takes the request's contents and the fds (those taken are set to -1). 0 or
 * REFUSED; then the session is in no job. */
int job_join(struct batchd *b, struct session *s, struct request *r, int *fds, unsigned n_fds, struct refusal *why);
void job_leave(struct session *s);
/* Something that its sessions waited for is there: each goes on with opening. */
void job_advance(struct job *j);
/* Makes the job's loader; takes spec and recipe unless it fails. 0 or negative errno. */
int job_make_loader(struct job *j, struct loader_spec *spec, struct recipe *recipe);
/* Ends all its sessions. */
void job_end_sessions(struct job *j, const struct refusal *why);
/* Nothing more will be made. Nobody joins it any more, and each session is told so, with `text`, when it has had what
 * there is for it. */
void job_end(struct job *j, Batchd__Wire__ErrorCode code, const char *text);
/* A session has gone somewhere else: there may be nothing for it there, if the job is ending. */
void job_note_moved(struct job *j);
/* The job waits for this task from now on. */
void job_task_begin(struct job_task *t, struct job *j);
/* A session waits for a task that has been begun, and remembers it in *place until it is done. */
void job_task_await(struct job_task *t, struct session *s, struct job_task **place);
/* An I/O thread runs it, then job_task_end is called. */
void job_task_run(struct job_task *t);
/* It has come back: calls done, goes on with the sessions, and closes a job that has none. */
void job_task_end(struct job_task *t);
/* It will not come back. */
void job_task_drop(struct job_task *t);
/* The session goes; *place may be NULL. */
void job_task_forget(struct job_task **place);
/* Ends a job without sessions and tasks now. */
void job_close(struct job *j);
/* Ends the job that has been without sessions for longest, of this user or, with any_user, of anybody. False: there is
 * none. */
bool job_close_lingering(struct batchd *b, uid_t uid, bool any_user);

/* status.c: the state as JSON text; free() it. viewer: a user who sees what is its own, and of others that they are
 * there; 0 sees everything. NULL: out of memory. */
char *status_json(struct batchd *b, uid_t viewer);

#endif
