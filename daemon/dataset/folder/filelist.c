/* files: a list of paths and labels, one sample a line.
 *
 * The list becomes the same index as a walked folder, with a label per file instead of per folder. Folders repeat,
 * usually in runs but not always, so a hash table finds them again. For peers that are not trusted, each folder on the
 * way is opened and checked once, when the list is read. */
#include "dataset/folder/filelist.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset/impl.h"
#include "dataset/file.h"
#include "dataset/folder/list-table.h"
#include "dataset/folder/tree.h"
#include "base/log.h"

#define LIST_MAX_BYTES (8ull << 30)

enum { MAX_PATH_BYTES = 4095, MAX_NAME_BYTES = 255 };
/* A list is read piece by piece, so that its length costs no memory. A line of a table may have a long text. */
enum { MAX_LINE_BYTES = 64 << 10, MAX_ROW_BYTES = 1 << 20, PIECE_BYTES = MAX_ROW_BYTES + (256 << 10) };

struct parse {
	const char *name;
	uint64_t line; /* from 1 */
	bool beneath;
	struct dataset_error *err;
	struct manifest_builder builder;
	uint32_t *table;            /* open addressing over folders; folder + 1, 0 empty */
	size_t n_table;             /* power of two */
	uint32_t last_dir;          /* of the previous line: lists have runs */
	struct list_table *columns; /* NULL: a list of paths and labels alone */
	bool is_in_long;            /* the bytes that come are of a line that is left out */
};

static int bad_line(const struct parse *p, enum dataset_code code, int error, const char *what)
{
	return dataset_fail(p->err, code, error, "%.200s:%llu: %s", p->name, (unsigned long long)p->line, what);
}

static int filelist_no_room(const struct parse *p, int error)
{
	return bad_line(p, DATASET_E_LIMIT, error,
			error == -EFBIG    ? "more names than one data set may have (4 GiB of them)"
			: error == -EDQUOT ? "more names than there is memory for"
					   : "out of memory");
}

static bool is_dir(const struct parse *p, uint32_t dir, const char *path, size_t n)
{
	const char *known = p->builder.paths.bytes + p->builder.dirs[dir].path;

	return !strncmp(known, path, n) && !known[n];
}

static size_t table_place(const struct parse *p, const char *path, size_t n)
{
	size_t at = XXH3_64bits(path, n) & (p->n_table - 1);

	while (p->table[at] && !is_dir(p, p->table[at] - 1, path, n))
		at = (at + 1) & (p->n_table - 1);
	return at;
}

static int filelist_grow_table(struct parse *p)
{
	size_t n = p->n_table ? p->n_table * 2 : 256;
	int r = meter_take(p->builder.meter, n * sizeof(*p->table));
	uint32_t *larger = r ? NULL : calloc(n, sizeof(*larger));

	if (!larger)
		return filelist_no_room(p, r ? r : -ENOMEM);
	meter_give(p->builder.meter, p->n_table * sizeof(*p->table));
	free(p->table);
	p->table = larger;
	p->n_table = n;
	for (size_t i = 0; i < p->builder.n_dirs; i++) {
		const char *path = p->builder.paths.bytes + p->builder.dirs[i].path;

		p->table[table_place(p, path, strlen(path))] = (uint32_t)i + 1;
	}
	return 0;
}

static int find_dir(struct parse *p, const char *path, size_t n, uint32_t *dir)
{
	struct manifest_dir none = { .class_id = MANIFEST_NO_CLASS };
	size_t at;
	int r;

	if (p->builder.n_dirs && is_dir(p, p->last_dir, path, n)) {
		*dir = p->last_dir;
		return 0;
	}
	if (p->builder.n_dirs * 2 >= p->n_table) {
		r = filelist_grow_table(p);
		if (r < 0)
			return r;
	}
	at = table_place(p, path, n);
	if (!p->table[at]) {
		r = manifest_add_dir(&p->builder, path, n, &none);
		if (r < 0)
			return filelist_no_room(p, r);
		p->table[at] = (uint32_t)p->builder.n_dirs;
	}
	*dir = p->table[at] - 1;
	return 0;
}

/* Adds the folders above, so that the caller can check each. */
static int add_dirs_above(struct parse *p, const char *path, size_t n)
{
	uint32_t dir;

	for (size_t i = 1; i < n; i++) {
		if (path[i] == '/' && path[i - 1] != '/') {
			int r = find_dir(p, path, i, &dir);

			if (r < 0)
				return r;
		}
	}
	return 0;
}

static bool leads_out(const char *path, size_t n)
{
	if (*path == '/')
		return true;
	for (size_t i = 0; i < n; i++) {
		if ((i == 0 || path[i - 1] == '/') && n - i >= 2 && !memcmp(path + i, "..", 2) &&
		    (n - i == 2 || path[i + 2] == '/'))
			return true;
	}
	return false;
}

static int add_sample(struct parse *p, const char *path, size_t n_path, int64_t label)
{
	const char *slash = memrchr(path, '/', n_path);
	const char *file = slash ? slash + 1 : path;
	size_t n_file = (size_t)(path + n_path - file);
	/* "x.jpg" is in ".", "/x.jpg" in "/", "a/x.jpg" in "a". */
	const char *dir_path = slash ? path : ".";
	size_t n_dir = !slash || slash == path ? 1 : (size_t)(slash - path);
	uint32_t dir;
	int r = 0;

	if (!n_file || n_file > MAX_NAME_BYTES || n_path > MAX_PATH_BYTES)
		return bad_line(p, DATASET_E_INVALID, -EINVAL,
				n_file ? "the path is too long" : "the path ends in '/': expected a file");
	if (p->beneath && leads_out(path, n_path))
		return bad_line(
			p, DATASET_E_ACCESS, -EACCES,
			"the path leads out of the list's folder, which only a data set named in the configuration may do");
	if (p->beneath)
		r = add_dirs_above(p, dir_path, n_dir);
	r = r < 0 ? r : find_dir(p, dir_path, n_dir, &dir);
	if (r < 0)
		return r;
	p->last_dir = dir;
	r = manifest_add_labelled_file(&p->builder, dir, file, n_file, label);
	return r < 0 ? filelist_no_room(p, r) : 0;
}

/* Strictly a decimal int64. */
static bool parse_label(const char *text, size_t n, int64_t *label)
{
	bool negative = n && *text == '-', has_sign = negative || (n && *text == '+');
	uint64_t value = 0, most = (uint64_t)INT64_MAX + negative;

	text += has_sign;
	n -= has_sign;
	if (!n)
		return false;
	for (size_t i = 0; i < n; i++) {
		unsigned digit = (unsigned)(text[i] - '0');

		if (digit > 9 || value > (most - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*label = negative ? (int64_t)(0 - value) : (int64_t)value;
	return true;
}

static bool filelist_is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static int parse_row(struct parse *p, const char *line, size_t n)
{
	const char *path;
	int64_t label;
	int r;

	n -= n && line[n - 1] == '\r';
	if (memchr(line, '\0', n))
		return bad_line(p, DATASET_E_INVALID, -EINVAL, "a zero byte: expected text");
	r = list_table_take(p->columns, line, n, &path, &label);
	if (r < 0)
		return r == -EINVAL ? bad_line(p, DATASET_E_INVALID, r, p->columns->why) : filelist_no_room(p, r);
	return r ? 0 : add_sample(p, path, strlen(path), label);
}

static int parse_line(struct parse *p, const char *line, size_t n)
{
	const char *tab, *gap;
	size_t n_path;
	int64_t label;

	if (p->line == 1 && n >= 3 && !memcmp(line, "\xef\xbb\xbf", 3)) {
		line += 3; /* the mark of UTF-8 that editors write */
		n -= 3;
	}
	n -= n && line[n - 1] == '\r';
	while (n && filelist_is_blank(line[n - 1]))
		n--;
	while (n && filelist_is_blank(*line)) {
		line++;
		n--;
	}
	if (!n || *line == '#')
		return 0;
	if (memchr(line, '\0', n))
		return bad_line(p, DATASET_E_INVALID, -EINVAL,
				"a zero byte: expected text, one \"path<TAB>label\" a line");
	tab = memrchr(line, '\t', n);
	gap = tab ? tab : memrchr(line, ' ', n);
	if (!gap)
		return bad_line(p, DATASET_E_INVALID, -EINVAL, "no label: expected \"path<TAB>label\"");
	n_path = (size_t)(gap - line);
	while (gap < line + n && filelist_is_blank(*gap))
		gap++;
	if (!parse_label(gap, (size_t)(line + n - gap), &label))
		return bad_line(p, DATASET_E_INVALID, -EINVAL,
				"the label is not a whole number of 64 bits: expected \"path<TAB>label\"");
	while (!tab && n_path && line[n_path - 1] == ' ')
		n_path--;
	while (tab && n_path && line[n_path - 1] == '\t')
		n_path--;
	return add_sample(p, line, n_path, label);
}

static int begin_list(struct parse *p)
{
	uint32_t root;

	return find_dir(p, ".", 1, &root);
}

static size_t most_bytes(const struct parse *p)
{
	return p->columns ? MAX_ROW_BYTES : MAX_LINE_BYTES;
}

/* A row that is too long is one bad sample. Anything else of that length, and all zero bytes, are no list. */
static int take_long(struct parse *p, const char *bytes, size_t n)
{
	if (!p->columns)
		return bad_line(p, DATASET_E_INVALID, -EINVAL,
				"a line of more than 64 KiB: expected text, one \"path<TAB>label\" a line");
	if (!p->columns->has_header)
		return bad_line(p, DATASET_E_INVALID, -EINVAL,
				"a line of more than 1 MiB, which is the most that a table's may have: expected a "
				"header, as .csv and .tsv have one");
	if (memchr(bytes, '\0', n))
		return bad_line(p, DATASET_E_INVALID, -EINVAL, "a zero byte: expected text");
	if (!p->is_in_long && !p->columns->n_left_out++)
		p->columns->first_left_out = p->line;
	return 0;
}

static int take_line(struct parse *p, const char *line, size_t n)
{
	if (n > most_bytes(p) || p->is_in_long) {
		int r = take_long(p, line, n);

		p->is_in_long = false;
		return r;
	}
	return (p->columns ? parse_row : parse_line)(p, line, n);
}

/* Parses the lines in these bytes; with `last` also a final line without newline. *n_done: number of bytes parsed. */
static int parse_lines(struct parse *p, const char *bytes, size_t n, bool last, size_t *n_done)
{
	const char *line = bytes, *end = bytes + n;
	int r = 0;

	while (!r && line < end) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));

		if (!stop && !last)
			break;
		stop = stop ? stop : end;
		r = take_line(p, line, (size_t)(stop - line));
		line = stop < end ? stop + 1 : end;
		p->line++;
	}
	*n_done = (size_t)(line - bytes);
	return r;
}

static int end_list(struct parse *p, int r, struct manifest *out)
{
	if (!r && !p->builder.n_files)
		r = dataset_fail(p->err, DATASET_E_INVALID, -EINVAL, "%.300s: the list names no file%s", p->name,
				 p->columns && p->columns->n_left_out ? " in a line of at most 1 MiB" : "");
	if (!r && p->columns) {
		r = list_table_end(p->columns);
		if (r == -EINVAL)
			r = dataset_fail(p->err, DATASET_E_INVALID, r, "%.200s: %s", p->name, p->columns->why);
		else if (r < 0)
			r = filelist_no_room(p, r);
	}
	if (!r) {
		r = manifest_build(&p->builder, out);
		r = r < 0 ? filelist_no_room(p, r) : 0;
	}
	manifest_builder_finish(&p->builder);
	free(p->table);
	return r;
}

int filelist_parse(const char *bytes, size_t n_bytes, const char *name, bool beneath, struct manifest *out,
		   struct dataset_error *err)
{
	struct parse p = { .name = name, .line = 1, .beneath = beneath, .err = err };
	size_t n_done;
	int r = begin_list(&p);

	r = r ? r : parse_lines(&p, bytes, n_bytes, true, &n_done);
	return end_list(&p, r, out);
}

/* Moves on through the file: keeps the rest of the previous piece, and fills it up. */
static int read_piece(int fd, char *piece, size_t *n, uint64_t *at)
{
	ssize_t got;

	do {
		got = pread(fd, piece + *n, PIECE_BYTES - *n, (off_t)*at);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	*n += (size_t)got;
	*at += (uint64_t)got;
	return got > 0;
}

static int parse_file(struct parse *p, int fd, char *piece)
{
	size_t n = 0, n_done;
	uint64_t at = 0;
	int r = begin_list(p), more = 1;

	while (!r && more) {
		more = read_piece(fd, piece, &n, &at);
		if (more < 0)
			return dataset_fail_errno(p->err, -more, p->name);
		if (at > LIST_MAX_BYTES)
			return bad_line(p, DATASET_E_LIMIT, -EFBIG, "the list is longer than 8 GiB");
		r = parse_lines(p, piece, n, !more, &n_done);
		n -= n_done;
		memmove(piece, piece + n_done, n);
		if (!r && (n > most_bytes(p) || (p->is_in_long && n))) {
			r = take_long(p, piece, n);
			p->is_in_long = true;
			n = 0;
		}
	}
	return r;
}

/* An early report of errors that reading would find: a peer must be able to search every folder on the way. Missing
 * folders are reported when their files are read. */
static int check_dirs(const struct dataset_source *source, int root_fd, const struct manifest *ix, bool *crosses,
		      struct dataset_error *err)
{
	if (source->access->trusted) {
		*crosses = tree_reaches_server(root_fd, ix, source->access);
		return 0;
	}
	for (uint32_t i = 0; i < ix->n_dirs; i++) {
		const char *path = manifest_dir_path(ix, i);
		int fd = dir_open_first(root_fd, path, source->access, crosses);

		if (fd >= 0)
			close(fd);
		else if (fd != -ENOENT && fd != -ENOTDIR)
			return dataset_fail_errno(err, -fd, path);
	}
	return 0;
}

/* Opens the list: from the peer's descriptor, or by path for trusted sources without one. */
static int filelist_open_list(const struct dataset_source *source, const char *path, struct dataset_error *err)
{
	struct stat st;
	int fd, r;

	if (source->n_fds >= 1) {
		fd = fcntl(source->fds[0], F_DUPFD_CLOEXEC, 3);
		fd = fd < 0 ? -errno : fd;
	} else if (source->access->trusted) {
		fd = file_open(path, &st);
	} else {
		return dataset_fail(
			err, DATASET_E_ACCESS, -EACCES,
			"%s: not named in the configuration, and the client sent no descriptors of the list and its folder",
			path);
	}
	if (fd < 0)
		return fd == -EINVAL ? dataset_fail(err, DATASET_E_INVALID, fd, "%s: not a regular file", path)
				     : dataset_fail_errno(err, -fd, path);
	r = access_check_file_fd(fd, path, &st, err);
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

static int filelist_read_list(const struct dataset_source *source, const char *path, struct list_table *columns,
			      struct manifest *out, struct dataset_error *err)
{
	struct parse p = { .name = path,
			   .line = 1,
			   .beneath = !source->access->trusted,
			   .err = err,
			   .builder = { .meter = source->meter },
			   .columns = columns };
	int fd = filelist_open_list(source, path, err), r;
	char *piece;

	if (fd < 0)
		return fd;
	if (columns)
		columns->builder = &p.builder;
	piece = malloc(PIECE_BYTES);
	r = piece ? parse_file(&p, fd, piece) : dataset_fail_errno(err, ENOMEM, path);
	free(piece);
	close(fd);
	return end_list(&p, r, out);
}

static int filelist_open_folder(const struct dataset_source *source, const char *path, struct dataset_error *err)
{
	const char *slash = strrchr(path, '/');
	char folder[4096];

	snprintf(folder, sizeof(folder), "%.*s",
		 !slash          ? 1
		 : slash == path ? 1
				 : (int)(slash - path),
		 slash ? path : ".");
	return tree_open_root(source, 1, folder, err);
}

static void tell_left_out(struct dataset *ds, const char *path, const struct list_table *t)
{
	ds->n_left_out = t->n_left_out;
	snprintf(
		ds->left_out, sizeof(ds->left_out),
		"%llu of %llu samples are left out; the first, %.200s:%llu: a line of more than 1 MiB, which is the most that "
		"a table's may have",
		(unsigned long long)ds->n_left_out, (unsigned long long)(ds->n_left_out + ds->n), path,
		(unsigned long long)t->first_left_out);
	log_record(LOG_LEVEL_WARNING, "samples-left-out", "%s", ds->left_out);
}

static int open_tree(const struct dataset_source *source, const char *path, struct list_table *columns,
		     struct dataset **out, struct dataset_error *err)
{
	struct manifest index = { 0 };
	bool crosses = false;
	int root_fd = filelist_open_folder(source, path, err), r;

	if (root_fd < 0)
		return root_fd;
	r = filelist_read_list(source, path, columns, &index, err);
	r = r < 0 ? r : check_dirs(source, root_fd, &index, &crosses, err);
	if (r < 0) {
		manifest_finish(&index);
		close(root_fd);
		return r;
	}
	r = tree_create(source, path, root_fd, &index, crosses, out, err);
	if (!r) {
		const char *slash = strrchr(path, '/');

		snprintf((*out)->list_folder, sizeof((*out)->list_folder), "%.*s",
			 !slash          ? 1
			 : slash == path ? 1
					 : (int)(slash - path),
			 slash ? path : ".");
	}
	if (!r && columns && columns->n_left_out)
		tell_left_out(*out, path, columns);
	if (!r && columns) {
		r = tree_add_columns(*out, &columns->columns, list_table_has_labels(columns), err);
		if (!r && !columns->source->n_field && !(*out)->label)
			snprintf(
				(*out)->no_label, sizeof((*out)->no_label),
				"%.120s: no label: no column label, class or target among %s. Name the one that is, as "
				"fields={\"image\": \"image\", \"label\": COLUMN}, or for images alone give "
				"fields=(\"image\",), or #image=COLUMN after the name",
				path, columns->told);
		if (r < 0) {
			dataset_destroy(*out);
			*out = NULL;
		}
	}
	return r;
}

int filelist_open(const struct dataset_source *source, const char *rest, struct dataset **out,
		  struct dataset_error *err)
{
	const struct Source *s = source->part;
	const char *path = s->part[0]->path;
	struct list_table *columns = NULL;
	int r;

	(void)rest;
	if (list_table_separator(path)) {
		columns = calloc(1, sizeof(*columns));
		if (!columns)
			return dataset_fail_errno(err, ENOMEM, path);
		columns->separator = list_table_separator(path);
		columns->source = s;
		columns->columns.meter = source->meter;
	} else if (s->n_field) {
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL,
				    "%.200s: fields of a list need columns with names: a .csv or .tsv with a header",
				    path);
	}
	r = open_tree(source, path, columns, out, err);
	if (columns)
		list_table_finish(columns);
	free(columns);
	return r;
}
