/* The cost of handing over a batch that is ready: handover SOCKET PID N
 *
 * The batches are random numbers, 64x3x224x224 float32 (38.5 MB). The program takes and releases N batches in each of
 * two ways: in bursts, where it sleeps until the window is refilled and then takes everything; and one by one, with a
 * sleep after each, as a trainer does that is slower than the daemon. Nothing but the hand-over is left to do.
 *
 * The trainer's CPU time and system calls are those of batchd_try_next and batchd_release. In bursts the first batch is
 * counted apart from those that follow at once, because the processor's caches are cold for the first. The daemon's
 * (PID's) CPU time is that of its loop thread, which does everything except filling rows; the wake-ups of that thread
 * and of its workers are counted, too. A worker that wakes the next one pays for that itself; the cost of a wake-up
 * here is measured between two threads of this program. Prints JSON: medians of the trainer, means of the daemon. */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../../client/batchd.h"

enum { BURST_SLEEP_US = 300000, STEADY_SLEEP_US = 60000 };

/* ---- system calls: libbatchd is linked statically, so that its calls arrive here ---- */

static unsigned long n_calls;

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	n_calls++;
	return syscall(SYS_sendmsg, fd, m, flags);
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	n_calls++;
	return syscall(SYS_recvmsg, fd, m, flags);
}

/* ---- clocks and counts ---- */

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const char *what, const char *why)
{
	fprintf(stderr, "handover: %s: %s\n", what, why);
	exit(1);
}

/* CPU seconds of the process's first thread so far, which runs batchd's loop. */
static double loop_cpu(const char *pid)
{
	char path[64];
	uint64_t ns = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%s/task/%s/schedstat", pid, pid);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%" SCNu64, &ns) != 1)
		die(path, "cannot be read");
	fclose(f);
	return (double)ns / 1e9;
}

/* How often that thread has gone to sleep. */
static double loop_sleeps(const char *pid)
{
	char path[64], line[128];
	unsigned long n = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%s/task/%s/status", pid, pid);
	f = fopen(path, "r");
	if (!f)
		die(path, "cannot be read");
	while (fgets(line, sizeof line, f))
		sscanf(line, "voluntary_ctxt_switches: %lu", &n);
	fclose(f);
	return (double)n;
}

/* How often a worker has been woken. */
static double worker_wakes(const char *socket)
{
	char *json, *at, err[256];
	double n;

	if (batchd_status(socket, &json, err, sizeof err) < 0)
		die("status", err);
	at = strstr(json, "\"wakes\":");
	n = at ? strtod(at + strlen("\"wakes\":"), NULL) : 0;
	free(json);
	return n;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median_us(double *values, unsigned long n)
{
	qsort(values, n, sizeof *values, compare);
	return n ? values[n / 2] * 1e6 : 0;
}

static double mean_us(const double *values, unsigned long n)
{
	double sum = 0;

	for (unsigned long i = 0; i < n; i++)
		sum += values[i];
	return n ? sum / (double)n * 1e6 : 0;
}

/* ---- the cost of waking a thread, for the thread that wakes it ---- */

static void *sleep_again_and_again(void *arg)
{
	uint64_t n;

	while (read(*(int *)arg, &n, sizeof n) == sizeof n && n < 1000)
		;
	return NULL;
}

static double wake_us(void)
{
	double took[50];
	uint64_t one = 1, end = 1000;
	pthread_t thread;
	int fd = eventfd(0, EFD_CLOEXEC);

	pthread_create(&thread, NULL, sleep_again_and_again, &fd);
	for (int i = 0; i < 50; i++) {
		usleep(5000);
		double began = seconds(CLOCK_THREAD_CPUTIME_ID);
		if (write(fd, &one, sizeof one) != sizeof one)
			die("eventfd", "cannot be written");
		took[i] = seconds(CLOCK_THREAD_CPUTIME_ID) - began;
	}
	if (write(fd, &end, sizeof end) != sizeof end)
		die("eventfd", "cannot be written");
	pthread_join(thread, NULL);
	close(fd);
	return median_us(took, 50);
}

/* ---- the two ways ---- */

struct costs {
	double *first, *next; /* CPU seconds; after a sleep, and directly after another batch */
	unsigned long n_first, n_next, n_calls_first, n_calls_next;
	double loop_us, loop_wakes, worker_wakes; /* of the daemon, per batch */
};

/* Takes every batch that is ready, up to a limit. */
static unsigned long drain(struct batchd_loader *l, struct costs *c, unsigned long most)
{
	struct batchd_batch b = { .size_bytes = sizeof b };
	unsigned long i;

	for (i = 0; i < most; i++) {
		double began = seconds(CLOCK_THREAD_CPUTIME_ID), took;
		unsigned long calls = n_calls;
		int r = batchd_try_next(l, &b);

		if (r == BATCHD_AGAIN)
			break;
		if (r != BATCHD_OK || batchd_release(l, b.slot, b.generation) != BATCHD_OK)
			die("next", batchd_error(l));
		took = seconds(CLOCK_THREAD_CPUTIME_ID) - began;
		calls = n_calls - calls;
		if (i == 0) {
			c->first[c->n_first++] = took;
			c->n_calls_first += calls;
		} else {
			c->next[c->n_next++] = took;
			c->n_calls_next += calls;
		}
	}
	return i;
}

static void measure(struct batchd_loader *l, char **argv, unsigned long n, bool one_by_one, struct costs *c)
{
	unsigned long done = 0;
	double wakes, sleeps, cpu;

	c->first = calloc(n, sizeof *c->first);
	c->next = calloc(n, sizeof *c->next);
	if (!c->first || !c->next)
		die("memory", "none left");
	wakes = worker_wakes(argv[1]);
	usleep(BURST_SLEEP_US);
	sleeps = loop_sleeps(argv[2]);
	cpu = loop_cpu(argv[2]);
	while (done < n) {
		done += drain(l, c, one_by_one || n - done == 1 ? 1 : n - done);
		usleep(one_by_one ? STEADY_SLEEP_US : BURST_SLEEP_US);
	}
	c->loop_us = (loop_cpu(argv[2]) - cpu) / (double)n * 1e6;
	c->loop_wakes = (loop_sleeps(argv[2]) - sleeps) / (double)n;
	c->worker_wakes = (worker_wakes(argv[1]) - wakes) / (double)n;
}

int main(int argc, char **argv)
{
	struct batchd_options o;
	struct batchd_loader *l;
	char err[512];
	unsigned long n = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	struct costs burst = { 0 }, steady = { 0 };

	if (n == 0)
		die("usage", "handover SOCKET PID N");
	batchd_options_init(&o);
	o.socket = argv[1];
	o.dataset = "random:length=1000000,shape=3x224x224,dtype=float32";
	o.job = "handover";
	o.batch_size = 64;
	o.autostart = 0;
	if (batchd_open(&o, &l, err, sizeof err) < 0)
		die("open", err);
	if (batchd_start(l, 0, 0, 0, NULL) < 0)
		die("start", batchd_error(l));
	usleep(BURST_SLEEP_US);
	measure(l, argv, n, false, &burst);
	measure(l, argv, n, true, &steady);
	batchd_close(l);
	printf("{\"batches\": %lu, \"wake_us\": %.3f, \"cpu_us\": %.3f, \"mean_cpu_us\": %.3f, \"after_sleep_cpu_us\": %.3f, \"calls\": %.3f, "
	       "\"after_sleep_calls\": %.3f, \"loop_cpu_us\": %.3f, \"loop_wakes\": %.3f, \"worker_wakes\": %.3f, ",
	       n, wake_us(), median_us(burst.next, burst.n_next), mean_us(burst.next, burst.n_next),
	       median_us(burst.first, burst.n_first),
	       (double)burst.n_calls_next / (double)(burst.n_next ? burst.n_next : 1),
	       (double)burst.n_calls_first / (double)burst.n_first, burst.loop_us, burst.loop_wakes,
	       burst.worker_wakes);
	printf("\"steady_cpu_us\": %.3f, \"steady_mean_cpu_us\": %.3f, \"steady_calls\": %.3f, \"steady_loop_cpu_us\": %.3f, \"steady_loop_wakes\": %.3f, "
	       "\"steady_worker_wakes\": %.3f}\n",
	       median_us(steady.first, steady.n_first), mean_us(steady.first, steady.n_first),
	       (double)steady.n_calls_first / (double)steady.n_first, steady.loop_us, steady.loop_wakes,
	       steady.worker_wakes);
	free(burst.first);
	free(burst.next);
	free(steady.first);
	free(steady.next);
	return 0;
}
