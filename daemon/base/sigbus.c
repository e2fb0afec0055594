/* One handler for the process, one guard per thread. SIGBUS for a lost page is synchronous: it is delivered to the
 * thread that accessed the page, so a thread-local pointer is all the handler needs. Jumping out of the handler is safe
 * because it interrupted only a copy loop. SA_NODEFER keeps the signal unblocked after that jump without a system call
 * for the mask. */
#include "base/sigbus.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

/* Initial-exec: the handler must not allocate the thread's TLS block. */
static _Thread_local struct sigbus_guard *volatile current __attribute__((tls_model("initial-exec")));
static struct sigaction before; /* written once, before the handler can run */

static void call_previous(int signal_number, siginfo_t *info, void *context)
{
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(signal_number, info, context);
	} else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
		/* Returning repeats the access, now with the default action: a core dump at the right place. */
		signal(SIGBUS, SIG_DFL);
	} else {
		before.sa_handler(signal_number);
	}
}

static void on_sigbus(int signal_number, siginfo_t *info, void *context)
{
	struct sigbus_guard *guard = current;
	const char *at = info->si_addr;

	if (guard) {
		for (unsigned i = 0; i < guard->n_ranges; i++) {
			if (at >= guard->ranges[i].begin && at < guard->ranges[i].end) {
				current = NULL;
				siglongjmp(guard->landing, 1);
			}
		}
	}
	call_previous(signal_number, info, context);
}

static void sigbus_install_handler(void)
{
	struct sigaction ours;

	memset(&ours, 0, sizeof(ours));
	ours.sa_sigaction = on_sigbus;
	ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
	sigemptyset(&ours.sa_mask);
	sigaction(SIGBUS, NULL, &before);
	sigaction(SIGBUS, &ours, NULL);
}

void sigbus_install(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, sigbus_install_handler);
}

void sigbus_guard_enter(struct sigbus_guard *guard)
{
	current = guard;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void sigbus_guard_leave(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	current = NULL;
}
