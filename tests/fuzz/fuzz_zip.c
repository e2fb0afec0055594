/* Archives of zip: any bytes are refused with a text, or become samples that lie inside the archive, whose content is
 * what they say or is refused. Checksums, which the fuzzer cannot guess, are not compared: content is unpacked again with
 * the one that it has. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "dataset/folder/class-folders.h"
#include "dataset/shards/zip-content.h"
#include "dataset/shards/zip.h"

enum { MOST_BYTES = 1 << 20 };

static void unpack(const struct extents *ix, uint64_t i, const uint8_t *data)
{
	struct extent_content c = ix->content[i];
	struct file_bytes b = { 0 };

	for (unsigned attempt = 0; c.n_bytes <= MOST_BYTES && attempt < 2; attempt++) {
		const char *why;

		if (zip_content_reserve(&b, ix->n_bytes[i], &c) < 0) {
			break;
		}
		memcpy(b.data, data + ix->at[i], ix->n_bytes[i]);
		why = zip_content_unpack(&b, ix->n_bytes[i], &c);
		if (attempt && !strncmp(why ? why : "", "its checksum", 12)) {
			abort();
		}
		c.crc = (uint32_t)crc32(0, b.data, c.n_bytes);
	}
	file_bytes_finish(&b);
}

static const char *path_of(const void *arg, uint64_t i)
{
	const struct extents *ix = arg;

	return ix->text + ix->name[i];
}

static void check(const struct extents *ix, const uint8_t *data, size_t size)
{
	struct classes folders;
	uint64_t odd = 0;
	int r = class_folders_make(path_of, ix, ix->n, NULL, &folders, &odd);

	for (uint64_t i = 0; i < ix->n; i++) {
		if (ix->at[i] > size || ix->n_bytes[i] > size - ix->at[i] ||
		    (r == 0 && folders.labels && folders.labels[i] >= folders.n)) {
			abort();
		}
		unpack(ix, i, data);
	}
	if (r && odd >= ix->n) {
		abort();
	}
	classes_finish(&folders);
}

static void scan(const uint8_t *data, size_t size, bool is_listed)
{
	struct dataset_error err = { "", 0 };
	struct member_fields fields = {
		.image_name = "image",
		.image = "jpg;png",
		.is_listed = is_listed,
		.n_values = is_listed ? 2 : 0,
		.values = { { .name = "label", .extensions = "cls", .kind = COLUMN_INT64, .optional = true },
			    { .name = "text", .extensions = "txt;json", .kind = COLUMN_TEXT, .optional = true } }
	};
	struct shard_reader reader = { .fd = -1, .bytes = data, .n_bytes = size, .name = "x.zip", .err = &err };
	struct shard_stamp stamp = { .n_bytes = size };
	struct extents_builder b = { .has_content = true };
	struct members m = { .fields = &fields, .reader = &reader, .builder = &b };
	struct extents ix = { 0 };
	int r = extents_add_shard(&b, "x.zip", &stamp);

	r = r ? r : zip_scan(&m);
	members_finish(&m);
	if (r < 0 && !err.text[0]) {
		abort();
	}
	if (r == 0 && extents_build(&b, &ix) == 0) {
		struct extents again;

		check(&ix, data, size);
		if (extents_parse(ix.block, ix.block_bytes, &again) < 0) {
			abort();
		}
		extents_finish(&ix);
	}
	extents_builder_finish(&b);
	shard_reader_finish(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	scan(data, size, false);
	scan(data, size, true);
	return 0;
}
