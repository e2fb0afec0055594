/* The end of the daemon, step by step, and the idle timeout that begins it when no client is connected.
 *
 *     serving --signal, idle_exit, a GPU is lost--> stopping --> the pool closes --> the GPUs' threads end --> finished
 *
 * Stopping: there are no new connections, every session is told, every job is closed (rows in work finish), and the
 * trainers close the memory on GPUs that they have open. Memory that is still open after GPU_GRACE_S is left to the end
 * of the process, and so are reads that a server has not answered when READS_S have passed. The last event of each step
 * begins the next. The simulation runs this file, too. Loop thread only. */
#ifndef BATCHD_SHUTDOWN_H
#define BATCHD_SHUTDOWN_H

#include <uv.h>

#include "server/engine.h"
#include "server/ipc/server.h"

enum { EXIT_GPU = 75 }; /* EX_TEMPFAIL of sysexits.h: only a new process can use the GPU again */

struct shutdown {
	struct engine *engine; /* borrowed, and so is the server */
	struct server *server;
	uv_timer_t idle;           /* runs while there is no session */
	uv_timer_t shutdown_timer; /* for trainers that have memory on a GPU open, then for the GPUs' threads */
	uv_timer_t reads_timer;    /* for reads that do not return */
	bool syncing; /* set by the caller: an I/O thread works for it, and shutdown_go_on will be called */
	int exit_code;
	void (*finished)(struct shutdown *s); /* only the caller's own handles are left in the loop */
	/* Ends the process with exit_code at once: a thread will not return. */
	void (*abandon)(struct shutdown *s) __attribute__((noreturn));
};

/* engine, server, finished and abandon are set, the rest is zeroed. */
void shutdown_init(struct shutdown *s);
/* The number of sessions has changed: (re)starts or stops the idle clock. */
void shutdown_note_activity(struct shutdown *s);
/* exit_code: becomes the process's, if it is the first that is not 0. */
void shutdown_begin(struct shutdown *s, int exit_code, const char *why);
/* A job, a session, or the caller's own work has ended. */
void shutdown_go_on(struct shutdown *s);

#endif
