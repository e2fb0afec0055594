/* The configuration as plain data: a YAML file, overridden by options of the command line.
 *
 * Strict: an unknown key, a wrong type, a value out of range, or a name given twice is refused with file, line and what
 * was expected. Everything is optional. batchd.yaml(5) explains every key to users; the table in key.c is the
 * only place with keys, ranges and defaults. */
#ifndef BATCHD_CONFIG_H
#define BATCHD_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "config/error.h"
#include "base/log.h" /* enum log_level */

#define CONFIG_PATH "/etc/batchd/batchd.yaml" /* read when it exists and no other file is named */
#define CONFIG_AUTO UINT64_MAX                /* of a cache's size, of gpu_memory */
#define CONFIG_NEVER UINT64_MAX               /* of idle_exit_ns */
#define CONFIG_NO_GROUP ((gid_t) - 1)

enum {
	CONFIG_MAX_BYTES = 1 << 20, /* of the file */
	CONFIG_MAX_DATASETS = 1024,
	CONFIG_MAX_PIPELINES = 256,
	CONFIG_MAX_NAMES = 256,  /* of users, or of groups, of one data set */
	CONFIG_MAX_CHANGES = 64, /* the most changes that config_diff reports */
};

enum config_switch { CONFIG_SWITCH_AUTO, CONFIG_ON, CONFIG_OFF };
enum config_filling { CONFIG_FILLING_AUTO, CONFIG_FILLING_ALWAYS };

struct config_pipeline {
	char *name;
	char *transform; /* JSON text, known to parse as an image pipeline */
};

struct config_dataset {
	char *name;
	struct Sources *sources; /* of one data set or a blend */
	char *transform;         /* default: a pipeline's name or JSON text; NULL: the kind's own default */
	uid_t *users;            /* may attach; both lists empty: every user that can reach the socket */
	gid_t *groups;
	uint32_t n_users, n_groups;
};

struct config_limits {
	uint32_t sessions, sessions_per_user; /* connected trainers */
	uint32_t pending;                     /* connections that have not said hello yet */
	uint64_t hello_timeout_ns;            /* for the hello, and for a request sent in part */
	uint32_t loaders, loaders_per_user;
	double memory_per_user;                       /* 0..1, share of `memory` that one user's batches may take */
	uint64_t unread_per_user;                     /* bytes of answers that the user's trainers have not read */
	uint32_t fds_per_user;                        /* that the daemon has open for one user */
	uint32_t file_systems, file_systems_per_user; /* of servers: each has I/O threads of its own */
	uint32_t producers, producers_per_user;
	uint32_t batch_size; /* rows */
	uint64_t batch_bytes;
	uint64_t value_bytes;  /* of a text, or another list of values, of one sample */
	uint64_t image_pixels; /* width * height, and */
	uint32_t image_scans;  /* scans: members of struct decode_limits */
	uint64_t file_bytes;
	uint64_t image_time_ns;
};

struct config {
	char *socket; /* absolute path; NULL: address_own() */
	mode_t socket_mode;
	gid_t socket_group; /* CONFIG_NO_GROUP: leave it */
	uint32_t workers;   /* threads; 0: auto */
	uint32_t io_threads;
	uint32_t nice;             /* of the workers */
	uint64_t memory_bytes;     /* slots and caches together; 0: auto */
	uint32_t slots;            /* batches per trainer, including the one it works on; 0: auto */
	uint64_t linger_ns;        /* how long a loader stays warm after its last session */
	uint64_t stall_after_ns;   /* how long without progress until a trainer is reported; CONFIG_NEVER */
	uint64_t idle_exit_ns;     /* without any session; CONFIG_NEVER */
	uint64_t gpu_idle_exit_ns; /* the same for a daemon that has used a GPU; CONFIG_NEVER */
	double bad_data;           /* 0..1, share of samples that may be undecodable */
	enum log_level log_level;
	char *metrics;                                  /* as metrics_address_parse takes it; NULL: none */
	char *index_cache;                              /* directory; NULL: the default place */
	uint64_t cache_jpeg_bytes, cache_decoded_bytes; /* 0: off; CONFIG_AUTO */
	enum config_filling cache_filling;              /* always: whatever it costs waiting trainers */
	uint64_t gpu_memory_bytes;                      /* for batches, of each GPU; 0: off; CONFIG_AUTO */
	enum config_switch pin_memory;                  /* of batches that go to a GPU */
	double pin_limit;      /* 0..1, largest share of pinned plus free memory that may be pinned */
	char *cache_directory; /* of data that survives restarts; NULL: none does */
	uint64_t
		cache_unused_ns; /* how long it keeps what no loader uses; CONFIG_NEVER: gives nothing up for its age */
	uint64_t cache_disk_bytes; /* the most that is kept in it, and in index_cache */
	struct config_limits limits;
	struct config_pipeline *pipelines; /* n_pipelines */
	struct config_dataset *datasets;   /* n_datasets, in no particular order */
	uint32_t n_pipelines, n_datasets;
};

/* Sets every key's default; the memory is the caller's. 0 or -ENOMEM. */
int config_defaults(struct config *c);
/* Reads the file into *c, which has (or gets) valid defaults for all that the file does not say. 0; -EINVAL with
 * err->text; -ENOENT when there is no such file (text too); other negative errno. On failure *c is finished. */
int config_load(const char *path, struct config *c, struct config_error *err);
/* The same from memory; path is only for messages. */
int config_parse(const char *path, const char *bytes, size_t n_bytes, struct config *c, struct config_error *err);
/* Frees the contents; a zeroed or finished configuration is allowed. */
void config_finish(struct config *c);

/* Sets one scalar key ("workers", "cache.jpeg") from text in the file's syntax, as command-line options do. 0, -EINVAL
 * with err->text (beginning with the key, without file and line), -ENOMEM. */
int config_set(struct config *c, const char *key, const char *text, struct config_error *err);
/* Adds a data set that every user may attach to, or replaces the one of that name. Same returns. */
int config_set_dataset(struct config *c, const char *name, const char *source, struct config_error *err);

/* The data set or the pipeline's text of that name, or NULL. */
const struct config_dataset *config_dataset(const struct config *c, const char *name);
const char *config_pipeline(const struct config *c, const char *name);

/* How many workers there may be. */
unsigned config_max_workers(const struct config *c);

struct config_change {
	const char *key; /* static */
	bool live;       /* takes effect at once; otherwise at the next start */
};
/* Lists the differences, for SIGHUP. Returns how many of `changes` it filled. */
size_t config_diff(const struct config *before, const struct config *after,
		   struct config_change changes[CONFIG_MAX_CHANGES]);

#endif
