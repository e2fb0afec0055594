/* Aligned columns on stdout. On a terminal the heading is bold, and each row stays on one line: the widest left-aligned
 * column is cut first, and then the last columns move into a table of their own below, with the first column repeated.
 * In a pipe nothing is cut. One thread. */
#ifndef BATCHCTL_TABLE_H
#define BATCHCTL_TABLE_H

#include <stddef.h>

struct table;

/* headings: separated by '|', each optionally begun by '>' for right alignment: ">RANK|STATE". NULL when memory is
 * short. */
struct table *table_create(const char *headings);
void table_destroy(struct table *t);

/* The next cell, row after row. The text is copied and made printable. When memory is short the cell shows "?". */
void table_cell(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Rows so far, the unfinished one included. */
size_t table_n_rows(const struct table *t);

/* indent: spaces before each row. */
void table_print(const struct table *t, unsigned indent);

/* For headings outside of tables: starts and ends bold on a terminal, else "". */
const char *table_bold(void);
const char *table_plain(void);

/* Columns of a line of standard output; 0: it is no terminal. */
unsigned table_line_limit(void);

#endif
