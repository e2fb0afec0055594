/* What stream.c lets group.c do with a stream: the steps that stream.h's functions are made of. Loop thread only. */
#ifndef BATCHD_STREAM_IMPL_H
#define BATCHD_STREAM_IMPL_H

#include "core/stream.h"

/* Publishes what can be published and begins what can be begun, in this stream alone. */
void stream_step(struct stream *s);
/* Collects what trainers have left to be collected. */
void stream_look(struct stream *s);
/* Drops this batch and all behind it; they would have to be made again. What is on lease stays readable. */
void stream_drop_from(struct stream *s, struct slot *slot);
/* Whether a trainer at this position can go on in the stream: that batch and all behind it are there still, or it comes
 * next. */
bool stream_covers(const struct stream *s, const struct position *at);
/* Where the next batch is begun. */
void stream_set_next(struct stream *s, const struct position *to);
/* Owes the consumer every batch from `to` on and none before. */
void stream_owe(struct stream *s, struct consumer *c, uint32_t place, const struct position *to);
/* The place is owed nothing any more, unless somebody has it. */
void stream_forget(struct stream *s, uint32_t place);
/* Takes the consumer out; it is owed nothing any more. What it holds it keeps. */
void stream_remove(struct stream *s, uint32_t place);
/* Frees the slot if nobody needs it. */
void stream_try_free(struct stream *s, struct slot *slot);
/* No more is made here until it is positioned again. */
void stream_stop(struct stream *s);

#endif
