/* The daemon's beginning and end: options, configuration, socket, and then daemon_run. It never forks: systemd, a shell
 * or the client library has already put it in its place. An error here goes into the log as well, and says what to do;
 * exit code 78 tells systemd that another try would not help. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon.h"
#include "config/cachedir.h"
#include "server/ipc/listen.h"
#include "base/notify.h"
#include "config/options.h"
#include "sources.h"
#include "base/log.h"

enum { EXIT_CONFIG = 78 }; /* EX_CONFIG of sysexits.h; RestartPreventExitStatus= in the unit */

/* Reports the error in the log and in `systemctl status`. */
static int main_give_up(const char *event, const char *text, int exit_code)
{
	log_record(LOG_LEVEL_ERROR, event, "%s", text);
	notify_status(text);
	return exit_code;
}

static int redirect_log(const char *path)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
	char text[512];

	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0) {
		snprintf(text, sizeof text, "--log: %.300s cannot be opened: %s", path, strerror(errno));
		return main_give_up("log-failed", text, EXIT_CONFIG);
	}
	close(fd);
	return 0;
}

/* Its default depends on the user, so it is not in the table of keys. */
static int set_index_cache(struct config *c)
{
	char path[PATH_MAX];

	if (c->index_cache || cachedir_default(path, sizeof path) < 0)
		return 0;
	c->index_cache = strdup(path);
	return c->index_cache ? 0 : -ENOMEM;
}

/* Reads the file, then applies the options. At the start and at every reload. */
static int load_config(void *arg, struct config *c, struct config_error *err)
{
	struct options *o = arg;
	const char *path = options_config_path(o);
	int r = path ? config_load(path, c, err) : config_defaults(c);

	if (r == 0) {
		r = options_apply(o, c, err);
		if (r == 0)
			r = set_index_cache(c);
		if (r < 0)
			config_finish(c);
	}
	if (r == -ENOMEM)
		snprintf(err->text, sizeof err->text, "out of memory while reading the configuration");
	return r;
}

static int open_listener(struct listener *l, const struct config *c)
{
	struct listen_error err = { .text = "" };
	char own[ADDRESS_MAX_BYTES];
	int r = listener_adopt(l, &err);

	if (r == 0 && !c->socket && address_own(own) < 0)
		return main_give_up("listen-failed",
				    "$XDG_RUNTIME_DIR is too long for a socket; choose one with --socket", EXIT_CONFIG);
	if (r == 0)
		r = listener_open(l, c->socket ? c->socket : own, c->socket_mode, c->socket_group, &err);
	else if (r > 0 && c->socket && strcmp(c->socket, l->path) != 0)
		log_record(LOG_LEVEL_WARNING, "socket-ignored",
			   "listening where systemd does (%s), not at the configured %s", l->path, c->socket);
	return r < 0 ? main_give_up("listen-failed", err.text, EXIT_FAILURE) : 0;
}

/* Every trainer costs descriptors; the default soft limit is low because of programs that use select(). */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static void make_index_cache(const struct config *c)
{
	int r = c->index_cache ? cachedir_make(c->index_cache) : 0;

	if (r < 0)
		log_record(LOG_LEVEL_WARNING, "index-cache-off",
			   "%s: cannot be made: %s; data sets are indexed at every start", c->index_cache,
			   strerror(-r));
}

/* Static because a signal may need it before a loop handles signals. */
static struct listener listener;

static void on_early_stop(int number)
{
	(void)number;
	listener_close(&listener);
	_exit(EXIT_SUCCESS);
}

static void main_end(int exit_code) __attribute__((noreturn));
static void main_end(int exit_code)
{
	listener_close(&listener);
	_exit(exit_code);
}

/* A process that sees the socket may stop the daemon at once; daemon_run replaces these handlers. */
static void handle_early_signals(void)
{
	struct sigaction stop = { .sa_handler = on_early_stop };

	listener = LISTENER_CLOSED;
	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGINT, &stop, NULL);
	signal(SIGHUP, SIG_IGN);  /* the configuration has just been read */
	signal(SIGPIPE, SIG_IGN); /* a write to a trainer that has gone gives EPIPE */
}

/* A signal finds the listener either closed or complete. */
static int open_listener_whole(const struct config *c)
{
	sigset_t stops, before;

	sigemptyset(&stops);
	sigaddset(&stops, SIGTERM);
	sigaddset(&stops, SIGINT);
	sigprocmask(SIG_BLOCK, &stops, &before);

	int exit_code = open_listener(&listener, c);

	sigprocmask(SIG_SETMASK, &before, NULL);
	return exit_code;
}

static int main_serve(struct options *o, struct config *c)
{
	handle_early_signals();

	int exit_code = open_listener_whole(c);

	if (exit_code == 0) {
		struct daemon_params params = {
			.config = c,
			.config_path = options_config_path(o),
			.listen_fd = listener.fd,
			.socket_path = listener.path,
			.reload = load_config,
			.reload_arg = o,
			.end = main_end,
		};

		make_index_cache(c);
		exit_code = daemon_run(&params);
		listener_close(&listener);
	}
	return exit_code;
}

/* ---- --check-config ---- */

static void on_mistake(const char *text)
{
	log_record(LOG_LEVEL_ERROR, "config-invalid", "%s", text);
}

/* A place may appear later, with a network file system: reported, but not an error of the configuration. Of a pattern
 * only its folder is looked for. */
static int main_look_for_path(void *arg, const char *path)
{
	const struct config_dataset *d = arg;
	char one[PATH_MAX];

	snprintf(one, sizeof one, "%.*s", (int)source_pattern_root(path), path);
	if (access(one, F_OK) < 0)
		log_record(LOG_LEVEL_WARNING, "dataset-missing", "data set %s: %s: %s", d->name, one, strerror(errno));
	return 0;
}

static int main_check(struct options *o)
{
	struct config_error err = { .on_mistake = on_mistake };
	const char *path = options_config_path(o);
	struct config c;
	int r = load_config(o, &c, &err);

	if (r < 0) {
		if (*err.text)
			on_mistake(err.text);
		return EXIT_CONFIG;
	}
	for (uint32_t i = 0; i < c.n_datasets; i++)
		sources_each_path(c.datasets[i].sources, main_look_for_path, &c.datasets[i]);
	printf("%s: valid; %u data set%s, %u pipeline%s\n", path ? path : "defaults", c.n_datasets,
	       c.n_datasets == 1 ? "" : "s", c.n_pipelines, c.n_pipelines == 1 ? "" : "s");
	config_finish(&c);
	return EXIT_SUCCESS;
}

static int main_run(struct options *o)
{
	struct config_error err = { .text = "" };
	struct config config;
	int exit_code;

	if (o->log_path && (exit_code = redirect_log(o->log_path)) != 0)
		return exit_code;
	if (o->check_config)
		return main_check(o);
	if (load_config(o, &config, &err) < 0)
		return main_give_up("config-invalid", err.text, EXIT_CONFIG);
	log_set_level(config.log_level);
	raise_file_limit();
	exit_code = main_serve(o, &config);
	config_finish(&config);
	return exit_code;
}

int main(int argc, char **argv)
{
	struct options options;
	int r = options_parse(argc, argv, &options);
	int exit_code = EXIT_FAILURE;

	if (r == 0)
		exit_code = main_run(&options);
	else if (r == OPTIONS_E_DONE)
		exit_code = EXIT_SUCCESS;
	else if (r == OPTIONS_E_USAGE)
		exit_code = EXIT_CONFIG;

	options_finish(&options);
	return exit_code;
}
