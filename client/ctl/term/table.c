/* Columns as wide as their widest cell.
 *
 * Widths are counted in code points, which is right for everything but combining and double-width characters; those
 * only make a column ragged. */
#include "ctl/term/table.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ctl/ctl.h"

enum { MAX_COLUMNS = 24, MIN_FLEXIBLE = 12, GAP = 2 };

struct table {
	unsigned n_columns;
	char *heading[MAX_COLUMNS];
	bool right[MAX_COLUMNS];
	char **cells; /* row after row; owned */
	size_t n_cells, capacity;
};

static bool table_decorated(void)
{
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && !getenv("NO_COLOR") && term && strcmp(term, "dumb") != 0;
}

const char *table_bold(void)
{
	return table_decorated() ? "\033[1m" : "";
}

const char *table_plain(void)
{
	return table_decorated() ? "\033[0m" : "";
}

static unsigned text_width(const char *text)
{
	unsigned n = 0;

	for (; *text; text++)
		n += (*text & 0xc0) != 0x80;
	return n;
}

struct table *table_create(const char *headings)
{
	struct table *t = calloc(1, sizeof *t);
	char *copy = strdup(headings);
	char *rest = copy;

	if (!t || !copy)
		goto fail;
	for (char *h; (h = strsep(&rest, "|")) && t->n_columns < MAX_COLUMNS; t->n_columns++) {
		t->right[t->n_columns] = *h == '>';
		t->heading[t->n_columns] = strdup(*h == '>' ? h + 1 : h);
		if (!t->heading[t->n_columns])
			goto fail;
	}
	free(copy);
	return t;
fail:
	free(copy);
	table_destroy(t);
	return NULL;
}

void table_destroy(struct table *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n_cells; i++)
		free(t->cells[i]);
	for (unsigned i = 0; i < MAX_COLUMNS; i++)
		free(t->heading[i]);
	free(t->cells);
	free(t);
}

static bool table_grow(struct table *t)
{
	size_t capacity = t->capacity ? 2 * t->capacity : 64;
	char **cells;

	if (t->n_cells < t->capacity)
		return true;
	cells = realloc(t->cells, capacity * sizeof *cells);
	if (!cells)
		return false;
	t->cells = cells;
	t->capacity = capacity;
	return true;
}

void table_cell(struct table *t, const char *fmt, ...)
{
	va_list args;
	char *text = NULL;

	if (!t || !table_grow(t))
		return;
	va_start(args, fmt);
	if (vasprintf(&text, fmt, args) < 0)
		text = NULL;
	va_end(args);
	if (text)
		ctl_make_printable(text);
	t->cells[t->n_cells++] = text;
}

size_t table_n_rows(const struct table *t)
{
	return t ? (t->n_cells + t->n_columns - 1) / t->n_columns : 0;
}

static const char *cell_text(const struct table *t, size_t i)
{
	return t->cells[i] ? t->cells[i] : "?";
}

unsigned table_line_limit(void)
{
	struct winsize w;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) != 0)
		return 0;
	return w.ws_col;
}

static void table_measure(const struct table *t, unsigned indent, unsigned *widths)
{
	unsigned total = indent, widest = 0;
	unsigned limit = table_line_limit();

	for (unsigned c = 0; c < t->n_columns; c++)
		widths[c] = text_width(t->heading[c]);
	for (size_t i = 0; i < t->n_cells; i++) {
		unsigned w = text_width(cell_text(t, i));

		if (w > widths[i % t->n_columns])
			widths[i % t->n_columns] = w;
	}
	for (unsigned c = 0; c < t->n_columns; c++) {
		total += widths[c] + (c ? GAP : 0);
		if (!t->right[c] && (t->right[widest] || widths[c] > widths[widest]))
			widest = c;
	}
	if (!limit || total <= limit || t->right[widest])
		return;
	/* It is cut if then all columns fit and most of its text stays. Otherwise it comes in a block below, as wide as
	 * a line. */
	unsigned excess = total - limit, alone = indent + (widest ? widths[0] + GAP : 0);
	if (widths[widest] > excess + MIN_FLEXIBLE && (widths[widest] - excess) * 3 >= widths[widest] * 2)
		widths[widest] -= excess;
	else if (!widest || limit < alone + MIN_FLEXIBLE)
		widths[widest] = MIN_FLEXIBLE;
	else if (widths[widest] > limit - alone)
		widths[widest] = limit - alone;
}

static void table_put(const char *text, unsigned width, bool right, bool last)
{
	unsigned has = text_width(text);
	unsigned shown = 0;

	if (right)
		printf("%*s", has < width ? (int)(width - has) : 0, "");
	if (has <= width) {
		fputs(text, stdout);
	} else {
		for (; *text && (shown < width - 1 || (*text & 0xc0) == 0x80); text++) {
			shown += (*text & 0xc0) != 0x80;
			if (shown > width - 1)
				break;
			putchar(*text);
		}
		fputs("~", stdout);
	}
	if (!right && !last && has < width)
		printf("%*s", (int)(width - has), "");
	if (!last)
		printf("%*s", GAP, "");
}

/* The columns that are printed side by side: the first, which names the row, and [begin, end). */
struct block {
	unsigned begin, end;
};

/* The columns from `begin` on that fit beside the first; at least one. */
static struct block next_block(const struct table *t, const unsigned *widths, unsigned indent, unsigned begin)
{
	unsigned limit = table_line_limit(), total = indent + widths[0];
	struct block b = { .begin = begin, .end = begin };

	do
		total += GAP + widths[b.end++];
	while (b.end < t->n_columns && (!limit || total + GAP + widths[b.end] <= limit));
	return b;
}

static void print_heading(const struct table *t, const unsigned *widths, const struct block *b, unsigned indent)
{
	printf("%*s%s", (int)indent, "", table_bold());
	table_put(t->heading[0], widths[0], t->right[0], b->begin == b->end);
	for (unsigned c = b->begin; c < b->end; c++)
		table_put(t->heading[c], widths[c], t->right[c], c + 1 == b->end);
	printf("%s\n", table_plain());
}

static void print_row(const struct table *t, const unsigned *widths, const struct block *b, unsigned indent, size_t row)
{
	size_t first = row * t->n_columns, left = t->n_cells - first;
	unsigned end = b->end < left ? b->end : (unsigned)left;

	printf("%*s", (int)indent, "");
	table_put(cell_text(t, first), widths[0], t->right[0], b->begin >= end);
	for (unsigned c = b->begin; c < end; c++)
		table_put(cell_text(t, first + c), widths[c], t->right[c], c + 1 == end);
	putchar('\n');
}

void table_print(const struct table *t, unsigned indent)
{
	unsigned widths[MAX_COLUMNS] = { 0 };
	struct block b = { .end = 1 };

	if (!t)
		return;
	table_measure(t, indent, widths);
	do {
		if (t->n_columns > 1)
			b = next_block(t, widths, indent, b.end);
		else
			b = (struct block){ 1, 1 };
		if (b.begin > 1)
			putchar('\n');
		print_heading(t, widths, &b, indent);
		for (size_t row = 0; row < table_n_rows(t); row++)
			print_row(t, widths, &b, indent, row);
	} while (b.end < t->n_columns);
}
