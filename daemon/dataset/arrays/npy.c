/* A .npy header is a Python dictionary literal: {'descr': '<f4', 'fortran_order': False, 'shape': (10000, 256), }
 * padded with spaces.
 *
 * numpy writes it in one way, and this parser reads that: the three keys, each once, in any order, either kind of
 * quote, spaces where Python allows them. Anything else (structured types, expressions, comments) is refused. */
#include "dataset/arrays/npy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct reader {
	const char *at, *end;
	struct npy_error *err;
};

int npy_fail(struct npy_error *err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return -EINVAL;
}

static void skip_spaces(struct reader *r)
{
	while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n'))
		r->at++;
}

static bool npy_take(struct reader *r, char c)
{
	skip_spaces(r);
	if (r->at < r->end && *r->at == c) {
		r->at++;
		return true;
	}
	return false;
}

static bool take_word(struct reader *r, const char *word)
{
	size_t n = strlen(word);

	skip_spaces(r);
	if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n))
		return false;
	r->at += n;
	return true;
}

/* A quoted string without escapes. */
static bool take_string(struct reader *r, const char **text, size_t *n)
{
	const char *end;
	char quote;

	skip_spaces(r);
	if (r->at == r->end || (*r->at != '\'' && *r->at != '"'))
		return false;
	quote = *r->at++;
	end = memchr(r->at, quote, (size_t)(r->end - r->at));
	if (!end || memchr(r->at, '\\', (size_t)(end - r->at)))
		return false;
	*text = r->at;
	*n = (size_t)(end - r->at);
	r->at = end + 1;
	return true;
}

static const struct {
	const char *descr;
	enum dtype dtype;
} types[] = {
	{ "|b1", DTYPE_BOOL8 },   { "|u1", DTYPE_UINT8 },  { "<u1", DTYPE_UINT8 },     { "<i2", DTYPE_INT16 },
	{ "<i4", DTYPE_INT32 },   { "<i8", DTYPE_INT64 },  { "<f2", DTYPE_FLOAT16 },   { "<f4", DTYPE_FLOAT32 },
	{ "<f8", DTYPE_FLOAT64 }, { "|i1", DTYPE_INT8 },   { "<i1", DTYPE_INT8 },      { "<u2", DTYPE_UINT16 },
	{ "<u4", DTYPE_UINT32 },  { "<u8", DTYPE_UINT64 }, { "<c8", DTYPE_COMPLEX64 }, { "<c16", DTYPE_COMPLEX128 },
};

/* A type that holds the same numbers: the same type in the other byte order; for a type wider than all supported ones
 * (float128), the widest of its kind. */
static const char *better_dtype(const char *descr, size_t n)
{
	static const struct {
		char kind;
		enum dtype widest;
	} kinds[] = { { 'f', DTYPE_FLOAT64 }, { 'c', DTYPE_COMPLEX128 } };

	for (size_t i = 0; n > 2 && i < sizeof(types) / sizeof(types[0]); i++) {
		if (n == strlen(types[i].descr) && !memcmp(descr + 1, types[i].descr + 1, n - 1))
			return dtype_name(types[i].dtype);
	}
	for (size_t i = 0; n > 2 && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (descr[1] == kinds[i].kind)
			return dtype_name(kinds[i].widest);
	}
	return NULL;
}

static int read_descr(struct reader *r, struct npy *out)
{
	const char *use, *text;
	char shown[40];
	size_t n;

	if (!take_string(r, &text, &n)) {
		return npy_fail(
			r->err,
			"a structured or unreadable dtype: expected one plain type; save each field with numpy.save(file, a['field'])");
	}
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (n == strlen(types[i].descr) && !memcmp(text, types[i].descr, n)) {
			out->dtype = types[i].dtype;
			return 0;
		}
	}
	use = better_dtype(text, n);
	for (size_t i = 0; i < n; i++)
		n = text[i] >= ' ' && text[i] <= '~' ? n : i;
	snprintf(shown, sizeof(shown), "%.*s", n < 32 ? (int)n : 32, text);
	if (use)
		return npy_fail(r->err, "dtype '%s' is not served: convert with numpy.save(file, a.astype('%s'))",
				shown, use);
	return npy_fail(
		r->err,
		"dtype '%s' is not served: expected bool, int8 to int64, uint8 to uint64, float16 to float64, complex64 or "
		"complex128",
		shown);
}

static int npy_read_order(struct reader *r)
{
	if (take_word(r, "True"))
		return npy_fail(r->err, "Fortran order: convert with numpy.save(file, numpy.ascontiguousarray(a))");
	return take_word(r, "False") ? 0
				     : npy_fail(r->err, "damaged header: 'fortran_order' is neither True nor False");
}

static bool npy_take_number(struct reader *r, uint64_t *value)
{
	const char *begin;

	skip_spaces(r);
	begin = r->at;
	for (*value = 0; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
		if (*value > (INT64_MAX - 9) / 10)
			return false;
		*value = *value * 10 + (uint64_t)(*r->at - '0');
	}
	return r->at > begin;
}

static int npy_read_shape(struct reader *r, struct npy *out)
{
	out->n_dims = 0;
	if (!npy_take(r, '(')) {
		return npy_fail(r->err, "damaged header: 'shape' is not a tuple");
	}
	while (!npy_take(r, ')')) {
		if (out->n_dims == NPY_MAX_DIMS)
			return npy_fail(r->err, "more than %d dimensions", NPY_MAX_DIMS);
		if (!npy_take_number(r, &out->shape[out->n_dims]))
			return npy_fail(r->err, "damaged header: 'shape' holds something that is not a size");
		out->n_dims++;
		if (!npy_take(r, ',')) {
			if (out->n_dims == 1 || !npy_take(r, ')'))
				return npy_fail(r->err, "damaged header: 'shape' is not a tuple");
			break;
		}
	}
	return 0;
}

static int read_dictionary(struct reader *r, struct npy *out)
{
	static const char *const keys[] = { "descr", "fortran_order", "shape" };
	bool seen[3] = { false };

	if (!npy_take(r, '{'))
		return npy_fail(r->err, "damaged header: expected a dictionary");
	while (!npy_take(r, '}')) {
		const char *key;
		size_t n, k = 0;
		int e;

		if (!take_string(r, &key, &n) || !npy_take(r, ':'))
			return npy_fail(r->err, "damaged header: expected 'key': value");
		while (k < 3 && (n != strlen(keys[k]) || memcmp(key, keys[k], n)))
			k++;
		if (k == 3 || seen[k])
			return npy_fail(r->err,
					"damaged header: expected 'descr', 'fortran_order' and 'shape', each once");
		seen[k] = true;
		e = k == 0 ? read_descr(r, out) : k == 1 ? npy_read_order(r) : npy_read_shape(r, out);
		if (e)
			return e;
		if (!npy_take(r, ',')) {
			if (!npy_take(r, '}'))
				return npy_fail(r->err, "damaged header: expected ',' or '}'");
			break;
		}
	}
	skip_spaces(r);
	if (!seen[0] || !seen[1] || !seen[2] || r->at != r->end)
		return npy_fail(
			r->err,
			"damaged header: expected 'descr', 'fortran_order' and 'shape', each once, and nothing after them");
	return 0;
}

static int find_size(struct npy *out, struct npy_error *err)
{
	uint64_t n = dtype_bytes(out->dtype);

	for (unsigned i = 0; i < out->n_dims; i++) {
		if (__builtin_mul_overflow(n, out->shape[i], &n) || n > (uint64_t)INT64_MAX - NPY_MAX_HEADER_BYTES - 16)
			return npy_fail(err, "damaged header: the shape's product is too large");
	}
	out->data_bytes = n;
	return 0;
}

int npy_parse(const void *bytes, size_t n_bytes, struct npy *out, struct npy_error *err)
{
	const unsigned char *b = bytes;
	uint64_t n_header, n_before;
	struct reader r;
	int e;

	memset(out, 0, sizeof(*out));
	if (n_bytes < 10 || memcmp(b, "\x93NUMPY", 6))
		return npy_fail(err, "not a .npy file: expected one written by numpy.save");
	if (b[6] < 1 || b[6] > 3 || b[7])
		return npy_fail(err, "version %u.%u of the .npy format: expected 1.0, 2.0 or 3.0", b[6], b[7]);
	n_before = b[6] == 1 ? 10 : 12;
	if (n_bytes < n_before)
		return npy_fail(err, "damaged header: the file ends in it");
	n_header = (uint64_t)b[8] | (uint64_t)b[9] << 8;
	if (b[6] > 1)
		n_header |= (uint64_t)b[10] << 16 | (uint64_t)b[11] << 24;
	if (n_header > NPY_MAX_HEADER_BYTES - n_before)
		return npy_fail(err, "damaged header: it claims %llu bytes, expected fewer than 64 KiB",
				(unsigned long long)n_header);
	if (n_header > n_bytes - n_before)
		return npy_fail(err, "damaged header: the file ends in it");
	r = (struct reader){ (const char *)b + n_before, (const char *)b + n_before + n_header, err };
	e = read_dictionary(&r, out);
	if (e)
		return e;
	out->data_offset_bytes = n_before + n_header;
	return find_size(out, err);
}
