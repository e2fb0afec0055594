/* tokens: windows of token files, as language models are trained on.
 *
 *     tokens:FILE[,FILE...],length=T[,OPTION=VALUE...]
 *
 * A window is T + 1 consecutive tokens of one file, cast to int64: x is all but the last, y all but the first. Sequential
 * windows begin every `stride` tokens (T unless given) and never cross files. A random window begins at a place that
 * depends on seed and index alone, any of them equally likely, so the data set is endless unless `samples` limits it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dataset/impl.h"
#include "dataset/arrays/gather.h"
#include "dataset/mapped.h"
#include "dataset/servers.h"
#include "dataset/arrays/token-file.h"
#include "base/parse.h"
#include "base/io-full.h"

enum {
	MAX_FILES = 4096,
	MAX_LENGTH = 1 << 24,
	AHEAD_LINES = 8, /* of the next window, prefetched before this one is copied */
	LINE_BYTES = 64,
};

struct token_file {
	struct mapped file;
	struct token_layout layout;
	const char *tokens;
	size_t token_bytes;
	uint64_t first; /* windows (random: starts) of the files before this one */
};

struct tokens {
	struct dataset base;
	struct token_file *files;
	struct sigbus_range *ranges; /* of the files, in their order */
	unsigned n_files, n_allocated;
	/* Options; 0: not given. */
	uint64_t length, stride, samples, seed;
	enum dtype dtype;
	bool has_dtype, is_random, whole; /* whole: a row is T + 1 tokens, instead of x and y */
	uint64_t n_starts;                /* random: of all files */
};

struct window {
	const struct token_file *file;
	uint64_t start; /* its first token */
};

/* splitmix64's finalizer, twice: of the seed, then of the index. */
static uint64_t tokens_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* Uniform below n_starts, but for n_starts / 2^64: the high half of a product. */
static uint64_t tokens_draw(const struct tokens *t, uint64_t index)
{
	return (uint64_t)(((unsigned __int128)tokens_mix(tokens_mix(t->seed) ^ index) * t->n_starts) >> 64);
}

/* The file that has the number-th window or start. */
static const struct token_file *find_file(const struct tokens *t, uint64_t number)
{
	unsigned from = 0, to = t->n_files;

	while (to - from > 1) {
		unsigned middle = (from + to) / 2;

		if (t->files[middle].first <= number)
			from = middle;
		else
			to = middle;
	}
	return &t->files[from];
}

static struct window find_window(const struct tokens *t, uint64_t index)
{
	uint64_t number = t->is_random ? tokens_draw(t, index) : index;
	const struct token_file *f = find_file(t, number);

	return (struct window){ f, (number - f->first) * (t->is_random ? 1 : t->stride) };
}

static const char *address(const struct window *w)
{
	return w->file->tokens + w->start * w->file->token_bytes;
}

static void tokens_prefetch(const struct tokens *t, const struct window *w)
{
	size_t n = (t->length + 1) * w->file->token_bytes;
	const char *at = address(w);

	for (size_t i = 0; i < n && i < AHEAD_LINES * LINE_BYTES; i += LINE_BYTES)
		__builtin_prefetch(at + i);
}

/* x, y: NULL where they are not wanted. Of whole windows, y is the index. */
static void copy_windows(const struct tokens *t, const uint64_t *indices, size_t n, int64_t *x, int64_t *y)
{
	size_t row = t->length + t->whole;
	struct window next = find_window(t, indices[0]);

	for (size_t i = 0; i < n; i++) {
		struct window w = next;

		if (i + 1 < n) {
			next = find_window(t, indices[i + 1]);
			tokens_prefetch(t, &next);
		}
		if (x)
			widen_int64(x + i * row, address(&w), w.file->layout.dtype, row);
		if (y && t->whole)
			y[i] = (int64_t)indices[i];
		else if (y)
			widen_int64(y + i * row, address(&w) + w.file->token_bytes, w.file->layout.dtype, row);
	}
}

/* The size of each file that was read is asked once, if the rows are sorted by file or there is one file. */
static int tokens_check_whole(const struct tokens *t, const uint64_t *indices, size_t n, struct dataset_error *err)
{
	const struct token_file *last = NULL;

	for (size_t i = 0; i < n; i++) {
		const struct token_file *f = t->n_files == 1 ? t->files : find_window(t, indices[i]).file;

		if (f != last && !mapped_is_whole(&f->file))
			return mapped_cut_short(&f->file, err);
		last = f;
		if (t->n_files == 1)
			break;
	}
	return 0;
}

static int tokens_gather(struct dataset *ds, const uint64_t *indices, size_t n, void *const rows[],
			 struct dataset_error *err)
{
	struct tokens *t = (struct tokens *)ds;
	struct sigbus_guard guard = { .ranges = t->ranges, .n_ranges = t->n_files };

	if (!n)
		return 0;
	if (sigsetjmp(guard.landing, 0)) {
		int r = tokens_check_whole(t, indices, n, err);

		return r < 0 ? r
			     : dataset_fail(err, DATASET_E_BAD_DATA, -EIO, "%s: cannot be read", t->files[0].file.name);
	}
	sigbus_guard_enter(&guard);
	copy_windows(t, indices, n, rows[0], rows[1]);
	sigbus_guard_leave();
	return tokens_check_whole(t, indices, n, err);
}

static void tokens_name(const struct dataset *ds, uint64_t index, char *buf, size_t size)
{
	const struct tokens *t = (const struct tokens *)ds;
	struct window w = find_window(t, index);

	snprintf(buf, size, "%s, tokens %llu to %llu", w.file->file.name, (unsigned long long)w.start,
		 (unsigned long long)(w.start + t->length));
}

static void tokens_destroy(struct dataset *ds)
{
	struct tokens *t = (struct tokens *)ds;

	for (unsigned i = 0; i < t->n_files; i++)
		mapped_finish(&t->files[i].file);
	free(t->files);
	free(t->ranges);
	free(t);
}

static const struct dataset_ops tokens_ops = { .destroy = tokens_destroy,
					       .gather = tokens_gather,
					       .name = tokens_name };

/* ---- options ---- */

static int set_count(const char *value, uint64_t most, uint64_t *out)
{
	return number_parse(value, out) == 0 && *out >= 1 && *out <= most ? 0 : -EINVAL;
}

static int tokens_set_length(struct tokens *t, const char *value)
{
	return set_count(value, MAX_LENGTH, &t->length);
}

static int set_stride(struct tokens *t, const char *value)
{
	return set_count(value, INT64_MAX, &t->stride);
}

static int set_samples(struct tokens *t, const char *value)
{
	return set_count(value, INT64_MAX, &t->samples);
}

static int tokens_set_seed(struct tokens *t, const char *value)
{
	return number_parse(value, &t->seed);
}

static int set_windows(struct tokens *t, const char *value)
{
	t->is_random = !strcmp(value, "random");
	return t->is_random || !strcmp(value, "sequential") ? 0 : -EINVAL;
}

static int set_form(struct tokens *t, const char *value)
{
	t->whole = !strcmp(value, "whole");
	return t->whole || !strcmp(value, "pair") ? 0 : -EINVAL;
}

static int tokens_set_dtype(struct tokens *t, const char *value)
{
	t->has_dtype = true;
	for (int k = DTYPE_UINT8; k <= DTYPE_UINT32; k++) {
		if (token_dtype_is_known((enum dtype)k) && !strcmp(value, dtype_name((enum dtype)k))) {
			t->dtype = (enum dtype)k;
			return 0;
		}
	}
	return -EINVAL;
}

static const struct {
	const char *name;
	int (*set)(struct tokens *t, const char *value);
	const char *expected;
} options[] = {
	{ "length", tokens_set_length, "tokens of a window, 1 to 16777216" },
	{ "stride", set_stride, "a number of tokens, at least 1" },
	{ "samples", set_samples, "a number of windows, at least 1" },
	{ "seed", tokens_set_seed, "a number of at most 64 bits" },
	{ "windows", set_windows, "sequential or random" },
	{ "form", set_form, "pair or whole" },
	{ "dtype", tokens_set_dtype, "uint16, uint32, or another integer type" },
};
enum { N_OPTIONS = sizeof(options) / sizeof(options[0]) };

static int take_option(struct tokens *t, const struct SourcePair *o, unsigned *seen, struct dataset_error *err)
{
	unsigned k = 0;

	while (k < N_OPTIONS && strcmp(options[k].name, o->name))
		k++;
	if (k == N_OPTIONS || *seen & 1u << k)
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "tokens: %.64s: %s", o->name,
				    k == N_OPTIONS ? "no such option" : "expected it once");
	*seen |= 1u << k;
	return options[k].set(t, o->value) == 0
		       ? 0
		       : dataset_fail(err, DATASET_E_INVALID, -EINVAL, "tokens: %s=%.64s: expected %s", o->name,
				      o->value, options[k].expected);
}

static int tokens_check_options(struct tokens *t, struct dataset_error *err)
{
	const char *complaint = !t->length                   ? "length=T is missing: the tokens of a window"
				: !t->n_allocated            ? "no file is named"
				: t->n_allocated > MAX_FILES ? "more than 4096 files"
				: t->is_random && t->stride  ? "stride goes with windows=sequential"
				: !t->is_random && (t->samples || t->seed) ? "samples and seed go with windows=random"
									   : NULL;

	if (complaint) {
		return dataset_fail(
			err, DATASET_E_INVALID, -EINVAL,
			"tokens: %s; expected tokens:FILE[,FILE...],length=T[,windows=random][,dtype=uint16]",
			complaint);
	}
	t->stride = t->stride ? t->stride : t->length;
	return 0;
}

/* ---- files ---- */

/* An index of documents that is being read. */
struct index_reading {
	int fd;
	const struct dataset_source *source;
};

static int tokens_read_at(void *arg, uint64_t at, void *to, size_t n)
{
	const struct index_reading *i = arg;
	ssize_t got = dataset_is_stopped(i->source) ? -ECANCELED : io_full_read(i->fd, to, n, (off_t)at);

	return got < 0 ? (int)got : (size_t)got == n ? 0 : -EIO;
}

static int fail_format(const struct mapped *m, int error, const struct token_error *why, struct dataset_error *err)
{
	return error == -EINVAL ? dataset_fail(err, DATASET_E_INVALID, error, "%s: %s", m->name, why->text)
				: dataset_fail_errno(err, -error, m->name);
}

/* Reads the layout of a file of its own kind. */
static int read_plain(const struct tokens *t, struct token_file *f, const struct stat *st, struct dataset_error *err)
{
	unsigned char head[TOKEN_HEAD_BYTES];
	struct token_error why;
	ssize_t n = io_full_read(f->file.fd, head, sizeof(head), 0);
	int r;

	if (n < 0)
		return dataset_fail_errno(err, (int)-n, f->file.name);
	r = token_file_read(head, (size_t)n, (uint64_t)st->st_size, t->dtype, t->has_dtype, &f->layout, &why);
	return r < 0 ? fail_format(&f->file, r, &why, err) : 0;
}

static bool is_index(const char *path)
{
	size_t n = strlen(path);

	return n > 4 && !strcmp(path + n - 4, ".idx");
}

/* Opens an .idx, which tells the layout, and the .bin beside it. They come as two descriptors, in this order. */
static int open_indexed(const struct tokens *t, struct token_file *f, const struct dataset_source *source,
			unsigned *which, char *path, struct stat *st, struct dataset_error *err)
{
	struct mapped index = { .fd = -1 };
	struct token_error why = { "" };
	struct stat index_st;
	int r = mapped_open(&index, source, *which, path, &index_st, err);

	memcpy(path + strlen(path) - 4, ".bin", 4);
	if (r == 0)
		r = mapped_open(&f->file, source, *which + 1, path, st, err);
	*which += 2;
	if (r == 0) {
		struct index_reading reading = { index.fd, source };

		r = token_index_read(tokens_read_at, &reading, (uint64_t)index_st.st_size, (uint64_t)st->st_size,
				     &f->layout, &why);
		r = r < 0 ? fail_format(&index, r, &why, err) : 0;
	}
	if (r == 0 && t->has_dtype && t->dtype != f->layout.dtype)
		r = dataset_fail(err, DATASET_E_INVALID, -EINVAL, "%s: its tokens are %s, not %s: leave dtype out",
				 index.name, dtype_name(f->layout.dtype), dtype_name(t->dtype));
	mapped_finish(&index);
	return r;
}

static int map_tokens(const struct tokens *t, struct token_file *f, const struct dataset_source *source,
		      const struct stat *st, struct dataset_error *err)
{
	uint64_t n_bytes;

	f->token_bytes = dtype_bytes(f->layout.dtype);
	n_bytes = f->layout.n_tokens * f->token_bytes;
	if (f->layout.n_tokens <= t->length)
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL,
				    "%s: it has %llu tokens, and a window of length %llu takes %llu", f->file.name,
				    (unsigned long long)f->layout.n_tokens, (unsigned long long)t->length,
				    (unsigned long long)t->length + 1);
	return mapped_map(&f->file, source, st, f->layout.offset_bytes + n_bytes, t->length * f->token_bytes, err);
}

static int tokens_open_file(struct tokens *t, const struct dataset_source *source, unsigned *which, char *path,
			    uint64_t *content, struct dataset_error *err)
{
	struct token_file *f = &t->files[t->n_files++];
	struct stat st;
	int r;

	f->file.fd = -1;
	if (is_index(path)) {
		r = open_indexed(t, f, source, which, path, &st, err);
	} else {
		r = mapped_open(&f->file, source, (*which)++, path, &st, err);
		r = r < 0 ? r : read_plain(t, f, &st, err);
	}
	if (r < 0)
		return r;
	*content = mapped_probe(&f->file, f->layout.offset_bytes, f->layout.n_tokens * dtype_bytes(f->layout.dtype),
				XXH3_64bits_withSeed(&f->layout.n_tokens, sizeof(f->layout.n_tokens), *content));
	r = map_tokens(t, f, source, &st, err);
	if (r == 0) {
		f->tokens = f->file.map + f->layout.offset_bytes;
		t->ranges[t->n_files - 1] = mapped_range(&f->file);
		t->base.server = servers_both(t->base.server, f->file.server);
		t->base.memory_bytes += f->file.held_bytes;
	}
	return r;
}

/* ---- opening ---- */

static int tokens_take(struct tokens *t, const struct Source *s, struct dataset_error *err)
{
	unsigned seen = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->n_option; i++)
		r = take_option(t, s->option[i], &seen, err);
	for (size_t i = 0; r == 0 && i < s->n_part; i++)
		if (!*s->part[i]->path)
			r = dataset_fail(err, DATASET_E_INVALID, -EINVAL, "tokens: nothing stands between two commas");
	t->n_allocated = (unsigned)s->n_part;
	return r < 0 ? r : tokens_check_options(t, err);
}

static int open_files(struct tokens *t, const struct dataset_source *source, struct dataset_error *err)
{
	const struct Source *s = source->part;
	uint64_t content = (t->length << 1 | t->whole) ^ (t->is_random ? tokens_mix(t->seed) : t->stride << 32);
	unsigned which = 0;
	int r = meter_take(source->meter, t->n_allocated * (sizeof(*t->files) + sizeof(*t->ranges)));

	if (r < 0)
		return dataset_fail_errno(err, -r, "tokens: files");
	t->base.memory_bytes = t->n_allocated * (sizeof(*t->files) + sizeof(*t->ranges));
	t->files = calloc(t->n_allocated, sizeof(*t->files));
	t->ranges = calloc(t->n_allocated, sizeof(*t->ranges));
	if (!t->files || !t->ranges)
		return dataset_fail_errno(err, ENOMEM, "tokens: files");
	for (size_t i = 0; r == 0 && i < s->n_part; i++) {
		char path[4096];

		if (snprintf(path, sizeof(path), "%s", s->part[i]->path) >= (int)sizeof(path))
			return dataset_fail(err, DATASET_E_INVALID, -ENAMETOOLONG,
					    "tokens: %.200s: the path is too long", s->part[i]->path);
		r = tokens_open_file(t, source, &which, path, &content, err);
	}
	if (r == 0 && source->n_fds && which != source->n_fds)
		r = dataset_fail(err, DATASET_E_INVALID, -EINVAL, "tokens: %u descriptors for files that have %u",
				 source->n_fds, which);
	t->base.content_id = content;
	return r;
}

/* Numbers the windows, and says what rows look like. */
static int tokens_describe(struct tokens *t, const char *text, struct dataset_error *err)
{
	struct dataset *ds = &t->base;
	struct field *x, *y;
	uint64_t n = 0;

	for (unsigned i = 0; i < t->n_files; i++) {
		uint64_t n_starts = t->files[i].layout.n_tokens - t->length;

		t->files[i].first = n;
		n += t->is_random ? n_starts : (n_starts - 1) / t->stride + 1;
	}
	t->n_starts = n;
	ds->n = !t->is_random ? n : t->samples ? t->samples : DATASET_ENDLESS;
	x = dataset_add_field(ds, t->whole ? "tokens" : "x", DTYPE_INT64, err);
	if (!x)
		return -ENOMEM;
	x->n_dims = 1;
	x->shape[0] = (uint32_t)t->length + t->whole;
	y = dataset_add_field(ds, t->whole ? "label" : "y", DTYPE_INT64, err);
	if (!y)
		return -ENOMEM;
	ds->label_is_index = t->whole;
	y->n_dims = !t->whole;
	y->shape[0] = t->whole ? 0 : (uint32_t)t->length;
	ds->id = XXH3_64bits_withSeed(text, strlen(text), ds->content_id);
	return 0;
}

int tokens_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err)
{
	struct tokens *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return dataset_fail_errno(err, ENOMEM, rest);
	t->base.ops = &tokens_ops;
	t->dtype = DTYPE_UINT16;
	atomic_init(&t->base.refs, 1);
	r = tokens_take(t, source->part, err);
	r = r < 0 ? r : open_files(t, source, err);
	r = r < 0 ? r : tokens_describe(t, rest, err);
	if (r < 0) {
		dataset_destroy(&t->base);
		return r;
	}
	*out = &t->base;
	return 0;
}
