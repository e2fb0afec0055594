/* Processor time that the daemon spends for users other than on rows: on tasks of I/O threads, and on making and freeing
 * memory. It counts as worker time that the user has had. A user that leaves while it has had more than its part owes
 * the rest when it comes back. Under the pool's lock. */
#ifndef BATCHD_POOL_DEBTS_H
#define BATCHD_POOL_DEBTS_H

#include "batch/pool/impl.h"

/* NULL: the user has no queues. On the loop thread without the lock, too. */
struct pool_owner *pool_find_owner(const struct pool *p, uid_t uid);
/* The user has had so much of the processors. Costs nothing while no other user wants any. */
void pool_debts_charge(struct pool *p, uid_t uid, uint64_t ns);
/* The user's last queue goes, or its first one comes. */
void pool_debts_leave(struct pool *p, const struct pool_owner *o);
void pool_debts_return(struct pool *p, struct pool_owner *o);
void pool_debts_finish(struct pool *p);

#endif
