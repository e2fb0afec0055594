/* See zip.h. Members cost memory here until the archive is done, which the builder's meter pays. */
#include "dataset/shards/zip.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/file.h"
#include "dataset/shards/zip-content.h"
#include "dataset/shards/zip-directory.h"

struct zip {
	struct zip_directory directory;
	struct file_bytes value;
	size_t n_root; /* of the folder that all pictures lie in, with its slash */
};

static struct extent_content content_of(const struct zip_entry *e)
{
	return (struct extent_content){ (uint32_t)e->n_bytes, e->crc, e->method == ZIP_DEFLATED };
}

static int check_sample(struct zip *z, const struct zip_entry *e)
{
	return e->n_bytes <= FILE_MAX_BYTES && e->n_stored <= FILE_MAX_BYTES
		       ? 0
		       : shard_reader_refuse(z->directory.m->reader, e->at, "%.200s has more than 256 MiB",
					     zip_name(&z->directory, e));
}

/* Of a value that is kept in memory. */
static int zip_fetch(void *arg, const struct member *member, const uint8_t **bytes)
{
	struct zip *z = arg;
	struct shard_reader *r = z->directory.m->reader;
	const char *why = "its compressed data has more than 1 MiB";
	const uint8_t *stored;
	int result;

	if (member->n_stored <= SHARD_READER_MAX_BYTES) {
		result = shard_reader_get(r, member->at, (size_t)member->n_stored, &stored);
		if (result < 0)
			return result;
		if (zip_content_reserve(&z->value, (size_t)member->n_stored, &member->content) < 0)
			return zip_no_room(&z->directory, -ENOMEM);
		memcpy(z->value.data, stored, (size_t)member->n_stored);
		why = zip_content_unpack(&z->value, (size_t)member->n_stored, &member->content);
	}
	*bytes = z->value.data;
	return why ? shard_reader_refuse(r, member->at, "%.*s: %s", member->n_name < 180 ? (int)member->n_name : 180,
					 member->name, why)
		   : 0;
}

static int give_members(struct zip *z)
{
	int r = 0;

	zip_sort(&z->directory, zip_by_directory);
	z->directory.m->fetch = zip_fetch;
	z->directory.m->fetch_arg = z;
	for (size_t i = 0; !r && i < z->directory.n; i++) {
		const struct zip_entry *e = &z->directory.entries[i];

		r = members_add(z->directory.m, &(struct member){ .name = zip_name(&z->directory, e),
								  .n_name = e->n_name,
								  .at = e->at,
								  .n_bytes = e->n_bytes,
								  .n_stored = e->n_stored,
								  .content = content_of(e) });
	}
	return r ? r : members_end(z->directory.m);
}

/* ---- pictures in class folders ---- */

static void find_root(struct zip *z)
{
	const char *first = z->directory.n ? zip_name(&z->directory, &z->directory.entries[0]) : "";

	z->n_root = strlen(first);
	for (size_t i = 0; i < z->directory.n; i++) {
		const char *name = zip_name(&z->directory, &z->directory.entries[i]);
		size_t n = 0;

		while (n < z->n_root && name[n] == first[n])
			n++;
		while (n && first[n - 1] != '/')
			n--;
		z->n_root = n;
	}
}

/* ImageFolder lists one class after the other, in each its folders by their whole paths, in each folder the files. */
static int compare_pieces(const char *a, size_t n_a, const char *b, size_t n_b)
{
	int c = memcmp(a, b, n_a < n_b ? n_a : n_b);

	return c ? c : n_a < n_b ? -1 : n_a > n_b;
}

static size_t folder_bytes(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash ? (size_t)(slash - name) : 0;
}

static int by_class(const void *a, const void *b, void *arg)
{
	const struct zip *z = arg;
	const char *x = zip_name(&z->directory, a) + z->n_root, *y = zip_name(&z->directory, b) + z->n_root;
	size_t n_x = folder_bytes(x), n_y = folder_bytes(y);
	int c = compare_pieces(x, strcspn(x, "/"), y, strcspn(y, "/"));

	if (!n_x || !n_y) { /* files of the root itself come last */
		return n_x ? -1 : n_y ? 1 : strcmp(x, y);
	}
	c = c ? c : compare_pieces(x, n_x, y, n_y);
	return c ? c : strcmp(x + n_x, y + n_y);
}

static int give_picture(struct zip *z, const struct zip_entry *e, const struct zip_entry *before, bool has_classes)
{
	struct extents_builder *b = z->directory.m->builder;
	const char *name = zip_name(&z->directory, e);
	struct extent_content content = content_of(e);
	int r = check_sample(z, e);

	if (r < 0)
		return r;
	if (before && !strcmp(zip_name(&z->directory, before), name))
		return shard_reader_refuse(z->directory.m->reader, e->at, "%.200s is there twice", name);
	if (has_classes && !strchr(name + z->n_root, '/'))
		r = extents_leave_out(b, name, e->n_name, "lies in no class folder");
	else
		r = extents_add(b, e->at, (uint32_t)e->n_stored, &content, name, e->n_name);
	return r ? zip_no_room(&z->directory, r) : 0;
}

static int give_pictures(struct zip *z)
{
	bool has_classes;
	int r = 0;

	find_root(z);
	if (z->directory.n)
		qsort_r(z->directory.entries, z->directory.n, sizeof(*z->directory.entries), by_class, z);
	has_classes = z->directory.n && strchr(zip_name(&z->directory, &z->directory.entries[0]) + z->n_root, '/');
	for (size_t i = 0; !r && i < z->directory.n; i++)
		r = give_picture(z, &z->directory.entries[i], i ? &z->directory.entries[i - 1] : NULL, has_classes);
	return r;
}

int zip_scan(struct members *m)
{
	struct zip z = { .n_root = 0 };
	int r = zip_directory_read(m, &z.directory);

	r = r < 0 ? r : m->fields->is_listed ? give_members(&z) : give_pictures(&z);
	zip_directory_finish(&z.directory);
	file_bytes_finish(&z.value);
	return r;
}
