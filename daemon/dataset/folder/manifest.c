/* An index is one block: a header with counts and a checksum, then arrays by decreasing alignment, then text. In memory
 * it is used in place. On disk it is the same bytes, for this byte order only: the magic number in the header has other
 * bytes on other machines.
 *
 * The checksum finds damage. The checks on offsets and names do not rely on it: a block that passes them is safe to
 * use, whatever its source, and no name in it leads out of its folder. */
#include "dataset/folder/manifest.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define INDEX_MAGIC 0x58444e4948435442ull /* "BTCHINDX" in memory on a little-endian machine */
#define INDEX_VERSION 1u
#define INDEX_MAX_BYTES (64ull << 30)

enum { HAS_LABELS = 1 };

struct header {
	struct block_header block;
	uint64_t n_files;
	uint32_t n_dirs, n_classes;
	uint64_t n_text;   /* bytes */
	uint64_t names_at; /* where file names begin in the text; no slashes after it */
};

/* The places of the arrays. */
struct layout_bytes {
	uint64_t dirs, labels, file_dir, file_name, class_name, text, end;
};

static bool manifest_lay_out(const struct header *h, struct layout_bytes *at)
{
	uint64_t n_labels = h->block.flags & HAS_LABELS ? h->n_files : 0;

	/* Limits that keep the sums below from overflowing. */
	if (h->n_files > INDEX_MAX_BYTES / 8 || h->n_text > INDEX_MAX_BYTES)
		return false;
	at->dirs = sizeof(*h);
	at->labels = at->dirs + h->n_dirs * (uint64_t)sizeof(struct manifest_dir);
	at->file_dir = at->labels + n_labels * 8;
	at->file_name = at->file_dir + h->n_files * 4;
	at->class_name = at->file_name + h->n_files * 4;
	at->text = at->class_name + h->n_classes * (uint64_t)4;
	at->end = at->text + h->n_text;
	return true;
}

static void manifest_point_into(struct manifest *ix, const struct header *h, const struct layout_bytes *at)
{
	char *base = ix->block;

	ix->block_bytes = at->end;
	ix->n_files = h->n_files;
	ix->n_dirs = h->n_dirs;
	ix->n_classes = h->n_classes;
	ix->dirs = (const void *)(base + at->dirs);
	ix->labels = h->block.flags & HAS_LABELS ? (const void *)(base + at->labels) : NULL;
	ix->file_dir = (const void *)(base + at->file_dir);
	ix->file_name = (const void *)(base + at->file_name);
	ix->class_name = (const void *)(base + at->class_name);
	ix->text = base + at->text;
}

void manifest_finish(struct manifest *ix)
{
	free(ix->block);
	*ix = (struct manifest){ 0 };
}

int64_t manifest_label(const struct manifest *ix, uint64_t i)
{
	return ix->labels ? ix->labels[i] : (int64_t)ix->dirs[ix->file_dir[i]].class_id;
}

void manifest_name(const struct manifest *ix, uint64_t i, char *buf, size_t size)
{
	const char *dir = manifest_dir_path(ix, ix->file_dir[i]), *name = manifest_file_name(ix, i);
	size_t n_dir = strlen(dir);

	if (!strcmp(dir, "."))
		snprintf(buf, size, "%s", name);
	else
		snprintf(buf, size, "%s%s%s", dir, dir[n_dir - 1] == '/' ? "" : "/", name);
}

uint64_t manifest_hash(const struct manifest *ix, uint64_t seed)
{
	XXH3_state_t *state = XXH3_createState();
	uint64_t hash;

	if (!state)
		return 0;
	XXH3_64bits_reset_withSeed(state, seed);
	for (uint32_t i = 0; i < ix->n_dirs; i++) {
		const char *path = manifest_dir_path(ix, i);

		XXH3_64bits_update(state, path, strlen(path) + 1);
		XXH3_64bits_update(state, &ix->dirs[i].class_id, sizeof(ix->dirs[i].class_id));
	}
	/* The arrays and the text are made in one fixed way, so equal samples give equal bytes. */
	XXH3_64bits_update(state, ix->dirs + ix->n_dirs,
			   ix->block_bytes - (size_t)((const char *)(ix->dirs + ix->n_dirs) - (const char *)ix->block));
	hash = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	return hash;
}

/* ---- building ---- */

/* Adds text with 32-bit offsets within one kind of text; manifest_build shifts them to their final place. */
static int text_add32(struct text *t, struct meter *meter, const char *bytes, size_t n, uint32_t *offset)
{
	uint64_t wide;
	int r;

	t->meter = meter;
	r = text_add(t, bytes, n, &wide);

	if (r < 0)
		return r;
	*offset = (uint32_t)wide;
	return wide <= UINT32_MAX ? 0 : -EFBIG;
}

int manifest_add_class(struct manifest_builder *b, const char *name)
{
	int r = block_grow(b->meter, &b->class_name, &b->classes_capacity, b->n_classes + 1, sizeof(*b->class_name));

	if (r < 0)
		return r;
	r = text_add32(&b->classes, b->meter, name, strlen(name), &b->class_name[b->n_classes]);
	b->n_classes += r == 0;
	return b->n_classes >= MANIFEST_NO_CLASS ? -EFBIG : r;
}

int manifest_add_dir(struct manifest_builder *b, const char *path, size_t n_path, const struct manifest_dir *like)
{
	int r = block_grow(b->meter, &b->dirs, &b->dirs_capacity, b->n_dirs + 1, sizeof(*b->dirs));

	if (r < 0)
		return r;
	if (b->n_dirs >= UINT32_MAX - 1)
		return -EFBIG;
	b->dirs[b->n_dirs] = *like;
	b->paths.meter = b->meter;
	r = text_add(&b->paths, path, n_path, &b->dirs[b->n_dirs].path);
	b->n_dirs += r == 0;
	return r;
}

int manifest_add_file(struct manifest_builder *b, uint32_t dir, const char *name, size_t n_name)
{
	size_t capacity = b->files_capacity;
	int r = block_grow(b->meter, &b->file_dir, &capacity, b->n_files + 1, sizeof(*b->file_dir));

	if (r < 0)
		return r;
	r = block_grow(b->meter, &b->file_name, &b->files_capacity, b->n_files + 1, sizeof(*b->file_name));
	if (r < 0)
		return r;
	b->file_dir[b->n_files] = dir;
	r = text_add32(&b->names, b->meter, name, n_name, &b->file_name[b->n_files]);
	b->n_files += r == 0;
	return r;
}

int manifest_add_labelled_file(struct manifest_builder *b, uint32_t dir, const char *name, size_t n_name, int64_t label)
{
	int r = block_grow(b->meter, &b->labels, &b->labels_capacity, b->n_files + 1, sizeof(*b->labels));

	if (r < 0)
		return r;
	b->labels[b->n_files] = label;
	return manifest_add_file(b, dir, name, n_name);
}

static void manifest_copy_array(char *to, const void *from, size_t n_bytes)
{
	if (n_bytes)
		memcpy(to, from, n_bytes);
}

static void manifest_fill_block(const struct manifest_builder *b, struct manifest *ix, const struct header *h,
				const struct layout_bytes *at)
{
	char *base = ix->block;
	uint32_t *file_name = (uint32_t *)(void *)(base + at->file_name);
	struct manifest_dir *dirs = (struct manifest_dir *)(void *)(base + at->dirs);

	memcpy(base, h, sizeof(*h));
	manifest_copy_array(base + at->dirs, b->dirs, b->n_dirs * sizeof(*b->dirs));
	manifest_copy_array(base + at->labels, b->labels, at->file_dir - at->labels);
	manifest_copy_array(base + at->file_dir, b->file_dir, b->n_files * 4);
	manifest_copy_array(base + at->file_name, b->file_name, b->n_files * 4);
	manifest_copy_array(base + at->class_name, b->class_name, b->n_classes * 4);
	manifest_copy_array(base + at->text, b->classes.bytes, b->classes.n);
	manifest_copy_array(base + at->text + b->classes.n, b->paths.bytes, b->paths.n);
	manifest_copy_array(base + at->text + h->names_at, b->names.bytes, b->names.n);
	for (size_t i = 0; i < b->n_dirs; i++)
		dirs[i].path += b->classes.n;
	for (size_t i = 0; i < b->n_files; i++)
		file_name[i] += (uint32_t)h->names_at;
}

int manifest_build(struct manifest_builder *b, struct manifest *out)
{
	struct header h = {
		.block = { .magic = INDEX_MAGIC, .version = INDEX_VERSION, .flags = b->labels ? HAS_LABELS : 0 },
		.n_files = b->n_files,
		.n_dirs = (uint32_t)b->n_dirs,
		.n_classes = (uint32_t)b->n_classes,
		.n_text = b->classes.n + b->paths.n + b->names.n,
		.names_at = b->classes.n + b->paths.n
	};
	struct layout_bytes at;
	int r = 0;

	if (h.n_text > UINT32_MAX || !manifest_lay_out(&h, &at)) {
		r = -EFBIG;
	} else {
		h.block.block_bytes = at.end;
		r = meter_take(b->meter, at.end);
		out->block = r ? NULL : malloc(at.end);
		r = r ? r : out->block ? 0 : -ENOMEM;
	}
	if (!r) {
		manifest_fill_block(b, out, &h, &at);
		block_seal(out->block);
		manifest_point_into(out, &h, &at);
	}
	manifest_builder_finish(b);
	return r;
}

static size_t manifest_memory_of(const struct manifest_builder *b)
{
	return b->classes.capacity + b->paths.capacity + b->names.capacity + b->dirs_capacity * sizeof(*b->dirs) +
	       b->classes_capacity * sizeof(*b->class_name) +
	       b->files_capacity * (sizeof(*b->file_dir) + sizeof(*b->file_name)) +
	       b->labels_capacity * sizeof(*b->labels);
}

void manifest_builder_finish(struct manifest_builder *b)
{
	meter_give(b->meter, manifest_memory_of(b));
	free(b->classes.bytes);
	free(b->paths.bytes);
	free(b->names.bytes);
	free(b->dirs);
	free(b->class_name);
	free(b->file_dir);
	free(b->file_name);
	free(b->labels);
	*b = (struct manifest_builder){ 0 };
}

/* ---- reading back ---- */

static bool is_inner_path(const char *path)
{
	if (!*path || *path == '/')
		return false;
	for (const char *step = path; *step; step += strcspn(step, "/"), step += *step == '/') {
		size_t n = strcspn(step, "/");

		if (n == 0 || (n == 2 && !memcmp(step, "..", 2)))
			return false;
	}
	return true;
}

static bool dirs_are_sound(const struct manifest *ix, const struct header *h)
{
	for (uint32_t i = 0; i < ix->n_dirs; i++) {
		const struct manifest_dir *d = &ix->dirs[i];

		if (d->path >= h->n_text || (d->class_id >= ix->n_classes && d->class_id != MANIFEST_NO_CLASS) ||
		    !is_inner_path(ix->text + d->path))
			return false;
	}
	return !strcmp(manifest_dir_path(ix, 0), ".");
}

static bool files_are_sound(const struct manifest *ix, const struct header *h)
{
	for (uint64_t i = 0; i < ix->n_files; i++) {
		const char *name;

		if (ix->file_dir[i] >= ix->n_dirs || ix->file_name[i] < h->names_at || ix->file_name[i] >= h->n_text)
			return false;
		name = manifest_file_name(ix, i);
		if (!*name || !strcmp(name, ".") || !strcmp(name, "..") ||
		    (!ix->labels && ix->dirs[ix->file_dir[i]].class_id == MANIFEST_NO_CLASS))
			return false;
	}
	return true;
}

static bool is_sound(const struct manifest *ix, const struct header *h)
{
	if (!ix->n_dirs || !h->n_text || ix->text[h->n_text - 1] || h->names_at > h->n_text ||
	    memchr(ix->text + h->names_at, '/', h->n_text - h->names_at))
		return false;
	for (uint32_t i = 0; i < ix->n_classes; i++) {
		if (ix->class_name[i] >= h->n_text)
			return false;
	}
	return dirs_are_sound(ix, h) && files_are_sound(ix, h);
}

int manifest_parse(void *block, size_t block_bytes, struct manifest *out)
{
	struct manifest ix = { .block = block };
	struct layout_bytes at;
	struct header h;

	if (block_bytes < sizeof(h))
		return -EINVAL;
	memcpy(&h, block, sizeof(h));
	if (!block_is_sealed(block, block_bytes, INDEX_MAGIC, INDEX_VERSION) ||
	    (h.block.flags & ~(uint32_t)HAS_LABELS) || !manifest_lay_out(&h, &at) || at.end != block_bytes)
		return -EINVAL;
	manifest_point_into(&ix, &h, &at);
	if (!is_sound(&ix, &h))
		return -EINVAL;
	*out = ix;
	return 0;
}

int manifest_load(const char *path, struct meter *meter, struct manifest *out)
{
	size_t n_bytes;
	void *block;
	int r = block_load(path, INDEX_MAGIC, INDEX_VERSION, meter, &block, &n_bytes);

	if (r < 0)
		return r;
	r = manifest_parse(block, n_bytes, out);
	if (r < 0) {
		meter_give(meter, n_bytes);
		free(block);
	}
	return r;
}

int manifest_save(const char *path, const struct manifest *ix)
{
	return block_save(path, ix->block, ix->block_bytes);
}
