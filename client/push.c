/* A trainer's own batches: pushed to the daemon, and kept until they come back, for a reconnect. */
#include "loader.h"

#include <stdlib.h>
#include <string.h>

void push_drop_all(struct batchd_loader *l)
{
	while (l->pending_first) {
		struct pending *p = l->pending_first;

		l->pending_first = p->next;
		free(p);
	}
	l->pending_last = NULL;
}

static void keep_pending(struct batchd_loader *l, struct pending *p)
{
	p->next = NULL;
	if (l->pending_last)
		l->pending_last->next = p;
	else
		l->pending_first = p;
	l->pending_last = p;
}

void push_forget_first(struct batchd_loader *l)
{
	struct pending *p = l->pending_first;

	if (!p)
		return;
	l->pending_first = p->next;
	if (!p->next)
		l->pending_last = NULL;
	free(p);
}

static int send_part(struct batchd_loader *l, uint64_t step, struct pending *p, uint32_t first, uint32_t n)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__Indices body = BATCHD__WIRE__INDICES__INIT;

	body.seek = l->seek;
	body.step = step;
	body.n_index = n;
	body.index = p->index + first;
	body.more = first + n < p->n;
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_INDICES;
	m.indices = &body;
	return loader_send(l, &m);
}

static int send_indices(struct batchd_loader *l, uint64_t step, struct pending *p)
{
	int r = 0;

	for (uint32_t first = 0; r == 0 && first < p->n; first += WIRE_MAX_INDICES) {
		uint32_t n = p->n - first < WIRE_MAX_INDICES ? p->n - first : WIRE_MAX_INDICES;

		r = send_part(l, step, p, first, n);
	}
	return r;
}

int push_again(struct batchd_loader *l)
{
	uint64_t step = l->next_step;
	int r = 0;

	for (struct pending *p = l->pending_first; r == 0 && p; p = p->next)
		r = send_indices(l, step++, p);
	return r;
}

static int push(struct batchd_loader *l, const uint64_t *indices, uint32_t n)
{
	struct pending *p;
	int r = loader_check(l);

	if (r < 0)
		return r;
	if (!l->own_batches || !l->streaming || l->pushed_all)
		return loader_misuse(
			l, BATCHD_E_INVALID,
			"batchd_push needs option own_batches, and goes between batchd_start and batchd_push_end");
	if (n < 1 || n > l->info.batch_size)
		return loader_misuse(l, BATCHD_E_INVALID, "batchd_push: a batch has 1 to batch_size indices");
	for (uint32_t i = 0; i < n; i++)
		if (indices[i] >= l->info.n_samples)
			return loader_misuse(l, BATCHD_E_INVALID,
					     "batchd_push: an index is not below the number of samples");
	if (l->n_pushed - l->next_step >= (uint64_t)l->info.window + 2)
		return BATCHD_AGAIN;
	p = malloc(sizeof *p + n * sizeof *indices);
	if (!p)
		return loader_misuse(l, BATCHD_E_NOMEM, "out of memory");
	p->n = n;
	memcpy(p->index, indices, n * sizeof *indices);
	keep_pending(l, p);
	l->n_pushed++;
	if (l->absence.lost)
		return 0; /* sent as soon as there is somebody to send it to */
	r = send_indices(l, l->n_pushed - 1, p);
	return loader_is_lost(l, r) ? 0 : r;
}

int batchd_push(struct batchd_loader *l, const uint64_t *indices, uint32_t n)
{
	int r = loader_enter(l);

	return r < 0 ? r : loader_leave(l, push(l, indices, n));
}

static int push_end(struct batchd_loader *l)
{
	int r = loader_check(l);

	if (r < 0)
		return r;
	if (!l->own_batches)
		return loader_misuse(l, BATCHD_E_INVALID, "batchd_push_end needs option own_batches");
	l->pushed_all = true;
	return 0;
}

int batchd_push_end(struct batchd_loader *l)
{
	int r = loader_enter(l);

	return r < 0 ? r : loader_leave(l, push_end(l));
}
