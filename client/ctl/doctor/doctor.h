/* The findings of doctor: a state, the object, what was found, and a remedy. */
#ifndef BATCHCTL_DOCTOR_H
#define BATCHCTL_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum finding {
	FINDING_OK,
	FINDING_NOTE,    /* works, but not in the best way, or cannot be judged from here */
	FINDING_PROBLEM, /* something that was requested or is needed does not work */
};

enum { SIZE_TEXT_BYTES = 32 };

struct doctor {
	bool json;
	bool device_wanted; /* a missing GPU is a problem, not a note */
	const char *socket;
	unsigned n_problems, n_notes;
	json_t *findings; /* with json */
	bool daemon_answers;
	int driver_version; /* of the CUDA driver in this process, 1000 * major + 10 * minor; 0: there is none */
	unsigned n_gpus;    /* that the driver finds */
	unsigned n_mapped,
		n_copied; /* GPUs on which a loader's batches are the daemon's memory, or copied by the trainer */
};

/* finding.c: adds a line. advice: what to change, a sentence; NULL for none. */
void doctor_say(struct doctor *d, enum finding state, const char *about, const char *advice, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* daemon.c: whether a daemon answers; what trainers get from it on a GPU, tried out with a loader; and how
 * daemon and trainers differ, given that result. */
void doctor_daemon(struct doctor *d);
void doctor_pinning(struct doctor *d);
void doctor_numa(struct doctor *d); /* its workers and batches on a machine with several NUMA nodes */
struct cuda_driver;
struct cuda_stream;
/* In the GPU's context. about: "GPU 0"; room: pinned memory of n_room bytes. */
void doctor_loader(struct doctor *d, const struct cuda_driver *driver, int ordinal, struct cuda_stream *stream,
		   const char *about, void *room, size_t n_room);
void doctor_sides(struct doctor *d);
/* system.c: limits and memory; GPUs' nodes in /dev, given what the driver finds. */
void doctor_system(struct doctor *d);
void doctor_nodes(struct doctor *d);
/* gpu.c: driver, devices, pinning, IPC. */
void doctor_gpu(struct doctor *d);
#endif
