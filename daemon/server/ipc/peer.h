/* A peer: one connection from a client, its credentials, and the packets that could not be sent to it yet. Knows frames
 * and fds, nothing of data sets.
 *
 * A connection ends in two steps: any function may mark it (peer_fail, peer_close), and the loop takes it apart at the
 * end of its turn, where it closes handles. So no caller meets a peer, or a session, that has died during a call.
 *
 * Loop thread only. A peer frees itself after ops->closed. */
#ifndef BATCHD_PEER_H
#define BATCHD_PEER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <uv.h>

#include "server/ipc/packed-message.h"
#include "base/account.h"
#include "wire.h"

struct peer;

struct peer_ops {
	/* A checked message of a greeted client. fds: the descriptors that came with it; set those you take to -1, the
	 * others are closed. */
	void (*message)(struct peer *p, const Batchd__Wire__ClientMessage *msg, int *fds, unsigned n_fds);
	/* The connection ends, from either side, or the client's process has ended. Called from anywhere, also from
	 * within peer_send: it must free nothing. Whether the client may hold more than the connection: if not, its
	 * charges end at once, because the next connection may come before the turn ends. */
	bool (*ending)(struct peer *p);
	/* After `ending`, when no other function is on the stack: the last call for this peer. */
	void (*closed)(struct peer *p);
};

enum { PEER_MAX_GROUPS = 256 };

struct packet; /* a packet that waits to be sent */

struct peer {
	struct peer *next, *prev; /* in the server's list */
	struct server *server;
	void *session; /* ops' own */
	uv_poll_t poll;
	uv_poll_t exit_poll; /* of pidfd */
	uv_timer_t hello_timer;
	int fd;
	unsigned n_handles; /* open uv handles; freed at 0 */
	uint64_t number;    /* the session's number, as in the log */
	pid_t pid;
	uid_t uid;
	gid_t gids[PEER_MAX_GROUPS]; /* main group first, then, from peer_identify on, the supplementary ones */
	unsigned n_gids;
	bool lacks_groups; /* from peer_identify on: it has further groups, but too many, or they could not be read */
	int pidfd;         /* from peer_identify on; -1: the kernel provides none. ops->closed may take it, leaving
	                    * -1 */
	bool identified, watches_exit;
	int events;           /* the events that poll watches for */
	uint64_t turn, round; /* the loop's turn, and the round of turns, in which it was last heard; see
	                       * base/fair-turn.h */
	char program[WIRE_MAX_PROGRAM + 1];
	bool greeted;
	bool ending;                           /* nothing more is sent or heard; freed at the end of the loop's turn */
	bool is_trainer;                       /* ops' own: other trainers may wait for its messages */
	bool eof;                              /* its remaining messages are the last, and no client reads an answer */
	bool half_closed;                      /* has been sent the error, and is heard until it hangs up */
	bool wake_pending;                     /* a Wake could not be sent yet */
	struct charge connection, fds, unread; /* ops->closed may take over the first two, if `ending` said so */
	struct packet *out_first, *out_last;
	unsigned n_out;
	uint64_t connected_ns;
};

/* Takes the connected socket. 0, also if limits refuse it, or negative errno; then the socket is closed. */
int peer_create(struct server *server, int fd);
/* Whether the kernel returns the other end's pidfd at any time (Linux 6.5). */
bool peer_has_pidfd(int socket);

/* Looks up what is needed for a client that stays: its gids and its pidfd; from now on the connection also ends with
 * the client's process. Without a pidfd it ends only with the socket. Calling it again does nothing. 0 or negative
 * errno, usually because there are too few descriptors. */
int peer_identify(struct peer *p);

/* Whether the client's process, once identified, sees the same files under the same paths as this process: it is in the
 * same mount namespace. False also if that is unknown: the process has ended, or the kernel does not show it to this
 * user. */
bool peer_shares_mounts(const struct peer *p);

/* Sends now, or as soon as the client's socket and the kernel have room for it; borrows fds, at most 3. A client that
 * leaves too much unread is closed, and so is a client to which sending fails. */
void peer_send(struct peer *p, const Batchd__Wire__ServerMessage *m, const int *fds, unsigned n_fds);

/* The same for a message that many clients get. Takes a reference of its own if the packet has to wait. */
void peer_send_packed(struct peer *p, struct packed_message *message);

/* Sends Error to the client, writes one log record (repetitions by the same user within a minute are only counted),
 * closes. field may be NULL. */
void peer_fail(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Like peer_fail, but its messages are still read, until it hangs up or the caller closes it; nothing more is sent. */
void peer_half_close(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Tells the client to look at the ring, now or as soon as its socket has room: messages that it reads before that may
 * not make it look. Several pending wakes become one. */
void peer_wake(struct peer *p);

/* Closes without a message; twice does no harm. */
void peer_close(struct peer *p);

#endif
