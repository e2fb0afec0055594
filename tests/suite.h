/* The end of every C test program. */
#ifndef BATCHD_TESTS_SUITE_H
#define BATCHD_TESTS_SUITE_H

#include <check.h>

/* Check notes the place of every assertion that holds, in a file, to say after which one a test died: most of the time
 * of a test that compares many values, and more so under ThreadSanitizer. The first time of each place will do. */
static inline void suite_mark_once(const char *file, int line)
{
	static _Thread_local unsigned char marked[8192];

	if (!marked[line % (int)sizeof(marked)]) {
		marked[line % (int)sizeof(marked)] = 1;
		_mark_point(file, line);
	}
}
#define _mark_point(file, line) suite_mark_once(file, line)

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
