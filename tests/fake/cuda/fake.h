/* Internals of the fake driver. One lock guards all of it (`fake.lock`); only the work of streams runs without it. Device
 * memory is a memfd, mapped twice: once without any access, which is the device pointer, and once readable and writable
 * elsewhere, which only streams touch. Its last page is a header that other processes share (struct block). So it needs
 * no name, and a killed process leaves nothing behind. */
#ifndef BATCHD_TESTS_FAKECUDA_FAKE_H
#define BATCHD_TESTS_FAKECUDA_FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi.h"
#include "fakecuda.h"

enum {
	MOST_DEVICES = 8,
	MOST_OPENERS = 64,
	PAGE = 4096,
	MIB = 1 << 20,
	GRANULARITY = 2 * MIB,
	RECORDS = 1024 /* of an interprocess event that may be in progress at once */
};

/* ---- devices and contexts (device.c, context.c) ---- */

struct device {
	int physical; /* which GPU; CUDA_VISIBLE_DEVICES maps ordinals to GPUs */
	unsigned char uuid[16];
	size_t n_bytes, n_used; /* n_used: memory that this process uses */
	CUcontext primary;
	unsigned primary_refs, primary_flags;
};

struct CUctx_st {
	struct CUctx_st *next;
	int device; /* its ordinal */
	bool primary;
	unsigned flags;
	CUresult lost; /* sticky error, or 0 */
	CUstream legacy;
};

/* ---- memory (memory.c, host.c, ipc.c, vmm.c) ---- */

struct vmm_handle;

enum memory_kind { MEMORY_OWN, MEMORY_IMPORTED, MEMORY_VMM };

/* At the end of every memfd, visible to every process that maps it. */
struct block {
	uint64_t magic, id, n_bytes, pidns, start, va, offset;
	int32_t pid, physical;
	uint32_t euid;
	char mig[32];
	_Atomic int32_t freed;
	struct {
		_Atomic int32_t pid;
		_Atomic int32_t n;
	} openers[MOST_OPENERS];
};

struct memory {
	struct memory *next;
	enum memory_kind kind;
	CUcontext ctx;    /* NULL: VMM */
	CUdeviceptr base; /* the address from cuMemAlloc or cuIpcOpenMemHandle, or of the mapping */
	size_t n_bytes;
	char *data; /* alias of base */
	struct block *block;
	int fd;
	unsigned refs; /* of an import: how often it is open */
	bool writable; /* VMM: as cuMemSetAccess said; others: true */
	bool readable;
	struct vmm_handle *handle; /* VMM */
	void *reserved, *alias;    /* what to unmap */
	size_t n_reserved, n_alias;
};

struct registration {
	struct registration *next;
	char *base;
	size_t n_bytes;
	unsigned flags;
	bool ours; /* cuMemHostAlloc: the fake driver owns the pages */
	bool read_only;
};

/* ---- streams and events (stream.c, event.c) ---- */

/* One cuEventRecord, referenced by its waiters. The stream sets `done`. */
struct record {
	unsigned refs;
	bool done;
	int64_t at_ns;
};

struct shared_event { /* a page that processes share */
	uint64_t magic, id;
	int32_t pid, pad;
	uint64_t start, pidns;
	_Atomic uint64_t requested;
	struct {
		_Atomic uint64_t done; /* the newest complete record whose number has this remainder */
		_Atomic int32_t pid;   /* of the recording process */
	} records[RECORDS];
};

struct CUevent_st {
	struct CUevent_st *next;
	CUcontext ctx;
	unsigned flags;
	struct record *current;      /* NULL: never recorded */
	struct shared_event *shared; /* interprocess */
	int fd;
	bool imported;
	bool captured;           /* last recorded in a capturing stream */
	struct capture *capture; /* a capture that is still in progress, or NULL */
};

enum op_kind { OP_COPY, OP_SET, OP_RECORD, OP_WAIT, OP_JOIN, OP_HOST, OP_KERNEL };

struct op {
	struct op *next;
	enum op_kind kind;
	char *to; /* host addresses: aliases of device memory, or the caller's */
	const char *from;
	size_t n_bytes;
	unsigned value, width;                  /* OP_SET */
	struct memory *to_memory, *from_memory; /* for checks when the operation runs; cannot be freed before */
	struct record *record;                  /* OP_RECORD, OP_WAIT */
	struct shared_event *shared;
	uint64_t number; /* of the shared event's record */
	CUstream other;  /* OP_JOIN: waits until that stream has done this many operations */
	uint64_t until;
	CUhostFn fn;
	void *data;
	struct launch *launch; /* OP_KERNEL */
};

struct CUstream_st {
	struct CUstream_st *next;
	CUcontext ctx;
	unsigned flags;
	int priority;
	unsigned refs; /* the caller's, the thread's, one for each OP_JOIN */
	struct op *first, **last;
	uint64_t submitted, completed, random;
	bool started, closing;
	bool of_thread; /* a thread's own default stream */
	pthread_t thread;
	struct capture *capture; /* NULL: takes part in no capture */
};

struct launch {
	const struct fakecuda_kernel *kernel;
	struct fakecuda_grid grid;
	void *params[16];
	unsigned char bytes[4096];
};

/* ---- all of it ---- */

struct fake {
	pthread_mutex_t lock;
	pthread_cond_t changed;    /* an operation was submitted, has finished, or may start */
	_Atomic int pid;           /* the process that called cuInit; 0: none */
	_Atomic int n_inside;      /* calls in progress */
	atomic_bool deinitialized; /* the process is at its end: the driver's atexit handler has run */
	bool held;
	struct device devices[MOST_DEVICES];
	int n_devices;
	struct CUctx_st *contexts;
	struct memory *memory;
	struct registration *registrations;
	struct CUstream_st *streams;
	struct CUevent_st *events;
	struct CUmod_st *modules;
	unsigned n_vmm_handles, n_reservations;
	uint64_t last_id;
};
extern struct fake fake;

/* ---- calls (call.c) ---- */

enum need { NEED_NOTHING, NEED_INIT, NEED_CONTEXT };

/* Begins an API call: takes the lock, unless it returns an error. Every call ends with call_end, which releases the
 * lock whatever call_begin returned. */
struct call {
	bool locked;
	enum api api;
};
CUresult call_begin(struct call *c, enum api api, enum need need);
CUresult call_end(struct call *c, CUresult result);
const char *api_name(enum api api);
CUcontext context_current(void);

/* ---- settings and injection (settings.c) ---- */

struct settings {
	uint64_t seed;
	long delay_us; /* the longest wait of a stream before each operation */
	int n_gpus, version, numa_node;
	size_t memory_bytes, context_bytes;
	bool no_ipc, no_vmm, mig, mps, mps_is_taken, exclusive, prohibited, read_only_register;
	CUresult init_result;
	char mig_name[32];
	uint64_t pidns;
	uint32_t euid;
	const char *dir, *report;
	bool quiet, gated;
};
extern struct settings settings;
void settings_read(void);
/* The error in which the environment wants this call to end, or 0. name: an API name, or "run" for an operation of a
 * stream. */
CUresult inject(const char *name);
void wait_if_held(const char *name); /* waits while fakecuda_hold_call holds this name */
void inject_latency(const char *name);
uint64_t random_next(uint64_t *state);
bool thread_forbidden(void);
bool gate_closed(void); /* this thread's calls do not fail on request and are not counted */

/* ---- report.c ---- */

enum counter {
	COUNT_PAGEABLE,
	COUNT_PAGEABLE_BYTES,
	COUNT_TO_DEVICE,
	COUNT_BYTES_TO_DEVICE,
	COUNT_TO_HOST,
	COUNT_BYTES_TO_HOST,
	COUNT_ON_DEVICE,
	COUNT_BYTES_ON_DEVICE,
	COUNT_KERNELS,
	COUNT_INJECTED,
	COUNT_VIOLATIONS,
	COUNT_DEAD_EXPORTER,
	COUNT_N
};
void count(enum counter c, uint64_t n);
void count_call(enum api api);
/* Reports what a correct program never does. Any thread, with or without the lock. */
void violation(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- the parts; the caller holds the lock unless stated ---- */

int device_find_visible(void);
bool device_under_mps(void); /* whether this process is a client of MPS; it is decided by its first cuInit */
bool device_charge(struct device *d, size_t n_bytes); /* false: not enough memory is left */
void device_refund(struct device *d, size_t n_bytes);
size_t device_used(const struct device *d); /* by all processes that share $FAKECUDA_DIR */
bool device_claim(const struct device *d);  /* exclusive mode: false: another process has the device */

CUresult context_device(CUcontext ctx, struct device **dp);
bool context_valid(CUcontext ctx);

CUresult memory_map(struct memory *m, int fd, uint64_t avoid_va); /* fills in the addresses of a memfd that has a
                                                                   * block */
int memory_create_fd(size_t n_bytes, struct block **blockp);
void memory_unmap(struct memory *m);
int device_of(const struct block *b);                        /* the ordinal in this process; -1: this process does not
                                                              * see it */
unsigned vmm_n_fds(void);                                    /* descriptors that handles keep */
void vmm_mapping_ends(struct vmm_handle *h);                 /* of memory whose handle may already be gone */
struct memory *memory_find(CUdeviceptr ptr, size_t n_bytes); /* the allocation that holds all of the range, else NULL */
void memory_remove(struct memory *m);
CUresult memory_usable(struct memory *m); /* checked when work runs: whether the owner has freed it or is dead */
struct registration *host_find(const void *ptr, size_t n_bytes, bool *partlyp);
uint64_t process_start(pid_t pid); /* 0: no such process */
bool process_alive(pid_t pid, uint64_t start);

CUresult stream_check(CUstream *stream);    /* resolves the special streams; INVALID_HANDLE for no stream */
CUresult stream_for_work(CUstream *stream); /* and whether it may be used now */
CUstream stream_create(CUcontext ctx, unsigned flags, int priority);
void stream_drop(CUstream s);
void stream_submit(CUstream s, struct op *op); /* copies op */
CUresult stream_finish(CUstream s);            /* waits; releases the lock meanwhile */
void context_drain(CUcontext ctx);             /* NULL: every context */
bool stream_idle(CUstream s);
int64_t now_ns(void);

CUresult capture_permits(enum api api); /* whether this thread may make that call during a capture */
CUresult capture_work(CUstream s);      /* whether s may be given work */
bool capture_take(CUstream s);          /* whether the operation is captured instead of done */
CUresult capture_wait(CUstream s, CUevent event);
CUresult capture_look(CUstream s); /* asked when s's progress is queried */
CUresult capture_look_context(CUcontext ctx);
void capture_forget_stream(CUstream s);

void record_unref(struct record *r);
bool record_done(const struct op *op); /* for OP_WAIT: whether its record is complete */
void launch_run(struct launch *l, CUcontext ctx);
void sticky(CUcontext ctx, CUresult error);
bool error_is_fatal(CUresult error);
extern _Thread_local CUcontext running_context; /* set on a stream's thread while it runs an operation */

#endif
