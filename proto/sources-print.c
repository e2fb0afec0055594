/* Puts data sets together as texts. See sources.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sources.h"

/* Options may be empty, as of random:. */
static void print_options(FILE *f, const struct Source *s, const char *separator)
{
	for (size_t i = 0; i < s->n_option; i++, separator = ",")
		fprintf(f, "%s%s=%s", separator, s->option[i]->name, s->option[i]->value);
}

static const struct SourcePart *find_part(const struct Source *s, SourceRole role)
{
	for (size_t i = 0; i < s->n_part; i++)
		if (s->part[i]->role == role)
			return s->part[i];
	return NULL;
}

/* Shown, the rows and the table have no hash: a client that knows it may join a job that reads them. */
static void print_front(FILE *f, const struct Source *s, enum source_form form)
{
	static const struct {
		SourceRole role;
		const char *name;
	} front[] = { { SOURCE_ROLE__TABLE, "table=" },
		      { SOURCE_ROLE__ROWS, "rows=" },
		      { SOURCE_ROLE__IMAGES, "images=" } };

	for (size_t i = 0; i < sizeof front / sizeof *front; i++) {
		const struct SourcePart *p = find_part(s, front[i].role);

		if (p)
			fprintf(f, "%s%s,", front[i].name,
				form == SOURCE_SHOWN && p->role != SOURCE_ROLE__IMAGES ? "..." : p->path);
	}
}

static void print_part(FILE *f, const struct SourcePart *p, const char *separator, enum source_form form)
{
	bool exact = form == SOURCE_EXACT || form == SOURCE_PARTS;

	fputs(separator, f);
	if (*p->pattern)
		fprintf(f, "%s%s%s", strcmp(p->path, "/") == 0 ? "" : p->path, exact ? "//" : "/", p->pattern);
	else
		fprintf(f, "%s%s%s", p->name, *p->name && *p->path ? "=" : "", p->path);
}

static void print_rest(FILE *f, const void *what, enum source_form form)
{
	const struct Source *s = what;
	const char *separator = s->n_part && s->part[0]->role == SOURCE_ROLE__FOLDER ? "::" : ",", *now = "";
	bool whole = form == SOURCE_EXACT || form == SOURCE_SHOWN, is_memory = s->kind == SOURCE_KIND__MEMORY;

	if (is_memory && s->n_option && form == SOURCE_EXACT) { /* its user knows of no hash */
		print_options(f, s, "");
		now = separator;
	}
	if (whole)
		print_front(f, s, form);
	for (size_t i = 0; i < s->n_part; i++) {
		if (s->part[i]->role >= SOURCE_ROLE__IMAGES && s->part[i]->role != SOURCE_ROLE__ARRAY)
			continue;
		print_part(f, s->part[i], now, form);
		now = separator;
	}
	if (whole && !is_memory)
		print_options(f, s, now);
	if (whole && *s->within)
		fprintf(f, "!/%s", s->within);
	for (size_t i = 0; whole && i < s->n_field; i++)
		fprintf(f, "%s%s%s%s", i ? "," : "#", s->field[i]->name, *s->field[i]->name ? "=" : "",
			s->field[i]->value);
}

/* 0.7 of 700,000,000 */
static void print_weight(FILE *f, uint64_t weight)
{
	char digits[32];
	int n = snprintf(digits, sizeof digits, "%llu.%09llu", (unsigned long long)(weight / SOURCE_WEIGHT_ONE),
			 (unsigned long long)(weight % SOURCE_WEIGHT_ONE));

	while (digits[n - 1] == '0')
		n--;
	fprintf(f, "%.*s*", digits[n - 1] == '.' ? n - 1 : n, digits);
}

static void print_source(FILE *f, const void *what, enum source_form form)
{
	const struct Source *s = what;

	fprintf(f, "%s:", source_kind_name(s->kind));
	print_rest(f, s, form);
}

static void print_sources(FILE *f, const void *what, enum source_form form)
{
	const struct Sources *all = what;

	fprintf(f, "%s%s", all->name, all->blend ? "blend:" : "");
	if (all->has_seed)
		fprintf(f, "seed=%llu;;", (unsigned long long)all->seed);
	for (size_t i = 0; i < all->n_source; i++) {
		const struct Source *s = all->source[i];

		fputs(i ? ";;" : "", f);
		if (s->weight)
			print_weight(f, s->weight);
		print_source(f, s, form);
	}
}

typedef void print_fn(FILE *f, const void *what, enum source_form form);

static char *print(print_fn *fn, const void *what, enum source_form form)
{
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);

	if (!f)
		return NULL;
	fn(f, what, form);
	if (fclose(f) == 0)
		return text;
	free(text);
	return NULL;
}

char *source_print_rest(const struct Source *s, enum source_form form)
{
	return print(print_rest, s, form);
}

char *source_print(const struct Source *s, enum source_form form)
{
	return print(print_source, s, form);
}

char *sources_print(const struct Sources *all, enum source_form form)
{
	return print(print_sources, all, form);
}
