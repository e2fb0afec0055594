/* See json-field.h. */
#include "dataset/shards/json-field.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARSED_PER_BYTE = 96 /* memory that a byte of JSON takes when it is parsed, at most: "{},{},..." */ };

static int add_dump(struct text *values, const json_t *value, struct json_value *out)
{
	char *dump = json_dumps(value, JSON_COMPACT);
	int r = -ENOMEM;

	if (dump) {
		out->n = strlen(dump);
		r = text_add(values, dump, out->n, &out->at);
		free(dump);
	}
	return r;
}

static int add_value(struct text *values, const json_t *value, struct json_value *out)
{
	char number[40];

	out->kind = COLUMN_TEXT;
	if (json_is_string(value)) {
		out->n = json_string_length(value);
		return text_add(values, json_string_value(value), out->n, &out->at);
	}
	if (json_is_object(value) || json_is_array(value))
		return add_dump(values, value, out);
	out->kind = json_is_real(value) ? COLUMN_FLOAT32 : COLUMN_INT64;
	out->n = (size_t)(json_is_real(value) ? snprintf(number, sizeof(number), "%.17g", json_real_value(value))
					      : snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT,
							 json_is_integer(value) ? json_integer_value(value)
										: (json_int_t)json_is_true(value)));
	return text_add(values, number, out->n, &out->at);
}

/* What is wrong with a document; its grammar allows the first two. */
static void tell_error(struct json_document *d, const json_error_t *error)
{
	switch (json_error_code(error)) {
	case json_error_numeric_overflow:
		snprintf(d->error, sizeof(d->error), "has a number that is too large: %s", error->text);
		break;
	case json_error_null_character:
	case json_error_null_byte_in_key:
		snprintf(d->error, sizeof(d->error), "has a text with \\u0000, which is not read");
		break;
	default:
		snprintf(d->error, sizeof(d->error), "is no JSON: %s", error->text);
		break;
	}
}

static int json_document_parse(struct json_document *d, struct text *values)
{
	uint64_t parsed_bytes = d->n * (uint64_t)PARSED_PER_BYTE;
	int r = d->parsed_bytes ? 0 : meter_take(values->meter, parsed_bytes);
	size_t mark = d->n >= 3 && !memcmp(d->bytes, "\xef\xbb\xbf", 3) ? 3 : 0;
	json_error_t error = { .text = "" };

	if (r < 0 || d->parsed_bytes || d->error[0])
		return r;
	d->parsed_bytes = parsed_bytes;
	d->object = json_loadb(d->bytes + mark, d->n - mark, 0, &error);
	if (!d->object)
		tell_error(d, &error);
	return 0;
}

int json_field_add(struct text *values, struct json_document *d, const char *key, struct json_value *out, char *why,
		   size_t size)
{
	int r = json_document_parse(d, values);
	json_t *value;

	if (r < 0)
		return r;
	value = json_object_get(d->object, key);
	if (value && !json_is_null(value)) {
		r = add_value(values, value, out);
		return r < 0 ? r : 1;
	}
	if (!d->object)
		snprintf(why, size, "%.120s", d->error);
	else
		snprintf(why, size, "%s%.80s%s", value ? "" : "has no ", key, value ? " is null" : "");
	return 0;
}

void json_document_finish(struct json_document *d, struct text *values)
{
	json_decref(d->object);
	meter_give(values->meter, d->parsed_bytes);
	*d = (struct json_document){ .n = 0 };
}
