/* Records for systemd's journal: the datagrams, and what journald makes of them. */
#include "base/journal.h"

#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "support/journals.h"
#include "support/suite.h"
#include "base/log.h"

static struct journal_record record;

static bool add(const char *name, const char *value)
{
	return journal_add(&record, "", name, value, strlen(value));
}

static void skip_socket(void)
{
	puts("skipped: the journal's records need the right to make a mount namespace");
}

START_TEST(test_a_field_is_a_line_and_one_with_line_ends_has_a_length)
{
	/* Proves both forms of a field, byte for byte, as the protocol's description has them. */
	static const char want[] = "MESSAGE=one line\nBATCHD_EMPTY=\nTEXT\n\x05\0\0\0\0\0\0\0a\n\0\nb\n";

	ck_assert(journal_add(&record, "", "MESSAGE", "one line", 8));
	ck_assert(journal_add(&record, "BATCHD_", "EMPTY", "", 0));
	ck_assert(journal_add(&record, "", "TEXT", "a\n\0\nb", 5));
	ck_assert_uint_eq(record.n, sizeof want - 1);
	ck_assert_mem_eq(record.bytes, want, sizeof want - 1);
}
END_TEST

START_TEST(test_a_field_that_does_not_fit_leaves_the_record_as_it_was)
{
	/* Proves the bound from both sides, for both forms. */
	char *value = calloc(1, JOURNAL_MAX_BYTES + 1);
	size_t room;

	memset(value, 'x', JOURNAL_MAX_BYTES);
	ck_assert(add("A", "1"));
	room = JOURNAL_MAX_BYTES - record.n - sizeof "LONG=\n" + 1;
	ck_assert(!journal_add(&record, "", "LONG", value, room + 1));
	ck_assert(!journal_add(&record, "", "LONG", value, SIZE_MAX - 4));
	value[0] = '\n';
	ck_assert(!journal_add(&record, "", "LONG", value, room - 7));
	ck_assert_uint_eq(record.n, 4);
	ck_assert(journal_add(&record, "", "LONG", value, room - 8));
	ck_assert_uint_eq(record.n, JOURNAL_MAX_BYTES);
	record.n = 4;
	value[0] = 'x';
	ck_assert(journal_add(&record, "", "LONG", value, room));
	ck_assert_uint_eq(record.n, JOURNAL_MAX_BYTES);
	ck_assert(!add("B", ""));
	free(value);
}
END_TEST

START_TEST(test_a_record_is_one_datagram_however_long)
{
	/* Proves that the largest record arrives in one piece, without a descriptor, and that none is kept. */
	static char packet[JOURNAL_MAX_BYTES + 1];
	int journal = journal_socket(), next = dup(0);
	char *value = calloc(1, JOURNAL_MAX_BYTES);

	if (journal < 0) {
		skip_socket();
		return;
	}
	close(next);
	memset(value, 'x', JOURNAL_MAX_BYTES);
	ck_assert(journal_add(&record, "", "M", value, JOURNAL_MAX_BYTES - 3));
	ck_assert_int_eq(journal_send(&record), 0);
	ck_assert_int_eq(recv(journal, packet, sizeof packet, 0), JOURNAL_MAX_BYTES);
	ck_assert_mem_eq(packet, record.bytes, JOURNAL_MAX_BYTES);
	ck_assert_int_eq(dup(0), next);
	free(value);
}
END_TEST

START_TEST(test_no_journal_and_one_that_is_behind_are_told_at_once)
{
	/* Proves that a journal that does not read its socket holds up no thread, and that the record that it did not
	 * take is written as a line. */
	int journal = journal_socket(), e, n = 0, ends[2];
	char line[256] = "", stream[64];
	struct stat st;

	if (journal < 0) {
		skip_socket();
		return;
	}
	ck_assert(add("MESSAGE", "x"));
	while ((e = journal_send(&record)) == 0)
		n++;
	ck_assert_int_eq(e, -EAGAIN);
	ck_assert_int_gt(n, 0);

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
	ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
	snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_record(LOG_LEVEL_ERROR, "bad-sample", "one");
	ck_assert_int_gt(read(ends[0], line, sizeof line - 1), 0);
	ck_assert_str_eq(line, "<3>bad-sample: one\n");

	close(journal);
	ck_assert_int_eq(journal_send(&record), -ECONNREFUSED);
	unlink(JOURNAL_SOCKET);
	ck_assert_int_eq(journal_send(&record), -ENOENT);
}
END_TEST

static void assert_field(const json_t *entry, const char *name, const char *want)
{
	const char *value = json_string_value(json_object_get(entry, name));

	ck_assert_msg(value && strcmp(value, want) == 0, "%s is %s, not %s", name, value ? value : "missing", want);
}

START_TEST(test_journald_reads_what_is_sent)
{
	/* Proves with systemd's own journal that a record's fields arrive, with and without line ends, and that the log
	 * writes such records. */
	const char *const fields[] = { "JOB", "train", "FILE", "a\nPRIORITY=0", NULL };
	static char json[1 << 16];
	pid_t journald = journald_start();
	char stream[64];
	struct stat st;
	json_t *entry;

	if (journald < 0) {
		puts("skipped: systemd-journald does not run here");
		return;
	}
	ck_assert(add("MESSAGE", "two\nlines"));
	ck_assert(add("BATCHD_TEST", "direct"));
	ck_assert(add("PRIORITY", "5"));
	ck_assert_int_eq(journal_send(&record), 0);
	journald_find("BATCHD_TEST=direct", json, sizeof json);
	entry = json_loads(json, 0, NULL);
	assert_field(entry, "MESSAGE", "two\nlines");
	assert_field(entry, "PRIORITY", "5");
	assert_field(entry, "_TRANSPORT", "journal");
	json_decref(entry);

	ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
	snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_record_fields(LOG_LEVEL_WARNING, "file-replaced", fields, "of many");
	journald_find("BATCHD_EVENT=file-replaced", json, sizeof json);
	entry = json_loads(json, 0, NULL);
	assert_field(entry, "MESSAGE", "of many");
	assert_field(entry, "PRIORITY", "4");
	assert_field(entry, "SYSLOG_IDENTIFIER", "batchd");
	assert_field(entry, "BATCHD_JOB", "train");
	assert_field(entry, "BATCHD_FILE", "a\\nPRIORITY=0");
	assert_field(entry, "_TRANSPORT", "journal");
	json_decref(entry);
	journald_stop(journald);
}
END_TEST

static void empty_record(void)
{
	record.n = 0;
}

SUITE(journal)
{
	Suite *suite = suite_create("journal");
	TCase *tc = tcase_create("journal");

	tcase_add_checked_fixture(tc, empty_record, NULL);
	tcase_add_test(tc, test_a_field_is_a_line_and_one_with_line_ends_has_a_length);
	tcase_add_test(tc, test_a_field_that_does_not_fit_leaves_the_record_as_it_was);
	tcase_add_test(tc, test_a_record_is_one_datagram_however_long);
	tcase_add_test(tc, test_no_journal_and_one_that_is_behind_are_told_at_once);
	tcase_add_test(tc, test_journald_reads_what_is_sent);
	suite_add_tcase(suite, tc);

	return suite;
}
