/* What a stream's trainers wait for: who wakes the loop, and how soon the pool should serve the stream. Loop thread only. */
#ifndef BATCHD_STREAM_WAKING_H
#define BATCHD_STREAM_WAKING_H

#include <stdbool.h>

struct stream;

/* Collects the releases that trainers have left in their rings. */
void stream_look(struct stream *s);
/* Before the loop may sleep: each consumer says whether its trainer wakes the loop, and for what. True if there is
 * something to do after all.
 *
 * While every trainer has unread batches, releases may gather until they are worth a wake-up. For a starving trainer a
 * batch is in work, or a job that it waits for will wake the loop; only when hardly anything is in work does every
 * release count, and while there are large batches, as the next one may wait for their memory. */
bool stream_arm(struct stream *s);
/* Tells the pool how urgent the stream's rows are. */
void stream_update_urgency(struct stream *s);

#endif
