/* The server: the listening socket and its peers.
 *
 * Loop thread only. */
#ifndef BATCHD_SERVER_H
#define BATCHD_SERVER_H

#include "server/ipc/peer.h"
#include "base/log-ratelimit.h"

struct server_limits {
	uint32_t pending; /* connections that have not said Hello; the other limits are the accounts' */
	uint64_t hello_timeout_ns;
};

struct server {
	uv_loop_t *loop;
	uv_poll_t poll;
	uv_timer_t pause;               /* runs while most file descriptors are in use */
	uv_timer_t ratelimit_timer;     /* runs while the table has entries */
	uint64_t turn;                  /* of the loop; a new turn begins when a peer is heard for the second time */
	bool asks_for_pidfd;            /* peer_has_pidfd */
	struct log_ratelimit ratelimit; /* refusals that are counted instead of logged */
	bool short_of_fds;              /* there was a pause since the backlog was last empty */
	int listen_fd;
	const struct peer_ops *ops;
	void *owner;
	const char *version;       /* told in Welcome */
	struct accounts *accounts; /* borrowed; connections, unread bytes and descriptors are charged there */
	struct server_limits limits;
	struct peer *peers;
	unsigned n_peers, n_pending;
	uint64_t n_accepted;
	bool closing;
	struct wire_arena arena; /* one message at a time is processed */
	unsigned char buffer[WIRE_MAX_BYTES];
};

/* listen_fd and accounts are borrowed. 0 or negative errno. */
int server_init(struct server *s, uv_loop_t *loop, int listen_fd, const struct server_limits *limits,
		struct accounts *accounts, const struct peer_ops *ops, void *owner, const char *version);
/* Stops listening; peers stay. */
void server_stop(struct server *s);

#endif
