/* The log. A record is built in memory and written with one system call, so lines of several threads never mix, and a
 * record that several processes append to one file stays one line.
 *
 * The destination is determined for every record, because that costs less than remembering it: stderr is the journal's
 * when JOURNAL_STREAM names its device and inode (systemd.exec(5)), and a daemon that was given a log file has another
 * stderr by then. Texts contain names of files and programs that clients chose, so control characters are escaped: no
 * client can forge a line or control a terminal. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/journal.h"

enum {
	MAX_TEXT_BYTES = 4096, /* of a message, before escaping */
	MAX_RECORD_BYTES = 8192,
};

/* The only state: every thread reads it, a reload changes it. */
static _Atomic int most_verbose = LOG_LEVEL_NOTICE;

static const struct {
	enum log_level level;
	const char *name;
} levels[] = {
	{ LOG_LEVEL_ERROR, "error" }, { LOG_LEVEL_WARNING, "warning" }, { LOG_LEVEL_NOTICE, "notice" },
	{ LOG_LEVEL_INFO, "info" },   { LOG_LEVEL_DEBUG, "debug" },
};

void log_set_level(enum log_level most)
{
	atomic_store_explicit(&most_verbose, (int)most, memory_order_relaxed);
}

enum log_level log_get_level(void)
{
	return (enum log_level)atomic_load_explicit(&most_verbose, memory_order_relaxed);
}

int log_level_parse(const char *text, enum log_level *out)
{
	for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
		if (strcmp(levels[i].name, text) == 0) {
			*out = levels[i].level;
			return 0;
		}
	return -EINVAL;
}

static const char *level_name(enum log_level level)
{
	for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
		if (levels[i].level == level)
			return levels[i].name;
	return "notice";
}

/* ---- a record under construction: text that is cut off when full, and marked as cut ---- */

struct record {
	char bytes[MAX_RECORD_BYTES + 8]; /* room for "...\n" after a full record */
	size_t n;
	bool full;
};

static void record_char(struct record *r, char c)
{
	if (r->n < MAX_RECORD_BYTES)
		r->bytes[r->n++] = c;
	else
		r->full = true;
}

static void record_raw(struct record *r, const char *text)
{
	while (*text)
		record_char(r, *text++);
}

/* Writes control characters as \n, \t, \x1b; all other bytes, UTF-8 included, unchanged. */
static void record_escaped(struct record *r, const char *text)
{
	static const char hex[] = "0123456789abcdef";

	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '\n') {
			record_raw(r, "\\n");
		} else if (c == '\t') {
			record_raw(r, "\\t");
		} else if (c < 0x20 || c == 0x7f) {
			record_raw(r, "\\x");
			record_char(r, hex[c >> 4]);
			record_char(r, hex[c & 15]);
		} else {
			record_char(r, *text);
		}
	}
}

/* A value with spaces or quotes is quoted, so that KEY=value can be split again. */
static void record_value(struct record *r, const char *text)
{
	if (*text && !strpbrk(text, " \"=")) {
		record_escaped(r, text);
		return;
	}
	record_char(r, '"');
	for (; *text; text++) {
		char one[2] = { *text, '\0' };

		if (*text == '"' || *text == '\\')
			record_char(r, '\\');
		record_escaped(r, one);
	}
	record_char(r, '"');
}

/* A file has no other timestamps; a journal and a container's log add their own, and a terminal's user has a clock. */
static void record_time(struct record *r)
{
	struct timespec now;
	struct tm local;
	struct stat st;
	char text[64];

	if (fstat(STDERR_FILENO, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	if (!localtime_r(&now.tv_sec, &local))
		return;
	strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &local);
	record_raw(r, text);
	snprintf(text, sizeof text, ".%03ld", now.tv_nsec / 1000000);
	record_raw(r, text);
	strftime(text, sizeof text, "%z ", &local);
	record_raw(r, text);
}

static void record_mark_cut(struct record *r)
{
	if (r->full) {
		memcpy(r->bytes + r->n, "...", 3);
		r->n += 3;
	}
}

static void write_line(struct record *r)
{
	record_mark_cut(r);
	r->bytes[r->n++] = '\n';

	const char *p = r->bytes;
	size_t left = r->n;

	while (left) {
		ssize_t k = write(STDERR_FILENO, p, left);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return; /* a full disk or a closed terminal must not stop the daemon, and the failure cannot be
			         * reported */
		p += k;
		left -= (size_t)k;
	}
}

/* ---- destinations ---- */

static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM"); /* "device:inode", decimal */
	unsigned long long dev, ino;
	struct stat st;
	char end;

	return stream && sscanf(stream, "%llu:%llu%c", &dev, &ino, &end) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
	       st.st_dev == dev && st.st_ino == ino;
}

static void send_line(enum log_level level, const char *event, const char *const *fields, const char *text,
		      bool journal)
{
	struct record r = { .n = 0 };

	if (journal) { /* sd-daemon(3)'s prefix for the priority of a plain line */
		record_char(&r, '<');
		record_char(&r, (char)('0' + (int)level));
		record_char(&r, '>');
	} else {
		record_time(&r);
		record_raw(&r, "batchd[");
		record_raw(&r, level_name(level));
		record_raw(&r, "]: ");
	}
	record_raw(&r, event);
	record_raw(&r, ": ");
	record_escaped(&r, text);
	for (; fields && fields[0] && fields[1]; fields += 2) {
		if (*fields[1] && strstr(text, fields[1]))
			continue; /* a person has read it already; the journal has all fields */
		record_char(&r, ' ');
		record_raw(&r, fields[0]);
		record_char(&r, '=');
		record_value(&r, fields[1]);
	}
	write_line(&r);
}

/* MESSAGE_ID is the event's name, hashed, with the marks of a version 8 UUID: permanently stable, without a table. */
static void message_id(const char *event, char id[33])
{
	XXH128_hash_t h = XXH3_128bits_withSeed(event, strlen(event), UINT64_C(0x626174636864) /* "batchd" */);
	uint64_t high = (h.high64 & ~UINT64_C(0xf000)) | UINT64_C(0x8000);
	uint64_t low = (h.low64 & ~(UINT64_C(3) << 62)) | (UINT64_C(2) << 62);

	snprintf(id, 33, "%016llx%016llx", (unsigned long long)high, (unsigned long long)low);
}

/* False: there was no room for it. Values are escaped here, too: a person reads them with journalctl. */
static bool journal_field(struct journal_record *j, const char *prefix, const char *name, const char *value)
{
	struct record r = { .n = 0 };

	record_escaped(&r, value);
	record_mark_cut(&r);
	return journal_add(j, prefix, name, r.bytes, r.n);
}

static int send_journal(enum log_level level, const char *event, const char *const *fields, const char *text)
{
	struct journal_record j = { .n = 0 };
	char id[33], priority[2] = { (char)('0' + (int)level), '\0' };

	message_id(event, id);
	journal_field(&j, "", "PRIORITY", priority);
	journal_field(&j, "", "MESSAGE_ID", id);
	journal_field(&j, "", "SYSLOG_IDENTIFIER", "batchd");
	journal_field(&j, "BATCHD_", "EVENT", event);
	journal_field(&j, "", "MESSAGE", text);
	while (fields && fields[0] && fields[1] && journal_field(&j, "BATCHD_", fields[0], fields[1]))
		fields += 2;
	return journal_send(&j);
}

static void log_va(enum log_level level, const char *event, const char *const *fields, const char *fmt, va_list args)
	__attribute__((format(printf, 4, 0)));
static void log_va(enum log_level level, const char *event, const char *const *fields, const char *fmt, va_list args)
{
	char text[MAX_TEXT_BYTES];
	int saved_errno = errno; /* logging on an error path must not replace the error */
	bool journal = stderr_is_journal();

	errno = saved_errno; /* for %m */
	vsnprintf(text, sizeof text, fmt, args);
	/* A journal that is behind or away still has its stream: stderr. */
	if (!journal || send_journal(level, event, fields, text) < 0)
		send_line(level, event, fields, text, journal);
	errno = saved_errno;
}

void log_record(enum log_level level, const char *event, const char *fmt, ...)
{
	va_list args;

	if (level > log_get_level())
		return;
	va_start(args, fmt);
	log_va(level, event, NULL, fmt, args);
	va_end(args);
}

void log_record_fields(enum log_level level, const char *event, const char *const *fields, const char *fmt, ...)
{
	va_list args;

	if (level > log_get_level())
		return;
	va_start(args, fmt);
	log_va(level, event, fields, fmt, args);
	va_end(args);
}
