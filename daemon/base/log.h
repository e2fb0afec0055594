/* The daemon's log: one line per event on stderr, or structured for journald when stderr is its stream
 * (JOURNAL_STREAM).
 *
 * Any thread may log. `event` is a stable lower-case word ("session-closed") that operators filter by; in the journal
 * it is BATCHD_EVENT and has a MESSAGE_ID of its own. At the default level a healthy daemon logs only start and
 * stop. */
#ifndef BATCHD_LOG_H
#define BATCHD_LOG_H

enum log_level { /* syslog's */
		 LOG_LEVEL_ERROR = 3,
		 LOG_LEVEL_WARNING = 4,
		 LOG_LEVEL_NOTICE = 5,
		 LOG_LEVEL_INFO = 6,
		 LOG_LEVEL_DEBUG = 7
};

void log_set_level(enum log_level most);
enum log_level log_get_level(void);
int log_level_parse(const char *text, enum log_level *out); /* "error".."debug"; -EINVAL */

void log_record(enum log_level level, const char *event, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* With fields: NULL-terminated pairs of name and value, names upper case without the BATCHD_ prefix, e.g. {"JOB",
 * "train", "FILE", name, NULL}. */
void log_record_fields(enum log_level level, const char *event, const char *const *fields, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#endif
