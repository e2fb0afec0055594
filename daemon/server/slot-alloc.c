/* See slot-alloc.h. The loop thread decides the number of slots and charges them; an I/O thread makes their memory, and
 * the loop takes it over. */
#include "server/slot-alloc.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/producer-job.h"
#include "server/session-state.h"
#include "server/spare.h"
#include "base/container.h"
#include "base/size.h"

#define CODE(name) BATCHD__WIRE__ERROR_CODE__##name

enum {
	MIN_SLOTS = 2,
	FIRST_SLOTS = 4,
	LARGE_FIRST_SLOTS = 3, /* also of a short epoch: a loop holds one, has the next, and one is made */
	LARGE_SLOT_BYTES = 64 << 20,
	PLENTY_SLOTS = 16,
	PLENTY_BYTES = 64 << 20,
	PLENTY_PART = 8,
	SMALL_WINDOW_SLOTS = 32,
	SMALL_WINDOW_BYTES = 8 << 20
};

struct slot_alloc {
	struct job_task task;
	struct slot_layout layout;
	uint32_t n, n_made; /* of the slab; of those whose memory is made now */
	uint32_t n_rest;    /* charged as well, and made after the first one, for which the trainer waits */
	uint32_t window;    /* a group's, see batch/group.h */
	uint64_t charged_bytes;
	struct charge bytes, fd;
	bool share, more, served; /* more: n_made more slots in the present slab */
	enum slots_limit limit, final_limit;
	bool fix, bonus; /* fix: for a group with a GPU, no more slots follow; bonus: no session needs them
	                           * yet */
	struct slots *slots;
	struct nodes *nodes;
	int result;
};

/* ---- how many ---- */

/* No more slots are of use: all batches of an epoch, and one of the next. */
static uint32_t useful_slots(const struct loader *l)
{
	uint64_t n = l->is_async || l->spec.own_batches ? UINT64_MAX : loader_n_batches(l, 0);
	return n < LARGE_FIRST_SLOTS ? LARGE_FIRST_SLOTS : n < UINT32_MAX ? (uint32_t)n + 1 : UINT32_MAX;
}

/* As many slots as asked for. For small batches more than the configured number, because making a batch takes less time
 * than waking a process up for it. */
static uint32_t wanted_slots(const struct engine *e, const struct loader *l, enum slots_limit *limit)
{
	uint64_t small = SMALL_WINDOW_BYTES / l->layout.slot_bytes;
	bool large = l->layout.slot_bytes >= LARGE_SLOT_BYTES;
	uint32_t first = large ? LARGE_FIRST_SLOTS : FIRST_SLOTS, n = e->config->slots ? e->config->slots : first;
	uint32_t useful = useful_slots(l);
	*limit = l->spec.n_slots    ? SLOTS_LIMIT_ASKED
		 : e->config->slots ? SLOTS_LIMIT_CONFIGURED
		 : large            ? SLOTS_LIMIT_LARGE
				    : SLOTS_LIMIT_FIRST;
	if (l->spec.n_slots)
		return l->spec.n_slots;
	small = small > SMALL_WINDOW_SLOTS ? SMALL_WINDOW_SLOTS : small;
	if (small > n) {
		*limit = SLOTS_LIMIT_SMALL;
		n = (uint32_t)small;
	}
	if (n <= useful || e->config->slots)
		return n;
	*limit = SLOTS_LIMIT_EPOCH;
	return useful;
}

/* The rings of a group's other trainers, which come when its slots are there. */
static uint64_t rings_to_come(const struct loader *l)
{
	return l->spec.share && !l->is_async ? (uint64_t)(l->spec.world_size - 1) * RING_PAGE_BYTES : 0;
}

/* Bytes for slots: the free part of the budget and of the user's quota (*user_left), less the rings and the orders that
 * the loader needs, which are made after its slots. */
static uint64_t free_for(const struct engine *e, const struct loader *l, uint64_t *user_left)
{
	uint64_t used = budget_used(&e->budget);
	uint64_t free_bytes = e->budget.bytes > used ? e->budget.bytes - used : 0;
	*user_left = account_memory_left(&e->budget.accounts, l->spec.uid);
	uint64_t rings = rings_to_come(l);
	free_bytes = free_bytes < *user_left ? free_bytes : *user_left;
	free_bytes -= rings < free_bytes ? rings : free_bytes;
	return free_bytes - loader_order_bytes(l, free_bytes);
}

/* With `slots: auto`: as many as take no more bytes than stay near a processor, and as are of use. *limit: which it is. */
static uint32_t most_plenty(const struct loader *l, enum slots_limit *limit)
{
	uint64_t most = PLENTY_BYTES / l->layout.slot_bytes, useful = useful_slots(l);
	most = most < PLENTY_SLOTS ? most : PLENTY_SLOTS;
	*limit = most < useful ? SLOTS_LIMIT_PLENTY : SLOTS_LIMIT_EPOCH;
	return (uint32_t)(most < useful ? most : useful);
}

/* With `slots: auto`, the number of slots after the first n, so that every wake-up hands over several batches. More
 * than most_plenty would make batches slower. They take at most a part of the free memory, so that many trainers, each
 * with less than the one before, and caches find room too. Making the pages of 12 large slots takes as long as making
 * several batches, so they are made when the workers have nothing else to do: a trainer that waits for the workers gains
 * nothing from more slots. A GPU pins all of a slab at once, so they would come too late for it. */
static uint32_t plenty_slots(struct engine *e, const struct session *s, const struct loader *l, uint32_t n,
			     enum slots_limit *limit)
{
	enum slots_limit enough;
	uint64_t most = most_plenty(l, &enough);
	if (e->config->slots || l->spec.n_slots || l->is_async || l->spec.served || s->device.wanted || n >= most)
		return 0;
	uint64_t used = n * l->layout.slot_bytes, left, free_bytes = free_for(e, l, &left);
	uint64_t more = (free_bytes > used ? free_bytes - used : 0) / PLENTY_PART / l->layout.slot_bytes;
	*limit = more < most - n ? SLOTS_LIMIT_MEMORY_PART : enough;
	return (uint32_t)(more < most - n ? more : most - n);
}

/* As many as wanted, or as the budget and the user's quota have room for; lingering jobs are closed to make room. */
static uint32_t affordable_slots(struct engine *e, const struct loader *l, uint32_t wanted, enum slots_limit *limit)
{
	uint64_t n, left;
	do {
		n = free_for(e, l, &left) / l->layout.slot_bytes;
	} while (n < wanted && job_close_lingering(e, l->spec.uid, left / l->layout.slot_bytes >= wanted));
	if (n >= wanted)
		return wanted;
	*limit = left / l->layout.slot_bytes > n ? SLOTS_LIMIT_MEMORY : SLOTS_LIMIT_USER_MEMORY;
	return (uint32_t)n;
}

/* The number of slots for which the slab has address space: a share group's slab has enough for all trainers that may
 * join, as far as the whole budget allows. */
static uint32_t final_slots(struct engine *e, const struct session *s, const struct loader *l, uint32_t n,
			    enum slots_limit *limit)
{
	if (!l->is_async)
		return n + plenty_slots(e, s, l, n, limit);
	uint64_t most = e->budget.bytes / l->layout.slot_bytes;
	uint64_t all = n + (uint64_t)group_slot_quota(n, l->spec.n_slots) * (l->group.n_places - 1 + GROUP_ORPHANS);
	return all < most ? (uint32_t)all : most > n ? (uint32_t)most : n;
}

/* Memory that a GPU reads cannot grow, so with its first trainer on a GPU a group gets its final number of slots. */
static uint32_t gpu_slots(uint32_t window, uint32_t share)
{
	return window + share * (GROUP_GPU_PLACES - 1);
}

/* The batches that would fit, for a person. */
static void say_fits(struct engine *e, const struct loader *l, uint32_t least, char text[80])
{
	uint64_t left, fits = free_for(e, l, &left) / least / (l->layout.slot_bytes / l->spec.batch_size + 1);

	text[0] = '\0';
	if (fits && fits < l->spec.batch_size && !l->spec.served)
		snprintf(text, 80, ": use a batch_size of at most %llu, or raise it", (unsigned long long)fits);
}

static int refuse_slots(const struct session *s, uint32_t least, struct refusal *why)
{
	struct engine *e = s->engine;
	const struct loader *l = s->job->loader;
	char slot[32], have[32], used[32], own[32], what[200], fits[80];
	if (l->is_async && l->group.slots && l->group.slots->fixed)
		return refuse(
			why, CODE(LIMIT), "world_size",
			"this share group has a trainer with its batches on a GPU, for which memory cannot grow: there is room for no more than the %u that are "
			"here; give this one another job",
			l->group.slots->n_holders);
	size_format(l->layout.slot_bytes, slot, sizeof(slot));
	fields_explain(l->fields, &l->layout, what, sizeof(what));
	say_fits(e, l, least, fits);
	uint64_t all = accounts_memory_used(&e->budget.accounts);
	size_format(all, used, sizeof(used));
	size_format(e->budget.bytes, have, sizeof(have));
	size_format(account_memory_used(&e->budget.accounts, l->spec.uid), own, sizeof(own));
	bool user = e->budget.bytes - all >= least * l->layout.slot_bytes + budget_cache_bytes(&e->budget);
	if (user)
		return refuse(
			why, CODE(LIMIT), "memory_per_user",
			"no memory for this trainer's batches: it needs %u slots of %s, and this user's trainers have %s "
			"(limits.memory_per_user in the daemon's configuration, a share of its budget of %s)%s%s",
			least, slot, own, have, fits, what);
	return refuse(
		why, CODE(LIMIT), "memory",
		"no memory for this trainer's batches: it needs %u slots of %s, and %s of the budget of %s are in use "
		"(memory in the daemon's configuration, or --memory)%s%s",
		least, slot, used, have, fits, what);
}

void slot_alloc_explain(const struct loader *l, const struct slots *slots, char *text, size_t size)
{
	static const char *const why[] = {
		[SLOTS_LIMIT_NONE] = "its trainers' parts",
		[SLOTS_LIMIT_ASKED] = "as n_slots asks",
		[SLOTS_LIMIT_CONFIGURED] = "as slots in the daemon's configuration says",
		[SLOTS_LIMIT_FIRST] = "one that the trainer has, the next, and two that are made",
		[SLOTS_LIMIT_LARGE] =
			"one that the trainer has, the next, and one that is made; a batch takes 64 MiB or more",
		[SLOTS_LIMIT_SMALL] = "a batch is small: 32 of them, or 8 MiB",
		[SLOTS_LIMIT_PLENTY] = "memory is plentiful: 16 of them, or 64 MiB",
		[SLOTS_LIMIT_EPOCH] = "an epoch's batches and one, and 3 at least",
		[SLOTS_LIMIT_MEMORY] = "memory in the daemon's configuration has room for no more",
		[SLOTS_LIMIT_USER_MEMORY] = "limits.memory_per_user in the daemon's configuration has room for no more",
		[SLOTS_LIMIT_MEMORY_PART] = "more would take more than an eighth of the free memory",
	};
	char bytes[32];
	size_format(slots->layout.slot_bytes, bytes, sizeof(bytes));
	size_t n = (size_t)snprintf(text, size, "%u of %s: ", slots->n_made, bytes);
	if (l->is_async)
		n += (size_t)snprintf(text + n, size - n, "%u for each trainer of the group", l->group.slot_quota);
	else
		n += (size_t)snprintf(text + n, size - n, "%s", why[slots->limit]);
	if (slots->may_grow && !l->is_async)
		snprintf(text + n, size - n, "; %u as soon as the workers rest", slots->n);
}

/* ---- their memory ---- */

static void on_made(struct job_task *t);

static void slot_alloc_run(struct job_task *t)
{
	struct slot_alloc *a = container_of(t, struct slot_alloc, task);
	if (a->more)
		a->result = slots_extend(a->slots, a->n_made);
	else if (a->served)
		a->result = slots_create_open(&a->layout, a->n, &a->slots);
	else
		a->result = slots_create_on(a->nodes, &a->layout, a->n, a->n_made, &a->slots);
}

/* A slab that grows takes two. Where one is left, a trainer's own slab has all of its slots at once, and no more. */
static int charge_fds(const struct session *s, struct slot_alloc *a)
{
	struct accounts *accounts = &s->engine->budget.accounts;
	int r = charge_begin(&a->fd, accounts, s->uid, ACCOUNT_FDS, a->n_made < a->n ? 2 : 1);
	if (r <= 0 || s->job->loader->is_async)
		return r;
	a->n = a->n_made += a->n_rest;
	a->n_rest = 0;
	a->final_limit = a->limit;
	return charge_begin(&a->fd, accounts, s->uid, ACCOUNT_FDS, 1);
}

/* Charges the memory and sends the task to an I/O thread; frees it on failure. 0, negative errno, or ACCOUNT_E_ with
 * the name of the scarce resource. */
static int slot_alloc_begin(struct slot_alloc *a, struct session *s, const char **what)
{
	struct engine *e = s->engine;
	a->task = (struct job_task){ .run = slot_alloc_run, .done = on_made };
	*what = "memory_per_user";
	int r = charge_begin(&a->bytes, &e->budget.accounts, s->uid, ACCOUNT_SLOT_BYTES, a->charged_bytes);
	if (r == 0 && !a->more) {
		*what = "fds_per_user";
		r = charge_fds(s, a);
	}
	if (r) {
		charge_release(&a->bytes);
		free(a);
		return r;
	}
	if (a->more)
		slots_ref(a->slots);
	budget_balance(&e->budget);
	job_task_begin(&a->task, s->job);
	job_task_run(&a->task);
	return 0;
}

/* It is a bonus: if something is scarce now, the trainer keeps the slots that it was told of. */
void slot_alloc_complete(struct session *s, struct slots *slots)
{
	struct loader *l = s->job->loader;
	const char *what;
	if (!slots->may_grow)
		return;
	slots->may_grow = false;
	uint32_t n = slots->n - slots->n_made;
	struct slot_alloc *a =
		n && affordable_slots(s->engine, l, n, &slots->limit) == n ? calloc(1, sizeof(*a)) : NULL;
	if (a)
		*a = (struct slot_alloc){
			.slots = slots, .n_made = n, .charged_bytes = n * l->layout.slot_bytes, .more = true
		};
	slots->growing = a && slot_alloc_begin(a, s, &what) == 0;
	if (!slots->growing)
		slots_end(slots);
}

void slot_alloc_on_taken(struct session *s)
{
	struct stream *stream = s->consumer.stream;
	if (stream && stream_rests(stream))
		slot_alloc_complete(s, stream->slots);
}

/* No more slots will be made. */
static void slot_alloc_fix(struct slots *slots)
{
	assert(!slots->growing && slots->n_made <= slots->n);
	slots_end(slots);
	slots->fixed = true;
}

static void take_more(struct slot_alloc *a, struct loader *l)
{
	struct slots *slots = a->slots;
	slots->n_made += a->n_made;
	if (slots->n_made == slots->n)
		slots->limit = slots->final_limit;
	if (a->fix && a->task.session)
		slot_alloc_fix(slots);
	else if (slots->n_made == slots->n)
		slots_end(slots);
	else
		slots->may_grow |= slots->n_made == slots->n_sure; /* those that follow are a bonus */
	if (a->bytes.account)
		charge_merge(&slots->bytes, &a->bytes);
	for (uint32_t i = 0; l && !l->is_async && i < l->streams.n; i++) {
		if (l->streams.list[i]->slots == slots)
			stream_pump(l->streams.list[i]);
	}
}

/* The memory is there: hands it to the stream, or the group. */
static void slot_alloc_take(struct slot_alloc *a)
{
	struct session *s = a->task.session;
	struct job *j = a->task.job;
	struct loader *l = j->loader;
	if (a->more) {
		take_more(a, l);
		return;
	}
	a->slots->n_sure = a->n_made + a->n_rest;
	a->slots->limit = a->limit;
	a->slots->final_limit = a->final_limit;
	charge_move(&a->slots->bytes, &a->bytes);
	a->slots->slab.payer = a->slots->bytes.account->uid;
	charge_move(&a->slots->fd, &a->fd);
	if (!s || j->state != JOB_READY)
		slots_unref(a->slots);
	else if (a->served)
		producer_job_offer(j, s->consumer.rank, a->slots);
	else if (l->is_async) {
		a->slots->fixed = a->fix;
		group_set_slots(&l->group, a->slots, a->window, group_slot_quota(a->window, l->spec.n_slots));
	} else {
		stream_set_slots(loader_stream(l, s->consumer.rank), a->slots);
		a->slots->may_grow = !a->n_rest && a->slots->n_made < a->slots->n;
	}
}

/* The trainer begins with the first slot while the others are made. */
static void make_the_rest(struct slot_alloc *a, struct job *j)
{
	a->more = true;
	a->n_made = a->n_rest;
	a->n_rest = 0;
	a->slots->growing = true;
	slots_ref(a->slots);
	a->task.session = NULL; /* it no longer waits */
	job_task_begin(&a->task, j);
	job_task_run(&a->task);
}

static void refuse_making(const struct slot_alloc *a, struct refusal *why)
{
	refuse(why, CODE(LIMIT), "memory", "cannot make %llu bytes of shared memory: %s%s",
	       (unsigned long long)a->charged_bytes, strerror(-a->result),
	       a->result == -EFBIG ? ": raise ulimit -f, which holds for memory, too, where the daemon starts" : "");
}

/* The rest could not be made: those that count on it end. */
static void end_without_rest(struct slot_alloc *a)
{
	struct refusal why;
	refuse_making(a, &why);
	charge_shrink(&a->slots->bytes, a->n_made * a->slots->layout.slot_bytes);
	for (struct session *s = a->task.job->sessions, *next; s; s = next) {
		next = s->next_in_job;
		if (s->consumer.slots == a->slots)
			a->task.job->engine->job_ops->end(s, &why);
	}
}

static void on_made(struct job_task *t)
{
	struct slot_alloc *a = container_of(t, struct slot_alloc, task);
	struct session *s = t->session;
	struct job *j = t->job;
	struct engine *e = j->engine;
	assert(!a->share || j->slots_pending);
	if (a->share)
		j->slots_pending = false;
	bool grew = a->more && a->slots->growing;
	if (grew)
		a->slots->growing = false;
	if (grew && a->result)
		slots_end(a->slots);
	if (a->result) {
		charge_release(&a->bytes);
		charge_release(&a->fd);
		if (s && a->bonus) {
			slot_alloc_fix(a->slots);
		} else if (s) {
			struct refusal why;
			refuse_making(a, &why);
			e->job_ops->end(s, &why);
		} else if (grew && a->slots->n_made < a->slots->n_sure) {
			end_without_rest(a);
		}
	} else {
		slot_alloc_take(a);
		if (a->n_rest && s && j->state == JOB_READY) {
			make_the_rest(a, j);
			return;
		}
	}
	if (a->more)
		slots_unref(a->slots);
	free(a);
}

/* How many slots a group gets with its first trainer on a GPU: at least n, including the `more` that it already has, if
 * any. */
static uint32_t fixed_slots(struct engine *e, const struct loader *l, const struct slots *more, uint32_t n,
			    enum slots_limit *limit)
{
	const struct group *g = &l->group;
	uint32_t all = more ? gpu_slots(g->window, g->slot_quota) : gpu_slots(n, group_slot_quota(n, l->spec.n_slots)),
		 had = more ? more->n_made : 0;
	if (all > had + n)
		n = affordable_slots(e, l, all - had, limit);
	return more && n > more->n - had ? more->n - had : n;
}

/* The slots of the process's last loader, if they are as many as this one would get. */
static bool take_spare(struct session *s)
{
	struct engine *e = s->engine;
	struct loader *l = s->job->loader;
	enum slots_limit limit, enough;
	uint32_t n = wanted_slots(e, l, &limit), plenty = most_plenty(l, &enough);
	uint32_t most = e->config->slots || l->spec.n_slots ? 0 : plenty;
	if (l->spec.share || l->spec.served || s->device.asked)
		return false;
	struct slots *slots = spare_take(e, s->pid, s->uid, &l->layout, n, n > most ? n : most);
	if (!slots)
		return false;
	slots->final_limit = enough;
	slots->limit = slots->n_made > n ? slots->final_limit : limit;
	stream_set_slots(loader_stream(l, s->consumer.rank), slots);
	return true;
}

int slot_alloc_request(struct session *s, struct refusal *why)
{
	struct engine *e = s->engine;
	struct loader *l = s->job->loader;
	assert(!s->slot_alloc && s->state == SESSION_OPENING);
	if (take_spare(s))
		return SLOT_ALLOC_THERE;
	struct slots *more = l->is_async ? l->group.slots : NULL; /* the group is at work: this trainer's share */
	uint32_t least = more ? group_n_missing(&l->group) : MIN_SLOTS;
	enum slots_limit limit = SLOTS_LIMIT_NONE, final_limit;
	uint32_t wanted = more ? least : wanted_slots(e, l, &limit);
	uint32_t n = affordable_slots(e, l, wanted, &limit), window = n;
	if (n < least || (more && least > more->n - more->n_made))
		return refuse_slots(s, least, why);
	bool fixes = l->is_async && s->device.asked;
	if (fixes)
		n = fixed_slots(e, l, more, n, &limit);
	final_limit = limit;
	if (more && n == 0) {
		slot_alloc_fix(more);
		return SLOT_ALLOC_THERE;
	}
	/* A GPU pins the slab as a whole, and members of a group count on all slots. */
	bool first = !l->spec.share && !l->spec.served && !s->device.asked && n > 1;
	struct slot_alloc *a = calloc(1, sizeof(*a));
	const char *what = "";
	int r = -ENOMEM;
	if (a) {
		*a = (struct slot_alloc){ .layout = l->layout,
					  .nodes = e->nodes,
					  .slots = more,
					  .more = more != NULL,
					  .share = l->spec.share,
					  .served = l->spec.served,
					  .n = more || fixes ? n : final_slots(e, s, l, n, &final_limit),
					  .n_made = first ? 1 : n,
					  .n_rest = first ? n - 1 : 0,
					  .window = window,
					  .limit = limit,
					  .fix = fixes,
					  .bonus = fixes && more && !least,
					  .charged_bytes = n * l->layout.slot_bytes };
		a->final_limit = final_limit;
		if (a->n == n)
			a->limit = final_limit;
		r = slot_alloc_begin(a, s, &what);
	}
	if (r < 0)
		return refuse_memory(why);
	if (r)
		return refuse(
			why, CODE(LIMIT), what,
			"the daemon has too much memory or too many descriptors in use for this user (limits in its configuration)");
	job_task_await(&a->task, s, &s->slot_alloc);
	if (a->share)
		s->job->slots_pending = true;
	return 0;
}
