/* cifar: the binary versions of CIFAR-10 and CIFAR-100.
 *
 *     cifar:FILE[,FILE...][,version=10|100]
 *
 * A file is records of one label (of CIFAR-100 two: coarse and fine) and 3 x 32 x 32 bytes, mapped as it is. The pickled
 * version is never read here. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/impl.h"
#include "dataset/mapped.h"
#include "dataset/servers.h"

enum { EDGE = 32, PICTURE_BYTES = 3 * EDGE * EDGE, MAX_FILES = 64, N_COARSE = 20 };

struct cifar {
	struct dataset base;
	struct mapped files[MAX_FILES];
	struct sigbus_range ranges[MAX_FILES];
	uint64_t first[MAX_FILES + 1]; /* samples of the files before */
	unsigned n_files, n_labels, version;
};

static const uint8_t *find_record(const struct cifar *c, uint64_t index, unsigned *file)
{
	unsigned i = 0;

	while (index >= c->first[i + 1])
		i++;
	*file = i;
	return (const uint8_t *)c->files[i].map + (index - c->first[i]) * (c->n_labels + PICTURE_BYTES);
}

/* Checked with every read of a record, also of its picture alone, so that a damaged record is one bad sample. */
static bool has_labels(const struct cifar *c, const uint8_t *record)
{
	return record[c->n_labels - 1] < c->version && (c->n_labels == 1 || record[0] < N_COARSE);
}

/* rows: pictures, then the fine label, then the coarse one. *bad: a row whose labels do not exist, else n. */
static uint64_t cifar_copy_rows(const struct cifar *c, const uint64_t *indices, size_t n, void *const rows[],
				size_t *bad)
{
	int64_t *label = rows[1], *coarse = c->n_labels > 1 ? rows[2] : NULL;
	uint64_t touched = 0;

	*bad = n;

	for (size_t i = 0; i < n; i++) {
		unsigned file;
		const uint8_t *r = find_record(c, indices[i], &file);

		touched |= 1ull << file;
		*bad = has_labels(c, r) ? *bad : i;
		if (rows[0])
			memcpy((char *)rows[0] + i * PICTURE_BYTES, r + c->n_labels, PICTURE_BYTES);
		if (label)
			label[i] = r[c->n_labels - 1];
		if (coarse)
			coarse[i] = r[0];
	}
	return touched;
}

static int cifar_check_whole(const struct cifar *c, uint64_t files, struct dataset_error *err)
{
	for (unsigned i = 0; i < c->n_files; i++) {
		if (files >> i & 1 && !mapped_is_whole(&c->files[i]))
			return mapped_cut_short(&c->files[i], err);
	}
	return 0;
}

static void cifar_name(const struct dataset *ds, uint64_t index, char *buf, size_t size)
{
	const struct cifar *c = (const struct cifar *)ds;
	unsigned file;

	(void)find_record(c, index, &file);
	snprintf(buf, size, "%s[%llu]", c->files[file].name, (unsigned long long)(index - c->first[file]));
}

static int cifar_refuse(const struct cifar *c, uint64_t index, struct dataset_error *err)
{
	char name[256];

	cifar_name(&c->base, index, name, sizeof(name));
	return dataset_fail(
		err, DATASET_E_BAD_DATA, -EINVAL,
		"%s: a label that CIFAR-%u does not have (%s): the file is damaged, or not the binary version", name,
		c->version, c->version == 100 ? "fine: 0 to 99, coarse: 0 to 19" : "0 to 9");
}

static int cifar_gather(struct dataset *ds, const uint64_t *indices, size_t n, void *const rows[],
			struct dataset_error *err)
{
	struct cifar *c = (struct cifar *)ds;
	struct sigbus_guard guard = { .ranges = c->ranges, .n_ranges = c->n_files };
	uint64_t touched;
	size_t bad;
	int r;

	if (sigsetjmp(guard.landing, 0)) {
		r = cifar_check_whole(c, UINT64_MAX, err);
		return r < 0 ? r : dataset_fail(err, DATASET_E_BAD_DATA, -EIO, "%s: cannot be read", c->files[0].name);
	}
	sigbus_guard_enter(&guard);
	touched = cifar_copy_rows(c, indices, n, rows, &bad);
	sigbus_guard_leave();
	r = cifar_check_whole(c, touched, err);
	return r < 0 || bad == n ? r : cifar_refuse(c, indices[bad], err);
}

static void cifar_destroy(struct dataset *ds)
{
	struct cifar *c = (struct cifar *)ds;

	for (unsigned i = 0; i < c->n_files; i++)
		mapped_finish(&c->files[i]);
	free(c);
}

static const struct dataset_ops cifar_ops = { .destroy = cifar_destroy, .gather = cifar_gather, .name = cifar_name };

/* ---- opening ---- */

/* By the size of the first file, where only one version has files of such a size. */
static int find_version(struct cifar *c, const char *path, uint64_t n_bytes, struct dataset_error *err)
{
	bool is_10 = n_bytes % (1 + PICTURE_BYTES) == 0, is_100 = n_bytes % (2 + PICTURE_BYTES) == 0;

	if (!c->version && is_10 && is_100 && n_bytes)
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL,
				    "%s: %llu bytes may be of CIFAR-10 or CIFAR-100: add version=10 or version=100",
				    path, (unsigned long long)n_bytes);
	c->version = c->version ? c->version : is_100 ? 100 : 10;
	c->n_labels = c->version == 100 ? 2 : 1;
	return 0;
}

static int cifar_open_file(struct cifar *c, const struct dataset_source *source, const char *path,
			   struct dataset_error *err)
{
	struct mapped *m = &c->files[c->n_files];
	uint64_t n_bytes, record;
	struct stat st;
	int r;

	m->fd = -1;
	r = mapped_open(m, source, c->n_files++, path, &st, err);
	n_bytes = r < 0 ? 0 : (uint64_t)st.st_size;
	if (r == 0 && !c->n_labels)
		r = find_version(c, path, n_bytes, err);
	if (r < 0)
		return r;
	record = c->n_labels + PICTURE_BYTES;
	if (!n_bytes || n_bytes % record)
		return dataset_fail(
			err, DATASET_E_BAD_DATA, -EINVAL,
			"%s: %llu bytes are no whole number of CIFAR-%u's records of %llu: cut short, or not "
			"the binary version?",
			path, (unsigned long long)n_bytes, c->version, (unsigned long long)record);
	c->base.content_id = mapped_probe(m, 0, n_bytes, c->base.content_id + n_bytes);
	r = mapped_map(m, source, &st, n_bytes, record, err);
	if (r == 0) {
		c->ranges[c->n_files - 1] = mapped_range(m);
		c->first[c->n_files] = c->first[c->n_files - 1] + n_bytes / record;
		c->base.server = servers_both(c->base.server, m->server);
		c->base.memory_bytes += m->held_bytes;
	}
	return r;
}

static int take_version(struct cifar *c, const struct Source *s, struct dataset_error *err)
{
	const char *version = source_option(s, "version");

	if (!version)
		return 0;
	c->version = !strcmp(version, "100") ? 100 : 10;
	c->n_labels = c->version == 100 ? 2 : 1;
	return c->version == 100 || !strcmp(version, "10")
		       ? 0
		       : dataset_fail(err, DATASET_E_INVALID, -EINVAL,
				      "cifar: version=%.64s: expected version=10 or version=100", version);
}

static int cifar_describe(struct cifar *c, const char *rest, struct dataset_error *err)
{
	struct dataset *ds = &c->base;
	struct field *image;

	if (!c->n_files)
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "cifar:%.300s: no file is named", rest);
	image = dataset_add_field(ds, "image", DTYPE_UINT8, err);
	if (!image)
		return -ENOMEM;
	image->n_dims = 3;
	image->shape[0] = 3;
	image->shape[1] = image->shape[2] = EDGE;
	if (!dataset_add_field(ds, "label", DTYPE_INT64, err) ||
	    (c->n_labels > 1 && !dataset_add_field(ds, "coarse_label", DTYPE_INT64, err)))
		return -ENOMEM;
	ds->n = c->first[c->n_files];
	ds->id = XXH3_64bits_withSeed(rest, strlen(rest), ds->content_id);
	return 0;
}

int cifar_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err)
{
	const struct Source *s = source->part;
	struct cifar *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return dataset_fail_errno(err, ENOMEM, rest);
	c->base.ops = &cifar_ops;
	c->base.memory_bytes = sizeof(*c);
	atomic_init(&c->base.refs, 1);
	r = take_version(c, s, err);
	if (r == 0 && s->n_part > MAX_FILES)
		r = dataset_fail(err, DATASET_E_LIMIT, -EFBIG, "cifar: more than %d files", MAX_FILES);
	for (size_t i = 0; r == 0 && i < s->n_part; i++)
		r = cifar_open_file(c, source, s->part[i]->path, err);
	r = r < 0 ? r : cifar_describe(c, rest, err);
	if (r < 0) {
		dataset_destroy(&c->base);
		return r;
	}
	*out = &c->base;
	return 0;
}
