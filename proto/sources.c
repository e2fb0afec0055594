/* Sources as values: copies, comparisons, checks, descriptors. See sources.h. The struct is protobuf-c's, whose own
 * functions do most of it. */
#include "sources.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

const struct source_type source_types[SOURCE_N_KINDS] = {
#define SOURCE_KIND_ROW(id, name, rest, text, options, roles, most, fields) \
	[SOURCE_KIND__##id] = { name, text, options, roles, most, fields },
	SOURCE_KINDS(SOURCE_KIND_ROW)
#undef SOURCE_KIND_ROW
		[SOURCE_KIND__MEMORY] = { "memory", TEXT_MEMORY, "id ", SOURCE_ROLE(ARRAY), SOURCES_MAX_FDS, false },
};

SourceKind source_kind_of(const char *text)
{
	size_t n = strcspn(text, ":");

	for (unsigned k = 1; text[n] && k < SOURCE_N_KINDS; k++)
		if (strncmp(source_types[k].name, text, n) == 0 && !source_types[k].name[n])
			return (SourceKind)k;
	return SOURCE_KIND__NO_KIND;
}

bool source_type_has_option(const struct source_type *type, const char *at, size_t n)
{
	for (const char *name = type->options; n && strchr(name, ' '); name = strchr(name, ' ') + 1)
		if (strncmp(name, at, n) == 0 && name[n] == ' ')
			return true;
	return type->options[0] == '*';
}

/* ---- values ---- */

struct Sources *sources_copy(const struct Sources *s)
{
	size_t n = sources__get_packed_size(s);
	uint8_t *bytes = malloc(n + 1);
	struct Sources *copy = NULL;

	if (bytes) {
		sources__pack(s, bytes);
		copy = sources__unpack(NULL, n, bytes);
	}
	free(bytes);
	return copy;
}

static bool messages_are_equal(const ProtobufCMessage *a, const ProtobufCMessage *b);

/* One value of a field; or an entry, if it is repeated. */
static bool values_are_equal(ProtobufCType type, const void *a, const void *b)
{
	if (type == PROTOBUF_C_TYPE_STRING)
		return strcmp(*(char *const *)a, *(char *const *)b) == 0;
	if (type == PROTOBUF_C_TYPE_MESSAGE)
		return messages_are_equal(*(ProtobufCMessage *const *)a, *(ProtobufCMessage *const *)b);
	return memcmp(a, b, type == PROTOBUF_C_TYPE_UINT64 ? sizeof(uint64_t) : sizeof(int)) == 0;
}

/* Takes no memory, and leaves out what this version does not know. */
static bool messages_are_equal(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
	for (unsigned i = 0; i < a->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &a->descriptor->fields[i];
		const char *at = (const char *)a + f->offset, *other = (const char *)b + f->offset;
		bool repeated = f->label == PROTOBUF_C_LABEL_REPEATED;
		size_t n = 1;

		if (repeated) { /* of messages alone */
			n = *(const size_t *)(const void *)((const char *)a + f->quantifier_offset);
			if (n != *(const size_t *)(const void *)((const char *)b + f->quantifier_offset))
				return false;
			at = *(const char *const *)(const void *)at;
			other = *(const char *const *)(const void *)other;
		}
		for (size_t k = 0; k < n; k++)
			if (!values_are_equal(f->type, at + k * sizeof(void *), other + k * sizeof(void *)))
				return false;
	}
	return true;
}

bool sources_are_equal(const struct Sources *a, const struct Sources *b)
{
	return messages_are_equal(&a->base, &b->base);
}

void sources_free(struct Sources *s)
{
	if (s)
		sources__free_unpacked(s, NULL);
}

const char *source_option(const struct Source *s, const char *name)
{
	for (size_t i = s->n_option; i-- > 0;)
		if (strcmp(s->option[i]->name, name) == 0)
			return s->option[i]->value;
	return NULL;
}

/* ---- checking ---- */

static const char *check_part(const struct Source *s, size_t i)
{
	const struct SourcePart *p = s->part[i];
	bool is_shards = source_types[s->kind].text == TEXT_PATTERNS && p->role == SOURCE_ROLE__FOLDER;
	bool is_named = p->role == SOURCE_ROLE__NAME || p->role == SOURCE_ROLE__ARRAY || s->kind == SOURCE_KIND__NPY;
	bool is_single = p->role == SOURCE_ROLE__IMAGES || p->role >= SOURCE_ROLE__ROWS;

	if (p->role > SOURCE_ROLE__TABLE || !(source_types[s->kind].roles >> p->role & 1) ||
	    (i && p->role < s->part[i - 1]->role) || (i && is_single && p->role == s->part[i - 1]->role))
		return "SourcePart.role does not belong where it is";
	if (source_part_is_path(p) && p->path[0] != '/')
		return "SourcePart.path is not absolute";
	if (p->role == SOURCE_ROLE__FILE && p->path[strlen(p->path) - 1] == '/')
		return "SourcePart.path of a file ends in a slash"; /* its ending tells how many descriptors it has */
	if ((*p->pattern != '\0') != is_shards)
		return "SourcePart.pattern is there without shards, or the other way round";
	if (*p->name && !is_named)
		return "SourcePart.name does not belong to its kind";
	if (p->role == SOURCE_ROLE__TABLE && s->part[0]->role == SOURCE_ROLE__FOLDER)
		return "SourcePart is a table beside files";
	return NULL;
}

static const char *check_source(const struct Source *s)
{
	const struct source_type *type;
	const char *why = NULL;

	if (!s->kind || (unsigned)s->kind >= SOURCE_N_KINDS || s->kind == SOURCE_KIND__BLEND)
		return "Source.kind is none of a single data set";
	type = &source_types[s->kind];
	if (s->n_part > type->most || source_lacks_parts(s))
		return "Source.part has too few or too many entries for its kind";
	for (size_t i = 0; !why && i < s->n_part; i++)
		why = check_part(s, i);
	for (size_t i = 0; !why && i < s->n_option; i++)
		if (!source_type_has_option(type, s->option[i]->name, strlen(s->option[i]->name)))
			why = "Source.option has one that its kind does not have";
	if (!why && s->n_field && !type->has_fields)
		why = "Source.field does not belong to its kind";
	if (!why && *s->within && s->kind != SOURCE_KIND__ZIP)
		why = "Source.within does not belong to its kind";
	return !why && s->weight >> 60 ? "Source.weight is too large" : why;
}

const char *sources_check(const struct Sources *all)
{
	if (*all->name)
		return all->n_source || all->blend || all->has_seed ? "Sources has a name and data besides" : NULL;
	if (!all->n_source || all->n_source > SOURCES_MAX ||
	    (!all->blend && (all->n_source > 1 || all->has_seed || all->source[0]->weight)))
		return "Sources has no data set, or several without being a blend";
	if (all->has_seed && !all->source[0]->weight)
		return "Sources has a seed without weights";
	if (sources_n_fds(all) > SOURCES_MAX_FDS)
		return "Sources has more files and folders than descriptors can come";
	for (size_t i = 0; i < all->n_source; i++) {
		const struct Source *s = all->source[i];
		const char *why = check_source(s);

		if (why)
			return why;
		if (!s->weight != !all->source[0]->weight)
			return "Sources has weights for some";
		if (all->blend && (s->kind == SOURCE_KIND__SERVE || s->kind == SOURCE_KIND__MEMORY))
			return "Sources has a blend of what is in no files";
	}
	return NULL;
}

/* ---- descriptors ---- */

bool source_lacks_parts(const struct Source *s)
{
	return !s->n_part && source_types[s->kind].most;
}

unsigned source_part_fds(const struct Source *s, const struct SourcePart *p)
{
	size_t n = strlen(p->path);
	bool is_index = s->kind == SOURCE_KIND__TOKENS && n > 4 && strcmp(p->path + n - 4, ".idx") == 0;

	return p->role == SOURCE_ROLE__NAME ? 0 : p->role == SOURCE_ROLE__LIST || is_index ? 2 : 1;
}

unsigned source_n_fds(const struct Source *s)
{
	unsigned n = 0;

	for (size_t i = 0; i < s->n_part; i++)
		n += source_part_fds(s, s->part[i]);
	return n;
}

unsigned sources_n_fds(const struct Sources *all)
{
	unsigned n = 0;

	for (size_t i = 0; i < all->n_source; i++)
		n += source_n_fds(all->source[i]);
	return n;
}

void sources_told(const struct Sources *all, bool *told)
{
	for (size_t i = 0; i < all->n_source; i++) {
		const struct Source *s = all->source[i];

		for (size_t k = 0; k < s->n_part; k++) {
			SourceRole role = s->part[k]->role;

			for (unsigned n = source_part_fds(s, s->part[k]); n; n--)
				*told++ = role >= SOURCE_ROLE__ROWS ||
					  (role == SOURCE_ROLE__ARRAY && source_option(s, "id"));
		}
	}
}
