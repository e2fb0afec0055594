/* See start-failure.h. EAGAIN is what pthread_create says when a control group (docker --pids-limit, podPidsLimit of
 * Kubernetes) or the user's limit of processes allows no more threads. The kernel does not say which. */
#include "server/start-failure.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "config/config.h"
#include "base/cgroup.h"

enum { LEAST_FILES = 64 };

static rlim_t most_files(void)
{
	struct rlimit files;

	return getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : RLIM_INFINITY;
}

bool start_has_files(void)
{
	return most_files() >= LEAST_FILES;
}

static void take_least(void *arg, const char *text, const char *directory)
{
	unsigned long long *least = arg;
	char *end;
	unsigned long long n = strtoull(text, &end, 10);

	(void)directory;
	if (end != text && n < *least)
		*least = n;
}

static void say_threads(const struct config *c, char *buf, size_t size)
{
	unsigned long long group = UINT64_MAX;
	unsigned workers = config_max_workers(c);
	char limits[120] = "no limit that batchd knows";
	struct rlimit own;
	size_t n = 0;

	cgroup_each("", "pids.max", "pids", "pids.max", take_least, &group);
	if (group != UINT64_MAX)
		n = (size_t)snprintf(limits, sizeof limits, "pids.max of its control group is %llu", group);
	if (getrlimit(RLIMIT_NPROC, &own) == 0 && own.rlim_cur != RLIM_INFINITY)
		snprintf(limits + n, sizeof limits - n, "%sulimit -u is %llu", n ? ", " : "",
			 (unsigned long long)own.rlim_cur);
	snprintf(
		buf, size,
		"cannot start: no more threads are allowed, and batchd needs %u (%s): raise the limit, or lower io_threads (%u) "
		"and workers (%u) in the configuration",
		1 + 2 * workers + c->io_threads, limits, c->io_threads, workers);
}

void start_failure_text(const struct config *c, int error, char *buf, size_t size)
{
	if (error == -EAGAIN)
		say_threads(c, buf, size);
	else if (error == -EMFILE)
		snprintf(
			buf, size,
			"cannot start: only %llu files may be open, and batchd needs %d: raise LimitNOFILE= of the service, or "
			"ulimit -n",
			(unsigned long long)most_files(), LEAST_FILES);
	else
		snprintf(buf, size, "cannot start: %s", strerror(-error));
}
