/* A recording of what a daemon does, as `Traced` brings it: a memory of rings, one for each thread, which the daemon
 * fills while the client that asked is connected. The daemon reads nothing from it. */
#ifndef RECORDING_H
#define RECORDING_H

#include <stdatomic.h>
#include <stdint.h>

enum {
	TRACE_MAGIC = 0x43525442, /* "BTRC" */
	TRACE_RINGS = 64,         /* threads; the events of further ones are left out */
	TRACE_EVENTS = 8192,      /* of a ring; later ones are left out, and counted */
	TRACE_NAME_BYTES = 16
};

enum trace_kind {
	TRACE_ROWS = 1, /* a worker makes b rows of batch a, from row c on */
	TRACE_READ,     /* an I/O thread fetches the input of row c of batch a */
	TRACE_BEGIN,    /* a batch begins in slot a; b: its generation */
	TRACE_READY,    /* the batch in slot a is made; b: its generation */
	TRACE_PUBLISH,  /* the batch in slot a goes to trainer c; b: its generation */
	TRACE_STAGES, /* a worker has made row c of batch a, one row in four; b: its stages, as trace_stages packs them */
};

/* How long a row's input was read and decoded, in steps of TRACE_STEP_NS; the rest of it was spent on its transform. */
enum { TRACE_STEP_NS = 100 };

static inline uint64_t trace_step(uint64_t ns)
{
	return ns / TRACE_STEP_NS < UINT32_MAX ? ns / TRACE_STEP_NS : UINT32_MAX;
}

static inline uint64_t trace_stages(uint64_t read_ns, uint64_t decode_ns)
{
	return trace_step(read_ns) << 32 | trace_step(decode_ns);
}

struct trace_event {
	uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC; equal: a moment */
	uint64_t a, b, c;          /* a: a number that is the slot's while the recording lasts */
	uint32_t kind, reserved;
};

struct trace_ring {
	_Atomic uint32_t n;          /* events that are whole */
	_Atomic uint32_t n_lost;     /* for which there was no room */
	char name[TRACE_NAME_BYTES]; /* of the thread */
	struct trace_event event[TRACE_EVENTS];
};

struct trace_memory {
	uint32_t magic, n_rings;
	struct trace_ring ring[TRACE_RINGS];
};

#endif
