/* A record for systemd's journal, sent by its native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL), so that it works
 * without libsystemd. Any thread. */
#ifndef BATCHD_JOURNAL_H
#define BATCHD_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>

#define JOURNAL_SOCKET "/run/systemd/journal/socket"

/* A record is one datagram. Far below what any socket takes at once, so that none needs a memfd. */
enum { JOURNAL_MAX_BYTES = 16384 };

struct journal_record {
	size_t n;
	char bytes[JOURNAL_MAX_BYTES];
};

/* Appends a field to a record that begins with n = 0. The name, which is prefix and name together, is of upper-case
 * letters, digits and '_', and begins with a letter; the value is any n_value bytes. False: there is no room for it, and
 * the record is as before. */
bool journal_add(struct journal_record *r, const char *prefix, const char *name, const void *value, size_t n_value);
/* 0 or a negative errno: -ENOENT or -ECONNREFUSED without a journal, -EAGAIN when the journal is behind. Never waits. */
int journal_send(const struct journal_record *r);

#endif
