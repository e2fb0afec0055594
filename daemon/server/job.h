/* Jobs: the trainers that use one loader, the loader, and tasks that take a while and return to the job. Loop thread
 * only. */
#ifndef BATCHD_JOB_H
#define BATCHD_JOB_H

#include <uv.h>

#include "batch/loader.h"
#include "server/engine.h"
#include "server/refusal.h"
#include "base/histogram.h"

struct producer_source;
struct open_request;

/* Which data a session wants: what it has asked for, the files behind its descriptors, and whether the reader is
 * trusted. Two containers may have different volumes at the same path, and root in a container is not root outside. */
struct data_identity {
	struct Sources *sources;
	bool trusted;
	unsigned n;
	struct {
		uint64_t dev, ino;
	} files[WIRE_MAX_FDS]; /* in the order of the descriptors; zeros: unknown */
};

/* A job: the trainers that use one loader, and the loader.
 *
 *     OPENING ----> READY ----> (linger) ----> CLOSING
 *        |             |                          ^
 *        |             +------> ENDING -----------+
 *        |             |          |               |
 *        +-------------+----------+---> FAILED ---+
 *
 * ENDING: its producer has gone. Each session first gets the batches that were made for it, and then the error. */
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
	unsigned n_sessions;       /* without those that are ending */
	unsigned n_tasks;          /* tasks under way; see job_task */
	bool retired;  /* no session joins it, as its opening was stopped, too; it closes without sessions */
	bool outgrown; /* batches did not fit its slots: it does not linger, so that the next one has larger slots */
	bool slots_pending;               /* share: its slab is being made */
	struct charge loader_charge, fds; /* to its user, until closing begins */
	struct charge data_bytes;         /* memory of the data set, while the loader exists */
	struct histogram waits;           /* of its trainers, for a batch */
	uv_timer_t linger;
	Batchd__Wire__ErrorCode fail_code; /* FAILED, ENDING: the error for its sessions; 0: BAD_DATA */
	/* For a served data set; OPENING until a producer of that name connects. */
	char *served;                      /* the producer's name; owned; NULL: not served */
	struct producer *producer;         /* READY */
	struct producer_source *source;    /* the loader's source; owned */
	void (*on_closing)(struct job *j); /* NULL: nothing more to do */
};

/* A task that takes a while and then returns to its job, which lives until then. The session that asked for it may end
 * before. A task embeds this struct, at any offset. */
struct job_task {
	struct pool_task pool_task;
	struct job *job;
	struct session *session;          /* that asked, and waits; NULL: none waits */
	struct job_task **place;          /* where that session keeps it */
	void (*run)(struct job_task *t);  /* on an I/O thread, after job_task_run */
	void (*done)(struct job_task *t); /* on the loop thread; may free it, or begin it again */
};

/* Functions of session.c for the files below it. */
struct job_ops {
	/* Something the session waits for may be ready: continues with opening. */
	void (*advance)(struct session *s);
	/* The session is over, unless it is ending already: it gets the reason. Frees nothing; the session may leave
	 * its job's list. A trainer that has batches keeps its slots until it sends Close (after it has
	 * copied them), or hangs up and exits. */
	void (*end)(struct session *s, const struct refusal *why);
};

/* Makes a job for the request, and begins to open its data set. Takes the request's contents, the fds (those taken are
 * set to -1) and the charges; NULL: memory is short, and nothing is taken. */
struct job *job_make(struct engine *e, struct open_request *r, int *fds, unsigned n_fds,
		     const struct data_identity *data, struct charge *loader, struct charge *open_fds);
void job_enter(struct job *j, struct session *s);
/* The session is about to be ENDING: it counts no more. */
void job_note_ending(struct session *s);
/* Frees nothing: a job without sessions closes from its timer. */
void job_leave(struct session *s);
/* Something that the job's sessions waited for is ready: each continues with opening. */
void job_advance(struct job *j);
/* Makes the job's loader; takes spec and recipe unless it fails. 0, ACCOUNT_E_ or negative errno as pool_lane_join. */
int job_make_loader(struct job *j, struct loader_spec *spec, struct recipe *recipe);
/* Moves the job to another state; no other function does. */
void job_move(struct job *j, enum job_state to);
/* Ends all its sessions. */
void job_end_sessions(struct job *j, const struct refusal *why);
/* No more batches will be made, and no session joins the job. Each session gets the error, with `text`, after the last
 * batch that was made for it. */
void job_end(struct job *j, Batchd__Wire__ErrorCode code, const char *text);
/* A session has moved to another position: if the job is ending, there may be no batch for it there. */
void job_note_moved(struct job *j);
/* The job waits for this task from this call on. */
void job_task_begin(struct job_task *t, struct job *j);
/* A session waits for a task that has begun, and keeps it in *place until it is done. */
void job_task_await(struct job_task *t, struct session *s, struct job_task **place);
/* An I/O thread runs the task, then job_task_end is called. */
void job_task_run(struct job_task *t);
/* The task has returned: calls done, continues with the sessions, and closes a job without sessions. */
void job_task_end(struct job_task *t);
/* The task will not return. */
void job_task_drop(struct job_task *t);
/* The session ends; *place may be NULL. */
void job_task_forget(struct job_task **place);
/* Closes a job without sessions and tasks immediately. */
void job_close(struct job *j);
/* No session joins the job any more; it closes as soon as it has none. */
void job_retire(struct job *j);
/* Makes room: frees a spare (spare.h) or, where there is none, closes the job that has lingered longest, of this user or,
 * with any_user, of any user. False: there is neither. */
bool job_close_lingering(struct engine *e, uid_t uid, bool any_user);

#endif
