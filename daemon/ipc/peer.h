/* A peer: one connection from a client, its credentials, and what could not be sent to it yet. Knows frames and fds,
 * nothing of data sets.
 *
 * Loop thread only. A peer is freed by itself after ops->closed. */
#ifndef BATCHD_PEER_H
#define BATCHD_PEER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <uv.h>

#include "ipc/parcel.h"
#include "util/account.h"
#include "wire.h"

struct peer;

struct peer_ops {
	/* A checked message of a greeted client. fds: what came with it; set those you take to -1, the others are
	 * closed. */
	void (*message)(struct peer *p, const Batchd__Wire__ClientMessage *msg, int *fds, unsigned n_fds);
	/* The connection has ended, whoever ended it, or its process has; the last call for this peer. */
	void (*closed)(struct peer *p);
};

enum { PEER_MAX_GROUPS = 256 };

struct packet; /* one that waits to be sent */

struct peer {
	struct peer *next, *prev; /* in the server's list */
	struct server *server;
	void *session; /* ops' own */
	uv_poll_t poll;
	uv_poll_t exit_poll; /* of pidfd */
	uv_timer_t hello_timer;
	int fd;
	unsigned n_handles; /* open uv handles; freed at 0 */
	uint64_t number;    /* of the session, as in the log */
	pid_t pid;
	uid_t uid;
	gid_t gids[PEER_MAX_GROUPS]; /* main group first, then, from peer_identify on, the supplementary ones */
	unsigned n_gids;
	bool lacks_groups; /* from peer_identify on: there are more, but too many for us, or not to be known */
	int pidfd;         /* from peer_identify on; -1: the kernel has none for us. ops->closed may take
	                             * it, leaving -1 */
	bool identified, watches_exit;
	int events;           /* that poll watches for */
	uint64_t turn, round; /* in which it was here, and heard; see util/hearing.h */
	char program[WIRE_MAX_PROGRAM + 1];
	bool greeted, closing;
	bool is_trainer;                       /* ops' own: what it says may be what others wait for */
	bool gone;                             /* what it says is the last, and nobody reads an answer */
	bool doomed;                           /* has been told why; closed when the loop comes round */
	bool dismissed;                        /* has been told why, and is heard until it hangs up */
	bool wake_owed;                        /* a Wake could not be sent yet */
	struct charge connection, fds, unread; /* ops->closed may take the first two over */
	struct packet *out_first, *out_last;
	unsigned n_out;
	uint64_t connected_ns;
};

/* Takes the connected socket. 0, also where limits refuse it, or negative errno; then the socket is closed. */
int peer_create(struct server *server, int fd);
/* For server_admits: says Error to one that is just being created, writes the log record, closes and frees it. */
void peer_refuse(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Whether the kernel can be asked for the other end's pidfd at any time (Linux 6.5). */
bool peer_has_pidfd(int socket);

/* Finds out what matters for who wants to stay: gids, pidfd, and from now on the connection ends with its process.
 * Without it (again: nothing happens) it ends with the socket only. 0 or negative errno, mostly as there are too few
 * descriptors. */
int peer_identify(struct peer *p);

/* Whether its process, identified, sees the files that this one sees under the same paths: it is in the same mount
 * namespace. False also where that cannot be told: it has ended, or the kernel does not show it to this user. */
bool peer_shares_mounts(const struct peer *p);

/* Sends now, or as soon as the client takes it and the kernel has memory for it; borrows fds, at most 3. A client that
 * leaves too much unread is closed, though not during this call, as is one to which nothing can be sent. */
void peer_send(struct peer *p, const Batchd__Wire__ServerMessage *m, const int *fds, unsigned n_fds);

/* The same of what many are told. Takes a reference of its own where it has to wait. */
void peer_send_parcel(struct peer *p, struct parcel *parcel);

/* Says Error to the client, writes one log record (what a user repeats within a minute is only counted), closes. field
 * may be NULL. */
void peer_fail(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* The same, but the peer and its session stay until the loop comes round: for callers that are deep inside of what its
 * end takes away. */
void peer_doom(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* The same, but its messages still come, until it hangs up or the caller closes it; nothing is sent any more. */
void peer_dismiss(struct peer *p, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Tells the client to look at the ring, now or as soon as its socket has room: what it reads until then may not make it
 * look. Several that wait become one. */
void peer_wake(struct peer *p);

/* Closes without a word. */
void peer_close(struct peer *p);

#endif
