/* The operations of a kind of data set. Only daemon/dataset includes this; other folders use dataset.h. */
#ifndef BATCHD_DATASET_IMPL_H
#define BATCHD_DATASET_IMPL_H

#include <stdatomic.h>
#include <xxhash.h>

#include "dataset/dataset.h"

struct dataset_ops {
	void (*destroy)(struct dataset *ds); /* frees everything, ds too, except for fields */
	/* Arrays. rows[k] is NULL for ragged fields, and for fields that are not wanted. */
	int (*gather)(struct dataset *ds, const uint64_t *indices, size_t n, void *const rows[],
		      struct dataset_error *err);
	/* Images. */
	int (*read)(struct dataset *ds, uint64_t index, enum read_how how, struct file_bytes *out,
		    struct dataset_error *err);
	int (*is_current)(struct dataset *ds, uint64_t index, enum read_how how, const struct file_bytes *b);
	/* Images: fields 1 and up; arrays: ragged fields. */
	void (*value)(const struct dataset *ds, uint64_t index, unsigned field, struct field_value *out);
	/* With n_shards. */
	uint64_t (*shard_end)(const struct dataset *ds, uint32_t i);
	/* For both. */
	void (*name)(const struct dataset *ds, uint64_t index, char *buf, size_t size);
	const char *(*class_name)(const struct dataset *ds, uint32_t i); /* NULL when n_classes is 0 */
};

/* The samples of a data set that draws each again. */
#define DATASET_ENDLESS (1ull << 40)

/* The common part of all kinds; first member of each kind's own struct. Constant after dataset_open has returned. */
struct dataset {
	const struct dataset_ops *ops;
	atomic_uint refs;
	uint64_t id, content_id, n;
	uint64_t n_left_out;   /* see dataset_n_left_out */
	char left_out[400];    /* see dataset_left_out */
	char no_label[520];    /* see dataset_no_label */
	char list_folder[256]; /* of a list: where its relative paths begin; else "" */
	uint64_t cache_id;     /* images */
	uint64_t memory_bytes; /* names and labels, without mapped files */
	uint64_t server;       /* see dataset_server; servers.h has the numbers */
	uint32_t n_classes;
	uint32_t n_shards;                 /* 0: it is one piece */
	const struct dataset_blend *blend; /* owned by the kind; NULL: a sample comes once an epoch */
	bool is_image;
	bool turns;          /* pictures: its own package turns them upright by their EXIF orientation */
	bool turns_some;     /* a blend: those of some parts, and not of others */
	bool label_is_index; /* its "label" is the sample's number: nothing has said it */
	int label;           /* number of the field "label", set by dataset_add_field; 0: none */
	unsigned n_fields;
	struct field *fields; /* by dataset_add_field; dataset_destroy frees them */
};

/* Whether the opening should end with -ECANCELED. Work that takes long asks now and then. */
static inline bool dataset_is_stopped(const struct dataset_source *source)
{
	return source->stop && atomic_load_explicit(source->stop, memory_order_relaxed);
}

/* Frees a data set that dataset_open has not returned yet, or that has no references. */
void dataset_destroy(struct dataset *ds);
/* Adds a dense scalar field; the caller changes the rest of it. NULL with err: out of memory, too many, a name that is not
 * valid or is there already. */
struct field *dataset_add_field(struct dataset *ds, const char *name, enum dtype dtype, struct dataset_error *err);
/* The two fields of a picture with a class. 0 or negative errno with err. */
int dataset_add_image_fields(struct dataset *ds, struct dataset_error *err);

/* The kinds open source->part. `rest` is its exact text without "KIND:"; references start at 1. */
int imagefolder_open(const struct dataset_source *source, const char *rest, struct dataset **out,
		     struct dataset_error *err);
int filelist_open(const struct dataset_source *source, const char *rest, struct dataset **out,
		  struct dataset_error *err);
int cifar_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err);
int idx_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err);
int npy_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err);
int npz_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err);
int memory_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err);
int tokens_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err);
int arrow_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err);
int mds_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err);
int tar_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err);
/* open: of one of the parts, with its own descriptors. */
typedef int blend_open_part_fn(const struct dataset_source *source, struct Source *part, struct dataset **out,
			       struct dataset_error *err);
int blend_open(const struct dataset_source *source, const struct Sources *sources, blend_open_part_fn *open,
	       struct dataset **out, struct dataset_error *err);
int zip_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err);
int random_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err);

#endif
