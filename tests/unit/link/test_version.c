/* libbatchd and a daemon of another version. */
#include "address.h"
#include "fake/daemon/fake.h"
#include "support/suite.h"

static void older_daemon(struct fake *f)
{
	Batchd__Wire__Welcome w = BATCHD__WIRE__WELCOME__INIT;

	f->peer = (int)TEMP_FAILURE_RETRY(accept4(f->listener, NULL, NULL, SOCK_CLOEXEC));
	EXPECT(f, HELLO);
	w.version = WIRE_VERSION - 1;
	w.daemon = (char *)"0.0.7";
	SAY(f, WELCOME, &w);
	hear(f);
}

static void newer_daemon(struct fake *f)
{
	f->peer = (int)TEMP_FAILURE_RETRY(accept4(f->listener, NULL, NULL, SOCK_CLOEXEC));
	EXPECT(f, HELLO);
	say_error(f, BATCHD__WIRE__ERROR_CODE__VERSION, "version",
		  "the client speaks protocol 2, this daemon, batchd 9.0, 8 to 9");
	hear(f);
}

START_TEST(test_another_protocol_names_both_versions_and_the_cure)
{
	/* Proves that a client of a named daemon that is older (0) or newer (1) gives up at once with an error that
	 * names both versions of batchd and says what to do. */
	play(_i == 0 ? older_daemon : newer_daemon);
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_VERSION);
	ck_assert_ptr_nonnull(strstr(err, _i == 0 ? "batchd 0.0.7" : "batchd 9.0"));
	ck_assert_ptr_nonnull(strstr(err, "batchd " BATCHD_VERSION));
	ck_assert_ptr_nonnull(strstr(err, "install one version"));
	finish();
}
END_TEST

static char started[256]; /* what the program that stands for a daemon is told */

/* A shell script that stands for the daemon: it writes down its arguments and ends. */
static void stand_in(const char *path, const char *out)
{
	FILE *f = fopen(path, "w");

	ck_assert_ptr_nonnull(f);
	fprintf(f, "#!/bin/sh\necho \"$@\" >%s\n", out);
	fclose(f);
	ck_assert_int_eq(chmod(path, 0755), 0);
}

static void read_started(const char *path)
{
	FILE *f = fopen(path, "r");

	started[0] = '\0';
	if (f) {
		ck_assert_ptr_nonnull(fgets(started, sizeof started, f));
		fclose(f);
	}
}

START_TEST(test_a_daemon_of_another_environment_is_left_alone)
{
	/* Proves that where the user's own daemon speaks another protocol, a client that names no socket starts one
	 * beside it, under a name with the protocol's version, and with autostart off (1) starts none. */
	char runtime[128], path[160], program[160], out[160], want[512];
	struct sockaddr_un address;
	socklen_t n;

	snprintf(runtime, sizeof runtime, "%s/run", d->dir);
	snprintf(path, sizeof path, "%s/batchd", runtime);
	ck_assert_int_eq(mkdir(runtime, 0700), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof path, "%s/batchd/socket", runtime);
	close(d->listener);
	d->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	wire_address(path, &address, &n);
	ck_assert_int_eq(bind(d->listener, (struct sockaddr *)&address, n), 0);
	listen(d->listener, 8);
	snprintf(program, sizeof program, "%s/daemon", d->dir);
	snprintf(out, sizeof out, "%s/started", d->dir);
	stand_in(program, out);
	setenv("XDG_RUNTIME_DIR", runtime, 1);
	setenv("BATCHD_DAEMON", program, 1);
	unsetenv(ADDRESS_VARIABLE);
	options.socket = NULL;
	options.autostart = _i == 0;
	play(older_daemon);
	ck_assert_int_eq(batchd_open(&options, &loader, err, sizeof err), BATCHD_E_VERSION);
	ck_assert_msg(strstr(err, "batchd 0.0.7") != NULL, "%s", err);
	read_started(out);
	snprintf(want, sizeof want, "--socket %s.%d ", path, WIRE_VERSION);
	ck_assert_msg((strstr(started, want) != NULL) == (_i == 0), "'%s' '%s'", started, want);
	finish();
	snprintf(want, sizeof want, "rm -rf %s/run %s %s", d->dir, program, out);
	ck_assert_int_eq(system(want), 0);
}
END_TEST

SUITE(version)
{
	Suite *s = suite_create("version");
	TCase *t = tcase_create("version");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, test_another_protocol_names_both_versions_and_the_cure, 0, 2);
	tcase_add_loop_test(t, test_a_daemon_of_another_environment_is_left_alone, 0, 2);
	suite_add_tcase(s, t);
	return s;
}
