/* The operations of a kind of data set. Only daemon/data includes this; other folders use dataset.h. */
#ifndef BATCHD_DATASET_IMPL_H
#define BATCHD_DATASET_IMPL_H

#include <stdatomic.h>
#include <xxhash.h>

#include "data/dataset.h"

struct dataset_ops {
	void (*destroy)(struct dataset *ds); /* frees everything, ds too */
	/* Arrays. */
	int (*gather)(struct dataset *ds, const uint64_t *indices, size_t n, void *rows, void *labels,
		      struct dataset_error *err);
	/* Images. */
	int (*read)(struct dataset *ds, uint64_t index, enum read_how how, struct file_bytes *out,
		    struct dataset_error *err);
	int (*is_current)(struct dataset *ds, uint64_t index, enum read_how how, const struct file_bytes *b);
	int64_t (*label)(const struct dataset *ds, uint64_t index);
	/* Only with a fingerprint. */
	void (*compare)(const struct dataset *ds, const uint8_t *fingerprint, size_t n_bytes, uint64_t old_n,
			char *text, size_t size);
	/* For both. */
	void (*name)(const struct dataset *ds, uint64_t index, char *buf, size_t size);
	const char *(*class_name)(const struct dataset *ds, uint32_t i); /* NULL when n_classes is 0 */
};

/* The common part of all kinds; first member of each kind's own struct. Constant after dataset_open has returned. */
struct dataset {
	const struct dataset_ops *ops;
	atomic_uint refs;
	uint64_t id, content_id, n;
	uint64_t cache_id;          /* images */
	uint64_t memory_bytes;      /* names and labels, without mapped files */
	uint64_t server;            /* see dataset_server; a device number, or 1 for a data set without one */
	const uint8_t *fingerprint; /* FINGERPRINT_BYTES, owned by the kind; NULL: none */
	uint32_t n_classes;
	bool is_image;
	/* Arrays. */
	unsigned n_dims, n_label_dims;
	uint32_t shape[DATASET_MAX_DIMS], label_shape[DATASET_MAX_DIMS];
	enum dtype dtype, label_dtype;
};

/* The kinds. `rest` is the spec after "kind:", without trailing slashes; references start at 1. */
int imagefolder_open(const struct dataset_source *source, const char *rest, struct dataset **out,
		     struct dataset_error *err);
int filelist_open(const struct dataset_source *source, const char *rest, struct dataset **out,
		  struct dataset_error *err);
int arrays_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err);
int random_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err);

#endif
