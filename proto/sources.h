/* A data set's text, "KIND:...", taken apart into struct Sources (source.proto), and put together again. The client and
 * the daemon's configuration read texts by the same function; everything behind them reads the struct.
 *
 * SOURCE_KINDS is the one list of kinds. Messages have their texts from it. */
#ifndef BATCHD_SOURCES_H
#define BATCHD_SOURCES_H

#include <stdbool.h>
#include <stddef.h>

#include "source.pb-c.h"

/* X(name, what follows the colon, how parts are separated, options NAME=VALUE between commas, roles of its parts,
 * how many there are, whether fields may be listed) */
#define SOURCE_FILE_KINDS(X) \
	X(IMAGEFOLDER, "imagefolder", "DIR", TEXT_ONE, "", SOURCE_ROLE(FOLDER), 1, false) \
	X(FILES, "files", "LIST", TEXT_ONE, "", SOURCE_ROLE(LIST), 1, true) \
	X(TAR, "tar", "SHARDS", TEXT_PATTERNS, "", SOURCE_ROLE(FOLDER), SOURCES_MAX_FDS, true) \
	X(MDS, "mds", "SHARDS", TEXT_PATTERNS, "", SOURCE_ROLE(FOLDER), SOURCES_MAX_FDS, true) \
	X(ZIP, "zip", "FILE", TEXT_PATTERNS, "", SOURCE_ROLE(FOLDER), SOURCES_MAX_FDS, true) \
	X(ARROW, "arrow", "FILES", TEXT_PATTERNS, "", \
	  SOURCE_ROLE(FOLDER) | SOURCE_ROLE(IMAGES) | SOURCE_ROLE(ROWS) | SOURCE_ROLE(TABLE), SOURCES_MAX_FDS, true) \
	X(NPY, "npy", "FILE[,FILE]", TEXT_NAMED, "", SOURCE_ROLE(FILE), SOURCES_MAX_FDS, false) \
	X(NPZ, "npz", "FILE", TEXT_ONE, "", SOURCE_ROLE(FILE), 1, true) \
	X(IDX, "idx", "FILE[,FILE]", TEXT_FILES, "", SOURCE_ROLE(FILE), SOURCES_MAX_FDS, false) \
	X(CIFAR, "cifar", "FILE[,FILE...]", TEXT_FILES, "version ", SOURCE_ROLE(FILE), SOURCES_MAX_FDS, false) \
	X(TOKENS, "tokens", "FILE[,FILE...],length=T", TEXT_FILES, "length stride samples seed windows form dtype ", \
	  SOURCE_ROLE(FILE), SOURCES_MAX_FDS, false) \
	X(BLEND, "blend", "[WEIGHT*]DATASET;;[WEIGHT*]DATASET...", TEXT_BLEND, "", 0, 0, false)
#define SOURCE_KINDS(X) \
	SOURCE_FILE_KINDS(X) \
	X(RANDOM, "random", "...", TEXT_OPTIONS, "*", 0, 0, false) \
	X(SERVE, "serve", "NAME", TEXT_NAME, "", SOURCE_ROLE(NAME), 1, false)
#define SOURCE_ROLE(name) (1u << SOURCE_ROLE__##name)

/* "imagefolder:DIR, files:LIST, ..., random:... or serve:NAME", for messages. */
#define SOURCE_KIND_TEXT(id, name, rest, ...) name ":" rest ", "
#define SOURCE_FILE_KINDS_TEXT SOURCE_FILE_KINDS(SOURCE_KIND_TEXT)
#define SOURCE_KINDS_TEXT SOURCE_FILE_KINDS_TEXT "random:... or serve:NAME"

enum {
	SOURCE_N_KINDS = SOURCE_KIND__MEMORY + 1,
	SOURCES_MAX = 64, /* of a blend */
	SOURCES_MAX_FDS =
		128, /* which a client sends: the shards of a token data set are about a hundred. The kernel allows
				* 253, but each descriptor is a charge on the receiver's table */
	SOURCE_WEIGHT_ONE = 1000000000,
};

/* How the parts of a text follow each other. */
enum source_text {
	TEXT_ONE,      /* all that follows the colon is one path */
	TEXT_FILES,    /* between commas, besides options */
	TEXT_NAMED,    /* between commas, each with NAME= in front or not */
	TEXT_PATTERNS, /* between "::", after what precedes Arrow files */
	TEXT_BLEND,    /* sources between ";;" */
	TEXT_OPTIONS,  /* nothing but options */
	TEXT_NAME,     /* no path at all */
	TEXT_MEMORY,   /* names between commas, and options */
};

extern const struct source_type {
	const char *name;
	enum source_text text;
	const char *options; /* each with a blank after it; "*": any */
	unsigned roles;      /* of its parts: bits */
	unsigned most;       /* parts; at least one, unless none */
	bool has_fields;
} source_types[SOURCE_N_KINDS];

/* The kind of "KIND:REST"; SOURCE_KIND__NO_KIND: there is no such kind. */
SourceKind source_kind_of(const char *text);
static inline const char *source_kind_name(SourceKind kind)
{
	return source_types[kind].name;
}
/* Whether the name, n bytes, is that of an option. */
bool source_type_has_option(const struct source_type *type, const char *name, size_t n);

/* ---- texts ---- */

/* Takes a text apart. 0; -EINVAL with `why`; -ENOENT: it, or a part of a blend, is of no kind, and `why` is that part;
 * -ENOMEM. Paths stay as they are written: relative, with wildcards, a folder or one pattern; and memory is HASH:FD,
 * NAME=FD. Looks for files only where a part may be a file or an option. */
int sources_parse(const char *text, struct Sources **out, char *why, size_t size);
/* Sources that only the configuration knows. NULL: out of memory, as below. */
struct Sources *sources_named(const char *name);

enum source_form {
	/* As its user has written it, for messages and others to see. Without the id of memory: a client that knows
	 * that gets the data of a running job (job-join.c). */
	SOURCE_SHOWN,
	/* With a second slash where a pattern's folder ends: what ids are made of. sources_parse reads it. */
	SOURCE_EXACT,
	/* The files alone, without options and fields: exact, and as shown. */
	SOURCE_PARTS,
	SOURCE_SHOWN_PARTS,
};
/* malloc'ed; NULL: out of memory. Of one source, with "KIND:" in front of it or without. */
char *sources_print(const struct Sources *s, enum source_form form);
char *source_print(const struct Source *s, enum source_form form);
char *source_print_rest(const struct Source *s, enum source_form form);

/* ---- as values ---- */

struct Sources *sources_copy(const struct Sources *s);
bool sources_are_equal(const struct Sources *a, const struct Sources *b);
void sources_free(struct Sources *s); /* may be NULL */
/* The value of an option, the last of that name; NULL: it is not given. */
const char *source_option(const struct Source *s, const char *name);
int source_set(char **member, const char *value); /* replaces a text that was malloc'ed; 0 or -ENOMEM */
struct SourcePart *source_add_part(struct Source *s, SourceRole role, const char *path);

/* What is wrong with sources that another process has sent, for a person; NULL: nothing. So many parts of such roles
 * as the kind has, absolute paths, weights for all or none. */
const char *sources_check(const struct Sources *s);

/* Whether nothing is named of a kind that reads something. */
bool source_lacks_parts(const struct Source *s);

/* How many descriptors go with a part, or with all of it. */
unsigned source_part_fds(const struct Source *s, const struct SourcePart *p);
unsigned source_n_fds(const struct Source *s);
unsigned sources_n_fds(const struct Sources *s);
/* Marks the descriptors whose content a hash tells: memory, of which each rank has a copy, and they are the same
 * data. told has room for sources_n_fds. */
void sources_told(const struct Sources *s, bool *told);

/* ---- paths ---- */

static inline bool source_part_is_path(const struct SourcePart *p)
{
	return p->role >= SOURCE_ROLE__FILE && p->role <= SOURCE_ROLE__IMAGES;
}
/* Calls fn with each path, in order, until it returns other than 0, which is then the result. */
int sources_each_path(const struct Sources *s, int (*fn)(void *arg, const char *path), void *arg);
/* Makes every path absolute, below the current directory. 0 or negative errno. */
int sources_make_absolute(struct Sources *s);
/* Puts files in the place of patterns with braces and wildcards, in the order of their names, and Megatron's index
 * in the place of its pair. For kinds with a list of files; the others have patterns of shards, which are expanded
 * where they are opened. 0; -EINVAL, -ENAMETOOLONG or -ENOENT (nothing matches) with `why`; -EFBIG: more than `most`
 * files; -ENOMEM. */
int source_expand_files(struct Source *s, size_t most, char *why, size_t size);
/* Where a shards' pattern leaves the folder: at the first name with a brace or a wildcard; the name of a single
 * shard; or behind it all, of a folder. */
size_t source_pattern_root(const char *path);
/* All shards of a folder. HuggingFace's datasets caches other Arrow files beside those that save_to_disk has
 * written, and streaming's index tells a shard that is missing. */
const char *source_shards_of_folder(SourceKind kind, const char *folder);
enum { SOURCE_LIST_MAX_BYTES = 16 << 20 }; /* of a list of shards */

#endif
