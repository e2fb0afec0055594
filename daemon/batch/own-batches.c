/* See own-batches.h. */
#include "batch/own-batches.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "batch/loader-spec.h"
#include "batch/stream.h"
#include "base/thread-kind.h"

enum { MORE_OWN_BATCHES = 2 }; /* unanswered ones beyond the window, as proto/README.md allows */

/* Batches that a trainer sends ahead are charged to its user, like the batches made from them. 0 or STREAM_E_LIMIT. */
static int own_charge(struct stream *s, uint64_t bytes)
{
	return s->bytes.account && charge_grow(&s->bytes, bytes) ? STREAM_E_LIMIT : 0;
}

static void own_refund(struct stream *s, uint64_t bytes)
{
	if (s->bytes.account)
		charge_shrink(&s->bytes, bytes);
}

static void own_free(struct stream *s, struct own_batch *b)
{
	if (b)
		own_refund(s, sizeof(*b) + b->n * sizeof(b->index[0]));
	free(b);
}

static struct own_batch *own_append(struct own_batch *b, uint64_t step, const uint64_t *indices, uint32_t n)
{
	uint32_t have = b ? b->n : 0;
	struct own_batch *grown = realloc(b, sizeof(*b) + ((size_t)have + n) * sizeof(*indices));
	if (!grown)
		return NULL;
	grown->next = NULL;
	grown->step = step;
	for (uint32_t i = 0; i < n; i++)
		grown->index[have + i] = indices[i];
	grown->n = have + n;
	return grown;
}

void own_batches_take(struct stream *s, struct slot *slot)
{
	assert(is_loop_thread());
	assert(s->own_first && slot->stream == s);
	struct own_batch *b = s->own_first;
	assert(s->n_own > 0 && b->n > 0 && b->n <= s->host->spec->batch_size);
	s->own_first = b->next;
	s->n_own--;
	slot->n_rows = b->n;
	slot->n_padding = 0;
	slot->last = false;
	int64_t *indices = slot_indices(slot);
	for (uint32_t i = 0; i < b->n; i++)
		indices[i] = (int64_t)b->index[i];
	own_free(s, b);
}

void own_batches_drop(struct stream *s)
{
	assert(is_loop_thread());
	while (s->own_first) {
		struct own_batch *b = s->own_first;
		s->own_first = b->next;
		own_free(s, b);
	}
	own_free(s, s->own_partial);
	s->own_partial = NULL;
	s->n_own = 0;
}

/* As many as slots, those that are still being made apart: their batches wait here meanwhile. */
static uint32_t most_waiting(const struct slots *s)
{
	uint32_t n_coming = s->n_sure > s->n_made ? s->n_sure - s->n_made : 0;
	return s->n + n_coming + MORE_OWN_BATCHES;
}

int own_batches_add(struct stream *s, uint64_t step, const uint64_t *indices, uint32_t n, bool more)
{
	assert(is_loop_thread());
	assert(s->slots && s->host->spec->own_batches);
	uint64_t expected = s->next.step + s->n_own;
	uint32_t have = s->own_partial ? s->own_partial->n : 0;
	if (step != expected || s->n_own >= most_waiting(s->slots) || n > s->host->spec->batch_size - have ||
	    have + n == 0)
		return STREAM_E_INVALID;
	uint64_t bytes = (s->own_partial ? 0 : sizeof(struct own_batch)) + n * sizeof(*indices);
	if (own_charge(s, bytes))
		return STREAM_E_LIMIT;
	struct own_batch *b = own_append(s->own_partial, step, indices, n);
	if (!b) {
		own_refund(s, bytes);
		return -ENOMEM;
	}
	s->own_partial = more ? b : NULL;
	if (more)
		return 0;
	if (s->own_first)
		s->own_last->next = b;
	else
		s->own_first = b;
	s->own_last = b;
	s->n_own++;
	return 0;
}
