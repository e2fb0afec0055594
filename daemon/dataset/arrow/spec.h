/* The text of an Arrow data set, and which of its columns become which fields. */
#ifndef BATCHD_ARROW_SPEC_H
#define BATCHD_ARROW_SPEC_H

#include <stdbool.h>

#include "dataset/arrow/ipc.h"
#include "dataset/dataset.h"

enum { ARROW_PATH_BYTES = 1024, ARROW_SPEC_BYTES = 8256 };

/* [rows=HASH,][images=DIR,]PATTERN[::PATTERN...][#NAME=COLUMN,...], or without patterns table=HASH,[...] */
struct arrow_spec {
	char text[ARROW_SPEC_BYTES]; /* what the rest points into */
	bool has_table;              /* the last descriptor is the table, in memory; there are no patterns */
	bool has_rows;               /* the last descriptor but that tells which rows are the samples */
	const char *images;          /* the folder of pictures that the rows only name; NULL: none */
	const char *patterns;
	const char *list; /* NULL: none */
};
int arrow_spec_parse(const char *rest, struct arrow_spec *out, struct dataset_error *err);

struct arrow_choice {
	char name[ARROW_NAME_BYTES], column[ARROW_NAME_BYTES];
};
struct arrow_choices {
	struct arrow_choice list[DATASET_MAX_FIELDS];
	unsigned n;
	int image; /* among the list; -1: none */
};
/* Without a list: the one column of pictures, and the label; without pictures, all columns. With one: a column of pictures is the image. 0 or -EINVAL
 * with err, which lists the columns. */
int arrow_choose(const struct arrow_schema *s, const char *list, const char *file, struct arrow_choices *out,
		 struct dataset_error *err);

/* The number of a column; -1: there is none. */
int arrow_find(const struct arrow_schema *s, const char *column);
/* A picture as HuggingFace keeps it: its bytes, or the path of its file. */
bool arrow_is_picture(const struct arrow_schema *s, unsigned number, unsigned *bytes, unsigned *path);
/* Calls fn for each class of a column of class labels, in order. 0 or fn's error. */
int arrow_classes(const struct arrow_schema *s, const char *column, int (*fn)(void *arg, const char *name), void *arg);

#endif
