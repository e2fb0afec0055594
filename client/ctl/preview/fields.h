/* Fields beside the picture, and those of arrays that are no pictures, for batchctl preview: as JSON, and as the line under a picture. */
#ifndef BATCHCTL_PREVIEW_FIELDS_H
#define BATCHCTL_PREVIEW_FIELDS_H

#include <jansson.h>

#include "dataset/dataset.h"

/* {name: value} of a sample, from field `first` on: numbers, lists of them (a row's, or a ragged field's one after the
 * other), texts, and {"bytes": how many} for bytes. A list of more than 64 numbers becomes {"values": how many}, a value
 * that cannot be read {"error": why}. */
json_t *preview_fields_json(struct dataset *ds, uint64_t index, unsigned first);
/* The class, "label 7", or "label 0.5 1 0" of a sample. */
void preview_fields_label(struct dataset *ds, uint64_t index, char *text, size_t size);

#endif
