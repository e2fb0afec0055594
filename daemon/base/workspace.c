/* See workspace.h. The lock is taken when a buffer grows or is freed; in steady state neither happens. */
#include "base/workspace.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/trace.h"

enum { ALIGN = 64, RESERVE_PART = 4, AHEAD_PART = 4, KEPT_PART = 4 };

static _Thread_local struct workspace *current;

void work_memory_init(struct work_memory *m, uint64_t all_bytes)
{
	assert(all_bytes > 0);
	*m = (struct work_memory){ .left_bytes = all_bytes / RESERVE_PART,
				   .reserve_bytes = all_bytes - all_bytes / RESERVE_PART };
	m->ahead_left_bytes = m->ahead_bytes = m->left_bytes / AHEAD_PART;
	m->kept_bytes = m->left_bytes / KEPT_PART;
	m->turn = 1;
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->changed, NULL);
}

void work_memory_finish(struct work_memory *m)
{
	assert(m->used_bytes == 0 && !m->holder && !m->in_use && !m->waiting);
	pthread_cond_destroy(&m->changed);
	pthread_mutex_destroy(&m->lock);
}

uint64_t work_memory_used(struct work_memory *m)
{
	pthread_mutex_lock(&m->lock);
	uint64_t used = m->used_bytes;
	pthread_mutex_unlock(&m->lock);
	return used;
}

/* ---- stages ---- */

static enum stage stage_move(struct workspace *ws, enum stage to)
{
	enum stage from = (enum stage)atomic_load_explicit(&ws->stage, memory_order_relaxed);
	if (trace_is_on()) {
		uint64_t now = clock_now_ns();
		ws->stage_ns[from] += now - ws->stage_began_ns;
		ws->stage_began_ns = now;
	}
	atomic_store_explicit(&ws->stage, (unsigned char)to, memory_order_relaxed);
	return from;
}

enum stage workspace_stage(enum stage to)
{
	return current ? stage_move(current, to) : STAGE_NONE;
}

/* ---- between users; under the lock ---- */

static long long user_of(const struct workspace *ws)
{
	return atomic_load_explicit(&ws->user, memory_order_relaxed);
}

static bool is_first_of_its_user(const struct work_memory *m, const struct workspace *ws)
{
	const struct workspace *other = m->in_use;
	while (other && (other == ws || user_of(other) != user_of(ws)))
		other = other->next_in_use;
	return !other;
}

static bool fits_into_shared(const struct work_memory *m, const struct workspace *ws, uint64_t n)
{
	if (n > m->left_bytes)
		return false;
	if (ws->ahead)
		return n <= m->ahead_left_bytes;
	return n + m->kept_bytes <= m->left_bytes || is_first_of_its_user(m, ws);
}

/* A user that begins to wait comes before the one that has the reserve, and after those that have waited before. */
static void begin_to_wait(struct work_memory *m, struct workspace *ws)
{
	const struct workspace *other = m->waiting;
	while (other && user_of(other) != user_of(ws))
		other = other->next_waiting;
	ws->turn = other ? other->turn : m->last_user == user_of(ws) ? m->turn : m->turn - 1;
	list_append(&m->waiting, ws, next_waiting);
	m->n_waiting++;
}

static void end_waiting(struct work_memory *m, struct workspace *ws)
{
	list_remove(&m->waiting, ws, next_waiting);
	m->n_waiting--;
}

static const struct workspace *next_for_reserve(const struct work_memory *m)
{
	const struct workspace *best = m->waiting;
	for (const struct workspace *ws = best; ws; ws = ws->next_waiting)
		best = ws->turn < best->turn ? ws : best;
	return best;
}

static void give_reserve(struct work_memory *m, struct workspace *ws)
{
	m->holder = ws;
	ws->holds = true;
	m->turn += 2;
	m->last_user = user_of(ws);
	for (struct workspace *other = m->waiting; other; other = other->next_waiting)
		other->turn = user_of(other) == user_of(ws) ? m->turn : other->turn;
}

/* ---- taking and giving ---- */

/* Under the lock. */
static bool workspace_grab(struct work_memory *m, struct workspace *ws, uint64_t n)
{
	const struct workspace *next = next_for_reserve(m);
	if (fits_into_shared(m, ws, n)) {
		m->left_bytes -= n;
		m->ahead_left_bytes -= ws->ahead ? n : 0;
	} else if (ws->ahead || (m->holder ? m->holder != ws : next && next != ws)) {
		return false;
	} else { /* there is enough: a workspace may have at most the reserve, and the whole reserve is this one's */
		if (!m->holder)
			give_reserve(m, ws);
		ws->reserved_bytes += n;
	}
	if (!ws->ahead && ws->used_bytes == 0 && n > 0)
		list_push(&m->in_use, ws, next_in_use);
	ws->used_bytes += n;
	m->used_bytes += n;
	return true;
}

/* Waits until the workspace has the bytes. Under the lock. */
static void wait_for_bytes(struct work_memory *m, struct workspace *ws, uint64_t n)
{
	begin_to_wait(m, ws);
	enum stage before = stage_move(ws, STAGE_MEMORY);
	while (!workspace_grab(m, ws, n))
		pthread_cond_wait(&m->changed, &m->lock);
	stage_move(ws, before);
	end_waiting(m, ws);
	if (m->waiting && !m->holder) /* another is next for the reserve */
		pthread_cond_broadcast(&m->changed);
}

static bool workspace_take(struct workspace *ws, uint64_t n)
{
	struct work_memory *m = ws->of;
	if (!m) {
		ws->used_bytes += n;
		return true;
	}
	bool got = false;
	if (n <= m->reserve_bytes - ws->used_bytes) {
		pthread_mutex_lock(&m->lock);
		got = workspace_grab(m, ws, n);
		if (!got && !ws->ahead) {
			wait_for_bytes(m, ws, n);
			got = true;
		}
		pthread_mutex_unlock(&m->lock);
	}
	if (!got)
		ws->refused_bytes = ws->used_bytes + n;
	return got;
}

static void workspace_give(struct workspace *ws, uint64_t n)
{
	struct work_memory *m = ws->of;
	assert(n <= ws->used_bytes);
	if (!m) {
		ws->used_bytes -= n;
		return;
	}
	uint64_t reserved = n < ws->reserved_bytes ? n : ws->reserved_bytes;
	pthread_mutex_lock(&m->lock);
	ws->used_bytes -= n;
	if (!ws->ahead && ws->used_bytes == 0 && n > 0)
		list_remove(&m->in_use, ws, next_in_use);
	ws->reserved_bytes -= reserved;
	m->left_bytes += n - reserved;
	m->ahead_left_bytes += ws->ahead ? n : 0;
	m->used_bytes -= n;
	if (m->n_waiting)
		pthread_cond_broadcast(&m->changed);
	pthread_mutex_unlock(&m->lock);
}

void workspace_enter(struct workspace *ws, uid_t uid)
{
	atomic_store_explicit(&ws->user, 1 + (long long)uid, memory_order_relaxed);
	ws->refused_bytes = 0;
	current = ws;
}

void workspace_leave(struct workspace *ws)
{
	atomic_store_explicit(&ws->user, 0, memory_order_relaxed);
	atomic_store_explicit(&ws->stage, STAGE_NONE, memory_order_relaxed);
	current = NULL;
	if (!ws->holds)
		return;
	assert(ws->reserved_bytes == 0);
	ws->holds = false;
	pthread_mutex_lock(&ws->of->lock);
	ws->of->holder = NULL;
	pthread_cond_broadcast(&ws->of->changed);
	pthread_mutex_unlock(&ws->of->lock);
}

bool workspace_is_ahead(void)
{
	return current && current->ahead;
}

/* glibc makes a thread's arena large enough for the thread's first allocation, and never shrinks it. If that is a large
 * buffer by aligned_alloc, it stays, whatever M_MMAP_THRESHOLD says; so something small is allocated first. */
static void make_arena(void)
{
	static _Thread_local bool made;
	if (made)
		return;
	void *volatile small = malloc(1); /* volatile: else the compiler removes it */
	free(small);
	made = true;
}

void *work_alloc(size_t bytes, struct workspace **payer)
{
	struct workspace *ws = current;
	*payer = NULL;
	if (bytes > SIZE_MAX / 2)
		return NULL;
	if (ws && ws->ahead && bytes <= WORK_AHEAD_FREE_BYTES)
		ws = NULL;
	if (ws && !workspace_take(ws, bytes))
		return NULL;
	make_arena();
	void *p = aligned_alloc(ALIGN, (bytes + ALIGN - 1) / ALIGN * ALIGN);
	if (!p && ws)
		workspace_give(ws, bytes);
	else
		*payer = ws;
	return p;
}

void work_free(void *p, size_t bytes, struct workspace *payer)
{
	free(p);
	if (p && payer)
		workspace_give(payer, bytes);
}

bool work_borrow(uint64_t bytes, struct workspace **payer)
{
	*payer = current;
	return !current || workspace_take(current, bytes);
}

void work_return(uint64_t bytes, struct workspace *payer)
{
	if (payer)
		workspace_give(payer, bytes);
}
