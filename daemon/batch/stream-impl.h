/* Functions of stream.c for group.c: the steps of which stream.h's functions consist. Loop thread only. */
#ifndef BATCHD_STREAM_IMPL_H
#define BATCHD_STREAM_IMPL_H

#include "batch/stream.h"

/* A rank's bit in pending, expected and members. */
static inline uint64_t stream_bit(uint32_t rank)
{
	return (uint64_t)1 << (rank & 63);
}

/* Publishes what can be published and begins what can be begun, in this stream alone. */
void stream_step(struct stream *s);
/* Sets the position of the next batch to begin. */
void stream_set_next(struct stream *s, const struct position *to);
/* Owes the consumer every batch from `to` on and none before it. */
void stream_mark_pending(struct stream *s, struct consumer *c, uint32_t place, const struct position *to);
/* Owes the place nothing any more, unless a consumer has it. */
void stream_clear_pending(struct stream *s, uint32_t place);
/* Takes the consumer out and owes it nothing any more. It keeps the slots that it holds. */
void stream_remove(struct stream *s, uint32_t place);
/* Makes no more batches until the stream is positioned again. */
void stream_stop(struct stream *s);

#endif
