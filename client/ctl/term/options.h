/* The command line of one subcommand, as a table: parsing, checking and --help all come from it, so they cannot
 * disagree.
 *
 * Strict: no abbreviations, "--name value" or "--name=value", "--" ends the options; an error names the wrong argument
 * together with what was expected. */
#ifndef BATCHCTL_OPTIONS_H
#define BATCHCTL_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum option_kind {
	OPTION_FLAG,     /* bool * */
	OPTION_TEXT,     /* const char **, borrowed from argv; never empty */
	OPTION_NUMBER,   /* uint64_t *, min..max */
	OPTION_CHOICE,   /* unsigned *, index into choices */
	OPTION_DURATION, /* uint64_t *, ns, at least min */
};

struct option_spec {
	const char *name; /* without dashes; NULL ends the table */
	enum option_kind kind;
	void *value;     /* of the type that kind names; holds the default before parsing */
	const char *arg; /* the argument's name in --help */
	const char *
		help; /* one line; --help adds the default, unless this has one in words, "(default: as many as ...)" */
	uint64_t min, max;
	const char *const *choices; /* NULL-terminated */
};

struct command {
	const char *name;
	const char *synopsis;  /* positional arguments, e.g. "DATASET"; "" if there are none */
	const char *summary;   /* one line */
	const char *notes;     /* printed below the options; may be NULL */
	unsigned n_positional; /* exactly this many are wanted */
};

/* Until it is called with NULL, command_parse shows each command's table in place of parsing, and returns false with exit
 * code 0. */
void command_show(void (*show)(void *arg, const struct command *cmd, const struct option_spec *specs), void *arg);

/* True: continue, positional[0 .. n_positional-1] are set. False: return *exit_code (--help was answered, or a
 * complaint printed). */
bool command_parse(const struct command *cmd, const struct option_spec *specs, int argc, char **argv,
		   const char **positional, int *exit_code);

/* The same of a command whose positional arguments may be left out after the first `least`: they are NULL then. */
bool command_parse_some(const struct command *cmd, const struct option_spec *specs, unsigned least, int argc,
			char **argv, const char **positional, int *exit_code);

/* A whole decimal number without sign or spaces. False when text is anything else or outside min..max. */
bool options_number(const char *text, uint64_t min, uint64_t max, uint64_t *out);

#endif
