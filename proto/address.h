/* Where batchd's socket is. The daemon, which makes the socket, and its clients follow the same rule.
 *
 * A user's own daemon, root's included, listens in the user's runtime directory ($XDG_RUNTIME_DIR/batchd/socket), or,
 * on machines without one, in /tmp/batchd-UID/socket. Only the system's daemon listens at ADDRESS_SYSTEM: a daemon that
 * root starts for itself must not be in the way of other users. A client without a given address tries
 * address_candidate(0), (1), ... and connects to the first that answers. If none answers, it may start a daemon at
 * address_own(). Any user can make a directory in /tmp first, so every user of a private address calls address_check()
 * on it before. */
#ifndef BATCHD_ADDRESS_H
#define BATCHD_ADDRESS_H

#include <stddef.h>

#define ADDRESS_SYSTEM "/run/batchd/batchd.socket"
#define ADDRESS_VARIABLE "BATCHD_SOCKET" /* overrides the rule on the client's side */

enum { ADDRESS_MAX_BYTES = 108 }; /* sun_path with its final NUL; a longer path is refused, never cut */

/* Where this user's own daemon listens. 0, or -ENAMETOOLONG. */
int address_own(char buf[ADDRESS_MAX_BYTES]);
/* Where a client starts a daemon of the user's for this version of the protocol while the one at address_own() speaks
 * another. 0, or -ENAMETOOLONG. */
int address_own_beside(int version, char buf[ADDRESS_MAX_BYTES]);

/* The i-th address a client of this user tries: the variable's (then only that one), the user's, the system's. 0;
 * -ENOENT when there are no more; -ENAMETOOLONG. */
int address_candidate(unsigned i, char buf[ADDRESS_MAX_BYTES]);

/* Checks that only this user or root can have filled the directory of this socket: it is a real directory, owned by one
 * of the two, and no other user may write to it. 0; -ENOENT: there is no such directory; -EPERM: another user can have
 * filled it; or another negative errno. */
int address_check(const char *path);

#endif
