/* See json-field.h. */
#include "data/json-field.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARSED_PER_BYTE = 96 /* memory that a byte of JSON takes when it is parsed, at most: "{},{},..." */ };

static int add_dump(struct text *values, const json_t *value, uint64_t *at, size_t *n_value)
{
	char *dump = json_dumps(value, JSON_COMPACT);
	int r = -ENOMEM;

	if (dump) {
		*n_value = strlen(dump);
		r = text_add(values, dump, *n_value, at);
		free(dump);
	}
	return r;
}

static int add_value(struct text *values, const json_t *value, enum column_kind *kind, uint64_t *at, size_t *n_value)
{
	char number[40];

	*kind = COLUMN_TEXT;
	if (json_is_string(value)) {
		*n_value = json_string_length(value);
		return text_add(values, json_string_value(value), *n_value, at);
	}
	if (json_is_object(value) || json_is_array(value))
		return add_dump(values, value, at, n_value);
	*kind = json_is_real(value) ? COLUMN_FLOAT32 : COLUMN_INT64;
	*n_value = (size_t)(json_is_real(value) ? snprintf(number, sizeof(number), "%.17g", json_real_value(value))
						: snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT,
							   json_is_integer(value) ? json_integer_value(value)
										  : (json_int_t)json_is_true(value)));
	return text_add(values, number, *n_value, at);
}

int json_field_add(struct text *values, const char *bytes, size_t n, const char *key, enum column_kind *kind,
		   uint64_t *at, size_t *n_value)
{
	uint64_t parsed_bytes = n * (uint64_t)PARSED_PER_BYTE;
	int r = meter_take(values->meter, parsed_bytes);
	json_error_t error;
	json_t *object, *value;

	if (r < 0)
		return r;
	object = json_loadb(bytes, n, 0, &error);
	value = json_object_get(object, key);
	r = !value || json_is_null(value) ? 0 : add_value(values, value, kind, at, n_value);
	r = r < 0 ? r : value && !json_is_null(value);
	json_decref(object);
	meter_give(values->meter, parsed_bytes);
	return r;
}
