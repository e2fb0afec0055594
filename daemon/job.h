/* Jobs: the trainers that use one loader, and the loader; and what takes a while and comes back to them. Loop thread
 * only. */
#ifndef BATCHD_JOB_H
#define BATCHD_JOB_H

#include <uv.h>

#include "core/loader.h"
#include "engine.h"
#include "refusal.h"

struct feed;
struct request;

/* What a session's descriptors lead to, and with which rights it is read. Two containers may call different volumes the
 * same, and root in one is not root outside. */
struct data_identity {
	bool trusted;
	unsigned n;
	struct {
		uint64_t dev, ino;
	} files[WIRE_MAX_FDS]; /* in the order of the descriptors; zeros: cannot be told */
};

/* A job: the trainers that use one loader, and the loader.
 *
 *     OPENING ----> READY ----> (linger) ----> CLOSING
 *        |             |                          ^
 *        |             +------> ENDING -----------+
 *        |             |          |               |
 *        +-------------+----------+---> FAILED ---+
 *
 * ENDING: its producer has gone. Each session first gets the batches that were made for it, and is then told.
 */
enum job_state { JOB_OPENING, JOB_READY, JOB_FAILED, JOB_CLOSING, JOB_ENDING };
const char *job_state_name(enum job_state state);

struct job {
	struct job *next;
	struct engine *engine;
	enum job_state state;
	struct loader_spec spec;
	struct data_identity data; /* its first session's */
	uint64_t number;           /* of the daemon's jobs */
	struct loader *loader;     /* READY, ENDING, FAILED after READY, CLOSING */
	struct opening *opening;   /* OPENING; one of the tasks */
	struct session *sessions;  /* attached or waiting for the loader */
	unsigned n_sessions;
	unsigned n_tasks;                 /* that will come back to this job; see job_task */
	bool retired;                     /* a newer incarnation has its name: no session joins it any more */
	bool slots_pending;               /* share: its slab is being made */
	struct charge loader_charge, fds; /* to its user, until closing begins */
	struct charge data_bytes;         /* what its data set takes, as long as the loader is there */
	uint64_t n_advances;              /* calls of job_advance so far */
	uv_timer_t linger;
	Batchd__Wire__ErrorCode fail_code; /* FAILED, ENDING: what its sessions are told; 0: BAD_DATA */
	/* Of a served data set; OPENING until a producer of that name is there. */
	char *served;                      /* the producer's name; owned; NULL: it is none */
	struct producer *producer;         /* READY */
	struct feed *feed;                 /* the loader's source; owned */
	void (*on_closing)(struct job *j); /* NULL: nothing more to do */
};

/* Something that takes a while and comes back to its job, which stays until then. The session that asked for it may be
 * gone by then. In what it is about, first or not. */
struct job_task {
	struct pool_task pool_task;
	struct job *job;
	struct session *session;          /* that asked, and waits; NULL: none does (any more) */
	struct job_task **place;          /* where that session keeps it */
	bool lets_linger;                 /* the job may linger meanwhile, and goes on doing so afterwards */
	void (*run)(struct job_task *t);  /* on an I/O thread, after job_task_run */
	void (*done)(struct job_task *t); /* on the loop thread; may free it, or begin it again */
};

/* What session.c does for the files below it. */
struct job_ops {
	/* What the session waits for may be there: goes on with opening. It may be gone afterwards, and others too. */
	void (*advance)(struct session *s);
	/* Its session is over: told why, and closed. A trainer that is to open again (REOPEN) keeps what it holds until
	 * it says Close, as it does once it has put copies in their place, or hangs up and exits. */
	void (*ended)(struct session *s, const struct refusal *why);
};

/* Joins the job, making it if it is new. Takes the request's contents and the fds (those taken are set to -1). 0 or
 * REFUSED; then the session is in no job. */
int job_join(struct engine *e, struct session *s, struct request *r, int *fds, unsigned n_fds, struct refusal *why);
void job_leave(struct session *s);
/* Something that its sessions waited for is there: each goes on with opening. */
void job_advance(struct job *j);
/* Makes the job's loader; takes spec and recipe unless it fails. 0 or negative errno. */
int job_make_loader(struct job *j, struct loader_spec *spec, struct recipe *recipe);
/* The only way from one state to another. */
void job_move(struct job *j, enum job_state to);
/* Ends all its sessions. */
void job_end_sessions(struct job *j, const struct refusal *why);
/* Nothing more will be made, and no session joins any more. Each session is told so, with `text`, when it has had
 * what there is for it. */
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
bool job_close_lingering(struct engine *e, uid_t uid, bool any_user);

#endif
