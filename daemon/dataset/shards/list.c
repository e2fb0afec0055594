/* See list.h. */
#include "dataset/shards/list.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct list {
	const char *name, *folder;
	struct dataset_error *err;
};

static int shard_list_refuse(const struct list *l, const char *url, const char *why)
{
	return dataset_fail(l->err, DATASET_E_INVALID, -EINVAL, "%.200s: %.150s: %s", l->name, url, why);
}

/* The path below the list's folder; NULL: it lies elsewhere. */
static const char *path_below(const struct list *l, const char *url)
{
	size_t n = strlen(l->folder);

	if (strncmp(url, "file:", 5) == 0) {
		url += 5;
		url += strncmp(url, "//", 2) == 0 ? 2 : 0;
	}
	while (n && l->folder[n - 1] == '/') { /* of the root no more than a slash is left */
		n--;
	}
	if (url[0] == '/')
		url = strncmp(url, l->folder, n) == 0 && url[n] == '/' ? url + n : "";
	while (url[0] == '/' || strncmp(url, "./", 2) == 0)
		url++;
	return url[0] && !strstr(url, "://") && strncmp(url, "pipe:", 5) != 0 ? url : NULL;
}

static bool has_parent(const char *path)
{
	for (const char *at = path; at; at = strchr(at, '/')) {
		at += *at == '/';
		if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || !at[2]))
			return true;
	}
	return false;
}

static int take_file(const struct list *l, json_t *url_text, json_t *size, struct listed_file *out)
{
	const char *url = json_string_value(url_text);

	if (!url)
		return shard_list_refuse(l, "shardlist", "a shard without a url");
	out->path = path_below(l, url);
	if (!out->path || has_parent(out->path))
		return shard_list_refuse(l, url,
					 "not below the list's folder: name the shards themselves (tar:PATTERN), or "
					 "download them beside the list");
	if (size && (!json_is_integer(size) || json_integer_value(size) < 0))
		return shard_list_refuse(l, url, "its filesize is no number of bytes");
	out->n_bytes = size ? (uint64_t)json_integer_value(size) : UINT64_MAX;
	return 0;
}

/* streaming's index has a shard's file as it is read and, where it was written compressed, as it is stored. */
static int take_shard(const struct list *l, json_t *shard, shard_list_fn *fn, void *arg)
{
	static const char *const keys[] = { "raw_data", "zip_data" };
	struct listed_file files[2];
	unsigned n = 0;
	int r = 0;

	for (unsigned k = 0; !r && k < 2; k++) {
		json_t *file = json_object_get(shard, keys[k]);

		if (json_is_object(file))
			r = take_file(l, json_object_get(file, "basename"), json_object_get(file, "bytes"),
				      &files[n++]);
	}
	if (!r && !n)
		r = take_file(l, json_object_get(shard, "url"), json_object_get(shard, "filesize"), &files[n++]);
	return r ? r : fn(arg, files, n);
}

int shard_list_parse(const char *name, const char *folder, const char *text, size_t n, shard_list_fn *fn, void *arg,
		     struct dataset_error *err)
{
	struct list l = { .name = name, .folder = folder, .err = err };
	json_error_t where;
	json_t *all = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where), *shards, *shard;
	size_t i;
	int r = 0;

	if (!all)
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "%.200s, line %d: %.200s", name, where.line,
				    where.text);
	shards = json_object_get(all, "shardlist");
	if (!shards)
		shards = json_object_get(all, "shards");
	if (!json_is_array(shards))
		r = shard_list_refuse(&l, "shardlist",
				      json_object_get(all, "datasets")
					      ? "a list of data sets: name one of their lists"
					      : "expected a list of shards, as widsindex and streaming write it");
	if (!r && !json_array_size(shards))
		r = shard_list_refuse(&l, "shardlist", "it has no shards");
	json_array_foreach (shards, i, shard) {
		r = r ? r : take_shard(&l, shard, fn, arg);
	}
	json_decref(all);
	return r;
}
