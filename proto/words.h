/* Misspelt words, for "did you mean ...?". */
#ifndef BATCHD_WORDS_H
#define BATCHD_WORDS_H

#include <stddef.h>

/* Letters to insert, remove or replace to get from a to b (Levenshtein). SIZE_MAX: one of them is too long. */
size_t word_distance(const char *a, const char *b);
/* The largest distance at which a word may have been meant: a third of the letters may be wrong, and one more. */
size_t word_most_wrong(const char *word);
/* The candidate that `word` was most likely meant to be, or NULL when none is close. Candidates end with NULL. */
const char *word_nearest(const char *word, const char *const *candidates);

#endif
