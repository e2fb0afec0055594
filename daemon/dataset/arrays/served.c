/* See served.h. */
#include "dataset/arrays/served.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/impl.h"

enum { MOST_SAMPLES = 1 << 30 }; /* the list of bad ones has a bit for each */

static void served_destroy(struct dataset *ds)
{
	free(ds);
}

static void name_of(const struct dataset *ds, uint64_t index, char *buf, size_t size)
{
	(void)ds;
	snprintf(buf, size, "sample %llu", (unsigned long long)index);
}

static const struct dataset_ops ops = { .destroy = served_destroy, .name = name_of };

int served_create(const char *name, uint64_t id, uint64_t n, uint64_t slot_bytes, struct dataset **out)
{
	uint64_t pages = slot_bytes / SERVED_PAGE_BYTES + (slot_bytes % SERVED_PAGE_BYTES != 0);
	struct dataset_error err;
	struct field *batch;
	struct dataset *ds;

	if (pages == 0 || pages > UINT32_MAX)
		return -EOVERFLOW;
	ds = calloc(1, sizeof(*ds));
	if (!ds)
		return -ENOMEM;
	ds->ops = &ops;
	atomic_init(&ds->refs, 1);
	ds->id = ds->content_id = XXH3_64bits_withSeed(name, strlen(name), id);
	ds->n = n < MOST_SAMPLES ? n : MOST_SAMPLES;
	batch = dataset_add_field(ds, "batch", DTYPE_UINT8, &err);
	if (!batch) {
		dataset_destroy(ds);
		return -ENOMEM;
	}
	batch->n_dims = 2;
	batch->shape[0] = (uint32_t)pages;
	batch->shape[1] = SERVED_PAGE_BYTES;
	*out = ds;
	return 0;
}
