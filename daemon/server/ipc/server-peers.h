/* The peers of a server: their list, the limits on their number, and the records about them that are counted instead of
 * logged. Below peer.c, which server.c stands on.
 *
 * Loop thread only. */
#ifndef BATCHD_SERVER_PEERS_H
#define BATCHD_SERVER_PEERS_H

#include <sys/resource.h>

#include "server/ipc/server.h"

#define SERVER_NO_USER ((uid_t) - 1) /* an event that is not caused by a single user */

/* Why a peer is not admitted: what its Error says. */
struct server_refusal {
	Batchd__Wire__ErrorCode code;
	const char *field; /* static; NULL: none */
	char text[256];
};

/* Begins the charges of a peer that is just being created. False: a limit was exceeded. */
bool server_admits(struct server *s, struct peer *p, struct server_refusal *why);
/* Sockets with this number or a higher one have to wait: the descriptors from there on are for pidfds, files and
 * slabs. */
rlim_t server_most_sockets(void);
/* Whether a peer may keep this descriptor; the highest ones are reserved for files and slabs. */
bool server_spares_fd(int fd);
/* Maintain the list and the count of connections that have not said Hello yet. */
void server_add(struct server *s, struct peer *p);
void server_remove(struct server *s, struct peer *p);
void server_note_ending(struct server *s, const struct peer *p);
void server_greeted(struct server *s);

/* Whether to log this event of this user; otherwise it is counted, and logged once a minute with the others of its
 * kind. */
bool server_tells(struct server *s, uid_t uid, const char *name, const char *detail, unsigned at_once);
/* Logs one such count; NULL: of all kinds that had no place in the table. */
void server_say_repeats(const struct repeat *kind, uint64_t n_more);

#endif
