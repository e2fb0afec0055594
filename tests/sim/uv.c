/* A clock that moves only when an event moves it, and the part of libuv's handles that the daemon's state machines use.
 * See sim.h. */
#include "sim.h"

struct handle {
	struct handle *next;
	uv_handle_t *h;
	uv_close_cb on_closed;
	uv_timer_cb on_time;
	uv_poll_cb on_poll;
	uint64_t due_ms, repeat_ms;
	int fd;
	bool active, closing;
};

static struct handle *handles;
static const uv_handle_t *held, *aside;
static uint64_t now_ms = 1000;

static struct handle *find(const uv_handle_t *h)
{
	for (struct handle *x = handles; x; x = x->next) {
		if (x->h == h)
			return x;
	}
	sim_fail("a handle is used that was never opened, or is closed already");
}

static int add(uv_handle_t *h, int fd)
{
	struct handle *x = calloc(1, sizeof(*x));
	x->h = h;
	x->fd = fd;
	x->next = handles;
	handles = x;
	return 0;
}

uint64_t uv_now(const uv_loop_t *loop)
{
	(void)loop;
	return now_ms;
}

uint64_t uv_hrtime(void)
{
	return now_ms * 1000000;
}

static void forget(struct handle *x)
{
	struct handle **at = &handles;
	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	free(x);
}

int uv_timer_init(uv_loop_t *loop, uv_timer_t *t)
{
	(void)loop;
	return add((uv_handle_t *)t, -1);
}

int uv_timer_start(uv_timer_t *t, uv_timer_cb fn, uint64_t timeout_ms, uint64_t repeat_ms)
{
	struct handle *x = find((uv_handle_t *)t);
	SIM_CHECK(!x->closing, "a closing timer is started");
	x->on_time = fn;
	x->due_ms = now_ms + timeout_ms;
	x->repeat_ms = repeat_ms;
	x->active = true;
	return 0;
}

int uv_timer_stop(uv_timer_t *t)
{
	find((uv_handle_t *)t)->active = false;
	return 0;
}

int uv_poll_init(uv_loop_t *loop, uv_poll_t *p, int fd)
{
	(void)loop;
	(void)sim_fd_thing(fd); /* checks that it is open */
	return add((uv_handle_t *)p, fd);
}

int uv_poll_start(uv_poll_t *p, int events, uv_poll_cb fn)
{
	struct handle *x = find((uv_handle_t *)p);
	(void)events;
	SIM_CHECK(!x->closing, "a closing poll is started");
	x->on_poll = fn;
	x->active = true;
	return 0;
}

int uv_poll_stop(uv_poll_t *p)
{
	find((uv_handle_t *)p)->active = false;
	return 0;
}

int uv_is_active(const uv_handle_t *h)
{
	return find(h)->active;
}

int uv_is_closing(const uv_handle_t *h)
{
	return find(h)->closing;
}

void uv_close(uv_handle_t *h, uv_close_cb fn)
{
	struct handle *x = find(h);
	SIM_CHECK(!x->closing, "a handle is closed twice");
	x->closing = true;
	x->active = false;
	x->on_closed = fn;
	if (!fn) /* the root's timer: nothing happens then, so it does not count as an event */
		forget(x);
}

static void fire_if_due(struct handle *x)
{
	if (!x->active || x->due_ms > now_ms)
		return;
	x->active = false;
	x->on_time((uv_timer_t *)x->h);
}

bool sim_timer_fires(bool later)
{
	struct handle *best = NULL;
	for (struct handle *x = handles; x; x = x->next) {
		if (x->active && x->on_time && x->h != held && x->h != aside && (!best || x->due_ms < best->due_ms))
			best = x;
	}
	if (!best || (!later && best->due_ms > now_ms))
		return false;
	if (best->due_ms > now_ms)
		now_ms = best->due_ms;
	best->active = best->repeat_ms > 0;
	best->due_ms = now_ms + best->repeat_ms;
	best->on_time((uv_timer_t *)best->h);
	if (aside)
		fire_if_due(find(aside));
	return true;
}

void sim_timer_put_aside(const uv_timer_t *t)
{
	aside = (const uv_handle_t *)t;
}

void sim_timer_hold(const uv_timer_t *t)
{
	held = (const uv_handle_t *)t;
}

void sim_held_timer_fires(void)
{
	struct handle *x = find(held);
	if (!x->active)
		return;
	x->active = false;
	x->on_time((uv_timer_t *)x->h);
}

bool sim_poll_fires(int fd)
{
	for (struct handle *x = handles; x; x = x->next) {
		if (x->active && x->on_poll && x->fd == fd) {
			x->on_poll((uv_poll_t *)x->h, 0, UV_READABLE);
			return true;
		}
	}
	return false;
}

bool sim_handle_closes(void)
{
	for (struct handle **at = &handles; *at; at = &(*at)->next) {
		struct handle *x = *at;
		if (!x->closing)
			continue;
		*at = x->next;
		x->on_closed(x->h);
		free(x);
		return true;
	}
	return false;
}

unsigned sim_n_handles(void)
{
	unsigned n = 0;
	for (const struct handle *x = handles; x; x = x->next)
		n++;
	return n;
}
