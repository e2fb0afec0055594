/* The suites of the C tests. Each tests/unit/ROOM/test_NAME.c or tests/daemon/test_NAME.c ends with its own:
 *
 *	SUITE(name)
 *	{
 *		Suite *s = suite_create("name");
 *		...
 *		return s;
 *	}
 *
 * They share one program, tests/suites, except where a test replaces functions of the daemon, the library or libc with
 * its own (OWN_PROGRAMS in the Makefile). */
#ifndef BATCHD_TESTS_SUITE_H
#define BATCHD_TESTS_SUITE_H

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Check writes the place of every passed assertion to a file, to report after which assertion a test died. That is most
 * of the run time of a test that compares many values, and more so under ThreadSanitizer. Writing each place once is
 * enough. */
static inline void suite_mark_once(const char *file, int line)
{
	static _Thread_local unsigned char marked[8192];

	if (!marked[line % (int)sizeof(marked)]) {
		marked[line % (int)sizeof(marked)] = 1;
		_mark_point(file, line);
	}
}
#define _mark_point(file, line) suite_mark_once(file, line)

/* $BATCHD_TEST: run only the tests that have it in their names; $BATCHD_ONE_TEST: only the one of that name. */
static inline int suite_wants(const TTest *t)
{
	const char *text = getenv("BATCHD_TEST"), *name = getenv("BATCHD_ONE_TEST");

	return (!text || strstr(t->name, text)) && (!name || !strcmp(t->name, name));
}
#define _tcase_add_test(tc, t, ...) (suite_wants(t) ? _tcase_add_test(tc, t, __VA_ARGS__) : (void)0)

/* Whether this is the run that takes its time, `make check-all`: then every case, else the first and last of each kind. */
static inline bool suite_is_whole(void)
{
	return getenv("BATCHD_TEST_WHOLE") != NULL;
}

/* A test that measures time says so: its TCase is suite_timing's, and its assertion ck_assert_in_time. If that
 * assertion fails or the test times out, tests/run/c runs it again, alone, at most twice. No other failure is
 * repeated. */
static inline TCase *suite_timing(void)
{
	TCase *t = tcase_create("timing");

	tcase_set_tags(t, "timing");
	return t;
}
#define ck_assert_in_time(condition, ...) ck_assert_msg(condition, "late: " __VA_ARGS__)

/* Called before main; SUITE does that. */
void suite_register(const char *name, Suite *(*make)(void));

#define SUITE(name) \
	static Suite *make_suite(void); \
	__attribute__((constructor)) static void register_suite(void) \
	{ \
		suite_register(#name, make_suite); \
	} \
	static Suite *make_suite(void)

/* A suite that only reports that it was skipped, and why. */
Suite *suite_skipped(const char *reason);
/* The suite itself; for a build without GPU support, a suite that only reports that. */
Suite *suite_with_gpus(Suite *s);
/* Runs the suite as the environment says (CK_VERBOSITY, CK_FORK, ...) and returns main's exit status. */
int suite_run(Suite *s);
/* The same for the suites of these names, in any order (NULL-terminated; none: all that are linked). */
int suites_run(char **names);
/* Prints the names of the linked suites, a line each; returns 0. */
int suites_list(void);

#endif
