/* getopt_long's table and the handling of its options. Paths may be relative here, because people type them in some
 * directory. The daemon uses only absolute paths, because it may outlive that directory. */
#include "config/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "address.h"
#include "sources.h"

enum {
	OPT_HELP = 'h',
	OPT_VERSION = 'V',
	OPT_CONFIG = 'c',
	OPT_SOCKET = 's',
	OPT_WORKERS = 'w',
	OPT_MEMORY = 'm',
	OPT_DATASET = 'd',
	OPT_FOREGROUND = 'f',
	OPT_IDLE_EXIT = 256,
	OPT_LINGER,
	OPT_LOG,
	OPT_LOG_LEVEL,
	OPT_CHECK_CONFIG,
	OPT_GPU_MEMORY,
	OPT_PIN_MEMORY,
	OPT_ON_DEMAND,
	OPT_METRICS,
};

static const struct option long_options[] = {
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ "config", required_argument, NULL, OPT_CONFIG },
	{ "socket", required_argument, NULL, OPT_SOCKET },
	{ "workers", required_argument, NULL, OPT_WORKERS },
	{ "memory", required_argument, NULL, OPT_MEMORY },
	{ "dataset", required_argument, NULL, OPT_DATASET },
	{ "foreground", no_argument, NULL, OPT_FOREGROUND },
	{ "idle-exit", required_argument, NULL, OPT_IDLE_EXIT },
	{ "linger", required_argument, NULL, OPT_LINGER },
	{ "log", required_argument, NULL, OPT_LOG },
	{ "log-level", required_argument, NULL, OPT_LOG_LEVEL },
	{ "check-config", no_argument, NULL, OPT_CHECK_CONFIG },
	{ "gpu-memory", required_argument, NULL, OPT_GPU_MEMORY },
	{ "pin-memory", required_argument, NULL, OPT_PIN_MEMORY },
	{ "on-demand", no_argument, NULL, OPT_ON_DEMAND },
	{ "metrics", required_argument, NULL, OPT_METRICS },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"Usage: batchd [OPTION]...\n"
	"Serves batches of training data to every trainer of this machine.\n"
	"\n"
	"  -c, --config FILE         configuration, batchd.yaml(5); default $BATCHD_CONFIG, else the first that exists\n"
	"                            of ~/.config/batchd/batchd.yaml and " CONFIG_PATH "\n"
	"  -s, --socket PATH         where to listen; default $XDG_RUNTIME_DIR/batchd/socket, else\n"
	"                            /tmp/batchd-UID/socket, under systemd its socket\n"
	"  -d, --dataset NAME=SPEC   a data set by name, such as train=imagefolder:/data/train; may be repeated\n"
	"  -w, --workers N|auto      decoding threads\n"
	"  -m, --memory SIZE|auto    for batches and caches together, such as 8GiB\n"
	"      --gpu-memory SIZE     for batches on each GPU: auto, off or such as 2GiB\n"
	"      --pin-memory WHEN     auto, on or off: lock batches that go to a GPU into memory\n"
	"      --linger DURATION     how long a loader stays warm after its last trainer, such as 30s\n"
	"      --idle-exit DURATION  exit after so long without any trainer; never by default\n"
	"      --on-demand           as a client library starts it: idle_exit is 5m if it is not configured\n"
	"      --metrics ADDRESS     metrics for Prometheus and a live page: 127.0.0.1:9464, unix:PATH; off by default\n"
	"  -f, --foreground          log to stderr and stop at Ctrl-C (batchd always does, and never forks)\n"
	"      --log FILE            append the log to a file\n"
	"      --log-level LEVEL     error, warning, notice, info or debug\n"
	"      --check-config        read the configuration, say what is wrong with it, and exit\n"
	"  -V, --version\n"
	"  -h, --help\n"
	"\n"
	"Options win over the configuration. Exit codes: 78 for a wrong configuration or option, 1 for any other failure.\n"
	"See batchd(8), and batchctl(1) to look at a running daemon.\n";

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
	char *source, *text = NULL;

	if (!equals || equals == arg) {
		fprintf(stderr,
			"batchd: --dataset: '%s' has no name; expected NAME=SPEC, such as train=imagefolder:/data/train\n",
			arg);
		return OPTIONS_E_USAGE;
	}
	source = source_absolute(equals + 1); /* config_set_dataset refuses text that is no source */
	if (!source || asprintf(&text, "%.*s=%s", (int)(equals - arg), arg, source) < 0)
		text = NULL;
	free(source);
	return add_value(o, "--dataset", NULL, text);
}

static int options_take(struct options *o, int option)
{
	switch (option) {
	case OPT_HELP:
		fputs(help, stdout);
		return OPTIONS_E_DONE;
	case OPT_VERSION:
		puts("batchd " DAEMON_VERSION);
		return OPTIONS_E_DONE;
	case OPT_CONFIG:
		o->config_path = optarg;
		return 0;
	case OPT_LOG:
		o->log_path = optarg;
		return 0;
	case OPT_CHECK_CONFIG:
		o->check_config = true;
		return 0;
	case OPT_FOREGROUND:
		return 0;
	case OPT_ON_DEMAND:
		o->on_demand = true;
		return 0;
	case OPT_SOCKET:
		return add_value(o, "--socket", "socket", options_absolute(optarg, strlen(optarg)));
	case OPT_WORKERS:
		return add_value(o, "--workers", "workers", strdup(optarg));
	case OPT_MEMORY:
		return add_value(o, "--memory", "memory", strdup(optarg));
	case OPT_GPU_MEMORY:
		return add_value(o, "--gpu-memory", "gpu_memory", strdup(optarg));
	case OPT_PIN_MEMORY:
		return add_value(o, "--pin-memory", "pin_memory", strdup(optarg));
	case OPT_IDLE_EXIT:
		return add_value(o, "--idle-exit", "idle_exit", strdup(optarg));
	case OPT_LINGER:
		return add_value(o, "--linger", "linger", strdup(optarg));
	case OPT_METRICS:
		return add_value(o, "--metrics", "metrics", strdup(optarg));
	case OPT_LOG_LEVEL:
		return add_value(o, "--log-level", "log_level", strdup(optarg));
	case OPT_DATASET:
		return add_dataset(o, optarg);
	default: /* getopt_long has reported the mistake */
		return OPTIONS_E_USAGE;
	}
}

int options_parse(int argc, char **argv, struct options *o)
{
	int option, r = 0;

	*o = (struct options){ .n_values = 0 };
	while (r == 0 && (option = getopt_long(argc, argv, "hVc:s:w:m:d:f", long_options, NULL)) != -1)
		r = options_take(o, option);
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

	snprintf(err->text, sizeof err->text, "%s: %.600s", option, rest ? rest + 2 : inner.text);
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
