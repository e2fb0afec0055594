/* Kept indexes: any bytes, and any bytes under a correct checksum, are refused or safe to use. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "dataset/folder/manifest.h"

enum { CHECKSUM_AT = 16, CHECKED_FROM = 24 };

static void use(const struct manifest *ix)
{
	for (uint64_t i = 0; i < ix->n_files; i++) {
		char name[256];

		manifest_name(ix, i, name, sizeof(name));
		if (name[0] == '/' || !strncmp(name, "../", 3)) {
			abort(); /* leads out of its folder */
		}
		(void)manifest_label(ix, i);
	}
	for (uint32_t i = 0; i < ix->n_classes; i++) {
		(void)strlen(ix->text + ix->class_name[i]);
	}
	(void)manifest_hash(ix, 0);
}

static void try_parse(const uint8_t *data, size_t size, int forge)
{
	unsigned char *block = malloc(size ? size : 1);
	struct manifest ix;

	if (size) {
		memcpy(block, data, size);
	}
	if (forge && size > CHECKED_FROM) {
		uint64_t sum = XXH3_64bits(block + CHECKED_FROM, size - CHECKED_FROM);

		memcpy(block + CHECKSUM_AT, &sum, sizeof(sum));
	}
	if (manifest_parse(block, size, &ix) == 0) {
		use(&ix);
		manifest_finish(&ix);
	} else {
		free(block);
	}
}

/* A small valid index as a start for mutations: the fuzzer's bytes are laid over it. */
static void try_overlay(const uint8_t *data, size_t size)
{
	struct manifest_dir root = { .class_id = MANIFEST_NO_CLASS }, dog = { 0 };
	struct manifest_builder b = { 0 };
	struct manifest ix;
	unsigned char *bytes;

	if (manifest_add_class(&b, "dog") || manifest_add_dir(&b, ".", 1, &root) ||
	    manifest_add_dir(&b, "dog", 3, &dog) || manifest_add_file(&b, 1, "a.jpg", 5) ||
	    manifest_add_file(&b, 1, "b.jpg", 5) || manifest_build(&b, &ix)) {
		manifest_builder_finish(&b);
		return;
	}
	bytes = ix.block;
	for (size_t i = 0; i + 2 < size; i += 3) {
		bytes[(data[i] | (size_t)data[i + 1] << 8) % ix.block_bytes] ^= data[i + 2];
	}
	try_parse(bytes, ix.block_bytes, 1);
	manifest_finish(&ix);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_parse(data, size, 0);
	try_parse(data, size, 1);
	try_overlay(data, size);
	return 0;
}
