/* Arguments of ops. Checks are strict, and every error says which op, which argument, its value and what was expected:
 * the readers of these texts have written a list by hand, in another language. */
#include "image/transform/op-types.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int arguments_complain(struct arguments *a, const char *text)
{
	snprintf(a->err->text, sizeof(a->err->text), "op %s '%.40s' %s", a->position, a->op, text);
	return -EINVAL;
}

int argument_wrong(struct arguments *a, unsigned i, const char *expected)
{
	char *value =
		a->values[i] ? json_dumps(a->values[i], JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;

	if (a->values[i])
		snprintf(a->err->text, sizeof(a->err->text), "op %s '%s': argument '%s' is %.40s%s; expected %s",
			 a->position, a->op, a->names[i], value ? value : "?", value && strlen(value) > 40 ? "..." : "",
			 expected);
	else
		snprintf(a->err->text, sizeof(a->err->text), "op %s '%s': argument '%s' is missing; expected %s",
			 a->position, a->op, a->names[i], expected);
	free(value);
	return -EINVAL;
}

int op_wrong(const struct op *op, struct pipeline_error *err, const char *fmt, ...)
{
	int n = snprintf(err->text, sizeof(err->text), "op %s '%s' ", op->position, op->type->name);
	va_list args;

	va_start(args, fmt);
	vsnprintf(err->text + n, sizeof(err->text) - (size_t)n, fmt, args);
	va_end(args);
	return -EINVAL;
}

static unsigned count_names(const struct arguments *a)
{
	unsigned n = 0;

	while (a->names && a->names[n])
		n++;
	return n;
}

static int bind_named(struct arguments *a, json_t *named)
{
	unsigned n_names = count_names(a);
	const char *name;
	json_t *value;

	json_object_foreach (named, name, value) {
		unsigned i = 0;
		char text[120];

		while (i < n_names && strcmp(a->names[i], name) != 0)
			i++;
		if (i == n_names) {
			size_t n = (size_t)snprintf(text, sizeof(text), "has no argument '%.30s'; it has:", name);

			for (i = 0; i < n_names && n < sizeof(text); i++)
				n += (size_t)snprintf(text + n, sizeof(text) - n, "%s %s", i ? "," : "", a->names[i]);
			return arguments_complain(a, i ? text : "takes no arguments");
		}
		if (a->values[i]) {
			snprintf(text, sizeof(text), "got argument '%.40s' twice, by position and by name", name);
			return arguments_complain(a, text);
		}
		a->values[i] = value;
	}
	return 0;
}

int arguments_bind(struct arguments *a, json_t *entry)
{
	size_t n = json_is_array(entry) ? json_array_size(entry) - 1 : 0;
	json_t *last = n > 0 ? json_array_get(entry, n) : NULL;
	unsigned n_names = count_names(a);
	char text[80];

	memset(a->values, 0, sizeof(a->values));
	n -= json_is_object(last) ? 1 : 0;
	if (n > n_names) {
		snprintf(text, sizeof(text), "takes at most %u arguments and got %zu", n_names, n);
		return arguments_complain(a, n_names ? text : "takes no arguments");
	}
	for (unsigned i = 0; i < n; i++)
		a->values[i] = json_array_get(entry, i + 1);
	return json_is_object(last) ? bind_named(a, last) : 0;
}

/* A whole number in from..to; 7.0 counts as one. */
static bool is_count(json_t *v, uint32_t from, uint32_t to, uint32_t *out)
{
	double x = json_is_number(v) ? json_number_value(v) : -1.0;

	if (!(x >= from && x <= to) || x != floor(x))
		return false;
	*out = (uint32_t)x;
	return true;
}

static bool is_number(json_t *v, double from, double to, double *out)
{
	double x = json_is_number(v) ? json_number_value(v) : NAN;

	if (!(x >= from && x <= to))
		return false;
	*out = x;
	return true;
}

int argument_size(struct arguments *a, unsigned i, struct op_size *out)
{
	json_t *v = a->values[i];
	bool one = json_is_array(v) && json_array_size(v) == 1, two = json_is_array(v) && json_array_size(v) == 2;

	out->single = !two;
	if (two && is_count(json_array_get(v, 0), 1, SPEC_MAX_EDGE, &out->height) &&
	    is_count(json_array_get(v, 1), 1, SPEC_MAX_EDGE, &out->width))
		return 0;
	if (!two && is_count(one ? json_array_get(v, 0) : v, 1, SPEC_MAX_EDGE, &out->height)) {
		out->width = out->height;
		return 0;
	}
	return argument_wrong(a, i, "a size or [height, width], 1 to 8192 pixels");
}

int argument_count(struct arguments *a, unsigned i, uint32_t from, uint32_t to, uint32_t *out)
{
	char expected[64];

	if (!a->values[i] || json_is_null(a->values[i]) || is_count(a->values[i], from, to, out))
		return 0;
	snprintf(expected, sizeof(expected), "a whole number from %u to %u", from, to);
	return argument_wrong(a, i, expected);
}

int argument_bool(struct arguments *a, unsigned i, bool *out)
{
	if (!a->values[i])
		return 0;
	if (!json_is_boolean(a->values[i]))
		return argument_wrong(a, i, "true or false");
	*out = json_is_true(a->values[i]);
	return 0;
}

int argument_number(struct arguments *a, unsigned i, double from, double to, double *out)
{
	char expected[64];

	if (!a->values[i] || is_number(a->values[i], from, to, out))
		return 0;
	snprintf(expected, sizeof(expected), "a number from %g to %g", from, to);
	return argument_wrong(a, i, expected);
}

int argument_range(struct arguments *a, unsigned i, double from, double to, double out[2])
{
	json_t *v = a->values[i];
	char expected[96];

	if (!v)
		return 0;
	if (json_is_array(v) && json_array_size(v) == 2 && is_number(json_array_get(v, 0), from, to, &out[0]) &&
	    is_number(json_array_get(v, 1), from, to, &out[1]) && out[0] <= out[1])
		return 0;
	snprintf(expected, sizeof(expected), "[min, max] with %g <= min <= max <= %g", from, to);
	return argument_wrong(a, i, expected);
}

int argument_colors(struct arguments *a, unsigned i, double from, double to, double out[3], uint32_t *n)
{
	json_t *v = a->values[i];
	size_t size = json_is_array(v) ? json_array_size(v) : 1;
	bool right = size == 1 || size == 3;
	char expected[64];

	if (!v)
		return 0;
	for (size_t c = 0; right && c < size; c++)
		right = is_number(json_is_array(v) ? json_array_get(v, c) : v, from, to, &out[c]);
	if (!right) {
		snprintf(expected, sizeof(expected), "one or three numbers from %g to %g", from, to);
		return argument_wrong(a, i, expected);
	}
	if (size == 1)
		out[1] = out[2] = out[0];
	*n = (uint32_t)size;
	return 0;
}

int argument_choice(struct arguments *a, unsigned i, const char *const *choices, unsigned *out)
{
	char expected[160] = "one of";
	size_t n = strlen(expected);

	if (!a->values[i])
		return 0;
	for (unsigned c = 0; choices[c]; c++) {
		if (json_is_string(a->values[i]) && strcmp(json_string_value(a->values[i]), choices[c]) == 0) {
			*out = c;
			return 0;
		}
		if (n < sizeof(expected))
			n += (size_t)snprintf(expected + n, sizeof(expected) - n, "%s \"%s\"", c ? "," : "",
					      choices[c]);
	}
	return argument_wrong(a, i, expected);
}

int argument_padding(struct arguments *a, unsigned i, int32_t from, struct op_padding *out, bool *given)
{
	json_t *v = a->values[i];
	size_t n = json_is_array(v) ? json_array_size(v) : 1;
	int32_t *edges[4] = { &out->left, &out->top, &out->right, &out->bottom };
	bool right = n == 1 || n == 2 || n == 4;
	char expected[120];
	double pixels;

	if (!v || json_is_null(v))
		return 0;
	for (size_t e = 0; right && e < 4; e++) {
		right = is_number(json_is_array(v) ? json_array_get(v, e % n) : v, from, SPEC_MAX_EDGE, &pixels) &&
			pixels == floor(pixels);
		*edges[e] = right ? (int32_t)pixels : 0;
	}
	if (!right) {
		snprintf(expected, sizeof(expected),
			 "one number, [left/right, top/bottom] or [left, top, right, bottom], %d to %d pixels", from,
			 SPEC_MAX_EDGE);
		return argument_wrong(a, i, expected);
	}
	*given = true;
	return 0;
}

int argument_fill(struct arguments *a, unsigned i, struct op_fill *out)
{
	double colors[3] = { 0 };
	uint32_t n = 1;
	int rc = argument_colors(a, i, 0, 255, colors, &n);

	for (int c = 0; c < 3; c++)
		out->color[c] = (uint8_t)colors[c];
	out->single = n == 1;
	return rc;
}

int argument_fill_number(struct arguments *a, unsigned i, struct op_fill *out)
{
	double v = json_number_value(a->values[i]);
	int rc = 0;

	if (a->reader->numbers && json_is_number(a->values[i]))
		*out = (struct op_fill){ .single = true, .number = v };
	else
		rc = argument_fill(a, i, out);
	return rc;
}

static const char *const filter_names[] = { "nearest", "bilinear", "bicubic",       "lanczos",
					    "box",     "hamming",  "nearest-exact", NULL };
static const enum filter filters[] = { FILTER_NEAREST, FILTER_BILINEAR, FILTER_BICUBIC, FILTER_LANCZOS,
				       FILTER_BOX,     FILTER_HAMMING,  FILTER_NEAREST };

int argument_resampling(struct arguments *a, unsigned interpolation, unsigned antialias, unsigned pillow,
			struct op_resampling *out)
{
	unsigned choice = 1;
	bool smooth = true;
	uint32_t version = 13;
	int rc = argument_choice(a, interpolation, filter_names, &choice);

	if (rc == 0)
		rc = argument_bool(a, antialias, &smooth);
	if (rc == 0 && !smooth)
		rc = argument_wrong(a, antialias, "true: images are always antialiased, as Pillow does");
	if (rc == 0)
		rc = argument_count(a, pillow, 12, 13, &version);
	out->filter = filters[choice];
	out->order = version == 12 ? PASS_ORDER_PILLOW_12 : PASS_ORDER_PILLOW_13;
	return rc;
}

json_t *json_size(const struct op_size *s)
{
	return s->single ? json_integer(s->height) : json_pack("[ii]", (int)s->height, (int)s->width);
}

json_t *json_fill(const struct op_fill *f)
{
	if (f->single && f->number != 0.0)
		return json_real(f->number);
	return f->single ? json_integer(f->color[0]) : json_pack("[iii]", f->color[0], f->color[1], f->color[2]);
}

json_t *json_padding(const struct op_padding *p)
{
	return json_pack("[iiii]", p->left, p->top, p->right, p->bottom);
}

const char *filter_name(enum filter f)
{
	unsigned i = 0;

	while (filters[i] != f)
		i++;
	return filter_names[i];
}

int pillow_version(enum pass_order order)
{
	return order == PASS_ORDER_PILLOW_12 ? 12 : 13;
}

int argument_weights(struct arguments *a, unsigned i, unsigned n, double *out, bool *given)
{
	json_t *v = a->values[i];
	bool right = json_is_array(v) && json_array_size(v) == n;
	char expected[80];

	*given = v && !json_is_null(v);
	if (!*given)
		return 0;
	for (unsigned k = 0; right && k < n; k++)
		right = is_number(json_array_get(v, k), 0, 1e9, &out[k]);
	if (right)
		return 0;
	snprintf(expected, sizeof(expected), "a weight for each of the %u ops, from 0 to 1e9", n);
	return argument_wrong(a, i, expected);
}

int argument_ops(struct arguments *a, unsigned i, struct op *op)
{
	return a->reader->read(a->reader, a, i, op);
}

int argument_move_filter(struct arguments *a, unsigned i, enum filter *out)
{
	static const char *const names[] = { "nearest", "bilinear", "bicubic", NULL };
	static const enum filter numbers[] = { FILTER_NEAREST, FILTER_BILINEAR, FILTER_BICUBIC };
	unsigned choice = 0;
	int rc = argument_choice(a, i, names, &choice);

	*out = numbers[choice];
	return rc;
}
