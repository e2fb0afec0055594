/* Counters, violations, and what is left over at the end. Lines are written to $FAKECUDA_REPORT.PID at once, so that
 * the report of a killed process is complete up to its death; the last line ("end ...") exists only after an ordinary
 * exit. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

static _Atomic uint64_t counters[COUNT_N], calls[API_N];
static const char *const counter_names[COUNT_N] = {
	"pageable",       "pageable-bytes", "copies-to-device", "bytes-to-device",
	"copies-to-host", "bytes-to-host",  "copies-on-device", "bytes-on-device",
	"kernels",        "injected",       "violations",       "reads-after-exporter-died"
};
static char last[512];
static pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;

void count(enum counter c, uint64_t n)
{
	atomic_fetch_add(&counters[c], n);
}

void count_call(enum api api)
{
	if (!gate_closed())
		atomic_fetch_add(&calls[api], 1);
}

static void say(const char *line)
{
	char path[4096];
	int fd;

	if (!settings.report)
		return;
	snprintf(path, sizeof path, "%s.%d", settings.report, (int)getpid());
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return;
	for (size_t at = 0, size = strlen(line); at < size;) {
		ssize_t n = write(fd, line + at, size - at);

		if (n >= 0) {
			at += (size_t)n;
		} else if (errno != EINTR) {
			fprintf(stderr, "fakecuda: cannot write to %s\n", path);
			break;
		}
	}
	close(fd);
}

static void report(const char *text)
{
	char line[512];

	settings_read();
	count(COUNT_VIOLATIONS, 1);
	snprintf(line, sizeof line, "violation %s\n", text);
	say(line);
	if (!settings.quiet)
		fprintf(stderr, "fakecuda[%d]: %s\n", (int)getpid(), text);
	/* a forked child must not touch the lock */
	if (atomic_load(&fake.pid) == 0 || atomic_load(&fake.pid) == getpid()) {
		pthread_mutex_lock(&last_lock);
		snprintf(last, sizeof last, "%s", text);
		pthread_mutex_unlock(&last_lock);
	}
}

void violation(const char *format, ...)
{
	char text[480];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	report(text);
}

void fakecuda_misuse(const char *format, ...)
{
	char text[480];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	report(text);
}

const char *fakecuda_last_violation(void)
{
	static _Thread_local char copy[512];

	pthread_mutex_lock(&last_lock);
	memcpy(copy, last, sizeof copy);
	pthread_mutex_unlock(&last_lock);
	return copy;
}

uint64_t fakecuda_counter(const char *name)
{
	uint64_t n = 0;

	for (int i = 0; i < COUNT_N; i++)
		if (!strcmp(name, counter_names[i]))
			return atomic_load(&counters[i]);
	for (int i = 0; i < API_N; i++)
		if (!strcmp(name, api_name((enum api)i)))
			n += atomic_load(&calls[i]);
	return n;
}

/* Descriptors of device memory that no object of the fake driver keeps: exported or received, and not closed. */
static unsigned stray_fds(void)
{
	unsigned n = 0, kept = vmm_n_fds();
	struct dirent *e;
	DIR *fds = opendir("/proc/self/fd");
	char path[300], to[64];

	for (struct memory *m = fake.memory; m; m = m->next)
		kept += m->fd >= 0;
	while (fds && (e = readdir(fds))) {
		snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
		ssize_t size = readlink(path, to, sizeof to - 1);

		to[size < 0 ? 0 : size] = '\0';
		n += !strncmp(to, "/memfd:fakecuda ", 16);
	}
	if (fds)
		closedir(fds);
	return n > kept ? n - kept : 0;
}

static unsigned list_leaks(bool tell)
{
	unsigned n = 0;
	char line[256];

	static const char *const kinds[] = { "memory", "import", "mapping" };
	for (struct memory *m = fake.memory; m; m = m->next, n++)
		if (tell) {
			snprintf(line, sizeof line, "leak %s of %zu bytes at 0x%llx\n", kinds[m->kind], m->n_bytes,
				 m->base);
			say(line);
		}
	for (struct registration *r = fake.registrations; r; r = r->next, n++)
		if (tell) {
			snprintf(line, sizeof line, "leak %s of %zu bytes at %p\n",
				 r->ours ? "host memory" : "registration", r->n_bytes, (void *)r->base);
			say(line);
		}
	struct {
		const char *what;
		unsigned n;
	} others[] = { { "stream", 0 },
		       { "event", 0 },
		       { "context", 0 },
		       { "module", 0 },
		       { "allocation handle", fake.n_vmm_handles },
		       { "address range", fake.n_reservations },
		       { "descriptor", stray_fds() } };
	for (struct CUstream_st *s = fake.streams; s; s = s->next)
		others[0].n += !s->closing && s != s->ctx->legacy && !s->of_thread;
	for (struct CUevent_st *e = fake.events; e; e = e->next)
		others[1].n++;
	for (struct CUctx_st *c = fake.contexts; c; c = c->next)
		others[2].n++;
	for (void **m = (void **)fake.modules; m; m = *m)
		others[3].n++;
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		n += others[i].n;
		if (tell && others[i].n) {
			snprintf(line, sizeof line, "leak %u %s%s\n", others[i].n, others[i].what,
				 others[i].n == 1 ? "" : "s");
			say(line);
		}
	}
	return n;
}

unsigned fakecuda_alive(void)
{
	pthread_mutex_lock(&fake.lock);
	unsigned n = list_leaks(false);
	pthread_mutex_unlock(&fake.lock);
	return n;
}

/* Runs at the ordinary end of the process that called cuInit; a forked child reports nothing. A thread that exit
 * stopped may hold the lock. */
__attribute__((destructor)) static void at_end(void)
{
	struct timespec soon;
	char line[256];
	unsigned n;

	if (!atomic_load(&fake.pid) || atomic_load(&fake.pid) != getpid() || !settings.report)
		return;
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_sec += 2;
	if (pthread_mutex_timedlock(&fake.lock, &soon)) {
		say("leak unknown: a thread was still inside a call\n");
		return;
	}
	n = list_leaks(true);
	for (int i = 0; i < COUNT_N; i++)
		if (atomic_load(&counters[i])) {
			snprintf(line, sizeof line, "count %s %llu\n", counter_names[i],
				 (unsigned long long)atomic_load(&counters[i]));
			say(line);
		}
	for (int i = 0; i < API_N; i++)
		if (atomic_load(&calls[i])) {
			snprintf(line, sizeof line, "call %s %llu\n", api_name((enum api)i),
				 (unsigned long long)atomic_load(&calls[i]));
			say(line);
		}
	snprintf(line, sizeof line, "end %llu violations, %u leaks\n",
		 (unsigned long long)atomic_load(&counters[COUNT_VIOLATIONS]), n);
	say(line);
	pthread_mutex_unlock(&fake.lock);
}
