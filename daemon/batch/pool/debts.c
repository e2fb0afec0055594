/* See debts.h. A debt is worker time beyond the level (batch/pool/order.h), so it ends by itself as other users' rows
 * are made. If more users owe than there is room for, the least debt is forgotten. */
#include "batch/pool/debts.h"

#include <stdlib.h>

#include "base/list.h"

enum { MOST_DEBTS = 64 };
#define MOST_OWED_NS UINT64_C(2000000000) /* so that an opening of a minute keeps the user's rows waiting for less */

struct pool_debt {
	struct pool_debt *next;
	uid_t uid;
	uint64_t served_ns;
};

static struct pool_debt **find_debt(struct pool *p, uid_t uid)
{
	struct pool_debt **at = &p->debts;
	while (*at && (*at)->uid != uid)
		at = &(*at)->next;
	return at;
}

static void drop_debt(struct pool_debt **at)
{
	struct pool_debt *d = *at;
	*at = d->next;
	free(d);
}

/* Drops those that the level has passed, and the least if there is no room for another. */
static void make_room(struct pool *p)
{
	unsigned n = 0;
	struct pool_debt **least = NULL;
	for (struct pool_debt **at = &p->debts; *at;) {
		if ((*at)->served_ns <= p->all.level_ns) {
			drop_debt(at);
			continue;
		}
		if (!least || (*at)->served_ns <= (*least)->served_ns)
			least = at;
		n++;
		at = &(*at)->next;
	}
	if (n >= MOST_DEBTS)
		drop_debt(least);
}

static void note_debt(struct pool *p, uid_t uid, uint64_t served_ns)
{
	make_room(p);
	struct pool_debt *d = served_ns > p->all.level_ns ? malloc(sizeof(*d)) : NULL;
	if (!d)
		return;
	*d = (struct pool_debt){ .uid = uid, .served_ns = served_ns };
	list_push(&p->debts, d, next);
}

struct pool_owner *pool_find_owner(const struct pool *p, uid_t uid)
{
	struct pool_owner *o = p->owners;
	while (o && o->uid != uid)
		o = o->next;
	return o;
}

/* What the user has had with ns more. */
static uint64_t add_time(uint64_t served_ns, uint64_t ns, uint64_t level_ns)
{
	uint64_t most = level_ns + MOST_OWED_NS;
	if (served_ns >= most)
		return served_ns;
	return ns < most - served_ns ? served_ns + ns : most;
}

void pool_debts_charge(struct pool *p, uid_t uid, uint64_t ns)
{
	struct pool_owner *o = pool_find_owner(p, uid);
	struct pool_debt **debt = find_debt(p, uid);
	uint64_t *level_ns = &p->all.level_ns, served = o ? o->part.served_ns : *debt ? (*debt)->served_ns : 0;
	bool listed = o && o->part.n_listed, others = p->all.n_listed > (listed ? 1 : 0);
	if (!listed && served < *level_ns)
		served = *level_ns;
	served = add_time(served, ns, *level_ns);
	if (!others && served > *level_ns)
		*level_ns = served;
	if (o) {
		o->part.served_ns = served;
		return;
	}
	if (*debt)
		drop_debt(debt);
	note_debt(p, uid, served);
}

void pool_debts_leave(struct pool *p, const struct pool_owner *o)
{
	note_debt(p, o->uid, o->part.served_ns);
}

void pool_debts_return(struct pool *p, struct pool_owner *o)
{
	struct pool_debt **debt = find_debt(p, o->uid);
	if (!*debt)
		return;
	o->part.served_ns = (*debt)->served_ns;
	drop_debt(debt);
}

void pool_debts_finish(struct pool *p)
{
	while (p->debts)
		drop_debt(&p->debts);
}
