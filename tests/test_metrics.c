/* Metrics over HTTP: requests that come while the daemon stops, an address that is taken. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine.h"
#include "metrics-address.h"
#include "metrics.h"
#include "suite.h"

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
	alarm(10); /* as the default action, it ends the test */
	ck_assert_int_eq(metrics_address_listen(&a), -EADDRINUSE);
	alarm(0);
	close(full[0]);
	close(full[1]);
	close(fd);
	unlink(at->sun_path);
}
END_TEST

int main(void)
{
	TCase *c = tcase_create("metrics");
	Suite *s = suite_create("metrics");
	void *library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		printf("skipped: libmicrohttpd.so.12 is not installed\n");
		return 0;
	}
	tcase_add_test(c, test_a_daemon_without_its_pool_does_not_look_for_it);
	tcase_add_test(c, test_a_socket_that_takes_no_connection_does_not_hold_up_the_daemon);
	suite_add_tcase(s, c);
	return suite_run(s);
}
