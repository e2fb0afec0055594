/* The labels of a list, in one column: classes, whole numbers, or float32 numbers, one or several. Only the last line tells
 * which, so they are kept by name until then. */
#ifndef BATCHD_LIST_LABELS_H
#define BATCHD_LIST_LABELS_H

#include "dataset/columns.h"
#include "dataset/folder/list-number.h"
#include "dataset/folder/manifest.h"
#include "dataset/name-set.h"

/* Starts zeroed, except for names.meter and wanted. */
struct list_labels {
	enum list_kind wanted; /* LIST_ANY: what the cells say */
	struct name_set names; /* of classes, and numbers as they are written */
	size_t width;          /* numbers in a cell; 0: they are names */
	bool all_whole;
	bool all_special; /* all names are "nan" or "inf" */
};

/* *label: the number of the name. -EINVAL with `why`, -ENOMEM, -EFBIG or the meter's error. */
int list_labels_take(struct list_labels *l, const char *name, int64_t *label, char *why, size_t size);
/* Behind the last line: turns the builder's labels, which are numbers of names, into whole numbers, or into classes in the
 * order of their names. Other numbers become the column "label", and the builder's labels the samples' indices. Errors as
 * above. */
int list_labels_end(struct list_labels *l, struct manifest_builder *b, struct columns_builder *columns, char *why,
		    size_t size);
void list_labels_finish(struct list_labels *l);

#endif
