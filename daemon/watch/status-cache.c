/* See status-cache.h. */
#include "watch/status-cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/engine.h"
#include "server/ipc/packed-message.h"
#include "watch/status.h"
#include "base/thread-kind.h"

enum { PART = 20, SAVED_NS = 20000000 }; /* the most that may be made in a row after a pause: about a hundred reports */

static void report_finish(struct status_report *r)
{
	for (unsigned i = 0; i < r->n; i++)
		packed_message_unref(r->messages[i]);
	free(r->messages);
	r->messages = NULL;
	r->n = 0;
}

void status_cache_finish(struct status_cache *r)
{
	assert(is_loop_thread());
	for (unsigned i = 0; i < STATUS_CACHE_USERS; i++)
		report_finish(&r->of[i]);
}

static struct packed_message *make_packed(const char *text, size_t n, bool more)
{
	Batchd__Wire__Status status = BATCHD__WIRE__STATUS__INIT;
	status.json.data = (uint8_t *)text;
	status.json.len = n;
	status.more = more;
	return packed_message_make(WIRE_SERVER(STATUS, status, &status));
}

static void report_pack(struct status_report *r, const char *text)
{
	size_t left = strlen(text), n = (left + WIRE_MAX_STATUS - 1) / WIRE_MAX_STATUS;
	r->messages = calloc(n, sizeof(struct packed_message *));
	for (size_t i = 0, at = 0; r->messages && i < n; i++) {
		size_t part = left < WIRE_MAX_STATUS ? left : WIRE_MAX_STATUS;
		left -= part;
		r->messages[i] = make_packed(text + at, part, left > 0);
		at += part;
		if (!r->messages[i]) {
			report_finish(r);
			return;
		}
		r->n++;
	}
}

static uint64_t thread_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static bool may_make(struct status_report *r)
{
	uint64_t now = uv_hrtime(), earned = (now - r->earned_ns) / PART;
	r->spent_ns -= earned < r->spent_ns ? earned : r->spent_ns;
	r->earned_ns = now;
	return r->spent_ns < SAVED_NS;
}

/* The viewer's report, or the one whose viewer has not asked for longest. */
static struct status_report *find_report(struct status_cache *all, uid_t viewer)
{
	struct status_report *r = all->of;
	for (struct status_report *other = all->of; other < all->of + STATUS_CACHE_USERS; other++) {
		if (other->asked && other->viewer == viewer)
			return other;
		if (other->asked < r->asked)
			r = other;
	}
	report_finish(r);
	*r = (struct status_report){ .viewer = viewer };
	return r;
}

const struct status_report *status_cache_get(struct engine *e, uid_t viewer)
{
	assert(is_loop_thread());
	struct status_report *r = find_report(e->status_cache, viewer == geteuid() ? 0 : viewer);
	r->asked = ++e->status_cache->n_asked;
	if (r->n && !may_make(r))
		return r;
	uint64_t began = thread_ns();
	char *text = status_json(e, r->viewer);
	report_finish(r);
	if (text)
		report_pack(r, text);
	free(text);
	r->spent_ns += thread_ns() - began;
	return r->n ? r : NULL;
}
