/* A daemon of batchctl's own, for one measurement: its socket is in a private directory. Both are gone afterwards, also
 * when batchctl is killed. */
#ifndef BATCHCTL_PRIVATE_DAEMON_H
#define BATCHCTL_PRIVATE_DAEMON_H

#include <stdint.h>
#include <sys/types.h>

struct private_daemon {
	pid_t pid;    /* 0: none */
	char dir[64]; /* empty: none */
	char socket[80];
	int log_fd; /* of a file without a name, while the daemon starts; 0: none */
};

/* Returns when the daemon answers: 0, or -1 after a complaint that quotes its log. workers 0: its own choice. */
int private_daemon_start(struct private_daemon *d, const char *command, uint64_t workers);
/* Waits until the daemon has ended and removes the directory. Safe on a zeroed struct. */
void private_daemon_stop(struct private_daemon *d);

#endif
