/* See packed-kept.h. */
#include "dataset/shards/packed-kept.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dataset/cache/dir.h"
#include "base/log.h"

bool packed_kept_path(const struct packed_opening *o, char *path, size_t size)
{
	struct {
		uint64_t roots[SHARDS_MAX_ROOTS][2], user, fields;
	} key = { .user = o->source->access->trusted ? UINT64_MAX : o->source->access->uid };
	const struct shard_names *names = &o->packed->shards.names;
	struct stat st;
	uint64_t hash;

	if (!o->source->cache_dir)
		return false;
	for (unsigned i = 0; i < names->n_roots; i++) {
		if (fstat(names->roots[i], &st) < 0)
			return false;
		key.roots[i][0] = st.st_dev;
		key.roots[i][1] = st.st_ino;
	}
	key.fields = XXH3_64bits_withSeed(o->format->kind, strlen(o->format->kind), 0);
	key.fields = XXH3_64bits_withSeed(o->fields.folder, strlen(o->fields.folder), key.fields + o->fields.is_listed);
	key.fields = XXH3_64bits_withSeed(o->fields.image, strlen(o->fields.image), key.fields);
	for (unsigned k = 0; k < o->fields.n_values; k++) {
		const struct member_value *v = &o->fields.values[k];

		key.fields =
			XXH3_64bits_withSeed(v->name, strlen(v->name), key.fields + v->kind + (v->is_told ? 16 : 0));
		key.fields = XXH3_64bits_withSeed(v->extensions, strlen(v->extensions), key.fields);
		key.fields = XXH3_64bits_withSeed(v->key, strlen(v->key), key.fields);
	}
	hash = XXH3_64bits_withSeed(o->rest, strlen(o->rest), XXH3_64bits(&key, sizeof(key)));
	return snprintf(path, size, "%s/packed-%016llx.index", o->source->cache_dir, (unsigned long long)hash) <
	       (int)size;
}

void packed_load_kept(struct packed_opening *o, const char *path)
{
	int r = extents_load(path, o->source->meter, &o->old);

	if (r == 0 && (o->old.content != NULL) != o->format->is_archive) {
		packed_drop_kept(o);
		r = -EINVAL;
	}
	/* Without memory for it, building a new one reports the error. */
	if (r < 0 && r != -ENOENT && r != -EDQUOT && r != -ECANCELED)
		log_record(LOG_LEVEL_INFO, "index-rebuilt", "%s: index %s is %s", o->shown, path,
			   r == -EINVAL ? "damaged" : "unreadable");
}

void packed_drop_kept(struct packed_opening *o)
{
	if (o->old.block) {
		meter_give(o->source->meter, o->old.block_bytes);
		extents_finish(&o->old);
	}
}

void packed_keep(const struct packed_opening *o, const char *path)
{
	int r = extents_save(path, &o->packed->index);

	if (r < 0) {
		log_record(LOG_LEVEL_WARNING, "index-not-kept",
			   "%s: cannot write %s: %s; the shards will be read again next time", o->shown, path,
			   strerror(-r));
	} else if (o->source->cache_limit_bytes) {
		cache_dir_trim(o->source->cache_dir, o->source->cache_limit_bytes);
	}
}
