/* See suite.h. Check runs each test in a process of its own, so suites of one program do not see each other's state. */
#include "suite.h"

/* How long a test may take, in seconds: only a test that hangs takes so long, also under a sanitizer on a machine that
 * has much else to do. So a test waits for an answer without a limit of its own. */
__attribute__((constructor)) static void set_limit(void)
{
	setenv("CK_DEFAULT_TIMEOUT", "600", 0);
	setenv("MEMORY_PRESSURE_WATCH", "/dev/null", 0); /* what lingers is not closed for other programs' memory */
}

enum { MAX_SUITES = 256 };

static struct {
	const char *name;
	Suite *(*make)(void);
} suites[MAX_SUITES];
static unsigned n_suites;

void suite_register(const char *name, Suite *(*make)(void))
{
	if (n_suites == MAX_SUITES)
		abort();
	suites[n_suites].name = name;
	suites[n_suites++].make = make;
}

static const char *skip_reason;

START_TEST(test_is_skipped)
{
	/* Stands for a whole suite, so that the suite is counted as skipped. */
	printf("skipped: %s\n", skip_reason);
}
END_TEST

Suite *suite_skipped(const char *reason)
{
	Suite *s = suite_create("skipped");
	TCase *t = tcase_create("skipped");

	skip_reason = reason;
	tcase_add_test(t, test_is_skipped);
	suite_add_tcase(s, t);
	return s;
}

Suite *suite_with_gpus(Suite *s)
{
	const char *build = getenv("BATCHD_BUILD");
	char path[4096];
	int how = 0;

	snprintf(path, sizeof(path), "%s/.cuda", build ? build : "build");
	FILE *f = fopen(path, "r");
	if (f) {
		how = getc(f);
		fclose(f);
	}
	return how == '0' ? suite_skipped("this batchd was built without GPUs (CUDA=0)") : s;
}

int suite_run(Suite *s)
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

static bool wanted(const char *name, char **names)
{
	if (!*names)
		return true;
	for (; *names; names++) {
		if (!strcmp(*names, name))
			return true;
	}
	return false;
}

int suites_run(char **names)
{
	int failed = 0;
	unsigned n_run = 0;

	for (unsigned i = 0; i < n_suites; i++) {
		if (!wanted(suites[i].name, names))
			continue;
		failed |= suite_run(suites[i].make());
		n_run++;
	}
	if (n_run == 0)
		fputs("this program has no suite of that name\n", stderr);
	return failed || n_run == 0;
}

int suites_list(void)
{
	for (unsigned i = 0; i < n_suites; i++)
		puts(suites[i].name);
	return 0;
}
