/* See metrics.h. The HTTP thread asks the loop for a status by an async handle and waits a second for it at most; it
 * keeps each viewer's for a second, so readers cost the loop no more than that, however many there are and however
 * often they ask.
 *
 * What a reader sees of jobs is what the status shows to its user: over a Unix socket the peer's, else no user's, so
 * that other users of the machine learn no names over TCP. Pictures are for the job's own user alone. */
#include "watch/metrics.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/engine.h"
#include "watch/http.h"
#include "watch/last-batch.h"
#include "config/metrics-address.h"
#include "watch/metrics-text.h"
#include "watch/status.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/thread-kind.h"

enum { VIEWERS = 4, KEEP_MS = 900, PATIENCE_S = 1 };

struct kept_status {
	uid_t viewer;
	char *json; /* NULL: none */
	uint64_t at_ms;
};

/* What the HTTP thread wants to know of the loop. */
struct question {
	uint64_t number; /* so that an answer to one that was given up is told from that to the next */
	uid_t viewer;
	bool pictures; /* of this job's last batch; otherwise a status */
	uint64_t job;
};

struct answer {
	unsigned status; /* HTTP's */
	char *text;      /* NULL: none */
};

struct metrics {
	struct engine *engine;
	struct metrics_address address;
	struct http *http;
	uv_async_t asked; /* wakes the loop */
	pthread_mutex_t lock;
	pthread_cond_t answered;
	/* Under the lock: */
	bool is_asked, stopping;
	uint64_t n_questions;
	struct question question;
	struct answer answer; /* no text: none */
	/* The loop's: */
	struct last_batch_turns turns;
	/* The HTTP thread's: */
	struct kept_status kept[VIEWERS];
};

extern const char metrics_page[] __attribute__((visibility("hidden")));
extern const char metrics_page_end[] __attribute__((visibility("hidden")));
__asm__(".pushsection .rodata\n"
	".hidden metrics_page\n.globl metrics_page\nmetrics_page:\n"
	".incbin \"" METRICS_PAGE "\"\n"
	".hidden metrics_page_end\n.globl metrics_page_end\nmetrics_page_end:\n"
	".byte 0\n.popsection\n");

/* ---- the loop's side ---- */

static struct answer answer_question(struct metrics *m, const struct question *q)
{
	struct answer a = { .status = 200 };

	/* A daemon that stops takes itself apart while its GPUs' memory is freed, which takes seconds. */
	if (!m->engine->pool)
		return a;
	if (q->pictures)
		a.status = last_batch_answer(m->engine, &m->turns, q->job, q->viewer, &a.text);
	else
		a.text = status_json(m->engine, q->viewer == geteuid() ? 0 : q->viewer);
	return a;
}

static void on_asked(uv_async_t *async)
{
	struct metrics *m = async->data;
	struct question question;
	struct answer answer;
	bool is_asked;

	pthread_mutex_lock(&m->lock);
	question = m->question;
	is_asked = m->is_asked;
	pthread_mutex_unlock(&m->lock);
	if (!is_asked)
		return;
	answer = answer_question(m, &question);
	pthread_mutex_lock(&m->lock);
	if (m->is_asked && m->question.number == question.number) {
		m->answer = answer;
		answer.text = NULL;
		m->is_asked = false;
		pthread_cond_signal(&m->answered);
	}
	pthread_mutex_unlock(&m->lock);
	free(answer.text); /* to a question that was given up, whose asker may be another user than the next one's */
}

/* ---- the HTTP thread's side ---- */

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The caller frees the text. */
static struct answer ask_loop(struct metrics *m, const struct question *question)
{
	struct answer answer;
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += PATIENCE_S;
	pthread_mutex_lock(&m->lock);
	m->is_asked = !m->stopping;
	m->question = *question;
	m->question.number = ++m->n_questions;
	if (m->is_asked)
		uv_async_send(&m->asked);
	while (m->is_asked && pthread_cond_timedwait(&m->answered, &m->lock, &until) == 0)
		;
	answer = m->answer;
	m->answer = (struct answer){ .text = NULL };
	m->is_asked = false;
	pthread_mutex_unlock(&m->lock);
	return answer;
}

/* Owned by m, valid until the next call. NULL: the loop has not answered. */
static const char *status_of(struct metrics *m, uid_t viewer)
{
	uint64_t now = now_ms();
	struct kept_status *k = m->kept;

	for (struct kept_status *other = m->kept; other < m->kept + VIEWERS; other++) {
		if (other->json && other->viewer == viewer) {
			k = other;
			break;
		}
		if (other->at_ms < k->at_ms)
			k = other;
	}
	if (k->json && k->viewer == viewer && now - k->at_ms < KEEP_MS)
		return k->json;
	free(k->json);
	*k = (struct kept_status){ .viewer = viewer,
				   .json = ask_loop(m, &(struct question){ .viewer = viewer }).text,
				   .at_ms = now };
	return k->json;
}

static void answer_error(struct http_answer *out, unsigned status, const char *text)
{
	out->status = status;
	out->body = strdup(text);
	out->n_bytes = out->body ? strlen(text) : 0;
}

static void answer_page(struct http_answer *out)
{
	out->n_bytes = (size_t)(metrics_page_end - metrics_page);
	out->body = malloc(out->n_bytes);
	out->type = "text/html; charset=utf-8";
	if (out->body)
		memcpy(out->body, metrics_page, out->n_bytes);
	else
		out->n_bytes = 0;
}

/* "NUMBER.json" */
static void answer_pictures(struct metrics *m, const char *name, uid_t uid, struct http_answer *out)
{
	struct question q = { .viewer = uid, .pictures = true };
	struct answer a = { .status = 404 };
	char number[24] = "";
	size_t n = strlen(name);

	if (n > 5 && n - 5 < sizeof number && !strcmp(name + n - 5, ".json"))
		memcpy(number, name, n - 5);
	if (number_parse(number, &q.job) == 0)
		a = ask_loop(m, &q);
	if (!a.text) {
		answer_error(out, a.status == 404 ? 404 : 503,
			     a.status == 404 ? "the name of a batch is its job's number, such as /batch/1.json\n"
					     : "batchd is busy or stopping\n");
		return;
	}
	out->status = a.status;
	out->type = a.status == 200 ? "application/json" : NULL;
	out->body = a.text;
	out->n_bytes = strlen(a.text);
}

static void metrics_answer(void *arg, const char *path, uid_t uid, struct http_answer *out)
{
	struct metrics *m = arg;
	bool is_text = !strcmp(path, "/metrics");
	const char *status;

	if (!strcmp(path, "/")) {
		answer_page(out);
		return;
	}
	if (!strncmp(path, "/batch/", 7)) {
		answer_pictures(m, path + 7, uid, out);
		return;
	}
	if (!is_text && strcmp(path, "/status.json") != 0) {
		answer_error(out, 404, "there are /, /metrics, /status.json and /batch/NUMBER.json\n");
		return;
	}
	status = status_of(m, uid);
	if (!status) {
		answer_error(out, 503, "batchd is busy or stopping\n");
		return;
	}
	out->type = is_text ? "text/plain; version=0.0.4; charset=utf-8" : "application/json";
	out->body = is_text ? metrics_text(status, &out->n_bytes) : strdup(status);
	if (!is_text && out->body)
		out->n_bytes = strlen(out->body);
	if (!out->body)
		answer_error(out, 503, "out of memory\n");
}

/* ---- beginning and end ---- */

void metrics_destroy(struct metrics *m)
{
	assert(is_loop_thread());
	if (!m)
		return;
	for (unsigned i = 0; i < VIEWERS; i++)
		free(m->kept[i].json);
	free(m->answer.text);
	pthread_cond_destroy(&m->answered);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

static struct metrics *metrics_create(struct engine *e)
{
	struct metrics *m = calloc(1, sizeof *m);
	pthread_condattr_t monotonic;

	if (!m)
		return NULL;
	m->engine = e;
	pthread_mutex_init(&m->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&m->answered, &monotonic);
	pthread_condattr_destroy(&monotonic);
	return m;
}

static struct metrics *metrics_off(struct metrics *m, const char *address, const char *why)
{
	log_record(LOG_LEVEL_ERROR, "metrics-off", "no metrics at %s: %s", address, why);
	metrics_destroy(m);
	return NULL;
}

struct metrics *metrics_start(struct engine *e, const char *address)
{
	assert(is_loop_thread());
	assert(address);
	struct metrics *m = metrics_create(e);
	const char *why = "out of memory";
	char where[128];
	int fd;

	if (!m || metrics_address_parse(address, &m->address, &why) < 0)
		return metrics_off(m, address, why);
	fd = metrics_address_listen(&m->address, e->socket_path);
	if (fd < 0)
		return metrics_off(m, address, strerror(-fd));
	metrics_address_text(&m->address, fd, where, sizeof where);
	if (uv_async_init(&e->loop, &m->asked, on_asked) < 0) {
		close(fd);
		return metrics_off(m, address, "the loop has no room");
	}
	m->asked.data = m;
	uv_unref((uv_handle_t *)&m->asked);
	m->http = http_start(&(struct http_params){ .fd = fd,
						    .anyone = m->address.public || m->address.at.ss_family == AF_UNIX,
						    .answer = metrics_answer,
						    .arg = m },
			     &why);
	if (!m->http) {
		metrics_address_remove(&m->address);
		log_record(LOG_LEVEL_ERROR, "metrics-off", "no metrics at %s: %s", address, why);
		return m; /* the handle is the loop's until its end */
	}
	log_record(LOG_LEVEL_NOTICE, "metrics", "metrics at %s", where);
	return m;
}

void metrics_stop(struct metrics *m)
{
	assert(is_loop_thread());
	if (!m)
		return;
	pthread_mutex_lock(&m->lock);
	m->stopping = true;
	m->is_asked = false;
	pthread_cond_signal(&m->answered);
	pthread_mutex_unlock(&m->lock);
	if (m->http) {
		http_stop(m->http);
		metrics_address_remove(&m->address);
	}
	m->http = NULL;
}
