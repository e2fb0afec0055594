/* JSON of samples: any bytes have a value for a key or none, which is a text of its kind. */
#include <stdlib.h>
#include <string.h>

#include "dataset/shards/json-field.h"

static void take(const char *bytes, size_t size)
{
	struct text values = { 0 };
	struct json_value value = { .kind = COLUMN_BYTES };
	char why[160] = "";
	struct json_document document = { .bytes = bytes, .n = size };
	int r = json_field_add(&values, &document, "k", &value, why, sizeof(why));

	json_document_finish(&document, &values);

	if (r == 1) {
		char *end;

		if (value.at + value.n >= values.n || values.bytes[value.at + value.n] || value.kind == COLUMN_BYTES) {
			abort();
		}
		(void)strtod(values.bytes + value.at, &end);
		if (value.kind != COLUMN_TEXT && (!value.n || end != values.bytes + value.at + value.n)) {
			abort();
		}
	}
	if (r == 0 && !why[0]) {
		abort();
	}
	free(values.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char before[] = "{\"k\":";
	char *text = malloc(size + sizeof(before));

	if (!text) {
		return 0;
	}
	memcpy(text, before, sizeof(before) - 1);
	memcpy(text + sizeof(before) - 1, data, size);
	take(text + sizeof(before) - 1, size);
	text[sizeof(before) - 1 + size] = '}';
	take(text, size + sizeof(before));
	free(text);
	return 0;
}
