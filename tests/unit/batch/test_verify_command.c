/* The command line that names all bad samples, as a shell takes it. */
#include "batch/verify-command.h"
#include "support/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

/* Runs the command with a batchctl that prints its arguments in brackets. said: what that and the shell say. */
static void run_command(const char *command, char *said, size_t size)
{
	char script[256];
	FILE *shell;

	snprintf(script, sizeof(script), "batchctl() { printf '[%%s]' \"$@\"; }; %s 2>&1", command);
	shell = popen(script, "r");
	ck_assert_ptr_nonnull(shell);
	said[fread(said, 1, size - 1, shell)] = '\0';
	ck_assert_msg(pclose(shell) == 0, "%s: %s", command, said);
}

static void expect_arguments(const char *dataset, const char *expected)
{
	char command[64], said[200];

	verify_command(dataset, command, sizeof(command));
	run_command(command, said, sizeof(said));
	ck_assert_str_eq(said, expected);
}

START_TEST(test_a_name_is_one_word_whatever_is_in_it)
{
	expect_arguments("imagefolder:/data/train", "[verify][imagefolder:/data/train]");
	expect_arguments("imagefolder:/data//train", "[verify][imagefolder:/data/train]");
	expect_arguments("tar:/a b/{0..9}.tar", "[verify][tar:/a b/{0..9}.tar]");
	expect_arguments("files:/`id` $HOME \\", "[verify][files:/`id` $HOME \\]");
	expect_arguments("files:/a'; echo ran '", "[verify][files:/a'; echo ran ']");
	expect_arguments("files:/'", "[verify][files:/']");
}
END_TEST

/* Wherever the cut is: in front of a quote's four bytes, too. */
START_TEST(test_a_name_that_is_cut_stays_one_word)
{
	static const char name[] = "files:/a'a''a'''a''''a'''''";
	char command[64], said[200], expected[200];

	for (size_t size = 24; size < sizeof(command); size++) {
		verify_command(name, command, size);
		ck_assert_uint_lt(strlen(command), size);
		run_command(command, said, sizeof(said));
		snprintf(expected, sizeof(expected), "[verify][%.*s]", (int)(strlen(said) - strlen("[verify][]")),
			 name);
		ck_assert_str_eq(said, expected);
	}
}
END_TEST

SUITE(verify_command)
{
	Suite *suite = suite_create("verify_command");
	TCase *tc = tcase_create("verify_command");

	tcase_add_test(tc, test_a_name_is_one_word_whatever_is_in_it);
	tcase_add_test(tc, test_a_name_that_is_cut_stays_one_word);
	suite_add_tcase(suite, tc);

	return suite;
}
