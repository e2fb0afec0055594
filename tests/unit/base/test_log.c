/* The log's lines, and its records as journald receives them. */
#include "base/log.h"
#include "support/journals.h"
#include "support/suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_CAPTURE_BYTES = 1 << 20 };

/* The test's original stderr, and the file that replaces it. */
static int real_stderr;
static FILE *captured;
static char text[MAX_CAPTURE_BYTES];

static void capture_begin(void)
{
	unsetenv("JOURNAL_STREAM");
	log_set_level(LOG_LEVEL_NOTICE);
	captured = tmpfile();
	real_stderr = dup(STDERR_FILENO);
	ck_assert_int_ge(dup2(fileno(captured), STDERR_FILENO), 0);
}

enum { TIME_BYTES = sizeof "2026-11-22T07:35:11.767+0000 " - 1 };

/* The captured text, without the times at which lines in a file begin. */
static const char *captured_text(void)
{
	static char raw[MAX_CAPTURE_BYTES];
	ssize_t n = pread(fileno(captured), raw, sizeof raw - 1, 0);
	char *out = text;

	ck_assert_int_ge(n, 0);
	raw[n] = '\0';
	for (char *line = raw, *end; *line; line = end) {
		end = strchrnul(line, '\n');
		end += *end == '\n';
		if (end - line > TIME_BYTES && line[4] == '-' && line[10] == 'T')
			line += TIME_BYTES;
		memcpy(out, line, (size_t)(end - line));
		out += end - line;
	}
	*out = '\0';
	return text;
}

static void capture_end(void)
{
	dup2(real_stderr, STDERR_FILENO);
	close(real_stderr);
	fclose(captured);
}

START_TEST(test_a_record_in_a_file_has_its_time_and_elsewhere_it_has_none)
{
	/* Proves that lines have a time where no reader adds one; a pipe's reader has its own clock. */
	char line[256] = "", want[64];
	time_t now = time(NULL);
	struct tm then = { 0 };
	int ends[2];
	ssize_t n;

	log_record(LOG_LEVEL_ERROR, "e", "one");
	ck_assert_int_gt(pread(fileno(captured), line, sizeof line - 1, 0), TIME_BYTES);
	ck_assert_ptr_nonnull(strptime(line, "%Y-%m-%dT%H:%M:%S.", &then));
	then.tm_isdst = -1;
	ck_assert_int_le(labs(mktime(&then) - now), 60);
	localtime_r(&now, &then);
	strftime(want, sizeof want, "%z batchd[error]: e: one\n", &then);
	ck_assert_str_eq(line + sizeof "2026-11-22T07:35:11.767" - 1, want);

	ck_assert_int_eq(pipe(ends), 0);
	dup2(ends[1], STDERR_FILENO);
	log_record(LOG_LEVEL_ERROR, "e", "two");
	n = read(ends[0], line, sizeof line - 1);
	ck_assert_int_gt(n, 0);
	line[n] = '\0';
	ck_assert_str_eq(line, "batchd[error]: e: two\n");
	close(ends[0]);
	close(ends[1]);
}
END_TEST

START_TEST(test_a_field_that_the_text_has_said_is_not_said_again)
{
	/* Proves that a line does not name a file twice. */
	const char *const fields[] = { "SAMPLE", "dog/x.jpg", "JOB", "train", NULL };

	log_record_fields(LOG_LEVEL_ERROR, "bad-sample", fields, "dog/x.jpg: cut short");
	ck_assert_str_eq(captured_text(), "batchd[error]: bad-sample: dog/x.jpg: cut short JOB=train\n");
}
END_TEST

START_TEST(test_record_is_one_line_with_level_event_text_and_fields)
{
	/* Proves the format that operators search with grep. */
	const char *const fields[] = { "JOB", "train", "FILE", "a b.jpg", "EMPTY", "", NULL };

	log_record(LOG_LEVEL_WARNING, "file-replaced", "%d of %s", 3, "many");
	log_record_fields(LOG_LEVEL_ERROR, "loader-failed", fields, "gave up");
	ck_assert_str_eq(captured_text(),
			 "batchd[warning]: file-replaced: 3 of many\n"
			 "batchd[error]: loader-failed: gave up JOB=train FILE=\"a b.jpg\" EMPTY=\"\"\n");
}
END_TEST

START_TEST(test_level_hides_what_is_more_verbose)
{
	/* Proves both sides of the level, and that it can change at run time. */
	log_record(LOG_LEVEL_INFO, "hidden", "x");
	log_record(LOG_LEVEL_NOTICE, "seen", "x");
	log_set_level(LOG_LEVEL_DEBUG);
	log_record(LOG_LEVEL_DEBUG, "seen-too", "x");
	log_set_level(LOG_LEVEL_ERROR);
	log_record(LOG_LEVEL_WARNING, "hidden", "x");
	ck_assert_str_eq(captured_text(), "batchd[notice]: seen: x\nbatchd[debug]: seen-too: x\n");
}
END_TEST

START_TEST(test_levels_are_known_by_name_only)
{
	/* Proves the five names, and that no others are accepted. */
	static const char *const names[] = { "error", "warning", "notice", "info", "debug" };
	enum log_level level = LOG_LEVEL_ERROR;

	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(log_level_parse(names[i], &level), 0);
		ck_assert_int_eq((int)level, LOG_LEVEL_ERROR + i);
	}
	ck_assert_int_eq(log_level_parse("Error", &level), -EINVAL);
	ck_assert_int_eq(log_level_parse("", &level), -EINVAL);
	ck_assert_int_eq(log_level_parse("7", &level), -EINVAL);
	ck_assert_int_eq((int)level, LOG_LEVEL_DEBUG);
}
END_TEST

START_TEST(test_a_hostile_name_cannot_forge_a_line_or_drive_a_terminal)
{
	/* Proves that control characters are escaped in text and fields, that quotes in a value cannot end it, and that
	 * UTF-8 stays. */
	const char *const fields[] = { "FILE", "x\" LEVEL=\"y\\\n\x1b[31m", NULL };

	log_record_fields(LOG_LEVEL_ERROR, "e", fields, "a\nbatchd[error]: forged\x07\x7f \xc3\xa4\tz");
	ck_assert_str_eq(captured_text(), "batchd[error]: e: a\\nbatchd[error]: forged\\x07\\x7f \xc3\xa4\\tz "
					  "FILE=\"x\\\" LEVEL=\\\"y\\\\\\n\\x1b[31m\"\n");
}
END_TEST

START_TEST(test_a_record_too_long_is_cut_and_says_so)
{
	/* Proves that long texts and fields cause no overflow. */
	char *longer = malloc(20001);
	const char *const fields[] = { "NAME", longer, NULL };
	const char *line;

	memset(longer, '\n', 20000); /* doubles when escaped */
	longer[20000] = '\0';
	log_record_fields(LOG_LEVEL_ERROR, "e", fields, "%s", longer);
	line = captured_text();
	ck_assert_uint_le(strlen(line), 8192 + 4);
	ck_assert_str_eq(line + strlen(line) - 4, "...\n");
	ck_assert_ptr_eq(strchr(line, '\n'), line + strlen(line) - 1);
	free(longer);
}
END_TEST

START_TEST(test_logging_leaves_errno_alone)
{
	/* Proves that an error path may log first and use errno afterwards, and that %m means the caller's error. */
	errno = EXDEV;
	log_record(LOG_LEVEL_ERROR, "e", "%m");
	ck_assert_int_eq(errno, EXDEV);

	char want[200];

	snprintf(want, sizeof want, "batchd[error]: e: %s\n", strerror(EXDEV));
	ck_assert_str_eq(captured_text(), want);
}
END_TEST

enum { N_THREADS = 8, N_RECORDS = 200 };

static void *log_many(void *arg)
{
	for (int i = 0; i < N_RECORDS; i++)
		log_record(LOG_LEVEL_ERROR, "e", "%s", (const char *)arg);
	return NULL;
}

START_TEST(test_lines_of_many_threads_stay_whole)
{
	/* Proves that records are written in one piece: every line is one of those that were logged, and none is
	 * missing. */
	static const char *const words[N_THREADS] = { "zero", "one", "two", "three", "four", "five", "six", "seven" };
	pthread_t threads[N_THREADS];
	unsigned counts[N_THREADS] = { 0 };
	char line[64];

	for (int i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, log_many, (void *)words[i]), 0);
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	captured_text();
	for (char *save, *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		int i = 0;

		for (; i < N_THREADS; i++) {
			snprintf(line, sizeof line, "batchd[error]: e: %s", words[i]);
			if (strcmp(l, line) == 0)
				break;
		}
		ck_assert_msg(i < N_THREADS, "a torn line: %s", l);
		counts[i]++;
	}
	for (int i = 0; i < N_THREADS; i++)
		ck_assert_uint_eq(counts[i], N_RECORDS);
}
END_TEST

/* ---- the journal ---- */

static void claim_stderr_is_journal(unsigned long long inode_offset)
{
	struct stat st;
	char stream[64];

	ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
	snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino + inode_offset);
	setenv("JOURNAL_STREAM", stream, 1);
}

START_TEST(test_a_journal_that_is_not_our_stderr_gets_no_records)
{
	/* Proves that a JOURNAL_STREAM inherited from a unit, or an invalid one, does not divert the log of a daemon
	 * whose stderr was redirected. */
	claim_stderr_is_journal(1);
	log_record(LOG_LEVEL_ERROR, "e", "one");
	setenv("JOURNAL_STREAM", "nonsense", 1);
	log_record(LOG_LEVEL_ERROR, "e", "two");
	ck_assert_str_eq(captured_text(), "batchd[error]: e: one\nbatchd[error]: e: two\n");
}
END_TEST

/* The value of FIELD=value\n in a datagram of the native protocol; our values have no line ends, so that is the whole
 * format. */
static const char *field(const char *packet, const char *name, char *value, size_t size)
{
	char start[64];

	snprintf(start, sizeof start, "\n%s=", name);

	const char *p = strstr(packet, start);

	ck_assert_msg(p != NULL, "no %s in:\n%s", name, packet);
	p += strlen(start);
	snprintf(value, size, "%.*s", (int)strcspn(p, "\n"), p);
	return value;
}

static void receive(int fd, char *packet, size_t size)
{
	ssize_t n = recv(fd, packet + 1, size - 2, 0);

	ck_assert_int_gt(n, 0);
	packet[0] = '\n';
	packet[n + 1] = '\0';
}

START_TEST(test_journal_records_have_fields_and_an_id_of_their_event)
{
	/* Proves what journald receives: priority, event, our fields with their prefix, a one-line message, and an id
	 * that depends on the event alone. */
	const char *const fields[] = { "JOB", "train", "FILE", "a\nPRIORITY=0", NULL };
	char packet[8192], value[256], id[64];
	int journal = journal_socket();

	if (journal < 0) {
		dprintf(real_stderr, "skipped: the journal's records need the right to make a mount namespace\n");
		return;
	}
	claim_stderr_is_journal(0);
	log_record_fields(LOG_LEVEL_WARNING, "file-replaced", fields, "two\nlines");
	receive(journal, packet, sizeof packet);
	ck_assert_str_eq(field(packet, "PRIORITY", value, sizeof value), "4");
	ck_assert_str_eq(field(packet, "MESSAGE", value, sizeof value), "two\\nlines");
	ck_assert_str_eq(field(packet, "BATCHD_EVENT", value, sizeof value), "file-replaced");
	ck_assert_str_eq(field(packet, "BATCHD_JOB", value, sizeof value), "train");
	ck_assert_str_eq(field(packet, "BATCHD_FILE", value, sizeof value), "a\\nPRIORITY=0");
	ck_assert_str_eq(field(packet, "SYSLOG_IDENTIFIER", value, sizeof value), "batchd");
	field(packet, "MESSAGE_ID", id, sizeof id);
	ck_assert_uint_eq(strspn(id, "0123456789abcdef"), 32);
	ck_assert_uint_eq(strlen(id), 32);

	log_record(LOG_LEVEL_ERROR, "file-replaced", "again");
	receive(journal, packet, sizeof packet);
	ck_assert_str_eq(field(packet, "MESSAGE_ID", value, sizeof value), id);
	log_record(LOG_LEVEL_ERROR, "loader-failed", "another");
	receive(journal, packet, sizeof packet);
	ck_assert_str_ne(field(packet, "MESSAGE_ID", value, sizeof value), id);
	ck_assert_str_eq(captured_text(), "");
	close(journal);
}
END_TEST

SUITE(log)
{
	Suite *suite = suite_create("log");
	TCase *tc = tcase_create("log");

	tcase_add_checked_fixture(tc, capture_begin, capture_end);
	tcase_add_test(tc, test_record_is_one_line_with_level_event_text_and_fields);
	tcase_add_test(tc, test_a_record_in_a_file_has_its_time_and_elsewhere_it_has_none);
	tcase_add_test(tc, test_a_field_that_the_text_has_said_is_not_said_again);
	tcase_add_test(tc, test_level_hides_what_is_more_verbose);
	tcase_add_test(tc, test_levels_are_known_by_name_only);
	tcase_add_test(tc, test_a_hostile_name_cannot_forge_a_line_or_drive_a_terminal);
	tcase_add_test(tc, test_a_record_too_long_is_cut_and_says_so);
	tcase_add_test(tc, test_logging_leaves_errno_alone);
	tcase_add_test(tc, test_lines_of_many_threads_stay_whole);
	tcase_add_test(tc, test_a_journal_that_is_not_our_stderr_gets_no_records);
	tcase_add_test(tc, test_journal_records_have_fields_and_an_id_of_their_event);
	suite_add_tcase(suite, tc);

	return suite;
}
