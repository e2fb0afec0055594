/* Spares: the slots of a loader that has ended for good, kept for a while for the next loader of the same process.
 *
 * A program that makes a loader for each validation would otherwise have the same pages freed and cleared again each time.
 * A spare is charged to its user like the slots that it is, and freed first when memory is wanted. There is at most one
 * of a size for each process, and at most 4 for each user.
 *
 * The process may still read the slab: it has said that it has unmapped it, which the daemon cannot see. So a spare goes
 * to that process only, and only if no other has had the slab; it ends with the process. Loop thread only. */
#ifndef BATCHD_SPARE_H
#define BATCHD_SPARE_H

#include <uv.h>

#include "batch/slots.h"
#include "base/account.h"

struct engine;

struct spare {
	struct spare *next; /* in the engine's list, the newest first */
	struct engine *engine;
	struct slots *slots; /* a reference; while rows are in work there are others */
	pid_t pid;
	uid_t uid;
	int pidfd;
	struct charge fd;
	uv_poll_t exit_poll;
	uv_timer_t age;
};

/* Keeps the slots for the process, for as long as an unused loader stays warm (`linger`), if that may be and if the user
 * has a descriptor left. *pidfd is taken, and -1 afterwards, if they are kept. */
void spare_keep(struct engine *e, struct slots *slots, pid_t pid, uid_t uid, int *pidfd);
/* The process's spare slots of that layout's size, ready for another stream: least to most of them. NULL: there are none.
 * The caller gets the reference. */
struct slots *spare_take(struct engine *e, pid_t pid, uid_t uid, const struct slot_layout *layout, uint32_t least,
			 uint32_t most);
/* What all spares are charged for. */
uint64_t spare_bytes(const struct engine *e);
/* Frees the oldest spare of this user or, with any_user, of any user. False: there is none. */
bool spare_drop_oldest(struct engine *e, uid_t uid, bool any_user);

#endif
