/* Samples that could not be decoded: which samples, how often, and whether there are too many. Any thread may add
 * one. */
#ifndef BATCHD_BADLIST_H
#define BATCHD_BADLIST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { BADLIST_NAMED = 1000 }; /* kept by name; further ones are only counted */

struct bad_sample {
	uint64_t index;
	char *text; /* the file's name and what is wrong with it */
};

struct badlist {
	pthread_mutex_t lock; /* guards everything below */
	uint8_t *seen;        /* a bit per sample */
	struct bad_sample *named;
	uint64_t n_named, n_distinct, n_samples;
	uint64_t n_outside;  /* of the distinct ones: `batchctl verify` does not find them */
	uint64_t n_left_out; /* bad, too, and not among the samples */
};

int badlist_init(struct badlist *b, uint64_t n_samples, uint64_t n_left_out); /* 0 or -ENOMEM */
void badlist_finish(struct badlist *b);

/* Notes a bad sample; returns whether it is new. outside: the reason is not the file's content, but access, memory or a
 * limit. */
bool badlist_add(struct badlist *b, uint64_t index, const char *text, bool outside);
uint64_t badlist_count(struct badlist *b);
/* Those of which the file's content is the reason. */
uint64_t badlist_count_files(struct badlist *b);
/* Whether the distinct bad samples and those that are left out exceed `budget`, a fraction of all samples. */
bool badlist_exceeds(struct badlist *b, double budget);
/* One line for an error's text, with up to `most` bad samples by name. */
void badlist_describe(struct badlist *b, unsigned most, char *buf, size_t size);

#endif
