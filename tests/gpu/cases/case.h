/* Shared by the cases: reporting an outcome, initialising CUDA, other processes. main.c has the list of cases. */
#ifndef BATCHD_TESTS_GPU_CASES_CASE_H
#define BATCHD_TESTS_GPU_CASES_CASE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "../cuda.h"

enum { SLAB = 4 << 20, MB = 1 << 20, PAGE = 4096, SECONDS = 60 };

extern CUcontext ctx;
extern bool is_double; /* no measurements that take long */
extern int line_fd;    /* to the other process */

/* A question to the driver about the GPU. */
struct attribute {
	int number;
	const char *name;
};
extern const struct attribute attributes[];
extern const size_t n_attributes;

/* ---- a line each: see main.c ---- */

void exact(const char *name, const char *outcome);
void exact_of(const char *name, CUresult r);
void exact_bool(const char *name, bool value);
void class_of(const char *name, CUresult r);
void open_of(const char *name, const char *outcome);
void timed(const char *name, double value, const char *unit);
/* The median, the 99th percentile and the maximum of n values, which are sorted for that. */
void timed_spread(const char *name, double *values, size_t n, const char *unit);
double middle_of(double *values, size_t n); /* sorts them */
/* For calls without which a case cannot continue. */
void must(CUresult r, const char *what);
#define MUST(call) must(call, #call)

/* ---- set-up of most cases ---- */

double now(void); /* seconds */
void begin(void); /* a context, current */
CUdeviceptr slab_of(size_t n);
CUstream stream_new(void);
CUevent event_new(unsigned flags);
char *host_new(size_t n);   /* shared memory, present */
char *pinned_new(size_t n); /* and registered */
CUfunction kernel(const char *name);
void spin(CUstream s, uint64_t ms); /* keeps the stream busy */
CUresult add(CUdeviceptr to, CUdeviceptr from, uint32_t n_add, uint32_t n, CUstream s);
uint32_t word_at(CUdeviceptr a);
/* Memory that can be sent to another process as a descriptor. */
CUresult vmm_create(CUmemGenericAllocationHandle *h, size_t n);
CUresult vmm_map(CUmemGenericAllocationHandle h, size_t n, int flags, CUdeviceptr *a);

/* ---- another process ---- */

bool told(const void *data, size_t n); /* false: there is no other process */
void tell(const void *data, size_t n);
void hear(void *data, size_t n);
bool hear_soon(void *data, size_t n, int ms);
pid_t forked(void);            /* as fork(), with line_fd between the two */
pid_t other(const char *role); /* starts this program again in that role of main.c's list; line_fd leads to it */
/* Of role "export". */
CUresult export_of(size_t n, CUipcMemHandle *handle, CUdeviceptr *theirs);
CUresult open_handle(CUdeviceptr *mine, CUipcMemHandle handle);

/* ---- cases and roles ---- */

void case_driver(void);
void case_contexts(void);
void case_memory(void);
void case_host(void);
void case_streams(void);
void case_capture(void);
void case_threads_streams(void);
void case_kernels(void);
void case_sticky(void);
void case_fork(void);
void case_ipc(void);
void case_ipc_small(void);
void case_ipc_stale(void);
void case_ipc_killed(void);
void case_ipc_events(void);
void case_strangers(void);
void case_vmm(void);
void case_vmm_reading(void);
void case_context_size(void);
void case_registration(void);
void case_open_time(void);
void case_attach(void);
void case_overlap(void);
void case_pin_stall(void);
void case_work_of_the_dead(void);
void role_export(void);
void role_event(void);
void role_vmm(void);
void role_context(void);
void role_copier(void);
void role_writer(void);
void role_pinner(void);

#endif
