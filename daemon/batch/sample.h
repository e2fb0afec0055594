/* One sample of a loader: from the data set through the caches and the pipeline into its row.
 *
 * A recipe is read-only and shared by workers; each worker has its own struct sample_worker. */
#ifndef BATCHD_SAMPLE_H
#define BATCHD_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "dataset/dataset.h"
#include "batch/pixels.h"
#include "image/transform/views.h"
#include "base/workspace.h"

struct cache;
struct cache_space;

struct recipe {
	struct dataset *dataset;   /* a reference */
	struct pipeline *pipeline; /* of all views; owned; NULL for arrays that are delivered as they are */
	bool apply_exif;
	uid_t uid;            /* the user for whom it makes rows */
	uint64_t value_bytes; /* a value of a ragged field that is longer makes its sample bad; 0: no limit */
	struct pixels pixels; /* of the rows of arrays that go through the pipeline */
	/* Shared by loaders of the same data set; each may be NULL. */
	struct cache_space *indexes, *decoded;
};

/* Attaches the caches that an image recipe can use. If the decoded tier may choose (choose_decoded), it is used only
 * for data sets that would fit as a whole, estimated from a few samples: decoding whole images to keep one in a hundred
 * would cost more than it saves. Blocking; 0 or -ENOMEM. */
int recipe_attach(struct recipe *r, struct cache *cache, uint64_t decoded_budget_bytes, bool choose_decoded,
		  const struct decode_limits *limits);
void recipe_finish(struct recipe *r);

/* When a row was made, and how long it was read and decoded: for a recording. */
struct sample_spans {
	uint64_t began_ns, ended_ns;
	uint64_t read_ns, decode_ns;
};

/* Decoder, scratch memory and file buffer of one worker thread. */
struct sample_worker;
struct sample_worker *sample_worker_create(const struct decode_limits *limits); /* NULL: out of memory */
void sample_worker_destroy(struct sample_worker *w);
/* Processor time that a sample may take, with images of at most this time to decode. */
uint64_t sample_most_ns(uint64_t image_ns);
/* Any thread: what the worker is doing. */
enum stage sample_worker_stage(const struct sample_worker *w);
/* Whether a trainer waits for the rows that follow: then filling the decoded cache is limited (batch/filling.h). At
 * first none does. */
void sample_worker_hurry(struct sample_worker *w, bool hurried);
/* Every row fills the caches from now on, also while trainers wait: what is kept then depends on no clock. */
void sample_worker_fill_always(struct sample_worker *w);

/* What an I/O thread found ahead of time: a file's bytes, the fact that a cached entry is current, or an error. */
struct sample_input {
	struct file_bytes bytes;
	struct dataset_error error;
	int result;                /* of dataset_read, or of dataset_gather for arrays */
	bool checked;              /* no bytes were read: cache entries made from `current` may be used */
	bool must_read;            /* for the next sample_fetch: checking the caches is not enough */
	bool later;                /* there was no room for it: the worker reads the file, from the kernel's cache if
	                            * that had room; a file that comes from a server is fetched again */
	struct file_bytes current; /* identity only, no data */
	struct workspace space;
};

struct sample_input *sample_input_create(const struct decode_limits *limits); /* NULL: out of memory */
void sample_input_destroy(struct sample_input *in);
/* Its sample is made, or will not be made: frees large buffers. */
void sample_input_drop(struct sample_input *in);

enum { SAMPLE_E_BAD = 1, SAMPLE_E_WOULD_BLOCK = 2 };

struct sample_error {
	char text[800]; /* the file and what is wrong with it */
	bool slow;      /* it exceeded its processor time */
	bool outside;   /* it is not the file's content: `batchctl verify` finds nothing */
};

/* Reads the sample's file, or makes sure that a cached entry of it is current, waiting as long as it takes. I/O
 * threads. */
void sample_fetch(const struct recipe *r, uint64_t index, struct sample_input *in);

/* Makes the rows of an image sample, one for each view, from the caches where they have it, and stores there what the next epoch can use.
 * key: which sample, and what its random draws are keyed by; caches are keyed by its index alone. in: what sample_fetch
 * found, or NULL to look here. may_wait: with in NULL, the call may wait for disks and servers. 0, SAMPLE_E_BAD with
 * err, SAMPLE_E_WOULD_BLOCK (the input must be fetched, possibly again), -ENOMEM. */
int sample_make(const struct recipe *r, struct sample_worker *w, struct sample_key key, struct sample_input *in,
		bool may_wait, void *const rows[], struct sample_error *err);

/* For samples 0..n-1 of indices, whose pictures are rows of an array on a local disk: copies these, and the rows of other
 * fields, of which rows has the places from 1 on, with one look at the files for all of them. The pictures lie one after the
 * other in the worker's memory until its next call. NULL: one cannot be read, or there is no memory; sample_make says
 * what is wrong with which. */
const uint8_t *sample_gather(const struct recipe *r, struct sample_worker *w, const uint64_t *indices, uint32_t n,
			     void *const rows[]);
/* As sample_make, from such a picture. */
int sample_make_gathered(const struct recipe *r, struct sample_worker *w, struct sample_key key, const uint8_t *picture,
			 void *const rows[], struct sample_error *err);

/* Makes the row of an image without a data set, from n_bytes at an offset of a memfd, whose owner may change it at any
 * time. r has only a pipeline. 0, SAMPLE_E_BAD with err, which names no file, or -ENOMEM. */
int sample_make_at(const struct recipe *r, struct sample_worker *w, struct sample_key key, int fd, uint64_t offset,
		   uint64_t n_bytes, void *const rows[], struct sample_error *err);

/* Bytes that the worker's last sample_make read from a file, and those that the last sample_fetch did. 0: a cache had
 * them, or an I/O thread did the reading. */
uint64_t sample_read_bytes(const struct sample_worker *w);
uint64_t sample_fetched_bytes(const struct sample_input *in);

/* What the decoded cache would keep of the worker's last row, if it read the row's picture and there is no such cache; 0:
 * not known. */
uint64_t sample_decoded_bytes(const struct sample_worker *w);

/* Of the worker's last row. NULL: it is not recorded; one row in a few is, while there is a recording. */
const struct sample_spans *sample_spans(const struct sample_worker *w);

/* Which of n candidates replaces sample `index` at the given attempt: uniform, keyed by (seed, epoch, index, attempt)
 * only. */
uint64_t sample_substitute(uint64_t seed, uint64_t epoch, uint64_t index, unsigned attempt, uint64_t n);

#endif
