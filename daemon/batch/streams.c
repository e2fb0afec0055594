/* See streams.h. */
#include "batch/streams.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread-kind.h"

/* Where the stream of that number is, or would be. */
static uint32_t streams_place_of(const struct streams *s, uint32_t number)
{
	uint32_t low = 0, high = s->n;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (s->list[middle]->number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct stream *streams_find(const struct streams *s, uint32_t number)
{
	uint32_t place = streams_place_of(s, number);
	return place < s->n && s->list[place]->number == number ? s->list[place] : NULL;
}

struct stream *streams_add(struct streams *s, uint32_t number)
{
	assert(is_loop_thread());
	assert(s->host && s->n_consumers > 0);
	assert(!streams_find(s, number));
	struct stream **grown = realloc(s->list, (s->n + 1) * sizeof(struct stream *));
	if (grown)
		s->list = grown;
	struct stream *added = grown ? malloc(sizeof(*added)) : NULL;
	if (!added || stream_init(added, s->host, number, s->n_consumers)) {
		free(added);
		return NULL;
	}
	uint32_t place = streams_place_of(s, number);
	memmove(&s->list[place + 1], &s->list[place], (s->n - place) * sizeof(struct stream *));
	s->list[place] = added;
	s->n++;
	return added;
}

void streams_finish(struct streams *s)
{
	assert(is_loop_thread());
	for (uint32_t i = 0; i < s->n; i++) {
		pool_queue_remove(s->host->pool, &s->list[i]->queue);
		free(s->list[i]);
	}
	free(s->list);
	s->list = NULL;
	s->n = 0;
}
