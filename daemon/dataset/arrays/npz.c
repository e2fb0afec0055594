/* A zip archive is read from its end: a record there tells where the directory is, which has a record for each member,
 * which tells where the member's own header is. zip64 has further records for large numbers; numpy writes them always. */
#include "dataset/arrays/npz.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	END_BYTES = 22,
	COMMENT_BYTES = 65535,
	LOCATOR_BYTES = 20,
	END64_BYTES = 56,
	ENTRY_BYTES = 46,
	LOCAL_BYTES = 30,
};

struct archive {
	npz_read_fn *read;
	void *arg;
	uint64_t n_bytes, directory, directory_bytes, n_entries;
	struct npy_error *err;
};

static uint64_t npz_number(const uint8_t *b, unsigned n)
{
	uint64_t v = 0;

	while (n--)
		v = v << 8 | b[n];
	return v;
}

/* Of an archive of zip64, whose locator stands before the end record at `at`. */
static int read_end64(struct archive *a, uint64_t at)
{
	uint8_t locator[LOCATOR_BYTES], end[END64_BYTES];
	uint64_t place;
	int r;

	if (at < sizeof(locator))
		return npy_fail(a->err, "damaged archive: its zip64 record is missing");
	r = a->read(a->arg, at - sizeof(locator), locator, sizeof(locator));
	if (r < 0)
		return r;
	place = npz_number(locator + 8, 8);
	if (memcmp(locator, "PK\6\7", 4) || place > a->n_bytes || a->n_bytes - place < sizeof(end))
		return npy_fail(a->err, "damaged archive: its zip64 record is missing");
	r = a->read(a->arg, place, end, sizeof(end));
	if (r < 0)
		return r;
	if (memcmp(end, "PK\6\6", 4))
		return npy_fail(a->err, "damaged archive: its zip64 record is missing");
	a->n_entries = npz_number(end + 32, 8);
	a->directory_bytes = npz_number(end + 40, 8);
	a->directory = npz_number(end + 48, 8);
	return 0;
}

static int find_end(struct archive *a)
{
	size_t n = a->n_bytes < END_BYTES + COMMENT_BYTES ? (size_t)a->n_bytes : END_BYTES + COMMENT_BYTES, at = n;
	uint8_t *tail = malloc(n ? n : 1);
	int r = tail ? a->read(a->arg, a->n_bytes - n, tail, n) : -ENOMEM;
	bool found = false;

	while (r == 0 && !found && at >= END_BYTES) {
		const uint8_t *e = tail + --at - (END_BYTES - 1);

		found = !memcmp(e, "PK\5\6", 4) && npz_number(e + 20, 2) == n - at - 1;
		if (found) {
			a->n_entries = npz_number(e + 10, 2);
			a->directory_bytes = npz_number(e + 12, 4);
			a->directory = npz_number(e + 16, 4);
		}
	}
	free(tail);
	if (r == 0 && !found)
		return npy_fail(a->err, "not an .npz file: expected one written by numpy.savez (or it is cut short)");
	if (r == 0 && (a->n_entries == UINT16_MAX || a->directory_bytes == UINT32_MAX || a->directory == UINT32_MAX))
		r = read_end64(a, a->n_bytes - n + at + 1 - END_BYTES);
	return r;
}

/* Numbers that do not fit their 32 bits stand in a zip64 field, in this order. */
static int npz_read_extra(const uint8_t *extra, size_t n, uint64_t *const wide[3], struct npy_error *err)
{
	for (size_t at = 0; at + 4 <= n;) {
		size_t size = (size_t)npz_number(extra + at + 2, 2), from = at + 4;

		if (size > n - from)
			break;
		for (unsigned k = 0; npz_number(extra + at, 2) == 1 && k < 3; k++) {
			if (*wide[k] == UINT32_MAX) {
				if (size < 8)
					return npy_fail(err, "damaged archive: a zip64 field is too short");
				*wide[k] = npz_number(extra + from, 8);
				from += 8;
				size -= 8;
			}
		}
		at += 4 + (size_t)npz_number(extra + at + 2, 2);
	}
	return 0;
}

/* The member's own header tells where its content begins. */
static int find_content(struct archive *a, struct npz_member *m)
{
	uint8_t local[LOCAL_BYTES];
	uint64_t n_head;
	int r;

	if (m->offset > a->n_bytes || a->n_bytes - m->offset < sizeof(local))
		return npy_fail(a->err, "damaged archive: '%s' lies outside of it", m->name);
	r = a->read(a->arg, m->offset, local, sizeof(local));
	if (r < 0)
		return r;
	n_head = sizeof(local) + npz_number(local + 26, 2) + npz_number(local + 28, 2);
	if (memcmp(local, "PK\3\4", 4) || n_head > a->n_bytes - m->offset ||
	    m->n_stored > a->n_bytes - m->offset - n_head)
		return npy_fail(a->err, "damaged archive: '%s' lies outside of it", m->name);
	m->offset += n_head;
	return 0;
}

static int npz_take_name(struct archive *a, const uint8_t *name, size_t n, struct npz_member *m)
{
	if (n < 5 || memcmp(name + n - 4, ".npy", 4) || n - 4 >= sizeof(m->name))
		return npy_fail(a->err, "it has a member '%.*s', which is no .npy file with a name of at most %d bytes",
				n < 40 ? (int)n : 40, (const char *)name, NPZ_NAME_BYTES - 1);
	for (size_t i = 0; i < n - 4; i++) {
		if (name[i] <= ' ' || name[i] > '~')
			return npy_fail(a->err, "the name of member %s has a character that is not printable ASCII",
					m->name);
	}
	memcpy(m->name, name, n - 4);
	m->name[n - 4] = '\0';
	return 0;
}

/* *used: bytes of the record. */
static int read_entry(struct archive *a, const uint8_t *e, size_t room, struct npz_member *m, size_t *used)
{
	uint64_t *const wide[3] = { &m->n_bytes, &m->n_stored, &m->offset };
	size_t n_name, n_extra;
	int r;

	if (room < ENTRY_BYTES || memcmp(e, "PK\1\2", 4))
		return npy_fail(a->err, "damaged archive: its directory is cut short");
	n_name = (size_t)npz_number(e + 28, 2);
	n_extra = (size_t)npz_number(e + 30, 2);
	*used = ENTRY_BYTES + n_name + n_extra + (size_t)npz_number(e + 32, 2);
	if (*used > room)
		return npy_fail(a->err, "damaged archive: its directory is cut short");
	*m = (struct npz_member){ .deflated = npz_number(e + 10, 2) == 8,
				  .crc = (uint32_t)npz_number(e + 16, 4),
				  .n_stored = npz_number(e + 20, 4),
				  .n_bytes = npz_number(e + 24, 4),
				  .offset = npz_number(e + 42, 4) };
	r = npz_take_name(a, e + ENTRY_BYTES, n_name, m);
	if (r < 0)
		return r;
	if (e[8] & 1 || (!m->deflated && npz_number(e + 10, 2)))
		return npy_fail(a->err, "'%s' is %s: write it with numpy.savez or numpy.savez_compressed", m->name,
				e[8] & 1 ? "encrypted" : "compressed by another method than deflate");
	r = npz_read_extra(e + ENTRY_BYTES + n_name, n_extra, wide, a->err);
	if (r == 0 && !m->deflated && m->n_stored != m->n_bytes)
		r = npy_fail(a->err, "damaged archive: '%s' is stored with two sizes", m->name);
	return r < 0 ? r : find_content(a, m);
}

static int read_entries(struct archive *a, const uint8_t *directory, struct npz_member *members)
{
	size_t at = 0, used = 0;

	for (uint64_t i = 0; i < a->n_entries; i++, at += used) {
		int r = read_entry(a, directory + at, a->directory_bytes - at, &members[i], &used);

		if (r < 0)
			return r;
	}
	return 0;
}

int npz_read(npz_read_fn *read, void *arg, uint64_t archive_bytes, struct npz_member members[NPZ_MAX_MEMBERS],
	     unsigned *n, struct npy_error *err)
{
	struct archive a = { .read = read, .arg = arg, .n_bytes = archive_bytes, .err = err };
	uint8_t *directory;
	int r = find_end(&a);

	if (r < 0)
		return r;
	if (a.n_entries > NPZ_MAX_MEMBERS || a.directory_bytes > NPZ_MAX_DIRECTORY_BYTES)
		return npy_fail(err, "it has %llu members: expected at most %d", (unsigned long long)a.n_entries,
				NPZ_MAX_MEMBERS);
	if (a.directory > archive_bytes || a.directory_bytes > archive_bytes - a.directory)
		return npy_fail(err, "damaged archive: its directory lies outside of it");
	directory = malloc(a.directory_bytes ? a.directory_bytes : 1);
	if (!directory)
		return -ENOMEM;
	r = read(arg, a.directory, directory, a.directory_bytes);
	r = r < 0 ? r : read_entries(&a, directory, members);
	free(directory);
	*n = (unsigned)a.n_entries;
	return r;
}
