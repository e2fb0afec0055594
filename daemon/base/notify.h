/* Messages to the service manager by the protocol of sd_notify(3), implemented directly, so that it works without
 * libsystemd.
 *
 * Without a manager (NOTIFY_SOCKET is not set) every call does nothing. Calls never fail: a manager that gets no
 * message notices by its own timeouts. Loop thread, or before other threads start. */
#ifndef BATCHD_NOTIFY_H
#define BATCHD_NOTIFY_H

#include <stdint.h>

void notify_ready(const char *status); /* serving; also ends a reload. status: one line for `systemctl status` */
void notify_status(const char *status);
void notify_stopping(void);
void notify_reloading(void);       /* notify_ready must follow */
void notify_extend(uint64_t usec); /* starting or stopping takes this much longer, from this call on */
void notify_watchdog(void);        /* the daemon is healthy */
void notify_watchdog_failed(void); /* the daemon needs a restart: do not wait for a missed ping */

/* How often to ping, half of the manager's interval; 0: it expects no pings. */
uint64_t notify_watchdog_interval_ns(void);

enum { NOTIFY_FIRST_FD = 3 };

/* Sockets that the manager opened for this process: NOTIFY_FIRST_FD and the following, made close-on-exec. Returns
 * their number, 0 without activation, or -EINVAL when the variables are invalid. Removes the variables: a second call
 * gives 0, and so does a call in a child. */
int notify_listen_fds(void);

#endif
