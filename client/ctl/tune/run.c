/* One measurement of a trial, in processes of its own: `batchctl bench --private`. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl/bench/bench.h"
#include "ctl/ctl.h"
#include "ctl/tune/tune.h"

enum { MOST_ANSWER = 1 << 20, MOST_ARGUMENTS = 32, PATIENCE = 8 };

/* The last line of what a program said. */
void tune_take_last_line(int said, char *problem, size_t problem_size)
{
	off_t size = lseek(said, 0, SEEK_END), from = size > 1000 ? size - 1000 : 0;
	char text[1001], *line;
	ssize_t n = pread(said, text, sizeof text - 1, from);

	text[n > 0 ? n : 0] = '\0';
	while (n > 0 && text[n - 1] == '\n')
		text[--n] = '\0';
	line = strrchr(text, '\n') ? strrchr(text, '\n') + 1 : text;
	ctl_make_printable(line);
	snprintf(problem, problem_size, "%.*s", (int)problem_size - 1, *line ? line : "it failed without a word");
}

/* In the child; does not return. */
static void become(char **argv, const char *config, int out, int said)
{
	dup2(out, STDOUT_FILENO);
	dup2(said, STDERR_FILENO);
	if (config)
		setenv("BATCHD_CONFIG", config, 1);
	execvp(argv[0], argv);
	dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

/* What a child says on its standard output, malloc'ed. */
static char *read_answer(int out)
{
	char *answer = calloc(1, MOST_ANSWER);
	ssize_t got = 1;

	for (size_t n = 0; answer && n + 1 < MOST_ANSWER && got > 0; n += got > 0 ? (size_t)got : 0)
		got = read(out, answer + n, MOST_ANSWER - 1 - n);
	return answer;
}

/* Runs argv, with $BATCHD_CONFIG where config is not NULL. Its standard output, malloc'ed; NULL: it failed, and problem
 * has the last line that it said. */
static char *run_program(char **argv, const char *config, char *problem, size_t problem_size)
{
	int out[2], status = 0, said = memfd_create("said", MFD_CLOEXEC);
	char *answer;
	pid_t pid;

	snprintf(problem, problem_size, "cannot start a process");
	if (said < 0 || pipe2(out, O_CLOEXEC) < 0 || (pid = fork()) < 0)
		return NULL;
	if (pid == 0)
		become(argv, config, out[1], said);
	close(out[1]);
	answer = read_answer(out[0]);
	close(out[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!answer || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		tune_take_last_line(said, problem, problem_size);
		free(answer);
		answer = NULL;
	}
	close(said);
	return answer;
}

/* Images per second of the epochs after the first; of all where there is one only. */
static double rate_of(const json_t *answer, bool later)
{
	const json_t *epochs = json_object_get(answer, "epochs"), *epoch;
	double images = 0, seconds = 0;
	size_t i;

	json_array_foreach (epochs, i, epoch) {
		if (later && i == 0 && json_array_size(epochs) > 1)
			continue;
		images += bench_number(epoch, "images");
		seconds += bench_number(epoch, "seconds");
	}
	return seconds > 0 ? images / seconds : 0;
}

static int note_round(struct tune_trial *trial, double rate, double cpu_ms)
{
	if (rate <= 0) {
		trial->slow = true;
		snprintf(trial->problem, sizeof trial->problem, "no batch came in time; give more --seconds");
		return 1;
	}
	trial->rate[trial->n_rounds++] = rate;
	trial->median = tune_median(trial->rate, trial->n_rounds);
	trial->cpu_ms = cpu_ms;
	return 0;
}

int tune_take_answer(struct tune_trial *trial, char *text)
{
	json_t *answer = text ? json_loads(text, 0, NULL) : NULL;
	const json_t *total = json_object_get(answer, "total"), *rate = json_object_get(answer, "images_per_s");
	const char *dtype = json_string_value(json_object_get(json_object_get(answer, "bench"), "dtype"));
	int r = 1;

	free(text);
	if (trial->dtype && dtype && strcmp(trial->dtype, dtype) != 0)
		snprintf(trial->problem, sizeof trial->problem, "rows are %.20s, as they are stored", dtype);
	else if (rate)
		r = note_round(trial, json_number_value(rate), -1);
	else if (answer) {
		trial->slow = trial->cached && json_array_size(json_object_get(answer, "epochs")) < 2;
		r = note_round(trial, rate_of(answer, trial->cached), bench_number(total, "cpu_ms_per_image"));
	}
	json_decref(answer);
	return r;
}

/* A configuration without caches, or an empty one, so that the user's own does not decide. */
static int write_config(const struct tune_trial *trial, char path[64])
{
	char text[128];
	int fd;

	snprintf(text, sizeof text, "%slinger: 0s\n%s", trial->cached ? "" : "cache:\n  decoded: off\n  jpeg: off\n",
		 trial->on_gpu ? trial->pinned ? "pin_memory: on\n" : "pin_memory: off\n" : "");

	snprintf(path, 64, "/tmp/batchctl-tune-XXXXXX");
	fd = mkstemp(path);
	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0) {
		close(fd);
		unlink(path);
		return -EIO;
	}
	close(fd);
	return 0;
}

static int run_ours(const struct tune *t, struct tune_trial *trial, uint64_t seconds_ns)
{
	char workers[24], slots[24], batch[24], seconds[32], config[64], self[PATH_MAX] = "/proc/self/exe";
	char *argv[MOST_ARGUMENTS], **next = argv;
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

	if (n > 0)
		self[n] = '\0';
	if (write_config(trial, config) < 0) {
		snprintf(trial->problem, sizeof trial->problem, "cannot write a configuration below /tmp");
		return 1;
	}
	snprintf(workers, sizeof workers, "%llu", (unsigned long long)trial->workers);
	snprintf(slots, sizeof slots, "%llu", (unsigned long long)trial->slots);
	snprintf(batch, sizeof batch, "%llu", (unsigned long long)t->batch_size);
	snprintf(seconds, sizeof seconds, "%llums", (unsigned long long)(seconds_ns / 1000000));
#define ADD(text) (*next++ = (char *)(uintptr_t)(text))
	ADD(self), ADD("bench"), ADD("--private"), ADD("--json"), ADD("--quiet"), ADD("--seconds"), ADD(seconds);
	ADD("--batch-size"), ADD(batch);
	if (trial->workers)
		ADD("--workers"), ADD(workers);
	if (trial->slots)
		ADD("--slots"), ADD(slots);
	if (trial->dtype || *t->job.dtype)
		ADD("--dtype"), ADD(trial->dtype ? trial->dtype : t->job.dtype);
	if (*t->job.layout)
		ADD("--layout"), ADD(t->job.layout);
	if (trial->on_gpu)
		ADD("--device"), ADD("cuda");
	if (t->transform)
		ADD("--transform"), ADD(t->transform);
	ADD("--"), ADD(t->dataset), ADD(NULL);
	char *answer = run_program(argv, config, trial->problem, sizeof trial->problem);

	unlink(config);
	return tune_take_answer(trial, answer);
}

int tune_run(const struct tune *t, struct tune_trial *trial)
{
	int r;

	r = run_ours(t, trial, t->seconds_ns);
	if (!trial->slow)
		return r;
	trial->slow = false;
	trial->n_rounds -= r == 0;
	return run_ours(t, trial, PATIENCE * t->seconds_ns);
}
