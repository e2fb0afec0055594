/* Arrays for batchctl preview: rows that are pictures, and the numbers of others. */
#ifndef BATCHCTL_PREVIEW_ARRAY_H
#define BATCHCTL_PREVIEW_ARRAY_H

#include <jansson.h>

#include "dataset/dataset.h"
#include "batch/pixels.h"
#include "image/kernels/image.h"

/* Starts zeroed. */
struct preview_array {
	struct pixels pixels;
	uint8_t *row, *image; /* image: room for the widest pixel */
};

/* 0; -EINVAL with a text that says what the rows are instead; -ENOMEM. */
int preview_array_open(struct preview_array *a, const struct dataset *ds, char *why, size_t size);
/* The row as a picture of a pipeline's pixels, valid until the next call. 0 or negative errno with err. */
int preview_array_image(struct preview_array *a, struct dataset *ds, uint64_t index, enum pixel to, struct image *out,
			struct dataset_error *err);
void preview_array_finish(struct preview_array *a);

/* {"indices": [...], "fields": [{name: value}, ...]} of samples that are no pictures. */
json_t *preview_array_numbers(struct dataset *ds, const uint64_t *order, uint64_t n);

#endif
