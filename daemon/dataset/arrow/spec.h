/* Which columns of Arrow files become which fields. */
#ifndef BATCHD_ARROW_SPEC_H
#define BATCHD_ARROW_SPEC_H

#include <stdbool.h>

#include "dataset/arrow/ipc.h"
#include "dataset/dataset.h"

enum { ARROW_PATH_BYTES = 1024 };

struct arrow_choice {
	char name[ARROW_NAME_BYTES], column[ARROW_NAME_BYTES];
};
struct arrow_choices {
	struct arrow_choice list[DATASET_MAX_FIELDS];
	unsigned n;
	int image; /* among the list; -1: none */
};
/* Without fields: the one column of pictures, and the label; without pictures, all columns. With fields: a column of pictures is the image. 0 or -EINVAL
 * with err, which lists the columns. */
int arrow_choose(const struct arrow_schema *s, const struct Source *source, const char *file, struct arrow_choices *out,
		 struct dataset_error *err);

/* The number of a column; -1: there is none. */
int arrow_find(const struct arrow_schema *s, const char *column);
/* A picture as HuggingFace keeps it: its bytes, or the path of its file. */
bool arrow_is_picture(const struct arrow_schema *s, unsigned number, unsigned *bytes, unsigned *path);
/* Calls fn for each class of a column of class labels, in order. 0 or fn's error. */
int arrow_classes(const struct arrow_schema *s, const char *column, int (*fn)(void *arg, const char *name), void *arg);

#endif
