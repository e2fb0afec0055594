/* Talking to the service manager: sd_notify(3)'s protocol, spoken directly, so that it works wherever the manager
 * does.
 *
 * Without one (NOTIFY_SOCKET is not set) every call does nothing. Calls never fail: a manager that cannot be told
 * anything will find out by its own timeouts. Loop thread, or before there are others. */
#ifndef BATCHD_NOTIFY_H
#define BATCHD_NOTIFY_H

#include <stdint.h>

void notify_ready(const char *status); /* serving; also ends a reload. status: one line for `systemctl status` */
void notify_status(const char *status);
void notify_stopping(void);
void notify_reloading(void);       /* notify_ready must follow */
void notify_extend(uint64_t usec); /* starting or stopping takes this much longer, counted from now */
void notify_watchdog(void);        /* all is well */
void notify_watchdog_failed(void); /* it is not, and a restart is the cure: do not wait for the ping to be
                                         * missed */

/* How often to ping, half of what the manager allows; 0: it does not ask for it. */
uint64_t notify_watchdog_interval_ns(void);

enum { NOTIFY_FIRST_FD = 3 };

/* Sockets that the manager opened for us: NOTIFY_FIRST_FD and the following, close-on-exec from now on. Returns how
 * many, 0 without activation, or -EINVAL when the variables make no sense. Forgets the variables: a second call gives
 * 0, and so does a child's. */
int notify_listen_fds(void);

#endif
