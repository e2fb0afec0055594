/* Accounts: what each user has of the resources that clients can make the daemon spend, and how much one user, or all
 * users together, may have.
 *
 * A charge lies beside the resource it is for, and is refunded together with it, so that an account is the sum of the
 * existing resources: all zero after the last disconnect. Any thread, because an I/O thread that opens a data set is
 * charged while its memory grows; but `fair_turn` is the loop thread's. */
#ifndef BATCHD_ACCOUNT_H
#define BATCHD_ACCOUNT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/fair-turn.h"

enum account_kind {
	ACCOUNT_SESSIONS,     /* connections, and trainers that are gone while their processes hold batches */
	ACCOUNT_LOADERS,      /* jobs, also while they linger */
	ACCOUNT_SLOT_BYTES,   /* batches' memory */
	ACCOUNT_DATA_BYTES,   /* names, labels and orders: what a data set and the plan of an epoch take */
	ACCOUNT_UNREAD_BYTES, /* answers that clients have not read yet */
	ACCOUNT_FDS,
	ACCOUNT_FILE_SYSTEMS, /* servers' file systems that the user's data sets are on */
	ACCOUNT_N_KINDS
};

struct account {
	struct account *next;
	struct accounts *owner;
	uid_t uid;
	unsigned n_charges; /* freed at 0 */
	uint64_t used[ACCOUNT_N_KINDS];
	struct fair_turn fair_turn; /* of this user's connections; the loop thread's */
};

/* Zeroed: no limits (0: none) and no users. */
struct accounts {
	pthread_mutex_t lock; /* of all below, in every account too; a zeroed one is PTHREAD_MUTEX_INITIALIZER */
	struct account *first;
	uint64_t used[ACCOUNT_N_KINDS], limit[ACCOUNT_N_KINDS], limit_per_user[ACCOUNT_N_KINDS];
	/* Of SLOT_BYTES and DATA_BYTES together: they come out of one budget. */
	uint64_t memory_limit, memory_limit_per_user;
};

/* Zeroed: nothing is charged. */
struct charge {
	struct account *account;
	enum account_kind kind;
	uint64_t amount;
};

enum {
	ACCOUNT_E_USER = 1, /* exceeds the limit of one user */
	ACCOUNT_E_ALL = 2,  /* exceeds the limit of all users together */
};

/* 0, ACCOUNT_E_USER, ACCOUNT_E_ALL or -ENOMEM; then nothing is charged. c is zeroed or ended. */
int charge_begin(struct charge *c, struct accounts *a, uid_t uid, enum account_kind kind, uint64_t amount);
/* Changes the amount of a charge; charge_grow returns like charge_begin. */
int charge_grow(struct charge *c, uint64_t amount);
void charge_shrink(struct charge *c, uint64_t amount);
/* Refunds all of it; c may be zeroed. */
void charge_release(struct charge *c);
/* The resource has another owner now: `to` is zeroed or ended, `from` is zeroed afterwards. */
void charge_move(struct charge *to, struct charge *from);
/* The same for a `to` that is charged already, to the same user for the same kind. No limit is asked, and no other
 * charge can come between: what is charged stays charged. */
void charge_merge(struct charge *to, struct charge *from);

/* Replaces the limits of all kinds, and those of memory. */
void accounts_set_limits(struct accounts *a, const uint64_t limit[ACCOUNT_N_KINDS],
			 const uint64_t limit_per_user[ACCOUNT_N_KINDS], uint64_t memory_limit,
			 uint64_t memory_limit_per_user);
/* How much more this user may be charged; UINT64_MAX: there is no limit. */
uint64_t account_left(const struct accounts *a, uid_t uid, enum account_kind kind);
uint64_t account_used(const struct accounts *a, uid_t uid, enum account_kind kind);
/* Of one kind, of all users. */
uint64_t accounts_used(const struct accounts *a, enum account_kind kind);
/* SLOT_BYTES and DATA_BYTES of all users; of one user; and how much more of either this user may be charged. */
uint64_t accounts_memory_used(const struct accounts *a);
uint64_t account_memory_used(const struct accounts *a, uid_t uid);
uint64_t account_memory_left(const struct accounts *a, uid_t uid);
/* The memory limit of one user; UINT64_MAX: there is no limit. */
uint64_t account_memory_limit(const struct accounts *a);
/* Calls fn for each user with the user's account; fn must not charge. */
void accounts_each(const struct accounts *a, void (*fn)(void *arg, const struct account *x), void *arg);
/* Whether no user is charged for anything. */
bool accounts_balanced(const struct accounts *a);

#endif
