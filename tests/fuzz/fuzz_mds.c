/* Shards of MDS: any bytes are refused with a text, or become samples that lie inside the shard. The second run has a sound
 * description, so that the fuzzer reaches the samples. */
#include <stdlib.h>
#include <string.h>

#include "data/mds.h"

static void scan(const uint8_t *data, size_t size, const char *list)
{
	struct dataset_error err = { "", 0 };
	struct member_fields fields = {
		.image_name = "image",
		.image = "a;jpg",
		.is_listed = list != NULL,
		.n_values = 1,
		.values = { { .name = "label", .extensions = "b;cls", .kind = COLUMN_INT64, .optional = list == NULL } }
	};
	struct shard_reader reader = { .fd = -1, .bytes = data, .n_bytes = size, .name = "x.mds", .err = &err };
	struct shard_stamp stamp = { .n_bytes = size };
	struct extents_builder b = { 0 };
	struct members m = { .fields = &fields, .reader = &reader, .builder = &b };
	struct extents ix = { 0 };
	int r = extents_add_shard(&b, "x.mds", &stamp);

	r = r ? r : mds_scan(&m);
	members_finish(&m);
	if (r < 0 && !err.text[0]) {
		abort();
	}
	if (r == 0 && extents_build(&b, &ix) == 0) {
		struct extents again;

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
	static const char config[] = "{\"column_names\":[\"a\",\"b\"],\"column_encodings\":[\"jpeg\",\"int\"],"
				     "\"column_sizes\":[null,8]}";
	size_t n = 16 + sizeof(config) - 1 + size;
	uint8_t *shard = malloc(n);
	uint32_t head[4] = { 2, 16 + sizeof(config) - 1, 0, (uint32_t)n };

	scan(data, size, NULL);
	if (!shard) {
		return 0;
	}
	head[2] = head[1] + (size ? data[size - 1] : 0); /* the first byte is already a size */
	memcpy(shard, head, sizeof(head));
	memcpy(shard + 16, config, sizeof(config) - 1);
	if (size) {
		memcpy(shard + 16 + sizeof(config) - 1, data, size);
	}
	scan(shard, n, "");
	free(shard);
	return 0;
}
