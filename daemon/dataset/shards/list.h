/* A list of shards as the wids package writes it (widsindex create):
 *
 *     {"__kind__": "wids-shard-index-v1", "shardlist": [{"url": "train-0.tar", "nsamples": 1000, "filesize": 123}, ...]}
 *
 * or as MosaicML streaming writes it (index.json):
 *
 *     {"shards": [{"raw_data": {"basename": "shard.00000.mds", "bytes": 123}, "zip_data": null, ...}, ...], "version": 2}
 *
 * It says which shards there are, not where samples lie in them. */
#ifndef BATCHD_SHARD_LIST_H
#define BATCHD_SHARD_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "dataset/error.h"

/* A file of a shard: its path below the list's folder, and its length; UINT64_MAX: the list does not say. */
struct listed_file {
	const char *path;
	uint64_t n_bytes;
};

/* A shard of the list: the first of its n >= 1 files that exists. One that streaming has compressed may have been
 * unpacked since: its plain file comes first. */
typedef int shard_list_fn(void *arg, const struct listed_file *files, unsigned n);

/* Calls fn for each shard, until it returns other than 0. `name` is the list's for messages, `folder` the absolute path
 * of its folder. Names of shards that lie elsewhere, on servers among them, are refused. 0, negative errno with err, or
 * what fn has returned. */
int shard_list_parse(const char *name, const char *folder, const char *text, size_t n, shard_list_fn *fn, void *arg,
		     struct dataset_error *err);

#endif
