/* The formats of shards: how their members are found. */
#include "dataset/shards/mds.h"
#include "dataset/shards/packed.h"
#include "dataset/shards/tar-index.h"
#include "dataset/shards/tar.h"
#include "dataset/shards/zip.h"

int tar_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err)
{
	static const struct packed_format format = { .kind = "tar",
						     .ending = ".tar",
						     .group = "group of files",
						     .part = "EXTENSION",
						     .scan = tar_scan,
						     .index_ending = TAR_INDEX_ENDING,
						     .index_fits = tar_index_fits,
						     .index_scan = tar_index_scan };

	return packed_open(&format, source, rest, out, err);
}

int mds_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err)
{
	static const struct packed_format format = {
		.kind = "mds",
		.ending = ".mds",
		.group = "sample",
		.part = "COLUMN",
		.scan = mds_scan,
		.may_be_compressed = true,
	};

	return packed_open(&format, source, rest, out, err);
}

int zip_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err)
{
	static const struct packed_format format = {
		.kind = "zip",
		.ending = ".zip",
		.group = "group of files",
		.part = "EXTENSION",
		.is_archive = true,
		.scan = zip_scan,
	};

	return packed_open(&format, source, rest, out, err);
}
