/* See list-number.h. */
#include "dataset/folder/list-number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool list_kind_find(const char *name, size_t n, enum list_kind *kind)
{
	static const char *const names[] = {
		[LIST_CLASS] = "class", [LIST_INT] = "int", [LIST_FLOAT] = "float", [LIST_TEXT] = "text"
	};

	for (size_t i = LIST_CLASS; i < sizeof(names) / sizeof(*names); i++) {
		if (strlen(names[i]) == n && !memcmp(names[i], name, n)) {
			*kind = (enum list_kind)i;
			return true;
		}
	}
	return false;
}

bool list_whole(const char *text, int64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoll(text, &end, 10);
	return !errno && end != text && !end[strspn(end, " ")];
}

bool list_exceeds_int64(const char *text)
{
	const char *digits = text + strspn(text, " ");
	int64_t value;
	size_t n;

	digits += *digits == '-' || *digits == '+';
	n = strspn(digits, "0123456789");
	return n && !digits[n + strspn(digits + n, " ")] && !list_whole(text, &value);
}

size_t list_floats(const char *text, float *out, size_t most)
{
	const char *blanks = text[strspn(text, " ")] == '[' ? " ," : " ";
	size_t n = 0;

	for (text += strspn(text, " ["); *text && *text != ']'; n++) {
		char *end;
		float value = strtof(text, &end);

		if (end == text || n == most || (*end && *end != ']' && !strchr(blanks, *end)))
			return SIZE_MAX;
		if (out)
			out[n] = value;
		text = end + strspn(end, blanks);
	}
	return *text && text[1 + strspn(text + 1, " ")] ? SIZE_MAX : n;
}

bool list_exceeds_float32(const char *text)
{
	for (text += strspn(text, " [,"); *text; text += strspn(text, " [,]")) {
		char *end;
		float value;

		errno = 0;
		value = strtof(text, &end);
		if (end == text)
			return false;
		if (errno == ERANGE && value - value != 0)
			return true;
		text = end;
	}
	return false;
}
