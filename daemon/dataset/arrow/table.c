/* See table.h. The text of the data set has a hash too, which is the client's word: it only tells which ranks
 * hand over the same. Caches go by the hash that is made here. */
#include "dataset/arrow/table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include <xxhash.h>

#include "dataset/impl.h"

enum { HASH_STEP_BYTES = 32 << 20 };

static int refuse_unsealed(struct dataset_error *err)
{
	return dataset_fail(
		err, DATASET_E_INVALID, -EINVAL,
		"arrow: the table in memory is no memfd that is sealed against shrinking, growing and writing "
		"(F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE)");
}

/* In steps, because a large table takes seconds. */
static int hash_table(struct arrow_table *t, const struct dataset_source *source)
{
	const char *bytes = t->memory.map;
	uint64_t n = t->memory.map_bytes, hash = 0;

	for (uint64_t at = 0; at < n; at += HASH_STEP_BYTES) {
		uint64_t part = n - at < HASH_STEP_BYTES ? n - at : HASH_STEP_BYTES;

		if (dataset_is_stopped(source))
			return -ECANCELED;
		hash = XXH3_64bits_withSeed(bytes + at, part, hash);
		if (source->on_progress)
			source->on_progress(source->progress_arg, "index", at + part, n);
	}
	t->hash = hash;
	return 0;
}

int arrow_table_open(struct arrow_table *t, const struct dataset_source *source, unsigned which,
		     struct dataset_error *err)
{
	int needed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, seals;
	struct mapped *m = &t->memory;
	struct stat st;
	int r = mapped_open(m, source, which, "arrow: table in memory", &st, err);

	if (r < 0)
		return r;
	seals = fcntl(m->fd, F_GET_SEALS);
	if (seals < 0 || (seals & needed) != needed)
		return refuse_unsealed(err);
	r = mapped_hold_sealed(m, source, &st, err);
	if (r == 0 && st.st_size == 0)
		r = dataset_fail(err, DATASET_E_INVALID, -EINVAL, "arrow: the table in memory is empty");
	r = r < 0 ? r : mapped_map(m, source, &st, (size_t)st.st_size, 0, err);
	return r < 0 ? r : hash_table(t, source);
}

/* A name without a folder. */
static int name_table(struct shard_names *names, struct meter *meter)
{
	static const char name[] = "table in memory";
	int r = meter_take(meter, sizeof(*names->list));

	*names = (struct shard_names){ .meter = meter, .text = { .meter = meter } };
	names->list = r ? NULL : calloc(1, sizeof(*names->list));
	if (!names->list)
		return r ? r : -ENOMEM;
	names->n = names->capacity = 1;
	return text_add(&names->text, name, sizeof(name) - 1, &names->list[0].name);
}

int arrow_table_lend(const struct arrow_table *t, struct shards *s, const struct dataset_source *source)
{
	struct shard_names names;
	int r = name_table(&names, source->meter);

	if (r < 0) {
		shard_names_finish(&names);
		return r;
	}
	r = shards_init(s, &names, source->access);
	return r < 0 ? r : shards_lend(s, 0, (const uint8_t *)t->memory.map, t->memory.map_bytes);
}

struct shard_stamp arrow_table_stamp(const struct arrow_table *t)
{
	return (struct shard_stamp){ .ino = t->hash, .n_bytes = t->memory.map_bytes };
}

void arrow_table_drop(struct arrow_table *t, struct meter *meter)
{
	mapped_finish(&t->memory);
	meter_give(meter, t->memory.held_bytes);
	t->memory.held_bytes = 0;
}

void arrow_table_finish(struct arrow_table *t)
{
	mapped_finish(&t->memory);
}
