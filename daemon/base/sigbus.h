/* Reading mapped files that another process may truncate meanwhile, without dying of SIGBUS. */
#ifndef BATCHD_SIGBUS_H
#define BATCHD_SIGBUS_H

#include <setjmp.h>
#include <stddef.h>

struct sigbus_range {
	const char *begin, *end;
};

/* Ranges of mapped memory whose loss this thread survives. Guards do not nest. */
struct sigbus_guard {
	const struct sigbus_range *ranges; /* borrowed; n_ranges of them, some may be empty */
	unsigned n_ranges;
	sigjmp_buf landing;
};

/* Installs the handler, once per process; the previously installed handler is called for every SIGBUS outside the
 * guards. */
void sigbus_install(void);

/* Between these two calls a SIGBUS inside the guard's ranges lands at its sigsetjmp. The order of use, in one function:
 *
 *     if (sigsetjmp(guard.landing, 0)) { the file was cut short; the guard is already off }
 *     sigbus_guard_enter(&guard);
 *     ... read ...
 *     sigbus_guard_leave();
 */
void sigbus_guard_enter(struct sigbus_guard *guard);
void sigbus_guard_leave(void);

#endif
