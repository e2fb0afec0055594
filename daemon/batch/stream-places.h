/* Which batches a stream has, or will have: positions in it, and the way between two of them. Loop thread only. */
#ifndef BATCHD_STREAM_PLACES_H
#define BATCHD_STREAM_PLACES_H

#include <stdbool.h>
#include <stdint.h>

struct position;
struct stream;

/* The number of batches of an epoch, after base samples. */
uint64_t stream_count_batches(const struct stream *s, uint64_t base);
/* How many batches lie between two positions, a first; 0 if b is not after a. */
uint64_t stream_distance(const struct stream *s, const struct position *a, const struct position *b);
/* The first batch after which none is missing: where a consumer that joins others can begin. */
const struct position *stream_oldest(const struct stream *s);
/* Whether a trainer at this position can go on in the stream: that batch and all after it still exist, or it is the
 * next batch to begin. */
bool stream_covers(const struct stream *s, const struct position *at);
/* Whether the stream has, or will have, batches of that epoch counted from that base sample. An epoch that is resumed
 * in its middle is the exception. */
bool stream_comes_by(const struct stream *s, const struct position *to);
/* Whether all other consumers still reach their positions if the stream goes back to `to`. A consumer that has had the
 * last batch of an epoch may stand after it. */
bool stream_others_come_by(const struct stream *s, const struct position *to);

#endif
