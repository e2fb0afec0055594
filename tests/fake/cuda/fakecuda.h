/* Controls of the fake driver beyond CUDA's own calls, for tests. A test finds them with dlsym in the library that
 * $BATCHD_LIBCUDA names. README.md in this folder lists the environment variables that control other processes. Any
 * thread. */
#ifndef BATCHD_TESTS_FAKECUDA_H
#define BATCHD_TESTS_FAKECUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Adds errors to those of $FAKECUDA_FAIL, in the same syntax; NULL removes the added ones. False: the text is not
 * understood. */
bool fakecuda_fail(const char *spec);

/* From now on every CUDA call of the calling thread fails and is reported: for event loops and decode workers. */
void fakecuda_forbid_thread(void);

/* A counter of this process: "pageable", "copies-to-device", "bytes-to-device", ..., "violations", or the number of
 * calls of a function, as "cuMemAlloc". */
uint64_t fakecuda_counter(const char *name);

/* The number of live objects in this process: memory, registrations, streams, events, imports, contexts, modules. 0 at
 * a clean end. */
unsigned fakecuda_alive(void);

/* The text of the last violation, "" if there was none. Static; the next violation overwrites it. */
const char *fakecuda_last_violation(void);

/* With $FAKECUDA_GATED, only this thread's calls between true and false can fail on request and are counted. So a
 * program can make a library's calls fail but not its own. Operations of streams never fail on request. */
void fakecuda_gate(bool open);

/* While held, streams finish the operation they run and start no other. Does not nest. */
void fakecuda_hold_streams(bool hold);

unsigned fakecuda_n_streams(int priority); /* live streams of this process with that priority; 0 is the lowest */

/* From now on calls of that name, except the first n_pass, wait at their beginning; NULL: no call waits any more. Only
 * one name at a time. */
void fakecuda_hold_call(const char *name, unsigned n_pass);
unsigned fakecuda_n_held(void); /* calls that wait because of fakecuda_hold_call */

/* ---- for kernels written for the host (kernels.c) ---- */

struct fakecuda_grid {
	const char *kernel; /* the kernel's name */
	unsigned grid[3], block[3], shared_bytes;
};

/* The memory behind a device pointer that a kernel was given, if all the bytes are in one allocation that this process
 * may use. Otherwise the launch fails with CUDA_ERROR_ILLEGAL_ADDRESS, which is reported and sticky, and the returned
 * pointer is scratch memory that may be written. */
void *fakecuda_memory(unsigned long long device_pointer, size_t n_bytes);

/* Reports a violation found by a kernel. */
void fakecuda_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct fakecuda_kernel {
	const char *name; /* the name given to cuModuleGetFunction */
	unsigned n_params;
	size_t param_bytes[16];
	void (*run)(void **params, const struct fakecuda_grid *grid); /* runs on the stream's thread */
};

#endif
