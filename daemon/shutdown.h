/* The end of the daemon, step by step, and what begins it when no client is there.
 *
 *     serving --signal, idle_exit, a GPU is lost--> stopping --> the pool closes --> the GPUs' threads end --> finished
 *
 * Stopping: no new connections, every session told, every job closed (rows in work finish), and the memory on GPUs let
 * go by the trainers that have it open, or left to the end of the process after GPU_GRACE_S. Each step is begun by the
 * last thing of the one before. The simulation runs this very file. Loop thread only. */
#ifndef BATCHD_SHUTDOWN_H
#define BATCHD_SHUTDOWN_H

#include <uv.h>

#include "engine.h"
#include "ipc/server.h"

enum { EXIT_GPU = 75 }; /* EX_TEMPFAIL of sysexits.h: only a new process can use the GPU again */

struct shutdown {
	struct engine *engine; /* borrowed, as the server is */
	struct server *server;
	uv_timer_t idle;  /* runs while there is no session */
	uv_timer_t grace; /* for trainers that have memory on a GPU open, then for the GPUs' threads */
	bool syncing;     /* the caller's: an I/O thread is at work for it, and shutdown_go_on will be called */
	int exit_code;
	void (*finished)(struct shutdown *s); /* only the caller's own handles are left in the loop */
};

/* daemon, server and finished are set, the rest is zeroed. */
void shutdown_init(struct shutdown *s);
/* A session came or went: (re)starts or stops the idle clock. */
void shutdown_note_activity(struct shutdown *s);
/* exit_code: of the process, if it is the first one that is not 0. */
void shutdown_begin(struct shutdown *s, int exit_code, const char *why);
/* A job, a session, or the caller's own work has ended. */
void shutdown_go_on(struct shutdown *s);

#endif
