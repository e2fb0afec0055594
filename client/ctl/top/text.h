/* The text of one look of `batchctl top`. */
#ifndef BATCHCTL_TOP_TEXT_H
#define BATCHCTL_TOP_TEXT_H

#include <stdio.h>

#include "ctl/top/rows.h"

struct top_view {
	const json_t *status;
	const char *job; /* only this one is shown; NULL: all */
	const struct top_rows *rows;
	enum top_sort sort;
	unsigned columns; /* of the screen; 0: as wide as it needs */
	unsigned lines;   /* for the rows of the table; 0: all */
	size_t first;     /* row at the top */
	size_t chosen;    /* marked row; (size_t)-1: none */
	bool colours;
	double seconds; /* since the look before; 0: there was none */
};

/* Two or more lines about the daemon: workers, memory, caches, GPUs, the verdict. Returns how many. */
unsigned top_print_head(FILE *f, const struct top_view *v);
/* The heading and the rows that there is room for. */
void top_print_table(FILE *f, const struct top_view *v);
/* One trainer and its job: a bar for each state, the stream, caches, bad samples. */
void top_print_detail(FILE *f, const struct top_view *v, const struct top_row *r);

#endif
