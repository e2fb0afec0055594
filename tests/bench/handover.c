/* What handing over a batch costs when it is ready: handover SOCKET PID N
 *
 * The batches are random numbers, 64x3x224x224 float32 (38.5 MB). The trainer sleeps until the window has been refilled, so that nothing but the
 * hand-over is left to do, then takes every batch that is there. Its own CPU time is taken around batchd_next and batchd_release: after the sleep,
 * with a processor that has forgotten everything, and for the batches that follow at once. The daemon's (PID's) is that of its loop thread, which
 * is everything the daemon does apart from filling rows: 64 samples handed to the workers, one batch published, one release. Prints JSON with
 * medians, for the daemon the mean. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../client/batchd.h"

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

/* CPU seconds of the process's first thread so far, which is batchd's loop. */
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

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct costs {
	double *first, *next; /* CPU seconds; after a sleep, and at once after another batch */
	unsigned long n_first, n_next;
};

/* Takes every batch that is ready. */
static void drain(struct batchd_loader *l, struct costs *c, unsigned long n)
{
	struct batchd_batch b = { .size_bytes = sizeof b };

	for (int i = 0; c->n_first + c->n_next < n; i++) {
		double began = seconds(CLOCK_THREAD_CPUTIME_ID), took;
		int r = batchd_try_next(l, &b);

		if (r == BATCHD_AGAIN)
			return;
		if (r != BATCHD_OK || batchd_release(l, b.slot, b.generation) != BATCHD_OK)
			die("next", batchd_error(l));
		took = seconds(CLOCK_THREAD_CPUTIME_ID) - began;
		if (i == 0)
			c->first[c->n_first++] = took;
		else
			c->next[c->n_next++] = took;
	}
}

static double median_us(double *values, unsigned long n)
{
	qsort(values, n, sizeof *values, compare);
	return n ? values[n / 2] * 1e6 : 0;
}

int main(int argc, char **argv)
{
	struct batchd_options o;
	struct batchd_loader *l;
	char err[512];
	unsigned long n = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	struct costs c = { .first = calloc(n + 1, sizeof(double)), .next = calloc(n + 1, sizeof(double)) };
	double loop;

	if (n == 0 || !c.first || !c.next)
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
	usleep(300000);
	loop = loop_cpu(argv[2]);
	while (c.n_first + c.n_next < n) {
		drain(l, &c, n);
		usleep(300000);
	}
	loop = (loop_cpu(argv[2]) - loop) / (double)n;
	batchd_close(l);
	printf("{\"batches\": %lu, \"cpu_us\": %.3f, \"after_sleep_cpu_us\": %.3f, \"loop_cpu_us\": %.3f}\n", n, median_us(c.next, c.n_next),
	       median_us(c.first, c.n_first), loop * 1e6);
	free(c.first);
	free(c.next);
	return 0;
}
