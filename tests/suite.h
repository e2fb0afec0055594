/* The end of every C test program. */
#ifndef BATCHD_TESTS_SUITE_H
#define BATCHD_TESTS_SUITE_H

#include <check.h>
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

/* $BATCHD_TEST: run only the tests that have it in their names. */
static inline int suite_wants(const TTest *t)
{
	const char *text = getenv("BATCHD_TEST");

	return !text || strstr(t->name, text) != NULL;
}
#define _tcase_add_test(tc, t, ...) (suite_wants(t) ? _tcase_add_test(tc, t, __VA_ARGS__) : (void)0)

/* How long a test may take, in seconds: only a test that hangs takes so long, also under a sanitizer on a machine that
 * has much else to do. So a test waits for an answer without a limit of its own. */
__attribute__((constructor)) static void suite_limit(void)
{
	setenv("CK_DEFAULT_TIMEOUT", "600", 0);
}

START_TEST(test_needs_gpus)
{
	/* Stands for a whole suite, so that the suite is counted as skipped. */
	puts("skipped: this batchd was built without GPUs (CUDA=0)");
}
END_TEST

/* The suite itself; for a build without GPU support, a suite that only reports that. */
static inline Suite *suite_with_gpus(Suite *s)
{
	char path[4096];
	const char *build = getenv("BATCHD_BUILD");
	TCase *t;
	FILE *f;
	int how = 0;

	snprintf(path, sizeof(path), "%s/.cuda", build ? build : "build");
	f = fopen(path, "r");
	if (f) {
		how = getc(f);
		fclose(f);
	}
	if (how != '0')
		return s;
	s = suite_create("without_gpus");
	t = tcase_create("without_gpus");
	tcase_add_test(t, test_needs_gpus);
	suite_add_tcase(s, t);
	return s;
}

/* Runs the suite as the environment says (CK_VERBOSITY, CK_FORK, ...) and returns main's exit status. */
static inline int suite_run(Suite *s)
{
	SRunner *runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	if (srunner_ntests_run(runner) == 0) {
		fputs("no test was run: none has $BATCHD_TEST in its name\n", stderr);
		failed = 1;
	}
	srunner_free(runner);
	return failed != 0;
}

#endif
