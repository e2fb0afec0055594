/* A data set: samples 0..n-1. Opened once, read-only afterwards, shared by loaders and threads by reference.
 *
 * Two kinds of samples: images (a compressed file each, decoded by a pipeline) and arrays (rows of fixed shape, copied
 * unchanged). A sample of either kind has further fields (dataset/field.h): a label, texts, numbers. This layer decides
 * which files the peer may read (struct data_access). */
#ifndef BATCHD_DATASET_H
#define BATCHD_DATASET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "dataset/error.h"
#include "dataset/field.h"
#include "base/meter.h"
#include "sources.h"

enum { DATASET_MAX_DIMS = FIELD_MAX_DIMS, DATASET_MAX_FIELDS = 64, DATASET_MAX_GROUPS = 256 };

struct dataset;

/* The peer for which files are opened. Files that the peer could not read itself are refused, by mode bits, at every
 * open. */
struct data_access {
	bool trusted; /* named in the configuration, or the peer is root or the daemon's own uid and in the daemon's
	                      * own mount namespace: no checks */
	uid_t uid;
	gid_t gids[DATASET_MAX_GROUPS];
	unsigned n_gids;
};

/* Called from the opening thread about ten times a second during long work; total 0 when unknown. */
typedef void dataset_progress_fn(void *arg, const char *phase, uint64_t done, uint64_t total);

struct dataset_source {
	const struct Sources *sources; /* borrowed */
	const char *spec;              /* their text; taken apart if `sources` is NULL */
	const struct Source *part;     /* the one of the sources that a kind's function opens */
	const int *fds; /* borrowed: sent by the peer for this data set, in the order of its parts, or none */
	unsigned n_fds;
	const struct data_access *access;
	const char *cache_dir;            /* for the index; NULL: do not keep one */
	uint64_t cache_limit_bytes;       /* limit of all files there, see cache/dir.h; 0: none */
	struct meter *meter;              /* counts the memory of names and labels; NULL: no limit */
	dataset_progress_fn *on_progress; /* may be NULL */
	void *progress_arg;
	const atomic_bool *stop; /* may be NULL. Once it is set, formats that open for long end with -ECANCELED: at
				  * the next part of a shard, an archive, a table or a folder that they read */
};

/* Blocking; call it from a thread that may wait for disks. 0, or negative errno with err filled in. */
int dataset_open(const struct dataset_source *source, struct dataset **out, struct dataset_error *err);
struct dataset *dataset_ref(struct dataset *ds);
void dataset_unref(struct dataset *ds);

uint64_t dataset_id(const struct dataset *ds); /* identity of the samples: a hash of spec and index (names and labels,
                                                * or shape and size) */
/* The key of cached data. It combines dataset_id (of packed data sets with every sample's place in its shard), the folder itself (file system and inode), and the user for whom the
 * data set was opened, unless the access was trusted. So no user ever gets cached data of another user's files,
 * whatever that user claimed about them. */
uint64_t dataset_cache_id(const struct dataset *ds);
/* Independent of the location: a hash of names, labels and classes; or of shape, type, size and some of the bytes. */
uint64_t dataset_content_id(const struct dataset *ds);
uint64_t dataset_n(const struct dataset *ds);
/* Groups of files in shards that are no samples: they lack a field that the others have, or have it in another form. */
uint64_t dataset_n_left_out(const struct dataset *ds);
/* "2 of 9 samples are left out; the first, a.tar: 0001, has no label (cls)"; "": none is. */
const char *dataset_left_out(const struct dataset *ds);
/* Pictures without a label, fields not being named: what they have, and what to write; "": not so. */
const char *dataset_no_label(const struct dataset *ds);
/* Whether the package that the data set is of turns pictures upright by their EXIF orientation; 2: only some of them. */
int dataset_turns(const struct dataset *ds);

/* The pieces that are read best from begin to end: shards, or the parts of a blend. They follow each other. At least 1. */
uint32_t dataset_n_shards(const struct dataset *ds);
/* Its samples are first..end - 1. */
void dataset_shard(const struct dataset *ds, uint32_t i, uint64_t *first, uint64_t *end);

/* Data sets that are one, with weights: an epoch has dataset_n samples, of which each part gives as many as its weight
 * says, every one of its samples as often as any other, or once more. */
struct dataset_blend {
	uint64_t seed; /* of the choice which samples come once more */
	bool has_seed; /* false: the loader's */
	unsigned n;
	struct dataset_part {
		uint64_t first, n, weight;
	} part[64];
};
const struct dataset_blend *dataset_blend(const struct dataset *ds); /* NULL: each sample comes once */
uint64_t dataset_memory_bytes(const struct dataset *ds);             /* memory that it takes while it is open */
/* Whether another machine or process serves its files: 0 when they are all on local disks, else a number that differs
 * between file systems; of a set that reaches several, one that no single file system has. Only READ_WAIT is useful
 * then. */
uint64_t dataset_server(const struct dataset *ds);
/* A list of files of which the first ones all are missing means another folder, or no file of this machine: -ENOENT with
 * err. Reads a file; not for the loop thread. */
int dataset_check_first(struct dataset *ds, struct dataset_error *err);
bool dataset_is_image(const struct dataset *ds);
uint32_t dataset_n_classes(const struct dataset *ds); /* 0: labels are not classes */
const char *dataset_class(const struct dataset *ds, uint32_t i);

/* The fields of every sample, 1 to DATASET_MAX_FIELDS. Of images, the pipeline decides type and shape of field 0. */
unsigned dataset_n_fields(const struct dataset *ds);
const struct field *dataset_field(const struct dataset *ds, unsigned i);
int dataset_find_field(const struct dataset *ds, const char *name); /* its number; -1: there is none */

/* Copies field k of row indices[i] to rows[k] + i * row bytes, for n indices and every field k whose rows[k] is not NULL.
 * rows has dataset_n_fields entries. Only dense fields can be gathered, and of images only those after field 0. Any
 * thread that may wait for a local disk, and for a server if dataset_server is not 0. 0, -EIO when the file has shrunk
 * since it was opened (err says which). */
int dataset_gather(struct dataset *ds, const uint64_t *indices, size_t n, void *const rows[],
		   struct dataset_error *err);

/* The value of a field that the data set holds in memory: fields 1 and up of images, and ragged fields. Without I/O; any
 * thread. index is below dataset_n. */
void dataset_value(const struct dataset *ds, uint64_t index, unsigned field, struct field_value *out);

/* The sample's "label" if that is an integer which the data set holds in memory, else -1. */
int64_t dataset_label(const struct dataset *ds, uint64_t index);
/* For messages: the path below the root, or the array and row. */
void dataset_name(const struct dataset *ds, uint64_t index, char *buf, size_t size);

struct workspace;

/* A sample's compressed bytes, in a buffer for repeated use. */
struct file_bytes {
	uint8_t *data; /* n_bytes, followed by 64 zero bytes */
	size_t n_bytes;
	size_t capacity_bytes;
	struct workspace *payer;               /* of the capacity (base/workspace.h) */
	uint64_t mtime_ns, ctime_ns, ino, dev; /* identity, for caches. A user may restore the mtime of other bytes,
	                                        * as tar and cp -p do, but not the ctime */
};
/* Room for n_bytes; the content is lost. 0 or -ENOMEM. */
int file_bytes_reserve(struct file_bytes *b, size_t n_bytes);
void file_bytes_finish(struct file_bytes *b);

enum read_how {
	READ_NOWAIT, /* only on a local file system, and only what is in memory (openat2 RESOLVE_CACHED, preadv2
	              * RWF_NOWAIT) */
	READ_WAIT
};
/* Images: reads a file whole. 0; -EAGAIN for READ_NOWAIT when it would block: repeat with READ_WAIT on an I/O thread;
 * other negative errno with err->text: the file is missing, unreadable, not regular, too large. Any thread. */
int dataset_read(struct dataset *ds, uint64_t index, enum read_how how, struct file_bytes *out,
		 struct dataset_error *err);
/* Whether file_bytes of `index` from an earlier read are still current (data is not compared), and this data set's peer
 * may read the file. Call it before using cached bytes or pixels, which may have been read for another peer. 1 or 0;
 * -EAGAIN for READ_NOWAIT when it would block. One system call when trusted. */
int dataset_is_current(struct dataset *ds, uint64_t index, enum read_how how, const struct file_bytes *b);

#endif
