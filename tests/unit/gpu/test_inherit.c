/* What a daemon inherits from the trainer that starts it. */
#include "gpu/inherit.h"
#include "support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* The daemon's environment after an environment of one entry, or "" if it is empty. */
static const char *left_of(char *entry)
{
	char *from[] = { entry, NULL }, **kept = inherit_environment(from);
	const char *left;

	ck_assert_ptr_nonnull(kept);
	left = kept[0] ? kept[0] : "";
	ck_assert(!kept[0] || !kept[1]);
	free(kept);
	return left;
}

START_TEST(test_what_concerns_one_trainer_is_left_out)
{
	/* Proves that a trainer's choice of GPUs, its debugging mode, its profiler and its share of a GPU do not reach
	 * the daemon. */
	static char *const own[] = { "CUDA_VISIBLE_DEVICES=1",
				     "CUDA_VISIBLE_DEVICES=",
				     "CUDA_VISIBLE_DEVICES=GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77",
				     "CUDA_LAUNCH_BLOCKING=1",
				     "CUDA_INJECTION64_PATH=/opt/nsys/libToolsInjection64.so",
				     "NVTX_INJECTION64_PATH=/opt/nsys/libToolsInjection64.so",
				     "LD_PRELOAD=/opt/ncu/libTreeLauncherTargetInjection.so",
				     "LD_AUDIT=/opt/tool.so",
				     "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50",
				     "CUDA_MPS_CLIENT_PRIORITY=1",
				     "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING=1",
				     "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G",
				     "CUDA_COREDUMP_FILE=/tmp/core",
				     "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1",
				     "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION=1",
				     "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP=1",
				     "CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1" };

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

START_TEST(test_what_the_daemon_reads_stays_as_it_was)
{
	/* Proves that whole names and beginnings are known, and that order and texts are kept. */
	char *from[] = { "PATH=/bin",
			 "CUDA_VISIBLE_DEVICES=0",
			 "CUDA_VISIBLE_DEVICES_BEFORE=0",
			 "CUDA_DEVICE_ORDER=PCI_BUS_ID",
			 "CUDA_LAUNCH_BLOCKING=0",
			 "HF_TOKEN=hf_1",
			 "CUDA_MPS_PIPE_DIRECTORY=/run/mps",
			 "CUDA_VISIBLE_DEVICES",
			 "LC_ALL=C",
			 "LD_LIBRARY_PATH=",
			 NULL };
	static const char *const want[] = { "PATH=/bin",
					    "CUDA_VISIBLE_DEVICES_BEFORE=0",
					    "CUDA_DEVICE_ORDER=PCI_BUS_ID",
					    "CUDA_MPS_PIPE_DIRECTORY=/run/mps",
					    "LC_ALL=C",
					    "LD_LIBRARY_PATH=" };
	char **kept = inherit_environment(from);
	size_t n = 0;

	ck_assert_ptr_nonnull(kept);
	for (; kept[n]; n++)
		ck_assert_str_eq(kept[n], want[n]);
	ck_assert_uint_eq(n, sizeof want / sizeof *want);
	free(kept);
}
END_TEST

START_TEST(test_what_a_script_was_given_stays_with_it)
{
	/* Proves that keys, tokens and all else that the daemon does not read are left out, as are names of which only
	 * the beginning is known, and a service's own. */
	static char *const others[] = { "AWS_SECRET_ACCESS_KEY=abc",
					"HF_TOKEN=hf_1",
					"WANDB_API_KEY=1",
					"https_proxy=http://me:pw@proxy",
					"PATHS=/bin",
					"HOMEPAGE=x",
					"XDG_SESSION_ID=1",
					"NOTIFY_SOCKET=/run/x",
					"LISTEN_FDS=1",
					"PYTHONPATH=/home",
					"LANGUAGE=de",
					"=" };

	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		ck_assert_str_eq(left_of(others[i]), "");
}
END_TEST

START_TEST(test_there_may_be_no_environment)
{
	/* Proves that a process after clearenv() can start a daemon. */
	char **kept = inherit_environment(NULL);

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
	tcase_add_test(tc, test_what_the_daemon_reads_stays_as_it_was);
	tcase_add_test(tc, test_what_a_script_was_given_stays_with_it);
	tcase_add_test(tc, test_there_may_be_no_environment);
	suite_add_tcase(suite, tc);
	return suite;
}
