/* What a test may ask of the driver double beyond CUDA's own calls. Found with dlsym in the library that
 * $BATCHD_LIBCUDA names. README.md beside this file has the environment variables, which is how other processes are
 * told the same. Any thread. */
#ifndef BATCHD_TESTS_FAKECUDA_H
#define BATCHD_TESTS_FAKECUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Errors to come, added to those of $FAKECUDA_FAIL and written the same way; NULL: none any more. False: not
 * understood. */
bool fakecuda_fail(const char *spec);

/* From now on every CUDA call of the calling thread fails and is reported: for event loops and decode workers. */
void fakecuda_forbid_thread(void);

/* A counter of this process: "pageable", "copies-to-device", "bytes-to-device", ..., "violations", or calls of a
 * function, as "cuMemAlloc". */
uint64_t fakecuda_counter(const char *name);

/* How many things are alive in this process: memory, registrations, streams, events, imports, contexts, modules. 0 at a
 * clean end. */
unsigned fakecuda_alive(void);

/* The text of the last violation, "" if there was none. Static; overwritten by the next. */
const char *fakecuda_last_violation(void);

/* With $FAKECUDA_GATED only what this thread calls between true and false can fail to order, and is counted: a program
 * can have what a library calls in it fail, but not what it calls itself. Operations of streams are not asked. */
void fakecuda_gate(bool open);

/* While held, streams finish the operation they run and begin no other. Nests not. */
void fakecuda_hold_streams(bool hold);

unsigned fakecuda_n_streams(int priority); /* of this process, with that priority; 0 is the least */

/* From now on calls of that name wait as they begin, all but the first n_pass; NULL: none does any more. One name at a
 * time. */
void fakecuda_hold_call(const char *name, unsigned n_pass);
unsigned fakecuda_n_held(void); /* calls that wait so */

/* ---- for kernels written for the host (kernels.c) ---- */

struct fakecuda_grid {
	const char *kernel; /* its name */
	unsigned grid[3], block[3], shared_bytes;
};

/* The memory behind a device pointer that a kernel was given, if all the bytes are in one allocation that this process
 * may use; else the launch has failed with CUDA_ERROR_ILLEGAL_ADDRESS, which is reported and sticky, and what comes
 * back is scratch memory that may be written. */
void *fakecuda_memory(unsigned long long device_pointer, size_t n_bytes);

/* A violation that a kernel has found. */
void fakecuda_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct fakecuda_kernel {
	const char *name; /* as cuModuleGetFunction is asked for it */
	unsigned n_params;
	size_t param_bytes[16];
	void (*run)(void **params, const struct fakecuda_grid *grid); /* on the stream's thread */
};

#endif
