/* See priority.h. A service, and a daemon that a client library starts, has a session of its own; in a session with other
 * processes, such as a shell's, the workers' own niceness counts. Autogroups are for processes outside of control groups
 * for processors, whose weights count above both. */
#include "batch/pool/priority.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

int priority_yield_thread(int nice)
{
	/* An operator's own policy stays. 0: on Linux the thread. */
	if (sched_getscheduler(0) == SCHED_OTHER && sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){ 0 }))
		return -errno;
	errno = 0;
	int now = getpriority(PRIO_PROCESS, 0);
	if (errno)
		return -errno;
	return now >= nice || setpriority(PRIO_PROCESS, 0, nice) == 0 ? 0 : -errno;
}

int priority_yield_session(int nice)
{
	char text[16];
	if (!nice || getsid(0) != getpid())
		return 0;
	int fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	int n = snprintf(text, sizeof(text), "%d", nice);
	int r = write(fd, text, (size_t)n) == n ? 0 : -errno;
	close(fd);
	return r;
}
