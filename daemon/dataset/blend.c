/* Several data sets as one: the samples of the first, then those of the second, and so on, as torch's ConcatDataset has
 * them. With weights an epoch's order takes more of one and less of another (batch/plan/plan.c); indices stay the same.
 *
 * All parts have the same fields. Whatever is asked of a sample is asked of its part. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/impl.h"
#include "dataset/servers.h"

enum { GATHER_AT_ONCE = 256 };

struct blend {
	struct dataset base;
	struct dataset_blend plan;
	struct dataset *part[SOURCES_MAX];
	const struct dataset *named; /* the part whose names of classes are those of all; NULL: none */
};

/* The part that has the sample. */
static unsigned part_of(const struct blend *m, uint64_t index)
{
	unsigned low = 0, high = m->plan.n;

	while (high - low > 1) {
		unsigned middle = low + (high - low) / 2;

		if (m->plan.part[middle].first > index)
			high = middle;
		else
			low = middle;
	}
	return low;
}

static struct dataset *find_part(const struct dataset *ds, uint64_t *index)
{
	const struct blend *m = (const struct blend *)ds;
	unsigned k = part_of(m, *index);

	*index -= m->plan.part[k].first;
	return m->part[k];
}

static int blend_read(struct dataset *ds, uint64_t index, enum read_how how, struct file_bytes *out,
		      struct dataset_error *err)
{
	struct dataset *part = find_part(ds, &index);

	return part->ops->read(part, index, how, out, err);
}

static int blend_is_current(struct dataset *ds, uint64_t index, enum read_how how, const struct file_bytes *b)
{
	struct dataset *part = find_part(ds, &index);

	return part->ops->is_current(part, index, how, b);
}

static void blend_value(const struct dataset *ds, uint64_t index, unsigned field, struct field_value *out)
{
	struct dataset *part = find_part(ds, &index);

	part->ops->value(part, index, field, out);
}

static void blend_name(const struct dataset *ds, uint64_t index, char *buf, size_t size)
{
	struct dataset *part = find_part(ds, &index);

	part->ops->name(part, index, buf, size);
}

static const char *class_of(const struct dataset *part, uint32_t i)
{
	return part->ops->class_name(part, i);
}

static const char *blend_class_name(const struct dataset *ds, uint32_t i)
{
	return class_of(((const struct blend *)ds)->named, i);
}

/* How many of the indices from the first on lie in one part; their numbers there. */
static size_t run_of(const struct blend *m, unsigned k, const uint64_t *indices, size_t n,
		     uint64_t local[GATHER_AT_ONCE])
{
	size_t run = 0;

	while (run < n && run < GATHER_AT_ONCE && indices[run] >= m->plan.part[k].first &&
	       indices[run] - m->plan.part[k].first < m->plan.part[k].n) {
		local[run] = indices[run] - m->plan.part[k].first;
		run++;
	}
	return run;
}

static int blend_gather(struct dataset *ds, const uint64_t *indices, size_t n, void *const rows[],
			struct dataset_error *err)
{
	struct blend *m = (struct blend *)ds;
	size_t item_bytes[DATASET_MAX_FIELDS] = { 0 }, run;
	uint64_t local[GATHER_AT_ONCE];
	int r = 0;

	for (unsigned f = 0; f < ds->n_fields; f++) {
		if (rows[f] && field_item_bytes(&ds->fields[f], &item_bytes[f]) < 0)
			return -EOVERFLOW;
	}
	for (size_t i = 0; !r && i < n; i += run) {
		void *to[DATASET_MAX_FIELDS];
		unsigned k = part_of(m, indices[i]);

		run = run_of(m, k, indices + i, n - i, local);
		for (unsigned f = 0; f < ds->n_fields; f++)
			to[f] = rows[f] ? (char *)rows[f] + i * item_bytes[f] : NULL;
		r = m->part[k]->ops->gather(m->part[k], local, run, to, err);
		if (!r && ds->label_is_index && to[ds->label])
			memcpy(to[ds->label], indices + i,
			       run * sizeof(*indices)); /* of all samples, not of the part's */
	}
	return r;
}

static void blend_destroy(struct dataset *ds)
{
	struct blend *m = (struct blend *)ds;

	for (unsigned k = 0; k < m->plan.n; k++)
		dataset_destroy(m->part[k]); /* nothing else has a reference */
	free(m);
}

/* Without shards of its own, a part is one. */
static uint32_t part_shards(const struct blend *m, unsigned k)
{
	return m->part[k]->n_shards ? m->part[k]->n_shards : 1;
}

static uint64_t blend_shard_end(const struct dataset *ds, uint32_t i)
{
	const struct blend *m = (const struct blend *)ds;
	unsigned k = 0;

	while (i >= part_shards(m, k))
		i -= part_shards(m, k++);
	return m->plan.part[k].first +
	       (m->part[k]->n_shards ? m->part[k]->ops->shard_end(m->part[k], i) : m->part[k]->n);
}

static uint32_t count_shards(const struct blend *m)
{
	uint64_t n = 0;

	for (unsigned k = 0; k < m->plan.n; k++)
		n += part_shards(m, k);
	return n < UINT32_MAX ? (uint32_t)n : 0;
}

static const struct dataset_ops blend_ops = {
	.destroy = blend_destroy,
	.gather = blend_gather,
	.read = blend_read,
	.is_current = blend_is_current,
	.value = blend_value,
	.name = blend_name,
	.class_name = blend_class_name,
	.shard_end = blend_shard_end,
};

/* ---- opening ---- */

/* The part's own descriptors, if any came: dataset_open has counted them. */
static int open_part(const struct dataset_source *source, struct Source *part, blend_open_part_fn *open,
		     unsigned *n_fds, struct dataset **out, struct dataset_error *err)
{
	struct dataset_source one = *source;

	one.n_fds = source->n_fds ? source_n_fds(part) : 0;
	one.fds = one.n_fds ? source->fds + *n_fds : NULL;
	*n_fds += one.n_fds;
	return open(&one, part, out, err);
}

static bool fields_are_alike(const struct field *a, const struct field *b)
{
	return a->kind == b->kind && a->text == b->text && a->bytes == b->bytes && a->dtype == b->dtype &&
	       a->n_dims == b->n_dims && !memcmp(a->shape, b->shape, a->n_dims * sizeof(a->shape[0]));
}

/* A part for messages. */
static void name_part(const struct Source *part, char out[200])
{
	char *text = source_print(part, SOURCE_SHOWN);

	snprintf(out, 200, "%s", text ? text : source_kind_name(part->kind));
	free(text);
}

static int differ(const struct Sources *all, unsigned k, const char *what, const char *name, struct dataset_error *err)
{
	char first[200], other[200];

	name_part(all->source[0], first);
	name_part(all->source[k], other);
	return dataset_fail(err, DATASET_E_INVALID, -EINVAL,
			    "blend: %.130s and %.130s do not go together: %s%s%s; give both the same fields", first,
			    other, what, *name ? " " : "", name);
}

/* The longest rows of both together are at most those of one and those of the other. */
static void add_measure(struct field *f, const struct field *more)
{
	f->longest = f->longest > more->longest ? f->longest : more->longest;
	for (unsigned i = 0; i < FIELD_SUMS; i++) {
		if (__builtin_add_overflow(f->sum_longest[i], more->sum_longest[i], &f->sum_longest[i]))
			f->sum_longest[i] = UINT64_MAX;
	}
}

static int add_part_fields(struct blend *m, const struct Sources *all, unsigned k, struct dataset_error *err)
{
	const struct dataset *part = m->part[k];

	if (part->is_image != m->base.is_image || part->n_fields != m->base.n_fields)
		return differ(all, k,
			      part->is_image != m->base.is_image ? "one has images, the other arrays"
								 : "one has more fields than the other",
			      "", err);
	if (part->label_is_index != m->base.label_is_index)
		return differ(all, k, "only one has labels, and the other's would be the numbers of its samples", "",
			      err);
	for (unsigned f = 0; f < part->n_fields; f++) {
		struct field *ours = &m->base.fields[f];

		if (strcmp(ours->name, part->fields[f].name))
			return differ(all, k, "only one has the field", ours->name, err);
		if (!fields_are_alike(ours, &part->fields[f]))
			return differ(all, k, "they have different types or shapes of the field", ours->name, err);
		add_measure(ours, &part->fields[f]);
	}
	return 0;
}

static int take_fields(struct blend *m, struct dataset_error *err)
{
	const struct dataset *first = m->part[0];

	m->base.is_image = first->is_image;
	m->base.label_is_index = first->label_is_index;
	m->base.turns = first->turns;
	for (unsigned f = 0; f < first->n_fields; f++) {
		struct field *ours = dataset_add_field(&m->base, first->fields[f].name, first->fields[f].dtype, err);

		if (!ours)
			return -EINVAL;
		*ours = first->fields[f];
	}
	return 0;
}

/* A class has one number: the names of two parts, if both have any, must be the same. */
static int check_classes(struct blend *m, const struct Sources *all, unsigned k, struct dataset_error *err)
{
	const struct dataset *part = m->part[k];
	uint32_t n = part->n_classes, same = 0;
	char name[200];

	if (!n)
		return 0;
	if (!m->named) {
		m->named = part;
		m->base.n_classes = n;
		return 0;
	}
	while (same < n && same < m->base.n_classes && !strcmp(class_of(m->named, same), class_of(part, same)))
		same++;
	if (same == n && n == m->base.n_classes)
		return 0;
	name_part(all->source[k], name);
	return dataset_fail(err, DATASET_E_INVALID, -EINVAL,
			    "blend: %.150s: its class %" PRIu32
			    " is '%.60s', and '%.60s' in the others: one label would mean two classes",
			    name, same, same < n ? class_of(part, same) : "",
			    same < m->base.n_classes ? class_of(m->named, same) : "");
}

static int add_part(struct blend *m, const struct Sources *all, unsigned k, struct dataset_error *err)
{
	struct dataset *part = m->part[k];
	int r = k ? add_part_fields(m, all, k, err) : take_fields(m, err);
	char name[200];

	r = r ? r : check_classes(m, all, k, err);
	if (r)
		return r;
	if (part->n == DATASET_ENDLESS) {
		name_part(all->source[k], name);
		return dataset_fail(
			err, DATASET_E_INVALID, -EINVAL,
			"blend: %.200s: windows=random has no end, and a blend's epoch is as long as its data "
			"sets together: give samples=N",
			name);
	}
	if (__builtin_add_overflow(m->base.n, part->n, &m->base.n) || m->base.n > INT64_MAX)
		return dataset_fail(err, DATASET_E_LIMIT, -EFBIG, "blend: more samples than one data set may have");
	m->plan.part[k] = (struct dataset_part){ m->base.n - part->n, part->n, all->source[k]->weight };
	m->base.memory_bytes += part->memory_bytes;
	m->base.turns_some |= part->turns != m->base.turns;
	m->base.n_left_out += part->n_left_out;
	if (!m->base.left_out[0])
		memcpy(m->base.left_out, part->left_out, sizeof(m->base.left_out));
	if (!m->base.no_label[0])
		memcpy(m->base.no_label, part->no_label, sizeof(m->base.no_label));
	m->base.server = servers_both(m->base.server, part->server);
	return 0;
}

struct identity {
	uint64_t n, seed, has_seed;
	struct {
		uint64_t part, weight;
	} list[SOURCES_MAX];
};

enum identity_of { OF_SAMPLES, OF_CACHE, OF_CONTENT };

static uint64_t identify(const struct blend *m, enum identity_of what)
{
	struct identity all = { m->plan.n, m->plan.seed, m->plan.has_seed, { { 0 } } };

	for (unsigned k = 0; k < m->plan.n; k++) {
		const struct dataset *part = m->part[k];

		all.list[k].part = what == OF_SAMPLES ? part->id : what == OF_CACHE ? part->cache_id : part->content_id;
		all.list[k].weight = m->plan.part[k].weight;
	}
	return XXH3_64bits(&all, sizeof(all));
}

static int open_parts(struct blend *m, const struct dataset_source *source, const struct Sources *all,
		      blend_open_part_fn *open, struct dataset_error *err)
{
	unsigned n_fds = 0;
	int r = 0;

	for (unsigned k = 0; !r && k < all->n_source; k++) {
		r = open_part(source, all->source[k], open, &n_fds, &m->part[k], err);
		m->plan.n += !r;
		r = r ? r : add_part(m, all, k, err);
	}
	return r;
}

int blend_open(const struct dataset_source *source, const struct Sources *all, blend_open_part_fn *open,
	       struct dataset **out, struct dataset_error *err)
{
	struct blend *m = meter_take(source->meter, sizeof(*m)) ? NULL : calloc(1, sizeof(*m));
	int r;

	if (!m)
		return dataset_fail_errno(err, ENOMEM, "blend");
	m->base.ops = &blend_ops;
	atomic_init(&m->base.refs, 1);
	m->base.memory_bytes = sizeof(*m);
	m->plan.seed = all->seed;
	m->plan.has_seed = all->has_seed;
	r = open_parts(m, source, all, open, err);
	if (r) {
		dataset_destroy(&m->base);
		return r;
	}
	m->base.n_shards = count_shards(m);
	m->base.blend = all->source[0]->weight ? &m->plan : NULL;
	m->base.id = identify(m, OF_SAMPLES);
	m->base.cache_id = identify(m, OF_CACHE);
	m->base.content_id = identify(m, OF_CONTENT);
	*out = &m->base;
	return 0;
}
