/* Pressure: tells when the machine, or the daemon's control group, lacks memory (the kernel's PSI). Loop thread only. */
#ifndef BATCHD_PRESSURE_H
#define BATCHD_PRESSURE_H

#include <stdbool.h>

#include <uv.h>

struct pressure {
	uv_poll_t poll;
	int fd; /* -1: the kernel has no PSI, or does not let this process watch it */
	bool is_fifo;
	void (*on_pressure)(void *arg); /* at most every two seconds while programs wait for memory */
	void *arg;
};

/* on_pressure and arg are set. Watches what $MEMORY_PRESSURE_WATCH names (systemd's protocol: a pressure file, or a FIFO
 * into which a service manager writes), or else the control group's memory.pressure, or else the machine's. */
void pressure_start(struct pressure *p, uv_loop_t *loop);
/* Closes its handle, if it has one; closed may be NULL. */
void pressure_stop(struct pressure *p);

#endif
