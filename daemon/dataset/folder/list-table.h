/* A list with columns: CSV or TSV with a header, as spreadsheets and pandas write it. It becomes paths, labels and
 * columns of further values. */
#ifndef BATCHD_LIST_TABLE_H
#define BATCHD_LIST_TABLE_H

#include <stdbool.h>

#include "dataset/columns.h"
#include "dataset/folder/list-labels.h"
#include "sources.h"

enum { LIST_TABLE_MAX_CELLS = 4096, LIST_TABLE_MAX_FIELDS = COLUMNS_MAX };

struct list_table {
	char separator;                   /* ',' or '\t' */
	const struct Source *source;      /* its fields are NAME=COLUMN[;COLUMN]...[:KIND]; none: a path and a label */
	struct manifest_builder *builder; /* gets the classes */
	struct columns_builder columns;   /* its meter is the caller's */
	uint64_t n_left_out, first_left_out; /* the caller's: rows that are too long, the line of the first */
	/* private */
	bool has_header, skips_blanks;           /* skips_blanks: before a cell, as the header has them */
	unsigned n_cells, path_cell, label_cell; /* label_cell n_cells: there is none */
	struct text line;                        /* the cells of a line, unquoted */
	const char *cells[LIST_TABLE_MAX_CELLS];
	unsigned n_fields;
	struct list_field {
		char name[COLUMN_NAME_BYTES];
		unsigned first, n; /* in field_cells */
		enum list_kind kind;
		int column; /* -1: not known before the first row */
	} list[LIST_TABLE_MAX_FIELDS];
	unsigned field_cells[LIST_TABLE_MAX_CELLS], n_field_cells;
	struct list_labels labels;
	char told[160]; /* "path, species": the first columns */
	char why[240];
};

/* The separator that a list's name tells: 0 for a list without columns. */
char list_table_separator(const char *path);

/* Takes a line. 1: it was the header, or empty; 0: a row, whose path and label (a number of a name) are given, and whose
 * values are in the columns; -EINVAL with t->why; -ENOMEM, -EFBIG or the meter's error. */
int list_table_take(struct list_table *t, const char *line, size_t n, const char **path, int64_t *label);
/* Behind the last line: turns labels into numbers, or into classes in the order of their names. Errors as above. */
int list_table_end(struct list_table *t);
/* Behind the last line: whether the labels are those of the files, rather than a column or none. */
bool list_table_has_labels(const struct list_table *t);
void list_table_finish(struct list_table *t);

#endif
