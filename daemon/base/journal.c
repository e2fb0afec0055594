/* Each field is NAME=value and a line end. A value with a line end has another form: NAME and a line end, then the
 * value's length as 64 bits, little-endian, then the value and a line end.
 *
 * A socket per record: at the default level a healthy daemon logs only start and stop, and a descriptor that is kept
 * would have to survive forks and restarts of the journal. */
#include "base/journal.h"

#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void journal_append(struct journal_record *r, const void *bytes, size_t n)
{
	memcpy(r->bytes + r->n, bytes, n);
	r->n += n;
}

bool journal_add(struct journal_record *r, const char *prefix, const char *name, const void *value, size_t n_value)
{
	const size_t n_prefix = strlen(prefix), n_name = strlen(name), room = sizeof r->bytes - r->n;
	const uint64_t length = htole64(n_value);

	if (n_value > room)
		return false;

	const bool binary = n_value && memchr(value, '\n', n_value);
	const size_t n_rest = n_prefix + n_name + 2 + (binary ? sizeof length : 0);

	if (n_rest > room - n_value)
		return false;
	journal_append(r, prefix, n_prefix);
	journal_append(r, name, n_name);
	journal_append(r, binary ? "\n" : "=", 1);
	if (binary)
		journal_append(r, &length, sizeof length);
	journal_append(r, value, n_value);
	journal_append(r, "\n", 1);
	return true;
}

int journal_send(const struct journal_record *r)
{
	static const struct sockaddr_un journal = { .sun_family = AF_UNIX, .sun_path = JOURNAL_SOCKET };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), e = 0;

	if (fd < 0)
		return -errno;
	if (sendto(fd, r->bytes, r->n, MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr *)&journal, sizeof journal) <
	    0)
		e = -errno;
	close(fd);
	return e;
}
