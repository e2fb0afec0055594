/* See list-table.h. The first row decides what a column holds, where the caller does not: whole numbers, numbers, several
 * numbers in one cell or in several columns, or text; a later row that differs is an error with its line. Labels in one
 * column have a file of their own, as all of them together tell whether they are whole numbers. */
#include "dataset/folder/list-table.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "dataset/name.h"

char list_table_separator(const char *path)
{
	const char *dot = strrchr(path, '.');

	return !dot ? 0 : !strcasecmp(dot, ".csv") ? ',' : !strcasecmp(dot, ".tsv") ? '\t' : 0;
}

__attribute__((format(printf, 2, 3))) static int refuse(struct list_table *t, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(t->why, sizeof(t->why), fmt, args);
	va_end(args);
	return -EINVAL;
}

/* ---- cells ---- */

/* Unquotes a cell into t->line. *at: after the cell. */
static int take_cell(struct list_table *t, const char **at, const char *end, uint64_t *offset)
{
	const char *from = *at;
	bool quoted;
	char *to;
	int r;

	/* "path, label": where the header has a blank after its separators, so has every line. */
	while ((!t->has_header || t->skips_blanks) && from < end && *from == ' ')
		from++;
	t->skips_blanks = t->skips_blanks || from > *at;
	quoted = from < end && *from == '"';
	r = block_grow(t->line.meter, &t->line.bytes, &t->line.capacity, t->line.n + (size_t)(end - from) + 1, 1);

	if (r < 0)
		return r;
	*offset = t->line.n;
	to = t->line.bytes + *offset;
	for (from += quoted; from < end; from++) {
		if (quoted && *from == '"') {
			if (from + 1 < end && from[1] == '"') {
				*to++ = *from++;
				continue;
			}
			quoted = false;
			continue;
		}
		if (!quoted && *from == t->separator)
			break;
		*to++ = *from;
	}
	*to = '\0';
	t->line.n = (size_t)(to + 1 - t->line.bytes);
	*at = from;
	return quoted ? refuse(t, "a quotation mark is not closed on its line") : 0;
}

static int list_table_split(struct list_table *t, const char *line, size_t n, unsigned *n_cells)
{
	uint64_t at[LIST_TABLE_MAX_CELLS];
	const char *end = line + n;
	int r = 0;

	*n_cells = 0;
	t->line.n = 0;
	for (bool more = true; more;) {
		if (*n_cells == LIST_TABLE_MAX_CELLS)
			return refuse(t, "more than 4096 columns");
		r = take_cell(t, &line, end, &at[*n_cells]);
		if (r < 0)
			return r;
		++*n_cells;
		more = line < end;
		line += more;
	}
	for (unsigned i = 0; i < *n_cells; i++)
		t->cells[i] = t->line.bytes + at[i];
	return 0;
}

/* ---- the header ---- */

static bool list_table_is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Takes the blanks off both ends. */
static size_t trim(const char **name, size_t n)
{
	while (n && list_table_is_blank(**name)) {
		++*name;
		n--;
	}
	while (n && list_table_is_blank((*name)[n - 1]))
		n--;
	return n;
}

static unsigned find_cell(const struct list_table *t, const char *name, size_t n)
{
	unsigned i = 0;

	n = trim(&name, n);
	while (i < t->n_cells && (strlen(t->cells[i]) != n || memcmp(t->cells[i], name, n) != 0))
		i++;
	return i;
}

#define LABEL_COLUMNS "label;class;target"

static unsigned find_any(const struct list_table *t, const char *names)
{
	for (; *names; names += strcspn(names, ";"), names += *names == ';') {
		unsigned i = find_cell(t, names, strcspn(names, ";"));

		if (i < t->n_cells)
			return i;
	}
	return t->n_cells;
}

/* Takes ":KIND" off the end of a list of columns, unless a column has this very name. Returns the bytes before it. */
static size_t take_kind(const struct list_table *t, const char *names, size_t n, enum list_kind *kind)
{
	const char *last = names, *colon = NULL;

	for (const char *at = names; at < names + n; at++) {
		last = *at == ';' ? at + 1 : last;
		colon = *at == ':' ? at : colon;
	}
	if (!colon || colon < last || find_cell(t, last, (size_t)(names + n - last)) < t->n_cells ||
	    !list_kind_find(colon + 1, (size_t)(names + n - colon - 1), kind))
		return n;
	return (size_t)(colon - names);
}

static int shown(size_t n)
{
	return n < 60 ? (int)n : 60;
}

static int refuse_column(struct list_table *t, const char *name, size_t n)
{
	const char *colon = memrchr(name, ':', n);
	size_t n_column = colon ? (size_t)(colon - name) : 0, n_all = 0;
	char all[160] = "";

	for (unsigned i = 0; i < t->n_cells && n_all < sizeof all; i++)
		n_all += (size_t)snprintf(all + n_all, sizeof all - n_all, "%s%.60s", i ? ", " : "", t->cells[i]);
	if (n_all >= sizeof all)
		strcpy(all + sizeof all - 4, "...");
	if (colon && find_cell(t, name, n_column) < t->n_cells)
		return refuse(t, "no column %.*s, and no kind %.*s of column %.*s: expected class, int, float or text",
			      shown(n), name, shown(n - n_column - 1), colon + 1, shown(n_column), name);
	return refuse(t, "no column %.*s; the header has %s", shown(n), name, all);
}

/* A name that two columns have does not say which of them is meant. */
static int check_once(struct list_table *t, unsigned cell)
{
	for (unsigned i = cell + 1; i < t->n_cells; i++) {
		if (strcmp(t->cells[i], t->cells[cell]) == 0)
			return refuse(t, "columns %u and %u both have the name %.60s: rename one of them", cell + 1,
				      i + 1, t->cells[cell]);
	}
	return 0;
}

static int list_table_take_columns(struct list_table *t, struct list_field *f, const char *names, size_t n)
{
	const char *end = names + n;
	int r;

	f->first = t->n_field_cells;
	while (names < end) {
		size_t n_name = 0;
		unsigned cell;

		while (names + n_name < end && names[n_name] != ';')
			n_name++;
		cell = find_cell(t, names, n_name);
		/* "label=label", as a client's list of names alone says it, is the label as it is found without a list. */
		if (cell == t->n_cells && !strcmp(f->name, "label") && n_name == 5 && !memcmp(names, "label", 5))
			cell = find_any(t, LABEL_COLUMNS);
		if (cell == t->n_cells)
			return refuse_column(t, names, n_name);
		r = check_once(t, cell);
		if (r < 0)
			return r;
		if (t->n_field_cells == LIST_TABLE_MAX_CELLS)
			return refuse(t, "the fields have more than 4096 columns");
		t->field_cells[t->n_field_cells++] = cell;
		f->n++;
		names += n_name + 1;
	}
	return f->n ? 0 : refuse(t, "a field without columns");
}

static bool has_label(const struct list_table *t)
{
	for (unsigned k = 0; k < t->n_fields; k++) {
		if (!strcmp(t->list[k].name, "label"))
			return true;
	}
	return t->label_cell < t->n_cells;
}

static int take_field(struct list_table *t, const struct SourcePair *item)
{
	struct list_field f = { .column = -1 };
	int r;

	if (!*item->name || strlen(item->name) >= sizeof(f.name) || t->n_fields == LIST_TABLE_MAX_FIELDS)
		return refuse(t, "fields '%.40s%s%.40s': expected NAME=COLUMN[;COLUMN]...,NAME=...", item->name,
			      *item->name ? "=" : "", item->value);
	strcpy(f.name, item->name);
	if (!strcmp(f.name, "label") && has_label(t))
		return refuse(t, "field 'label' is there twice");
	r = list_table_take_columns(t, &f, item->value, take_kind(t, item->value, strlen(item->value), &f.kind));
	if (r < 0)
		return r;
	if ((f.kind == LIST_CLASS && strcmp(f.name, "label") != 0) ||
	    (f.n > 1 && f.kind != LIST_ANY && f.kind != LIST_FLOAT))
		return refuse(t, "field '%.60s': %s", f.name,
			      f.n > 1 ? "several columns are float" : "only the label is a class");
	if (!strcmp(f.name, "image") && f.n == 1) {
		t->path_cell = t->field_cells[f.first];
	} else if (!strcmp(f.name, "label") && f.n == 1) {
		if (f.kind == LIST_TEXT) {
			return refuse(
				t,
				"field 'label': a text is no label; name the field text, or take its kind for class");
		}
		t->label_cell = t->field_cells[f.first];
		t->labels.wanted = f.kind;
	} else {
		t->list[t->n_fields++] = f;
	}
	return 0;
}

/* A blank beside a name is seen in no editor. The cells are in t->line, and may be cut in place. */
static void trim_header(struct list_table *t)
{
	for (unsigned i = 0; i < t->n_cells; i++) {
		size_t n = trim(&t->cells[i], strlen(t->cells[i]));

		t->line.bytes[t->cells[i] - t->line.bytes + n] = '\0';
	}
}

static void tell_columns(struct list_table *t)
{
	size_t used = 0;

	for (unsigned i = 0; i < t->n_cells; i++) {
		int n = snprintf(t->told + used, sizeof(t->told) - used, "%s%s", i ? ", " : "", t->cells[i]);

		if ((size_t)n >= sizeof(t->told) - used) {
			snprintf(t->told + used, sizeof(t->told) - used, "...");
			return;
		}
		used += (size_t)n;
	}
}

static int list_table_take_header(struct list_table *t)
{
	int r = 0;

	t->has_header = true;
	if (!strncmp(t->cells[0], "\xef\xbb\xbf", 3))
		t->cells[0] += 3; /* the mark of UTF-8 that spreadsheets write */
	trim_header(t);
	tell_columns(t);
	t->path_cell = find_any(t, "path;file;filename;file_name;image;image_path");
	t->label_cell = t->source->n_field ? t->n_cells : find_any(t, LABEL_COLUMNS);
	for (size_t i = 0; !r && i < t->source->n_field; i++)
		r = take_field(t, t->source->field[i]);
	if (!r && t->path_cell < t->n_cells)
		r = check_once(t, t->path_cell);
	if (!r && t->label_cell < t->n_cells)
		r = check_once(t, t->label_cell);
	/* A list without a header must not lose its first sample. */
	return r || t->path_cell < t->n_cells
		       ? r
		       : refuse(t,
				"no column path, file, filename, file_name, image or image_path in the first line: expected "
				"a header; a list of \"path<TAB>label\" without one ends in .txt");
}

/* ---- values ---- */

static int refuse_whole(struct list_table *t, const struct list_field *f, const char *cell)
{
	if (list_exceeds_int64(cell))
		return refuse(t, "%.60s: '%.60s' is too large for int64 (COLUMN:text keeps all digits)", f->name, cell);
	return refuse(t, "%.60s: '%.60s' is no whole number%s", f->name, cell,
		      f->kind == LIST_INT
			      ? ""
			      : ", as the first row has (COLUMN:float takes all as float32, COLUMN:text as texts)");
}

/* The first row decides. */
static int choose_kind(struct list_table *t, struct list_field *f)
{
	const char *cell = t->cells[t->field_cells[f->first]];
	size_t n = list_floats(cell, NULL, COLUMN_MAX_WIDTH);
	int64_t whole;
	int r;

	f->column = (int)t->columns.n;
	if (f->n > 1) {
		r = columns_add(&t->columns, f->name, COLUMN_FLOAT32, f->n);
	} else if (f->kind == LIST_INT || (f->kind == LIST_ANY && list_whole(cell, &whole))) {
		r = columns_add(&t->columns, f->name, COLUMN_INT64, 1);
	} else if (f->kind == LIST_ANY && list_exceeds_int64(cell)) {
		return refuse_whole(t, f, cell);
	} else if (f->kind == LIST_FLOAT || (f->kind == LIST_ANY && n != SIZE_MAX && n > 0)) {
		if (n == SIZE_MAX || !n)
			return refuse(t, "%.60s: '%.60s' is no number", f->name, cell);
		r = columns_add(&t->columns, f->name, COLUMN_FLOAT32, (uint32_t)n);
	} else {
		r = columns_add(&t->columns, f->name, COLUMN_TEXT, 1);
	}
	return r;
}

static int put_floats(struct list_table *t, const struct list_field *f, const struct column_builder *c)
{
	float *values = malloc(c->width * sizeof(*values));
	size_t n = 0;
	int r = 0;

	if (!values)
		return -ENOMEM;
	for (unsigned i = 0; !r && i < f->n; i++) {
		const char *cell = t->cells[t->field_cells[f->first + i]];
		size_t got = list_floats(cell, values + n, c->width - n);

		if (got == SIZE_MAX || (f->n > 1 && got != 1))
			r = refuse(t, "%.60s: '%.60s' is not as many numbers as in the first row", f->name, cell);
		else if (list_exceeds_float32(cell))
			r = refuse(t, "%.60s: '%.60s' is too large for float32 (COLUMN:text keeps it)", f->name, cell);
		n += got;
	}
	if (!r && n != c->width)
		r = refuse(t, "%.60s: fewer numbers than in the first row", f->name);
	r = r ? r : columns_put(&t->columns, (unsigned)f->column, values, c->width * sizeof(*values));
	free(values);
	return r;
}

static int put_value(struct list_table *t, struct list_field *f)
{
	const char *cell = t->cells[t->field_cells[f->first]];
	const struct column_builder *c;
	int64_t whole;
	int r = f->column < 0 ? choose_kind(t, f) : 0;

	if (r < 0)
		return r;
	c = &t->columns.list[f->column];
	switch (c->kind) {
	case COLUMN_INT64:
		return list_whole(cell, &whole) ? columns_put_int(&t->columns, (unsigned)f->column, whole)
						: refuse_whole(t, f, cell);
	case COLUMN_FLOAT32:
		return put_floats(t, f, c);
	default:
		return name_is_utf8(cell, strlen(cell))
			       ? columns_put(&t->columns, (unsigned)f->column, cell, strlen(cell))
			       : refuse(t, "%.60s: text that is not UTF-8", f->name);
	}
}

int list_table_end(struct list_table *t)
{
	return list_labels_end(&t->labels, t->builder, &t->columns, t->why, sizeof(t->why));
}

int list_table_take(struct list_table *t, const char *line, size_t n, const char **path, int64_t *label)
{
	unsigned n_cells;
	int r;

	t->line.meter = t->labels.names.meter = t->columns.meter;
	r = n ? list_table_split(t, line, n, &n_cells) : 1;
	if (r)
		return r;
	if (!t->has_header) {
		t->n_cells = n_cells;
		r = list_table_take_header(t);
		return r ? r : 1;
	}
	if (n_cells != t->n_cells)
		return refuse(t, "another number of columns than in the header");
	*path = t->cells[t->path_cell];
	*label = (int64_t)t->builder->n_files; /* without labels nothing reads it */
	r = t->label_cell < t->n_cells
		    ? list_labels_take(&t->labels, t->cells[t->label_cell], label, t->why, sizeof(t->why))
		    : 0;
	for (unsigned k = 0; !r && k < t->n_fields; k++)
		r = put_value(t, &t->list[k]);
	return r;
}

bool list_table_has_labels(const struct list_table *t)
{
	for (unsigned k = 0; k < t->columns.n; k++) {
		if (!strcmp(t->columns.list[k].name, "label"))
			return false;
	}
	return t->label_cell < t->n_cells;
}

void list_table_finish(struct list_table *t)
{
	meter_give(t->columns.meter, t->line.capacity);
	free(t->line.bytes);
	list_labels_finish(&t->labels);
	columns_builder_finish(&t->columns);
}
