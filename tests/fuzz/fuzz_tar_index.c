/* The index beside a tar shard: whatever it says, no member that it gives lies outside the shard; and the index that
 * batchctl writes fits its shard and gives the samples that a scan gives. Input: a byte, the length of the text in units
 * of 16, the text, the shard. */
#include <stdlib.h>
#include <string.h>

#include "dataset/shards/tar-index.h"

typedef int scan_fn(struct members *m, const char *text, size_t n);

static int scan_headers(struct members *m, const char *text, size_t n)
{
	(void)text;
	(void)n;
	return tar_scan(m);
}

/* 0: *out has the samples. */
static int make(struct shard_reader *r, scan_fn *scan, const char *text, size_t n, struct extents *out)
{
	struct member_fields fields = {
		.image_name = "image",
		.image = "jpg;png",
		.n_values = 1,
		.values = { { .name = "label", .extensions = "cls", .kind = COLUMN_INT64, .optional = true } }
	};
	struct shard_stamp stamp = { .n_bytes = r->n_bytes };
	struct extents_builder b = { 0 };
	struct members m = { .fields = &fields, .reader = r, .builder = &b };
	int result = extents_add_shard(&b, "x.tar", &stamp);

	result = result ? result : scan(&m, text, n);
	members_finish(&m);
	if (result < 0 && !r->err->text[0]) {
		abort();
	}
	result = result ? result : extents_build(&b, out);
	extents_builder_finish(&b);
	for (uint64_t i = 0; !result && i < out->n; i++) {
		if (out->at[i] > r->n_bytes || out->n_bytes[i] > r->n_bytes - out->at[i]) {
			abort();
		}
	}
	return result;
}

static void try_text(struct shard_reader *r, const char *text, size_t n)
{
	char why[TAR_INDEX_WHY_BYTES];
	struct extents ix = { 0 };

	if (!tar_index_fits(r, text, n, why)) {
		if (!why[0]) {
			abort();
		}
		return;
	}
	if (!make(r, tar_index_scan, text, n, &ix)) {
		extents_finish(&ix);
	}
}

/* What is written of a shard that can be scanned. */
static void try_own(struct shard_reader *r)
{
	char why[TAR_INDEX_WHY_BYTES], *text = NULL;
	struct extents scanned = { 0 }, indexed = { 0 };
	uint64_t n_samples;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);
	int result = f ? tar_index_write(r, f, &n_samples, why) : -1;

	if (f) {
		fclose(f);
	}
	if (!result && !make(r, scan_headers, NULL, 0, &scanned)) {
		if (!tar_index_fits(r, text, n, why) || make(r, tar_index_scan, text, n, &indexed) ||
		    extents_hash(&scanned, 0) != extents_hash(&indexed, 0)) {
			abort();
		}
		extents_finish(&indexed);
		extents_finish(&scanned);
	}
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dataset_error err = { "", 0 };
	struct shard_reader r = { .fd = -1, .name = "x.tar", .err = &err };
	size_t n = size ? (size_t)data[0] * 16 : 0;

	if (!size || n > size - 1) {
		return 0;
	}
	r.bytes = data + 1 + n;
	r.n_bytes = size - 1 - n;
	try_text(&r, (const char *)data + 1, n);
	try_own(&r);
	shard_reader_finish(&r);
	return 0;
}
