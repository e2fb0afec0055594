/* The daemon as a whole: runs from the options to the end of the loop. */
#ifndef BATCHD_DAEMON_H
#define BATCHD_DAEMON_H

#include "config/config.h"

struct daemon_params {
	struct config *config;   /* borrowed; a reload replaces its contents and applies the command line again */
	const char *config_path; /* for messages; NULL: there is none */
	int listen_fd;           /* SOCK_SEQPACKET, listening, non-blocking; borrowed */
	const char *socket_path; /* as clients reach it; for messages */
	/* SIGHUP: reads the configuration again and applies the options, as at the start. 0, or negative errno with
	 * err->text. Loop thread. */
	int (*reload)(void *arg, struct config *fresh, struct config_error *err);
	void *reload_arg;
	/* Ends the process when a thread that hangs keeps daemon_run from returning: no atexit, no wait. */
	void (*end)(int exit_code) __attribute__((noreturn));
};

/* Serves until SIGTERM, SIGINT or the idle timeout. Returns the process's exit code. */
int daemon_run(const struct daemon_params *params);

#endif
