/* The text of a token: "batchd-token-2 name=value ... sum=...", values without spaces. Numbers are hexadecimal or plain
 * decimal. The sum at the end covers everything before it, so that a token that was edited or cut can be told from one of
 * another loader. Names that are not known here do not count. */
#include "link/token.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batchd.h"

#define MAGIC "batchd-token-2"

/* FNV-1a with a final mix. */
static uint64_t hash_bytes(const char *text, size_t n)
{
	uint64_t h = 0xcbf29ce484222325;

	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)text[i]) * 0x100000001b3;
	return (h ^ h >> 29) * 0xbf58476d1ce4e5b9;
}

uint64_t token_order(uint64_t order, const uint64_t *indices, uint32_t n)
{
	order = (order ^ n) * 0x100000001b3;
	for (uint32_t i = 0; i < n; i++)
		order = (order ^ indices[i]) * 0x100000001b3;
	return order ^ order >> 32;
}

uint64_t batchd_order(uint64_t order, const uint64_t *indices, uint32_t n)
{
	return token_order(order, indices, n);
}

/* ---- writing ---- */

struct writer {
	char *buf;
	size_t size, used; /* used > size: it did not fit */
};

static void token_put(struct writer *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void token_put(struct writer *w, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	w->used += (size_t)vsnprintf(w->used < w->size ? w->buf + w->used : NULL,
				     w->used < w->size ? w->size - w->used : 0, fmt, args);
	va_end(args);
}

static void put_text(struct writer *w, const char *text)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		token_put(w, isalnum(*p) || strchr("/._-:,", *p) ? "%c" : "%%%02x", *p);
}

int token_write(const struct token *t, char *buf, size_t size)
{
	struct writer w = { .buf = buf, .size = size };

	token_put(&w, MAGIC " data=%016" PRIx64 " samples=%" PRIu64 " pipeline=%016" PRIx64, t->content_id,
		  t->n_samples, t->pipeline_id);
	token_put(&w, " seed=%" PRIu64 " shuffle=%" PRIu64 " own=%d batch=%" PRIu64 " consumers=%" PRIu64, t->seed,
		  t->shuffle, t->own_batches, t->batch_size, t->consumers);
	token_put(&w, " repeats=%" PRIu64 " rows=%" PRIu64, t->repeats, t->epoch_rows);
	token_put(&w,
		  " epoch=%" PRIu64 " base=%" PRIu64 " next=%" PRIu64 " last=%d given=%" PRIu64 " order=%016" PRIx64,
		  t->epoch, t->base, t->next, t->last, t->n_given, t->order);
	token_put(&w, " source=");
	put_text(&w, t->source);
	if (w.used < w.size)
		token_put(&w, " sum=%016" PRIx64, hash_bytes(buf, w.used));
	return w.used < size ? 0 : BATCHD_E_INVALID;
}

/* ---- reading ---- */

/* The value of ` name=`, up to the next space. NULL: not there. */
static const char *find(const char *text, const char *name, size_t *n)
{
	size_t n_name = strlen(name);

	for (const char *p = strchr(text, ' '); p; p = strchr(p + 1, ' ')) {
		if (strncmp(p + 1, name, n_name) != 0 || p[1 + n_name] != '=')
			continue;
		p += n_name + 2;
		*n = strcspn(p, " ");
		return p;
	}
	return NULL;
}

static bool get_number(const char *text, const char *name, int base, uint64_t *value)
{
	size_t n;
	const char *p = find(text, name, &n);
	char *end;

	if (!p || !isxdigit((unsigned char)*p))
		return false;
	*value = strtoull(p, &end, base);
	return end == p + n;
}

static bool get_flag(const char *text, const char *name, bool *value)
{
	uint64_t v;

	if (!get_number(text, name, 10, &v) || v > 1)
		return false;
	*value = v;
	return true;
}

static bool get_text(const char *text, const char *name, char *out, size_t size)
{
	size_t n, used = 0;
	const char *p = find(text, name, &n), *end;
	unsigned c;

	if (!p)
		return false;
	for (end = p + n; p < end && used + 1 < size; used++) {
		c = (unsigned char)*p++;
		if (c == '%') {
			if (end - p < 2 || sscanf(p, "%2x", &c) != 1)
				return false;
			p += 2;
		}
		out[used] = (char)c;
	}
	out[used] = '\0';
	return p == end;
}

static bool sum_is_right(const char *text)
{
	const char *end = strstr(text, " sum=");
	uint64_t sum;

	return end && get_number(end, "sum", 16, &sum) && sum == hash_bytes(text, (size_t)(end - text)) &&
	       strlen(end) == 5 + 16;
}

static bool read_fields(const char *text, struct token *t)
{
	return get_number(text, "data", 16, &t->content_id) && get_number(text, "samples", 10, &t->n_samples) &&
	       get_number(text, "pipeline", 16, &t->pipeline_id) && get_number(text, "seed", 10, &t->seed) &&
	       get_number(text, "shuffle", 10, &t->shuffle) && get_flag(text, "own", &t->own_batches) &&
	       get_number(text, "batch", 10, &t->batch_size) && get_number(text, "consumers", 10, &t->consumers) &&
	       get_number(text, "repeats", 10, &t->repeats) && get_number(text, "rows", 10, &t->epoch_rows) &&
	       get_number(text, "epoch", 10, &t->epoch) && get_number(text, "base", 10, &t->base) &&
	       get_number(text, "next", 10, &t->next) && get_flag(text, "last", &t->last) &&
	       get_number(text, "given", 10, &t->n_given) && get_number(text, "order", 16, &t->order) &&
	       get_text(text, "source", t->source, sizeof t->source);
}

/* Sums of products of its fields must not wrap when the loader continues from it. */
static bool is_possible(const struct token *t)
{
	uint64_t at;

	return t->batch_size && t->consumers && t->batch_size <= UINT32_MAX && t->consumers <= UINT32_MAX &&
	       t->epoch < INT64_MAX && t->next <= INT64_MAX &&
	       !__builtin_mul_overflow(t->batch_size * t->consumers, t->next, &at) &&
	       !__builtin_add_overflow(at, t->base, &at);
}

int token_read(const char *text, struct token *t, struct fault *f)
{
	*t = (struct token){ 0 };
	if (strncmp(text, "batchd-token-", 13) != 0)
		return fault_set(f, BATCHD_E_INVALID, "this is no token of batchd: it begins with '%.16s'", text);
	if (strncmp(text, MAGIC " ", sizeof MAGIC) != 0)
		return fault_set(f, BATCHD_E_INVALID,
				 "the token is a '%.*s', of another version of batchd, and this one reads " MAGIC
				 ": it draws the augmentation of an order of your own in another way. Begin the epoch "
				 "again, or go on with the version that saved the state",
				 (int)strcspn(text, " ") < 32 ? (int)strcspn(text, " ") : 32, text);
	if (!sum_is_right(text) || !read_fields(text, t) || !is_possible(t))
		return fault_set(f, BATCHD_E_INVALID, "the token is damaged: it was cut short or changed");
	return 0;
}

void token_explain(const struct token *t, const char *dataset, uint64_t n_samples, char *text, size_t size)
{
	if (strncmp(t->source, dataset, sizeof t->source - 1) != 0)
		snprintf(text, size, "%s with %" PRIu64 " samples then, %s with %" PRIu64 " now", t->source,
			 t->n_samples, dataset, n_samples);
	else if (t->n_samples != n_samples)
		snprintf(text, size, "%" PRIu64 " samples then, %" PRIu64 " now", t->n_samples, n_samples);
	else
		snprintf(text, size, "as many samples, but other ones");
}
