/* A data set's text as an Open has it. */
#ifndef BATCHD_TESTS_SOURCES_TEXT_H
#define BATCHD_TESTS_SOURCES_TEXT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sources.h"

/* Lives as long as the process; the same for the same text. A text without a colon is a name of the configuration. */
static inline struct Sources *sources_of(const char *text)
{
	static struct known {
		struct known *next;
		char *text;
		struct Sources *sources;
	} *known;
	struct known *k = known;
	char why[400];

	while (k && strcmp(k->text, text) != 0)
		k = k->next;
	if (k)
		return k->sources;
	k = malloc(sizeof(*k));
	*k = (struct known){ .next = known, .text = strdup(text) };
	if (!strchr(text, ':'))
		k->sources = sources_named(text);
	else if (sources_parse(text, &k->sources, why, sizeof(why)) < 0)
		fprintf(stderr, "%s: %s\n", text, why), abort();
	known = k;
	return k->sources;
}

/* A source with these fields, "NAME=VALUE,..."; NULL: none. */
static inline const struct Source *fields_of(const char *list)
{
	char text[400];

	snprintf(text, sizeof(text), "arrow:/x%s%s", list ? "#" : "", list ? list : "");
	return sources_of(text)->source[0];
}

#endif
