/* What doctor has found: lines of a state, what it is about, what was found, and what to do about it. */
#ifndef BATCHCTL_DOCTOR_H
#define BATCHCTL_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum finding {
	FINDING_OK,
	FINDING_NOTE,    /* works, but another way than it could, or cannot be judged from here */
	FINDING_PROBLEM, /* something that was asked for or is needed does not work */
};

enum { SIZE_TEXT_BYTES = 32 };

struct doctor {
	bool json;
	bool device_wanted; /* a missing GPU is a problem, not a note */
	const char *socket;
	unsigned n_problems, n_notes;
	json_t *findings;   /* with json */
};

/* Adds a line. advice: what to change, a sentence; NULL for none. */
void doctor_say(struct doctor *d, enum finding state, const char *about, const char *advice, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* doctor-system.c: namespaces, limits, memory, device nodes; the daemon. */
void doctor_daemon(struct doctor *d);
void doctor_system(struct doctor *d);
/* doctor-gpu.c: driver, devices, pinning, IPC. */
void doctor_gpu(struct doctor *d);
#endif
