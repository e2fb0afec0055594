/* See badlist.h. A bit per sample, not a hash table: 160 KB for ImageNet. The bits are allocated with the first bad
 * sample: a client may ask for 2^62 made-up samples, none of which can be bad. */
#include "batch/badlist.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int badlist_init(struct badlist *b, uint64_t n_samples, uint64_t n_left_out)
{
	*b = (struct badlist){ .n_samples = n_samples, .n_left_out = n_left_out };
	b->named = calloc(BADLIST_NAMED, sizeof(*b->named));
	if (!b->named)
		return -ENOMEM;
	pthread_mutex_init(&b->lock, NULL);
	return 0;
}

void badlist_finish(struct badlist *b)
{
	if (!b->named)
		return;
	for (uint64_t i = 0; i < b->n_named; i++)
		free(b->named[i].text);
	free(b->named);
	free(b->seen);
	pthread_mutex_destroy(&b->lock);
	*b = (struct badlist){ 0 };
}

bool badlist_add(struct badlist *b, uint64_t index, const char *text, bool outside)
{
	assert(b->named && index < b->n_samples);
	pthread_mutex_lock(&b->lock);
	uint8_t bit = (uint8_t)(1u << (index % 8));
	if (!b->seen)
		b->seen = calloc(b->n_samples / 8 + 1, 1);
	bool is_new = !b->seen || !(b->seen[index / 8] & bit);
	if (is_new) {
		if (b->seen)
			b->seen[index / 8] |= bit;
		b->n_distinct++;
		b->n_outside += outside;
		char *copy = b->n_named < BADLIST_NAMED ? strdup(text) : NULL;
		if (copy)
			b->named[b->n_named++] = (struct bad_sample){ index, copy };
	}
	pthread_mutex_unlock(&b->lock);
	return is_new;
}

uint64_t badlist_count(struct badlist *b)
{
	assert(b->named);
	pthread_mutex_lock(&b->lock);
	uint64_t n = b->n_distinct;
	pthread_mutex_unlock(&b->lock);
	return n;
}

uint64_t badlist_count_files(struct badlist *b)
{
	assert(b->named);
	pthread_mutex_lock(&b->lock);
	uint64_t n = b->n_distinct - b->n_outside;
	pthread_mutex_unlock(&b->lock);
	return n;
}

bool badlist_exceeds(struct badlist *b, double budget)
{
	assert(budget >= 0);
	return (double)(badlist_count(b) + b->n_left_out) > budget * (double)(b->n_samples + b->n_left_out);
}

void badlist_describe(struct badlist *b, unsigned most, char *buf, size_t size)
{
	assert(b->named && size > 0);
	pthread_mutex_lock(&b->lock);
	size_t used = (size_t)snprintf(buf, size, "%llu of %llu samples cannot be decoded",
				       (unsigned long long)b->n_distinct, (unsigned long long)b->n_samples);
	for (uint64_t i = 0; i < b->n_named && i < most && used < size; i++)
		used += (size_t)snprintf(buf + used, size - used, "%s %s", i ? ";" : ":", b->named[i].text);
	if (b->n_distinct > most && used < size)
		snprintf(buf + used, size - used, "; and %llu more", (unsigned long long)(b->n_distinct - most));
	pthread_mutex_unlock(&b->lock);
}
