/* Hostile peers, a given number a second, and a well-behaved peer that measures how long its answers take.
 *
 *     storm SOCKET KIND RATE SECONDS
 *
 * Kinds of connection: hello (sends Hello and is answered), silent (sends nothing), half (sends Hello, then shuts down
 * its side), fds (sends descriptors that the daemon did not ask for), unread (asks for the status 50 times and never
 * reads). Each connection is kept until HELD newer ones exist. The program makes RATE of them a second, or as many as
 * it can. At the end it prints, as JSON, how many it made, how many of the hellos were answered, in how many seconds,
 * and the processor time used.
 *
 * burn: no connections, but RATE percent of a processor: the cost of a storm that does nothing to the daemon.
 *
 * probe: connects RATE times a second, sends Hello and waits for Welcome; prints the median, the 99th percentile and
 * the maximum of that time in microseconds. Exit codes: 0; 1 an error (printed on stderr); 2 usage. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "wire.h"

enum { HELD = 48, ASKED = 50, FDS = 16, MAX_SAMPLES = 1 << 16, PATIENCE_MS = 10000 };

static struct sockaddr_un address;
static socklen_t address_bytes;
static struct wire_arena arena;

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static double cpu_s(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void wait_until(uint64_t when_ns)
{
	uint64_t now = now_ns();
	if (now < when_ns)
		nanosleep(
			&(struct timespec){ .tv_nsec = (long)(when_ns - now < 999999999 ? when_ns - now : 999999999) },
			NULL);
}

/* -1: the daemon accepts no connection at the moment. */
static int dial(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, address_bytes) == 0)
		return fd;
	if (errno == ENOENT || errno == ECONNREFUSED) {
		fprintf(stderr, "storm: connect: %s\n", strerror(errno));
		exit(1);
	}
	if (fd >= 0)
		close(fd);
	return -1;
}

static bool say_hello(int fd)
{
	Batchd__Wire__Hello h = BATCHD__WIRE__HELLO__INIT;
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	h.version = WIRE_VERSION;
	h.program = (char *)"storm";
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_HELLO;
	m.hello = &h;
	int r;
	while ((r = wire_send(fd, &m.base, NULL, 0, 0)) == -EINTR)
		;
	return r == 0;
}

static bool answers(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };
	int n;
	while ((n = poll(&p, 1, PATIENCE_MS)) < 0 && errno == EINTR)
		;
	return n == 1;
}

static bool ask(int fd, const int *fds, unsigned n_fds)
{
	Batchd__Wire__StatusRequest r = BATCHD__WIRE__STATUS_REQUEST__INIT;
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_STATUS;
	m.status = &r;
	return wire_send(fd, &m.base, fds, n_fds, MSG_DONTWAIT) == 0;
}

static bool is_welcome(const unsigned char *bytes, ssize_t n)
{
	const Batchd__Wire__ServerMessage *m;
	return n > 0 && wire_unpack_server(&arena, bytes, (size_t)n, &m, NULL) == 0 &&
	       m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_WELCOME;
}

/* A limit of its user, which the hostile peers are, too: they have sent more files than the daemon closes meanwhile. */
static bool is_over_limit(const unsigned char *bytes, ssize_t n)
{
	const Batchd__Wire__ServerMessage *m;
	return n > 0 && wire_unpack_server(&arena, bytes, (size_t)n, &m, NULL) == 0 &&
	       m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR &&
	       m->error->code == BATCHD__WIRE__ERROR_CODE__LIMIT;
}

static void misbehave(int fd, const char *kind)
{
	if (strcmp(kind, "silent") == 0)
		return;
	say_hello(fd);
	if (strcmp(kind, "half") == 0)
		shutdown(fd, SHUT_WR);
	if (strcmp(kind, "fds") == 0) {
		int fds[FDS];
		for (int i = 0; i < FDS; i++)
			fds[i] = STDIN_FILENO;
		ask(fd, fds, FDS);
	}
	for (int i = 0; strcmp(kind, "unread") == 0 && i < ASKED && ask(fd, NULL, 0); i++)
		;
}

static int storm(const char *kind, double rate, double seconds)
{
	static int held[HELD];
	unsigned char answer[4096];
	uint64_t began = now_ns(), end = began + (uint64_t)(seconds * 1e9), n = 0, answered = 0;
	for (int i = 0; i < HELD; i++)
		held[i] = -1;
	for (uint64_t turn = 0; now_ns() < end; turn++) {
		int *slot = &held[turn % HELD];
		if (*slot >= 0) {
			if (strcmp(kind, "hello") == 0)
				answered += is_welcome(answer, recv(*slot, answer, sizeof(answer), MSG_DONTWAIT));
			close(*slot);
		}
		wait_until(began + (uint64_t)((double)turn / rate * 1e9));
		*slot = dial();
		if (*slot < 0)
			continue;
		misbehave(*slot, kind);
		n++;
	}
	double took = (double)(now_ns() - began) / 1e9;
	printf("{\"connections\": %" PRIu64 ", \"answered\": %" PRIu64 ", \"seconds\": %.3f, \"cpu_s\": %.3f}\n", n,
	       answered, took, cpu_s());
	return 0;
}

/* In slices of 2 ms, because a storm's work is spread over time, too. */
static int burn(double percent, double seconds)
{
	uint64_t began = now_ns(), slice = 2000000;
	for (uint64_t i = 0; i * slice < (uint64_t)(seconds * 1e9); i++) {
		double owed = (double)(now_ns() - began) / 1e9 * percent / 100;
		while (cpu_s() < owed)
			;
		wait_until(began + (i + 1) * slice);
	}
	printf("{\"connections\": 0, \"answered\": 0, \"seconds\": %.3f, \"cpu_s\": %.3f}\n",
	       (double)(now_ns() - began) / 1e9, cpu_s());
	return 0;
}

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

static int probe(double rate, double seconds)
{
	static double us[MAX_SAMPLES];
	unsigned char answer[4096];
	size_t n = 0;
	uint64_t began = now_ns(), end = began + (uint64_t)(seconds * 1e9);
	for (uint64_t turn = 0; (now_ns() < end || n == 0) && n < MAX_SAMPLES; turn++) {
		wait_until(began + (uint64_t)((double)turn / rate * 1e9));
		uint64_t from = now_ns();
		int fd = dial();
		ssize_t got = -1;
		if (fd >= 0) {
			say_hello(
				fd); /* to a peer that has been refused already it fails, and the refusal can be read */
			bool was_answered = answers(fd);
			got = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
			if (was_answered && got < 0 && errno == ECONNRESET) /* closed with the hello unread */
				got = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
		}
		if (is_over_limit(answer, got)) {
			close(fd);
			continue;
		}
		if (!is_welcome(answer, got)) {
			fprintf(stderr, "storm: a well-behaved hello was not answered with Welcome\n");
			return 1;
		}
		us[n++] = (double)(now_ns() - from) / 1e3;
		close(fd);
	}
	qsort(us, n, sizeof(*us), by_size);
	printf("{\"hellos\": %zu, \"median_us\": %.0f, \"p99_us\": %.0f, \"max_us\": %.0f}\n", n, us[n / 2],
	       us[n * 99 / 100], us[n - 1]);
	return 0;
}

int main(int argc, char **argv)
{
	static const char *const kinds[] = { "hello", "silent", "half", "fds", "unread", "burn", "probe" };
	bool known = false;
	for (size_t i = 0; argc == 5 && i < sizeof(kinds) / sizeof(*kinds); i++)
		known |= strcmp(argv[2], kinds[i]) == 0;
	wire_arena_init(&arena);
	double rate = known ? atof(argv[3]) : 0, seconds = known ? atof(argv[4]) : 0;
	if (rate <= 0 || seconds <= 0 || wire_address(argv[1], &address, &address_bytes)) {
		fprintf(stderr, "usage: storm SOCKET hello|silent|half|fds|unread|burn|probe RATE SECONDS\n");
		return 2;
	}
	return strcmp(argv[2], "probe") == 0  ? probe(rate, seconds)
	       : strcmp(argv[2], "burn") == 0 ? burn(rate, seconds)
					      : storm(argv[2], rate, seconds);
}
