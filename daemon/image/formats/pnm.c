/* PNM with Pillow's judgement. It reads numbers as Python's int() does, so that signs and single underscores between
 * digits are allowed, at most 10 characters each; a comment joins what stands before and after it. In text, it checks
 * whole blocks of a mebibyte: also what follows the last pixel in the same block. Numbers are scaled to 255, but those
 * of a graymap whose greatest value is above 255 to 65535, and clipped. */
#include "image/formats/pnm.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKEN_MAX = 10, BLOCK_BYTES = 1 << 20, DEEP_SCALE = 65535 };

struct text {
	const uint8_t *next, *end;
};

static bool is_space(uint8_t c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

bool pnm_begins(const uint8_t *bytes, size_t n_bytes)
{
	return n_bytes >= 3 && bytes[0] == 'P' && ((bytes[1] >= '1' && bytes[1] <= '6') || bytes[1] == 'f') &&
	       is_space(bytes[2]);
}

/* Python's int(). False: it is no number. */
static bool number_of(const char *token, size_t n, int64_t *value)
{
	bool negative = n > 0 && token[0] == '-', digit = false;
	size_t i = n > 0 && (token[0] == '-' || token[0] == '+');

	*value = 0;
	for (; i < n; i++) {
		bool between = token[i] == '_' && digit && i + 1 < n;

		digit = token[i] >= '0' && token[i] <= '9';
		if (!digit && !between)
			return false;
		if (digit)
			*value = *value * 10 + (token[i] - '0');
	}
	*value = negative ? -*value : *value;
	return digit;
}

/* The next token of the header; its length, 0 at the end of the file, or TOKEN_MAX + 1 when it is too long. */
static size_t read_token(struct text *t, char *token)
{
	size_t n = 0;

	while (n <= TOKEN_MAX && t->next < t->end) {
		uint8_t c = *t->next++;

		if (c == '#') {
			while (t->next < t->end && *t->next != '\r' && *t->next != '\n')
				t->next++;
			t->next += t->next < t->end;
		} else if (!is_space(c)) {
			token[n++] = (char)c;
		} else if (n > 0) {
			break;
		}
	}
	return n;
}

static int read_size(struct text *t, const char *what, int64_t least, int64_t most, uint32_t *value,
		     struct image_error *err)
{
	char token[TOKEN_MAX + 1];
	size_t n = read_token(t, token);
	int64_t v;

	if (n == 0 || n > TOKEN_MAX || !number_of(token, n, &v) || v < least || v > most)
		return image_fail(err, IMAGE_E_CORRUPT, "PNM without a %s in its header", what);
	*value = (uint32_t)v;
	return 0;
}

/* The scale of a float map, of which only the sign has a meaning here: negative for little endian. */
static int read_scale(struct text *t, bool *big_endian, struct image_error *err)
{
	char token[TOKEN_MAX + 2], plain[TOKEN_MAX + 2];
	size_t n = read_token(t, token), n_plain = 0;
	bool good = n > 0 && n <= TOKEN_MAX;

	for (size_t i = 0; good && i < n; i++) {
		bool between = token[i] == '_' && i > 0 && i + 1 < n && isdigit((unsigned char)token[i - 1]) &&
			       isdigit((unsigned char)token[i + 1]);

		good = between || (token[i] && strchr("0123456789+-.eE", token[i]));
		if (!between)
			plain[n_plain++] = token[i];
	}
	plain[n_plain] = '\0';
	char *end = plain;
	double scale = good ? strtod(plain, &end) : 0;

	if (!good || *end || scale == 0 || !isfinite(scale))
		return image_fail(err, IMAGE_E_CORRUPT, "PNM of floats without a scale in its header");
	*big_endian = scale > 0;
	return 0;
}

static void layout_of(struct pnm *p, char kind)
{
	struct raw_layout *l = &p->rows.layout;
	bool color = kind == '3' || kind == '6', deep = p->max_value > 255;

	if (kind == '1' || kind == '4') {
		raw_bilevel(l, true);
		return;
	}
	*l = (struct raw_layout){ .kind = RAW_SCALED,
				  .number = deep ? RAW_UINT16 : RAW_UINT8,
				  .big_endian = true,
				  .channels = color ? 3 : 1,
				  .max_value = p->max_value,
				  .scale = deep && !color ? DEEP_SCALE : 255 };
	if (p->max_value == 255)
		*l = (struct raw_layout){ .kind = RAW_BYTES,
					  .step = color ? 3 : 1,
					  .at = { 0, color ? 1 : 0, color ? 2 : 0 } };
}

int pnm_read(const uint8_t *bytes, size_t n_bytes, struct pnm *p, struct image_error *err)
{
	struct text t = { bytes + 3, bytes + n_bytes };
	struct raw_rows *r = &p->rows;
	char kind = (char)bytes[1];
	bool big_endian = false;
	int outcome;

	p->max_value = 1;
	if ((outcome = read_size(&t, "width", 1, UINT32_MAX, &r->width, err)) ||
	    (outcome = read_size(&t, "height", 1, UINT32_MAX, &r->height, err)))
		return outcome;
	if (kind == 'f')
		outcome = read_scale(&t, &big_endian, err);
	else if (kind != '1' && kind != '4')
		outcome = read_size(&t, "greatest value of 1 to 65535", 1, 65535, &p->max_value, err);
	if (outcome)
		return outcome;
	if (kind == 'f')
		r->layout = (struct raw_layout){ .kind = RAW_GREY, .number = RAW_FLOAT32, .big_endian = big_endian };
	else
		layout_of(p, kind);
	r->bottom_up = kind == 'f';
	r->stride_bytes = raw_row_bytes(&r->layout, r->width);
	r->data = t.next;
	p->text = kind >= '1' && kind <= '3';
	p->data_at = (size_t)(t.next - bytes);
	if (!p->text && (n_bytes - p->data_at) / r->stride_bytes < r->height)
		return image_fail(err, IMAGE_E_CORRUPT, "PNM cut short");
	return 0;
}

/* ---- numbers in text ---- */

struct plain {
	const struct pnm *pnm;
	struct cpu_budget *budget;
	const uint8_t *next, *end; /* of the file */
	bool in_comment;           /* at the end of a block */
	char *block;               /* a token begun in the block before, and the block without comments */
	size_t n_half, n_block;
	uint8_t *out;
	uint64_t n_out, n_all; /* in numbers */
};

static const uint8_t *line_end(const uint8_t *p, const uint8_t *end)
{
	while (p < end && *p != '\n' && *p != '\r')
		p++;
	return p < end ? p : NULL;
}

/* Where a comment that goes on in this block ends. Of a line feed as its first byte Pillow takes no notice if the block
 * has a carriage return, nor the other way round. */
static const uint8_t *comment_end(const uint8_t *p, const uint8_t *end)
{
	const uint8_t *a = memchr(p, '\n', (size_t)(end - p)), *b = memchr(p, '\r', (size_t)(end - p));

	if (a == p || b == p)
		return !a || !b ? (a ? a : b) : a > b ? a : b;
	return line_end(p, end);
}

static const uint8_t *next_block(struct plain *s, const uint8_t **end)
{
	const uint8_t *block = s->next;
	size_t n = (size_t)(s->end - s->next) < BLOCK_BYTES ? (size_t)(s->end - s->next) : BLOCK_BYTES;

	s->next += n;
	*end = s->next;
	return block;
}

/* Appends the next block without its comments. */
static void read_block(struct plain *s)
{
	const uint8_t *end, *p = next_block(s, &end);

	while (s->in_comment && p < end) {
		const uint8_t *stop = comment_end(p, end);

		if (stop) {
			p = stop + 1;
			break;
		}
		p = next_block(s, &end);
	}
	s->in_comment = false;
	while (p < end) {
		const uint8_t *hash = memchr(p, '#', (size_t)(end - p)), *stop = hash ? line_end(hash, end) : NULL;
		size_t n = (size_t)((hash ? hash : end) - p);

		memcpy(s->block + s->n_block, p, n);
		s->n_block += n;
		s->in_comment = hash && !stop;
		p = stop ? stop + 1 : end;
	}
}

static int bad_token(const char *token, size_t n, struct image_error *err)
{
	n = n < TOKEN_MAX + 1 ? n : TOKEN_MAX + 1;
	for (size_t i = 0; i < n; i++)
		if (token[i] < ' ' || token[i] > '~')
			return image_fail(err, IMAGE_E_CORRUPT, "PNM with a byte %02x among its numbers",
					  (unsigned char)token[i]);
	return image_fail(err, IMAGE_E_CORRUPT, "PNM with '%.*s' among its numbers", (int)n, token);
}

static int keep_number(struct plain *s, const char *token, size_t n, struct image_error *err)
{
	int64_t v;

	if (n > TOKEN_MAX || !number_of(token, n, &v) || v < 0 || v > s->pnm->max_value)
		return bad_token(token, n, err);
	if (s->pnm->max_value > 255) {
		s->out[s->n_out * 2] = (uint8_t)(v >> 8);
		s->out[s->n_out * 2 + 1] = (uint8_t)v;
	} else {
		s->out[s->n_out] = (uint8_t)v;
	}
	s->n_out++;
	return 0;
}

/* Of the text read so far, keeps the numbers, and leaves a token that may go on in the next block. */
static int keep_numbers(struct plain *s, struct image_error *err)
{
	const char *p = s->block, *end = p + s->n_block, *half = end;
	int outcome = 0;

	while (half > p && !is_space((uint8_t)half[-1]))
		half--;
	s->n_half = (size_t)(end - half);
	if (s->n_half > TOKEN_MAX)
		return bad_token(half, s->n_half, err);
	while (!outcome && s->n_out < s->n_all) {
		while (p < half && is_space((uint8_t)*p))
			p++;
		if (p == half)
			break;
		const char *token = p;

		while (p < half && !is_space((uint8_t)*p))
			p++;
		outcome = keep_number(s, token, (size_t)(p - token), err);
	}
	memmove(s->block, half, s->n_half);
	s->n_block = s->n_half;
	return outcome;
}

static int read_numbers(struct plain *s, struct image_error *err)
{
	while (s->n_out < s->n_all) {
		int outcome;

		if (!cpu_budget_spend(s->budget, BLOCK_BYTES))
			return IMAGE_E_TIME;
		if (s->next < s->end)
			read_block(s);
		else if (s->n_half > 0)
			s->block[s->n_block++] = ' ';
		else
			break;
		if ((outcome = keep_numbers(s, err)))
			return outcome;
	}
	return 0;
}

/* Of a bitmap each character is a pixel: 1 is black. */
static int read_bits(struct plain *s, struct image_error *err)
{
	while (s->n_out < s->n_all && s->next < s->end) {
		s->n_block = 0;
		if (!cpu_budget_spend(s->budget, BLOCK_BYTES))
			return IMAGE_E_TIME;
		read_block(s);
		for (size_t i = 0; i < s->n_block; i++) {
			char c = s->block[i];

			if (is_space((uint8_t)c))
				continue;
			if (c != '0' && c != '1')
				return bad_token(&c, 1, err);
			if (s->n_out < s->n_all)
				s->out[s->n_out++] = (uint8_t)(c - '0');
		}
	}
	return 0;
}

int pnm_read_text(struct pnm *p, const uint8_t *bytes, size_t n_bytes, struct pnm_text *t, struct cpu_budget *budget,
		  struct image_error *err)
{
	struct plain s = { .pnm = p, .budget = budget, .next = bytes + p->data_at, .end = bytes + n_bytes };
	struct raw_layout *l = &p->rows.layout;
	bool bits = l->kind == RAW_INDEX;
	size_t n_left = n_bytes - p->data_at, n_block = n_left < BLOCK_BYTES ? n_left : BLOCK_BYTES;
	unsigned channels = l->kind == RAW_BYTES ? l->step : bits ? 1 : l->channels;

	s.n_all = (uint64_t)p->rows.width * p->rows.height * channels;
	if (s.n_all > (n_left + 1) / (bits ? 1 : 2)) /* each is a character, and a space where it is a number */
		return image_fail(err, IMAGE_E_CORRUPT, "PNM cut short");
	s.block = (char *)scratch_reserve(&t->block, n_block + TOKEN_MAX + 1);
	s.out = scratch_reserve(&t->values, s.n_all * (p->max_value > 255 ? 2 : 1));
	if (!s.block || !s.out)
		return -ENOMEM;
	int outcome = bits ? read_bits(&s, err) : read_numbers(&s, err);
	if (outcome)
		return outcome;
	if (s.n_out < s.n_all)
		return image_fail(err, IMAGE_E_CORRUPT, "PNM cut short after %llu of %llu numbers",
				  (unsigned long long)s.n_out, (unsigned long long)s.n_all);
	if (bits)
		l->bits = 8;
	p->rows.data = s.out;
	p->rows.stride_bytes = raw_row_bytes(l, p->rows.width);
	return 0;
}
