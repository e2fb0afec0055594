/* The end of every C test program. */
#ifndef BATCHD_TESTS_SUITE_H
#define BATCHD_TESTS_SUITE_H

#include <check.h>

/* Runs the suite as the environment says (CK_VERBOSITY, CK_FORK, ...) and gives main's exit status. */
static inline int suite_run(Suite *s)
{
	SRunner *runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}

#endif
