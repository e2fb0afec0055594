/* See single-images.h. A client's slab, pipeline and queue live until its connection has ended and no worker is in a
 * job of them: so this object outlives its session, and the engine counts those that there are.
 *
 * The client's own memory, from which images are read, is a memfd: reading any other file could make a worker wait for a
 * server. */
#include "server/single-images.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batch/image-jobs.h"
#include "server/job.h"
#include "image/transform/views.h"
#include "base/closing.h"
#include "base/container.h"
#include "base/log.h"
#include "base/size.h"
#include "base/thread-kind.h"

#define CODE(name) BATCHD__WIRE__ERROR_CODE__##name

enum { LEAST_SLOTS = 8, SLOTS_PER_WORKER = 4, PAGE_BYTES = 4096 };
#define MOST_SLAB_BYTES (UINT64_C(64) << 20) /* beyond it there are fewer slots, but for one */

struct single_images {
	struct engine *engine;
	struct session *session; /* NULL: its connection has ended */
	uid_t uid;
	bool opening;
	struct pool_task task;
	struct recipe recipe;
	struct slab slab;
	struct image_jobs jobs;
	struct charge bytes, fds;
	uint64_t n_made, n_bad;
	/* Of LoadOpen, for the I/O thread; and its result. */
	char *transform;
	enum dtype dtype;
	enum layout layout;
	unsigned n_wanted;
	uint64_t most_bytes; /* limits.batch_bytes, which a reload may replace meanwhile */
	int result;          /* 0, or REFUSED with why */
	struct refusal why;
};

/* ---- the end ---- */

static void single_images_free(struct single_images *l)
{
	assert(!l->session && !l->opening && !l->jobs.n_busy);
	struct engine *e = l->engine;
	image_jobs_finish(&l->jobs);
	recipe_finish(&l->recipe);
	closing_add(l->uid, &l->jobs.fd, 1);
	slab_finish(&l->slab);
	charge_release(&l->bytes);
	charge_release(&l->fds);
	budget_balance(&e->budget);
	free(l->transform);
	free(l);
	e->n_loads--;
	e->on_ended(e);
}

static void single_images_free_if_unused(struct single_images *l)
{
	if (!l->session && !l->opening && !l->jobs.n_busy)
		single_images_free(l);
}

void single_images_on_closed(struct session *s)
{
	assert(is_loop_thread());
	struct single_images *l = s->single_images;
	if (!l)
		return;
	s->single_images = NULL;
	l->session = NULL;
	image_jobs_cancel(&l->jobs);
	single_images_free_if_unused(l);
}

/* ---- opening ---- */

static int single_images_make_slab(struct single_images *l, uint64_t slot_bytes)
{
	uint64_t n = MOST_SLAB_BYTES / slot_bytes;
	char size[32], limit[32];
	n = n < 1 ? 1 : n > l->n_wanted ? l->n_wanted : n;
	size_format(slot_bytes, size, sizeof(size));
	if (slot_bytes > l->most_bytes)
		return refuse(&l->why, CODE(LIMIT), "batch_bytes",
			      "an image takes %s after this transform, more than the %s that limits.batch_bytes in the "
			      "daemon's configuration allows",
			      size, size_format(l->most_bytes, limit, sizeof(limit)));
	int r;
	/* With fewer slots the workers wait for the client now and then, but with one everything works. */
	while ((r = charge_begin(&l->bytes, &l->engine->budget.accounts, l->uid, ACCOUNT_SLOT_BYTES, n * slot_bytes)) >
		       0 &&
	       n > 1)
		n /= 2;
	if (r > 0)
		return refuse(&l->why, CODE(LIMIT), r == ACCOUNT_E_USER ? "memory_per_user" : "memory",
			      "no memory for the rows of single images: they take %u slots of %s (%s in the daemon's "
			      "configuration); close loaders, or load without the daemon (inline)",
			      (unsigned)n, size, r == ACCOUNT_E_USER ? "limits.memory_per_user" : "memory");
	if (r || slab_init(&l->slab, n * slot_bytes, n * slot_bytes))
		return refuse_memory(&l->why);
	l->jobs.n = (unsigned)n;
	l->jobs.slot_bytes = slot_bytes;
	return 0;
}

/* I/O thread: pages take a while to make. */
static void single_images_open_here(struct pool_task *t)
{
	struct single_images *l = container_of(t, struct single_images, task);
	const struct image_form form = { .n_channels = 3 };
	struct pipeline_error err = { .text = "" };
	const char *transform = *l->transform ? l->transform : "val224";
	int r = views_parse(transform, &form, l->dtype, l->layout, &l->recipe.pipeline, &err);
	if (r == -ENOMEM)
		l->result = refuse_memory(&l->why);
	else if (r)
		l->result = refuse(&l->why, CODE(INVALID), "transform", "%s", err.text);
	else if (views_n(l->recipe.pipeline) > 1)
		l->result =
			refuse(&l->why, CODE(INVALID), "transform",
			       "the transform has several views, and a single image gets one: load it once for each");
	else
		l->result = single_images_make_slab(l, (pipeline_row_bytes(l->recipe.pipeline) + PAGE_BYTES - 1) /
							       PAGE_BYTES * PAGE_BYTES);
}

static void single_images_send_opened(struct single_images *l)
{
	Batchd__Wire__LoadOpened m = BATCHD__WIRE__LOAD_OPENED__INIT;
	uint32_t shape[3];
	pipeline_shape(l->recipe.pipeline, shape);
	m.n_slots = l->jobs.n;
	m.slot_bytes = l->jobs.slot_bytes;
	m.row_bytes = pipeline_row_bytes(l->recipe.pipeline);
	m.n_shape = 3;
	m.shape = shape;
	peer_send(l->session->peer, WIRE_SERVER(LOAD_OPENED, load_opened, &m), &l->slab.fd, 1);
}

static void single_images_on_job_done(struct image_jobs *of, struct image_job *j)
{
	struct single_images *l = container_of(of, struct single_images, jobs);
	Batchd__Wire__Loaded m = BATCHD__WIRE__LOADED__INIT;
	m.slot = (uint32_t)(j - of->job);
	m.code = j->result == 0 ? CODE(OK) : j->result == SAMPLE_E_BAD ? CODE(BAD_DATA) : CODE(INTERNAL);
	m.text = m.code == CODE(OK) ? (char *)"" : m.code == CODE(BAD_DATA) ? j->error.text : (char *)"out of memory";
	l->n_made += m.code == CODE(OK);
	l->n_bad += m.code == CODE(BAD_DATA);
	if (l->session)
		peer_send(l->session->peer, WIRE_SERVER(LOADED, loaded, &m), NULL, 0);
	single_images_free_if_unused(l);
}

static void single_images_on_opened(struct pool_task *t)
{
	struct single_images *l = container_of(t, struct single_images, task);
	struct engine *e = l->engine;
	assert(l->opening);
	l->opening = false;
	l->slab.payer = l->uid;
	if (l->slab.base)
		budget_balance(&e->budget);
	if (l->result == 0 && l->session && image_jobs_init(&l->jobs, e->pool, l->uid))
		l->result = refuse_memory(&l->why);
	if (!l->session)
		single_images_free_if_unused(l);
	else if (l->result)
		e->job_ops->end(l->session, &l->why);
	else
		single_images_send_opened(l);
}

/* Each worker has one in work, one waits for it, and the client copies and sends the others meanwhile. */
static unsigned single_images_n_wanted(struct engine *e)
{
	struct pool_stats stats;
	pool_get_stats(e->pool, &stats);
	unsigned n = SLOTS_PER_WORKER * stats.max;
	return n < LEAST_SLOTS ? LEAST_SLOTS : n > WIRE_MAX_LOADS ? WIRE_MAX_LOADS : n;
}

static void single_images_begin(struct session *s, const Batchd__Wire__LoadOpen *m, struct single_images *l)
{
	struct engine *e = s->engine;
	l->engine = e;
	l->session = s;
	l->uid = s->uid;
	l->dtype = (enum dtype)m->dtype;
	l->layout = (enum layout)m->layout;
	l->recipe.apply_exif = m->apply_exif;
	l->recipe.uid = s->uid;
	l->jobs.recipe = &l->recipe;
	l->jobs.slab = &l->slab;
	l->jobs.done = single_images_on_job_done;
	l->n_wanted = single_images_n_wanted(e);
	l->most_bytes = e->config->limits.batch_bytes;
	l->slab.fd = l->slab.writable_fd = -1;
	l->opening = true;
	l->task =
		(struct pool_task){ .run = single_images_open_here, .done = single_images_on_opened, .owner = l->uid };
	s->single_images = l;
	e->n_loads++;
	pool_run_task(e->pool, &l->task);
}

int single_images_on_open(struct session *s, const struct message *m, struct refusal *why)
{
	assert(is_loop_thread());
	assert(!s->single_images);
	const Batchd__Wire__LoadOpen *open = m->body->load_open;
	if (fcntl(m->fds[0], F_GET_SEALS) < 0)
		return refuse(why, CODE(INVALID), NULL,
			      "the descriptor of LoadOpen is no memfd: a client reads its files itself");
	struct single_images *l = calloc(1, sizeof(*l));
	if (l)
		l->transform = strdup(open->transform);
	int r = !l || !l->transform ? -ENOMEM
				    : charge_begin(&l->fds, &s->engine->budget.accounts, s->uid, ACCOUNT_FDS, 2);
	if (r == 0) {
		l->jobs.fd = m->fds[0];
		m->fds[0] = -1;
		single_images_begin(s, open, l);
		return 0;
	}
	if (l)
		free(l->transform);
	free(l);
	return r < 0 ? refuse_memory(why)
		     : refuse(why, CODE(LIMIT), "fds_per_user",
			      "too many of the daemon's descriptors are in use for a client that loads images "
			      "(limits.fds_per_user in the daemon's configuration)");
}

/* ---- an image ---- */

int single_images_on_load(struct session *s, const struct message *m, struct refusal *why)
{
	assert(is_loop_thread());
	const Batchd__Wire__Load *wanted = m->body->load;
	struct single_images *l = s->single_images;
	if (l->opening)
		return refuse(why, CODE(PROTOCOL), NULL, "Load before LoadOpened");
	if (wanted->slot >= l->jobs.n || l->jobs.job[wanted->slot].busy)
		return refuse(why, CODE(PROTOCOL), "slot", "Load for a slot that is in use, or that is not there");
	image_jobs_submit(&l->jobs, wanted->slot, wanted->offset, wanted->n_bytes,
			  (struct sample_key){ .seed = wanted->seed, .epoch = wanted->epoch, .index = wanted->index });
	return 0;
}

json_t *single_images_status_json(const struct session *s)
{
	const struct single_images *l = s->single_images;
	if (!l || l->opening)
		return NULL;
	return json_pack("{s:i, s:i, s:I, s:I}", "slots", (int)l->jobs.n, "busy", (int)l->jobs.n_busy, "made",
			 (json_int_t)l->n_made, "bad", (json_int_t)l->n_bad);
}
