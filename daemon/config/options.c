/* One table has the options: getopt_long's arrays, --help and the shells' completion are made of it. Paths may be
 * relative here, because people type them in some directory. The daemon uses only absolute paths, because it may outlive
 * that directory. */
#include "config/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "address.h"
#include "config/key.h"
#include "sources.h"

const struct option_row options_table[] = {
	{ 'c', "config", "FILE",
	  "configuration, batchd.yaml(5); default $BATCHD_CONFIG, else the first that exists\n"
	  "of ~/.config/batchd/batchd.yaml and " CONFIG_PATH,
	  ROW_CONFIG, NULL, NULL },
	{ 's', "socket", "PATH",
	  "where to listen; default $XDG_RUNTIME_DIR/batchd/socket, else\n"
	  "/tmp/batchd-UID/socket, under systemd its socket",
	  ROW_PATH, "socket", NULL },
	{ 'd', "dataset", "NAME=SPEC", "a data set by name, such as train=imagefolder:/data/train; may be repeated",
	  ROW_DATASET, NULL, NULL },
	{ 'w', "workers", "N|auto", "decoding threads", ROW_KEY, "workers", "auto" },
	{ 'm', "memory", "SIZE|auto", "for batches and caches together, such as 8GiB", ROW_KEY, "memory", "auto" },
	{ 0, "gpu-memory", "SIZE", "for batches on each GPU: auto, off or such as 2GiB", ROW_KEY, "gpu_memory",
	  "auto off" },
	{ 0, "pin-memory", "WHEN", "auto, on or off: lock batches that go to a GPU into memory", ROW_KEY, "pin_memory",
	  "auto on off" },
	{ 0, "linger", "DURATION", "how long a loader stays warm after its last trainer", ROW_KEY, "linger", NULL },
	{ 0, "idle-exit", "DURATION", "exit after so long without any trainer", ROW_KEY, "idle_exit", NULL },
	{ 0, "on-demand", NULL, "as a client library starts it: idle_exit is 5m if it is not configured", ROW_ON_DEMAND,
	  NULL, NULL },
	{ 0, "metrics", "ADDRESS", "metrics for Prometheus and a live page: 127.0.0.1:9464, unix:PATH; off by default",
	  ROW_KEY, "metrics", "127.0.0.1:9464" },
	{ 'f', "foreground", NULL, "log to stderr and stop at Ctrl-C (batchd always does, and never forks)",
	  ROW_FOREGROUND, NULL, NULL },
	{ 0, "log", "FILE", "append the log to a file", ROW_LOG, NULL, NULL },
	{ 0, "log-level", "LEVEL", "error, warning, notice, info or debug", ROW_KEY, "log_level",
	  "error warning notice info debug" },
	{ 0, "check-config", NULL, "read the configuration, say what is wrong with it, and exit", ROW_CHECK_CONFIG,
	  NULL, NULL },
	{ 'V', "version", NULL, "", ROW_VERSION, NULL, NULL },
	{ 'h', "help", NULL, "", ROW_HELP, NULL, NULL },
	{ 0, NULL, NULL, NULL, ROW_HELP, NULL, NULL },
};
enum { N_ROWS = sizeof options_table / sizeof *options_table - 1, FIRST_ROW = 256, HELP_COLUMN = 28 };

/* ---- help ---- */

/* An option of a key ends with the key's default. */
static void print_row(const struct option_row *r)
{
	const struct key *k = r->key ? key_find(r->key) : NULL;
	char left[64], letter[8] = "    ";

	if (r->letter)
		snprintf(letter, sizeof letter, "-%c, ", r->letter);
	snprintf(left, sizeof left, "  %s--%s%s%s", letter, r->name, r->arg ? " " : "", r->arg ? r->arg : "");
	if (!*r->help) {
		puts(left);
		return;
	}
	for (const char *line = r->help, *end; line; line = *end ? end + 1 : NULL) {
		end = strchrnul(line, '\n');
		printf("%-*s%.*s", HELP_COLUMN, line == r->help ? left : "", (int)(end - line), line);
		if (!*end && k && k->standard)
			printf(" (default %s)", k->standard);
		putchar('\n');
	}
}

static void print_help(void)
{
	puts("Usage: batchd [OPTION]...\n"
	     "Serves batches of training data to every trainer of this machine.\n");
	for (const struct option_row *r = options_table; r->name; r++)
		print_row(r);
	puts("\nOptions win over the configuration. Exit codes: 78 for a wrong configuration or option, 1 for any other failure.\n"
	     "See batchd(8), and batchctl(1) to look at a running daemon.");
}

/* ---- relative paths ---- */

/* The path itself if absolute, else below the current directory. malloc'ed; NULL when out of memory or there is no
 * such directory. */
static char *options_absolute(const char *path, size_t n_bytes)
{
	char *dir = path[0] == '/' ? strdup("") : getcwd(NULL, 0), *result = NULL;

	if (!dir)
		return NULL;
	if (asprintf(&result, "%s%s%.*s", dir, path[0] == '/' ? "" : "/", (int)n_bytes, path) < 0)
		result = NULL;
	free(dir);
	return result;
}

/* ---- collecting ---- */

/* Takes text. */
static int add_value(struct options *o, const char *option, const char *key, char *text)
{
	struct option_value *more = text ? reallocarray(o->values, o->n_values + 1, sizeof *more) : NULL;

	if (!more) {
		free(text);
		return -ENOMEM;
	}
	o->values = more;
	o->values[o->n_values++] = (struct option_value){ option, key, text };
	return 0;
}

static int add_dataset(struct options *o, const char *arg)
{
	const char *equals = strchr(arg, '=');
	struct Sources *sources = NULL;
	char *source, *text = NULL, why[256];

	if (!equals || equals == arg) {
		fprintf(stderr,
			"batchd: --dataset: '%s' has no name; expected NAME=SPEC, such as train=imagefolder:/data/train\n",
			arg);
		return OPTIONS_E_USAGE;
	}
	if (sources_parse(equals + 1, &sources, why, sizeof why) == 0 && sources_make_absolute(sources) == 0)
		source = sources_print(sources, SOURCE_EXACT);
	else
		source = strdup(equals + 1); /* config_set_dataset refuses text that is no source */
	sources_free(sources);
	if (!source || asprintf(&text, "%.*s=%s", (int)(equals - arg), arg, source) < 0)
		text = NULL;
	free(source);
	return add_value(o, "dataset", NULL, text);
}

static int options_take(struct options *o, const struct option_row *r, const char *text)
{
	switch (r->kind) {
	case ROW_HELP:
		print_help();
		return OPTIONS_E_DONE;
	case ROW_VERSION:
		puts("batchd " DAEMON_VERSION);
		return OPTIONS_E_DONE;
	case ROW_CONFIG:
		o->config_path = text;
		return 0;
	case ROW_LOG:
		o->log_path = text;
		return 0;
	case ROW_CHECK_CONFIG:
		o->check_config = true;
		return 0;
	case ROW_FOREGROUND:
		return 0;
	case ROW_ON_DEMAND:
		o->on_demand = true;
		return 0;
	case ROW_PATH:
		return add_value(o, r->name, r->key, options_absolute(text, strlen(text)));
	case ROW_KEY:
		return add_value(o, r->name, r->key, strdup(text));
	case ROW_DATASET:
		return add_dataset(o, text);
	}
	return OPTIONS_E_USAGE;
}

/* The row of an option: of its letter, or of its number from FIRST_ROW on. NULL: getopt_long has reported a mistake. */
static const struct option_row *row_of(int option)
{
	if (option >= FIRST_ROW)
		return &options_table[option - FIRST_ROW];
	for (const struct option_row *r = options_table; r->name; r++)
		if (option == r->letter)
			return r;
	return NULL;
}

int options_parse(int argc, char **argv, struct options *o)
{
	struct option names[N_ROWS + 1] = { 0 };
	char letters[2 * N_ROWS + 1] = "";
	int option, r = 0;

	for (int i = 0, n = 0; i < N_ROWS; i++) {
		const struct option_row *row = &options_table[i];

		names[i] =
			(struct option){ row->name, row->arg ? required_argument : no_argument, NULL, FIRST_ROW + i };
		if (row->letter)
			letters[n++] = row->letter;
		if (row->letter && row->arg)
			letters[n++] = ':';
	}
	*o = (struct options){ .n_values = 0 };
	while (r == 0 && (option = getopt_long(argc, argv, letters, names, NULL)) != -1) {
		const struct option_row *row = row_of(option);

		r = row ? options_take(o, row, optarg) : OPTIONS_E_USAGE;
	}
	if (r == 0 && optind < argc) {
		fprintf(stderr, "batchd: '%s' is not an option\n", argv[optind]);
		r = OPTIONS_E_USAGE;
	}
	if (r == OPTIONS_E_USAGE)
		fputs("Try 'batchd --help'.\n", stderr);
	return r;
}

void options_finish(struct options *o)
{
	for (size_t i = 0; i < o->n_values; i++)
		free(o->values[i].text);
	free(o->values);
	*o = (struct options){ .n_values = 0 };
}

/* ---- the configuration ---- */

/* A file of another user is ignored: root may have been given a user's environment (sudo -E). */
static bool is_ours(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && (st.st_uid == geteuid() || st.st_uid == 0);
}

/* False: there is no file. */
static bool find_users_file(char path[PATH_MAX])
{
	const char *config = secure_getenv("XDG_CONFIG_HOME"), *home = secure_getenv("HOME");
	int n;

	if (config && config[0] == '/')
		n = snprintf(path, PATH_MAX, "%s/batchd/batchd.yaml", config);
	else if (home && home[0] == '/')
		n = snprintf(path, PATH_MAX, "%s/.config/batchd/batchd.yaml", home);
	else
		return false;
	return n > 0 && n < PATH_MAX && is_ours(path);
}

const char *options_config_path(struct options *o)
{
	const char *given = secure_getenv("BATCHD_CONFIG");
	bool is_service =
		secure_getenv("CONFIGURATION_DIRECTORY") != NULL; /* systemd sets it for the unit's /etc/batchd */

	if (o->config_path)
		return o->config_path;
	if (given && *given)
		return given;
	if (!is_service && find_users_file(o->found_path))
		return o->found_path;
	return access(CONFIG_PATH, F_OK) == 0 ? CONFIG_PATH : NULL;
}

/* ---- applying ---- */

enum { ON_DEMAND_IDLE_S = 300 }; /* how long the caches last: for a script that is edited and run again */

/* "workers: 'x' is not valid" becomes "--workers: 'x' is not valid". */
static int fail_option(const char *option, struct config_error *err)
{
	struct config_error inner = *err;
	const char *rest = strstr(inner.text, ": ");

	snprintf(err->text, sizeof err->text, "--%s: %.600s", option, rest ? rest + 2 : inner.text);
	return -EINVAL;
}

static int apply_dataset(const char *text, struct config *c, struct config_error *err)
{
	const char *equals = strchr(text, '='); /* add_dataset has checked it */
	char *name = strndup(text, (size_t)(equals - text));
	int r = name ? config_set_dataset(c, name, equals + 1, err) : -ENOMEM;

	free(name);
	return r;
}

int options_apply(const struct options *o, struct config *c, struct config_error *err)
{
	for (size_t i = 0; i < o->n_values; i++) {
		const struct option_value *v = &o->values[i];
		int r = v->key ? config_set(c, v->key, v->text, err) : apply_dataset(v->text, c, err);

		if (r < 0)
			return r == -EINVAL ? fail_option(v->option, err) : r;
	}
	if (o->on_demand && c->idle_exit_ns == CONFIG_NEVER)
		c->idle_exit_ns = (uint64_t)ON_DEMAND_IDLE_S * 1000000000;
	return 0;
}
