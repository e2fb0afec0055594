/* The batches of a stream that are made or in work, in order. Loop thread only. */
#ifndef BATCHD_STREAM_LIST_H
#define BATCHD_STREAM_LIST_H

struct slot;
struct stream;

void stream_append(struct stream *s, struct slot *slot);
/* Frees the slot if it is not needed. */
void stream_try_free(struct stream *s, struct slot *slot);
/* Drops this batch and all batches after it; they would have to be made again. Those in work are cancelled, the ready
 * ones stay readable, and are freed when their holders release them. */
void stream_drop_from(struct stream *s, struct slot *slot);

#endif
