/* JSON of samples: any bytes have a value for a key or none, which is a text of its kind. */
#include <stdlib.h>
#include <string.h>

#include "data/json-field.h"

static void take(const char *bytes, size_t size)
{
	struct text values = { 0 };
	enum column_kind kind = COLUMN_BYTES;
	uint64_t at = 0;
	size_t n = 0;
	int r = json_field_add(&values, bytes, size, "k", &kind, &at, &n);

	if (r == 1) {
		char *end;

		if (at + n >= values.n || values.bytes[at + n] || kind == COLUMN_BYTES) {
			abort();
		}
		(void)strtod(values.bytes + at, &end);
		if (kind != COLUMN_TEXT && (!n || end != values.bytes + at + n)) {
			abort();
		}
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
