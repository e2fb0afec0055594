/* See zip-directory.h. A zip archive is read from its end: a record there tells where the directory is, which has a record
 * for each member, which tells where the member's own header is. All three are checked against each other, so a member
 * that is given on lies inside the archive, before the directory, and shares no byte with another one. */
#include "dataset/shards/zip-directory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/name.h"
#include "dataset/shards/zip-content.h"

enum {
	END_BYTES = 22,
	COMMENT_BYTES = 65535,
	LOCATOR_BYTES = 20,
	END64_BYTES = 56,
	ENTRY_BYTES = 46,
	LOCAL_BYTES = 30,
	FLAG_ENCRYPTED = 1,
	METHOD_STORED = 0,
};

static uint64_t zip_number(const uint8_t *b, unsigned n)
{
	uint64_t v = 0;

	while (n--)
		v = v << 8 | b[n];
	return v;
}

int zip_no_room(const struct zip_directory *z, int error)
{
	return dataset_fail(z->m->reader->err, DATASET_E_LIMIT, error, "%.300s: %s", z->m->reader->name,
			    error == -EDQUOT ? "more members than there is memory for" : "out of memory");
}

/* ---- the end ---- */

/* *end: where the records of the end begin. */
static int read_end64(struct zip_directory *z, uint64_t *end)
{
	struct shard_reader *r = z->m->reader;
	uint64_t at = *end, place;
	const uint8_t *b;
	int result;

	if (at < LOCATOR_BYTES + END64_BYTES)
		return shard_reader_refuse(r, at, "its zip64 record is missing");
	result = shard_reader_get(r, at - LOCATOR_BYTES, LOCATOR_BYTES, &b);
	if (result < 0)
		return result;
	place = zip_number(b + 8, 8);
	if (memcmp(b, "PK\6\7", 4) || place > at - LOCATOR_BYTES - END64_BYTES)
		return shard_reader_refuse(r, at, "its zip64 record is missing");
	if (zip_number(b + 16, 4) > 1)
		return shard_reader_refuse(r, at, "a part of an archive on several disks: join it (zip -s 0)");
	/* Bytes before the archive shift all places. */
	*end = at - LOCATOR_BYTES - END64_BYTES;
	for (unsigned attempt = 0; attempt < 2; attempt++) {
		result = shard_reader_get(r, attempt ? place : *end, END64_BYTES, &b);
		if (result < 0)
			return result;
		if (!memcmp(b, "PK\6\6", 4)) {
			*end = attempt ? place : *end;
			z->n_declared = zip_number(b + 32, 8);
			z->directory_bytes = zip_number(b + 40, 8);
			z->directory = zip_number(b + 48, 8);
			return 0;
		}
	}
	return shard_reader_refuse(r, place, "its zip64 record is missing");
}

static int take_end(struct zip_directory *z, const uint8_t *b, uint64_t at)
{
	struct shard_reader *r = z->m->reader;
	int result = 0;

	z->n_declared = zip_number(b + 10, 2);
	z->directory_bytes = zip_number(b + 12, 4);
	z->directory = zip_number(b + 16, 4);
	if (zip_number(b + 4, 2) != zip_number(b + 6, 2))
		return shard_reader_refuse(r, at, "a part of an archive on several disks: join it (zip -s 0)");
	if (z->n_declared == UINT16_MAX || z->directory_bytes == UINT32_MAX || z->directory == UINT32_MAX)
		result = read_end64(z, &at);
	if (result < 0)
		return result;
	if (z->directory_bytes > at || z->directory > at - z->directory_bytes)
		return shard_reader_refuse(r, at, "its directory lies outside the archive: cut short?");
	z->shift = at - z->directory_bytes - z->directory;
	z->directory += z->shift;
	return 0;
}

static int zip_find_end(struct zip_directory *z)
{
	struct shard_reader *r = z->m->reader;
	size_t n = r->n_bytes < END_BYTES + COMMENT_BYTES ? (size_t)r->n_bytes : END_BYTES + COMMENT_BYTES;
	uint64_t from = r->n_bytes - n;
	const uint8_t *tail;
	int result = shard_reader_get(r, from, n, &tail);

	if (result < 0)
		return result;
	/* The comment ends with the file. As zipfile and unzip do, other bytes behind the end are passed over. */
	for (unsigned attempt = 0; attempt < 2; attempt++) {
		for (size_t at = n; at >= END_BYTES; at--) {
			const uint8_t *b = tail + at - END_BYTES;
			uint64_t n_comment = zip_number(b + 20, 2);
			uint8_t end[END_BYTES];

			if (memcmp(b, "PK\5\6", 4) || (attempt ? n_comment > n - at : n_comment != n - at))
				continue;
			memcpy(end, b, sizeof(end));
			return take_end(z, end, from + at - END_BYTES);
		}
	}
	return shard_reader_refuse(r, 0, "not a zip archive: its end has no directory (cut short?)");
}

/* ---- the directory ---- */

/* Numbers that do not fit their 32 bits stand in a zip64 field, in this order. */
static bool take_wide(const uint8_t *extra, size_t n, uint64_t *const wide[3])
{
	for (size_t at = 0; at + 4 <= n;) {
		size_t size = (size_t)zip_number(extra + at + 2, 2), from = at + 4;

		if (size > n - from)
			return true; /* of another program's making */
		at = from + size;
		for (unsigned k = 0; zip_number(extra + from - 4, 2) == 1 && k < 3; k++) {
			if (*wide[k] != UINT32_MAX)
				continue;
			if (size < 8)
				return false;
			*wide[k] = zip_number(extra + from, 8);
			from += 8;
			size -= 8;
			if (k == 2)
				return true;
		}
	}
	return true;
}

static bool begins_with(const char *name, size_t n, const char *prefix)
{
	size_t n_prefix = strlen(prefix);

	return n >= n_prefix && !memcmp(name, prefix, n_prefix);
}

/* Folders and macOS's attributes are no files. `name` ends with a zero byte. */
static bool is_wanted(const struct zip_directory *z, const char *name, size_t n)
{
	const struct member_fields *f = z->m->fields;

	if (name[n - 1] == '/' || begins_with(name, n, "__MACOSX/") || !begins_with(name, n, f->folder))
		return false;
	return f->is_listed || name_is_image(name);
}

static const char *method_name(uint16_t method)
{
	static const struct {
		uint16_t method;
		const char *name;
	} known[] = { { 1, "shrink" }, { 6, "implode" }, { 9, "deflate64" }, { 12, "bzip2" }, { 14, "lzma" },
		      { 93, "zstd" },  { 95, "xz" },     { 98, "ppmd" },     { 99, "AES" } };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (known[i].method == method)
			return known[i].name;
	}
	return "an unknown method";
}

static int check_entry(struct zip_directory *z, const struct zip_entry *e, const char *name)
{
	struct shard_reader *r = z->m->reader;

	if (e->flags & FLAG_ENCRYPTED)
		return shard_reader_refuse(r, e->at, "%.200s is encrypted, which is not read", name);
	if (e->method != METHOD_STORED && e->method != ZIP_DEFLATED) {
		return shard_reader_refuse(
			r, e->at, "%.180s is compressed by %s (method %u); expected stored or deflated: zip it again",
			name, method_name(e->method), e->method);
	}
	if (e->at > z->directory || e->n_stored > z->directory - e->at)
		return shard_reader_refuse(r, e->at, "%.200s lies outside the archive: cut short?", name);
	if (e->method == METHOD_STORED && e->n_stored != e->n_bytes)
		return shard_reader_refuse(r, e->at, "%.200s is stored with two sizes: damaged?", name);
	if (e->n_bytes / ZIP_MOST_PER_BYTE > e->n_stored)
		return shard_reader_refuse(r, e->at, "%.160s: %llu bytes cannot become the %llu that it claims to have",
					   name, (unsigned long long)e->n_stored, (unsigned long long)e->n_bytes);
	return 0;
}

static int check_name(struct shard_reader *r, uint64_t at, const uint8_t *name, size_t n)
{
	if (!n || n >= MEMBER_NAME_BYTES)
		return shard_reader_refuse(r, at, "a member whose name has %zu bytes", n);
	for (size_t i = 0; i < n; i++) {
		if (name[i] < ' ' || name[i] == 0x7f)
			return shard_reader_refuse(r, at, "a name with a control character");
	}
	return 0;
}

static int add_entry(struct zip_directory *z, struct zip_entry *e, const uint8_t *name)
{
	char text[MEMBER_NAME_BYTES];
	int r;

	memcpy(text, name, e->n_name);
	text[e->n_name] = '\0';
	/* As unzip reads archives that programs of Windows make against the format's rules. */
	e->has_backslashes = e->is_of_windows && !strchr(text, '/');
	for (char *at = text; e->has_backslashes && (at = strchr(at, '\\'));)
		*at = '/';
	if (!is_wanted(z, text, e->n_name))
		return 0;
	r = check_entry(z, e, text);
	if (r < 0)
		return r;
	r = text_add(&z->names, text, e->n_name, &e->name);
	r = r ? r : block_grow(z->m->builder->meter, &z->entries, &z->capacity, z->n + 1, sizeof(*z->entries));
	if (r)
		return zip_no_room(z, r);
	z->entries[z->n++] = *e;
	return 0;
}

/* *used: bytes of the record. */
static int take_entry(struct zip_directory *z, uint64_t at, uint64_t room, uint64_t *used)
{
	struct shard_reader *r = z->m->reader;
	struct zip_entry e;
	uint64_t *const wide[3] = { &e.n_bytes, &e.n_stored, &e.at };
	const uint8_t *b;
	size_t n_extra;
	int result = room < ENTRY_BYTES ? 0 : shard_reader_get(r, at, ENTRY_BYTES, &b);

	if (result < 0)
		return result;
	if (room < ENTRY_BYTES || memcmp(b, "PK\1\2", 4))
		return shard_reader_refuse(r, at, "its directory is damaged");
	e = (struct zip_entry){ .is_of_windows = b[5] == 0,
				.flags = (uint16_t)zip_number(b + 8, 2),
				.method = (uint16_t)zip_number(b + 10, 2),
				.crc = (uint32_t)zip_number(b + 16, 4),
				.n_stored = zip_number(b + 20, 4),
				.n_bytes = zip_number(b + 24, 4),
				.n_name = (uint16_t)zip_number(b + 28, 2),
				.at = zip_number(b + 42, 4) };
	n_extra = (size_t)zip_number(b + 30, 2);
	*used = ENTRY_BYTES + e.n_name + n_extra + zip_number(b + 32, 2);
	if (*used > room)
		return shard_reader_refuse(r, at, "its directory is damaged");
	result = shard_reader_get(r, at + ENTRY_BYTES, e.n_name + n_extra, &b);
	result = result < 0 ? result : check_name(r, at, b, e.n_name);
	if (result < 0)
		return result;
	if (!take_wide(b + e.n_name, n_extra, wide) || e.at > UINT64_MAX - z->shift)
		return shard_reader_refuse(r, at, "a zip64 field that is too short, or a place beyond any archive");
	e.at += z->shift;
	return add_entry(z, &e, b);
}

static int read_directory(struct zip_directory *z)
{
	struct shard_reader *r = z->m->reader;
	uint64_t end = z->directory + z->directory_bytes, used = 0, n = 0;
	int result = 0;

	for (uint64_t at = z->directory; !result && at < end; at += used, n++)
		result = take_entry(z, at, end - at, &used);
	/* Programs without zip64 count modulo 2^16. */
	if (!result && (n & UINT16_MAX) != (z->n_declared & UINT16_MAX))
		return shard_reader_refuse(r, z->directory, "its directory has %llu members, and should have %llu",
					   (unsigned long long)n, (unsigned long long)z->n_declared);
	return result;
}

/* ---- the members' own headers ---- */

static int by_place(const void *a, const void *b)
{
	const struct zip_entry *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

int zip_by_directory(const void *a, const void *b)
{
	const struct zip_entry *x = a, *y = b;

	return x->name < y->name ? -1 : x->name > y->name;
}

void zip_sort(struct zip_directory *z, int (*compare)(const void *a, const void *b))
{
	size_t i = 1;

	while (i < z->n && compare(&z->entries[i - 1], &z->entries[i]) <= 0)
		i++;
	if (i < z->n)
		qsort(z->entries, z->n, sizeof(*z->entries), compare);
}

static bool is_name_of(const struct zip_entry *e, const uint8_t *own, const char *name)
{
	for (size_t i = 0; i < e->n_name; i++) {
		char c = (char)own[i];

		if ((e->has_backslashes && c == '\\' ? '/' : c) != name[i])
			return false;
	}
	return true;
}

/* `least`: where the data of the member before ends. */
static int find_data(struct zip_directory *z, struct zip_entry *e, uint64_t least)
{
	struct shard_reader *r = z->m->reader;
	const char *name = zip_name(z, e);
	uint64_t n_head;
	const uint8_t *b;
	int result;

	if (e->at < least)
		return shard_reader_refuse(r, e->at, "%.200s overlaps another member", name);
	result = shard_reader_get(r, e->at, LOCAL_BYTES + (size_t)e->n_name, &b);
	if (result < 0)
		return result;
	if (memcmp(b, "PK\3\4", 4) || zip_number(b + 26, 2) != e->n_name || !is_name_of(e, b + LOCAL_BYTES, name) ||
	    zip_number(b + 8, 2) != e->method || (zip_number(b + 6, 2) ^ e->flags) & FLAG_ENCRYPTED)
		return shard_reader_refuse(r, e->at, "the header of %.180s is not what the directory says: damaged?",
					   name);
	n_head = LOCAL_BYTES + e->n_name + zip_number(b + 28, 2);
	if (n_head > z->directory - e->at || e->n_stored > z->directory - e->at - n_head)
		return shard_reader_refuse(r, e->at, "%.200s lies outside the archive: cut short?", name);
	e->at += n_head;
	return 0;
}

static int find_all_data(struct zip_directory *z)
{
	uint64_t least = 0;
	int r = 0;

	zip_sort(z, by_place);
	for (size_t i = 0; !r && i < z->n; i++) {
		r = find_data(z, &z->entries[i], least);
		least = z->entries[i].at + z->entries[i].n_stored;
	}
	return r;
}

int zip_directory_read(struct members *m, struct zip_directory *z)
{
	int r;

	*z = (struct zip_directory){ .m = m, .names = { .meter = m->builder->meter } };
	r = zip_find_end(z);
	r = r < 0 ? r : read_directory(z);
	return r < 0 ? r : find_all_data(z);
}

void zip_directory_finish(struct zip_directory *z)
{
	meter_give(z->m->builder->meter, z->capacity * sizeof(*z->entries) + z->names.capacity);
	free(z->entries);
	free(z->names.bytes);
}
