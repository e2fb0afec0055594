/* What handing over a batch costs when it is ready: handover SOCKET PID N
 *
 * The batches are random numbers, 64x3x224x224 float32 (38.5 MB). Before each one the trainer sleeps until the window has been refilled, so that
 * nothing but the hand-over is left to do. Its own CPU time is taken around batchd_next and batchd_release; the daemon's (PID's) is that of its loop
 * thread, which is everything the daemon does apart from filling rows: 64 samples handed to the workers, one batch published, one release.
 * Prints JSON with medians, for the daemon the mean. */
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

int main(int argc, char **argv)
{
	struct batchd_options o;
	struct batchd_loader *l;
	struct batchd_batch b = { .size_bytes = sizeof b };
	char err[512];
	unsigned long n = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	double loop = 0, *wall = calloc(n + 1, sizeof *wall), *cpu = calloc(n + 1, sizeof *cpu);

	if (n == 0 || !wall || !cpu)
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
	for (unsigned long i = 0; i < n; i++) {
		double wall_began, cpu_began;

		usleep(150000);
		if (i == 0)
			loop = loop_cpu(argv[2]);
		wall_began = seconds(CLOCK_MONOTONIC);
		cpu_began = seconds(CLOCK_THREAD_CPUTIME_ID);
		if (batchd_next(l, &b, 10000) != BATCHD_OK)
			die("next", batchd_error(l));
		batchd_release(l, b.slot, b.generation);
		cpu[i] = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu_began;
		wall[i] = seconds(CLOCK_MONOTONIC) - wall_began;
	}
	usleep(150000);
	loop = (loop_cpu(argv[2]) - loop) / (double)n;
	batchd_close(l);
	qsort(wall, n, sizeof *wall, compare);
	qsort(cpu, n, sizeof *cpu, compare);
	printf("{\"batches\": %lu, \"wall_us\": %.3f, \"cpu_us\": %.3f, \"loop_cpu_us\": %.3f}\n", n, wall[n / 2] * 1e6, cpu[n / 2] * 1e6, loop * 1e6);
	free(wall);
	free(cpu);
	return 0;
}
