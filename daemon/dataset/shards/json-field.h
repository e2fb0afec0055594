/* Values of a JSON object as a sample's values. */
#ifndef BATCHD_JSON_FIELD_H
#define BATCHD_JSON_FIELD_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "dataset/block.h"
#include "dataset/columns.h"

struct json_value {
	enum column_kind kind; /* what it would be by itself: COLUMN_TEXT, COLUMN_INT64 or COLUMN_FLOAT32 */
	uint64_t at;           /* in the texts */
	size_t n;
};

/* Parsed when its first value is asked for, once for all of them. Zeroed: not yet. */
struct json_document {
	const char *bytes;
	size_t n;
	json_t *object;
	uint64_t parsed_bytes;                   /* taken of the meter */
	char error[40 + JSON_ERROR_TEXT_LENGTH]; /* with what it says of the document */
};

/* Adds the value of `key` to `values` as text: a string as it is, numbers in decimal, true and false as 1 and 0, lists and
 * objects as JSON. As Python's json.loads, it skips the mark of UTF-8. 1 with `out`; 0 with `why` where the bytes are no
 * object, or the value is null or absent; -ENOMEM or the meter's error. */
int json_field_add(struct text *values, struct json_document *d, const char *key, struct json_value *out, char *why,
		   size_t size);
/* Gives its memory back to the meter of `values`. */
void json_document_finish(struct json_document *d, struct text *values);

#endif
