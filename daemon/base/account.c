/* See account.h. An account lives as long as there are charges on it: users come and go, and a user without charges is
 * not remembered. There are few users on a machine, so a list will do. */
#include "base/account.h"
#include "base/list.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct account *account_find(const struct accounts *a, uid_t uid)
{
	struct account *x = a->first;
	while (x && x->uid != uid)
		x = x->next;
	return x;
}

static struct account *find_or_make(struct accounts *a, uid_t uid)
{
	struct account *x = account_find(a, uid);
	if (x)
		return x;
	x = calloc(1, sizeof(*x));
	if (!x)
		return NULL;
	x->owner = a;
	x->uid = uid;
	list_push(&a->first, x, next);
	return x;
}

static void free_if_even(struct account *x)
{
	if (x->n_charges > 0)
		return;
	for (int kind = 0; kind < ACCOUNT_N_KINDS; kind++)
		assert(x->used[kind] == 0);
	list_remove(&x->owner->first, x, next);
	free(x);
}

static bool account_exceeds(uint64_t used, uint64_t more, uint64_t limit)
{
	return limit && (used > limit || more > limit - used);
}

static bool is_memory(enum account_kind kind)
{
	return kind == ACCOUNT_SLOT_BYTES || kind == ACCOUNT_DATA_BYTES;
}

static uint64_t account_memory_of(const uint64_t used[ACCOUNT_N_KINDS])
{
	return used[ACCOUNT_SLOT_BYTES] + used[ACCOUNT_DATA_BYTES];
}

static int account_add(struct account *x, enum account_kind kind, uint64_t amount)
{
	assert(kind < ACCOUNT_N_KINDS);
	struct accounts *a = x->owner;
	if (account_exceeds(a->used[kind], amount, a->limit[kind]) ||
	    (is_memory(kind) && account_exceeds(account_memory_of(a->used), amount, a->memory_limit)))
		return ACCOUNT_E_ALL;
	if (account_exceeds(x->used[kind], amount, a->limit_per_user[kind]) ||
	    (is_memory(kind) && account_exceeds(account_memory_of(x->used), amount, a->memory_limit_per_user)))
		return ACCOUNT_E_USER;
	a->used[kind] += amount;
	x->used[kind] += amount;
	return 0;
}

/* For readers of the accounts: the lock itself is modified although the accounts are const. */
static void account_lock(const struct accounts *a)
{
	pthread_mutex_lock((pthread_mutex_t *)&a->lock);
}

static void account_unlock(const struct accounts *a)
{
	pthread_mutex_unlock((pthread_mutex_t *)&a->lock);
}

static int account_begin(struct charge *c, struct accounts *a, uid_t uid, enum account_kind kind, uint64_t amount)
{
	struct account *x = find_or_make(a, uid);
	if (!x)
		return -ENOMEM;
	int r = account_add(x, kind, amount);
	if (r) {
		free_if_even(x);
		return r;
	}
	x->n_charges++;
	*c = (struct charge){ .account = x, .kind = kind, .amount = amount };
	return 0;
}

int charge_begin(struct charge *c, struct accounts *a, uid_t uid, enum account_kind kind, uint64_t amount)
{
	assert(kind < ACCOUNT_N_KINDS);
	assert(!c->account);
	account_lock(a);
	int r = account_begin(c, a, uid, kind, amount);
	account_unlock(a);
	return r;
}

int charge_grow(struct charge *c, uint64_t amount)
{
	assert(c->account);
	struct accounts *a = c->account->owner;
	account_lock(a);
	int r = account_add(c->account, c->kind, amount);
	if (r == 0)
		c->amount += amount;
	account_unlock(a);
	return r;
}

static void account_shrink(struct charge *c, uint64_t amount)
{
	assert(amount <= c->amount && c->account->used[c->kind] >= amount);
	c->amount -= amount;
	c->account->used[c->kind] -= amount;
	c->account->owner->used[c->kind] -= amount;
}

void charge_shrink(struct charge *c, uint64_t amount)
{
	assert(c->account);
	struct accounts *a = c->account->owner;
	account_lock(a);
	account_shrink(c, amount);
	account_unlock(a);
}

void charge_release(struct charge *c)
{
	struct account *x = c->account;
	if (!x)
		return;
	struct accounts *a = x->owner;
	account_lock(a);
	account_shrink(c, c->amount);
	*c = (struct charge){ 0 };
	x->n_charges--;
	free_if_even(x);
	account_unlock(a);
}

void charge_move(struct charge *to, struct charge *from)
{
	assert(to != from);
	assert(!to->account);
	*to = *from;
	*from = (struct charge){ 0 };
}

void charge_merge(struct charge *to, struct charge *from)
{
	assert(to->account);
	struct accounts *a = to->account->owner;
	assert(from->account == to->account && from->kind == to->kind);
	account_lock(a);
	to->amount += from->amount;
	to->account->n_charges--;
	account_unlock(a);
	*from = (struct charge){ 0 };
}

void accounts_set_limits(struct accounts *a, const uint64_t limit[ACCOUNT_N_KINDS],
			 const uint64_t limit_per_user[ACCOUNT_N_KINDS], uint64_t memory_limit,
			 uint64_t memory_limit_per_user)
{
	account_lock(a);
	memcpy(a->limit, limit, sizeof(a->limit));
	memcpy(a->limit_per_user, limit_per_user, sizeof(a->limit_per_user));
	a->memory_limit = memory_limit;
	a->memory_limit_per_user = memory_limit_per_user;
	account_unlock(a);
}

static uint64_t left_of(uint64_t used, uint64_t limit)
{
	return !limit ? UINT64_MAX : used < limit ? limit - used : 0;
}

uint64_t account_used(const struct accounts *a, uid_t uid, enum account_kind kind)
{
	account_lock(a);
	const struct account *x = account_find(a, uid);
	uint64_t used = x ? x->used[kind] : 0;
	account_unlock(a);
	return used;
}

uint64_t account_left(const struct accounts *a, uid_t uid, enum account_kind kind)
{
	return left_of(account_used(a, uid, kind), a->limit_per_user[kind]);
}

uint64_t accounts_used(const struct accounts *a, enum account_kind kind)
{
	account_lock(a);
	uint64_t used = a->used[kind];
	account_unlock(a);
	return used;
}

uint64_t accounts_memory_used(const struct accounts *a)
{
	account_lock(a);
	uint64_t used = account_memory_of(a->used);
	account_unlock(a);
	return used;
}

uint64_t account_memory_used(const struct accounts *a, uid_t uid)
{
	account_lock(a);
	const struct account *x = account_find(a, uid);
	uint64_t used = x ? account_memory_of(x->used) : 0;
	account_unlock(a);
	return used;
}

uint64_t account_memory_left(const struct accounts *a, uid_t uid)
{
	account_lock(a);
	const struct account *x = account_find(a, uid);
	uint64_t all = left_of(account_memory_of(a->used), a->memory_limit);
	uint64_t own = left_of(x ? account_memory_of(x->used) : 0, a->memory_limit_per_user);
	account_unlock(a);
	return all < own ? all : own;
}

uint64_t account_memory_limit(const struct accounts *a)
{
	account_lock(a);
	uint64_t limit = left_of(0, a->memory_limit_per_user);
	account_unlock(a);
	return limit;
}

void accounts_each(const struct accounts *a, void (*fn)(void *arg, const struct account *x), void *arg)
{
	account_lock(a);
	for (const struct account *x = a->first; x; x = x->next)
		fn(arg, x);
	account_unlock(a);
}

bool accounts_balanced(const struct accounts *a)
{
	account_lock(a);
	bool even = !a->first;
	for (int kind = 0; kind < ACCOUNT_N_KINDS; kind++)
		even = even && a->used[kind] == 0;
	account_unlock(a);
	return even;
}
