/* libbatchd: ready batches of training data from the batchd daemon, without copies.
 *
 * A loader belongs to one thread at a time. Functions return 0 or a negative BATCHD_E_ code; batchd_error() then has one line of text that names
 * what is wrong. Nothing here prints, exits or leaves a signal handler changed, except as batchd_options.writable says.
 * ABI: functions are only added; structs that the caller allocates begin with their size. */
#ifndef BATCHD_H
#define BATCHD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BATCHD_VERSION "0.1.0"

enum batchd_code {
	BATCHD_OK = 0,
	BATCHD_END = 1,            /* positive: the epoch has no more batches */
	BATCHD_AGAIN = 2,          /* positive: nothing ready (batchd_try_next), or the timeout passed */
	BATCHD_E_PROTOCOL = -1,
	BATCHD_E_VERSION = -2,
	BATCHD_E_INVALID = -3,     /* an option makes no sense */
	BATCHD_E_MISMATCH = -4,    /* the job exists with other options */
	BATCHD_E_NOT_FOUND = -5,
	BATCHD_E_ACCESS = -6,
	BATCHD_E_LIMIT = -7,
	BATCHD_E_BAD_DATA = -8,    /* too many samples could not be decoded */
	BATCHD_E_FENCED = -9,      /* a newer process took this job's rank */
	BATCHD_E_BEHIND = -10,
	BATCHD_E_SHUTDOWN = -11,   /* the daemon is stopping */
	BATCHD_E_INTERNAL = -12,
	BATCHD_E_CONNECT = -13,    /* no daemon, and none could be started */
	BATCHD_E_LOST = -14,       /* the daemon went away; batches still held stay readable. batchd_open again, and batchd_start
	                            * where you were, gives the same batches */
	BATCHD_E_NOMEM = -15,
	BATCHD_E_FORKED = -16,     /* used in a child of the process that opened it */
	BATCHD_E_CANCELLED = -17   /* on_progress said so */
};

enum batchd_dtype { BATCHD_UINT8, BATCHD_FLOAT16, BATCHD_FLOAT32, BATCHD_INT32, BATCHD_INT64, BATCHD_FLOAT64, BATCHD_INT16, BATCHD_BOOL };
enum batchd_layout { BATCHD_NCHW, BATCHD_NHWC, BATCHD_AS_STORED };
enum batchd_mode { BATCHD_SHARD, BATCHD_SHARE };

/* Fill in with batchd_options_init, then change what you need. Strings are borrowed for the call. */
struct batchd_options {
	size_t size_bytes;
	const char *socket;        /* NULL: $BATCHD_SOCKET, the user's own daemon, the system's daemon, or start one for this user */
	const char *dataset;       /* a name from the daemon's configuration, or "imagefolder:DIR", "files:LIST", "npy:FILE[,FILE]", "random:..." */
	const char *transform;     /* "train224", "val224" or JSON; NULL: train224 for images, nothing for arrays */
	const char *job;           /* trainers with the same job share one loader; NULL: one that fits this process (and torchrun) */
	enum batchd_dtype dtype;
	enum batchd_layout layout;
	enum batchd_mode mode;
	uint32_t batch_size;       /* rows, 1 to the daemon's limit */
	int32_t rank;              /* -1: the daemon picks (share), 0 (shard) */
	uint32_t world_size;
	uint32_t num_workers;      /* 0: the daemon decides */
	uint32_t n_slots;          /* batches ahead, this trainer's own included; 0: the daemon decides */
	uint64_t seed;
	uint64_t incarnation;      /* of the job; a higher one ends every session of a lower one */
	int shuffle, drop_last;    /* booleans */
	int apply_exif;            /* turn images upright */
	int own_batches;           /* the trainer sends its index batches with batchd_push */
	int writable;              /* 0: a batch is private to this process and becomes writable when first written to (needs SIGSEGV; an existing
	                            * handler is called for everything else). 1: writable from the start, also for system calls,
	                            * at the price of fresh page tables for every batch. Either way nobody else sees the writes. */
	int autostart;             /* start a daemon for this user if none answers (default 1) */
	/* Called during batchd_open while the daemon does something long, when a signal handler has run, and otherwise about once a second. phase "index",
	 * "memory", or "" as long as nothing is known; total 0 when unknown. Non-zero gives up: BATCHD_E_CANCELLED. May be NULL. */
	int (*on_progress)(void *arg, const char *phase, uint64_t done, uint64_t total);
	void *progress_arg;
	const char *program;       /* for the log and `batchctl status`; NULL: this program's name */
};
void batchd_options_init(struct batchd_options *o);

struct batchd_loader;

/* What the loader serves. Arrays and strings live as long as the loader. */
struct batchd_info {
	size_t size_bytes;
	uint64_t dataset_id, loader_id;
	uint64_t n_samples;
	uint64_t n_batches;        /* of a whole epoch, for this rank; 0 with own_batches */
	uint64_t n_samples_rank;   /* rows of a whole epoch for this rank, padding included */
	uint32_t n_classes;        /* 0: labels are not classes */
	uint32_t rank, world_size, batch_size, window;
	uint32_t n_dims, shape[8]; /* of one sample */
	uint32_t n_label_dims, label_shape[8];
	enum batchd_dtype dtype, label_dtype;
	enum batchd_layout layout;
	uint32_t has_normalize;    /* dtype uint8: mean and std are left to the trainer */
	float mean[3], std[3];
	const char *socket, *job, *daemon_version;
};

/* One batch on loan. Memory is valid until batchd_release of it, in this process only. */
struct batchd_batch {
	size_t size_bytes;
	void *data;                /* n_rows samples, contiguous */
	void *labels;              /* n_rows labels */
	const int64_t *indices;    /* n_rows sample indices */
	uint32_t n_rows, n_padding, n_replaced;
	uint32_t slot;
	uint64_t generation;
	uint64_t epoch, base, step;
	uint64_t wait_ns;          /* how long batchd_next was blocked for it */
	int last;                  /* of its epoch */
};

/* Connects (starting a daemon if allowed), opens the data set, maps the slots. err: at least err_size bytes for one line of text; may be NULL. */
int batchd_open(const struct batchd_options *o, struct batchd_loader **out, char *err, size_t err_size);
/* Batches on loan become invalid only when each is released; the memory stays mapped until then. NULL is allowed. */
void batchd_close(struct batchd_loader *l);
const char *batchd_error(const struct batchd_loader *l);
const char *batchd_code_name(int code);
void batchd_get_info(const struct batchd_loader *l, struct batchd_info *info); /* info->size_bytes must be set */

/* Name of class i; fetched from the daemon on first use. NULL on error or out of range. */
const char *batchd_class(struct batchd_loader *l, uint32_t i);

/* Begins an epoch at batch `step`, counted after `base` samples that all ranks together have already consumed. n_batches: how many will
 * come (0 with own_batches); may be NULL. Batches of an earlier start that are still on their way are dropped. */
int batchd_start(struct batchd_loader *l, uint64_t epoch, uint64_t base, uint64_t step, uint64_t *n_batches);

/* own_batches: the next batch's sample indices; n at most batch_size. Send a few ahead (info.window and more); BATCHD_AGAIN: enough for now,
 * take a batch first. batchd_push_end: no more are coming in this epoch. */
int batchd_push(struct batchd_loader *l, const uint64_t *indices, uint32_t n);
int batchd_push_end(struct batchd_loader *l);

/* The next batch. BATCHD_OK, BATCHD_END, BATCHD_AGAIN (timeout_ms passed), or an error. BATCHD_FOREVER: no limit. BATCHD_UNTIL_SIGNAL: no limit, but
 * BATCHD_AGAIN when a signal handler has run, and at the latest about once a second; for interpreters, which look at signals then. */
#define BATCHD_FOREVER (-1)
#define BATCHD_UNTIL_SIGNAL (-2)
int batchd_next(struct batchd_loader *l, struct batchd_batch *b, int timeout_ms);
int batchd_try_next(struct batchd_loader *l, struct batchd_batch *b);

/* Ends a loan. Thread-safe, also while another thread is in batchd_next; in a forked child it does nothing. */
int batchd_release(struct batchd_loader *l, uint32_t slot, uint64_t generation);
/* Batches on loan to this process. When it reaches info.window - 1, copy instead of keeping, or batchd_next cannot go on. */
uint32_t batchd_n_leased(const struct batchd_loader *l);

/* For event loops: readable when batchd_try_next is worth a call. Wait for it only after batchd_try_next has said BATCHD_AGAIN, which is how the
 * daemon learns that somebody waits. */
int batchd_fd(const struct batchd_loader *l);

/* The daemon's state as JSON; free() it. Needs no loader. */
int batchd_status(const char *socket, char **json, char *err, size_t err_size);

#ifdef __cplusplus
}
#endif

#endif
