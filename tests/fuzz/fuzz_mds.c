/* Shards of MDS: any bytes are refused with a text, or become samples that lie inside the shard. The second run has a sound
 * description, so that the fuzzer reaches the samples. */
#include <stdlib.h>
#include <string.h>

#include "dataset/shards/class-column.h"
#include "dataset/shards/mds.h"

/* Names of classes, if the label has some: each sample's is one of them, and they are sorted. */
static void check_classes(const struct extents *ix)
{
	int k = columns_find(&ix->columns, "label");
	struct classes c;

	if (k < 0 || ix->columns.list[k].kind != COLUMN_CLASS) {
		return;
	}
	if (class_column_make(&ix->columns, (unsigned)k, NULL, &c) == 0) {
		for (uint64_t i = 0; i < ix->n; i++) {
			size_t n;
			const char *name = columns_value(&ix->columns, (unsigned)k, i, &n);

			if (c.labels[i] >= c.n || strlen(classes_name(&c, c.labels[i])) != n ||
			    memcmp(classes_name(&c, c.labels[i]), name, n) != 0) {
				abort();
			}
		}
		for (size_t i = 1; i < c.n; i++) {
			if (strcmp(classes_name(&c, i - 1), classes_name(&c, i)) >= 0) {
				abort();
			}
		}
	}
	classes_finish(&c);
}

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
		check_classes(&ix);
		extents_finish(&ix);
	}
	extents_builder_finish(&b);
	shard_reader_finish(&reader);
}

/* A shard of two samples with a sound description, whose first begins where the input says. */
static void scan_described(const char *config, const uint8_t *data, size_t size)
{
	size_t n_config = strlen(config), n = 16 + n_config + size;
	uint32_t head[4] = { 2, (uint32_t)(16 + n_config), 0, (uint32_t)n };
	uint8_t *shard = malloc(n);

	if (!shard) {
		return;
	}
	head[2] = head[1] + (size ? data[size - 1] : 0); /* the first byte is already a size */
	memcpy(shard, head, sizeof(head));
	memcpy(shard + 16, config, n_config);
	if (size) {
		memcpy(shard + 16 + n_config, data, size);
	}
	scan(shard, n, "");
	scan(shard, n, NULL);
	free(shard);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	scan(data, size, NULL);
	scan_described(
		"{\"column_names\":[\"a\",\"b\"],\"column_encodings\":[\"jpeg\",\"int\"],\"column_sizes\":[null,8]}",
		data, size);
	scan_described("{\"column_names\":[\"a\",\"label\"],\"column_encodings\":[\"jpeg\",\"str\"],"
		       "\"column_sizes\":[null,null]}",
		       data, size);
	return 0;
}
