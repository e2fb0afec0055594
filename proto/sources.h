/* The kinds of data sets: what stands before the colon, and which parts of what follows it are paths. The client,
 * the daemon and batchctl read the same texts.
 *
 * SOURCE_KINDS is the one list of kinds. Messages have their texts from it. */
#ifndef BATCHD_SOURCES_H
#define BATCHD_SOURCES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* X(name, what follows the colon, how paths are separated, options between commas that are no paths) */
#define SOURCE_FILE_KINDS(X) \
	X(IMAGEFOLDER, "imagefolder", "DIR", PATHS_ONE, "") \
	X(FILES, "files", "LIST", PATHS_ONE, "") \
	X(TAR, "tar", "SHARDS", PATHS_PATTERNS, "") \
	X(MDS, "mds", "SHARDS", PATHS_PATTERNS, "") \
	X(ZIP, "zip", "FILE", PATHS_PATTERNS, "") \
	X(ARROW, "arrow", "FILES", PATHS_PATTERNS, "") \
	X(NPY, "npy", "FILE[,FILE]", PATHS_NAMED, "") \
	X(NPZ, "npz", "FILE", PATHS_ONE, "") \
	X(IDX, "idx", "FILE[,FILE]", PATHS_FILES, "") \
	X(CIFAR, "cifar", "FILE[,FILE...]", PATHS_FILES, "version ") \
	X(TOKENS, "tokens", "FILE[,FILE...],length=T", PATHS_FILES, "length stride samples seed windows form dtype ") \
	X(BLEND, "blend", "[WEIGHT*]DATASET;;[WEIGHT*]DATASET...", PATHS_PARTS, "")
#define SOURCE_KINDS(X) \
	SOURCE_FILE_KINDS(X) \
	X(RANDOM, "random", "...", PATHS_NONE, "") \
	X(SERVE, "serve", "NAME", PATHS_NONE, "")

enum source_paths {
	PATHS_NONE,     /* it names no file */
	PATHS_ONE,      /* all that follows the colon */
	PATHS_FILES,    /* between commas, besides options NAME=VALUE */
	PATHS_NAMED,    /* between commas, each with NAME= in front or not */
	PATHS_PATTERNS, /* between "::", after "rows=HASH," and "images=DIR," of Arrow files */
	PATHS_PARTS,    /* data sets between ";;" */
};

#define SOURCE_KIND_ENUM(id, name, rest, paths, options) SOURCE_##id,
enum source_kind { SOURCE_KINDS(SOURCE_KIND_ENUM) SOURCE_N_KINDS };
#undef SOURCE_KIND_ENUM

/* "imagefolder:DIR, files:LIST, ..., random:... or serve:NAME", for messages. */
#define SOURCE_KIND_TEXT(id, name, rest, paths, options) name ":" rest ", "
#define SOURCE_FILE_KINDS_TEXT SOURCE_FILE_KINDS(SOURCE_KIND_TEXT)
#define SOURCE_KINDS_TEXT SOURCE_FILE_KINDS_TEXT "random:... or serve:NAME"

/* The kind of "KIND:REST"; SOURCE_N_KINDS: there is no such kind. */
enum source_kind source_kind_of(const char *source);
const char *source_kind_name(enum source_kind kind);

/* The first comma of a text outside of braces, before `end`; NULL: there is none. A brace that is not closed is a letter. */
const char *source_comma(const char *at, const char *end);

/* Whether a part between commas, n_bytes long, is an option by its form, NAME=VALUE with a name of letters, although the kind
 * has options of other names, and no file is called so. `why`: says so, and names them. */
bool source_is_misspelt(const char *kind, const char *part, size_t n_bytes, char *why, size_t size);

/* Calls fn with each path of a source, n_bytes of the text, in order, until it returns other than 0, which is then the
 * result. A source of an unknown kind has no paths. */
int source_each_path(const char *source, int (*fn)(void *arg, const char *path, size_t n_bytes), void *arg);

/* The source with every path made absolute, below the current directory. malloc'ed; NULL when out of memory or there is
 * no such directory. */
char *source_absolute(const char *source);

/* The index that Megatron keeps beside a .bin: in out, if `path` names such a pair, by its .bin or without an ending. A .bin
 * of Megatron's does not say what its tokens are, and read as raw uint16 it would be nonsense without an error. So an index
 * of a format that is not known counts as well, and is refused when it is read, unless the tokens' type is said. */
bool source_token_index(const char *path, bool says_type, char out[PATH_MAX]);
/* Whether a source of tokens has the option dtype. */
bool source_says_token_type(const char *source);

#endif
