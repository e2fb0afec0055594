/* See names.h. {"d":[["name",{"a":0}],["other",...]]}: only the outermost dictionary is looked at, and of what lies
 * deeper no more than where it ends. */
#include "link/names.h"

#include <stdbool.h>
#include <string.h>

struct scan {
	const char *at, *end;
};

static bool skip_text(struct scan *s, const char *text)
{
	size_t n = strlen(text);

	if ((size_t)(s->end - s->at) < n || memcmp(s->at, text, n) != 0)
		return false;
	s->at += n;
	return true;
}

/* A string with its quotes. */
static bool skip_string(struct scan *s)
{
	if (!skip_text(s, "\""))
		return false;
	while (s->at < s->end && *s->at != '"')
		s->at += *s->at == '\\' && s->end - s->at > 1 ? 2 : 1;
	return skip_text(s, "\"");
}

/* Everything up to a comma or closing bracket at this depth. */
static bool names_skip_value(struct scan *s)
{
	unsigned depth = 0;

	while (s->at < s->end) {
		char c = *s->at;

		if (c == '"') {
			if (!skip_string(s))
				return false;
			continue;
		}
		if (depth == 0 && (c == ',' || c == ']' || c == '}'))
			return true;
		depth += c == '[' || c == '{';
		depth -= c == ']' || c == '}';
		s->at++;
	}
	return false;
}

/* {"a":12}, or another kind of array (python/batchd/_tree.py has the list). -1: something else. */
static int array_number(struct scan s)
{
	static const char *const kinds[] = { "{\"a\":",  "{\"n\":",  "{\"s\":",  "{\"y\":",
					     "{\"ra\":", "{\"rn\":", "{\"ga\":", "{\"gn\":" };
	unsigned kind = 0;
	int number = 0, digits = 0;

	while (kind < sizeof kinds / sizeof *kinds && !skip_text(&s, kinds[kind]))
		kind++;
	if (kind == sizeof kinds / sizeof *kinds)
		return -1;
	for (; s.at < s.end && *s.at >= '0' && *s.at <= '9' && digits < 6; s.at++, digits++)
		number = number * 10 + (*s.at - '0');
	return digits && skip_text(&s, "}") ? number : -1;
}

int names_find(const char *text, size_t n_text, const char *name)
{
	struct scan s = { text, text + n_text };
	size_t n_name = strlen(name);

	if (!skip_text(&s, "{\"d\":["))
		return -1;
	while (skip_text(&s, "[")) {
		const char *key = s.at;
		bool same;

		if (!names_skip_value(&s))
			return -1;
		same = (size_t)(s.at - key) == n_name + 2 && key[0] == '"' && memcmp(key + 1, name, n_name) == 0;
		if (!skip_text(&s, ","))
			return -1;
		if (same)
			return array_number(s);
		if (!names_skip_value(&s) || !skip_text(&s, "]"))
			return -1;
		skip_text(&s, ",");
	}
	return -1;
}
