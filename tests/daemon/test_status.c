/* What the daemon's status shows to which user: each user its own jobs, root and the daemon's user everything, and of
 * other users' jobs only that they exist. */
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/packets.h"

enum { ALICE = 64001, BOB = 64002 };

static char text[1 << 20];

/* Becomes another user for the rest of a child process. */
static void become(uid_t uid)
{
	ck_assert_int_eq(setgroups(0, NULL), 0);
	ck_assert_int_eq(setresgid(uid, uid, uid), 0);
	ck_assert_int_eq(setresuid(uid, uid, uid), 0);
}

static void greet_as(int fd, const char *program)
{
	Batchd__Wire__Hello h = BATCHD__WIRE__HELLO__INIT;

	h.version = WIRE_VERSION;
	h.program = (char *)program;
	SEND(fd, HELLO, hello, &h);
	ck_assert_int_eq(receive(fd, NULL)->body_case, BATCHD__WIRE__SERVER_MESSAGE__BODY_WELCOME);
}

/* Alice's trainer, which stays until *leash is closed. */
static pid_t start_trainer(int *leash)
{
	int ready[2], stay[2];
	char byte;

	ck_assert_int_eq(pipe(ready), 0);
	ck_assert_int_eq(pipe(stay), 0);
	pid_t pid = fork();

	if (pid == 0) {
		Batchd__Wire__Open o = usual_open();
		int slab = -1;

		close(stay[1]);
		become(ALICE);
		o.job = (char *)"alices-job";
		o.sources = sources_of("random:length=1000,shape=256x1x1");
		int fd = dial();

		greet_as(fd, "alices-program");
		const Batchd__Wire__ServerMessage *m = answer_to_open(fd, &o, &slab);

		_exit(!m || m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED || write(ready[1], "", 1) != 1 ||
		      read(stay[0], &byte, 1) != 0);
	}
	close(stay[0]);
	close(ready[1]);
	ck_assert_msg(read(ready[0], &byte, 1) == 1, "the trainer could not open");
	close(ready[0]);
	*leash = stay[1];
	return pid;
}

/* The status as this user sees it, in `text`. */
static void look_as(uid_t uid)
{
	size_t n = 0;
	int out[2], status;

	ck_assert_int_eq(pipe(out), 0);
	pid_t pid = fork();

	if (pid == 0) {
		Batchd__Wire__StatusRequest r = BATCHD__WIRE__STATUS_REQUEST__INIT;
		const Batchd__Wire__ServerMessage *m;

		become(uid);
		int fd = dial();

		greet_as(fd, "viewer");
		SEND(fd, STATUS, status, &r);
		do {
			m = receive(fd, NULL);
			if (!m || write(out[1], m->status->json.data, m->status->json.len) < 0) {
				_exit(1);
			}
		} while (m->status->more);
		_exit(0);
	}
	close(out[1]);
	for (ssize_t got; (got = read(out[0], text + n, sizeof(text) - n - 1)) > 0;) {
		n += (size_t)got;
	}
	text[n] = '\0';
	close(out[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

static const char *const secrets[] = { "alices-job", "alices-program", "shape=256x1x1", "\"dataset\"" };
enum { N_SECRETS = sizeof(secrets) / sizeof(secrets[0]) };

START_TEST(test_a_user_is_told_no_names_of_others)
{
	/* Proves that of another user's loader and trainer the status shows numbers, but neither data set, job nor
	 * program, whichever user has asked before; that the rows can still be joined; and that the user itself and
	 * root see everything. */
	int leash, status;

	if (geteuid() != 0) {
		printf("skipped: only root can become two users\n");
		return;
	}
	start_daemon();
	ck_assert_int_eq(chmod(dir, 0755), 0);
	ck_assert_int_eq(chmod(path, 0777), 0);
	pid_t trainer = start_trainer(&leash);

	for (int turn = 0; turn < 2; turn++) {
		look_as(BOB);
		for (int i = 0; i < N_SECRETS; i++) {
			ck_assert_msg(!strstr(text, secrets[i]), "told Bob of %s", secrets[i]);
		}
		ck_assert_ptr_nonnull(strstr(text, "\"uid\":64001"));
		ck_assert_ptr_nonnull(strstr(text, "\"batches\""));
		const char *loader = strstr(text, "\"job\":\"user 64001's job 1\"");

		ck_assert_ptr_nonnull(loader);
		ck_assert_ptr_nonnull(strstr(loader + 1, "\"job\":\"user 64001's job 1\""));
		look_as(ALICE);
		for (int i = 0; i < N_SECRETS; i++) {
			ck_assert_msg(strstr(text, secrets[i]), "did not tell Alice of %s", secrets[i]);
		}
		look_as(0);
		for (int i = 0; i < N_SECRETS; i++) {
			ck_assert_msg(strstr(text, secrets[i]), "did not tell root of %s", secrets[i]);
		}
	}
	close(leash);
	ck_assert_int_eq(waitpid(trainer, &status, 0), trainer);
	ck_assert_int_eq(status, 0);
	stop_daemon();
}
END_TEST

START_TEST(test_more_users_than_reports_are_each_told_their_own)
{
	/* Proves that when more users ask than reports are cached, no user gets another's report. */
	int leash, status;

	if (geteuid() != 0) {
		printf("skipped: only root can become two users\n");
		return;
	}
	start_daemon();
	ck_assert_int_eq(chmod(dir, 0755), 0);
	ck_assert_int_eq(chmod(path, 0777), 0);
	pid_t trainer = start_trainer(&leash);

	for (uid_t uid = BOB; uid < BOB + 20; uid++) {
		look_as(ALICE);
		ck_assert_ptr_nonnull(strstr(text, "alices-job"));
		look_as(uid);
		ck_assert_ptr_null(strstr(text, "alices-job"));
	}
	close(leash);
	ck_assert_int_eq(waitpid(trainer, &status, 0), trainer);
	stop_daemon();
}
END_TEST

SUITE(status)
{
	Suite *s = suite_create("status");
	TCase *t = tcase_create("status");

	tcase_add_test(t, test_a_user_is_told_no_names_of_others);
	tcase_add_test(t, test_more_users_than_reports_are_each_told_their_own);
	suite_add_tcase(s, t);
	return s;
}
