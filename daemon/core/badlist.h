/* Samples that could not be decoded: which, how often, and whether there are too many. Any thread may add. */
#ifndef BATCHD_BADLIST_H
#define BATCHD_BADLIST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { BADLIST_NAMED = 1000 }; /* kept by name; more are only counted */

struct bad_sample {
	uint64_t index;
	char *text; /* the file's name and what is wrong with it */
};

struct badlist {
	pthread_mutex_t lock; /* guards everything below */
	uint8_t *seen;        /* a bit per sample */
	struct bad_sample *named;
	uint64_t n_named, n_distinct, n_samples;
};

int badlist_init(struct badlist *b, uint64_t n_samples); /* 0 or -ENOMEM */
void badlist_finish(struct badlist *b);

/* Notes one; returns whether it is new. */
bool badlist_add(struct badlist *b, uint64_t index, const char *text);
uint64_t badlist_count(struct badlist *b);
/* Whether the distinct bad samples are more than `budget` (a fraction) of all. */
bool badlist_exceeds(struct badlist *b, double budget);
/* One line with up to `most` of them by name, for an error's text. */
void badlist_describe(struct badlist *b, unsigned most, char *buf, size_t size);

#endif
