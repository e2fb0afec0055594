/* Writing into batches: private, dropped with the batch, and invisible to every other user of SIGSEGV in the
 * process. */
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

#include "fake/daemon/fake.h"
#include "support/suite.h"

/* ---- writing into batches ---- */

static void write_into_batches(void)
{
	play(one_slot);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	for (unsigned step = 0; step < 4; step++) {
		float *pixels;

		next_is(0, step);
		pixels = batch.data;
		ck_assert(pixels[0] == value(batch.generation, 0));
		if (step != 2) {
			pixels[0] = -1;
			((int64_t *)batch.labels)[0] = 77;
		}
		ck_assert(step == 2 || pixels[0] == -1);
		ck_assert(pixels[ROW_FLOATS] == value(batch.generation, 1));
		release();
	}
	finish();
}

START_TEST(test_writes_stay_private_and_later_batches_are_fresh)
{
	/* The trainer normalises in place: neither the daemon nor the next batch in the same slot sees it. */
	write_into_batches();
}
END_TEST

START_TEST(test_writes_stay_private_when_mapped_writable)
{
	/* The same without the signal handler. */
	struct sigaction before, after;

	sigaction(SIGSEGV, NULL, &before);
	options.writable = 1;
	write_into_batches();
	sigaction(SIGSEGV, NULL, &after);
	ck_assert(before.sa_handler == after.sa_handler);
}
END_TEST

static void *write_from_thread(void *arg)
{
	*(float *)arg = -2;
	return NULL;
}

START_TEST(test_threads_may_write_into_one_batch_at_once)
{
	/* Four threads fault on the same slot. */
	pthread_t threads[4];

	play(one_slot);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, write_from_thread, (float *)batch.data + i);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < 4; i++)
		ck_assert(((float *)batch.data)[i] == -2);
	release();
	finish();
}
END_TEST

static sigjmp_buf escape;
static volatile sig_atomic_t n_handled;
static struct sigaction displaced;

static void on_foreign_fault(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	n_handled++;
	if (info->si_code > 0)
		siglongjmp(escape, 1);
}

/* Like Python's faulthandler: reports, restores the previous handler, raises again. */
static void on_fault_like_python(int sig)
{
	n_handled++;
	sigaction(sig, &displaced, NULL);
	raise(sig);
}

START_TEST(test_foreign_faults_reach_the_handler_that_was_there_before)
{
	/* A fault outside our slots, and a signal that was sent, are not handled. */
	struct sigaction sa = { .sa_sigaction = on_foreign_fault, .sa_flags = SA_SIGINFO };
	char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	sigaction(SIGSEGV, &sa, NULL);
	play(one_slot);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	if (sigsetjmp(escape, 1) == 0)
		*(volatile char *)page = 1;
	ck_assert_int_eq(n_handled, 1);
	kill(getpid(), SIGSEGV);
	ck_assert_int_eq(n_handled, 2);
	*(float *)batch.data = 1; /* ours still works */
	release();
	ck_assert_int_eq(n_handled, 2);
	if (sigsetjmp(escape, 1) == 0)
		*(volatile float *)batch.data = 1; /* no longer lent */
	ck_assert_int_eq(n_handled, 3);
	munmap(page, 4096);
	finish();
}
END_TEST

START_TEST(test_handler_installed_after_ours_that_raises_again_loses_no_write)
{
	/* Python's faulthandler, enabled after the loader was opened: the write succeeds. */
	struct sigaction sa = { .sa_handler = on_fault_like_python, .sa_flags = SA_NODEFER };

	play(one_slot);
	open_loader();
	batchd_start(loader, 0, 0, 0, NULL);
	next_is(0, 0);
	sigaction(SIGSEGV, &sa, &displaced);
	*(volatile float *)batch.data = -3;
	ck_assert(*(float *)batch.data == -3);
	ck_assert_int_eq(n_handled, 1);
	release();
	/* At the next start our handler is installed on top, so this one is not even called. */
	sigaction(SIGSEGV, &sa, &displaced);
	next_is(0, 1);
	batchd_start(loader, 0, 0, 2, NULL);
	*(volatile float *)batch.data = -4;
	ck_assert_int_eq(n_handled, 1);
	release();
	finish();
}
END_TEST

/* Runs a child that opens a loader over d's listener and then does something fatal; returns its wait status. */
static int die_in_child(void (*how)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct sigaction fatal = { .sa_handler = SIG_DFL };

		sigaction(SIGSEGV, &fatal, NULL);
		open_loader();
		batchd_start(loader, 0, 0, 0, NULL);
		next_is(0, 0);
		how();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return status;
}

static void write_to_null(void)
{
	char *volatile nowhere = (char *)(uintptr_t)8;

	*nowhere = 1;
}

static void like_python_then_null(void)
{
	struct sigaction sa = { .sa_handler = on_fault_like_python, .sa_flags = SA_NODEFER };

	sigaction(SIGSEGV, &sa, &displaced);
	batchd_start(loader, 0, 0, 3, NULL);
	write_to_null();
}

static void raise_it(void)
{
	raise(SIGSEGV);
	raise(SIGSEGV);
}

static void three_clients(struct fake *f)
{
	for (unsigned i = 0; i < 3; i++) {
		one_slot(f);
		close(f->peer);
	}
	f->peer = -1;
}

START_TEST(test_real_crash_still_kills_the_process)
{
	/* Without other handlers a process dies of SIGSEGV as it would without us, core dump included. */
	static void (*const how[])(void) = { write_to_null, like_python_then_null, raise_it };

	play(three_clients);
	for (unsigned i = 0; i < 3; i++) {
		int status = die_in_child(how[i]);

		ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "case %u: status 0x%x", i, status);
	}
	pthread_join(d->thread, NULL);
}
END_TEST

SUITE(writes)
{
	Suite *suite = suite_create("writes");
	TCase *all = tcase_create("writes");

	tcase_add_checked_fixture(all, setup, teardown);
	suite_add_tcase(suite, all);
	tcase_add_test(all, test_writes_stay_private_and_later_batches_are_fresh);
	tcase_add_test(all, test_writes_stay_private_when_mapped_writable);
	tcase_add_test(all, test_threads_may_write_into_one_batch_at_once);
	tcase_add_test(all, test_foreign_faults_reach_the_handler_that_was_there_before);
	tcase_add_test(all, test_handler_installed_after_ours_that_raises_again_loses_no_write);
	tcase_add_test(all, test_real_crash_still_kills_the_process);
	return suite;
}
