/* npz: the arrays of an .npz file, each a field.
 *
 *     npz:FILE[#NAME=ARRAY[,NAME=ARRAY]...]
 *
 * With a list, only its arrays are looked at, so the others may have any type and length. They keep the archive's order,
 * except that a field "image" comes first, as the pipeline is for the first one.
 *
 * Members of numpy.savez are mapped where they lie. Those of numpy.savez_compressed are inflated into memory, which is
 * charged before it is taken. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "dataset/arrays/arrays.h"
#include "dataset/arrays/npz.h"
#include "dataset/shards/unzip.h"
#include "base/io-full.h"

struct opening {
	const struct dataset_source *source;
	struct arrays *arrays;
	struct mapped *file;
	const char *path;
	struct stat st;
};

static int npz_set_read_at(void *arg, uint64_t at, void *to, size_t n)
{
	const struct mapped *m = arg;
	ssize_t got = io_full_read(m->fd, to, n, (off_t)at);

	return got < 0 ? (int)got : (size_t)got == n ? 0 : -EIO;
}

static int npz_set_fail(const struct opening *o, const struct npz_member *m, const char *why, struct dataset_error *err)
{
	return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "%s: %s: %s", o->file->name, m->name, why);
}

/* head: the member's first bytes; its array must end within it. */
static int npz_set_parse(const struct opening *o, const struct npz_member *m, const void *head, size_t n_head,
			 struct npy *npy, struct dataset_error *err)
{
	struct npy_error why;

	if (npy_parse(head, n_head, npy, &why) < 0)
		return npz_set_fail(o, m, why.text, err);
	return npy->data_bytes > m->n_bytes || npy->data_offset_bytes > m->n_bytes - npy->data_bytes
		       ? npz_set_fail(o, m, "its header promises more than it has", err)
		       : 0;
}

static int add_stored(struct opening *o, const struct npz_member *m, bool may_widen, struct dataset_error *err)
{
	size_t n = m->n_bytes < NPY_MAX_HEADER_BYTES ? (size_t)m->n_bytes : NPY_MAX_HEADER_BYTES;
	void *head = malloc(n ? n : 1);
	struct npy npy;
	int r = head ? npz_set_read_at(o->file, m->offset, head, n) : -ENOMEM;

	if (r < 0) {
		free(head);
		return dataset_fail_errno(err, -r, o->file->name);
	}
	r = npz_set_parse(o, m, head, n, &npy, err);
	free(head);
	return r < 0 ? r
		     : arrays_add_npy(o->arrays, m->name, &npy, (const char *)(uintptr_t)m->offset, NULL, may_widen,
				      err);
}

static int inflate_member(struct opening *o, const struct npz_member *m, uint8_t *to, struct dataset_error *err)
{
	struct unzip *s;
	uint8_t more;
	size_t got, n_more = 0;
	int r = unzip_begin(o->file->fd, o->file->name, m->offset, m->offset + m->n_stored, UNZIP_RAW, o->source->stop,
			    &s, err);

	if (r < 0)
		return r;
	r = unzip_read(s, to, m->n_bytes, &got, err);
	if (r == 0 && got == m->n_bytes)
		r = unzip_read(s, &more, 1, &n_more, err);
	unzip_end(s);
	if (r == 0 && (got != m->n_bytes || n_more))
		r = npz_set_fail(o, m, "it inflates to another size than the directory says", err);
	if (r == 0 && (uint32_t)crc32_z(0, to, m->n_bytes) != m->crc)
		r = npz_set_fail(o, m, "damaged: its checksum is another", err);
	return r;
}

static int add_deflated(struct opening *o, const struct npz_member *m, bool may_widen, struct dataset_error *err)
{
	int r = meter_take(o->source->meter, m->n_bytes);
	uint8_t *bytes = r < 0 ? NULL : malloc(m->n_bytes ? m->n_bytes : 1);
	struct npy npy;

	if (!bytes)
		return dataset_fail_errno(err, r < 0 ? -r : ENOMEM, o->file->name);
	r = inflate_member(o, m, bytes, err);
	r = r < 0 ? r : npz_set_parse(o, m, bytes, m->n_bytes, &npy, err);
	if (r < 0) {
		free(bytes);
		return r;
	}
	o->arrays->base.memory_bytes += m->n_bytes;
	return arrays_add_npy(o->arrays, m->name, &npy, (const char *)bytes, bytes, may_widen, err);
}

/* Stored arrays are added with their place in the file, which is mapped when all are known. */
static int map_stored(struct opening *o, uint64_t end, struct dataset_error *err)
{
	int r = mapped_map(o->file, o->source, &o->st, end, 0, err);

	for (unsigned i = 0; r == 0 && i < o->arrays->n_arrays; i++) {
		struct array *a = &o->arrays->arrays[i];

		a->rows = a->owned ? a->rows : o->file->map + (uintptr_t)a->rows;
	}
	return r;
}

/* An archive may have more than one data set's arrays, and others. */
static void advise_list(const struct opening *o, unsigned n, struct dataset_error *err)
{
	size_t at = strlen(err->text);

	if (!o->source->part->n_field && n > 1 && err->code == DATASET_E_INVALID)
		snprintf(err->text + at, sizeof(err->text) - at,
			 "; to read only some of its arrays, name them as fields (npz:FILE#NAME=ARRAY,...)");
}

static int add_members(struct opening *o, const struct npz_member *members, unsigned n, struct dataset_error *err)
{
	uint64_t end = 0;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < n; i++) {
		const struct npz_member *m = &members[i];
		bool may_widen = !strcmp(m->name, "label");

		r = m->deflated ? add_deflated(o, m, may_widen, err) : add_stored(o, m, may_widen, err);
		end = !m->deflated && m->offset + m->n_bytes > end ? m->offset + m->n_bytes : end;
	}
	return r < 0 || !end ? r : map_stored(o, end, err);
}

/* ---- a list of fields ---- */

static int refuse_item(const struct opening *o, const struct SourcePair *item, const struct npz_member *members,
		       unsigned n, struct dataset_error *err)
{
	char names[200];
	size_t at = 0;

	if (!*item->value || !*item->name || strlen(item->name) >= NPZ_NAME_BYTES)
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL,
				    "%s: fields '%.100s': expected NAME=ARRAY,NAME=ARRAY,...", o->path,
				    *item->name ? item->name : item->value);
	names[0] = '\0';
	for (unsigned i = 0; i < n && at < sizeof(names); i++)
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", i ? ", " : "", members[i].name);
	return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "%s: there is no array '%s'; its arrays: %s", o->path,
			    item->value, names);
}

static int check_list(const struct opening *o, const struct npz_member *members, unsigned n, struct dataset_error *err)
{
	const struct Source *s = o->source->part;

	for (size_t k = 0; k < s->n_field; k++) {
		const struct SourcePair *item = s->field[k];
		unsigned i = 0;

		while (i < n && strcmp(members[i].name, item->value))
			i++;
		if (i == n || !*item->name || strlen(item->name) >= NPZ_NAME_BYTES)
			return refuse_item(o, item, members, n, err);
	}
	return s->n_field <= NPZ_MAX_MEMBERS ? 0
					     : dataset_fail(err, DATASET_E_INVALID, -EINVAL, "%s: more than %d fields",
							    o->path, NPZ_MAX_MEMBERS);
}

/* Leaves the list's arrays in `members`, by their fields' names. */
static int choose_members(const struct opening *o, struct npz_member *members, unsigned *n, struct dataset_error *err)
{
	const struct Source *s = o->source->part;
	struct npz_member *chosen;
	unsigned n_chosen = 0;
	int r = check_list(o, members, *n, err);

	if (r < 0)
		return r;
	chosen = calloc(NPZ_MAX_MEMBERS, sizeof(*chosen));
	if (!chosen)
		return dataset_fail_errno(err, ENOMEM, o->path);
	for (unsigned i = 0; i < *n; i++) {
		for (size_t k = 0; k < s->n_field && n_chosen < NPZ_MAX_MEMBERS;
		     k++) { /* two members may have one name */
			struct npz_member *m = &chosen[n_chosen];

			if (strcmp(members[i].name, s->field[k]->value))
				continue;
			*m = members[i];
			snprintf(m->name, sizeof(m->name), "%s", s->field[k]->name);
			if (!strcmp(m->name, "image")) {
				struct npz_member image = *m;

				memmove(chosen + 1, chosen, n_chosen * sizeof(*chosen));
				chosen[0] = image;
			}
			n_chosen++;
		}
	}
	memcpy(members, chosen, n_chosen * sizeof(*chosen));
	*n = n_chosen;
	free(chosen);
	return 0;
}

/* ---- the archive ---- */

static int open_archive(struct opening *o, uint64_t *content, struct dataset_error *err)
{
	const char *rest = o->path;
	struct npz_member *members = calloc(NPZ_MAX_MEMBERS, sizeof(*members));
	struct npy_error why = { "" };
	unsigned n = 0;
	int r = members ? mapped_open(o->file, o->source, 0, rest, &o->st, err) : -ENOMEM;

	if (r == 0) {
		r = npz_read(npz_set_read_at, o->file, (uint64_t)o->st.st_size, members, &n, &why);
		r = r == -EINVAL ? dataset_fail(err, DATASET_E_INVALID, r, "%s: %s", rest, why.text)
		    : r < 0      ? dataset_fail_errno(err, -r, rest)
				 : 0;
	}
	if (r == 0 && !n)
		r = dataset_fail(err, DATASET_E_INVALID, -EINVAL, "%s: it has no arrays", rest);
	if (r == 0 && o->source->part->n_field)
		r = choose_members(o, members, &n, err);
	if (r == 0) {
		*content = mapped_probe(o->file, 0, (uint64_t)o->st.st_size, (uint64_t)o->st.st_size);
		r = add_members(o, members, n, err);
		if (r < 0)
			advise_list(o, n, err);
	}
	free(members);
	return r;
}

int npz_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err)
{
	struct opening o = { .source = source, .path = source->part->part[0]->path };
	uint64_t content = 0;
	int r;

	o.arrays = arrays_create(source, NPZ_MAX_MEMBERS, o.path, err);
	if (!o.arrays)
		return -ENOMEM;
	o.file = arrays_add_file(o.arrays);
	r = open_archive(&o, &content, err);
	if (r < 0) {
		dataset_destroy(&o.arrays->base);
		return r;
	}
	arrays_end(o.arrays, rest, content, out);
	return 0;
}
