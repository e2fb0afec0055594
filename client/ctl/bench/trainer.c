/* Processes, not threads: a trainer's own mapping, page tables and CPU time are part of the measurement.
 *
 * Each is batchctl itself again, spawned with a clean set of descriptors: if a trainer inherited another's pipes, the
 * end of file that tells that trainer to leave would never come. */
#include "ctl/bench/trainer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "batchd.h"
#include "ctl/ctl.h"

enum { POLL_MS = 100, LEAVE_MS = 5000 };

extern char **environ;

static int trainer_spawn(struct trainer *t, const char *config, int in, int out)
{
	char program[] = "batchctl", subcommand[] = "bench-trainer";
	char *copy = strdup(config);
	char *argv[] = { program, subcommand, copy, NULL };
	posix_spawn_file_actions_t actions;
	int r;

	if (!copy)
		return -ENOMEM;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	r = posix_spawn(&t->pid, "/proc/self/exe", &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	free(copy);
	if (r)
		t->pid = 0;
	return -r;
}

int trainer_start(struct trainer *t, const json_t *config)
{
	char *text = json_dumps(config, JSON_COMPACT);
	int in[2] = { -1, -1 }, out[2] = { -1, -1 };
	int r = -ENOMEM;

	*t = (struct trainer){ .to = -1, .from = -1 };
	if (text)
		r = pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 ? 0 : -errno;
	if (r == 0)
		r = trainer_spawn(t, text, in[0], out[1]);
	if (r == 0) {
		t->to = in[1];
		t->from = out[0];
		in[1] = out[0] = -1;
	}
	for (int i = 0; i < 2; i++) {
		if (in[i] >= 0)
			close(in[i]);
		if (out[i] >= 0)
			close(out[i]);
	}
	free(text);
	return r;
}

void trainers_run(struct trainer *list, unsigned n, uint64_t epoch, uint64_t until_ns)
{
	for (unsigned i = 0; i < n; i++) {
		json_decref(list[i].answer);
		list[i].answer = NULL;
		list[i].images = 0;
	}
	for (unsigned i = 0; i < n; i++) /* a dead trainer is noticed when its answer is awaited */
		dprintf(list[i].to, "{\"epoch\": %llu, \"until_ns\": %llu}\n", (unsigned long long)epoch,
			(unsigned long long)until_ns);
}

static void on_event(struct trainer *t, unsigned i, json_t *event, struct progress *progress)
{
	const char *kind = json_string_value(json_object_get(event, "event"));

	if (kind && !strcmp(kind, "progress")) {
		t->images = (uint64_t)json_integer_value(json_object_get(event, "images"));
	} else if (kind && !strcmp(kind, "opening")) {
		progress->total = (uint64_t)json_integer_value(json_object_get(event, "total"));
		progress_update(progress, (uint64_t)json_integer_value(json_object_get(event, "done")));
	} else if (kind && !strcmp(kind, "error")) {
		progress_end(progress);
		t->failed = (int)json_integer_value(json_object_get(event, "code"));
		ctl_complain("bench", "trainer %u: %s", i, json_string_value(json_object_get(event, "text")));
	} else {
		t->answer = json_incref(event);
	}
}

static void take_lines(struct trainer *t, unsigned i, struct progress *progress)
{
	char *start = t->buffer, *end;

	while ((end = memchr(start, '\n', t->n_bytes - (size_t)(start - t->buffer)))) {
		json_t *event = json_loadb(start, (size_t)(end - start), 0, NULL);

		if (event)
			on_event(t, i, event, progress);
		json_decref(event);
		start = end + 1;
	}
	t->n_bytes -= (size_t)(start - t->buffer);
	memmove(t->buffer, start, t->n_bytes);
}

static void trainer_receive(struct trainer *t, unsigned i, struct progress *progress)
{
	ssize_t n = -1;

	if (t->capacity - t->n_bytes < 4096) {
		char *grown = realloc(t->buffer, 2 * t->capacity + 8192);

		if (grown) {
			t->buffer = grown;
			t->capacity = 2 * t->capacity + 8192;
		}
	}
	if (t->n_bytes < t->capacity)
		n = read(t->from, t->buffer + t->n_bytes, t->capacity - t->n_bytes);
	if (n > 0) {
		t->n_bytes += (size_t)n;
		take_lines(t, i, progress);
		return;
	}
	if (n < 0 && errno == EINTR)
		return; /* at the next call */
	close(t->from);
	t->from = -1;
	if (!t->failed && !t->answer) {
		progress_end(progress);
		ctl_complain("bench", "trainer %u ended without an answer", i);
		t->failed = BATCHD_E_LOST;
	}
}

/* 0: all have answered; 1: not yet; or the code of a trainer that failed. */
static int trainer_look(const struct trainer *list, unsigned n)
{
	int r = 0;

	for (unsigned i = 0; i < n; i++) {
		if (list[i].failed)
			return list[i].failed;
		if (!list[i].answer)
			r = 1;
	}
	return r;
}

int trainers_wait(struct trainer *list, unsigned n, struct progress *progress, const atomic_bool *interrupted)
{
	struct pollfd *fds = calloc(n, sizeof *fds);
	int r = fds ? trainer_look(list, n) : BATCHD_E_NOMEM;

	while (r == 1 && !atomic_load(interrupted)) {
		uint64_t images = 0;

		for (unsigned i = 0; i < n; i++)
			fds[i] = (struct pollfd){ .fd = list[i].from, .events = POLLIN };
		poll(fds, n, POLL_MS); /* EINTR after a signal is a round without events */
		for (unsigned i = 0; i < n; i++) {
			if (fds[i].revents)
				trainer_receive(&list[i], i, progress);
			images += list[i].images;
		}
		if (images)
			progress_update(progress, images);
		r = trainer_look(list, n);
	}
	free(fds);
	return r;
}

static bool trainer_has_ended(struct trainer *t)
{
	if (t->pid && waitpid(t->pid, NULL, WNOHANG) != 0)
		t->pid = 0;
	return !t->pid;
}

void trainers_stop(struct trainer *list, unsigned n, bool kill_them)
{
	for (unsigned i = 0; i < n; i++) {
		if (list[i].pid && list[i].to >= 0)
			close(list[i].to);
		if (list[i].pid && kill_them)
			kill(list[i].pid, SIGTERM);
	}
	for (unsigned i = 0; i < n; i++) {
		struct trainer *t = &list[i];

		for (int ms = 0; !trainer_has_ended(t); ms += 5) {
			if (ms == LEAVE_MS)
				kill(t->pid, SIGKILL);
			nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
		}
		if (t->from > 0)
			close(t->from);
		free(t->buffer);
		json_decref(t->answer);
		*t = (struct trainer){ .to = -1, .from = -1 };
	}
}
