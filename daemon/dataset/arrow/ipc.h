/* Reads the metadata of Arrow's IPC streams and files: the schema, and of each record batch where its buffers lie. The
 * values themselves stay in the file (column.h reads them). */
#ifndef BATCHD_ARROW_IPC_H
#define BATCHD_ARROW_IPC_H

#include <stdbool.h>
#include <stdint.h>

#include "dataset/shards/reader.h"

enum {
	ARROW_MAX_FIELDS = 4096, /* of a schema, children included */
	ARROW_MAX_DEPTH = 16,
	ARROW_NAME_BYTES = 64,
	ARROW_MAX_SHAPE = 8,
};

/* The format's numbers. */
enum arrow_type {
	ARROW_NULL = 1,
	ARROW_INT,
	ARROW_FLOAT,
	ARROW_BINARY,
	ARROW_UTF8,
	ARROW_BOOL,
	ARROW_DECIMAL,
	ARROW_DATE,
	ARROW_TIME,
	ARROW_TIMESTAMP,
	ARROW_INTERVAL,
	ARROW_LIST,
	ARROW_STRUCT,
	ARROW_UNION,
	ARROW_FIXED_BINARY,
	ARROW_FIXED_LIST,
	ARROW_MAP,
	ARROW_DURATION,
	ARROW_LARGE_BINARY,
	ARROW_LARGE_UTF8,
	ARROW_LARGE_LIST,
};

/* A column, or a child of one. */
struct arrow_field {
	char name[ARROW_NAME_BYTES]; /* the first bytes of a longer name */
	enum arrow_type type;
	bool is_encoded; /* by a dictionary */
	bool is_signed;
	uint32_t width;                  /* bits of a number, bytes of FIXED_BINARY, items of FIXED_LIST */
	unsigned next;                   /* the field after this one and its children */
	unsigned first_buffer;           /* validity, then offsets, then values, as far as the type has them */
	unsigned n_shape;                /* HuggingFace's Array2D to Array5D, lists in lists; 0: any other field */
	uint32_t shape[ARROW_MAX_SHAPE]; /* 0: of any length */
};

/* Columns and their children, each before its children. Its children begin after it. */
struct arrow_schema {
	struct arrow_field *fields;
	unsigned n, n_buffers;
	char *features; /* HuggingFace's description of the columns, JSON; NULL: none */
};

struct arrow_node {
	uint64_t n, n_null;
};
struct arrow_buffer {
	uint64_t at, n_bytes; /* in the file, which had them */
};

struct arrow_batch {
	uint64_t n_rows;
	const struct arrow_node *nodes;     /* of each field */
	const struct arrow_buffer *buffers; /* as many as the schema says */
};

/* Calls on_schema once, and then on_batch for each record batch in order, to the end or an error of theirs.
 * Everything lives as long as the call. A file that is cut short, compressed, of the other byte order, or whose
 * places do not fit is refused with a text. 0 or negative errno with the reader's err. */
struct arrow_visitor {
	int (*on_schema)(void *arg, const struct arrow_schema *schema);
	int (*on_batch)(void *arg, const struct arrow_schema *schema, const struct arrow_batch *batch);
	void *arg;
};
int arrow_scan(struct shard_reader *r, const struct arrow_visitor *visitor);

/* "int32", "list", ... for messages. */
const char *arrow_type_name(const struct arrow_field *f);

#endif
