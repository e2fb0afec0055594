/* Metrics over HTTP: requests that come while the daemon stops, an address that is taken. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/engine.h"
#include "config/metrics-address.h"
#include "watch/metrics-text.h"
#include "watch/metrics.h"
#include "support/suite.h"

static char answer[1024];
static atomic_bool done;

static void *request(void *arg)
{
	static const char get[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	size_t n = 0;
	ssize_t got = 1;

	strcpy(at.sun_path, arg);
	if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0 &&
	    write(fd, get, sizeof get - 1) == sizeof get - 1) {
		for (; got > 0 && n < sizeof answer - 1; n += got > 0 ? (size_t)got : 0)
			got = read(fd, answer + n, sizeof answer - 1 - n);
	}
	close(fd);
	atomic_store(&done, true);
	return NULL;
}

/* Keeps the loop alive, as the handles of the GPUs do. */
static void on_idle(uv_idle_t *idle)
{
	(void)idle;
	usleep(1000);
}

static void close_handle(uv_handle_t *h, void *arg)
{
	(void)arg;
	if (!uv_is_closing(h))
		uv_close(h, NULL);
}

START_TEST(test_a_daemon_without_its_pool_does_not_look_for_it)
{
	/* Proves that a request is answered, with 503, when the pool has ended already and the GPUs' memory is still
	 * being freed. */
	struct engine e = { .stopping = true };
	char address[64];
	struct metrics *m;
	uv_idle_t alive;
	pthread_t thread;

	snprintf(address, sizeof address, "unix:/tmp/test_metrics.%d", (int)getpid());
	uv_loop_init(&e.loop);
	uv_idle_init(&e.loop, &alive);
	uv_idle_start(&alive, on_idle);
	m = metrics_start(&e, address);
	ck_assert_ptr_nonnull(m);
	ck_assert_int_eq(pthread_create(&thread, NULL, request, address + 5), 0);
	while (!atomic_load(&done))
		uv_run(&e.loop, UV_RUN_NOWAIT);
	pthread_join(thread, NULL);
	metrics_stop(m);
	uv_walk(&e.loop, close_handle, NULL);
	uv_run(&e.loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&e.loop), 0);
	metrics_destroy(m);
	ck_assert_msg(strncmp(answer, "HTTP/1.1 503", 12) == 0, "%s", answer);
}
END_TEST

START_TEST(test_a_socket_that_takes_no_connection_does_not_hold_up_the_daemon)
{
	/* Proves that a daemon that starts does not wait for another process at its address. */
	struct metrics_address a = { .n_bytes = sizeof(struct sockaddr_un) };
	struct sockaddr_un *at = (struct sockaddr_un *)&a.at;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), full[2];

	at->sun_family = AF_UNIX;
	snprintf(at->sun_path, sizeof at->sun_path, "/tmp/test_metrics.%d", (int)getpid());
	ck_assert_int_eq(bind(fd, (const struct sockaddr *)at, sizeof *at), 0);
	ck_assert_int_eq(listen(fd, 0), 0);
	for (unsigned i = 0; i < 2; i++) {
		full[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		(void)!connect(full[i], (const struct sockaddr *)at, sizeof *at);
	}
	ck_assert_int_eq(metrics_address_listen(&a, NULL), -EADDRINUSE);
	close(full[0]);
	close(full[1]);
	close(fd);
	unlink(at->sun_path);
}
END_TEST

START_TEST(test_only_the_daemons_own_socket_is_removed)
{
	/* Another process has put its own socket in the place of the daemon's, which must stay. */
	char text[64], path[48];
	struct metrics_address a;
	const char *why;
	snprintf(path, sizeof path, "/tmp/batchd-test-metrics-%d", (int)getpid());
	snprintf(text, sizeof text, "unix:%s", path);
	ck_assert_int_eq(metrics_address_parse(text, &a, &why), 0);
	metrics_address_remove(&a);
	int fd = metrics_address_listen(&a, NULL), other;
	ck_assert_int_ge(fd, 0);
	unlink(path);
	struct metrics_address b = { 0 };
	ck_assert_int_eq(metrics_address_parse(text, &b, &why), 0);
	other = metrics_address_listen(&b, NULL);
	ck_assert_int_ge(other, 0);
	metrics_address_remove(&a);
	ck_assert_int_eq(access(path, F_OK), 0);
	metrics_address_remove(&b);
	ck_assert_int_ne(access(path, F_OK), 0);
	close(fd);
	close(other);
}
END_TEST

START_TEST(test_jobs_of_one_name_are_told_apart_by_their_users)
{
	/* Root sees the jobs of all users. No name that a user gives a job hides another user's series, or changes it. */
	static const char status[] =
		"{\"loaders\": [{\"job\": \"run\", \"uid\": 1000, \"dataset\": \"a\", \"batches_delivered\": 3},"
		" {\"job\": \"run\", \"uid\": 1001, \"dataset\": \"a\", \"batches_delivered\": 4},"
		" {\"job\": \"run of user 1001\", \"uid\": 1000, \"dataset\": \"a\", \"batches_delivered\": 5}],"
		" \"sessions\": [{\"job\": \"run\", \"uid\": 1000, \"rank\": 0, \"clock\": {\"seconds\": {\"busy\": 7}}},"
		" {\"job\": \"run\", \"uid\": 1001, \"rank\": 0, \"clock\": {\"seconds\": {\"busy\": 8}}},"
		" {\"job\": \"run\", \"uid\": 1001, \"rank\": 0, \"clock\": {\"seconds\": {\"busy\": 9}}}]}";
	static const char *const lines[] = {
		"batchd_batches_total{dataset=\"a\",run=\"run\",uid=\"1000\"} 3\n",
		"batchd_batches_total{dataset=\"a\",run=\"run\",uid=\"1001\"} 4\n",
		"batchd_batches_total{dataset=\"a\",run=\"run of user 1001\",uid=\"1000\"} 5\n",
		"batchd_stream_seconds_total{dataset=\"a\",run=\"run\",uid=\"1000\",rank=\"0\",state=\"busy\"} 7\n",
		"batchd_stream_seconds_total{dataset=\"a\",run=\"run\",uid=\"1001\",rank=\"0\",state=\"busy\"} 8\n",
	};
	size_t n;
	char *text = metrics_text(status, &n);
	ck_assert_ptr_nonnull(text);
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		ck_assert_msg(strstr(text, lines[i]) != NULL, "%s is missing in\n%s", lines[i], text);
	/* A trainer and the one that it replaces: two series of the same labels would spoil the whole answer. */
	ck_assert_ptr_null(strstr(text, "state=\"busy\"} 9"));
	free(text);
}
END_TEST

SUITE(metrics)
{
	TCase *c = tcase_create("metrics");
	Suite *s = suite_create("metrics");
	void *library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return suite_skipped("libmicrohttpd.so.12 is not installed");
	tcase_add_test(c, test_a_daemon_without_its_pool_does_not_look_for_it);
	tcase_add_test(c, test_only_the_daemons_own_socket_is_removed);
	tcase_add_test(c, test_jobs_of_one_name_are_told_apart_by_their_users);
	tcase_add_test(c, test_a_socket_that_takes_no_connection_does_not_hold_up_the_daemon);
	suite_add_tcase(s, c);
	return s;
}
