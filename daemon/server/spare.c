/* See spare.h. A process that has ended is seen by its pidfd before another one can have its number and open a loader. */
#include "server/spare.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/engine.h"
#include "base/list.h"
#include "base/log.h"
#include "base/thread-kind.h"

enum { MOST_OF_USER = 4 };

static void on_age_closed(uv_handle_t *h)
{
	free(h->data);
}

static void on_poll_closed(uv_handle_t *h)
{
	struct spare *x = h->data;
	close(x->pidfd);
	uv_close((uv_handle_t *)&x->age, on_age_closed);
}

/* Takes it out of the list; its slots are the caller's. */
static struct slots *spare_end(struct spare *x)
{
	struct slots *slots = x->slots;
	list_remove(&x->engine->spares, x, next);
	x->slots = NULL;
	charge_release(&x->fd);
	uv_timer_stop(&x->age);
	uv_poll_stop(&x->exit_poll);
	uv_close((uv_handle_t *)&x->exit_poll, on_poll_closed);
	return slots;
}

static void spare_drop(struct spare *x, const char *why)
{
	struct engine *e = x->engine;
	log_record(LOG_LEVEL_DEBUG, "spare-freed", "%u spare slots of %zu bytes of pid %d are freed: %s",
		   x->slots->n_made, x->slots->layout.slot_bytes, (int)x->pid, why);
	slots_unref(spare_end(x));
	budget_balance(&e->budget);
}

static void on_process_exit(uv_poll_t *poll, int status, int events)
{
	(void)status, (void)events;
	spare_drop(poll->data, "the process has ended");
}

static void on_old(uv_timer_t *t)
{
	spare_drop(t->data, "no loader has asked for them");
}

static struct spare *spare_find(const struct engine *e, pid_t pid, uid_t uid, size_t slot_bytes)
{
	struct spare *x = e->spares;
	while (x && (x->pid != pid || x->uid != uid || x->slots->layout.slot_bytes != slot_bytes))
		x = x->next;
	return x;
}

static void spare_start(struct spare *x, uint64_t age_ns)
{
	struct engine *e = x->engine;
	uv_timer_init(&e->loop, &x->age);
	x->exit_poll.data = x->age.data = x;
	uv_poll_start(&x->exit_poll, UV_READABLE, on_process_exit);
	uv_timer_start(&x->age, on_old, age_ns / 1000000, 0);
	list_push(&e->spares, x, next);
}

/* A user's spares leave most of its descriptors to what is in use. */
static bool spare_may_be(const struct engine *e, const struct slots *slots, uid_t uid)
{
	unsigned n = 0;
	for (const struct spare *x = e->spares; x; x = x->next)
		n += x->uid == uid;
	return !e->stopping && e->config->linger_ns && n < MOST_OF_USER && slots->n_attached == 1 &&
	       !slots->n_device_slabs && slots->bytes.amount >= e->spare_least_bytes &&
	       slots->bytes.account->uid == uid &&
	       account_left(&e->budget.accounts, uid, ACCOUNT_FDS) > e->config->limits.fds_per_user / 2;
}

void spare_keep(struct engine *e, struct slots *slots, pid_t pid, uid_t uid, int *pidfd)
{
	assert(is_loop_thread());
	struct spare *older = spare_find(e, pid, uid, slots->layout.slot_bytes);
	struct charge fd = { 0 };
	if (older)
		spare_drop(older, "newer ones replace them");
	if (pid <= 0 || *pidfd < 0 || !spare_may_be(e, slots, uid) ||
	    charge_begin(&fd, &e->budget.accounts, uid, ACCOUNT_FDS, 1))
		return;
	struct spare *x = calloc(1, sizeof(*x));
	if (!x || uv_poll_init(&e->loop, &x->exit_poll, *pidfd)) {
		charge_release(&fd);
		free(x);
		return;
	}
	x->engine = e;
	x->slots = slots_ref(slots);
	x->pid = pid;
	x->uid = uid;
	x->pidfd = *pidfd;
	*pidfd = -1;
	charge_move(&x->fd, &fd);
	spare_start(x, e->config->linger_ns);
}

struct slots *spare_take(struct engine *e, pid_t pid, uid_t uid, const struct slot_layout *layout, uint32_t least,
			 uint32_t most)
{
	assert(is_loop_thread());
	struct spare *x = spare_find(e, pid, uid, layout->slot_bytes);
	if (!x || x->slots->n_made < least || x->slots->n > most)
		return NULL;
	if (!slots_are_unused(x->slots)) { /* two sets would be charged when the last rows are done */
		spare_drop(x, "they are still in work");
		return NULL;
	}
	struct slots *slots = spare_end(x);
	slots_renew(slots, layout);
	return slots;
}

uint64_t spare_bytes(const struct engine *e)
{
	uint64_t sum = 0;
	for (const struct spare *x = e->spares; x; x = x->next)
		sum += x->slots->bytes.amount;
	return sum;
}

bool spare_drop_oldest(struct engine *e, uid_t uid, bool any_user)
{
	assert(is_loop_thread());
	struct spare *oldest = NULL;
	for (struct spare *x = e->spares; x; x = x->next) {
		if (any_user || x->uid == uid)
			oldest = x;
	}
	if (oldest)
		spare_drop(oldest, "memory is wanted");
	return oldest != NULL;
}
