/* See pressure.h. A trigger is a line written to the pressure file; from then on the descriptor has priority data
 * whenever programs have waited for memory for so long within the window. Processes without privileges may have windows
 * of whole multiples of two seconds. */
#include "server/pressure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread-kind.h"

#define TRIGGER "some 200000 2000000" /* microseconds: a tenth of two seconds */

/* With the trigger set. Negative errno: it cannot be watched. */
static int watch_file(const char *path, bool *is_fifo)
{
	struct stat st;
	int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC), r = 0;
	if (fd < 0)
		return -errno;
	*is_fifo = fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
	if (!*is_fifo && write(fd, TRIGGER, sizeof(TRIGGER)) < 0)
		r = -errno;
	if (r)
		close(fd);
	return r ? r : fd;
}

/* The control group of version 2; false: this process is in none but the root. */
static bool group_file(char *path, size_t size)
{
	char line[2048];
	bool found = false;
	FILE *f = fopen("/proc/self/cgroup", "re");
	while (f && !found && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		found = !strncmp(line, "0::", 3);
	}
	if (f)
		fclose(f);
	return found && (size_t)snprintf(path, size, "/sys/fs/cgroup%s/memory.pressure",
					 strcmp(line + 3, "/") ? line + 3 : "") < size;
}

static int watch_any(char *path, size_t size, bool *is_fifo)
{
	const char *named = getenv("MEMORY_PRESSURE_WATCH");
	int fd = -ENOENT;
	if (named && *named) {
		snprintf(path, size, "%s", named);
		return strcmp(named, "/dev/null") ? watch_file(named, is_fifo) : -ENOENT;
	}
	if (group_file(path, size))
		fd = watch_file(path, is_fifo);
	if (fd >= 0)
		return fd;
	snprintf(path, size, "/proc/pressure/memory");
	return watch_file(path, is_fifo);
}

static void on_event(uv_poll_t *poll, int status, int events)
{
	struct pressure *p = poll->data;
	char told[256];
	(void)events;
	while (p->is_fifo && read(p->fd, told, sizeof(told)) > 0)
		;
	if (status < 0) { /* the control group has gone */
		uv_poll_stop(poll);
		return;
	}
	p->on_pressure(p->arg);
}

void pressure_start(struct pressure *p, uv_loop_t *loop)
{
	char path[2200];
	p->fd = watch_any(path, sizeof(path), &p->is_fifo);
	if (p->fd >= 0 && uv_poll_init(loop, &p->poll, p->fd)) {
		close(p->fd);
		p->fd = -1;
	}
	if (p->fd < 0) {
		log_record(LOG_LEVEL_INFO, "pressure-unknown",
			   "memory pressure cannot be watched (%s): caches keep their size", path);
		p->fd = -1;
		return;
	}
	p->poll.data = p;
	uv_poll_start(&p->poll, p->is_fifo ? UV_READABLE : UV_PRIORITIZED, on_event);
	log_record(LOG_LEVEL_INFO, "pressure-watched", "%s is watched: caches shrink while programs wait for memory",
		   path);
}

static void on_closed(uv_handle_t *h)
{
	struct pressure *p = h->data;
	close(p->fd);
	p->fd = -1;
}

void pressure_stop(struct pressure *p)
{
	if (p->fd >= 0 && !uv_is_closing((uv_handle_t *)&p->poll))
		uv_close((uv_handle_t *)&p->poll, on_closed);
}
