/* See account.h. An account lives as long as there are charges on it: users come and go, and who has nothing is not
 * remembered. There are a few users on a machine, so a list will do. */
#include "util/account.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static struct account *find(const struct accounts *a, uid_t uid)
{
	struct account *x = a->first;
	while (x && x->uid != uid)
		x = x->next;
	return x;
}

static struct account *find_or_make(struct accounts *a, uid_t uid)
{
	struct account *x = find(a, uid);
	if (x)
		return x;
	x = calloc(1, sizeof(*x));
	if (!x)
		return NULL;
	x->owner = a;
	x->uid = uid;
	x->next = a->first;
	a->first = x;
	return x;
}

static void free_if_even(struct account *x)
{
	struct account **at = &x->owner->first;
	if (x->n_charges > 0)
		return;
	for (int kind = 0; kind < ACCOUNT_N_KINDS; kind++)
		assert(x->used[kind] == 0);
	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	free(x);
}

static bool exceeds(uint64_t used, uint64_t more, uint64_t limit)
{
	return limit && (used > limit || more > limit - used);
}

static int add(struct account *x, enum account_kind kind, uint64_t amount)
{
	struct accounts *a = x->owner;
	if (exceeds(a->used[kind], amount, a->limit[kind]))
		return ACCOUNT_E_ALL;
	if (exceeds(x->used[kind], amount, a->limit_per_user[kind]))
		return ACCOUNT_E_USER;
	a->used[kind] += amount;
	x->used[kind] += amount;
	return 0;
}

int charge_begin(struct charge *c, struct accounts *a, uid_t uid, enum account_kind kind, uint64_t amount)
{
	assert(!c->account);
	struct account *x = find_or_make(a, uid);
	if (!x)
		return -ENOMEM;
	int r = add(x, kind, amount);
	if (r) {
		free_if_even(x);
		return r;
	}
	x->n_charges++;
	*c = (struct charge){ .account = x, .kind = kind, .amount = amount };
	return 0;
}

int charge_grow(struct charge *c, uint64_t amount)
{
	int r = add(c->account, c->kind, amount);
	if (r == 0)
		c->amount += amount;
	return r;
}

void charge_shrink(struct charge *c, uint64_t amount)
{
	assert(amount <= c->amount && c->account->used[c->kind] >= amount);
	c->amount -= amount;
	c->account->used[c->kind] -= amount;
	c->account->owner->used[c->kind] -= amount;
}

void charge_end(struct charge *c)
{
	struct account *x = c->account;
	if (!x)
		return;
	charge_shrink(c, c->amount);
	*c = (struct charge){ 0 };
	x->n_charges--;
	free_if_even(x);
}

void charge_move(struct charge *to, struct charge *from)
{
	assert(!to->account);
	*to = *from;
	*from = (struct charge){ 0 };
}

uint64_t account_used(const struct accounts *a, uid_t uid, enum account_kind kind)
{
	const struct account *x = find(a, uid);
	return x ? x->used[kind] : 0;
}

uint64_t account_left(const struct accounts *a, uid_t uid, enum account_kind kind)
{
	uint64_t used = account_used(a, uid, kind), limit = a->limit_per_user[kind];
	return !limit ? UINT64_MAX : used < limit ? limit - used : 0;
}

bool accounts_are_even(const struct accounts *a)
{
	for (int kind = 0; kind < ACCOUNT_N_KINDS; kind++) {
		if (a->used[kind])
			return false;
	}
	return !a->first;
}
