/* Kept indexes of packed data sets: any bytes, and any bytes under a correct checksum, are refused or safe to use. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "dataset/shards/extents.h"

enum { CHECKSUM_AT = 16, CHECKED_FROM = 24 };

static void use(const struct extents *ix)
{
	static volatile unsigned char sink;

	for (uint64_t i = 0; i < ix->n; i++) {
		const struct extents_shard *s = &ix->shards[ix->shard[i]];
		char name[256];

		if (ix->at[i] > s->stamp.n_bytes || ix->n_bytes[i] > s->stamp.n_bytes - ix->at[i]) {
			abort(); /* leads out of its shard */
		}
		if (ix->content && !ix->content[i].deflated && ix->content[i].n_bytes != ix->n_bytes[i]) {
			abort();
		}
		extents_name(ix, i, name, sizeof(name));
		for (unsigned k = 0; k < ix->columns.n; k++) {
			size_t n;
			const unsigned char *value = columns_value(&ix->columns, k, i, &n);

			for (size_t j = 0; j < n; j++) {
				sink ^= value[j];
			}
		}
	}
	for (uint32_t i = 0; i < ix->n_shards; i++) {
		(void)strlen(extents_shard_name(ix, i));
		(void)strlen(ix->text + ix->shards[i].first_left_out);
		(void)strlen(ix->text + ix->shards[i].reason);
		(void)strlen(ix->text + ix->shards[i].extensions);
	}
	(void)extents_hash(ix, 0);
}

static void try_parse(const uint8_t *data, size_t size, int forge)
{
	unsigned char *block = malloc(size ? size : 1);
	struct extents ix;

	if (size) {
		memcpy(block, data, size);
	}
	if (forge && size > CHECKED_FROM) {
		uint64_t sum = XXH3_64bits(block + CHECKED_FROM, size - CHECKED_FROM);

		memcpy(block + CHECKSUM_AT, &sum, sizeof(sum));
	}
	if (extents_parse(block, size, &ix) == 0) {
		use(&ix);
		extents_finish(&ix);
	} else {
		free(block);
	}
}

static int fill(struct extents_builder *b)
{
	struct shard_stamp stamp = { .n_bytes = 1000 };
	struct extent_content stored = { 20, 0, 0 }, deflated = { 5000, 7, 1 };
	float pair[2] = { 1, 2 };

	return columns_add(&b->columns, "label", COLUMN_INT64, 1) || columns_add(&b->columns, "text", COLUMN_TEXT, 1) ||
	       columns_add(&b->columns, "pair", COLUMN_FLOAT32, 2) || extents_add_shard(b, "a.tar", &stamp) ||
	       extents_add(b, 10, 20, &stored, "a.jpg", 5) || columns_put_int(&b->columns, 0, 1) ||
	       columns_put(&b->columns, 1, "cat", 3) || columns_put(&b->columns, 2, pair, sizeof(pair)) ||
	       extents_add_shard(b, "b.tar", &stamp) || extents_add(b, 0, 1000, &deflated, "b.jpg", 5) ||
	       columns_put_int(&b->columns, 0, 1) || columns_put(&b->columns, 1, "", 0) ||
	       columns_put(&b->columns, 2, pair, sizeof(pair)) || extents_leave_out(b, "c", 1, "has no label");
}

/* A small valid index as a start for mutations: the fuzzer's bytes are laid over it. */
static void try_overlay(const uint8_t *data, size_t size, bool has_content)
{
	struct extents_builder b = { .has_content = has_content };
	struct extents ix;
	unsigned char *bytes;

	if (fill(&b) || extents_build(&b, &ix)) {
		extents_builder_finish(&b);
		return;
	}
	bytes = ix.block;
	for (size_t i = 0; i + 2 < size; i += 3) {
		bytes[(data[i] | (size_t)data[i + 1] << 8) % ix.block_bytes] ^= data[i + 2];
	}
	try_parse(bytes, ix.block_bytes, 1);
	extents_finish(&ix);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_parse(data, size, 0);
	try_parse(data, size, 1);
	try_overlay(data, size, false);
	try_overlay(data, size, true);
	return 0;
}
