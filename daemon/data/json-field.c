/* See json-field.h. */
#include "data/json-field.h"

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

int json_field_add(struct text *values, const char *bytes, size_t n, const char *key, struct json_value *out, char *why,
		   size_t size)
{
	uint64_t parsed_bytes = n * (uint64_t)PARSED_PER_BYTE;
	int r = meter_take(values->meter, parsed_bytes);
	json_error_t error;
	json_t *object, *value;

	if (r < 0)
		return r;
	if (n >= 3 && !memcmp(bytes, "\xef\xbb\xbf", 3)) {
		bytes += 3;
		n -= 3;
	}
	object = json_loadb(bytes, n, 0, &error);
	value = json_object_get(object, key);
	if (value && !json_is_null(value)) {
		r = add_value(values, value, out);
		r = r < 0 ? r : 1;
	} else {
		snprintf(why, size, "%s%.80s%s",
			 !object ? "is no JSON: "
			 : value ? ""
				 : "has no ",
			 !object ? error.text : key, value ? " is null" : "");
	}
	json_decref(object);
	meter_give(values->meter, parsed_bytes);
	return r;
}
