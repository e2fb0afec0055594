/* The samples of Arrow files, read once when the data set is opened: where each row's picture is, and the values of all
 * other columns. */
#ifndef BATCHD_ARROW_INDEX_H
#define BATCHD_ARROW_INDEX_H

#include "dataset/arrow/column.h"
#include "dataset/arrow/spec.h"

/* In place of a picture's size: it lies in a file of its own, and its place is that of the path in `paths`. */
#define ARROW_IN_FILE UINT32_MAX

struct arrow_index {
	struct meter *meter;
	struct arrow_choices choices;
	bool is_chosen; /* by the first file's schema */
	uint64_t n_rows;
	uint64_t *at; /* of each picture, in its file; only with a column of pictures */
	uint32_t *n_bytes;
	size_t at_capacity, n_bytes_capacity;
	struct text paths;
	struct arrow_column columns[DATASET_MAX_FIELDS]; /* of each choice but the image */
	struct text class_text;
	uint64_t *classes; /* in class_text */
	size_t n_classes, classes_capacity;
};

/* Adds the rows of a file, those that are wanted. source: see arrow_choose. 0 or negative errno with the reader's err. */
int arrow_index_add(struct arrow_index *ix, struct shard_reader *r, const struct Source *source,
		    const struct arrow_rows *rows);
uint64_t arrow_index_bytes(const struct arrow_index *ix);
uint64_t arrow_index_hash(const struct arrow_index *ix);
void arrow_index_finish(struct arrow_index *ix);

#endif
