#include "loader/pending.h"

#include <stdlib.h>
#include <string.h>

void pending_drop_all(struct batchd_loader *l)
{
	while (l->pending_first) {
		struct pending *p = l->pending_first;

		l->pending_first = p->next;
		free(p);
	}
	l->pending_last = NULL;
}

bool pending_keep(struct batchd_loader *l, const uint64_t *indices, uint32_t n)
{
	struct pending *p = malloc(sizeof *p + n * sizeof *indices);

	if (!p)
		return false;
	p->next = NULL;
	p->n = n;
	memcpy(p->index, indices, n * sizeof *indices);
	if (l->pending_last)
		l->pending_last->next = p;
	else
		l->pending_first = p;
	l->pending_last = p;
	return true;
}

void pending_forget_first(struct batchd_loader *l)
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
	Batchd__Wire__Indices body = BATCHD__WIRE__INDICES__INIT;

	body.seek = l->seek;
	body.step = step;
	body.n_index = n;
	body.index = p->index + first;
	body.more = first + n < p->n;
	return link_send(l->link, WIRE_CLIENT(INDICES, indices, &body), &l->fault);
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

int pending_send_last(struct batchd_loader *l)
{
	return send_indices(l, l->n_pushed - 1, l->pending_last);
}

int pending_send_all(struct batchd_loader *l)
{
	uint64_t step = l->next_step;
	int r = 0;

	for (struct pending *p = l->pending_first; r == 0 && p; p = p->next)
		r = send_indices(l, step++, p);
	return r;
}
