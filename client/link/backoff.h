/* Pauses between tries: each is twice as long as the one before. */
#ifndef BATCHD_CLIENT_BACKOFF_H
#define BATCHD_CLIENT_BACKOFF_H

struct backoff {
	unsigned first_ms, most_ms; /* 1 and more */
	unsigned last_ms;           /* 0: none yet */
};

/* How long to pause before the next try, in ms. */
unsigned backoff_next_ms(struct backoff *b);

#endif
