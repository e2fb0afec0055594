/* See transform-text.h. */
#include "ctl/command/transform-text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

static void put_op(FILE *f, const json_t *op)
{
	const json_t *name = json_is_array(op) ? json_array_get(op, 0) : op, *first = json_array_get(op, 1);

	fputs(json_string_value(name), f);
	if (json_is_integer(first))
		fprintf(f, " %lld", (long long)json_integer_value(first));
	else if (json_is_real(first))
		fprintf(f, " %g", json_real_value(first));
}

static int is_op(const json_t *op)
{
	return json_is_string(json_is_array(op) ? json_array_get(op, 0) : op);
}

/* False: it is no list of ops, or memory is short. */
static int put_ops(const json_t *ops, char **text)
{
	size_t n_bytes, i;
	json_t *op;
	FILE *f;

	json_array_foreach (ops, i, op)
		if (!is_op(op))
			return 0;
	f = json_array_size(ops) ? open_memstream(text, &n_bytes) : NULL;
	if (!f)
		return 0;
	json_array_foreach (ops, i, op) {
		fputs(i ? ", " : "", f);
		put_op(f, op);
	}
	return fclose(f) == 0;
}

void transform_text(const char *transform, char *text, size_t size)
{
	json_t *ops = json_loads(transform, 0, NULL);
	char *all = NULL;
	const char *whole = put_ops(ops, &all) ? all : transform;

	snprintf(text, size, "%s", whole);
	if (strlen(whole) >= size) {
		size_t n = size - 4;

		while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
			n--;
		strcpy(text + n, "...");
	}
	free(all);
	json_decref(ops);
}
