/* The command line. An option that has a key in the file changes the configuration as the file would. */
#ifndef BATCHD_OPTIONS_H
#define BATCHD_OPTIONS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "config/config.h"

/* What an option does; ROW_KEY, ROW_PATH: it sets a key of the configuration. */
enum option_row_kind {
	ROW_HELP,
	ROW_VERSION,
	ROW_CONFIG,
	ROW_LOG,
	ROW_CHECK_CONFIG,
	ROW_FOREGROUND,
	ROW_ON_DEMAND,
	ROW_KEY,
	ROW_PATH, /* which may be relative */
	ROW_DATASET,
};

struct option_row {
	char letter; /* -w; 0: none */
	const char *name;
	const char *arg;  /* what it takes, in capitals; NULL: nothing */
	const char *help; /* lines; "": none is needed */
	enum option_row_kind kind;
	const char *key;    /* of the configuration */
	const char *values; /* words that a shell may complete; NULL: none */
};

/* All options, in the order of --help; ends with a name of NULL. */
extern const struct option_row options_table[];

struct option_value {
	const char *option; /* "workers"; for messages */
	const char *key;    /* of the configuration; NULL: a data set */
	char *text;         /* owned */
};

struct options {
	const char *config_path; /* NULL: none was named */
	const char *log_path;    /* NULL: stderr */
	bool check_config;
	bool on_demand;              /* a client library has started this daemon for its user */
	char found_path[PATH_MAX];   /* options_config_path's */
	struct option_value *values; /* n_values, in their order: a later one wins */
	size_t n_values;
};

enum {
	OPTIONS_E_DONE = 1, /* --help or --version was handled */
	OPTIONS_E_USAGE = 2 /* wrong usage; stderr has the message */
};

/* 0, an outcome, or -ENOMEM. Borrows argv. */
int options_parse(int argc, char **argv, struct options *o);
void options_finish(struct options *o);

/* The configuration to read: the file named by option or $BATCHD_CONFIG, which must exist; else the user's or the
 * system's, the first that exists; NULL: none. Valid until the next call. */
const char *options_config_path(struct options *o);

/* Sets the values over those of the file. 0, -EINVAL with err->text (it begins with the option), -ENOMEM. */
int options_apply(const struct options *o, struct config *c, struct config_error *err);

#endif
