/* The position of a loader, and how to continue from a saved one. */
#include <stdio.h>
#include <string.h>

#include "loader/loader.h"
#include "loader/position.h"
#include "loader/reconnect.h"
#include "link/token.h"

static uint64_t resume_consumers(const struct batchd_loader *l)
{
	return l->share ? 1 : l->link->info.world_size;
}

static void resume_describe(const struct batchd_loader *l, struct token *t)
{
	*t = (struct token){
		.content_id = l->link->content_id,
		.n_samples = l->link->info.n_samples,
		.pipeline_id = l->link->pipeline_id,
		.seed = l->options.seed,
		.batch_size = l->link->info.batch_size,
		.consumers = resume_consumers(l),
		.shuffle = (uint64_t)l->options.shuffle,
		.own_batches = l->own_batches,
		.repeats = l->repeats,
		.epoch_rows = l->epoch_rows,
	};
	snprintf(t->source, sizeof t->source, "%s", l->options.dataset);
}

int batchd_token(const struct batchd_loader *l, const struct batchd_batch *b, char *buf, size_t size)
{
	struct batchd_batch full = { 0 };
	pthread_mutex_t *lock = (pthread_mutex_t *)&l->lock;
	struct token t;
	bool closed;

	if (loader_is_foreign(l))
		return BATCHD_E_FORKED;
	pthread_mutex_lock(lock); /* a reconnect in another thread changes these fields */
	closed = loader_is_closed(l);
	if (!closed)
		resume_describe(l, &t);
	pthread_mutex_unlock(lock);
	if (closed)
		return BATCHD_E_CLOSED;
	if (b) {
		memcpy(&full, b, b->size_bytes < sizeof full ? b->size_bytes : sizeof full);
		t.epoch = full.epoch;
		t.base = full.base;
		t.next = full.step + 1;
		t.last = full.last;
		t.n_given = full.n_given;
		t.order = full.order;
	} else {
		t.epoch = l->epoch;
		t.base = l->base;
		t.next = l->next_step;
		t.last = l->epoch_state == EPOCH_OVER;
		t.n_given = l->n_given;
		t.order = l->order;
	}
	return token_write(&t, buf, size);
}

/* ---- resuming ---- */

static int resume_refuse(struct batchd_loader *l, const char *what, uint64_t then, uint64_t now)
{
	fault_set(&l->fault, 0, "the state was saved with %s=%llu, this loader has %s=%llu: the order differs", what,
		  (unsigned long long)then, what, (unsigned long long)now);
	return BATCHD_E_INVALID;
}

/* The daemon keeps no list of the files that there were, but find(1) can tell which are newer than a checkpoint. */
static int refuse_data(struct batchd_loader *l, const struct token *t)
{
	const char *dataset = l->options.dataset;
	char change[1024];

	token_explain(t, dataset, l->link->info.n_samples, change, sizeof change);
	fault_set(&l->fault, 0, "the state belongs to another data set than %s is now: %s%s", dataset, change,
		  strchr(dataset, '/')
			  ? ". `find . -cnewer CHECKPOINT` in its folder lists the files and folders that have changed"
			  : "");
	return BATCHD_E_INVALID;
}

static int check_token(struct batchd_loader *l, const struct token *t)
{
	if (t->own_batches != l->own_batches)
		return resume_refuse(l, "own_batches", t->own_batches, l->own_batches);
	if (t->content_id != l->link->content_id)
		return refuse_data(l, t);
	if (!t->own_batches && t->seed != l->options.seed)
		return resume_refuse(l, "seed", t->seed, l->options.seed);
	if (!t->own_batches && t->shuffle != (uint64_t)l->options.shuffle)
		return resume_refuse(l, "shuffle", t->shuffle, (uint64_t)l->options.shuffle);
	if (t->repeats != l->repeats)
		return resume_refuse(l, "repeats", t->repeats, l->repeats);
	if (t->epoch_rows != l->epoch_rows)
		return resume_refuse(l, "epoch_rows", t->epoch_rows, l->epoch_rows);
	if (!t->own_batches && t->base > position_length(l, &l->link->info)) {
		fault_set(&l->fault, 0, "the token is damaged: it stands beyond the end of the data set");
		return BATCHD_E_INVALID;
	}
	if (t->pipeline_id != l->link->pipeline_id)
		loader_event(
			l, BATCHD_EVENT_CHANGED,
			"the state was saved with another transform: the samples are the same, what is made of them is not");
	return 0;
}

/* own_batches: the rows of a step are numbered from base + step * batch_size * trainers on, and a row's number is an
 * input of its augmentation. No remaining row may have the number of a row that was given out. With smaller steps than
 * before, the skipped steps take numbers up to the token's position. */
static uint64_t own_base(const struct batchd_loader *l, const struct token *t)
{
	uint64_t then = t->batch_size * t->consumers, now = l->link->info.batch_size * resume_consumers(l);

	return now < then ? t->base + t->next * (then - now) : t->base;
}

/* The same position, counted in this loader's batches and trainers. */
static void resume_convert(const struct batchd_loader *l, const struct token *t, struct batchd_position *p)
{
	bool same = l->served || (t->batch_size == l->link->info.batch_size && t->consumers == resume_consumers(l));

	p->n_given = t->n_given;
	p->ended = t->last;
	if (t->last) {
		p->epoch = t->epoch + 1;
	} else {
		p->epoch = t->epoch;
		p->base = l->own_batches ? own_base(l, t)
			  : same         ? t->base
					 : t->base + t->next * t->batch_size * t->consumers;
		p->step = same || l->own_batches ? t->next : 0;
		p->order = t->order;
	}
}

/* A producer's batches are dealt out in turn: a different number of ranks can only continue at the start of a round of
 * their own. */
static int deal_out_again(struct batchd_loader *l, struct token *t)
{
	uint64_t n = t->next * t->consumers;

	if (n % resume_consumers(l)) {
		fault_set(
			&l->fault, 0,
			"the state is after batch %llu of its epoch, where %llu ranks cannot go on: they have had a multiple of %llu",
			(unsigned long long)n, (unsigned long long)resume_consumers(l),
			(unsigned long long)resume_consumers(l));
		return BATCHD_E_INVALID;
	}
	t->next = n / resume_consumers(l);
	return 0;
}

static int resume(struct batchd_loader *l, const char *token, struct batchd_position *position)
{
	struct batchd_position full = { .size_bytes = position->size_bytes };
	struct token t;
	int r = loader_check(l);

	if (r < 0)
		return r;
	r = token_read(token, &t, &l->fault);
	l->fault.code = 0;
	if (r == 0)
		r = check_token(l, &t);
	if (r < 0)
		return r;
	if (l->served && !t.last)
		r = deal_out_again(l, &t);
	if (r < 0)
		return r;
	resume_convert(l, &t, &full);
	l->n_given = full.n_given;
	l->resumed = full;
	if (!position_is_running(l)) { /* a token that is taken now has the same position */
		l->link->continues = false;
		position_move(l, EPOCH_REST);
		l->epoch = full.epoch;
		l->base = full.base;
		l->next_step = l->n_pushed = full.step;
		l->order = full.order;
	}
	memcpy(position, &full, full.size_bytes < sizeof full ? full.size_bytes : sizeof full);
	return 0;
}

int batchd_resume(struct batchd_loader *l, const char *token, struct batchd_position *position)
{
	int r = loader_enter(l);

	return r < 0 ? r : loader_leave(l, resume(l, token, position));
}
