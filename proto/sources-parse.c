/* Takes texts apart. See sources.h. Kinds share their few rules: what follows '#' names fields, commas outside of
 * braces separate files and options, "::" patterns, and ";;" the parts of a blend. */
#include "sources.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- making the struct ---- */

static int set_text(char **member, const char *text, size_t n)
{
	char *copy = n ? strndup(text, n) : (char *)protobuf_c_empty_string;

	if (!copy)
		return -ENOMEM;
	if (*member != (char *)protobuf_c_empty_string)
		free(*member);
	*member = copy;
	return 0;
}

int source_set(char **member, const char *value)
{
	return set_text(member, value, strlen(value));
}

/* A zeroed message at the end of a repeated field; NULL: out of memory. */
static void *add_message(void *list, size_t *n, const ProtobufCMessageDescriptor *type)
{
	void ***entries = list, *m = malloc(type->sizeof_message);
	void **longer = m ? reallocarray(*entries, *n + 1, sizeof *longer) : NULL;

	if (!longer) {
		free(m);
		return NULL;
	}
	type->message_init(m);
	longer[(*n)++] = m;
	*entries = longer;
	return m;
}

static struct SourcePart *add_part_text(struct Source *s, SourceRole role, const char *path, size_t n)
{
	struct SourcePart *p = add_message(&s->part, &s->n_part, &source_part__descriptor);

	if (p)
		p->role = role;
	return p && set_text(&p->path, path, n) == 0 ? p : NULL;
}

struct SourcePart *source_add_part(struct Source *s, SourceRole role, const char *path)
{
	return add_part_text(s, role, path, strlen(path));
}

/* "NAME=VALUE"; without '=' there is a value alone, which is refused where it is read. */
static int add_pair(struct SourcePair ***list, size_t *count, const char *at, size_t n)
{
	struct SourcePair *p = add_message(list, count, &source_pair__descriptor);
	const char *equals = memchr(at, '=', n);
	size_t n_name = equals ? (size_t)(equals - at) : 0, n_front = equals ? n_name + 1 : 0;

	return p && set_text(&p->name, at, n_name) == 0 ? set_text(&p->value, at + n_front, n - n_front) : -ENOMEM;
}

/* ---- taking a text apart ---- */

struct parser {
	char *why;
	size_t size;
};

static int __attribute__((format(printf, 2, 3))) refuse(const struct parser *x, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(x->why, x->size, format, args);
	va_end(args);
	return -EINVAL;
}

/* A part between separators, n bytes from `at` on. `next` is behind the separator; NULL: it is the last one. */
struct piece {
	const char *at, *next;
	size_t n;
};

/* The first comma outside of braces. A brace that is not closed is a letter. */
static const char *find_comma(const char *at, const char *end)
{
	for (; at < end && *at != ','; at++) {
		const char *close = *at == '{' ? memchr(at, '}', (size_t)(end - at)) : NULL;

		at = close ? close : at;
	}
	return at < end ? at : NULL;
}

/* separator "{,}": commas outside of braces. */
static struct piece cut(const char *at, const char *end, const char *separator)
{
	bool braces = separator[0] == '{';
	const char *found = braces ? find_comma(at, end) : memmem(at, (size_t)(end - at), separator, strlen(separator));
	size_t n_separator = braces ? 1 : strlen(separator);

	return found ? (struct piece){ at, found + n_separator, (size_t)(found - at) }
		     : (struct piece){ at, NULL, (size_t)(end - at) };
}

static bool begins_with(struct piece p, const char *prefix)
{
	return p.n >= strlen(prefix) && memcmp(p.at, prefix, strlen(prefix)) == 0;
}

/* So much of it as a message quotes. */
static int shown(struct piece p)
{
	return p.n < 64 ? (int)p.n : 64;
}

static bool is_file(struct piece p)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof path, "%.*s", (int)p.n, p.at) < (int)sizeof path && access(path, F_OK) == 0;
}

/* Letters, then '=': an option by its form, which no file is called. */
static bool looks_like_option(struct piece p)
{
	size_t n = 0;

	while (n < p.n && isalpha((unsigned char)p.at[n]))
		n++;
	return n && n < p.n && p.at[n] == '=' && !is_file(p);
}

static int take_file(struct Source *s, const struct source_type *k, struct piece p, const struct parser *x)
{
	const char *equals = memchr(p.at, '=', p.n);
	size_t n_name = equals ? (size_t)(equals - p.at) : 0;
	int n_options = (int)strlen(k->options) - 1;

	if (source_type_has_option(k, p.at, n_name))
		return add_pair(&s->option, &s->n_option, p.at, p.n);
	if (n_options > 0 && looks_like_option(p))
		return refuse(x, "%s: no option '%.*s'; the options are: %.*s", k->name,
			      (int)(n_name < 64 ? n_name : 64), p.at, n_options, k->options);
	return add_part_text(s, SOURCE_ROLE__FILE, p.at, p.n) ? 0 : -ENOMEM;
}

/* "[NAME=]FILE"; a file of this very name comes first. */
static int take_named(struct Source *s, const struct source_type *k, struct piece p, const struct parser *x)
{
	const char *equals = memchr(p.at, '=', p.n);
	size_t n =
		equals && !memchr(p.at, '/', (size_t)(equals - p.at)) && !is_file(p) ? (size_t)(equals + 1 - p.at) : 0;
	struct SourcePart *part;

	if (n == 1)
		return refuse(x, "%s: '%.*s': expected a name before '='", k->name, shown(p), p.at);
	part = add_part_text(s, SOURCE_ROLE__FILE, p.at + n, p.n - n);
	return part && (!n || set_text(&part->name, p.at, n - 1) == 0) ? 0 : -ENOMEM;
}

/* "NAME" or, of this process, "NAME=FD". */
static int take_memory(struct Source *s, const struct source_type *k, struct piece p, const struct parser *x)
{
	const char *equals = memchr(p.at, '=', p.n);
	size_t n = equals ? (size_t)(equals - p.at) : p.n;
	struct SourcePart *part;

	if (equals && source_type_has_option(k, p.at, n))
		return add_pair(&s->option, &s->n_option, p.at, p.n);
	if (!n)
		return refuse(x, "%s: '%.*s': expected NAME=DESCRIPTOR", k->name, shown(p), p.at);
	part = add_part_text(s, SOURCE_ROLE__ARRAY, equals ? equals + 1 : "", equals ? p.n - n - 1 : 0);
	return part && set_text(&part->name, p.at, n) == 0 ? 0 : -ENOMEM;
}

static int take_option(struct Source *s, const struct source_type *k, struct piece p, const struct parser *x)
{
	if (!memchr(p.at, '=', p.n))
		return refuse(x, "%s: %.*s: expected a value after '='", k->name, shown(p), p.at);
	return add_pair(&s->option, &s->n_option, p.at, p.n);
}

/* "PLACE#NAME=VALUE,...": cuts the list off, in the place's *end. */
static int take_fields(struct Source *s, const char *at, const char **end, const struct parser *x)
{
	const char *mark = memrchr(at, '#', (size_t)(*end - at));
	size_t n = mark ? (size_t)(*end - mark) : 0;
	int r = 0;

	if (!mark || !memchr(mark, '=', n) || memchr(mark, '/', n))
		return 0;
	for (struct piece p = { .next = mark + 1 }; r == 0 && p.next;) {
		p = cut(p.next, *end, ",");
		if (p.n && *p.at == '=')
			return refuse(x, "fields '%.*s': a name or an extension that is empty; expected NAME=VALUE,...",
				      shown(p), p.at);
		r = add_pair(&s->field, &s->n_field, p.at, p.n);
	}
	*end = mark;
	return r;
}

/* "DIR//PATTERN", as sources are printed. An address is no folder. */
static int take_pattern(struct Source *s, struct piece p)
{
	const char *mark = memmem(p.at, p.n, "//", 2);
	bool splits = mark && (mark == p.at || mark[-1] != ':') && mark + 2 < p.at + p.n;
	size_t n = splits ? (size_t)(mark - p.at) : p.n;
	struct SourcePart *part =
		add_part_text(s, SOURCE_ROLE__FOLDER, splits && !n ? "/" : p.at, splits && !n ? 1 : n);

	return part && (!splits || set_text(&part->pattern, mark + 2, p.n - n - 2) == 0) ? 0 : -ENOMEM;
}

static int take_all_patterns(struct Source *s, const char *at, const char *end)
{
	int r = 0;

	for (struct piece p = { .next = at }; r == 0 && p.next;) {
		p = cut(p.next, end, "::");
		r = take_pattern(s, p);
	}
	return r;
}

/* "[table=HASH,][rows=HASH,][images=DIR,]" in front of the patterns. Moves *at behind them. */
static int take_front(const char **at, const char *end, struct piece values[3])
{
	static const char *const names[] = { "table=", "rows=", "images=" };

	for (unsigned i = 0; i < 3; i++) {
		struct piece p = cut(*at, end, ",");

		values[i] = (struct piece){ NULL, NULL, 0 };
		if (!p.next || !begins_with(p, names[i]))
			continue;
		values[i] = (struct piece){ p.at + strlen(names[i]), NULL, p.n - strlen(names[i]) };
		*at = p.next;
	}
	return 0;
}

/* The parts in the order of their roles, which is that of their descriptors. */
static int take_arrow(struct Source *s, const char *at, const char *end, const struct parser *x)
{
	static const SourceRole roles[] = { SOURCE_ROLE__TABLE, SOURCE_ROLE__ROWS, SOURCE_ROLE__IMAGES };
	struct piece front[3];

	take_front(&at, end, front);
	if (front[0].at && at < end)
		return refuse(x, "arrow: %.*s: a table in memory has no files", end - at < 200 ? (int)(end - at) : 200,
			      at);
	if (!front[0].at && take_all_patterns(s, at, end) < 0)
		return -ENOMEM;
	for (unsigned i = 3; i-- > 0;)
		if (front[i].at && !add_part_text(s, roles[i], front[i].at, front[i].n))
			return -ENOMEM;
	return 0;
}

static int take_patterns(struct Source *s, const char *at, const char *end, const struct parser *x)
{
	const char *within = s->kind == SOURCE_KIND__ZIP ? memmem(at, (size_t)(end - at), "!/", 2) : NULL;

	if (s->kind == SOURCE_KIND__ARROW)
		return take_arrow(s, at, end, x);
	if (within && set_text(&s->within, within + 2, (size_t)(end - within - 2)) < 0)
		return -ENOMEM;
	return take_all_patterns(s, at, within ? within : end);
}

static int take_list(struct Source *s, const struct source_type *k, const char *at, const char *end,
		     const struct parser *x)
{
	int r = 0;

	for (struct piece p = { .next = at }; r == 0 && p.next;) {
		p = cut(p.next, end, k->text == TEXT_MEMORY || k->text == TEXT_OPTIONS ? "," : "{,}");
		r = k->text == TEXT_NAMED    ? take_named(s, k, p, x)
		    : k->text == TEXT_MEMORY ? take_memory(s, k, p, x)
		    : k->text == TEXT_FILES  ? take_file(s, k, p, x)
		    : at < end               ? take_option(s, k, p, x)
					     : 0; /* "random:" has none */
	}
	return r;
}

/* [at, end) is "KIND:REST", of a kind that is known. */
static int take_source(struct Source *s, const char *at, const char *end, const struct parser *x)
{
	static const SourceRole one[SOURCE_N_KINDS] = { [SOURCE_KIND__IMAGEFOLDER] = SOURCE_ROLE__FOLDER,
							[SOURCE_KIND__FILES] = SOURCE_ROLE__LIST,
							[SOURCE_KIND__NPZ] = SOURCE_ROLE__FILE };
	const struct source_type *k = &source_types[s->kind];
	int r = 0;

	at += strlen(k->name) + 1;
	if (k->text == TEXT_PATTERNS || s->kind == SOURCE_KIND__FILES || s->kind == SOURCE_KIND__NPZ)
		r = take_fields(s, at, &end, x);
	if (r < 0)
		return r;
	if (k->text == TEXT_PATTERNS)
		return take_patterns(s, at, end, x);
	if (k->text == TEXT_ONE)
		return add_part_text(s, one[s->kind], at, (size_t)(end - at)) ? 0 : -ENOMEM;
	if (k->text != TEXT_NAME)
		return take_list(s, k, at, end, x);
	struct SourcePart *p = add_part_text(s, SOURCE_ROLE__NAME, "", 0);

	return p ? set_text(&p->name, at, (size_t)(end - at)) : -ENOMEM;
}

/* ---- blends ---- */

static int bad_blend(const struct parser *x, struct piece p, const char *why)
{
	return refuse(x, "blend: '%.*s': %s", (int)(p.n < 100 ? p.n : 100), p.at, why);
}

/* At most 9 digits. */
static uint64_t take_digits(const char **at, const char *end)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < 9 && *at < end && isdigit((unsigned char)**at); i++)
		v = v * 10 + (uint64_t)(*(*at)++ - '0');
	return v;
}

/* "0.7*": moves *at behind it. */
static bool take_weight(const char **at, const char *end, uint64_t *weight)
{
	const char *p = *at, *from = p;
	uint64_t unit = SOURCE_WEIGHT_ONE;

	*weight = take_digits(&p, end) * unit;
	if (p == from)
		return false;
	if (p < end && *p == '.')
		for (p++; unit > 1 && p < end && isdigit((unsigned char)*p); p++)
			*weight += (unit /= 10) * (uint64_t)(*p - '0');
	if (p == end || *p != '*') {
		*weight = 0;
		return false;
	}
	*at = p + 1;
	return true;
}

static int take_seed(struct Sources *all, struct piece p, const struct parser *x)
{
	const char *at = p.at + strlen("seed="), *end = p.at + p.n;

	if (at == end)
		return bad_blend(x, p, "expected seed=NUMBER");
	for (; at < end; at++) {
		if (!isdigit((unsigned char)*at))
			return bad_blend(x, p, "expected seed=NUMBER");
		if (__builtin_mul_overflow(all->seed, 10, &all->seed) ||
		    __builtin_add_overflow(all->seed, (uint64_t)(*at - '0'), &all->seed))
			return bad_blend(x, p, "a seed of more than 64 bits");
	}
	all->has_seed = true;
	return 0;
}

static struct Source *add_source(struct Sources *all, SourceKind kind)
{
	struct Source *s = add_message(&all->source, &all->n_source, &source__descriptor);

	if (s)
		s->kind = kind;
	return s;
}

static int take_part(struct Sources *all, struct piece p, const struct parser *x)
{
	const char *at = p.at, *end = p.at + p.n;
	uint64_t weight = 0;
	bool weighs = take_weight(&at, end, &weight);
	struct piece rest = { at, NULL, (size_t)(end - at) };
	SourceKind kind;
	struct Source *s;
	char head[32];

	if (at == end)
		return bad_blend(x, p, "expected a data set");
	if (weighs && !weight)
		return bad_blend(x, p, "a weight of 0: leave the data set out");
	if (all->n_source == SOURCES_MAX)
		return bad_blend(x, p, "more than 64 data sets");
	if (all->n_source && weighs != (all->source[0]->weight > 0))
		return bad_blend(x, p, "either every data set has a weight, or none");
	snprintf(head, sizeof head, "%.*s", (int)rest.n, at);
	kind = source_kind_of(head);
	if (kind == SOURCE_KIND__NO_KIND) {
		snprintf(x->why, x->size, "%.*s", (int)rest.n, at);
		return -ENOENT;
	}
	if (kind == SOURCE_KIND__BLEND || kind == SOURCE_KIND__SERVE || kind == SOURCE_KIND__MEMORY)
		return refuse(
			x, "'%.*s' cannot be a part of a blend: it has data sets of files, no blend, serve: or memory:",
			(int)(rest.n < 100 ? rest.n : 100), at);
	s = add_source(all, kind);
	if (!s)
		return -ENOMEM;
	s->weight = weight;
	return take_source(s, at, end, x);
}

static int take_blend(struct Sources *all, const char *at, const char *end, const struct parser *x)
{
	int r = 0;

	all->blend = true;
	for (struct piece p = { .next = at }; r == 0 && p.next;) {
		p = cut(p.next, end, ";;");
		r = !all->n_source && !all->has_seed && begins_with(p, "seed=") ? take_seed(all, p, x)
										: take_part(all, p, x);
	}
	if (r == 0 && !all->n_source)
		return bad_blend(x, (struct piece){ "", NULL, 0 }, "expected a data set");
	if (r == 0 && all->has_seed && !all->source[0]->weight)
		return bad_blend(x, (struct piece){ "seed", NULL, 4 }, "it is for weights, and there are none");
	return r;
}

static struct Sources *make_sources(void)
{
	struct Sources *all = malloc(sizeof *all);

	if (all)
		sources__init(all);
	return all;
}

int sources_parse(const char *text, struct Sources **out, char *why, size_t size)
{
	const struct parser x = { why, size };
	const char *end = text + strlen(text);
	SourceKind kind = source_kind_of(text);
	struct Sources *all = make_sources();
	struct Source *s;
	int r;

	*out = NULL;
	*why = '\0';
	if (!all)
		return -ENOMEM;
	if (kind == SOURCE_KIND__BLEND) {
		r = take_blend(all, strchr(text, ':') + 1, end, &x);
	} else if (kind == SOURCE_KIND__NO_KIND) {
		snprintf(why, size, "%s", text);
		r = -ENOENT;
	} else {
		s = add_source(all, kind);
		r = s ? take_source(s, text, end, &x) : -ENOMEM;
	}
	if (r < 0)
		sources_free(all);
	else
		*out = all;
	return r;
}

struct Sources *sources_named(const char *name)
{
	struct Sources *all = make_sources();

	if (all && source_set(&all->name, name) < 0) {
		sources_free(all);
		all = NULL;
	}
	return all;
}
