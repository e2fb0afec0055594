/* A recording of what the daemon does: one connection, which stands for as long as it records. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batchd.h"
#include "link/connect.h"
#include "recording.h"

/* The memory's descriptor, or a code. */
static int trace_begin(struct connection *c, struct fault *f)
{
	Batchd__Wire__Trace body = BATCHD__WIRE__TRACE__INIT;
	const Batchd__Wire__ServerMessage *m;
	int fds[CONNECTION_FDS], r;

	if (connection_send(c, WIRE_CLIENT(TRACE, trace, &body), NULL, 0) < 0)
		return connection_lost(c, f);
	do
		r = connection_recv(c, 0, &m, fds, f);
	while (r == BATCHD_AGAIN);
	if (r < 0)
		return r;
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_TRACED)
		return fds[0]; /* wire_server_fds_ok: it is there */
	for (unsigned i = 0; i < CONNECTION_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s answers Trace with %s", c->address, wire_server_name(m));
}

/* A copy, as the daemon clears the memory when the connection ends. */
static int trace_copy(int fd, void **memory, struct fault *f)
{
	struct stat st;
	void *from;

	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return fault_set(f, BATCHD_E_PROTOCOL, "the recording of batchd is not sealed");
	if (fstat(fd, &st) < 0 || st.st_size != (off_t)sizeof(struct trace_memory))
		return fault_set(f, BATCHD_E_PROTOCOL, "the recording of batchd has an unknown size");
	from = mmap(NULL, sizeof(struct trace_memory), PROT_READ, MAP_SHARED, fd, 0);
	*memory = malloc(sizeof(struct trace_memory));
	if (from == MAP_FAILED || !*memory) {
		free(*memory);
		*memory = NULL;
		if (from != MAP_FAILED)
			munmap(from, sizeof(struct trace_memory));
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	}
	memcpy(*memory, from, sizeof(struct trace_memory));
	munmap(from, sizeof(struct trace_memory));
	return 0;
}

int batchd_trace(const char *socket, unsigned milliseconds, void **memory, size_t *n_bytes, char *err, size_t err_size)
{
	struct fault f = { 0 };
	struct connection *c;
	int fd, r;

	*memory = NULL;
	*n_bytes = sizeof(struct trace_memory);
	c = connection_for_question(socket, &f);
	if (!c)
		return fault_give(&f, err, err_size);
	fd = trace_begin(c, &f);
	if (fd >= 0) {
		struct pollfd ends = { .fd = c->socket }; /* the daemon's end */

		poll(&ends, 1, milliseconds > INT32_MAX ? INT32_MAX : (int)milliseconds);
		r = trace_copy(fd, memory, &f);
		close(fd);
	} else {
		r = fd;
	}
	connection_answered(c);
	return r < 0 ? fault_give(&f, err, err_size) : 0;
}
