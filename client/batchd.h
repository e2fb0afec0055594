/* libbatchd: ready batches of training data from the batchd daemon, without copies.
 *
 * Several threads may call a loader's functions. The calls about the stream of batches (start, next, join, push,
 * resume, class) take turns, and batchd_next keeps its turn while it waits. Calls about a batch on loan (release,
 * arrays, token with a batch, cuda_...), batchd_n_leased, batchd_get_info and batchd_close never wait for a turn.
 *
 * Functions return 0 or a negative BATCHD_E_ code. After an error batchd_error() has one line of text that names what
 * is wrong, in the thread that took a batch last. The library does not print, does not exit and leaves no signal
 * handler changed, except as batchd_options.writable says.
 *
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
	BATCHD_END = 1,   /* positive: the epoch has no more batches */
	BATCHD_AGAIN = 2, /* positive: nothing ready (batchd_try_next), or the timeout passed */
	BATCHD_E_PROTOCOL = -1,
	BATCHD_E_VERSION = -2,
	BATCHD_E_INVALID = -3,  /* an option makes no sense */
	BATCHD_E_MISMATCH = -4, /* the job exists with other options */
	BATCHD_E_NOT_FOUND = -5,
	BATCHD_E_ACCESS = -6,
	BATCHD_E_LIMIT = -7,
	BATCHD_E_BAD_DATA = -8, /* too many samples could not be decoded */
	BATCHD_E_FENCED = -9,   /* a newer process took this job's rank */
	BATCHD_E_BEHIND = -10,
	BATCHD_E_SHUTDOWN = -11, /* the daemon is stopping */
	BATCHD_E_INTERNAL = -12,
	BATCHD_E_CONNECT = -13, /* no daemon, and none could be started */
	BATCHD_E_LOST = -14,    /* the daemon went away and did not come back within reconnect_ms; batches still held
	                         * stay readable. A new batchd_open, and batchd_start at the same position, gives the
	                         * same batches */
	BATCHD_E_NOMEM = -15,
	BATCHD_E_FORKED = -16,    /* used in a child of the process that opened it */
	BATCHD_E_CANCELLED = -17, /* on_progress asked for it */
	BATCHD_E_STALLED = -19,   /* another trainer of the job is stalled (option stall_error); the loader continues at
	                           * the next call */
	BATCHD_E_GPU = -18,       /* there is no such GPU, or it failed: the daemon's use of it or this process's
	                            * own; the text says which */
	BATCHD_E_PRODUCER = -20,  /* the producer of a served data set failed, has ended or never came; batchd_error has
	                           * its last message */
	BATCHD_E_CLOSED = -21     /* another thread has closed the loader, which may be freed by now: without a
	                           * reference (batchd_ref) not even batchd_error may be called */
};

enum batchd_dtype {
	BATCHD_UINT8,
	BATCHD_FLOAT16,
	BATCHD_FLOAT32,
	BATCHD_INT32,
	BATCHD_INT64,
	BATCHD_FLOAT64,
	BATCHD_INT16,
	BATCHD_BOOL,
	BATCHD_BFLOAT16, /* on a GPU, and in producers' batches */
	/* in arrays, in producers' batches, and UINT16 of images: */
	BATCHD_INT8,
	BATCHD_UINT16,
	BATCHD_UINT32,
	BATCHD_UINT64,
	BATCHD_COMPLEX64,
	BATCHD_COMPLEX128,
	/* only in producers' batches: */
	BATCHD_FLOAT8_E4M3,
	BATCHD_FLOAT8_E5M2
};
enum batchd_layout { BATCHD_NCHW, BATCHD_NHWC, BATCHD_AS_STORED };
enum batchd_mode { BATCHD_SHARD, BATCHD_SHARE };
/* What happens when a trainer of a share group is so far behind that no slot is left for the others. BATCHD_WAIT: the
 * others wait for it. BATCHD_SKIP: it misses the oldest batches (batch.n_skipped). BATCHD_DETACH: it continues where it
 * was, with batches made for it alone (batch.apart), until it has caught up. */
enum batchd_policy {
	BATCHD_POLICY_DEFAULT, /* world_size 1: detach, else wait */
	BATCHD_WAIT,
	BATCHD_SKIP,
	BATCHD_DETACH
};
/* Where a trainer begins when it joins a share group (share, world_size 1) that is already at work. */
enum batchd_join {
	BATCHD_JOIN_NEXT,  /* the group's next batch */
	BATCHD_JOIN_EPOCH, /* the next epoch's first */
	BATCHD_JOIN_START  /* this epoch's first */
};
/* How batches reach a GPU. IPC: in memory of the daemon that this process maps by CUDA IPC, which works for the
 * daemon's own user in the same namespaces. COPY: this library copies them. VMM_FD: in memory of the daemon that
 * arrives as a descriptor and is mapped by CUDA's virtual memory management, for other users and containers. */
enum batchd_device_path { BATCHD_DEVICE_NONE, BATCHD_DEVICE_IPC, BATCHD_DEVICE_COPY, BATCHD_DEVICE_VMM_FD };

/* What options.on_event reports. The text is one line for a person. */
enum batchd_event {
	BATCHD_EVENT_LOST = 1,    /* the daemon went away; the library waits for it */
	BATCHD_EVENT_BACK = 2,    /* a daemon is back, and the loader continues exactly where it was. Memory and window
	                           * in batchd_info may have changed */
	BATCHD_EVENT_STALLED = 3, /* a trainer of this job is stalled: which, since when, how many batches it holds */
	BATCHD_EVENT_GOES_ON = 4, /* that trainer continues */
	BATCHD_EVENT_CHANGED = 5, /* batchd_resume: the state was saved with another transform */
	BATCHD_EVENT_OWN = 6      /* batchd_open: a daemon of this user's own is used, as the user may not use the
	                           * system's; the text says why, and what would give access. 7 was
	                           * used by earlier versions */
};

/* Added to the window in batchd_options.shuffle. */
#define BATCHD_SHUFFLE_RESAMPLED (1 << 30)

/* Fill in with batchd_options_init, then change what you need. Strings are borrowed for the call. */
struct batchd_options {
	size_t size_bytes;
	const char *socket; /* NULL: $BATCHD_SOCKET, the user's own daemon, the system's daemon, or start one
	                            * for this user */
	const char
		*dataset; /* a name from the daemon's configuration, or "imagefolder:DIR", "files:LIST", "tar:SHARDS",
	                            * "mds:SHARDS", "zip:FILE", "arrow:FILES", "blend:[WEIGHT*]DATASET;;[WEIGHT*]DATASET...",
	                            * "npy:FILE[,FILE]", "npz:FILE[#NAME=ARRAY,...]", "idx:IMAGES[,LABELS]",
	                            * "cifar:FILE,...", "tokens:FILE[,FILE...],length=T", "memory:NAME=FD,...", "random:...",
	                            * "serve:NAME" */
	const char
		*transform; /* "train224", "val224" or JSON; NULL: train224 for images, nothing for arrays, whose rows
	                            * a transform takes for images. JSON is a list of ops, or an object of several
	                            * views of each image, {"NAME": transform, ...}, each a field of that name.
	                            * {"NAME": {"views": [transform, ...], "n": k}} is a list of views, repeated k
	                            * times: fields NAME, NAME.1, NAME.2 ... A name that is empty or begins with a dot
	                            * is put after that of the data set's first field. At most 64 views */
	const char *job;    /* trainers with the same job share one loader; NULL: a name that fits this process
	                            * (and torchrun) */
	/* Of images: UINT8, FLOAT16, FLOAT32. Where the transform begins with ["Convert", mode], one number for each pixel
	 * is read: UINT16 for mode "I;16", INT32 for "I", FLOAT32 for "F", or floats after ["ToDtype", "float32", true] */
	enum batchd_dtype dtype;
	enum batchd_layout layout;
	enum batchd_mode mode;
	uint32_t batch_size; /* rows, 1 to the daemon's limit */
	int32_t rank;        /* -1: the daemon picks (share), 0 (shard) */
	uint32_t world_size;
	uint32_t num_workers; /* 0: the daemon decides */
	uint32_t n_slots;     /* batches ahead, this trainer's own included; 0: the daemon decides */
	uint64_t seed;
	uint64_t incarnation; /* of the job; a higher one ends every session of a lower one */
	int shuffle;          /* 0, 1, or from 2 on the size of a window: shards come in a random order, and samples at
	                            * random from a window of so many that moves over them. BATCHD_SHUFFLE_RESAMPLED
	                            * and a window: shards are drawn with replacement */
	int drop_last;        /* boolean */
	int apply_exif; /* 1: turn images upright; -1: never; 0: those of arrow: alone, as HuggingFace's package does */
	int own_batches; /* the trainer sends its index batches with batchd_push. A sample that they name more
	                         * than once is augmented differently each time, on every rank */
	int writable;    /* 0: a batch is private to this process and becomes writable at the first write (needs
	                         * SIGSEGV; a previously installed handler is called for every other fault). 1: writable
	                         * from the start, also for system calls, at the price of fresh page tables for every
	                         * batch. In both cases no other process sees the writes. */
	int autostart;   /* start a daemon for this user if none answers (default 1) */
	/* Called during batchd_open while the daemon does long work: when a signal handler has run, and otherwise about
	 * once a second. phase: "index", "memory", "gpu" (the daemon allocates memory on the GPU, for which it may have
	 * to start the driver), "daemon" or "producer" (not there yet; seconds), or "" while nothing is known. total is
	 * 0 when unknown. A non-zero result gives up: BATCHD_E_CANCELLED. May be NULL. */
	int (*on_progress)(void *arg, const char *phase, uint64_t done, uint64_t total);
	void *progress_arg;
	const char *program; /* for the log and `batchctl status`; NULL: this program's name */
	/* Where batches are delivered: NULL or "cpu"; "cuda" (the calling thread's current device, else the first),
	 * "cuda:N" as CUDA counts in this process, or "GPU-..." (a UUID). With a GPU, dtype and layout say what
	 * batchd_cuda_finish makes of images. See "Batches on a GPU" below. */
	const char *device;
	/* How long the loader waits for a daemon that went away (default 30000; 0: not at all). Meanwhile batchd_next
	 * waits as it does for a batch, and afterwards delivers the batch that was due; batches on loan stay as they
	 * are. For the first sixth of the time the library tries the same socket, then the rule of `socket` above,
	 * autostart included. The new daemon must have the same data. A daemon that returns but goes away again before
	 * it delivers a batch counts as away all the time. */
	uint32_t reconnect_ms;
	/* Called from within the loader's functions, in their thread. May be NULL. */
	void (*on_event)(void *arg, int event, const char *text);
	void *event_arg;
	/* Share: rows of the loader's batch, the same for all of the group; 0: batch_size. Each trainer takes it in
	 * slices of its own batch_size, which has to divide it, without a copy: the slices are exactly the batches that
	 * the trainer would get alone with that size. Each slice is released separately. drop_last is each trainer's
	 * own, too. */
	uint32_t group_batch_size;
	enum batchd_policy policy;    /* share: the same for all of the group */
	int stall_error;              /* 1: a call that learns of a stalled trainer returns BATCHD_E_STALLED, too */
	uint32_t producer_timeout_ms; /* "serve:NAME": how long to wait for its producer; 0: a minute; for others 0 */
	/* A producer serves its own machine. For a served data set the trainer is node_rank of node_world_size, the
	 * job's trainers on this machine, instead of rank of world_size. 0: world_size. */
	uint32_t node_rank, node_world_size;
	/* Names of the fields that batches should have, in any order, none twice; NULL: all that the data set has. What
	 * is left out costs nothing: without an image field nothing is decoded. The same for all of a job. Not for
	 * served data sets, whose batches are their producer's. */
	const char *const *fields;
	uint32_t n_fields;
	/* Repeated augmentation: each sample comes `repeats` times in an epoch (0: once), one after the other in its
	 * order, so that ranks side by side have the same sample, each time augmented differently. An epoch ends after
	 * epoch_rows rows of all ranks together (0, or more than there are: all); with the number of samples, rounded
	 * down to a multiple of 256, these are the epochs of torchvision's RASampler. Not with own_batches. */
	uint32_t repeats;
	uint64_t epoch_rows;
	/* How rows of a batch are mixed; see "Mixing" below. NULL: not at all. It is this trainer's own: other trainers
	 * of the job may mix otherwise or not. Images with a dtype of floats then arrive as uint8 NHWC (stored_dtype,
	 * stored_layout), and batchd_finish or batchd_cuda_finish makes dtype and layout of them; as floats where
	 * other trainers of the job want these, or where an op after ToTensor writes numbers. With dtype uint8
	 * nothing is mixed here: batchd_mix_table has the table for code of the trainer's own. */
	const char *mix;
};
void batchd_options_init(struct batchd_options *o);

struct batchd_loader;

/* A field: a named part of every sample. */
struct batchd_field {
	const char *name;
	enum batchd_dtype dtype;
	int ragged;                /* 0: n_rows rows of `shape`; 1: each row is a list of values of `shape` */
	int text;                  /* ragged BATCHD_UINT8: UTF-8 */
	uint32_t n_dims, shape[8]; /* of a row; ragged: of one value */
	uint64_t most_values;      /* ragged: of all rows of a batch together */
	uint32_t view;             /* 1, 2, ...: which of the image's views this is; 0: the pipeline does not make it */
	uint32_t has_normalize;    /* views: mean and std are left to the trainer, or to batchd_cuda_finish_field */
	float mean[3], std[3];
	int bytes; /* ragged BATCHD_UINT8: bytes, such as a file; 0 beside text 0: a list of numbers */
};

/* What the loader serves. Arrays and strings live as long as the loader. */
struct batchd_info {
	size_t size_bytes;
	uint64_t dataset_id, loader_id;
	uint64_t n_samples;
	uint64_t n_batches;      /* of a whole epoch, for this rank; 0 with own_batches */
	uint64_t n_samples_rank; /* rows of a whole epoch for this rank, padding included */
	uint32_t n_classes;      /* 0: labels are not classes */
	uint32_t rank, world_size, batch_size, window;
	uint32_t n_dims, shape[8]; /* of a row of the first field that is not ragged, which is `data` of a batch */
	uint32_t n_label_dims, label_shape[8]; /* of the field "label", if there is one that is not ragged */
	enum batchd_dtype dtype, label_dtype;
	enum batchd_layout layout;
	uint32_t has_normalize; /* dtype uint8: mean and std are left to the trainer; of the first view */
	float mean[3], std[3];
	const char *socket, *job, *daemon_version;
	/* What is in a batch's memory, data and device_data alike. The same as dtype, layout and shape above, except
	 * for images on a GPU or with option mix: these are uint8 NHWC until batchd_cuda_finish or batchd_finish has
	 * made dtype, layout and shape of them. They are floats where an op after ToTensor writes numbers that no pixel
	 * has. */
	enum batchd_dtype stored_dtype;
	enum batchd_layout stored_layout;
	uint32_t stored_shape[8];
	enum batchd_device_path device_path;
	int device_ordinal; /* CUDA's number of the GPU in this process */
	unsigned char device_uuid[16];
	const char *device;        /* "cuda:0"; "cpu" */
	const char *device_reason; /* BATCHD_DEVICE_COPY: why the daemon's memory is not mapped, for a person; else
	                            * "" */
	unsigned char device_handle[64]; /* BATCHD_DEVICE_IPC: of the daemon's memory, as cudaIpcOpenMemHandle takes it;
	                                  * the library has already opened it */
	int can_finish;                  /* 0: batchd_cuda_finish would be needed, and this library was built without a
	                                  * CUDA compiler, or its kernel does not run here */
	uint32_t group_batch_size;       /* share: rows of the loader's batch, of which batch_size is a part */
	enum batchd_policy policy;       /* share: the one in force */
	uint32_t served; /* a producer makes the batches: see batchd_arrays. Then n_batches is 0 if it is not known,
	                             * batch_size is the rows of a usual batch, shape means nothing, and every batchd_start has
	                             * base 0 */
	const char *finish_reason; /* can_finish 0: why the driver does not take the kernel, for a person; "" where the
	                            * library was built without one */
	uint32_t n_fields;         /* served: 0, as each batch says what it has (batchd_get_field) */
	const struct batchd_field *fields; /* what batches consist of, in the data set's order: see batchd_get_field */
	uint64_t content_id; /* of the samples: names, labels and classes, or shape and type, not their location. Equal
	                      * on machines with the same data */
	int needs_finish;    /* on the CPU: batchd_finish makes dtype, layout and shape of a batch's data */
	uint32_t n_mix_classes; /* option mix: columns of the soft targets; 0: there are none */
	uint64_t n_left_out;    /* samples that are none, as they lack a field or have it in another form */
	const char *left_out;   /* how many of how many, the first, and what is wrong with it; "": none is left out */
};

/* One batch on loan. Its memory is valid until its batchd_release, in this process only. */
struct batchd_batch {
	size_t size_bytes;
	void *data;             /* n_rows rows of the first field that is not ragged, contiguous */
	void *labels;           /* n_rows rows of the field "label"; NULL: there is none */
	const int64_t *indices; /* n_rows sample indices */
	uint32_t n_rows, n_padding, n_replaced;
	uint32_t slot;
	uint64_t generation;
	uint64_t epoch, base, step;
	uint64_t wait_ns;    /* how long batchd_next was blocked for it */
	int last;            /* of its epoch */
	void *device_data;   /* on the GPU: n_rows samples as stored; NULL without a GPU. The CPU cannot read it, and
	                      * nothing may write to it */
	void *device_labels; /* n_rows labels there; NULL: there are none */
	uint64_t n_given;    /* batches given out so far, this one included, over all resumes */
	uint64_t order;      /* own_batches: hash of this epoch's index batches up to this one; else 0 */
	uint32_t row;        /* share: number of its first row in the group's batch */
	uint64_t n_skipped;  /* share, BATCHD_SKIP: batches that this trainer has missed since the one before */
	int apart;           /* share: made for this trainer alone, as most of the group is somewhere else */
	uint32_t n_leased;   /* batches on loan when it was given out, with it: batchd_n_leased at that moment */
};

/* Connects (starting a daemon if allowed), opens the data set, maps the slots. When a daemon goes away while it indexes
 * the data or waits for a producer, the call waits for it for reconnect_ms. When a socket is named (by option or
 * $BATCHD_SOCKET) and no daemon listens there, the call waits if the socket's directory exists, for the shorter of 3 s
 * and reconnect_ms. err: at least err_size bytes for one line of text; may be NULL. */
int batchd_open(const struct batchd_options *o, struct batchd_loader **out, char *err, size_t err_size);
/* Closes the loader. A batch on loan stays valid and mapped until it is released. NULL is allowed. Calls that other
 * threads are in return BATCHD_E_CLOSED (at once; with a GPU or while the daemon is away within about a second), and
 * the last of them frees the loader; batchd_close does not wait for them. Afterwards only releases of batches on loan
 * may begin, unless the thread has a reference. */
void batchd_close(struct batchd_loader *l);
/* A reference keeps the handle valid beyond batchd_close, so that calls of another thread may begin after it: they
 * return BATCHD_E_CLOSED (batchd_class NULL, batchd_n_leased 0). A reference keeps neither batches nor the session.
 * Meant for interpreters, whose threads may close at any time. Any thread; nothing in a forked child.
 * batchd_unref(NULL) is allowed. */
void batchd_ref(struct batchd_loader *l);
void batchd_unref(struct batchd_loader *l);
const char *batchd_error(const struct batchd_loader *l);
const char *batchd_code_name(int code);
void batchd_get_info(const struct batchd_loader *l, struct batchd_info *info); /* info->size_bytes must be set */

/* Name of class i; fetched from the daemon on first use. NULL on error or out of range. */
const char *batchd_class(struct batchd_loader *l, uint32_t i);

/* Begins an epoch at batch `step`, counted after `base` samples that all ranks together have already consumed.
 * n_batches: how many batches will come (0 with own_batches); may be NULL. Batches of an earlier start that are still
 * on their way are dropped. */
int batchd_start(struct batchd_loader *l, uint64_t epoch, uint64_t base, uint64_t step, uint64_t *n_batches);

/* Share mode, world_size 1: begins where the group is, as `how` says, instead of batchd_start, and reports that
 * position (position->size_bytes must be set). With NEXT and EPOCH the first batch belongs to the group's epoch; the
 * first trainer of a group begins with epoch 0. From that batch on all trainers get the same batches. A producer's
 * epoch may turn out to have no more batches: then the first batch is of the next epoch, as its `epoch` says. */
struct batchd_position;
int batchd_join(struct batchd_loader *l, enum batchd_join how, struct batchd_position *position, int timeout_ms);

/* ---- Checkpoints ----
 *
 * A token holds the position of a training run: one line of text without spaces at its ends, at most BATCHD_TOKEN_BYTES
 * with the NUL, the same on all ranks. Put it into the checkpoint together with the model; the daemon's record of what
 * a trainer has had does not matter. After any crash of trainer or daemon the run continues with the same samples, byte
 * for byte, also with another batch or world size (each of the remaining samples comes once):
 *
 *     batchd_token(l, NULL, text, sizeof text);                      after a batch was used: after it
 *     ...
 *     struct batchd_position p = { .size_bytes = sizeof p };
 *     batchd_resume(l, text, &p);                                    in a new process
 *     batchd_start(l, p.epoch, p.base, p.step, &n); */
enum { BATCHD_TOKEN_BYTES = 4096 };

struct batchd_position {
	size_t size_bytes;
	uint64_t epoch, base, step; /* for batchd_start. own_batches: push from batch `step` of the epoch on; base keeps
	                             * earlier augmentation from being repeated */
	uint64_t n_given;           /* batches given out so far */
	uint64_t order;             /* own_batches: hash of the `step` batches that are skipped, as in struct
	                             * batchd_batch */
	int ended;                  /* the token's epoch was over; this is the start of the next */
};

/* The position after batch b, or (NULL) after the last batch given out, or where batchd_start was told to begin.
 * Returns 0, or BATCHD_E_INVALID: size is too small. */
int batchd_token(const struct batchd_loader *l, const struct batchd_batch *b, char *buf, size_t size);
/* Checks a token against this loader and converts it. BATCHD_E_INVALID: the token is damaged, or from another data set,
 * seed or order; batchd_error() says which and, for a data set, what has changed ("12 files more than before (108
 * instead of 96): 12 new, the first dog/9.jpg"). The loader can still be used as before. */
int batchd_resume(struct batchd_loader *l, const char *token, struct batchd_position *position);
/* Adds one batch of indices to the hash of those before it (0 at an epoch's start), to compare a sampler's output with
 * position.order. */
uint64_t batchd_order(uint64_t order, const uint64_t *indices, uint32_t n);

/* own_batches: the next batch's sample indices; n at most batch_size. Send a few batches ahead (info.window and more);
 * BATCHD_AGAIN: enough for now, take a batch first. batchd_push_end: this epoch has no more batches. */
int batchd_push(struct batchd_loader *l, const uint64_t *indices, uint32_t n);
int batchd_push_end(struct batchd_loader *l);
/* own_batches: the trainer begins (1) or ends (0) to choose indices, for the daemon's statistics: the time in between
 * counts as waiting for the order. Costs no system call. */
void batchd_sampling(struct batchd_loader *l, int begins);

/* The next batch. Returns BATCHD_OK, BATCHD_END, BATCHD_AGAIN (timeout_ms passed), or an error. BATCHD_FOREVER: no
 * limit. BATCHD_UNTIL_SIGNAL: no limit, but BATCHD_AGAIN when a signal handler has run, and at the latest about once a
 * second; interpreters look at signals then. */
#define BATCHD_FOREVER (-1)
#define BATCHD_UNTIL_SIGNAL (-2)
int batchd_next(struct batchd_loader *l, struct batchd_batch *b, int timeout_ms);
int batchd_try_next(struct batchd_loader *l, struct batchd_batch *b);

/* Ends a loan. Thread-safe, also while another thread is in batchd_next; in a forked child it does nothing. When the
 * daemon has gone, which ends all loans, this returns no error: batchd_next reports it, or waits for the next
 * daemon. */
int batchd_release(struct batchd_loader *l, uint32_t slot, uint64_t generation);
/* Number of batches on loan to this process, without those that only wait for the GPU's work to end. When it reaches
 * info.window - 1, copy instead of keeping, or batchd_next cannot continue. */
uint32_t batchd_n_leased(const struct batchd_loader *l);

/* For event loops: readable when a call of batchd_try_next is worthwhile. Poll it only after batchd_try_next has
 * returned BATCHD_AGAIN, which is how the daemon learns that this trainer waits. With batches on a GPU call
 * batchd_try_next also every few milliseconds: slots go back during such calls. Ask for the descriptor each time. It is
 * -1 while the daemon is away: call batchd_try_next a few times a second then, which may take as long as a daemon needs
 * to open the data set. Afterwards it is a different descriptor. */
int batchd_fd(const struct batchd_loader *l);

/* ---- Batches on a GPU ----
 *
 * With option device, every batch also lies in the GPU's memory when batchd_next lends it. A stream is a CUstream or
 * cudaStream_t of that GPU's primary context (NULL: the legacy default stream; CU_STREAM_PER_THREAD: the calling
 * thread's own) that lives until the batch has been given back. If it does not, the next call that asks the driver about
 * it fails, or the driver ends the process there (SIGSEGV; 580 does). These functions queue work on the stream and do
 * not wait for the GPU, unless the driver can say of no event that the work is over.
 *
 *     batchd_next(l, &b, BATCHD_FOREVER);
 *
 *     // one kernel: NHWC uint8 -> dtype and layout, Normalize included
 *     batchd_cuda_finish(l, &b, my_tensor, stream);
 *     batchd_cuda_labels(l, &b, my_labels, stream);
 *
 *     // the slot goes back when the stream has completed the work above
 *     batchd_cuda_release(l, b.slot, b.generation, stream);
 *
 * The slot goes back during a later call (next, try_next, release, close) that finds the stream's work complete; a
 * batchd_next that has to wait checks as well. During the capture of a CUDA graph these functions return
 * BATCHD_E_INVALID: finish into the graph's input before each replay. batchd_release, without a stream, gives the slot
 * back at once: call it when you have seen the work complete.
 *
 * When the daemon is gone (BATCHD_E_LOST, or an event of that name), do not read device_data of its batches any more;
 * finished tensors stay valid. A closed loader keeps its batches until each is released and its stream's work is
 * complete. After BATCHD_E_GPU this process can no longer use the GPU if the text says so.
 *
 * When a daemon stops or loses the GPU, the library waits for the next one as after any other loss (reconnect_ms);
 * on_event has the reason. A daemon that stops waits some seconds until its memory on the GPU is no longer open here.
 * The library closes that memory during calls, as soon as no batch of it is on loan or in work. */

/* Queues the work that writes n_rows samples of info.dtype, layout and shape to `to`, memory of the loader's GPU,
 * aligned for its numbers. Arrays are copied unchanged. */
int batchd_cuda_finish(struct batchd_loader *l, const struct batchd_batch *b, void *to, void *stream);
/* The same for the field of this number in info.fields. Of a view with info.dtype and layout, of another dense field
 * unchanged. */
int batchd_cuda_finish_field(struct batchd_loader *l, const struct batchd_batch *b, uint32_t number, void *to,
			     void *stream);
/* Queues a copy of the n_rows labels to `to` on the GPU. */
int batchd_cuda_labels(struct batchd_loader *l, const struct batchd_batch *b, void *to, void *stream);
/* For kernels of your own on device_data and device_labels: work queued on stream after this call finds the bytes there
 * (with BATCHD_DEVICE_COPY the copy may still be under way), and the batch counts as used by that stream. */
int batchd_cuda_wait(struct batchd_loader *l, uint32_t slot, uint64_t generation, void *stream);
/* Ends a loan as soon as all work queued so far on this stream, and on the streams of the calls above, is complete.
 * Thread-safe as batchd_release; batchd_error has the reason of a failure in the thread that takes the batches. */
int batchd_cuda_release(struct batchd_loader *l, uint32_t slot, uint64_t generation, void *stream);
/* The stored batch as a DLPack tensor without a copy: *managed is a DLManagedTensor (versioned: a
 * DLManagedTensorVersioned) for another library, readable on stream, read only. The tensor owns the loan from then on.
 * Its deleter, which may be called in any thread and never blocks, ends the loan when the work queued on its streams by
 * then is complete (seen during a later call).
 *
 * DLPack wants data at a multiple of 256 bytes. A whole batch is aligned so; a slice of a share group's batch (b->row >
 * 0) lies where its rows lie, and byte_offset stays 0, as some consumers ignore it. torch takes such a tensor; for a
 * library that does not, batchd_cuda_finish copies the slice to an address of your choice. */
int batchd_cuda_dlpack(struct batchd_loader *l, const struct batchd_batch *b, int versioned, void *stream,
		       void **managed);
/* Another stream reads the batch, or the tensor made of it: the library waits for its work as well. At most 8 streams
 * for one batch, none of which captures a CUDA graph. Thread-safe. */
int batchd_cuda_add_stream(struct batchd_loader *l, uint32_t slot, uint64_t generation, void *stream);

/* ---- Mixing ----
 *
 * Option mix makes each row of a batch from two of its rows while numbers are made of the pixels, as MixUp and CutMix
 * do. It is a list of steps, separated by semicolons; each batch is mixed by one of them:
 *
 *     mixup:alpha=0.2                  torchvision's v2.MixUp; the partner of a row is the row before it
 *     cutmix:alpha=1                   torchvision's v2.CutMix
 *     timm:mixup_alpha=0.8,mode=elem   timm's Mixup; the partner of row i is row n_rows - 1 - i. Settings, with timm's
 *                                      defaults: mixup_alpha, cutmix_alpha, cutmix_min, cutmix_max, prob, switch_prob,
 *                                      mode (batch, pair, elem), correct_lam (0, 1). n_rows has to be even
 *     none                             the row itself
 *     targets:classes=1000,smoothing=0.1,off_epoch=270     no step: soft targets have 1000 columns, label smoothing as
 *                                      timm has it, and from epoch 270 on nothing is mixed
 *
 * Each step may have p, its weight in the choice (default 1). What is drawn depends on the seed, the epoch and the
 * batch's place in the epoch (base, step, rank and sizes) only, so it is the same again after a resume.
 *
 * Every view of an image is mixed: all views of a row have one partner, one weight and one box. Views of different sizes
 * go with blends only: a step that can cut a box is refused for them. batchd_finish makes the first view,
 * batchd_finish_field each one.
 *
 *     o.mix = "targets:classes=1000;mixup:alpha=0.2;cutmix:alpha=1";
 *     ...
 *     batchd_next(l, &b, BATCHD_FOREVER);
 *     batchd_finish(l, &b, images);         float [n_rows, 3, 224, 224]
 *     batchd_targets(l, &b, targets);       float [n_rows, 1000]
 *     batchd_release(l, b.slot, b.generation);
 *
 * Numbers are torch's on the finished float32 rows, bit for bit: own * weight + partner * partner_weight, each operation
 * rounded. float16 and bfloat16 are these, rounded once. */
enum batchd_mix_kind {
	BATCHD_MIX_NONE,  /* the row as it is */
	BATCHD_MIX_BLEND, /* own * weight + partner * partner_weight */
	BATCHD_MIX_BOX    /* the partner's pixels inside the box, the row's own outside */
};

/* How one row is made. */
struct batchd_mix_row {
	uint32_t partner; /* number of a row of the same batch */
	uint32_t kind;    /* enum batchd_mix_kind */
	/* Of the two labels and, in a blend, of the pixels; float32 of lambda and of 1 - lambda. */
	float weight, partner_weight;
	uint32_t top, bottom, left, right; /* BATCHD_MIX_BOX: rows top to bottom - 1, columns left to right - 1 */
};

/* Whether rows are mixed (1, as at opening) or not (0): of all batches that are finished from now on, until the next call.
 * Targets stay soft, as after off_epoch. BATCHD_E_INVALID: the loader was opened without option mix. */
int batchd_mixing(struct batchd_loader *l, int on);
/* The table of a batch: n_rows records to `rows`. */
int batchd_mix_table(struct batchd_loader *l, const struct batchd_batch *b, struct batchd_mix_row *rows);
/* Writes n_rows images of info.dtype, layout and shape to `to`, mixed; host memory, aligned for its numbers. For a batch
 * on loan with info.needs_finish; BATCHD_E_INVALID for others. */
int batchd_finish(struct batchd_loader *l, const struct batchd_batch *b, void *to);
/* The same for the view of this number in info.fields, in its own shape. All views of a row are mixed with the same
 * partner, weights and box. */
int batchd_finish_field(struct batchd_loader *l, const struct batchd_batch *b, uint32_t number, void *to);
/* Writes soft targets to `to`, float[n_rows][info.n_mix_classes]. BATCHD_E_BAD_DATA: a label is none of the classes. */
int batchd_targets(struct batchd_loader *l, const struct batchd_batch *b, float *to);
/* The same on the GPU: queues the work on the stream, as batchd_cuda_labels does. batchd_cuda_finish mixes by itself. */
int batchd_cuda_targets(struct batchd_loader *l, const struct batchd_batch *b, void *to, void *stream);

/* ---- fields of a batch ---- */

/* One array of a batch: contiguous, the last dimension fastest. shape[0] counts rows. Of a ragged field, it counts the
 * values of all rows: `offsets` has n_rows + 1 numbers, and row i consists of values offsets[i] - offsets[0] to
 * offsets[i + 1] - offsets[0] - 1. */
struct batchd_array {
	enum batchd_dtype dtype;
	uint32_t n_dims; /* at most 9: a field has up to 8, and rows */
	uint64_t shape[9];
	uint64_t n_bytes;
	void *data;
	const int64_t *offsets; /* ragged; else NULL */
	int text;               /* ragged BATCHD_UINT8: UTF-8 */
	void *device_data; /* on the GPU; NULL: only in host memory, as ragged fields are, but for a producer's. The
	                    * CPU cannot read it */
	uint64_t n_rows;   /* shape[0], or how many rows a ragged field has */
};

/* A field of a batch on loan, by its name or by its number in info.fields. Of a producer's batch: one of the arrays of
 * batchd_arrays, by its key in the batch's dictionary or by number. Valid as long as the batch. 0; BATCHD_E_INVALID: the
 * batch has no such field, or it is not on loan. */
int batchd_get_field(struct batchd_loader *l, const struct batchd_batch *b, const char *name, struct batchd_array *out);
int batchd_get_field_at(struct batchd_loader *l, const struct batchd_batch *b, uint32_t number,
			struct batchd_array *out);

/* An array of a batch on loan in host memory, as batchd_get_field or batchd_arrays gave it, as a DLPack tensor without
 * a copy: *managed is a DLManagedTensor (versioned: a DLManagedTensorVersioned, marked as read only unless the loader
 * has the option writable). Of a ragged field it is all values.
 *
 * Each tensor has a share in the loan: the slot goes back after batchd_release and the deleters of all its tensors. A
 * deleter may be called in any thread, after batchd_close, and in a forked child, where it ends nothing. With a GPU:
 * batchd_cuda_dlpack. */
int batchd_dlpack(struct batchd_loader *l, const struct batchd_batch *b, const struct batchd_array *a, int versioned,
		  void **managed);

/* ---- batches in memory of the caller's ----
 *
 *     float *images;       batch_size images, as info.dtype, layout and shape say
 *     char *text;          most_values bytes of the field
 *     int64_t offsets[65]; batch_size + 1 numbers
 *     const struct batchd_target targets[] = {
 *         { .field = "image", .dtype = BATCHD_FLOAT32, .data = images, .n_bytes = image_bytes },
 *         { .field = "text", .dtype = BATCHD_UINT8, .data = text, .n_bytes = text_bytes, .offsets = offsets,
 *           .n_offsets = 65 },
 *     };
 *
 *     while (batchd_next_into(l, &b, targets, 2, NULL, BATCHD_FOREVER) == BATCHD_OK)
 *         step(images, text, offsets, b.n_rows); */

/* Where a field of a batch is written. */
struct batchd_target {
	const char *field; /* its name in info.fields. Of a producer's batch: its key in the batch's dictionary */
	/* Of the numbers at `data`, which has to be the field's: info.dtype for images that are finished, float32 for
	 * soft targets of a mix ([n_rows, n_mix_classes] in place of the labels). */
	enum batchd_dtype dtype;
	void *data;       /* aligned for its numbers; on the loader's GPU, if it has one. Ragged: host memory */
	uint64_t n_bytes; /* room at `data`: for batch_size rows, or most_values values of a ragged field */
	int64_t *offsets; /* ragged: numbers, of which the first becomes 0; else NULL */
	uint64_t
		n_offsets; /* room at `offsets`: for batch_size + 1 numbers, or n_rows + 1 of a producer's batch, which may
	                     * have more rows than its usual ones */
};

/* Writes these fields of a batch on loan, which stays on loan: the first n_rows rows of each target; other rows keep
 * their content. With a GPU the work is queued on `stream`. 0, or a code: BATCHD_E_INVALID names the field for which a
 * target has not the type or the room. */
int batchd_into(struct batchd_loader *l, const struct batchd_batch *b, const struct batchd_target *targets, uint32_t n,
		void *stream);
/* batchd_next, batchd_into and the batch's release. Returns what batchd_next returns. *b has the facts about the batch,
 * without its memory. Targets are checked before a batch is taken. Where a batch has come and cannot be written (a
 * producer's, whose fields are known only then), b->generation is not 0: the batch is on loan, for another batchd_into
 * or its release. */
int batchd_next_into(struct batchd_loader *l, struct batchd_batch *b, const struct batchd_target *targets, uint32_t n,
		     void *stream, int timeout_ms);

/* ---- batches that a producer made ("serve:NAME") ---- */

#define BATCHD_MAX_ARRAYS 256

/* The arrays of a producer's batch on loan. A batch that did not fit its slot lies in memory of its own; indices is NULL
 * then. While it is on loan the daemon may have no memory for the next one as large, so release it before batchd_next.
 *
 * Each array lies at a multiple of 64 bytes. Ragged ones have offsets, which are checked here; a reader that does not
 * trust the producer, which can still write over them, checks a copy of its own (batchd_into does). Returns how many
 * there are (the first `max` of them are filled in), or a negative code. text: how they belong together, in the
 * producer's words; n_text bytes, not terminated; valid as long as the batch. */
int batchd_arrays(struct batchd_loader *l, const struct batchd_batch *b, struct batchd_array *arrays, uint32_t max,
		  const char **text, size_t *n_text);
/* With a GPU: queues the copy of one of these arrays, or of a field of any batch that has device_data, to memory of the
 * trainer there. The array's own place on the GPU
 * is as far from device_data as a->data is from the batch's data; it may be read on a stream after batchd_cuda_wait.
 * batchd_cuda_dlpack gives the whole batch as one row of bytes; batchd_cuda_finish and _labels return an error, as
 * there is nothing to finish. */
int batchd_cuda_array(struct batchd_loader *l, const struct batchd_batch *b, const struct batchd_array *a, void *to,
		      void *stream);

/* ---- making batches for others ----
 *
 * A producer serves one job at a time: the trainers that open "serve:NAME" as the same user. It makes the batches of an
 * epoch in order, each in the slot it is given, as far ahead as there are free slots. In shard mode batch k goes to
 * rank k % world_size as its step k / world_size; an incomplete last round of an epoch is dropped. A producer belongs
 * to one thread. */
struct batchd_producer;

struct batchd_produce_options {
	size_t size_bytes;
	const char *socket;   /* as in batchd_options */
	const char *name;     /* at most 64 bytes; a newer producer of the same name and user takes over */
	uint64_t slot_bytes;  /* room for a usual batch: batchd_produce_size of it; a larger one takes longer */
	uint64_t n_batches;   /* of an epoch, for all ranks together; 0: not known beforehand */
	uint64_t n_samples;   /* of an epoch, for information; 0: not known */
	uint64_t id;          /* identifies the samples: a hash of any description; trainers' checkpoints carry
	                       * it */
	uint64_t incarnation; /* refused while a producer of the same name with a higher one lives */
	uint32_t n_rows;      /* of a usual batch, for information */
	int resumable;        /* an epoch's batches are the same whenever it is made, so it can be begun in its
	                       * middle */
	int autostart;        /* start a daemon for this user if none answers (default 1) */
	const char *program;
};
void batchd_produce_options_init(struct batchd_produce_options *o);
/* While a daemon is being restarted, the call waits for it as batchd_open does, for 3 s at most. */
int batchd_produce_open(const struct batchd_produce_options *o, struct batchd_producer **out, char *err,
			size_t err_size);

/* What to make now: batch `step` of `epoch`, counted over all ranks. Usually it is the batch after the last one; if
 * not, go to that batch: no trainer wants the batches in between. */
struct batchd_fill {
	uint64_t epoch, step;
	uint64_t room_bytes; /* of the slot */
};
/* Returns BATCHD_OK, BATCHD_AGAIN, or an error; timeout_ms as for batchd_next. Answer each BATCHD_OK with
 * batchd_produce_filled or batchd_produce_end_epoch. */
int batchd_produce_next(struct batchd_producer *p, struct batchd_fill *f, int timeout_ms);
/* Lays the batch out. Give dtype, n_dims and shape of each array; the call sets n_bytes and data. A ragged array also
 * has n_rows and n_rows + 1 offsets, which are copied, and shape[0] values; `text` says that it is UTF-8. Write each array to
 * its data: this is in the slot or, where the slot is too small, in a memfd, which is sealed and sent with the answer;
 * batchd_produce_next then waits until the daemon has memory for it. A batch of more than the daemon's
 * limits.batch_bytes is an error (BATCHD_E_LIMIT) of the next call. text: how the arrays belong together; consumers get it unchanged. */
int batchd_produce_lay(struct batchd_producer *p, struct batchd_array *arrays, uint32_t n, const char *text,
		       size_t n_text);
int batchd_produce_filled(struct batchd_producer *p, uint32_t n_rows);
/* The epoch has no such batch. _at: the epoch has no more than n_batches either, for all ranks together, which the
 * daemon may have to tell ranks that are not there; 0: not known. */
int batchd_produce_end_epoch(struct batchd_producer *p);
int batchd_produce_end_epoch_at(struct batchd_producer *p, uint64_t n_batches);
/* Bytes that such a batch takes. 0: the arrays make no valid batch. */
size_t batchd_produce_size(const struct batchd_array *arrays, uint32_t n, size_t n_text);
/* why: the reason that trainers get after the last batch; of a long text only the end. NULL is allowed for both
 * arguments. */
void batchd_produce_close(struct batchd_producer *p, const char *why);
const char *batchd_produce_error(const struct batchd_producer *p);

/* The daemon's state as JSON; free() it. Needs no loader. */
int batchd_status(const char *socket, char **json, char *err, size_t err_size);
/* ---- single images ----
 *
 * Rows of single images, without a data set, by the daemon's workers: for inference with many images at a time. One image
 * alone is made sooner in the calling thread (batchd-inline.h), by the same code and with the same bytes. A connection
 * belongs to one thread at a time. */
struct batchd_load;

struct batchd_load_options {
	size_t size_bytes;
	const char *socket;    /* as in batchd_options */
	const char *transform; /* as there; of one view */
	enum batchd_dtype dtype;
	enum batchd_layout layout;
	int apply_exif;
	int autostart;
	const char *program;
};
void batchd_load_options_init(struct batchd_load_options *o);
int batchd_load_open(const struct batchd_load_options *o, struct batchd_load **out, char *err, size_t err_size);
void batchd_load_close(struct batchd_load *l); /* NULL: does nothing */
/* A row's shape in memory order, and its size. */
void batchd_load_shape(const struct batchd_load *l, uint32_t shape[3]);
size_t batchd_load_row_bytes(const struct batchd_load *l);

struct batchd_image {
	const char *path; /* a file, which this process reads; NULL: the bytes are a compressed image */
	const void *bytes;
	size_t n_bytes;
	uint64_t seed, epoch, index; /* what random ops are drawn by, as of a loader's sample */
};
/* Writes the row of image i to rows + i * batchd_load_row_bytes. Returns when all are there, or one has failed: then
 * *failed is the first such image's number, err says what is wrong with it, and the connection can be used again. With
 * another error (*failed is UINT32_MAX) the connection is lost: close it. BATCHD_AGAIN: a signal came, or a second has
 * passed; call again with the same arguments, or close. */
int batchd_load_images(struct batchd_load *l, const struct batchd_image *images, uint32_t n, void *rows,
		       uint32_t *failed, char *err, size_t err_size);

/* Records for so many milliseconds, or until a signal, what the daemon does, for its own user and root. *memory:
 * *n_bytes of struct trace_memory (proto/recording.h), which free() frees. socket, err: as above. Blocks. */
int batchd_trace(const char *socket, unsigned milliseconds, void **memory, size_t *n_bytes, char *err, size_t err_size);

#ifdef __cplusplus
}
#endif

#endif
