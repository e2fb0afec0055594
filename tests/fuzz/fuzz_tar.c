/* Shards of tar: any bytes are refused with a text, or become samples that lie inside the shard. The second run corrects
 * the headers' checksums, which the fuzzer cannot. */
#include <stdlib.h>
#include <string.h>

#include "dataset/shards/tar.h"

enum { BLOCK = 512, AT_CHECKSUM = 148 };

static void check(const struct extents *ix, size_t size)
{
	for (uint64_t i = 0; i < ix->n; i++) {
		char name[8192];
		size_t n;

		if (ix->at[i] > size || ix->n_bytes[i] > size - ix->at[i]) {
			abort();
		}
		extents_name(ix, i, name, sizeof(name));
		for (unsigned k = 0; k < ix->columns.n; k++) {
			(void)columns_value(&ix->columns, k, i, &n);
		}
	}
}

static void scan(const uint8_t *data, size_t size)
{
	struct dataset_error err = { "", 0 };
	struct member_fields fields = {
		.image_name = "image",
		.image = "jpg;png",
		.n_values = 2,
		.values = { { .name = "label", .extensions = "cls", .kind = COLUMN_INT64, .optional = true },
			    { .name = "text", .extensions = "txt;json", .kind = COLUMN_TEXT, .optional = true } }
	};
	struct shard_reader reader = { .fd = -1, .bytes = data, .n_bytes = size, .name = "x.tar", .err = &err };
	struct shard_stamp stamp = { .n_bytes = size };
	struct extents_builder b = { 0 };
	struct members m = { .fields = &fields, .reader = &reader, .builder = &b };
	struct extents ix = { 0 };
	int r = extents_add_shard(&b, "x.tar", &stamp);

	r = r ? r : tar_scan(&m);
	members_finish(&m);
	if (r < 0 && !err.text[0]) {
		abort();
	}
	if (r == 0 && extents_build(&b, &ix) == 0) {
		struct extents again;

		check(&ix, size);
		if (extents_parse(ix.block, ix.block_bytes, &again) < 0) {
			abort();
		}
		extents_finish(&ix);
	}
	extents_builder_finish(&b);
	shard_reader_finish(&reader);
}

static void correct(uint8_t *data, size_t size)
{
	for (size_t at = 0; at + BLOCK <= size; at += BLOCK) {
		unsigned sum = 0;
		char text[9];

		if (!data[at]) {
			continue;
		}
		memset(data + at + AT_CHECKSUM, ' ', 8);
		for (unsigned i = 0; i < BLOCK; i++) {
			sum += data[at + i];
		}
		for (unsigned i = 6; i-- > 0; sum >>= 3) {
			text[i] = (char)('0' + (sum & 7));
		}
		memcpy(data + at + AT_CHECKSUM, text, 6);
		data[at + AT_CHECKSUM + 6] = 0;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy) {
		return 0;
	}
	if (size) {
		memcpy(copy, data, size);
	}
	scan(copy, size);
	correct(copy, size);
	scan(copy, size);
	free(copy);
	return 0;
}
