/* Groups the members of a shard into samples, as WebDataset does: a member's key is its path up to the first dot of its
 * last name, the rest is its extension, and members of one key that follow each other are one sample. */
#ifndef BATCHD_MEMBERS_H
#define BATCHD_MEMBERS_H

#include <stdbool.h>

#include "dataset/shards/extents.h"
#include "dataset/shards/reader.h"

enum {
	MEMBER_NAME_BYTES = 4096,
	FOLDER_BYTES = 1024,
	MEMBERS_MAX = 256,                           /* of one sample */
	MEMBER_VALUE_BYTES = SHARD_READER_MAX_BYTES, /* of a value that is kept in memory */
};

/* Which members are a sample's image and its values. */
struct member_fields {
	char image_name[COLUMN_NAME_BYTES]; /* of the field */
	char image[COLUMN_NAME_BYTES]; /* extensions in order of preference: "jpg;jpeg;png"; "": samples have none */
	bool is_listed;                /* the caller has named the fields */
	char folder[FOLDER_BYTES];     /* zip: only members whose names begin so: "", or "train/" */
	unsigned n_values;
	struct member_value {
		char name[COLUMN_NAME_BYTES];
		char extensions[COLUMN_NAME_BYTES];
		char key[COLUMN_NAME_BYTES]; /* of the member's JSON object; "": the member itself */
		enum column_kind kind;       /* reals: of a key, and of MDS */
		bool has_kind;               /* of a key: the first value has decided, or the caller */
		bool is_told;                /* of a key: by the caller, so whole numbers stay whole */
		bool optional;               /* absent from the data set if its samples lack it */
	} values[COLUMNS_MAX];
	/* The optional value that the first sample lacks ("": none), and whether a later member would be one: then the index
	 * has to be made again, with a value that is not optional. */
	struct member_value dropped;
	bool saw_dropped;
};

struct member {
	const char *name; /* in the shard; no terminator needed */
	size_t n_name;
	uint64_t at, n_bytes; /* of its data in the shard, which has them */
	const char *value;    /* n_bytes of data instead of those in the shard; NULL: none */
	/* Only where the builder has_content: the bytes that the shard has at `at`, and what they become. */
	uint64_t n_stored;
	struct extent_content content;
};

struct members {
	struct member_fields *fields;
	struct shard_reader *reader;
	struct extents_builder *builder; /* gets its columns with the first sample */
	/* Reads a member that has content, of at most MEMBER_VALUE_BYTES; *bytes is valid until the next call. 0 or
	 * negative errno with the reader's err. */
	int (*fetch)(void *arg, const struct member *member, const uint8_t **bytes);
	void *fetch_arg;
	/* private: the sample that is being gathered. Ranks: 0 none yet, else the place in the list of extensions, from 1 */
	struct text key, values;
	struct member image;
	char image_extension[COLUMN_NAME_BYTES];
	unsigned image_rank, value_rank[COLUMNS_MAX];
	uint64_t value_at[COLUMNS_MAX]; /* in values */
	size_t n_value[COLUMNS_MAX];
	enum column_kind value_kind[COLUMNS_MAX]; /* of a key */
	unsigned bad_value;                       /* the value that `bad` is about */
	char bad[160];                            /* why a value that is there cannot be used; "": it can */
	char extensions[96];        /* "jpg;json": of the shard's first members, fields not being listed */
	bool is_told;               /* by the format */
	struct text gone;           /* the keys that are no samples */
	uint64_t seen[MEMBERS_MAX]; /* hashes of extensions */
	unsigned n_seen;
};

/* Splits a path: *n_key bytes are the key, the extension follows a dot. False for a member of no sample. */
bool member_split(const char *name, size_t n_name, size_t *n_key);

/* 0 or negative errno with the reader's err. A member of no sample is skipped. */
int members_add(struct members *m, const struct member *member);
/* Behind the shard's last member. */
int members_end(struct members *m);
void members_finish(struct members *m);

/* Makes value k, which is taken out of the values, the image. */
void member_fields_make_image(struct member_fields *fields, unsigned k);
/* Adds the columns of all values to a builder. 0, -ENOMEM, -EFBIG. */
int member_fields_columns(struct member_fields *fields, struct columns_builder *columns);

#endif
