/* Functions of stream.c for group.c: the steps of which stream.h's functions consist. Loop thread only. */
#ifndef BATCHD_STREAM_IMPL_H
#define BATCHD_STREAM_IMPL_H

#include "core/stream.h"

/* Publishes what can be published and begins what can be begun, in this stream alone. */
void stream_step(struct stream *s);
/* Collects the releases that trainers have left in their rings. */
void stream_look(struct stream *s);
/* Drops this batch and all batches after it; they would have to be made again. Leased batches stay readable. */
void stream_drop_from(struct stream *s, struct slot *slot);
/* Whether a trainer at this position can go on in the stream: that batch and all after it still exist, or it is the
 * next batch to begin. */
bool stream_covers(const struct stream *s, const struct position *at);
/* Sets the position of the next batch to begin. */
void stream_set_next(struct stream *s, const struct position *to);
/* Owes the consumer every batch from `to` on and none before it. */
void stream_mark_pending(struct stream *s, struct consumer *c, uint32_t place, const struct position *to);
/* Owes the place nothing any more, unless a consumer has it. */
void stream_clear_pending(struct stream *s, uint32_t place);
/* Takes the consumer out and owes it nothing any more. It keeps the slots that it holds. */
void stream_remove(struct stream *s, uint32_t place);
/* Frees the slot if it is not needed. */
void stream_try_free(struct stream *s, struct slot *slot);
/* Makes no more batches until the stream is positioned again. */
void stream_stop(struct stream *s);

#endif
