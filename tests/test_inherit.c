/* What a daemon inherits from the trainer that starts it. */
#include "cuda/inherit.h"
#include "suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* The daemon's environment after an environment of one entry, or "" if it is empty. */
static const char *left_of(char *entry)
{
	char *from[] = { entry, NULL }, **kept = cuda_daemon_environment(from);
	const char *left;

	ck_assert_ptr_nonnull(kept);
	left = kept[0] ? kept[0] : "";
	ck_assert(!kept[0] || !kept[1]);
	free(kept);
	return left;
}

START_TEST(test_what_concerns_one_trainer_is_left_out)
{
	/* Proves that a trainer's choice of GPUs, its debugging mode and its profiler do not reach the daemon. */
	static char *const own[] = { "CUDA_VISIBLE_DEVICES=1",
				     "CUDA_VISIBLE_DEVICES=",
				     "CUDA_VISIBLE_DEVICES=GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77",
				     "CUDA_LAUNCH_BLOCKING=1",
				     "CUDA_INJECTION64_PATH=/opt/nsys/libToolsInjection64.so",
				     "NVTX_INJECTION64_PATH=/opt/nsys/libToolsInjection64.so" };

	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		ck_assert_str_eq(left_of(own[i]), "");
}
END_TEST

START_TEST(test_a_mig_instance_is_named_to_the_daemon_as_well)
{
	/* Proves that the variable stays where a process needs it to select an instance. */
	static char instance[] = "CUDA_VISIBLE_DEVICES=MIG-c7384736-a75d-5afc-978f-d2f1294409fd";

	ck_assert_str_eq(left_of(instance), instance);
}
END_TEST

START_TEST(test_everything_else_stays_as_it_was)
{
	/* Proves that names with the same beginning stay, and that order and texts are kept. */
	char *from[] = { "PATH=/bin",
			 "CUDA_VISIBLE_DEVICES=0",
			 "CUDA_VISIBLE_DEVICES_BEFORE=0",
			 "CUDA_DEVICE_ORDER=PCI_BUS_ID",
			 "CUDA_LAUNCH_BLOCKING=0",
			 "CUDA_MPS_PIPE_DIRECTORY=/run/mps",
			 "CUDA_VISIBLE_DEVICES",
			 NULL };
	static const char *const want[] = { "PATH=/bin", "CUDA_VISIBLE_DEVICES_BEFORE=0",
					    "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_MPS_PIPE_DIRECTORY=/run/mps",
					    "CUDA_VISIBLE_DEVICES" };
	char **kept = cuda_daemon_environment(from);
	size_t n = 0;

	ck_assert_ptr_nonnull(kept);
	for (; kept[n]; n++)
		ck_assert_str_eq(kept[n], want[n]);
	ck_assert_uint_eq(n, sizeof want / sizeof *want);
	free(kept);
}
END_TEST

START_TEST(test_there_may_be_no_environment)
{
	/* Proves that a process after clearenv() can start a daemon. */
	char **kept = cuda_daemon_environment(NULL);

	ck_assert_ptr_nonnull(kept);
	ck_assert_ptr_null(kept[0]);
	free(kept);
}
END_TEST

SUITE(inherit)
{
	Suite *suite = suite_create("inherit");
	TCase *tc = tcase_create("inherit");

	tcase_add_test(tc, test_what_concerns_one_trainer_is_left_out);
	tcase_add_test(tc, test_a_mig_instance_is_named_to_the_daemon_as_well);
	tcase_add_test(tc, test_everything_else_stays_as_it_was);
	tcase_add_test(tc, test_there_may_be_no_environment);
	suite_add_tcase(suite, tc);
	return suite;
}
